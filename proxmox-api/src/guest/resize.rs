use super::GuestRef;
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, DiskSize, DiskSlot, Upid},
    wire::Form,
};

/// How large a disk is to be. PVE never shrinks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resize {
    /// This large. Sent twice, it is the same; prefer it.
    To(DiskSize),
    /// This much larger. Sent twice, it grows twice.
    By(DiskSize),
}

impl Client {
    /// Makes a disk larger (`PUT …/resize`; needs `VM.Config.Disk`, and `Datastore.AllocateSpace` on the storage; PVE 7
    /// to 9). `None` where it is done when it is answered, as for virtual machines on PVE 7.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the disk may be growing. A disk the kind of
    /// guest cannot have is refused before anything is sent.
    pub async fn resize(
        &self,
        guest: &GuestRef,
        disk: &DiskSlot,
        size: Resize,
        digest: Option<&Digest>,
    ) -> Result<Option<Upid>, Error> {
        guest.must_be(disk.kind(), &format!("it has no disk called {disk}"))?;
        let size = match size {
            Resize::To(size) => size.to_string(),
            Resize::By(size) => format!("+{size}"),
        };
        let form = Form::new()
            .put("disk", disk)
            .put("size", size)
            .put_some("digest", digest.map(Digest::for_guest).transpose()?);
        self.put(guest.path().word("resize"), form).await?.upid_if_any()
    }
}
