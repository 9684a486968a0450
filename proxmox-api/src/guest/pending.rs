use super::GuestRef;
use crate::{
    client::Client,
    error::Error,
    wire::{Field, Form, JsonMap, Listing, Record, Scalar},
};

/// A key of a guest's configuration, with what waits for its next start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingKey {
    /// The key.
    pub key: String,
    /// Its value now, as PVE would write it into the file; [`Field::Absent`] when it is not set.
    pub value: Field<String>,
    /// The value it will have after the next start, if another one waits.
    pub pending: Field<String>,
    /// Whether it is going to be deleted.
    pub delete: PendingDelete,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// What is going to happen to a key that waits to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingDelete {
    /// Nothing.
    No,
    /// It is deleted.
    Yes,
    /// It is deleted by force: a disk with its data.
    Force,
    /// PVE said something else. Whoever decides by it must not take it for [`PendingDelete::No`].
    Unreadable,
}

impl PendingKey {
    /// Whether the key is going to change.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.pending != Field::Absent || self.delete != PendingDelete::No
    }

    fn read(row: &Record<'_>) -> Option<Self> {
        let delete = match row.scalar("delete") {
            Field::Absent => PendingDelete::No,
            Field::Unreadable => PendingDelete::Unreadable,
            Field::Value(value) => match value.into_text().as_deref() {
                Some("" | "0") => PendingDelete::No,
                Some("1") => PendingDelete::Yes,
                Some("2") => PendingDelete::Force,
                _ => PendingDelete::Unreadable,
            },
        };
        Some(Self {
            key: row.filled("key")?,
            value: row.scalar("value").and_then(Scalar::into_text),
            pending: row.scalar("pending").and_then(Scalar::into_text),
            delete,
            json: row.json(),
        })
    }
}

impl Client {
    /// The guest's configuration key by key with the changes that wait (`GET …/pending`; needs `VM.Audit`; PVE 7 to
    /// 9). The digest is one of the keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn guest_pending(&self, guest: &GuestRef) -> Result<Listing<PendingKey>, Error> {
        self.read(guest.path().word("pending"), Form::new()).await?.list(PendingKey::read)
    }
}
