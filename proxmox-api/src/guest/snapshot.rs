use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, SnapName, Upid},
    wire::{Field, Form, JsonMap, Path},
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

/// What a new snapshot is to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSnapshot {
    /// What it is for.
    pub description: Option<String>,
    /// Also the memory of a running virtual machine.
    pub vmstate: bool,
}

impl Client {
    /// Takes a snapshot (`POST …/snapshot`; needs `VM.Snapshot`; PVE 7 to 9). A name that is taken, or a storage that
    /// cannot do it, fails the task.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be being taken. Memory of a container,
    /// which there is not, is refused before anything is sent.
    pub async fn create_snapshot(
        &self,
        guest: &GuestRef,
        name: &SnapName,
        new: &NewSnapshot,
    ) -> Result<Upid, Error> {
        if new.vmstate {
            guest.must_be(GuestKind::Qemu, "a snapshot of a container has no memory; leave `vmstate` off")?;
        }
        let form = Form::new()
            .put("snapname", name)
            .put_some("description", new.description.as_ref())
            .put_if("vmstate", new.vmstate);
        self.post(guest.path().word("snapshot"), form).await?.upid()
    }

    /// Deletes a snapshot (`DELETE …/snapshot/{snapname}`; needs `VM.Snapshot`; PVE 7 to 9). `force` takes it out of
    /// the configuration even if its disks cannot be removed. The guest's protection does not hold it.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be going.
    pub async fn delete_snapshot(
        &self,
        guest: &GuestRef,
        name: &SnapName,
        force: bool,
    ) -> Result<Upid, Error> {
        self.delete(snapshot(guest, name), Form::new().put_if("force", force)).await?.upid()
    }

    /// Puts the guest back to what it was (`POST …/snapshot/{snapname}/rollback`; needs `VM.Snapshot` or
    /// `VM.Snapshot.Rollback`, with `start` also `VM.PowerMgmt`; PVE 7 to 9, `start` 8 and 9). What was written since
    /// is lost; the guest's protection does not hold it. Without memory in the snapshot the guest is stopped
    /// afterwards, unless `start` starts it.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be under way.
    pub async fn rollback_snapshot(
        &self,
        guest: &GuestRef,
        name: &SnapName,
        start: bool,
    ) -> Result<Upid, Error> {
        let form = Form::new().put_if("start", start);
        self.post(snapshot(guest, name).word("rollback"), form).await?.upid()
    }

    /// Changes what is written about a snapshot (`PUT …/snapshot/{snapname}/config`; needs `VM.Snapshot`; PVE 7 to
    /// 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn describe_snapshot(
        &self,
        guest: &GuestRef,
        name: &SnapName,
        description: &str,
    ) -> Result<(), Error> {
        let form = Form::new().put("description", description);
        self.put(snapshot(guest, name).word("config"), form).await?.done()
    }
}

fn snapshot(guest: &GuestRef, name: &SnapName) -> Path {
    guest.path().word("snapshot").id(name)
}
