use std::{fmt, str::FromStr};

use super::IdError;

/// The number of a guest, 100 to 999 999 999 (`pve-vmid` of PVE's schema).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vmid(u32);

const WHAT: &str = "a guest number";
const EXPECTED: &str = "digits from 100 to 999999999 without a leading zero";

impl Vmid {
    /// The smallest number a guest can have.
    pub const MIN: Self = Self(100);
    /// The largest number a guest can have.
    pub const MAX: Self = Self(999_999_999);

    /// Checks the range.
    ///
    /// # Errors
    /// Fails when the number is below 100 or above 999 999 999.
    pub fn new(number: u32) -> Result<Self, IdError> {
        if (Self::MIN.0..=Self::MAX.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(IdError::new(WHAT, &number.to_string(), EXPECTED))
        }
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl FromStr for Vmid {
    type Err = IdError;

    /// Reads the canonical decimal form only: no sign, space, leading zero or digit outside ASCII.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let canonical = (3..=9).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_digit())
            && !text.starts_with('0');
        canonical
            .then(|| text.parse().ok())
            .flatten()
            .and_then(|n| Self::new(n).ok())
            .ok_or_else(|| IdError::new(WHAT, text, EXPECTED))
    }
}

impl TryFrom<u32> for Vmid {
    type Error = IdError;

    fn try_from(number: u32) -> Result<Self, IdError> {
        Self::new(number)
    }
}

impl From<Vmid> for u32 {
    fn from(vmid: Vmid) -> Self {
        vmid.0
    }
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
