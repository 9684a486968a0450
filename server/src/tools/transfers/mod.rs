//! Links: minting them, taking them back, reading what became of them. Files without a link are in the modules below.

pub mod fetch;
pub mod files;
pub mod source;
pub mod storage;

use std::time::Duration;

use authz::Permit;
use guest_push::{Account, Dest, Mode, PushOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use transfers::{LinkId, LinkStatus, Outcome};

use super::paging::Paging;
use super::power::guest_of;
use super::table::page_of;
use crate::audit::Event;
use crate::catalog::{HandlerResult, Target};
use crate::changes::fingerprint;
use crate::config::Cluster;
use crate::resolve::Guest;
use crate::stack::{CallContext, ToolFailure, audit_down, audit_record};
use crate::transfer_http::{Binding, DOWNLOAD, PREFIX, Summary, Transfers, Way};

/// Arguments of `proxmox_upload_link`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadLinkArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number. Required unless `link_id` is given alone.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: Option<u32>,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Absolute path of the file inside the guest. Required unless `link_id` is given alone.
    pub dest: Option<String>,
    /// Seconds until the link expires, held within 60 and 3600; 600 when omitted.
    pub expires_in: Option<i64>,
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
    /// Expected size of the file in bytes; a different size is refused.
    pub size: Option<u64>,
    /// Reads the outcome of this link; given without `vmid`.
    pub link_id: Option<String>,
}

/// Arguments of `get_transfer`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferArgs {
    /// The link, as its mint answered.
    pub link_id: String,
}

/// Arguments of `proxmox_download_link`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadLinkArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Absolute path of the file inside the guest.
    pub source: String,
    /// Seconds until the link expires, held within 60 and 3600; 600 when omitted.
    pub expires_in: Option<i64>,
}

/// Arguments of `list_transfers`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransfersArgs {
    /// Index of the first item, from 0.
    #[schemars(range(min = 0))]
    pub offset: Option<u64>,
    /// Most items to return; 100 when omitted.
    #[schemars(range(min = 1, max = 700))]
    pub limit: Option<u64>,
    /// Columns to keep; all when omitted.
    pub fields: Option<Vec<String>>,
}

/// A guest that can take or give a file now, and the way into it.
pub(crate) struct Ready<'a> {
    pub(crate) cluster: &'a std::sync::Arc<Cluster>,
    pub(crate) guest: &'a Guest,
    pub(crate) identity: String,
    pub(crate) way: Way,
}

/// Checks that the guest runs, can be told from a later one of its number, and has a way in.
pub(crate) async fn ready<'a>(ctx: &CallContext, target: &'a Target) -> Result<Ready<'a>, ToolFailure> {
    let (cluster, guest) = guest_of(target)?;
    if !guest.running() {
        return Err(ToolFailure::new(
            "guest_not_running",
            format!(
                "guest {} is {}; start it, files go into and out of a running guest only",
                guest.vmid(),
                guest.status
            ),
        ));
    }
    // A guest whose configuration could not be read counts as protected, so it did not get here.
    let config = guest
        .config
        .as_ref()
        .ok_or_else(|| ToolFailure::new("guest_unreadable", "the guest's configuration could not be read"))?;
    let identity = fingerprint::identity(&ctx.app.resolver, cluster, guest, config).await?;
    let way = Way::to(cluster, guest, &ctx.caller.snapshot.policy.transfers)
        .map_err(|none| ToolFailure::new("no_ssh", none.0))?;
    Ok(Ready { cluster, guest, identity, way })
}

/// A push or a look that failed, as the caller reads it. A foreign host key is an alert.
pub(crate) async fn failure(
    ctx: &CallContext,
    tool: &'static str,
    guest: &Guest,
    error: &guest_push::PushError,
) -> ToolFailure {
    if let guest_push::PushErrorKind::HostKey { .. } = error.kind() {
        let record = audit_record(ctx, Event::HostKeyMismatch, tool, authz::Tier::Low)
            .denied("host_key", error.to_string());
        if let Err(error) = ctx.app.audit.append(record).await {
            tracing::error!(%error, "a foreign host key could not be audited");
        }
    }
    use guest_push::PushErrorKind as K;
    let (code, text) = match error.kind() {
        K::Connect | K::Auth | K::HostKey { .. } | K::Staging | K::Target => (
            "node_unreachable",
            format!("guest {} on node {} cannot be reached: {error}", guest.vmid(), guest.node()),
        ),
        K::GuestUnreachable => ("guest_unreachable", error.to_string()),
        kind => (kind.code(), error.to_string()),
    };
    ToolFailure::new(code, text)
}

