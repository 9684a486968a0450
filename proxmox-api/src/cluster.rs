//! The cluster as a whole: version, members, the next number. What lives on it is the [`Inventory`](crate::Inventory).

use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, Vmid},
    wire::{Field, Form, JsonMap, Path},
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
