//! Small files in and out of guests without a link, and files of the operator's own directory.

use authz::Permit;
use bytes::Bytes;
use guest_push::{Dest, PushOptions, Receipt};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::source::FileSource;
use super::{Ready, Wishes, argument, failure, ready};
use crate::catalog::{HandlerResult, Target};
use crate::stack::{CallContext, ToolFailure};

/// Largest file that is read into an answer, in bytes: with base64 and both copies of a result it stays under 512 KiB.
const MAX_READ: u64 = 128 * 1024;
/// Largest content that a call carries, in bytes.
const MAX_WRITE: usize = 1024 * 1024;
/// Longest JSON spelling of a text before base64 is shorter.
const MAX_TEXT: usize = 200 * 1024;

/// Arguments of `read_guest_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Absolute path of the file inside the guest.
    pub source: String,
    /// `text` or `base64`; when omitted, text where the file is UTF-8.
    pub encoding: Option<String>,
}

/// Arguments of `write_guest_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Absolute path of the file inside the guest.
    pub dest: String,
    /// The content, at most 1 MiB, written exactly as given.
    pub content: String,
    /// `text` (the default) or `base64`.
    pub encoding: Option<String>,
    /// Permission bits in octal, such as `0644` (the default).
    pub mode: Option<String>,
    /// Owner inside the guest: a user name or number; root when omitted.
    pub owner: Option<String>,
    /// Group inside the guest: a group name or number; root when omitted.
    pub group: Option<String>,
    /// Make missing parent directories.
    pub mkdir: Option<bool>,
    /// Replace an existing regular file.
    pub overwrite: Option<bool>,
}

/// Arguments of `proxmox_upload_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadFileArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Path of the file below the server's transfer directory.
    pub source: String,
    /// Absolute path of the file inside the guest.
    pub dest: String,
    /// Permission bits in octal, such as `0644` (the default).
    pub mode: Option<String>,
    /// Owner inside the guest: a user name or number; root when omitted.
    pub owner: Option<String>,
    /// Group inside the guest: a group name or number; root when omitted.
    pub group: Option<String>,
    /// Make missing parent directories.
    pub mkdir: Option<bool>,
    /// Replace an existing regular file.
    pub overwrite: Option<bool>,
    /// Expected SHA-256 of the file, 64 hex digits; a different file is not put in place.
    pub checksum: Option<String>,
}

/// What a receipt proves, for a result.
pub(super) fn receipt(out: &mut Map<String, Value>, receipt: &Receipt) {
    out.insert("bytes".to_owned(), receipt.bytes.into());
    out.insert("sha256".to_owned(), receipt.sha256_hex().into());
    out.insert("checksum_verified".to_owned(), receipt.checksum_verified.into());
    out.insert("verified_at".to_owned(), receipt.verified_at.as_str().into());
    out.insert("route".to_owned(), receipt.route.into());
}

/// `read_guest_file`.
pub async fn read(ctx: &CallContext, _permit: Permit, target: &Target, args: ReadArgs) -> HandlerResult {
    const TOOL: &str = "read_guest_file";
    let source = Dest::parse(&args.source).map_err(|error| argument("source", &error.to_string()))?;
    let wanted = args.encoding.as_deref();
    if !matches!(wanted, None | Some("text" | "base64")) {
        return Err(argument("encoding", "expected text or base64"));
    }
    let Ready { guest, way, .. } = ready(ctx, target).await?;
    let file = match way.read(&source).await {
        Ok(file) => file,
        Err(error) => return Err(failure(ctx, TOOL, guest, &error).await),
    };
    if file.size() > MAX_READ {
        return Err(ToolFailure::new(
            "too_large",
            format!(
                "the file has {} bytes, at most {MAX_READ} are read into an answer; ask for a proxmox_download_link",
                file.size()
            ),
        ));
    }
    let sha256 = file.sha256();
    let bytes = match file.collect(MAX_READ).await {
        Ok(bytes) => bytes,
        Err(error) => return Err(failure(ctx, TOOL, guest, &error).await),
    };
    let text = std::str::from_utf8(&bytes).ok();
    let (encoding, content) = match (wanted, text) {
        (Some("text"), None) => {
            return Err(ToolFailure::new(
                "not_text",
                "the file is not UTF-8 text; ask for the encoding base64",
            ));
        }
        (Some("base64"), _) | (_, None) => ("base64", data_encoding::BASE64.encode(&bytes)),
        (_, Some(text)) if json!(text).to_string().len() > MAX_TEXT => {
            ("base64", data_encoding::BASE64.encode(&bytes))
        }
        (_, Some(text)) => ("text", text.to_owned()),
    };
    let mut out = json!({
        "vmid": guest.vmid(),
        "source": args.source,
        "bytes": bytes.len(),
        "encoding": encoding,
        "content": content,
    });
    if let (Some(sha256), Some(out)) = (sha256, out.as_object_mut()) {
        out.insert("sha256".to_owned(), data_encoding::HEXLOWER.encode(&sha256).into());
    }
    Ok(out)
}

