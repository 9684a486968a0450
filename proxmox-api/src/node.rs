//! Nodes: their load, their settings, and the guests they have.

use crate::{
    client::Client,
    error::Error,
    guest::{GuestKind, GuestRef, GuestStatus},
    ids::{Digest, NodeName},
    wire::{Form, JsonMap, Listing, Path, Record},
};

/// A node and its load. What an offline node does not tell is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// `online`, `offline` or `unknown`.
    pub status: Option<String>,
    /// Share of its processors in use, 0 to 1.
    pub cpu: Option<f64>,
    /// How many processors it has.
    pub maxcpu: Option<f64>,
    /// Memory in use, bytes.
    pub mem: Option<u64>,
    /// Memory, bytes.
    pub maxmem: Option<u64>,
    /// Root file system in use, bytes.
    pub disk: Option<u64>,
    /// Size of the root file system, bytes.
    pub maxdisk: Option<u64>,
    /// Seconds since boot.
    pub uptime: Option<u64>,
    /// SHA-256 of its certificate, 32 hex pairs with colons.
    pub ssl_fingerprint: Option<String>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl Node {
    /// Whether PVE says that it is online.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.status.as_deref() == Some("online")
    }
}

/// How much there is of something and how much of it is taken, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of it.
    pub total: Option<u64>,
    /// Taken.
    pub used: Option<u64>,
    /// Left.
    pub free: Option<u64>,
}

impl Usage {
    fn read(row: &Record<'_>, key: &str) -> Self {
        row.record(key).map_or_else(Self::default, |part| Self {
            total: part.integer("total"),
            used: part.integer("used"),
            free: part.integer("free"),
        })
    }
}

/// A node in detail. A number that is missing or odd is `None`, never 0.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeStatus {
    /// The version of PVE's manager, `pve-manager/9.2.11/…`.
    pub pveversion: Option<String>,
    /// The kernel, as text.
    pub kversion: Option<String>,
    /// Seconds since boot.
    pub uptime: Option<u64>,
    /// Share of the processors in use, 0 to 1.
    pub cpu: Option<f64>,
    /// Share of the processors' time spent waiting for disks, 0 to 1.
    pub wait: Option<f64>,
    /// The load averages over 1, 5 and 15 minutes, as far as they can be read.
    pub loadavg: Vec<f64>,
    /// How many processors there are.
    pub cpus: Option<u64>,
    /// What they are.
    pub cpu_model: Option<String>,
    /// Memory.
    pub memory: Usage,
    /// Swap.
    pub swap: Usage,
    /// The root file system.
    pub rootfs: Usage,
    /// Memory saved by sharing equal pages, bytes.
    pub ksm_shared: Option<u64>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

/// The settings of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// The digest to hand back with a change.
    pub digest: Option<Digest>,
    /// What its maker wrote about it.
    pub description: Option<String>,
    /// Seconds between boot and the start of the first guest.
    pub startall_onboot_delay: Option<u64>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

/// A guest in the list of its node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGuest {
    /// The guest.
    pub guest: GuestRef,
    /// Its state. The list of virtual machines leaves out what takes asking QEMU.
    pub status: GuestStatus,
}

impl Client {
    /// The nodes and their load (any token; load needs `Sys.Audit` on the node).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn nodes(&self) -> Result<Listing<Node>, Error> {
        self.read(Path::of("nodes"), Form::new()).await?.list(|row| {
            Some(Node {
                name: row.id("node")?,
                status: row.filled("status"),
                cpu: row.float("cpu"),
                maxcpu: row.float("maxcpu"),
                mem: row.integer("mem"),
                maxmem: row.integer("maxmem"),
                disk: row.integer("disk"),
                maxdisk: row.integer("maxdisk"),
                uptime: row.integer("uptime"),
                ssl_fingerprint: row.filled("ssl_fingerprint"),
                json: row.json(),
            })
        })
    }

    /// A node in detail (`GET /nodes/{node}/status`; needs `Sys.Audit` on the node; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. A node that is down is [`NodeUnreachable`](crate::ErrorKind::NodeUnreachable), one that is not
    /// in the cluster [`NotFound`](crate::ErrorKind::NotFound).
    pub async fn node_status(&self, node: &NodeName) -> Result<NodeStatus, Error> {
        self.read(Path::node(node).word("status"), Form::new()).await?.record(|status| {
            let cpuinfo = status.record("cpuinfo");
            Ok(NodeStatus {
                pveversion: status.filled("pveversion"),
                kversion: status.filled("kversion"),
                uptime: status.integer("uptime"),
                cpu: status.float("cpu"),
                wait: status.float("wait"),
                loadavg: status.floats("loadavg"),
                cpus: cpuinfo.as_ref().and_then(|info| info.integer("cpus")),
                cpu_model: cpuinfo.as_ref().and_then(|info| info.filled("model")),
                memory: Usage::read(status, "memory"),
                swap: Usage::read(status, "swap"),
                rootfs: Usage::read(status, "rootfs"),
                ksm_shared: status.record("ksm").and_then(|ksm| ksm.integer("shared")),
                json: status.json(),
            })
        })
    }

    /// The settings of a node (`GET /nodes/{node}/config`; needs `Sys.Audit` on `/`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn node_config(&self, node: &NodeName) -> Result<NodeConfig, Error> {
        self.read(Path::node(node).word("config"), Form::new()).await?.record(|config| {
            Ok(NodeConfig {
                digest: config.id("digest"),
                description: config.filled("description"),
                startall_onboot_delay: config.integer("startall-onboot-delay"),
                json: config.json(),
            })
        })
    }

    /// The guests of one kind on a node, as far as the token may see them (`GET /nodes/{node}/qemu` and `…/lxc`;
    /// `VM.Audit` on each; PVE 7 to 9). Asks the node itself, so it fails while the node is down;
    /// [`Client::guests`] does not.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn node_guests(&self, node: &NodeName, kind: GuestKind) -> Result<Listing<NodeGuest>, Error> {
        self.read(Path::node(node).id(&kind), Form::new()).await?.list(|row| {
            let guest = GuestRef { node: node.clone(), kind, vmid: row.id("vmid")? };
            Some(NodeGuest { guest, status: GuestStatus::read(row) })
        })
    }
}
