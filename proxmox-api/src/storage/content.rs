use super::storage_path;
use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, StorageId, Vmid, Volid},
    wire::{Field, Form, JsonMap, Listing, Path},
};

/// Which items of a storage to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentFilter {
    /// Only this kind: `backup`, `iso`, `images`, …
    pub content: Option<String>,
    /// Only what belongs to this guest.
    pub vmid: Option<Vmid>,
}

/// A volume on a storage: a disk, backup, ISO image or template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageItem {
    /// Its id. The part after the storage may hold colons and slashes (`pbs1:backup/vm/901/2026-03-04T05:06:07Z`).
    pub volid: Volid,
    /// `backup`, `iso`, `images`, `rootdir`, `vztmpl`, …
    pub content: Option<String>,
    /// `raw`, `qcow2`, `tar.zst`, `pbs-vm`, …
    pub format: Option<String>,
    /// Size in bytes; not known for some items, which is not 0.
    pub size: Option<u64>,
    /// When it was made, seconds since 1970.
    pub ctime: Option<u64>,
    /// The guest it belongs to.
    pub vmid: Option<Vmid>,
    /// Of a backup: `qemu` or `lxc`.
    pub subtype: Option<String>,
    /// What its maker wrote about it.
    pub notes: Option<String>,
    /// Whether it is protected from removal.
    pub protected: Field<bool>,
    /// Of a backup on a backup server: what its last verification found, `ok` or `failed`; `None` where it never was
    /// verified.
    pub verification: Option<String>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// What is known about one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Where it is on the node.
    pub path: Option<String>,
    /// `raw`, `qcow2`, …
    pub format: Option<String>,
    /// Size, bytes.
    pub size: Option<u64>,
    /// What it takes up, bytes.
    pub used: Option<u64>,
    /// What its maker wrote about it.
    pub notes: Option<String>,
    /// Whether it is protected from removal.
    pub protected: Field<bool>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

/// `…/storage/{storage}/content/{volid}`
pub(super) fn volume_path(node: &NodeName, volid: &Volid) -> Path {
    storage_path(node, volid.storage()).word("content").id(volid)
}

impl Client {
    /// What is on a storage (`GET …/storage/{storage}/content`; needs `Datastore.Audit` or
    /// `Datastore.AllocateSpace`; PVE 7 to 9). PVE leaves out the volumes the token may not see: backups need
    /// `VM.Backup` and `Datastore.AllocateSpace`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn storage_content(
        &self,
        node: &NodeName,
        storage: &StorageId,
        filter: &ContentFilter,
    ) -> Result<Listing<StorageItem>, Error> {
        let path = storage_path(node, storage).word("content");
        let query = Form::new().put_some("content", filter.content.as_ref()).put_some("vmid", filter.vmid);
        self.read(path, query).await?.list(|row| {
            Some(StorageItem {
                volid: row.id("volid")?,
                content: row.filled("content"),
                format: row.filled("format"),
                size: row.integer("size"),
                ctime: row.integer("ctime"),
                vmid: row.id("vmid"),
                subtype: row.filled("subtype"),
                notes: row.filled("notes"),
                protected: row.flag("protected"),
                verification: row.record("verification").and_then(|found| found.filled("state")),
                json: row.json(),
            })
        })
    }

    /// The backups on a storage, of one guest or of all (as [`Client::storage_content`]).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn backups(
        &self,
        node: &NodeName,
        storage: &StorageId,
        vmid: Option<Vmid>,
    ) -> Result<Listing<StorageItem>, Error> {
        let filter = ContentFilter { content: Some("backup".to_owned()), vmid };
        self.storage_content(node, storage, &filter).await
    }

    /// One volume (`GET …/storage/{storage}/content/{volume}`; needs what seeing it in the list needs; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn volume(&self, node: &NodeName, volid: &Volid) -> Result<Volume, Error> {
        self.read(volume_path(node, volid), Form::new()).await?.record(|row| {
            Ok(Volume {
                path: row.filled("path"),
                format: row.filled("format"),
                size: row.integer("size"),
                used: row.integer("used"),
                notes: row.filled("notes"),
                protected: row.flag("protected"),
                json: row.json(),
            })
        })
    }
}
