//! `upload_to_storage_link`: a link that carries an image or a template onto a storage.

use authz::Permit;
use proxmox_api::{ContentFilter, FileName, NodeName, StorageId, Upload};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{argument, mint_into, public_base, transfers_of};
use crate::catalog::{HandlerResult, Target};
use crate::stack::{CallContext, ToolFailure};
use crate::tools::images;
use crate::transfer_http::{STORAGE, StorageBinding, Summary};

/// Arguments of `upload_to_storage_link`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageLinkArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The node that takes the file; for a shared storage any of its nodes.
    pub node: String,
    /// The storage.
    pub storage: String,
    /// What the file is: `iso`, `vztmpl` or `import`.
    pub content: String,
    /// Its name on the storage, such as `debian-12.iso`.
    pub filename: String,
    /// Exact size in bytes; needed where the upload will not declare its length.
    pub size: Option<u64>,
    /// Expected checksum in hex; PVE refuses another file.
    pub checksum: Option<String>,
    /// `sha256` (the default), `sha512`, `sha384`, `sha224`, `sha1` or `md5`.
    pub checksum_algorithm: Option<String>,
    /// Replace a file of that name. Without it an existing one is refused.
    pub overwrite: Option<bool>,
    /// Seconds until the link expires, held within 60 and 3600; 600 when omitted.
    pub expires_in: Option<i64>,
}

/// Mints the link after a look at the storage.
pub async fn storage_link(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: StorageLinkArgs,
) -> HandlerResult {
    let transfers = transfers_of(ctx)?;
    let Target::Cluster(cluster) = target else {
        return Err(argument("cluster", "it is missing: expected the name of a cluster"));
    };
    let policy = &ctx.caller.snapshot.policy.transfers;
    let base = public_base(ctx, transfers)?;
    let wrong = |field, error: &dyn std::fmt::Display| argument(field, &error.to_string());
    let node: NodeName = args.node.parse().map_err(|error| wrong("node", &error))?;
    let storage: StorageId = args.storage.parse().map_err(|error| wrong("storage", &error))?;
    let content = images::content(&args.content)?;
    let filename: FileName = args.filename.parse().map_err(|error| wrong("filename", &error))?;
    let volid = filename.volid(&storage, content).map_err(|error| wrong("filename", &error))?;
    let checksum = images::checksum(args.checksum.as_deref(), args.checksum_algorithm.as_deref())?;
    let max_bytes = policy.max_bytes;
    if let Some(size) = args.size
        && !(1..=max_bytes).contains(&size)
    {
        return Err(argument("size", &format!("expected 1 to {max_bytes} bytes")));
    }
    let status = cluster.client.storage_status(&node, &storage).await?;
    if !status.is_usable() {
        return Err(ToolFailure::new(
            "storage_unusable",
            format!(
                "storage {storage} is not enabled and active on node {node}; choose another with get_storages"
            ),
        ));
    }
    if !args.overwrite.unwrap_or(false) {
        let items = cluster.client.storage_content(&node, &storage, &ContentFilter::default()).await?;
        if items.items.iter().any(|item| item.volid == volid) {
            return Err(ToolFailure::new(
                "dest_exists",
                format!("{volid} exists; choose another name, or ask for overwrite"),
            ));
        }
    }
    let upload = Upload { content, filename, size: args.size.unwrap_or(0), checksum };
    let binding = StorageBinding {
        cluster: cluster.name.clone(),
        node,
        storage,
        upload,
        size: args.size,
        max_bytes,
        request_id: ctx.caller.request_id.clone(),
    };
    let path = volid.to_string();
    let minted =
        mint_into(ctx, &transfers.storage, binding, "upload_to_storage_link", &path, args.expires_in).await?;
    transfers.describe(
        minted.id,
        Summary { kind: "storage", cluster: cluster.name.clone(), vmid: None, path: path.clone() },
    );
    let url = format!("{base}{STORAGE}{}", minted.token.expose());
    Ok(json!({
        "link_id": minted.id.to_string(),
        "url": url,
        "curl": format!("curl --fail-with-body -sS -T FILE '{url}'"),
        "volid": path,
        "expires_in": minted.expires_in.as_secs(),
        "max_bytes": args.size.unwrap_or(max_bytes),
        "next": format!("after the upload, call get_transfer with link_id {}", minted.id),
    }))
}
