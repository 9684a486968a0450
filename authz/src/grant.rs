//! Stage 2: which guests a token may touch, and how.

use std::fmt;
use std::str::FromStr;

use crate::facts::{GuestFacts, Vmid};
use crate::names::{is_pool, is_tag};
use crate::scope::Tier;

/// A set of tiers. No tier stands for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TierSet {
    read: bool,
    low: bool,
    destructive: bool,
}

impl TierSet {
    /// The set without members.
    pub const EMPTY: TierSet = TierSet { read: false, low: false, destructive: false };

    /// This set and `tier`.
    #[must_use]
    pub const fn with(mut self, tier: Tier) -> TierSet {
        match tier {
            Tier::Read => self.read = true,
            Tier::Low => self.low = true,
            Tier::Destructive => self.destructive = true,
        }
        self
    }

    /// Whether `tier` itself is a member.
    pub const fn holds(self, tier: Tier) -> bool {
        match tier {
            Tier::Read => self.read,
            Tier::Low => self.low,
            Tier::Destructive => self.destructive,
        }
    }

    /// Whether nothing is a member.
    pub const fn is_empty(self) -> bool {
        !self.read && !self.low && !self.destructive
    }

    /// The members, in the order of [`Tier::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Tier> {
        Tier::ALL.into_iter().filter(move |tier| self.holds(*tier))
    }
}

impl FromIterator<Tier> for TierSet {
    fn from_iter<I: IntoIterator<Item = Tier>>(tiers: I) -> Self {
        tiers.into_iter().fold(TierSet::EMPTY, TierSet::with)
    }
}

/// One term of a grant's `guests` list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selector {
    /// `*`: every guest.
    Any,
    /// `vmid:n` or `vmid:a-b`, both ends included.
    Vmids {
        /// The lowest number.
        first: Vmid,
        /// The highest number, not below `first`.
        last: Vmid,
    },
    /// `tag:t`: guests that carry exactly this tag, case and all.
    Tag(String),
    /// `pool:p`: guests in exactly this pool, not in pools below it.
    Pool(String),
}

impl Selector {
    /// Whether the selector matches this guest. A fact that could not be read matches nothing.
    pub fn matches(&self, facts: &GuestFacts) -> bool {
        match self {
            Selector::Any => true,
            Selector::Vmids { .. } => self.matches_new(facts.vmid),
            Selector::Tag(tag) => facts.readable_tags().is_some_and(|tags| tags.contains(tag)),
            Selector::Pool(pool) => matches!(facts.pool.as_ref(), Some(Some(p)) if p == pool),
        }
    }

    /// Whether the selector matches a number no guest has yet. Tags and pools cannot: the guest that
    /// would carry them does not exist.
    pub fn matches_new(&self, vmid: Vmid) -> bool {
        match self {
            Selector::Any => true,
            Selector::Vmids { first, last } => *first <= vmid && vmid <= *last,
            Selector::Tag(_) | Selector::Pool(_) => false,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Any => f.write_str("*"),
            Selector::Vmids { first, last } if first == last => write!(f, "vmid:{first}"),
            Selector::Vmids { first, last } => write!(f, "vmid:{first}-{last}"),
            Selector::Tag(tag) => write!(f, "tag:{tag}"),
            Selector::Pool(pool) => write!(f, "pool:{pool}"),
        }
    }
}

/// Why a selector was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// No known prefix.
    #[error("expected `*`, `vmid:600`, `vmid:600-699`, `tag:name` or `pool:name`")]
    Form,
    /// A number that is no guest number.
    #[error(
        "`vmid:` takes guest numbers from 100 to 999999999 in plain digits, `vmid:600` or `vmid:600-699`"
    )]
    Vmid,
    /// A range whose end lies before its start.
    #[error("the range ends before it starts; write the lower number first")]
    Backwards,
    /// A word PVE would not take as a tag.
    #[error("`tag:` takes one PVE tag (letters, digits, `_`, then also `.`, `+`, `-`)")]
    Tag,
    /// A word PVE would not take as a pool.
    #[error(
        "`pool:` takes one PVE pool name (letters, digits, `.`, `_`, `-`, up to three levels joined by `/`)"
    )]
    Pool,
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Selector::Any);
        }
        match text.split_once(':') {
            Some(("vmid", numbers)) => {
                let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
                let first: Vmid = first.parse().map_err(|_| SelectorError::Vmid)?;
                let last: Vmid = last.parse().map_err(|_| SelectorError::Vmid)?;
                if last < first {
                    return Err(SelectorError::Backwards);
                }
                Ok(Selector::Vmids { first, last })
            }
            Some(("tag", tag)) if is_tag(tag) => Ok(Selector::Tag(tag.to_owned())),
            Some(("tag", _)) => Err(SelectorError::Tag),
            Some(("pool", pool)) if is_pool(pool) => Ok(Selector::Pool(pool.to_owned())),
            Some(("pool", _)) => Err(SelectorError::Pool),
            _ => Err(SelectorError::Form),
        }
    }
}

/// A token's `grant`: these guests, in these tiers. Empty lists allow nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    guests: Vec<Selector>,
    actions: TierSet,
}

impl Grant {
    /// A grant for the guests any of `guests` matches, in exactly the tiers of `actions`.
    pub fn new(guests: impl IntoIterator<Item = Selector>, actions: TierSet) -> Grant {
        Grant { guests: guests.into_iter().collect(), actions }
    }

    /// The selectors, in the order given.
    pub fn guests(&self) -> &[Selector] {
        &self.guests
    }

