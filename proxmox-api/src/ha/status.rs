use crate::{
    client::Client,
    error::Error,
    ids::NodeName,
    wire::{Field, Form, JsonMap, Listing, Path},
};

/// A line of the HA manager's state: its quorum, its master, a node's agent, or a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaStatus {
    /// What it is about: `quorum`, `master`, `lrm:pve1`, `service:vm:100`, `fencing`.
    pub id: String,
    /// `quorum`, `master`, `lrm`, `service` or `fencing`.
    pub kind: Option<String>,
    /// The node.
    pub node: Option<NodeName>,
    /// The state, as text.
    pub status: Option<String>,
    /// Of a guest: its id, `vm:100`.
    pub sid: Option<String>,
    /// Of a guest: the state HA is at.
    pub state: Option<String>,
    /// Of the quorum: whether there is one.
    pub quorate: Field<bool>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl Client {
    /// The state of the HA manager and of what it manages (`GET /cluster/ha/status/current`; needs `Sys.Audit` on
    /// `/`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ha_status(&self) -> Result<Listing<HaStatus>, Error> {
        let path = Path::of("cluster").word("ha").word("status").word("current");
        self.read(path, Form::new()).await?.list(|row| {
            Some(HaStatus {
                id: row.filled("id")?,
                kind: row.filled("type"),
                node: row.id("node"),
                status: row.filled("status"),
                sid: row.filled("sid"),
                state: row.filled("state"),
                quorate: row.flag("quorate"),
                json: row.json(),
            })
        })
    }
}
