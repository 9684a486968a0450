//! The name of a change set.

use core::fmt;
use core::str::FromStr;

use data_encoding::BASE32_NOPAD;

/// A change set's name: 128 random bits, written `cs_` and 26 base32 characters in lower case.
///
/// The randomness is the caller's, so that the crate stays free of IO. An identifier is a nonce: planning the
/// same thing twice makes two sets with two digests and two approvals.
///
/// ```
/// use changeset::ChangeSetId;
/// let id = ChangeSetId::from_entropy([7; 16]);
/// assert_eq!(id.to_string(), "cs_a4dqobyha4dqobyha4dqobyha4");
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeSetId([u8; 16]);

impl ChangeSetId {
    /// Names a set after 16 bytes of good randomness.
    #[must_use]
    pub const fn from_entropy(entropy: [u8; 16]) -> Self {
        Self(entropy)
    }

    /// The sixteen bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ChangeSetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cs_{}", BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for ChangeSetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeSetId({self})")
    }
}

/// The text is no change set identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a change set id: expected `cs_` and 26 characters of a-z and 2-7, as the plan's answer gave it")]
pub struct ParseIdError;

impl FromStr for ChangeSetId {
    type Err = ParseIdError;

    /// Accepts the one canonical spelling only: no upper case, no padding, no stray low bits.
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let body = text.strip_prefix("cs_").ok_or(ParseIdError)?;
        if body.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ParseIdError);
        }
        let bytes = lower_base32(body).ok_or(ParseIdError)?;
        Ok(Self(<[u8; 16]>::try_from(bytes.as_slice()).map_err(|_| ParseIdError)?))
    }
}

fn lower_base32(body: &str) -> Option<Vec<u8>> {
    // The crate's own constant rejects non-zero trailing bits, which keeps one spelling per identifier.
    BASE32_NOPAD.decode(body.to_ascii_uppercase().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cs_40_altered_ids_do_not_parse() {
        let good = ChangeSetId::from_entropy([0xA5; 16]).to_string();
        assert!(good.parse::<ChangeSetId>().is_ok());
        let upper = good.to_uppercase();
        let long = format!("{good}a");
        let padded = format!("{good}======");
        let stray_bits = format!("{}7", &good[..good.len() - 1]);
        let newline = format!("{good}\n");
        for bad in ["", "cs_", "cs", &good[3..], &upper, &long, &padded, &stray_bits, &newline, "cs_0189"] {
            assert_eq!(bad.parse::<ChangeSetId>(), Err(ParseIdError), "{bad:?}");
        }
    }
}
