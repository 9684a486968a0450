//! What the caller found out about a guest before it asks for a decision.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

/// A guest number: 100 to 999 999 999, the range PVE's schema gives `vmid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Vmid(u32);

impl Vmid {
    /// The lowest number PVE gives a guest.
    pub const MIN: Vmid = Vmid(100);
    /// The highest number PVE gives a guest.
    pub const MAX: Vmid = Vmid(999_999_999);

    /// A guest number, or `None` outside [`Vmid::MIN`]..=[`Vmid::MAX`].
    pub const fn new(number: u32) -> Option<Vmid> {
        if number >= Self::MIN.0 && number <= Self::MAX.0 { Some(Vmid(number)) } else { None }
    }

    /// The number itself.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is no canonical guest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a guest number from 100 to 999999999 in plain digits without a leading zero")]
pub struct VmidError;

impl FromStr for Vmid {
    type Err = VmidError;

    /// Reads ASCII digits only: no sign, no space, no leading zero, no exponent.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let canonical = text.len() <= 9 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        if !canonical {
            return Err(VmidError);
        }
        text.parse::<u32>().ok().and_then(Vmid::new).ok_or(VmidError)
    }
}

impl TryFrom<u32> for Vmid {
    type Error = VmidError;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        Vmid::new(number).ok_or(VmidError)
    }
}

/// Which of PVE's two guest types a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// A virtual machine (`qemu`).
    Qemu,
    /// A container (`lxc`).
    Lxc,
}

impl GuestKind {
    /// PVE's word for it: `qemu` or `lxc`.
    pub const fn as_str(self) -> &'static str {
        match self {
            GuestKind::Qemu => "qemu",
            GuestKind::Lxc => "lxc",
        }
    }
}

impl fmt::Display for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A fact that was read, or one that could not be.
///
/// An unreadable fact never helps a caller: no selector matches it, and it protects the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known<T> {
    /// The cluster answered, and this is the value.
    Known(T),
    /// The read failed, or the answer could not be understood.
    Unreadable,
}

impl<T> Known<T> {
    /// The value, or `None` when it could not be read.
    pub fn as_ref(&self) -> Option<&T> {
        match self {
            Known::Known(value) => Some(value),
            Known::Unreadable => None,
        }
    }
}

/// One guest as the cluster described it.
///
/// For a mutation these must be fresh: read after the call began, never from a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFacts {
    /// The cluster's name in the configuration, exactly.
    pub cluster: String,
    /// The guest's number in that cluster.
    pub vmid: Vmid,
    /// Virtual machine or container.
    pub kind: GuestKind,
    /// The guest's name, if it has one. No rule looks at it.
    pub name: Option<String>,
    /// The guest's tags, already split as PVE splits them (`;`, `,` and white space).
    pub tags: Known<Vec<String>>,
    /// The pool the guest is in, or `None` inside [`Known::Known`] when it is in none.
    pub pool: Known<Option<String>>,
    /// PVE's own `protection` flag from the guest's configuration.
    pub protection: Known<bool>,
}

impl GuestFacts {
    /// The tags, provided that every one of them is a tag PVE could have stored.
    ///
    /// A list with one garbled entry may be missing another, so it counts as unreadable. Empty entries (a
    /// trailing separator) are let through; no selector and no protected tag is empty.
    pub(crate) fn readable_tags(&self) -> Option<&[String]> {
        let tags = self.tags.as_ref()?;
        tags.iter().all(|tag| tag.is_empty() || crate::names::is_tag(tag)).then_some(tags)
    }
}

/// Facts as a caller holds them: borrowed, or shared already.
///
/// A [`Permit`](crate::Permit) keeps the facts it was decided on. Shared ones cost it nothing; borrowed
/// ones are copied, once the decision is to allow.
pub trait FactsSource {
    /// The facts.
    fn facts(&self) -> &GuestFacts;
    /// The facts, to be kept.
    fn share(self) -> Arc<GuestFacts>;
}

impl FactsSource for &GuestFacts {
    fn facts(&self) -> &GuestFacts {
        self
    }

    fn share(self) -> Arc<GuestFacts> {
        Arc::new(self.clone())
    }
}

impl FactsSource for &Arc<GuestFacts> {
    fn facts(&self) -> &GuestFacts {
        self
    }

    fn share(self) -> Arc<GuestFacts> {
        Arc::clone(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gr_04_only_canonical_numbers_are_guest_numbers() {
        for (text, number) in [("100", 100), ("600", 600), ("999999999", 999_999_999)] {
            assert_eq!(text.parse::<Vmid>().map(Vmid::value), Ok(number));
        }
        for text in [
            "",
            "0",
            "99",
            "1000000000",
            "0600",
            "+600",
            "-600",
            " 600",
            "600 ",
            "6e2",
            "1e3",
            "٦٠٠",
            "0x258",
            "600.0",
            "4294967396",
        ] {
            assert_eq!(text.parse::<Vmid>(), Err(VmidError), "{text:?}");
        }
        assert_eq!(Vmid::new(99), None);
        assert_eq!(Vmid::new(1_000_000_000), None);
        assert_eq!(Vmid::try_from(100), Ok(Vmid::MIN));
        assert_eq!(Vmid::try_from(99), Err(VmidError));
    }
}
