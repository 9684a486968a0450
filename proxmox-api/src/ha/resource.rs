use crate::{
    client::Client,
    error::Error,
    guest::GuestKind,
    ids::{Digest, HaSid, Vmid},
    wire::{Field, Form, JsonMap, Listing, Path, Record},
};

/// A guest under HA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaResource {
    /// PVE's id of it, `vm:100` or `ct:200`.
    pub sid: String,
    /// Virtual machine or container.
    pub kind: GuestKind,
    /// The guest's number.
    pub vmid: Vmid,
    /// The state asked for: `started`, `stopped`, `disabled`, or `ignored`, which counts as not managed.
    pub state: Option<String>,
    /// The group, on clusters that have not moved to rules (before 9).
    pub group: Option<String>,
    /// How often a start is tried again on the same node.
    pub max_restart: Option<u64>,
    /// How often a start is tried on another node.
    pub max_relocate: Option<u64>,
    /// Whether it goes back to its preferred node when that returns.
    pub failback: Field<bool>,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest to hand back with a change; of all resources.
    pub digest: Option<Digest>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl HaResource {
    fn read(row: &Record<'_>) -> Option<Self> {
        let sid: HaSid = row.id("sid")?;
        Some(Self {
            sid: sid.to_string(),
            kind: sid.kind,
            vmid: sid.vmid,
            state: row.filled("state"),
            group: row.filled("group"),
            max_restart: row.integer("max_restart"),
            max_relocate: row.integer("max_relocate"),
            failback: row.flag("failback"),
            comment: row.filled("comment"),
            digest: row.id("digest"),
            json: row.json(),
        })
    }
}

/// `/cluster/ha/resources`
pub(super) fn resources() -> Path {
    Path::of("cluster").word("ha").word("resources")
}

impl Client {
    /// The guests under HA (`GET /cluster/ha/resources`; needs `Sys.Audit` on `/`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ha_resources(&self) -> Result<Listing<HaResource>, Error> {
        self.read(resources(), Form::new()).await?.list(HaResource::read)
    }

    /// One guest under HA (`GET /cluster/ha/resources/{sid}`; needs `Sys.Audit` on `/`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`NotFound`](crate::ErrorKind::NotFound) when HA does not manage it.
    pub async fn ha_resource(&self, sid: HaSid) -> Result<HaResource, Error> {
        let reply = self.read(resources().id(&sid), Form::new()).await?;
        reply.record(|row| HaResource::read(row).ok_or_else(|| reply.malformed("`sid` is missing")))
    }
}
