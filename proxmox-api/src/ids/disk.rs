use std::{fmt, str::FromStr};

use super::{IdError, text_id};
use crate::guest::GuestKind;

/// The key of a disk in a guest's configuration: `scsi0`, `virtio3`, `rootfs`, `mp1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskSlot(String);

text_id!(DiskSlot);

/// Where the numbers of the indexed keys end.
const INDEXED: [(&str, u16, GuestKind); 5] = [
    ("ide", 3, GuestKind::Qemu),
    ("sata", 5, GuestKind::Qemu),
    ("scsi", 30, GuestKind::Qemu),
    ("virtio", 15, GuestKind::Qemu),
    ("mp", 255, GuestKind::Lxc),
];
const SINGLE: [(&str, GuestKind); 3] =
    [("efidisk0", GuestKind::Qemu), ("tpmstate0", GuestKind::Qemu), ("rootfs", GuestKind::Lxc)];

impl DiskSlot {
    /// Which kind of guest has such a disk.
    #[must_use]
    pub fn kind(&self) -> GuestKind {
        // Parsed, so it is one of either.
        if self.0 == "rootfs" || self.0.starts_with("mp") { GuestKind::Lxc } else { GuestKind::Qemu }
    }
}

impl FromStr for DiskSlot {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let indexed = INDEXED.iter().any(|(prefix, last, _)| {
            text.strip_prefix(prefix).is_some_and(|index| {
                let canonical = index == "0" || !index.starts_with('0');
                index.bytes().all(|b| b.is_ascii_digit())
                    && canonical
                    && index.parse::<u16>().is_ok_and(|index| index <= *last)
            })
        });
        if indexed || SINGLE.iter().any(|(name, _)| *name == text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a disk",
                text,
                "ide0-3, sata0-5, scsi0-30, virtio0-15, efidisk0, tpmstate0, rootfs or mp0-255",
            ))
        }
    }
}

/// An amount of disk with its unit, `32G`, `512M`. PVE takes a number without a unit for bytes; so does this, and
/// prints what it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiskSize {
    number: u64,
    unit: Option<char>,
}

impl DiskSize {
    /// So many GiB.
    #[must_use]
    pub const fn gib(number: u64) -> Self {
        Self { number, unit: Some('G') }
    }

    /// The size in bytes; `None` above what a `u64` holds.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        let shift = match self.unit {
            None => 0,
            Some('K') => 10,
            Some('M') => 20,
            Some('G') => 30,
            Some(_) => 40,
        };
        self.number.checked_mul(1 << shift)
    }
}

impl FromStr for DiskSize {
    type Err = IdError;

    /// Reads a whole number of at least 1, with `K`, `M`, `G` or `T` or without a unit. PVE takes fractions too; a
    /// caller that means one can say it in the next smaller unit.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let refused = || {
            IdError::new(
                "a disk size",
                text,
                "a whole number and K, M, G or T, such as `32G`; no sign, no spaces",
            )
        };
        let unit = text.chars().next_back().filter(|last| matches!(last, 'K' | 'M' | 'G' | 'T'));
        let digits = if unit.is_some() { &text[..text.len() - 1] } else { text };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || digits.starts_with('0') {
            return Err(refused());
        }
        let size = Self { number: digits.parse().map_err(|_| refused())?, unit };
        if size.bytes().is_none() { Err(refused()) } else { Ok(size) }
    }
}

impl fmt::Display for DiskSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)?;
        self.unit.map_or(Ok(()), |unit| write!(f, "{unit}"))
    }
}
