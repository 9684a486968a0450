//! High availability: which guests PVE starts elsewhere when their node fails.

use crate::{
    client::Client,
    error::Error,
    guest::GuestKind,
    ids::Vmid,
    wire::{Field, Form, Listing, Path},
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
}

impl Client {
    /// The guests under HA (needs `Sys.Audit` on `/`).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ha_resources(&self) -> Result<Listing<HaResource>, Error> {
        let path = Path::of("cluster").word("ha").word("resources");
        self.read(path, Form::new()).await?.list(|row| {
            let sid = row.filled("sid")?;
            let (kind, vmid) = sid.split_once(':')?;
            let kind = match kind {
                "vm" => GuestKind::Qemu,
                "ct" => GuestKind::Lxc,
                _ => return None,
            };
            let vmid = vmid.parse().ok()?;
            Some(HaResource {
                sid,
                kind,
                vmid,
                state: row.filled("state"),
                group: row.filled("group"),
                max_restart: row.integer("max_restart"),
                max_relocate: row.integer("max_relocate"),
                failback: row.flag("failback"),
                comment: row.filled("comment"),
            })
        })
    }
}
