use std::str::FromStr;

use super::{IdError, text_id};

/// The id of a storage, `local-lvm` (`parse_storage_id` of PVE's schema).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(String);

text_id!(StorageId);

/// PVE names no upper bound; a longer one could not form a URL with room for the rest.
const MAX_LEN: usize = 128;

impl FromStr for StorageId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let valid = (2..=MAX_LEN).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a storage id",
                text,
                "at least 2 characters: a letter, then letters, digits, `-`, `_` or `.`, ending in a letter or digit",
            ))
        }
    }
}
