use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    ids::{DnsName, NodeName, PoolId, SnapName, StorageId, Upid, Vmid},
    wire::Form,
};

/// Whether a clone has disks of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CloneMode {
    /// As PVE decides: a template is linked to, anything else copied.
    #[default]
    Auto,
    /// Shares the template's disks and needs them from then on. Its storage must be able to; LVM is not.
    Linked,
    /// A copy.
    Full {
        /// Onto this storage; where the disks are when there is none.
        storage: Option<StorageId>,
        /// In this format, for file storages; virtual machines only.
        format: Option<DiskFormat>,
    },
}

/// The format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskFormat {
    /// `raw`
    Raw,
    /// `qcow2`
    Qcow2,
    /// `vmdk`
    Vmdk,
}

impl DiskFormat {
    fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        }
    }
}

/// What a clone is to be like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloneOptions {
    /// Its name, or a container's host name.
    pub name: Option<DnsName>,
    /// What it is for.
    pub description: Option<String>,
    /// The pool to put it into.
    pub pool: Option<PoolId>,
    /// The snapshot to clone instead of the present state.
    pub snapname: Option<SnapName>,
    /// The node to make it on; only with all disks on shared storage.
    pub target: Option<NodeName>,
    /// Linked or copied.
    pub mode: CloneMode,
    /// KiB/s at most.
    pub bwlimit: Option<u32>,
}

impl Client {
    /// Clones a guest to the number `newid` (`POST …/clone`; needs `VM.Clone` on the guest, `VM.Allocate` on
    /// `/vms/{newid}` or the pool, `Datastore.AllocateSpace` on the storage, `SDN.Use` on the bridges; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`Exists`](crate::ErrorKind::Exists) when a guest has the number, which is then not the clone;
    /// with effect [`Unknown`](crate::Effect::Unknown) it may be being made. A disk format for a container is refused
    /// before anything is sent.
    pub async fn clone_guest(
        &self,
        guest: &GuestRef,
        newid: Vmid,
        options: &CloneOptions,
    ) -> Result<Upid, Error> {
        let name = match guest.kind {
            GuestKind::Qemu => "name",
            GuestKind::Lxc => "hostname",
        };
        let mut form = Form::new()
            .put("newid", newid)
            .put_some(name, options.name.as_ref())
            .put_some("description", options.description.as_ref())
            .put_some("pool", options.pool.as_ref())
            .put_some("snapname", options.snapname.as_ref())
            .put_some("target", options.target.as_ref())
            .put_some("bwlimit", options.bwlimit);
        match &options.mode {
            CloneMode::Auto => {}
            CloneMode::Linked => form = form.put_flag("full", false),
            CloneMode::Full { storage, format } => {
                if format.is_some() {
                    guest.must_be(GuestKind::Qemu, "the disks of a container have no format to choose")?;
                }
                form = form
                    .put_flag("full", true)
                    .put_some("storage", storage.as_ref())
                    .put_some("format", format.map(DiskFormat::word));
            }
        }
        self.post(guest.path().word("clone"), form).await?.upid()
    }
}