/// `proxmox_upload_link`, minting. Everything is checked now, so that a link that exists can work.
pub async fn upload_link(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: UploadLinkArgs,
) -> HandlerResult {
    let transfers = transfers_of(ctx)?;
    let policy = &ctx.caller.snapshot.policy.transfers;
    let base = public_base(ctx, transfers)?;
    let dest_text = args
        .dest
        .as_deref()
        .ok_or_else(|| argument("dest", "it is missing: expected an absolute path in the guest"))?;
    let dest = Dest::parse(dest_text).map_err(|error| argument("dest", &error.to_string()))?;
    let options = options_of(&args)?;
    let Ready { cluster, guest, identity, way } = ready(ctx, target).await?;
    let max_bytes = way.largest(policy);
    if let Some(size) = args.size
        && size > max_bytes
    {
        return Err(argument(
            "size",
            &format!("{size} bytes are above the {max_bytes} that go into this guest{}", way.remedy()),
        ));
    }
    if let Err(error) = way.reach(&dest).await {
        return Err(failure(ctx, "proxmox_upload_link", guest, &error).await);
    }

    let binding = Binding {
        tool: "proxmox_upload_link",
        cluster: cluster.name.clone(),
        vmid: guest.vmid(),
        identity,
        dest,
        options: PushOptions { max_bytes: Some(args.size.unwrap_or(max_bytes)), ..options },
        max_bytes,
        size: args.size,
        request_id: ctx.caller.request_id.clone(),
    };
    let minted = mint(ctx, &transfers.links, binding, args.expires_in).await?;
    let summary = Summary {
        kind: "upload",
        cluster: cluster.name.clone(),
        vmid: Some(guest.vmid()),
        path: args.dest.unwrap_or_default(),
    };
    transfers.describe(minted.id, summary);
    let url = format!("{base}{PREFIX}{}", minted.token.expose());
    let mut answer = json!({
        "link_id": minted.id.to_string(),
        "url": url,
        "curl": format!("curl --fail-with-body -sS -T FILE '{url}'"),
        "expires_in": minted.expires_in.as_secs(),
        "max_bytes": args.size.unwrap_or(max_bytes),
        "next": format!("after the upload, call get_transfer with link_id {}", minted.id),
    });
    if let (Some(proxy), Some(size)) = (policy.proxy_max_bytes, args.size)
        && size > proxy
        && let Some(answer) = answer.as_object_mut()
    {
        let text = format!(
            "the proxy in front of this server lets bodies of at most {proxy} bytes through, so this upload will be refused before it arrives"
        );
        answer.insert("warning".to_owned(), text.into());
    }
    Ok(answer)
}

/// `proxmox_download_link`: the file is looked at now, so that a link that exists can work.
pub async fn download_link(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: DownloadLinkArgs,
) -> HandlerResult {
    let transfers = transfers_of(ctx)?;
    let policy = &ctx.caller.snapshot.policy.transfers;
    let base = public_base(ctx, transfers)?;
    let source = Dest::parse(&args.source).map_err(|error| argument("source", &error.to_string()))?;
    let Ready { cluster, guest, identity, way } = ready(ctx, target).await?;
    let file = match way.read(&source).await {
        Ok(file) => file,
        Err(error) => return Err(failure(ctx, "proxmox_download_link", guest, &error).await),
    };
    let (bytes, sha256, largest) = (file.size(), file.sha256(), way.largest(policy));
    if bytes > largest {
        return Err(ToolFailure::new(
            "too_large",
            format!("the file has {bytes} bytes, at most {largest} go this way{}", way.remedy()),
        ));
    }
    let binding = Binding {
        tool: "proxmox_download_link",
        cluster: cluster.name.clone(),
        vmid: guest.vmid(),
        identity,
        dest: source,
        options: PushOptions::default(),
        max_bytes: largest,
        size: None,
        request_id: ctx.caller.request_id.clone(),
    };
    let minted = mint(ctx, &transfers.downloads, binding, args.expires_in).await?;
    let summary = Summary {
        kind: "download",
        cluster: cluster.name.clone(),
        vmid: Some(guest.vmid()),
        path: args.source,
    };
    transfers.describe(minted.id, summary);
    let url = format!("{base}{DOWNLOAD}{}", minted.token.expose());
    let mut answer = json!({
        "link_id": minted.id.to_string(),
        "url": url,
        "curl": format!("curl --fail-with-body -sS -o FILE '{url}'"),
        "expires_in": minted.expires_in.as_secs(),
        "bytes": bytes,
        "next": format!("after the download, get_transfer with link_id {} tells how it ended", minted.id),
    });
    if let (Some(sha256), Some(answer)) = (sha256, answer.as_object_mut()) {
        answer.insert("sha256".to_owned(), data_encoding::HEXLOWER.encode(&sha256).into());
    }
    Ok(answer)
}

