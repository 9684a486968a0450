//! Names and numbers of Proxmox VE, parsed once and valid from then on.
//!
//! Every parser looks at the whole string: PVE's own Perl patterns end in `$`, which lets one trailing newline
//! through, and such a name would reach a request line or a log. Values of these types are the only things that
//! may become a segment of a URL path.

mod digest;
mod disk;
mod firewall;
mod ha;
mod name;
mod node;
mod pool;
mod snapshot;
mod storage;
mod tags;
mod upid;
mod vmid;
mod volid;

pub use digest::Digest;
pub use disk::{DiskSize, DiskSlot};
pub use firewall::{AliasName, AliasScope, Cidr, IpSetMember, IpSetName, SecurityGroup};
pub use ha::{HaSid, RuleName};
pub use name::DnsName;
pub use node::NodeName;
pub use pool::PoolId;
pub use snapshot::SnapName;
pub use storage::StorageId;
pub use tags::Tags;
pub use upid::Upid;
pub use vmid::Vmid;
pub use volid::Volid;

/// A text that is not the name or number it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not {what}: expected {expected}")]
pub struct IdError {
    what: &'static str,
    given: String,
    expected: &'static str,
}

impl IdError {
    pub(crate) fn new(what: &'static str, given: &str, expected: &'static str) -> Self {
        // The debug form escapes line breaks and control characters; the length keeps a log line readable.
        let mut short: String = given.chars().take(64).collect();
        if short.len() < given.len() {
            short.push('…');
        }
        Self { what, given: format!("{short:?}"), expected }
    }

    /// What the text was taken for, with its article, such as `a node name`.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }
}

/// Display, `AsRef<str>` and `TryFrom` for an id that is a checked text.
macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// The text as PVE spells it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = $crate::ids::IdError;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
    };
}
pub(crate) use text_id;

#[cfg(test)]
mod names_tests;
#[cfg(test)]
mod tests;
