use std::fmt;

use super::Inventory;
use crate::{
    error::Error,
    guest::{GuestKind, GuestRef},
    ids::{NodeName, StorageId, Tags, Vmid},
    wire::{Field, Listing, Record},
};

/// What a [`Resource`] is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// A virtual machine.
    Qemu,
    /// A container.
    Lxc,
    /// A node.
    Node,
    /// A storage as seen by one node.
    Storage,
    /// A pool.
    Pool,
    /// A zone of the software-defined network.
    Sdn,
    /// A type this crate does not know.
    Other(String),
}

impl ResourceKind {
    pub(super) fn read(text: &str) -> Self {
        match text {
            "qemu" => Self::Qemu,
            "lxc" => Self::Lxc,
            "node" => Self::Node,
            "storage" => Self::Storage,
            "pool" => Self::Pool,
            "sdn" => Self::Sdn,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The kind of guest, if it is one.
    #[must_use]
    pub fn guest(&self) -> Option<GuestKind> {
        match self {
            Self::Qemu => Some(GuestKind::Qemu),
            Self::Lxc => Some(GuestKind::Lxc),
            _ => None,
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qemu => "qemu",
            Self::Lxc => "lxc",
            Self::Node => "node",
            Self::Storage => "storage",
            Self::Pool => "pool",
            Self::Sdn => "sdn",
            Self::Other(other) => other,
        })
    }
}

/// An entry of `GET /cluster/resources`. A guest always has a node and a number. Where a guest is, its kind and its
/// tags are current; names, state and numbers come from a broadcast every 10 s or so, and of an offline node's
/// guests there is only `status: unknown`.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// PVE's id of the entry, `qemu/100`, `storage/pve1/local`.
    pub id: Option<String>,
    /// What it is.
    pub kind: ResourceKind,
    /// The node it is on.
    pub node: Option<NodeName>,
    /// The guest's number.
    pub vmid: Option<Vmid>,
    /// The guest's name.
    pub name: Option<String>,
    /// `running`, `stopped`, `online`, `available`, `unknown` and the like.
    pub status: Option<String>,
    /// The guest's tags.
    pub tags: Field<Tags>,
    /// The pool the guest is in, or the pool's own name.
    pub pool: Field<String>,
    /// Whether the guest is a template.
    pub template: Field<bool>,
    /// The lock on the guest, such as `backup`.
    pub lock: Option<String>,
    /// The state HA wants the guest in, if HA manages it.
    pub ha_state: Option<String>,
    /// The storage's id.
    pub storage: Option<StorageId>,
    /// The storage's type, `lvmthin`.
    pub plugin_type: Option<String>,
    /// Whether the storage is shared between nodes.
    pub shared: Field<bool>,
    /// Share of the processors in use, 0 to 1.
    pub cpu: Option<f64>,
    /// How many processors there are.
    pub maxcpu: Option<f64>,
    /// Memory in use, bytes.
    pub mem: Option<u64>,
    /// Memory, bytes.
    pub maxmem: Option<u64>,
    /// Disk in use, bytes.
    pub disk: Option<u64>,
    /// Disk size, bytes.
    pub maxdisk: Option<u64>,
    /// Seconds since the start.
    pub uptime: Option<u64>,
}

impl Resource {
    /// The guest it is, addressed.
    #[must_use]
    pub fn guest(&self) -> Option<GuestRef> {
        Some(GuestRef { node: self.node.clone()?, kind: self.kind.guest()?, vmid: self.vmid? })
    }

    /// Reads the body of an answer to `GET /cluster/resources` that came some other way than through a
    /// [`Client`](crate::Client): saved for a report, replayed in a test.
    ///
    /// # Errors
    /// As [`Inventory::parse`].
    pub fn parse_all(body: impl Into<Vec<u8>>) -> Result<Listing<Self>, Error> {
        Ok(Inventory::parse(body)?.to_listing())
    }

    /// Reads an entry of another answer that lists resources, such as a pool's members.
    pub(crate) fn read(row: &Record<'_>) -> Option<Self> {
        let kind = ResourceKind::read(&row.filled("type")?);
        let resource = Self {
            id: row.filled("id"),
            node: row.id("node"),
            vmid: row.id("vmid"),
            name: row.filled("name"),
            status: row.filled("status"),
            tags: row.tags("tags"),
            pool: row.text("pool"),
            template: row.flag("template"),
            lock: row.filled("lock"),
            ha_state: row.filled("hastate"),
            storage: row.id("storage"),
            plugin_type: row.filled("plugintype"),
            shared: row.flag("shared"),
            cpu: row.float("cpu"),
            maxcpu: row.float("maxcpu"),
            mem: row.integer("mem"),
            maxmem: row.integer("maxmem"),
            disk: row.integer("disk"),
            maxdisk: row.integer("maxdisk"),
            uptime: row.integer("uptime"),
            kind,
        };
        let identified = match resource.kind {
            ResourceKind::Qemu | ResourceKind::Lxc => resource.node.is_some() && resource.vmid.is_some(),
            ResourceKind::Node => resource.node.is_some(),
            ResourceKind::Storage => resource.node.is_some() && resource.storage.is_some(),
            _ => true,
        };
        identified.then_some(resource)
    }
}
