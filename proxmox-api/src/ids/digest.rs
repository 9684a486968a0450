use std::str::FromStr;

use super::{IdError, text_id};

/// The digest PVE gives with a configuration, to be handed back on an update so that a change made in between is
/// refused. SHA-1 in hex for guests; up to 64 hex digits elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

text_id!(Digest);

impl FromStr for Digest {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new("a configuration digest", text, "1 to 64 hex digits"))
        }
    }
}
