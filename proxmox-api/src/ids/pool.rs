use std::str::FromStr;

use super::{IdError, text_id};

/// The id of a pool: up to three levels, `customers/a/web`, each of letters, digits, `.`, `_` or `-`
/// (`pve-poolid`; versions before 8.1 have one level).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(String);

text_id!(PoolId);

/// PVE names no upper bound; a longer one could not form a URL with room for the rest.
const MAX_LEN: usize = 256;

impl FromStr for PoolId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let level = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        if text.len() <= MAX_LEN && text.split('/').all(level) && text.split('/').count() <= 3 {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a pool",
                text,
                "1 to 3 levels of letters, digits, `.`, `_` or `-`, joined by `/`",
            ))
        }
    }
}
