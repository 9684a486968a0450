//! Backups of guests, and guests from backups.

use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, PoolId, StorageId, Upid, Vmid, Volid},
    wire::{Form, Path},
};

/// What happens to a running guest while it is backed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BackupMode {
    /// It runs on.
    #[default]
    Snapshot,
    /// It is paused for a moment.
    Suspend,
    /// It is stopped, and started again afterwards.
    Stop,
}

/// How an archive is compressed. Backup servers do it their own way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// `gzip`
    Gzip,
    /// `lzo`
    Lzo,
    /// `zstd`
    #[default]
    Zstd,
}

/// How to back up guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOptions {
    /// Where the archives go.
    pub storage: StorageId,
    /// What happens to running guests.
    pub mode: BackupMode,
    /// How archives are compressed.
    pub compress: Compression,
    /// The note of each archive; `{{guestname}}` and `{{vmid}}` are filled in. At most 1024 characters; a line break is
    /// written `\n`.
    pub notes_template: Option<String>,
    /// Whether the archives are protected from removal.
    pub protected: bool,
    /// Whether older archives are removed as the storage says. PVE's default is yes; this crate always sends what is
    /// here.
    pub remove: bool,
    /// KiB/s at most.
    pub bwlimit: Option<u32>,
}

impl BackupOptions {
    /// A backup of running guests to this storage that removes nothing.
    #[must_use]
    pub fn to(storage: StorageId) -> Self {
        Self {
            storage,
            mode: BackupMode::default(),
            compress: Compression::default(),
            notes_template: None,
            protected: false,
            remove: false,
            bwlimit: None,
        }
    }
}

/// How to make a guest from a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The storage of its disks; where they were when there is none.
    pub storage: Option<StorageId>,
    /// Replaces the guest that has the number: its disks are destroyed. It must be stopped and unprotected.
    pub force: bool,
    /// Gives it new hardware addresses.
    pub unique: bool,
    /// The pool to put it into.
    pub pool: Option<PoolId>,
    /// Whether to start it when it is restored.
    pub start: bool,
    /// Of a virtual machine: starts it at once and restores while it runs. A restore that fails then loses what was
    /// written since.
    pub live_restore: bool,
    /// Of a container: whether root in it is nobody outside; as in the backup when `None`.
    pub unprivileged: Option<bool>,
    /// KiB/s at most.
    pub bwlimit: Option<u32>,
}

impl Client {
    /// Backs up guests of one node (`POST /nodes/{node}/vzdump`; needs `VM.Backup` on each and
    /// `Datastore.AllocateSpace` on the storage; `remove` may need `Datastore.Allocate`; PVE 7 to 9). `None` when none
    /// of them is on the node. One backup runs on a node at a time: another task waits, and looks running. One guest
    /// that fails makes the task fail with `job errors`; the log has the reason.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be running. No guest, and a note that is
    /// too long, are refused before anything is sent.
    pub async fn backup(
        &self,
        node: &NodeName,
        vmids: &[Vmid],
        options: &BackupOptions,
    ) -> Result<Option<Upid>, Error> {
        if vmids.is_empty() {
            return Err(Error::argument("vmid", "no guest to back up; name at least one"));
        }
        if options.notes_template.as_ref().is_some_and(|note| note.chars().count() > 1024) {
            return Err(Error::argument("notes-template", "longer than the 1024 characters PVE takes"));
        }
        let mode = match options.mode {
            BackupMode::Snapshot => "snapshot",
            BackupMode::Suspend => "suspend",
            BackupMode::Stop => "stop",
        };
        let compress = match options.compress {
            Compression::None => "0",
            Compression::Gzip => "gzip",
            Compression::Lzo => "lzo",
            Compression::Zstd => "zstd",
        };
        let form = Form::new()
            .put_list("vmid", vmids)
            .put("storage", &options.storage)
            .put("mode", mode)
            .put("compress", compress)
            .put_flag("remove", options.remove)
            .put_some("notes-template", options.notes_template.as_ref())
            .put_if("protected", options.protected)
            .put_some("bwlimit", options.bwlimit);
        self.post(Path::node(node).word("vzdump"), form).await?.upid_if_any()
    }

    /// Makes a guest from a backup, with the node, kind and number of `guest` (`POST /nodes/{node}/qemu` and `…/lxc`;
    /// needs `VM.Allocate` on `/vms/{vmid}` or the pool, with `force` on the same number `VM.Backup` is enough;
    /// `Datastore.AllocateSpace` on the storage and reading the archive; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`Exists`](crate::ErrorKind::Exists) when a guest has the number and `force` is off; with effect
    /// [`Unknown`](crate::Effect::Unknown) it may be being made. Options of the other kind of guest are refused before
    /// anything is sent.
    pub async fn restore(
        &self,
        guest: &GuestRef,
        archive: &Volid,
        options: &RestoreOptions,
    ) -> Result<Upid, Error> {
        let form = Form::new().put("vmid", guest.vmid);
        let form = match guest.kind {
            GuestKind::Qemu => {
                if options.unprivileged.is_some() {
                    return Err(Error::argument("unprivileged", "a virtual machine has no such option"));
                }
                form.put("archive", archive).put_if("live-restore", options.live_restore)
            }
            GuestKind::Lxc => {
                if options.live_restore {
                    return Err(Error::argument(
                        "live-restore",
                        "a container cannot run while it is restored",
                    ));
                }
                let unprivileged = options.unprivileged.map(u8::from);
                form.put("ostemplate", archive)
                    .put_flag("restore", true)
                    .put_some("unprivileged", unprivileged)
            }
        };
        let form = form
            .put_some("storage", options.storage.as_ref())
            .put_if("force", options.force)
            .put_if("unique", options.unique)
            .put_some("pool", options.pool.as_ref())
            .put_if("start", options.start)
            .put_some("bwlimit", options.bwlimit);
        self.post(Path::node(&guest.node).id(&guest.kind), form).await?.upid()
    }
}
