use super::GuestRef;
use crate::{client::Client, error::Error, ids::Upid, wire::Form};

/// What else goes with a guest. Both are always sent, so that no default of a PVE version decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DestroyOptions {
    /// Also remove the guest from backup jobs, replication and HA. Without it PVE refuses to destroy a guest that
    /// is replicated or under HA.
    pub purge: bool,
    /// Also destroy disks that carry the guest's number and are in no configuration. Referenced disks are always
    /// destroyed; backups never.
    pub destroy_unreferenced_disks: bool,
}

impl Client {
    /// Destroys the guest (`DELETE …/{vmid}`; needs `VM.Allocate`). It must be stopped and unprotected: neither
    /// `force` nor `skiplock` is ever sent. The call takes no digest, so a change since the last look goes
    /// unnoticed.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be going.
    pub async fn destroy(&self, guest: &GuestRef, options: DestroyOptions) -> Result<Upid, Error> {
        let query = Form::new()
            .put_flag("purge", options.purge)
            .put_flag("destroy-unreferenced-disks", options.destroy_unreferenced_disks);
        self.delete(guest.path(), query).await?.upid()
    }
}
