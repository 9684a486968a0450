use std::{fmt, str::FromStr};

use super::{IdError, Vmid, text_id};
use crate::guest::GuestKind;

/// PVE's id of a guest under HA, `vm:100` or `ct:200`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HaSid {
    /// Virtual machine or container.
    pub kind: GuestKind,
    /// The guest's number.
    pub vmid: Vmid,
}

impl FromStr for HaSid {
    type Err = IdError;

    /// A bare number is refused although PVE takes one: it would guess the kind.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let sid = text.split_once(':').and_then(|(kind, vmid)| {
            let kind = match kind {
                "vm" => GuestKind::Qemu,
                "ct" => GuestKind::Lxc,
                _ => return None,
            };
            Some(Self { kind, vmid: vmid.parse().ok()? })
        });
        sid.ok_or_else(|| IdError::new("an HA resource", text, "`vm:100` or `ct:200`"))
    }
}

impl fmt::Display for HaSid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            GuestKind::Qemu => "vm",
            GuestKind::Lxc => "ct",
        };
        write!(f, "{kind}:{}", self.vmid)
    }
}

/// The name of an HA rule: at least 2 characters, a letter first, then letters, digits, `_` or `-`
/// (`pve-configid`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleName(String);

text_id!(RuleName);

/// PVE names no upper bound; a longer one could not form a URL with room for the rest.
const MAX_LEN: usize = 128;

impl FromStr for RuleName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let valid = (2..=MAX_LEN).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "an HA rule",
                text,
                "at least 2 characters: a letter, then letters, digits, `_` or `-`",
            ))
        }
    }
}
