use std::str::FromStr;

use super::{IdError, text_id};
use crate::error::Error;

/// The digest PVE gives with a configuration, to be handed back on an update so that a change made in between is
/// refused. SHA-1 in hex for guests; up to 64 hex digits elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

text_id!(Digest);

impl Digest {
    /// The digest, where PVE takes one of at most 40 digits: at guests.
    pub(crate) fn for_guest(&self) -> Result<&Self, Error> {
        if self.0.len() <= 40 {
            Ok(self)
        } else {
            Err(Error::argument(
                "digest",
                "longer than the digest of a guest; take the one from its configuration",
            ))
        }
    }
}

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
