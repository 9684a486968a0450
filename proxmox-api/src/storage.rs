//! Storages as a node sees them, and what is on them.

use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, StorageId, Vmid, Volid},
    wire::{Field, Form, Listing, Path},
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
}

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
}

impl Client {
    /// The storages the node and the token see (needs `Datastore.Audit` or `Datastore.AllocateSpace` on each).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn storages(&self, node: &NodeName) -> Result<Listing<StorageStatus>, Error> {
        self.read(Path::node(node).word("storage"), Form::new()).await?.list(|row| {
            Some(StorageStatus {
                storage: row.id("storage")?,
                kind: row.filled("type"),
                content: row
                    .filled("content")
                    .map(|list| list.split(',').map(|kind| kind.trim().to_owned()).collect())
                    .unwrap_or_default(),
                active: row.flag("active"),
                enabled: row.flag("enabled"),
                shared: row.flag("shared"),
                total: row.integer("total"),
                used: row.integer("used"),
                avail: row.integer("avail"),
            })
        })
    }

    /// What is on a storage, as far as the token may see each volume: backups need `VM.Backup` and
    /// `Datastore.AllocateSpace`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn storage_content(
        &self,
        node: &NodeName,
        storage: &StorageId,
        filter: &ContentFilter,
    ) -> Result<Listing<StorageItem>, Error> {
        let path = Path::node(node).word("storage").id(storage).word("content");
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
            })
        })
    }
}
