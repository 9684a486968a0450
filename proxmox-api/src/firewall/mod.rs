//! The firewall at its scopes: the cluster, a node, a guest, and the security groups rules can be shared in.
//!
//! PVE does not check that a guest exists: reading the rules of one that does not gives an empty list, and writing
//! them makes a file. Resolve the guest first.

mod object_write;
mod objects;
mod options;
mod options_write;
mod rule_write;
mod rules;

pub use objects::{FirewallAlias, FirewallGroup, FirewallRef, IpSet, IpSetEntry};
pub use options::FirewallOptions;
pub use options_write::{FirewallOption, FirewallOptionsUpdate};
pub use rule_write::{LogLevel, NewRule, Policy, RuleAction};
pub use rules::FirewallRule;

use crate::{
    error::Error,
    guest::GuestRef,
    ids::{NodeName, SecurityGroup},
    wire::Path,
};

/// Whose firewall.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FirewallScope {
    /// The cluster's (reading needs `Sys.Audit`, writing `Sys.Modify`, both on `/`).
    Cluster,
    /// A node's (`Sys.Audit` and `Sys.Modify` on the node). It has rules and options.
    Node(NodeName),
    /// A guest's (`VM.Audit` and `VM.Config.Network`).
    Guest(GuestRef),
    /// A security group's (as for the cluster). It has rules only.
    Group(SecurityGroup),
}

impl FirewallScope {
    /// Where the rules are.
    fn rules(&self) -> Path {
        match self {
            Self::Group(group) => Path::of("cluster").word("firewall").word("groups").id(group),
            _ => self.root().word("rules"),
        }
    }

    fn options(&self) -> Result<Path, Error> {
        match self {
            Self::Group(_) => Err(self.has_no("options")),
            _ => Ok(self.root().word("options")),
        }
    }

    /// Where aliases, IP sets or references are: the cluster and guests have them.
    fn objects(&self, word: &'static str) -> Result<Path, Error> {
        match self {
            Self::Cluster | Self::Guest(_) => Ok(self.root().word(word)),
            Self::Node(_) | Self::Group(_) => Err(self.has_no(word)),
        }
    }

    fn root(&self) -> Path {
        match self {
            Self::Cluster | Self::Group(_) => Path::of("cluster").word("firewall"),
            Self::Node(node) => Path::node(node).word("firewall"),
            Self::Guest(guest) => guest.path().word("firewall"),
        }
    }

    fn has_no(&self, what: &str) -> Error {
        let scope = match self {
            Self::Cluster => "the cluster's firewall",
            Self::Node(_) => "a node's firewall",
            Self::Guest(_) => "a guest's firewall",
            Self::Group(_) => "a security group",
        };
        Error::argument("scope", format!("{scope} has no {what}"))
    }
}
