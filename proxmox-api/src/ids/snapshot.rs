use std::str::FromStr;

use super::{IdError, text_id};

/// The name of a snapshot a caller may act on: 2 to 40 characters, a letter first, then letters, digits, `_` or
/// `-` (`pve-snapshot-name`). The names PVE keeps for itself, `current`, `pending` and `vzdump`, are refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapName(String);

text_id!(SnapName);

/// `current` is the made-up entry of every snapshot list; the schema lets it pass and the task then dies.
const RESERVED: [&str; 3] = ["current", "pending", "vzdump"];

impl FromStr for SnapName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        const WHAT: &str = "a snapshot name";
        if RESERVED.iter().any(|name| text.eq_ignore_ascii_case(name)) {
            return Err(IdError::new(
                WHAT,
                text,
                "a name other than `current`, `pending` and `vzdump`, which PVE reserves",
            ));
        }
        let valid = (2..=40).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(WHAT, text, "2 to 40 characters: a letter, then letters, digits, `_` or `-`"))
        }
    }
}
