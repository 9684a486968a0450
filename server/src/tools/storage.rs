//! Reads of storages and what is on them.

use proxmox_api::{ContentFilter, Listing, StorageItem, StorageStatus, Vmid};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::{NodeArgs, StorageArgs, id};
use super::cluster_of;
use super::nodes::explained;
use super::paging::Paging;
use super::sight::Sight;
use super::table::{Table, flag, integer, text, texts};
use crate::catalog::{HandlerResult, Target};
use crate::redact;
use crate::stack::{CallContext, ToolFailure};

/// `get_storage`.
pub static STORAGES: Table<StorageStatus> = Table(&[
    text("storage", "", |storage| Some(storage.storage.to_string())),
    text("type", "`dir`, `lvmthin`, `zfspool`, `pbs`, …", |storage| storage.kind.clone()),
    texts("content", "what may be kept on it", |storage| storage.content.clone()),
    flag("usable", "enabled, and the node reaches it now", usable),
    flag("enabled", "", |storage| storage.enabled.value().copied()),
    flag("active", "", |storage| storage.active.value().copied()),
    flag("shared", "", |storage| storage.shared.value().copied()),
    integer("total", "bytes; missing while not active", |storage| storage.total),
    integer("used", "", |storage| storage.used),
    integer("avail", "", |storage| storage.avail),
]);

/// Fail-closed: a storage that does not say that it is active is no place to put something.
fn usable(storage: &StorageStatus) -> Option<bool> {
    Some(storage.enabled.or_default(true) == Some(true) && storage.active.or_default(false) == Some(true))
}

/// `get_storage`.
pub async fn storages(_ctx: &CallContext, target: &Target, args: NodeArgs, paging: &Paging) -> HandlerResult {
    let node = id("node", &args.node)?;
    let cluster = cluster_of(target)?;
    let mut listing = match cluster.client.storages(&node).await {
        Ok(listing) => listing,
        Err(error) => return Err(explained(cluster, &node, error).await),
    };
    listing.items.sort_by(|a, b| a.storage.cmp(&b.storage));
    STORAGES.page(&listing.items, listing.skipped, paging)
}

/// `list_isos` and `list_templates`.
pub static FILES: Table<StorageItem> = Table(&[
    text("volid", "", |item| Some(item.volid.to_string())),
    text("format", "", |item| item.format.clone()),
    integer("size", "bytes; missing where PVE does not know", |item| item.size),
    integer("ctime", "seconds since 1970", |item| item.ctime),
    text("notes", "", |item| item.notes.as_deref().map(redact::free_text)),
]);

/// `list_backups`.
pub static BACKUPS: Table<StorageItem> = Table(&[
    text("volid", "", |item| Some(item.volid.to_string())),
    integer("vmid", "", |item| item.vmid.map(|vmid| vmid.get().into())),
    text("kind", "`qemu` or `lxc`", |item| item.subtype.clone()),
    text("format", "", |item| item.format.clone()),
    integer("size", "bytes; missing where PVE does not know", |item| item.size),
    integer("ctime", "when it was made, seconds since 1970", |item| item.ctime),
    text("notes", "", |item| item.notes.as_deref().map(redact::free_text)),
    flag("protected", "from removal", |item| item.protected.value().copied()),
    text(
        "verification",
        "what a backup server's last check found: `ok` or `failed`; missing: none yet",
        |item| item.verification.clone(),
    ),
]);

/// `list_isos`.
pub async fn isos(_ctx: &CallContext, target: &Target, args: StorageArgs, paging: &Paging) -> HandlerResult {
    let listing = content(target, &args.node, &args.storage, "iso", None).await?;
    FILES.page(&listing.items, listing.skipped, paging)
}

/// `list_templates`.
pub async fn templates(
    _ctx: &CallContext,
    target: &Target,
    args: StorageArgs,
    paging: &Paging,
) -> HandlerResult {
    let listing = content(target, &args.node, &args.storage, "vztmpl", None).await?;
    FILES.page(&listing.items, listing.skipped, paging)
}

/// Arguments of `list_backups`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The node to ask; shared storages answer alike from each.
    pub node: String,
    /// Name of the storage.
    pub storage: String,
    /// Only backups of this guest, which need not exist any more.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: Option<u32>,
}

/// `list_backups`: those of guests the caller may see. What belongs to no guest is shown to those who see everything.
pub async fn backups(ctx: &CallContext, target: &Target, args: BackupArgs, paging: &Paging) -> HandlerResult {
    let sight = Sight::of(ctx, cluster_of(target)?).await?;
    let vmid = sight.only(args.vmid)?;
    let mut listing = content(target, &args.node, &args.storage, "backup", vmid).await?;
    listing.items.retain(|item| sight.guest_or_none(item.vmid.map(Vmid::get)));
    let skipped = if sight.is_whole() { listing.skipped } else { 0 };
    BACKUPS.page(&listing.items, skipped, paging)
}

/// What is of one kind on a storage, by volid.
async fn content(
    target: &Target,
    node: &str,
    storage: &str,
    kind: &str,
    vmid: Option<Vmid>,
) -> Result<Listing<StorageItem>, ToolFailure> {
    let (node, storage) = (id("node", node)?, id("storage", storage)?);
    let filter = ContentFilter { content: Some(kind.to_owned()), vmid };
    let mut listing = cluster_of(target)?.client.storage_content(&node, &storage, &filter).await?;
    // Older versions of PVE do not filter on every kind of storage.
    listing.items.retain(|item| {
        item.content.as_deref().is_none_or(|content| content == kind)
            && vmid.is_none_or(|vmid| item.vmid.is_none_or(|found| found == vmid))
    });
    listing.items.sort_by_cached_key(|item| item.volid.to_string());
    Ok(listing)
}