/// Makes a link and records that it was made; without the record there is no link.
async fn mint(
    ctx: &CallContext,
    store: &std::sync::Arc<transfers::LinkStore<Binding>>,
    binding: Binding,
    expires_in: Option<i64>,
) -> Result<transfers::Minted, ToolFailure> {
    let (tool, path) = (binding.tool, binding.dest.as_str().to_owned());
    mint_into(ctx, store, binding, tool, &path, expires_in).await
}

/// The same for any kind of link.
pub(crate) async fn mint_into<B>(
    ctx: &CallContext,
    store: &std::sync::Arc<transfers::LinkStore<B>>,
    binding: B,
    tool: &'static str,
    path: &str,
    expires_in: Option<i64>,
) -> Result<transfers::Minted, ToolFailure> {
    if let Some(transfers) = &ctx.app.transfers {
        transfers.follow(&ctx.caller.snapshot.policy.limits);
    }
    let wish = expires_in.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    let mut entropy = [0_u8; 48];
    getrandom::fill(&mut entropy)
        .map_err(|_| ToolFailure::new("internal", "no randomness to make a link from"))?;
    let minted = store
        .mint(ctx.caller.principal.name(), binding, wish, ctx.app.clock.monotonic(), entropy)
        .map_err(|error| ToolFailure::new("too_many_links", error.to_string()))?;
    let record = audit_record(ctx, Event::TransferMint, tool, authz::Tier::Low)
        .allowed()
        .link(minted.id.to_string())
        .argument("dest", path.to_owned())
        .detail("expires_in", minted.expires_in.as_secs());
    if ctx.app.audit.append_durable(record).await.is_err() {
        store.void(&minted.id, "the mint could not be audited", ctx.app.clock.monotonic());
        return Err(audit_down());
    }
    Ok(minted)
}

/// `cancel_transfer`: takes a link back that is pending, stops a transfer that is running.
pub async fn cancel(ctx: &CallContext, _permit: Permit, args: TransferArgs) -> HandlerResult {
    let transfers = transfers_of(ctx)?;
    let unknown = || {
        ToolFailure::new("unknown_link", "this token has no transfer of that id that is pending or running")
    };
    let id: LinkId = args.link_id.parse().map_err(|_| unknown())?;
    if transfers.cancel(&id, ctx.caller.principal.name(), ctx.app.clock.monotonic()) {
        Ok(json!({"link_id": id.to_string(), "cancelled": true}))
    } else {
        Err(unknown())
    }
}

/// `list_transfers`: the caller's own links, pending, running and ended within the last hour.
pub async fn list(ctx: &CallContext, args: TransfersArgs) -> HandlerResult {
    const DEFAULT_LIMIT: u64 = 100;
    let transfers = transfers_of(ctx)?;
    let all = transfers.list(ctx.caller.principal.name(), ctx.app.clock.monotonic());
    let paging = Paging::of(args.offset, Some(args.limit.unwrap_or(DEFAULT_LIMIT)), args.fields)?;
    let rows = all
        .into_iter()
        .map(|(id, summary, status)| {
            let mut out = shown(&id, status);
            if let Some(summary) = summary {
                out.insert("kind".to_owned(), summary.kind.into());
                out.insert("cluster".to_owned(), summary.cluster.into());
                if let Some(vmid) = summary.vmid {
                    out.insert("vmid".to_owned(), vmid.into());
                }
                out.insert("path".to_owned(), summary.path.into());
            }
            out
        })
        .collect();
    page_of(rows, &paging)
}

/// `get_transfer`, and `proxmox_upload_link` with a `link_id` alone.
pub async fn outcome(ctx: &CallContext, args: TransferArgs) -> HandlerResult {
    let transfers = transfers_of(ctx)?;
    // A link of another principal, an unknown one and text that is no link id are one answer.
    let unknown = || {
        ToolFailure::new(
            "unknown_link",
            "there is no such transfer of this token; outcomes are kept for one hour",
        )
    };
    let id: LinkId = args.link_id.parse().map_err(|_| unknown())?;
    let status =
        transfers.status(&id, ctx.caller.principal.name(), ctx.app.clock.monotonic()).ok_or_else(unknown)?;
    Ok(Value::Object(shown(&id, status)))
}