    /// The tiers.
    pub fn actions(&self) -> TierSet {
        self.actions
    }

    /// The first selector that matches the guest: its place in [`Grant::guests`].
    pub fn selects(&self, facts: &GuestFacts) -> Option<usize> {
        self.guests.iter().position(|selector| selector.matches(facts))
    }

    /// The first selector that matches a number no guest has yet: its place in [`Grant::guests`].
    pub fn selects_new(&self, vmid: Vmid) -> Option<usize> {
        self.guests.iter().position(|selector| selector.matches_new(vmid))
    }

    /// Whether the list holds `*` itself. A range over every number does not count.
    pub fn is_unrestricted(&self) -> bool {
        self.guests.contains(&Selector::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{GuestKind, Known};

    fn guest(vmid: u32) -> GuestFacts {
        GuestFacts {
            cluster: "pve3".into(),
            vmid: Vmid::new(vmid).unwrap(),
            kind: GuestKind::Qemu,
            name: None,
            tags: Known::Known(vec![]),
            pool: Known::Known(None),
            protection: Known::Known(false),
        }
    }

    #[test]
    fn gr_04_range_edges_are_exact() {
        let range: Selector = "vmid:600-699".parse().unwrap();
        for (vmid, inside) in [(599, false), (600, true), (650, true), (699, true), (700, false)] {
            assert_eq!(range.matches(&guest(vmid)), inside, "{vmid}");
        }
        let one: Selector = "vmid:600".parse().unwrap();
        for (vmid, inside) in [(599, false), (600, true), (601, false), (6000, false)] {
            assert_eq!(one.matches(&guest(vmid)), inside, "{vmid}");
        }
    }

    #[test]
    fn gr_04_malformed_selectors_are_refused() {
        use SelectorError::{Backwards, Form, Pool, Tag, Vmid};
        for (text, error) in [
            ("vmid:700-600", Backwards),
            ("vmid:0", Vmid),
            ("vmid:1e3", Vmid),
            ("vmid:٦٠٠", Vmid),
            ("vmid:600-", Vmid),
            ("vmid:-600", Vmid),
            ("vmid:600-650-699", Vmid),
            ("vmid: 600", Vmid),
            ("vmid:", Vmid),
            ("tag:", Tag),
            ("tag:a;b", Tag),
            ("tag:disposable,", Tag),
            ("tag:*", Tag),
            ("pool:", Pool),
            ("pool:a//b", Pool),
            ("pool:*", Pool),
            ("", Form),
            ("**", Form),
            ("* ", Form),
            ("600", Form),
            ("VMID:600", Form),
            ("name:web", Form),
            ("vmid", Form),
        ] {
            assert_eq!(text.parse::<Selector>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn gr_05_a_grant_matches_whole_tags_in_their_own_case() {
        let selector: Selector = "tag:disposable".parse().unwrap();
        let with = |tags: &[&str]| GuestFacts {
            tags: Known::Known(tags.iter().map(|t| (*t).to_owned()).collect()),
            ..guest(600)
        };
        assert!(selector.matches(&with(&["disposable"])));
        assert!(selector.matches(&with(&["web", "disposable"])));
        assert!(selector.matches(&with(&["disposable", ""])));
        for tags in [
            &["disposable2"][..],
            &["not-disposable"],
            &["DISPOSABLE"],
            &["a;disposable"],
            &["disposable,"],
            &["disposable", "garbled tag"],
            &[],
        ] {
            assert!(!selector.matches(&with(tags)), "{tags:?}");
        }
        assert!(!selector.matches(&GuestFacts { tags: Known::Unreadable, ..guest(600) }));
    }

    #[test]
    fn pools_match_whole_and_only_when_read() {
        let selector: Selector = "pool:dev".parse().unwrap();
        let with = |pool: Known<Option<&str>>| GuestFacts {
            pool: match pool {
                Known::Known(pool) => Known::Known(pool.map(str::to_owned)),
                Known::Unreadable => Known::Unreadable,
            },
            ..guest(600)
        };
        assert!(selector.matches(&with(Known::Known(Some("dev")))));
        for pool in [Some("dev-prod"), Some("dev/a"), Some("Dev"), Some(""), None] {
            assert!(!selector.matches(&with(Known::Known(pool))), "{pool:?}");
        }
        assert!(!selector.matches(&with(Known::Unreadable)));
    }

    #[test]
    fn a_tag_or_a_pool_admits_no_guest_that_does_not_exist_yet() {
        let vmid = Vmid::new(650).unwrap();
        for (text, admits) in
            [("*", true), ("vmid:600-699", true), ("vmid:651", false), ("tag:a", false), ("pool:a", false)]
        {
            assert_eq!(text.parse::<Selector>().unwrap().matches_new(vmid), admits, "{text}");
        }
    }

    #[test]
    fn selectors_print_as_they_are_read() {
        for text in ["*", "vmid:600", "vmid:600-699", "tag:a.b", "pool:a/b"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        assert_eq!("vmid:600-600".parse::<Selector>().unwrap().to_string(), "vmid:600");
    }

    #[test]
    fn gr_08_no_tier_stands_for_another() {
        for held in Tier::ALL {
            for asked in Tier::ALL {
                assert_eq!(TierSet::EMPTY.with(held).holds(asked), held == asked);
            }
        }
        assert!(TierSet::EMPTY.is_empty());
        assert!(!TierSet::EMPTY.with(Tier::Destructive).is_empty());
    }
}
