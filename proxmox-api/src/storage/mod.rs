//! Storages as a node sees them, and what is on them.

mod content;
mod download;
mod file;
mod upload;
mod volume;

pub use content::{ContentFilter, StorageItem, Volume};
pub use download::{Download, UrlMetadata};
pub use file::{Checksum, ChecksumAlgorithm, FileContent, FileName};
pub use upload::Upload;
pub use volume::VolumeUpdate;

use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, StorageId},
    wire::{Field, Form, JsonMap, Listing, Path, Record},
};

/// A storage and how full it is. Sizes of a storage that is not active are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageStatus {
    /// Its id.
    pub storage: StorageId,
    /// Its type, `lvmthin`.
    pub kind: Option<String>,
    /// What may be kept on it: `images`, `rootdir`, `iso`, `vztmpl`, `backup`, `snippets`, `import`.
    pub content: Vec<String>,
    /// Whether the node can reach it now.
    pub active: Field<bool>,
    /// Whether it is switched on.
    pub enabled: Field<bool>,
    /// Whether it is the same on every node.
    pub shared: Field<bool>,
    /// Size, bytes.
    pub total: Option<u64>,
    /// Used, bytes.
    pub used: Option<u64>,
    /// Free for use, bytes; on some types less than `total - used`.
    pub avail: Option<u64>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl StorageStatus {
    fn read(row: &Record<'_>, storage: StorageId) -> Self {
        Self {
            storage,
            kind: row.filled("type"),
            content: row.texts("content"),
            active: row.flag("active"),
            enabled: row.flag("enabled"),
            shared: row.flag("shared"),
            total: row.integer("total"),
            used: row.integer("used"),
            avail: row.integer("avail"),
            json: row.json(),
        }
    }

    /// Whether a volume can be put on it now: switched on, reachable, and of a known size.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.active == Field::Value(true)
            && self.enabled.or_default(true) == Some(true)
            && self.total.is_some_and(|total| total > 0)
    }
}

/// `/nodes/{node}/storage/{storage}`
fn storage_path(node: &NodeName, storage: &StorageId) -> Path {
    Path::node(node).word("storage").id(storage)
}

impl Client {
    /// The storages the node and the token see (`GET /nodes/{node}/storage`; `Datastore.Audit` or
    /// `Datastore.AllocateSpace` on each; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn storages(&self, node: &NodeName) -> Result<Listing<StorageStatus>, Error> {
        let list = self.read(Path::node(node).word("storage"), Form::new()).await?;
        list.list(|row| Some(StorageStatus::read(row, row.id("storage")?)))
    }

    /// One storage as a node sees it (`GET …/storage/{storage}/status`; needs `Datastore.Audit` or
    /// `Datastore.AllocateSpace` on it; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn storage_status(&self, node: &NodeName, storage: &StorageId) -> Result<StorageStatus, Error> {
        let reply = self.read(storage_path(node, storage).word("status"), Form::new()).await?;
        // The answer does not repeat the name.
        reply.record(|row| Ok(StorageStatus::read(row, storage.clone())))
    }
}