/// Where a link stands.
fn shown(id: &LinkId, status: LinkStatus) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("link_id".to_owned(), id.to_string().into());
    match status {
        LinkStatus::Pending { expires_in } => {
            out.insert("state".to_owned(), "pending".into());
            out.insert("bytes".to_owned(), 0.into());
            out.insert("expires_in".to_owned(), expires_in.as_secs().into());
        }
        LinkStatus::Running { bytes, stage } => {
            out.insert("state".to_owned(), "running".into());
            out.insert("bytes".to_owned(), bytes.into());
            out.insert("stage".to_owned(), stage.into());
        }
        LinkStatus::Done { outcome } => ended(&mut out, outcome),
    }
    out
}

fn ended(out: &mut Map<String, Value>, outcome: Outcome) {
    out.insert("state".to_owned(), outcome.code().into());
    match outcome {
        Outcome::Ok { bytes, sha256, verified_at, checksum_verified, route } => {
            out.insert("bytes".to_owned(), bytes.into());
            out.insert("sha256".to_owned(), data_encoding::HEXLOWER.encode(&sha256).into());
            out.insert("verified_at".to_owned(), verified_at.into());
            out.insert("checksum_verified".to_owned(), checksum_verified.into());
            out.insert("route".to_owned(), route.into());
        }
        Outcome::Failed { code, message } => {
            out.insert("code".to_owned(), code.into());
            out.insert("message".to_owned(), message.into());
        }
        Outcome::AbortedByClient { bytes } | Outcome::Aborted { bytes } => {
            out.insert("bytes".to_owned(), bytes.into());
        }
        Outcome::Voided { reason } => {
            out.insert("message".to_owned(), reason.into());
        }
        Outcome::Expired => {}
    }
}

pub(crate) fn transfers_of(ctx: &CallContext) -> Result<&Transfers, ToolFailure> {
    ctx.app.transfers.as_deref().ok_or_else(|| {
        ToolFailure::new(
            "no_transfers",
            "no HTTP listener serves uploads; the operator starts one with --transfer-listen",
        )
    })
}

/// The prefix of a minted URL: what the operator configured, never what a request's headers claim.
pub(crate) fn public_base(ctx: &CallContext, transfers: &Transfers) -> Result<String, ToolFailure> {
    ctx.caller.snapshot.policy.public_url.clone().or_else(|| transfers.loopback_base.clone()).ok_or_else(|| {
        ToolFailure::new(
            "no_public_url",
            "the server listens beyond loopback and does not know its own URL; the operator sets `policy.public_url` in clusters.json",
        )
    })
}

fn options_of(args: &UploadLinkArgs) -> Result<PushOptions, ToolFailure> {
    Wishes {
        mode: args.mode.as_deref(),
        owner: args.owner.as_deref(),
        group: args.group.as_deref(),
        mkdir: args.mkdir,
        overwrite: args.overwrite,
        checksum: args.checksum.as_deref(),
    }
    .options()
}

/// What a caller may choose about a file that is written.
#[derive(Debug, Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) mode: Option<&'a str>,
    pub(crate) owner: Option<&'a str>,
    pub(crate) group: Option<&'a str>,
    pub(crate) mkdir: Option<bool>,
    pub(crate) overwrite: Option<bool>,
    pub(crate) checksum: Option<&'a str>,
}

impl Wishes<'_> {
    pub(crate) fn options(&self) -> Result<PushOptions, ToolFailure> {
        let mut options = PushOptions {
            mkdir: self.mkdir.unwrap_or(false),
            overwrite: self.overwrite.unwrap_or(false),
            ..PushOptions::default()
        };
        let account = |field, text: &str| Account::parse(text).map_err(|e| argument(field, &e.to_string()));
        if let Some(mode) = self.mode {
            options.mode = Mode::parse(mode).map_err(|error| argument("mode", &error.to_string()))?;
        }
        options.owner = self.owner.map(|owner| account("owner", owner)).transpose()?;
        options.group = self.group.map(|group| account("group", group)).transpose()?;
        if let Some(checksum) = self.checksum {
            let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(checksum.as_bytes()).ok();
            let hash = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            options.expected_sha256 =
                Some(hash.ok_or_else(|| argument("checksum", "expected the SHA-256 as 64 hex digits"))?);
        }
        Ok(options)
    }
}

pub(crate) fn argument(field: &str, problem: &str) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{field}`: {problem}")).with("field", field)
}
