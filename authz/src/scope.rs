//! Stage 1: which tools and which clusters a token names.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// How much harm an action can do. Tiers are separate permissions: none implies another, so there is
/// deliberately no order on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Changes nothing.
    Read,
    /// Routine work that can be undone.
    Low,
    /// Loses data or identity; reached only through an approved change set.
    Destructive,
}

impl Tier {
    /// Every tier, in the order they are usually listed.
    pub const ALL: [Tier; 3] = [Tier::Read, Tier::Low, Tier::Destructive];

    /// The word used in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Tier::Read => "read",
            Tier::Low => "low",
            Tier::Destructive => "destructive",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `read`, `low` or `destructive`")]
pub struct TierError;

impl FromStr for Tier {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Tier::ALL.into_iter().find(|tier| tier.as_str() == text).ok_or(TierError)
    }
}

/// What authorization needs to know about one tool, or about one scope that is no tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ToolRule {
    /// The name a token's `tools` list uses.
    pub name: &'static str,
    /// The action tier a grant must hold.
    pub tier: Tier,
    /// Whether it takes a running guest, or a task of it, down.
    pub interrupts: bool,
    /// Whether it changes the guest's configuration, disks or files.
    pub writes_guest: bool,
    /// Whether `tools: ["*"]` may reach it. Never true for a tool that changes anything, nor for a scope
    /// that only authorizes.
    pub wildcard: bool,
}

impl ToolRule {
    /// Whether a wildcard really reaches this rule: the flag alone is not enough, the rule must also be a
    /// harmless read. So one wrong row in a catalog opens nothing.
    pub const fn wildcard_reaches(&self) -> bool {
        self.wildcard && matches!(self.tier, Tier::Read) && !self.interrupts && !self.writes_guest
    }

    /// Whether protection refuses it: everything that destroys, interrupts or writes into the guest.
    ///
    /// Reads, start, snapshot, backup and being cloned from stay allowed.
    pub const fn protection_refuses(&self) -> bool {
        self.interrupts || self.writes_guest || matches!(self.tier, Tier::Destructive)
    }
}

/// The names one token may use: some named exactly, or all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    any: bool,
    names: BTreeSet<String>,
}

impl Scope {
    /// The scope that holds nothing.
    pub fn none() -> Scope {
        Scope::default()
    }

    /// The scope `["*"]`.
    pub fn any() -> Scope {
        Scope { any: true, names: BTreeSet::new() }
    }

    /// Reads a list in which `*` stands for the wildcard and every other word for itself.
    pub fn from_names<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Scope {
        let mut scope = Scope::default();
        for name in names {
            let name = name.into();
            if name == "*" {
                scope.any = true;
            } else {
                scope.names.insert(name);
            }
        }
        scope
    }

    /// Whether the list holds `*`.
    pub fn is_any(&self) -> bool {
        self.any
    }

    /// Whether `name` is written in the list itself. Compared byte for byte.
    pub fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether `name` is in the list or the wildcard is.
    pub fn holds(&self, name: &str) -> bool {
        self.any || self.names(name)
    }

    /// The list as a file would hold it: `*` first, then the names in byte order.
    pub fn to_list(&self) -> Vec<String> {
        self.any.then(|| "*".to_owned()).into_iter().chain(self.names.iter().cloned()).collect()
    }

    /// Whether a token with this tool scope may use `rule`.
    pub(crate) fn reaches(&self, rule: &ToolRule) -> bool {
        self.names(rule.name) || (self.any && rule.wildcard_reaches())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gr_11_names_match_byte_for_byte() {
        let scope = Scope::from_names(["pve3"]);
        assert!(scope.holds("pve3"));
        for other in ["PVE3", "pve3 ", " pve3", "pve", "pve33", "рve3", "pve3\0", "*", ""] {
            assert!(!scope.holds(other), "{other:?}");
        }
        assert!(!Scope::none().holds("pve3"));
        assert!(Scope::any().holds("pve3"));
        assert!(!Scope::any().names("*"));
    }

    #[test]
    fn gr_02_a_wrong_catalog_row_does_not_open_a_wildcard() {
        let read =
            ToolRule { name: "r", tier: Tier::Read, interrupts: false, writes_guest: false, wildcard: true };
        assert!(Scope::any().reaches(&read));
        for rule in [
            ToolRule { tier: Tier::Low, ..read },
            ToolRule { tier: Tier::Destructive, ..read },
            ToolRule { interrupts: true, ..read },
            ToolRule { writes_guest: true, ..read },
            ToolRule { wildcard: false, ..read },
        ] {
            assert!(!Scope::any().reaches(&rule), "{rule:?}");
            assert!(Scope::from_names(["*", "r"]).reaches(&rule), "{rule:?}");
        }
    }

    #[test]
    fn lists_read_back_as_written() {
        assert_eq!(Scope::from_names(["b", "*", "a", "a"]).to_list(), ["*", "a", "b"]);
        assert_eq!("low".parse(), Ok(Tier::Low));
        assert_eq!("Low".parse::<Tier>(), Err(TierError));
    }
}
