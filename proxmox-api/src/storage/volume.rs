//! Changes of volumes that are there.

use super::content::volume_path;
use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, Upid, Volid},
    wire::Form,
};

/// What to change about a volume; at least one thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeUpdate {
    /// The note; an empty one removes it. Backups only.
    pub notes: Option<String>,
    /// Whether it is protected from removal. Backups only.
    pub protected: Option<bool>,
}

impl Client {
    /// Deletes a volume (`DELETE …/storage/{storage}/content/{volume}`; needs `Datastore.Allocate` on the storage, for a
    /// backup `Datastore.AllocateSpace` and `VM.Backup` are enough; PVE 7 to 9). A protected backup fails the task. A
    /// disk that a guest uses is deleted under it: take it out of the configuration instead.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be going.
    pub async fn delete_volume(&self, node: &NodeName, volid: &Volid) -> Result<Upid, Error> {
        self.delete(volume_path(node, volid), Form::new()).await?.upid()
    }

    /// Changes the note of a volume or its protection (`PUT …/storage/{storage}/content/{volume}`; privileges as for
    /// [`Client::delete_volume`]; PVE 7 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`]. A change of nothing is refused before anything is sent.
    pub async fn update_volume(
        &self,
        node: &NodeName,
        volid: &Volid,
        update: &VolumeUpdate,
    ) -> Result<(), Error> {
        if update.notes.is_none() && update.protected.is_none() {
            return Err(Error::argument("update", "it changes nothing; set the note or the protection"));
        }
        let form = Form::new()
            .put_some("notes", update.notes.as_ref())
            .put_some("protected", update.protected.map(u8::from));
        self.put(volume_path(node, volid), form).await?.done()
    }
}
