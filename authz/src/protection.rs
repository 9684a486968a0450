//! Which guests are protected: an operator's list, tags, PVE's own flag, and every guest that could not
//! be read.

use std::collections::BTreeSet;
use std::fmt;

use crate::facts::{GuestFacts, Vmid};
use crate::names::is_tag;

/// One cluster's protection policy.
///
/// The default protects no number and the tag `protected`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    vmids: BTreeSet<Vmid>,
    // INVARIANT: lower-case, and each one a tag PVE could store.
    tags: BTreeSet<String>,
}

/// Why a guest is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtectionCause {
    /// Its number is in `protected_vmids`.
    Vmid,
    /// It carries this tag, which is in `protected_tags`.
    Tag(String),
    /// PVE's own `protection` flag is set on it.
    PveFlag,
    /// Its tags could not be read, or made no sense.
    TagsUnreadable,
    /// Its `protection` flag could not be read.
    PveFlagUnreadable,
}

impl fmt::Display for ProtectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtectionCause::Vmid => f.write_str("its number is in `protected_vmids`"),
            ProtectionCause::Tag(tag) => write!(f, "its tag `{tag}` is in `protected_tags`"),
            ProtectionCause::PveFlag => f.write_str("PVE's `protection` flag is set on it"),
            ProtectionCause::TagsUnreadable => f.write_str("its tags could not be read"),
            ProtectionCause::PveFlagUnreadable => f.write_str("its `protection` flag could not be read"),
        }
    }
}

/// A protected tag that no guest could ever carry, so that it would protect nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{tag}` is no PVE tag (letters, digits, `_`, then also `.`, `+`, `-`), so it would protect nothing")]
pub struct ProtectionError {
    tag: String,
}

impl Protection {
    /// The tag that protects when a policy names none.
    pub const DEFAULT_TAG: &'static str = "protected";

    /// A policy of protected numbers and tags. Tags are compared without regard to case.
    ///
    /// # Errors
    /// A tag that PVE could not store is refused: it would look like protection and be none.
    pub fn new<S: AsRef<str>>(
        vmids: impl IntoIterator<Item = Vmid>,
        tags: impl IntoIterator<Item = S>,
    ) -> Result<Protection, ProtectionError> {
        let tags = tags
            .into_iter()
            .map(|tag| match tag.as_ref() {
                tag if is_tag(tag) => Ok(tag.to_ascii_lowercase()),
                tag => Err(ProtectionError { tag: crate::names::escape_untrusted(tag, 64) }),
            })
            .collect::<Result<_, _>>()?;
        Ok(Protection { vmids: vmids.into_iter().collect(), tags })
    }

    /// The protected numbers.
    pub fn vmids(&self) -> &BTreeSet<Vmid> {
        &self.vmids
    }

    /// The protected tags, lower-case.
    pub fn tags(&self) -> &BTreeSet<String> {
        &self.tags
    }

    /// Whether a guest that does not exist yet may not take this number.
    pub fn reserves(&self, vmid: Vmid) -> bool {
        self.vmids.contains(&vmid)
    }

    /// Why the guest is protected; empty when it is not. In a fixed order.
    pub fn causes(&self, facts: &GuestFacts) -> Vec<ProtectionCause> {
        self.hits(facts).words(facts)
    }

    /// What protects the guest, without words for it and without allocating.
    pub(crate) fn hits(&self, facts: &GuestFacts) -> Hits {
        let mut hits = Hits { vmid: self.vmids.contains(&facts.vmid), ..Hits::default() };
        match facts.readable_tags() {
            None => hits.tags_unreadable = true,
            Some(tags) => {
                for (place, _) in tags.iter().enumerate().filter(|(_, tag)| self.protects_tag(tag)) {
                    hits.tags.add(place);
                }
            }
        }
        match facts.protection.as_ref() {
            None => hits.flag_unreadable = true,
            Some(flag) => hits.flag = *flag,
        }
        hits
    }

    fn protects_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|protected| protected.eq_ignore_ascii_case(tag))
    }
}

/// What protects one guest. Small and copied, so that a decision that allows needs no memory; the words
/// are made from it and the facts when somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hits {
    vmid: bool,
    tags: Places,
    tags_unreadable: bool,
    flag: bool,
    flag_unreadable: bool,
}

impl Hits {
    /// Whether nothing protects the guest.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Hits::default()
    }

    /// The causes; `facts` are the ones the hits were found in.
    pub(crate) fn words(&self, facts: &GuestFacts) -> Vec<ProtectionCause> {
        let mut causes = Vec::new();
        if self.vmid {
            causes.push(ProtectionCause::Vmid);
        }
        if self.tags_unreadable {
            causes.push(ProtectionCause::TagsUnreadable);
        }
        let tags = facts.tags.as_ref().map(Vec::as_slice).unwrap_or_default();
        // Sorted, so that the order PVE lists tags in never shows.
        let hits: BTreeSet<String> = tags
            .iter()
            .enumerate()
            .filter(|(place, _)| self.tags.holds(*place))
            .map(|(_, tag)| tag.to_ascii_lowercase())
            .collect();
        causes.extend(hits.into_iter().map(ProtectionCause::Tag));
        if self.flag_unreadable {
            causes.push(ProtectionCause::PveFlagUnreadable);
        }
        if self.flag {
            causes.push(ProtectionCause::PveFlag);
        }
        causes
    }
}

