//! The files a storage can be given: their names, kinds and checksums.

use std::{fmt, str::FromStr};

use crate::{
    error::Error,
    ids::{IdError, StorageId, Volid},
};

/// What a file is to a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileContent {
    /// An ISO image.
    Iso,
    /// A container template.
    Vztmpl,
    /// A disk image or appliance to import (PVE 8.4 and later).
    Import,
}

impl FileContent {
    fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Iso => &[".iso", ".img"],
            Self::Vztmpl => &[".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"],
            Self::Import => &[".ova", ".ovf", ".qcow2", ".raw", ".vmdk"],
        }
    }
}

impl fmt::Display for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iso => "iso",
            Self::Vztmpl => "vztmpl",
            Self::Import => "import",
        })
    }
}

/// The name of a file on a storage: 1 to 255 letters, digits, `.`, `-` or `_`, not starting with a dot. PVE renames
/// anything else without a word, so it is refused here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

impl FileName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The volume the file becomes.
    ///
    /// # Errors
    /// Fails when the storage's name and the file's are too long together.
    pub fn volid(&self, storage: &StorageId, content: FileContent) -> Result<Volid, IdError> {
        format!("{storage}:{content}/{self}").parse()
    }

    /// Refuses a name whose ending is not one of the content's.
    pub(super) fn check(&self, content: FileContent) -> Result<(), Error> {
        let lower = self.0.to_ascii_lowercase();
        if content.extensions().iter().any(|ending| lower.len() > ending.len() && lower.ends_with(ending)) {
            return Ok(());
        }
        let expected = content.extensions().join(", ");
        Err(Error::argument(
            "filename",
            format!("the wrong ending for `{content}`; expected one of {expected}"),
        ))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FileName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let valid = (1..=255).contains(&text.len())
            && !text.starts_with('.')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a file name",
                text,
                "1 to 255 letters, digits, `.`, `-` or `_`, not starting with a dot",
            ))
        }
    }
}

/// A checksum PVE verifies a file with, as hex.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    hex: String,
}

/// How a [`Checksum`] is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// `md5`, for old lists of checksums
    Md5,
    /// `sha1`, for old lists of checksums
    Sha1,
    /// `sha224`
    Sha224,
    /// `sha256`
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

impl ChecksumAlgorithm {
    fn digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha224 => 56,
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        })
    }
}

impl Checksum {
    /// Checks that `hex` is a checksum of this algorithm; the digits may be of either case.
    ///
    /// # Errors
    /// Fails when it is not as many hex digits as the algorithm gives.
    pub fn new(algorithm: ChecksumAlgorithm, hex: &str) -> Result<Self, IdError> {
        if hex.len() == algorithm.digits() && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self { algorithm, hex: hex.to_ascii_lowercase() })
        } else {
            Err(IdError::new("a checksum", hex, "as many hex digits as the algorithm gives (sha256: 64)"))
        }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// The digits, in lower case.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_arrives_as_it_is_or_not_at_all() {
        for name in ["debian-12.iso", "a", "A_b-1.tar.zst"] {
            assert_eq!(name.parse::<FileName>().unwrap().as_str(), name);
        }
        for name in ["", ".iso", "../x.iso", "a/b.iso", "a b.iso", "ü.iso", "a\r\n.iso", "a\".iso", "x;y.iso"]
        {
            assert!(name.parse::<FileName>().is_err(), "{name:?}");
        }
        assert!("x".repeat(255).parse::<FileName>().is_ok() && "x".repeat(256).parse::<FileName>().is_err());
    }

    #[test]
    fn the_ending_has_to_fit_the_content() {
        let check = |name: &str, content| name.parse::<FileName>().unwrap().check(content).is_ok();
        assert!(check("x.iso", FileContent::Iso) && check("X.ISO", FileContent::Iso));
        assert!(check("d.tar.zst", FileContent::Vztmpl) && check("d.qcow2", FileContent::Import));
        assert!(!check("x.exe", FileContent::Iso) && !check("iso", FileContent::Iso));
        assert!(!check("x.iso", FileContent::Vztmpl) && !check("x.zst", FileContent::Vztmpl));
    }

    #[test]
    fn a_checksum_has_the_length_of_its_algorithm() {
        let sha256 = "AB".repeat(32);
        assert_eq!(Checksum::new(ChecksumAlgorithm::Sha256, &sha256).unwrap().hex(), "ab".repeat(32));
        for odd in ["", "abc", &"g".repeat(64), &"a".repeat(63), &"a".repeat(128)] {
            assert!(Checksum::new(ChecksumAlgorithm::Sha256, odd).is_err(), "{odd}");
        }
    }
}
