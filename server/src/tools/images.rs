//! `download_iso`, and the arguments that all ways of getting a file onto a storage share.

use authz::Permit;
use proxmox_api::{Checksum, ChecksumAlgorithm, ContentFilter, Download, FileContent, FileName};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::id;
use super::cluster_of;
use super::routine::{How, Routine};
use super::transfers::fetch;
use crate::catalog::{HandlerResult, Target};
use crate::stack::{CallContext, ToolFailure};

/// Arguments of `download_iso`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The node that fetches the file.
    pub node: String,
    /// The storage it goes to.
    pub storage: String,
    /// An http or https URL without user name and password.
    pub url: String,
    /// Its name on the storage, such as `debian-12.iso`.
    pub filename: String,
    /// What the file is: `iso` (the default), `vztmpl` or `import`.
    pub content: Option<String>,
    /// Expected checksum in hex; PVE refuses another file. Without one, whatever the URL leads to is taken.
    pub checksum: Option<String>,
    /// `sha256` (the default), `sha512`, `sha384`, `sha224`, `sha1` or `md5`.
    pub checksum_algorithm: Option<String>,
}

/// `download_iso`. The node makes the request, so the URL is judged by the same policy as one that this server fetches.
pub async fn download(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: DownloadArgs,
    how: How,
) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let node = id("node", &args.node)?;
    let storage = id("storage", &args.storage)?;
    let content = content(args.content.as_deref().unwrap_or("iso"))?;
    let filename: FileName = id("filename", &args.filename)?;
    let volid = filename.volid(&storage, content).map_err(|error| wrong("filename", &error))?;
    let checksum = checksum(args.checksum.as_deref(), args.checksum_algorithm.as_deref())?;
    let snapshot = &ctx.caller.snapshot;
    let rules = snapshot.policy.fetch.rules(Vec::new());
    ctx.app
        .fetcher
        .judge(&args.url, &rules, &fetch::never(ctx, snapshot))
        .await
        .map_err(|error| fetch::refused(&error))?;
    let there = cluster.client.storage_content(&node, &storage, &ContentFilter::default()).await?;
    if there.items.iter().any(|item| item.volid == volid) {
        return Err(ToolFailure::new(
            "dest_exists",
            format!("{volid} exists; choose another name, or have a change set delete it first"),
        ));
    }
    let download = Download { url: args.url, content, filename, checksum, verify_certificates: true };
    let routine = Routine::at(ctx, cluster, None, node.as_str(), how);
    let sent = routine.client().download_url(&node, &storage, &download).await;
    let mut out = routine.end(sent).await?;
    out["volid"] = volid.to_string().into();
    Ok(out)
}

/// What kind of file is meant.
///
/// # Errors
/// A word that is none.
pub(crate) fn content(word: &str) -> Result<FileContent, ToolFailure> {
    match word {
        "iso" => Ok(FileContent::Iso),
        "vztmpl" => Ok(FileContent::Vztmpl),
        "import" => Ok(FileContent::Import),
        _ => Err(wrong("content", &"expected iso, vztmpl or import")),
    }
}

/// The checksum that is expected, where one is.
///
/// # Errors
/// An algorithm PVE does not know, hex that is not of its length, an algorithm for nothing.
pub(crate) fn checksum(hex: Option<&str>, algorithm: Option<&str>) -> Result<Option<Checksum>, ToolFailure> {
    let known = match algorithm {
        None | Some("sha256") => ChecksumAlgorithm::Sha256,
        Some("sha512") => ChecksumAlgorithm::Sha512,
        Some("sha384") => ChecksumAlgorithm::Sha384,
        Some("sha224") => ChecksumAlgorithm::Sha224,
        Some("sha1") => ChecksumAlgorithm::Sha1,
        Some("md5") => ChecksumAlgorithm::Md5,
        Some(_) => {
            return Err(wrong("checksum_algorithm", &"expected sha256, sha512, sha384, sha224, sha1 or md5"));
        }
    };
    match (hex, algorithm) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(wrong("checksum_algorithm", &"there is no `checksum` that it could be of")),
        (Some(hex), _) => Checksum::new(known, hex).map(Some).map_err(|error| wrong("checksum", &error)),
    }
}

fn wrong(field: &'static str, error: &dyn std::fmt::Display) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{field}`: {error}")).with("field", field)
}
