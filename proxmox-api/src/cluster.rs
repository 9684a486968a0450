//! The cluster as a whole: version, members, nodes, and everything that lives on it.

use std::fmt;

use bytes::Bytes;

use crate::{
    client::Client,
    error::{Effect, Error},
    guest::{GuestKind, GuestRef},
    ids::{NodeName, StorageId, Tags, Vmid},
    wire::{Field, Form, JsonMap, Listing, Path, Record, Reply, Scrubber},
};

/// The version of PVE on the node that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The full version, `9.2.11`; may carry a suffix, `8.0~1`.
    pub version: String,
    /// The release, `9.2`.
    pub release: Option<String>,
    /// The id of the build.
    pub repoid: Option<String>,
}

impl Version {
    /// Major and minor number, as far as they can be read: `(9, 2)`, `(8, 0)` for `8.0~1`.
    #[must_use]
    pub fn numbers(&self) -> Option<(u32, u32)> {
        let mut parts = self.version.split(|c: char| !c.is_ascii_digit());
        let major = parts.next()?.parse().ok()?;
        Some((major, parts.next().and_then(|minor| minor.parse().ok()).unwrap_or(0)))
    }
}

/// The members of a cluster and whether they are a majority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The cluster's name; a single node without a cluster has none.
    pub name: Option<String>,
    /// Whether there is quorum: without it reads work and writes fail. [`Field::Absent`] on a single node, which
    /// needs none.
    pub quorate: Field<bool>,
    /// The nodes.
    pub nodes: Vec<ClusterNode>,
    /// Entries without a readable node name.
    pub skipped: usize,
    /// The cluster's own entry as PVE sent it; empty on a single node.
    pub json: JsonMap,
}

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name.
    pub name: NodeName,
    /// Whether the cluster sees it.
    pub online: Field<bool>,
    /// Whether it is the one that answered.
    pub local: Field<bool>,
    /// Its address within the cluster.
    pub ip: Option<String>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

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
    fn read(text: &str) -> Self {
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
    /// [`Client`]: saved for a report, replayed in a test.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) when the body is not `{"data": […]}`. Entries that
    /// make no sense are no error; they are counted in [`Listing::skipped`].
    pub fn parse_all(body: impl Into<Bytes>) -> Result<Listing<Self>, Error> {
        let call = "GET /cluster/resources".to_owned();
        // Nothing was sent, so there is nothing that it could have done.
        Reply::new(body.into(), Effect::NotSent, Scrubber::without_secret(), call).list(Self::read)
    }

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

impl Client {
    /// The version of the node that answers (any token).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn version(&self) -> Result<Version, Error> {
        let reply = self.read(Path::of("version"), Form::new()).await?;
        reply.record(|data| match data.filled("version") {
            Some(version) => {
                Ok(Version { version, release: data.filled("release"), repoid: data.filled("repoid") })
            }
            None => Err(reply.malformed("`version` is missing")),
        })
    }

    /// The members of the cluster and its quorum (needs `Sys.Audit` on `/`).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster_status(&self) -> Result<ClusterStatus, Error> {
        enum Entry {
            Cluster { name: Option<String>, quorate: Field<bool>, json: JsonMap },
            Node(ClusterNode),
        }
        let path = Path::of("cluster").word("status");
        let list = self.read(path, Form::new()).await?.list(|row| match row.filled("type")?.as_str() {
            "cluster" => Some(Entry::Cluster {
                name: row.filled("name"),
                quorate: row.flag("quorate"),
                json: row.json(),
            }),
            "node" => Some(Entry::Node(ClusterNode {
                name: row.id("name")?,
                online: row.flag("online"),
                local: row.flag("local"),
                ip: row.filled("ip"),
                json: row.json(),
            })),
            _ => None,
        })?;
        let mut status = ClusterStatus {
            name: None,
            quorate: Field::Absent,
            nodes: Vec::new(),
            skipped: list.skipped,
            json: JsonMap::new(),
        };
        for entry in list {
            match entry {
                Entry::Node(node) => status.nodes.push(node),
                Entry::Cluster { name, quorate, json } => {
                    status.name = name;
                    // A cluster that does not say whether it has quorum is no single node.
                    status.quorate = if quorate == Field::Absent { Field::Unreadable } else { quorate };
                    status.json = json;
                }
            }
        }
        Ok(status)
    }

    /// Everything on the cluster that the token may see. An empty list may mean a token without privileges.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resources(&self) -> Result<Listing<Resource>, Error> {
        self.read(Path::of("cluster").word("resources"), Form::new()).await?.list(Resource::read)
    }

    /// The guests among [`Client::resources`], the answer being that much smaller. Several entries for one number
    /// are given as they are; a caller that needs one must refuse both.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn guests(&self) -> Result<Listing<Resource>, Error> {
        let query = Form::new().put("type", "vm");
        self.read(Path::of("cluster").word("resources"), query).await?.list(Resource::read)
    }

    /// A number no guest has (`GET /cluster/nextid`; any user). It is not reserved: a guest may have it by the time it
    /// is used, and the create call then says so.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn next_vmid(&self) -> Result<Vmid, Error> {
        let reply = self.read(Path::of("cluster").word("nextid"), Form::new()).await?;
        // A number that comes as text.
        let said = reply.scalar()?.into_text().unwrap_or_default();
        said.parse().map_err(|error| reply.malformed(&format!("{error}")))
    }
}
