use super::GuestRef;
use crate::{
    client::Client,
    error::Error,
    ids::Digest,
    wire::{Field, Form, JsonMap},
};

/// A snapshot of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name as PVE spells it; parse it as a [`SnapName`](crate::SnapName) to act on it. `vzdump` is the
    /// passing one of a running container backup.
    pub name: String,
    /// When it was taken, seconds since 1970.
    pub snaptime: Option<u64>,
    /// What its maker wrote about it.
    pub description: Option<String>,
    /// The snapshot it was taken after.
    pub parent: Option<String>,
    /// Whether it holds the memory. Rolling back to one that does starts the guest.
    pub vmstate: Field<bool>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// The snapshots of a guest, without the entry `current` that PVE adds for the present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshots {
    /// The snapshots, in PVE's order.
    pub items: Vec<Snapshot>,
    /// Entries without a readable name.
    pub skipped: usize,
    /// The snapshot the present state descends from.
    pub current_parent: Option<String>,
    /// The digest of the guest's configuration; it also changes with its snapshots.
    pub digest: Option<Digest>,
}

impl Client {
    /// Lists the guest's snapshots (`GET …/snapshot`; needs `VM.Audit`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn snapshots(&self, guest: &GuestRef) -> Result<Snapshots, Error> {
        let mut current_parent = None;
        let mut digest = None;
        let list = self.read(guest.path().word("snapshot"), Form::new()).await?.list(|row| {
            let name = row.filled("name")?;
            let parent = row.filled("parent");
            if name == "current" {
                digest = row.id("digest");
                current_parent.clone_from(&parent);
            }
            Some(Snapshot {
                name,
                snaptime: row.integer("snaptime"),
                description: row.filled("description"),
                parent,
                vmstate: row.flag("vmstate"),
                json: row.json(),
            })
        })?;
        let skipped = list.skipped;
        let items = list.into_iter().filter(|snapshot| snapshot.name != "current").collect();
        Ok(Snapshots { items, skipped, current_parent, digest })
    }
}