/// `write_guest_file`.
pub async fn write(ctx: &CallContext, _permit: Permit, target: &Target, args: WriteArgs) -> HandlerResult {
    const TOOL: &str = "write_guest_file";
    let dest = Dest::parse(&args.dest).map_err(|error| argument("dest", &error.to_string()))?;
    let options = Wishes {
        mode: args.mode.as_deref(),
        owner: args.owner.as_deref(),
        group: args.group.as_deref(),
        mkdir: args.mkdir,
        overwrite: args.overwrite,
        checksum: None,
    }
    .options()?;
    let content = match args.encoding.as_deref() {
        None | Some("text") => args.content.into_bytes(),
        Some("base64") => transfers::base64::decode(&args.content)
            .ok_or_else(|| argument("content", "it is not base64 with padding and without line ends"))?,
        Some(_) => return Err(argument("encoding", "expected text or base64")),
    };
    if content.is_empty() {
        return Err(argument("content", "it is empty; an empty file is not written"));
    }
    if content.len() > MAX_WRITE {
        return Err(argument(
            "content",
            &format!(
                "it has {} bytes, at most {MAX_WRITE} go into a call; ask for a proxmox_upload_link",
                content.len()
            ),
        ));
    }
    let Ready { guest, way, .. } = ready(ctx, target).await?;
    match way.push(&dest, &options, Bytes::from(content), &|_, _| ()).await {
        Ok(done) => Ok(written(guest.vmid(), &args.dest, &done)),
        Err(error) => Err(failure(ctx, TOOL, guest, &error).await),
    }
}

/// `proxmox_upload_file`.
pub async fn upload_file(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: UploadFileArgs,
) -> HandlerResult {
    const TOOL: &str = "proxmox_upload_file";
    let policy = &ctx.caller.snapshot.policy.transfers;
    let directory = policy.dir.as_ref().ok_or_else(|| {
        ToolFailure::new(
            "no_transfer_directory",
            "this server has no directory to upload files from; the operator sets `policy.transfers.dir`, or use proxmox_upload_link",
        )
    })?;
    let dest = Dest::parse(&args.dest).map_err(|error| argument("dest", &error.to_string()))?;
    let options = Wishes {
        mode: args.mode.as_deref(),
        owner: args.owner.as_deref(),
        group: args.group.as_deref(),
        mkdir: args.mkdir,
        overwrite: args.overwrite,
        checksum: args.checksum.as_deref(),
    }
    .options()?;
    let source = FileSource::open(directory, &args.source).map_err(|problem| argument("source", &problem))?;
    let Ready { cluster, guest, way, .. } = ready(ctx, target).await?;
    let cap = way.largest(policy);
    if source.len() > cap {
        return Err(ToolFailure::new(
            "too_large",
            format!("the file has {} bytes, at most {cap} go this way{}", source.len(), way.remedy()),
        ));
    }
    let at_once = usize::try_from(ctx.caller.snapshot.policy.limits.uploads_per_node).unwrap_or(1);
    let Some(_place) = ctx.app.slots.enter(&cluster.name, guest.node(), at_once).await else {
        return Err(ToolFailure::new(
            "no_slot",
            "the node is busy with other transfers; try again in a minute",
        ));
    };
    let options = PushOptions { max_bytes: Some(cap), ..options };
    match way.push(&dest, &options, source, &|_, _| ()).await {
        Ok(done) => Ok(written(guest.vmid(), &args.dest, &done)),
        Err(error) => Err(failure(ctx, TOOL, guest, &error).await),
    }
}

fn written(vmid: u32, dest: &str, done: &Receipt) -> Value {
    let mut out = Map::new();
    out.insert("vmid".to_owned(), vmid.into());
    out.insert("dest".to_owned(), dest.into());
    receipt(&mut out, done);
    Value::Object(out)
}
