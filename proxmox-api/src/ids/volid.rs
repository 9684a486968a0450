use std::{fmt, str::FromStr};

use super::{IdError, StorageId};

/// A volume: the storage and the name within it, `local:iso/debian.iso` or
/// `pbs1:backup/vm/901/2026-03-04T05:06:07Z`. Only the first colon separates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volid {
    storage: StorageId,
    volume: String,
}

const MAX_LEN: usize = 1024;

impl Volid {
    /// The storage the volume is on.
    #[must_use]
    pub fn storage(&self) -> &StorageId {
        &self.storage
    }

    /// The part after the first colon, `iso/debian.iso`.
    #[must_use]
    pub fn volume(&self) -> &str {
        &self.volume
    }
}

impl FromStr for Volid {
    type Err = IdError;

    /// Refuses what cannot be the name of a volume, and what a proxy between here and PVE could read differently
    /// from PVE: control characters, `\`, `?`, `#`, `%`, and empty, `.` or `..` path parts, a colon ending a part too.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let refused = |expected| IdError::new("a volume id", text, expected);
        let (storage, volume) = text
            .split_once(':')
            .ok_or_else(|| refused("`storage:volume`, such as `local:iso/debian.iso`"))?;
        let storage =
            storage.parse().map_err(|_| refused("a storage id before the first colon, such as `local`"))?;
        if volume.is_empty() || volume.len() > MAX_LEN {
            return Err(refused("a volume name of 1 to 1024 bytes after the colon"));
        }
        if volume.chars().any(|c| c.is_control() || matches!(c, '\\' | '?' | '#' | '%')) {
            return Err(refused("a volume name without control characters, `\\`, `?`, `#` or `%`"));
        }
        let is_dots = |part: &str| part.split(':').any(|part| matches!(part, "." | ".."));
        if volume.split('/').any(|part| part.is_empty() || is_dots(part)) {
            return Err(refused("a volume name without empty, `.` or `..` path parts"));
        }
        Ok(Self { storage, volume: volume.to_owned() })
    }
}

impl TryFrom<&str> for Volid {
    type Error = IdError;

    fn try_from(text: &str) -> Result<Self, IdError> {
        text.parse()
    }
}

impl fmt::Display for Volid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.storage, self.volume)
    }
}
