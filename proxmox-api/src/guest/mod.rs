//! Guests: virtual machines and containers.

mod backup;
mod clone;
mod config;
mod config_write;
mod create;
mod destroy;
mod interfaces;
mod migrate;
mod options;
mod pending;
mod power;
mod resize;
mod snapshot;
mod status;

use std::fmt;

pub use backup::{BackupMode, BackupOptions, Compression, RestoreOptions};
pub use clone::{CloneMode, CloneOptions, DiskFormat};
pub use config::{Disk, DiskSource, GuestConfig, Net};
pub use config_write::ConfigUpdate;
pub use create::{NewDisk, NewLxc, NewNet, NewQemu};
pub use destroy::DestroyOptions;
pub use interfaces::{Interface, InterfaceAddress};
pub use migrate::{LocalDisk, MigrateOptions, MigratePreconditions, TargetStorage};
pub use pending::{PendingDelete, PendingKey};
pub use power::{ShutdownOptions, StopOptions, Suspend};
pub use resize::Resize;
pub use snapshot::{NewSnapshot, Snapshot, Snapshots};
pub use status::{GuestStatus, RunState};

use crate::{
    error::Error,
    ids::{NodeName, Vmid},
    wire::Path,
};

/// What kind of guest. Displays as in PVE's paths, `qemu` and `lxc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuestKind {
    /// A virtual machine.
    Qemu,
    /// A container.
    Lxc,
}

impl fmt::Display for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qemu => "qemu",
            Self::Lxc => "lxc",
        })
    }
}

/// A guest and the node it is on. PVE does not redirect: asked at another node it says that the guest does not
/// exist, so resolve it through [`Client::resources`](crate::Client::resources) shortly before use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestRef {
    /// The node it is on.
    pub node: NodeName,
    /// Virtual machine or container.
    pub kind: GuestKind,
    /// Its number.
    pub vmid: Vmid,
}

impl GuestRef {
    /// `/nodes/{node}/{qemu|lxc}/{vmid}`
    pub(crate) fn path(&self) -> Path {
        Path::node(&self.node).id(&self.kind).id(&self.vmid)
    }

    /// Refuses a call that PVE has for the other kind of guest only.
    pub(crate) fn must_be(&self, kind: GuestKind, problem: &str) -> Result<(), Error> {
        if self.kind == kind { Ok(()) } else { Err(Error::argument("guest", format!("{self}: {problem}"))) }
    }
}

impl fmt::Display for GuestRef {
    /// As in `qemu/100 on pve1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}", self.kind, self.vmid, self.node)
    }
}