/// A set of places in a list: all of the first 64, and the first one after them. What protects is never
/// lost; of a guest with more than 64 tags only some words may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Places {
    low: u64,
    next: Option<usize>,
}

impl Places {
    fn add(&mut self, place: usize) {
        match bit(place) {
            Some(bit) => self.low |= bit,
            None => self.next = self.next.or(Some(place)),
        }
    }

    fn holds(&self, place: usize) -> bool {
        match bit(place) {
            Some(bit) => self.low & bit != 0,
            None => self.next == Some(place),
        }
    }
}

fn bit(place: usize) -> Option<u64> {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place))
}

impl Default for Protection {
    fn default() -> Self {
        Protection { vmids: BTreeSet::new(), tags: BTreeSet::from([Self::DEFAULT_TAG.to_owned()]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{GuestKind, Known};

    fn guest(tags: &[&str]) -> GuestFacts {
        GuestFacts {
            cluster: "pve3".into(),
            vmid: Vmid::new(600).unwrap(),
            kind: GuestKind::Lxc,
            name: None,
            tags: Known::Known(tags.iter().map(|t| (*t).to_owned()).collect()),
            pool: Known::Known(None),
            protection: Known::Known(false),
        }
    }

    #[test]
    fn gr_05_protection_folds_case_but_matches_whole_tags() {
        let protection = Protection::default();
        for tags in [&["protected"][..], &["PROTECTED"], &["web", "Protected"]] {
            assert!(!protection.causes(&guest(tags)).is_empty(), "{tags:?}");
        }
        for tags in [&[][..], &["protected2"], &["not-protected"], &["web", ""]] {
            assert_eq!(protection.causes(&guest(tags)), [], "{tags:?}");
        }
        let upper = Protection::new([], ["PROD"]).unwrap();
        assert_eq!(upper.causes(&guest(&["prod"])), [ProtectionCause::Tag("prod".into())]);
    }

    #[test]
    fn pw_03_what_could_not_be_read_is_protected() {
        let protection = Protection::new([], Vec::<String>::new()).unwrap();
        assert_eq!(protection.causes(&guest(&["web"])), []);
        for (facts, cause) in [
            (GuestFacts { tags: Known::Unreadable, ..guest(&[]) }, ProtectionCause::TagsUnreadable),
            (guest(&["a;protected"]), ProtectionCause::TagsUnreadable),
            (guest(&["web", "pro tected"]), ProtectionCause::TagsUnreadable),
            (guest(&["protected,"]), ProtectionCause::TagsUnreadable),
            (GuestFacts { protection: Known::Unreadable, ..guest(&[]) }, ProtectionCause::PveFlagUnreadable),
        ] {
            assert_eq!(protection.causes(&facts), [cause], "{facts:?}");
        }
    }

    #[test]
    fn pw_01_every_source_counts_and_all_are_named() {
        let protection = Protection::new(Vmid::new(600), ["a", "b"]).unwrap();
        let facts = GuestFacts { protection: Known::Known(true), ..guest(&["B", "a", "b", "c"]) };
        let causes: Vec<String> = protection.causes(&facts).iter().map(ToString::to_string).collect();
        assert_eq!(
            causes,
            [
                "its number is in `protected_vmids`",
                "its tag `a` is in `protected_tags`",
                "its tag `b` is in `protected_tags`",
                "PVE's `protection` flag is set on it",
            ]
        );
        assert!(protection.reserves(Vmid::new(600).unwrap()));
        assert!(!protection.reserves(Vmid::new(601).unwrap()));
    }

    #[test]
    fn of_many_tags_the_right_one_is_named() {
        let protection = Protection::default();
        let mut tags: Vec<String> = (0..64).map(|n| format!("t{n}")).collect();
        tags.push("web".into());
        let many = |tags: &[String]| {
            let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
            protection.causes(&guest(&tags))
        };
        assert_eq!(many(&tags), []);
        tags.push("Protected".into());
        tags.push("last".into());
        assert_eq!(many(&tags), [ProtectionCause::Tag("protected".into())]);
    }

    #[test]
    fn a_policy_tells_what_it_protects() {
        let protection = Protection::new(Vmid::new(600), ["PROD", "prod", "a"]).unwrap();
        assert_eq!(protection.vmids().iter().map(|vmid| vmid.value()).collect::<Vec<_>>(), [600]);
        assert_eq!(protection.tags().iter().collect::<Vec<_>>(), ["a", "prod"]);
        assert_eq!(Protection::default().tags().iter().collect::<Vec<_>>(), [Protection::DEFAULT_TAG]);
    }

    #[test]
    fn a_tag_that_protects_nothing_is_refused() {
        assert!(Protection::new([], ["pro tected"]).is_err());
        assert!(Protection::new([], [""]).is_err());
        assert!(Protection::new([], ["protégé"]).is_err());
    }
}
