//! Upload links: minting them, reading what became of them.

use std::time::Duration;

use authz::Permit;
use guest_push::{Account, Dest, Mode, PushOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use transfers::{LinkId, LinkStatus, Outcome};

use super::power::guest_of;
use crate::audit::Event;
use crate::catalog::{HandlerResult, Target};
use crate::changes::fingerprint;
use crate::stack::{CallContext, ToolFailure, audit_down, audit_record};
use crate::transfer_http::{Binding, PREFIX, Transfers};

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

/// `proxmox_upload_link`, minting. Everything is checked now, so that a link that exists can work.
pub async fn upload_link(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: UploadLinkArgs,
) -> HandlerResult {
    let transfers = transfers_of(ctx)?;
    let (cluster, guest) = guest_of(target)?;
    let snapshot = &ctx.caller.snapshot;
    let base = public_base(ctx, transfers)?;
    let dest_text = args
        .dest
        .as_deref()
        .ok_or_else(|| argument("dest", "it is missing: expected an absolute path in the guest"))?;
    let dest = Dest::parse(dest_text).map_err(|error| argument("dest", &error.to_string()))?;
    let options = options_of(&args)?;
    let max_bytes = snapshot.policy.transfers.max_bytes;
    if let Some(size) = args.size
        && size > max_bytes
    {
        return Err(argument("size", &format!("it is above this server's limit of {max_bytes} bytes")));
    }
    if !guest.running() {
        return Err(ToolFailure::new(
            "guest_not_running",
            format!(
                "guest {} is {}; a file can be pushed into a running container only",
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
    let pusher = crate::transfer_http::pusher(cluster, guest.node())
        .ok_or_else(|| ToolFailure::new("no_ssh", crate::transfer_http::no_ssh(cluster, guest.node())))?;
    if let Err(error) = pusher.check().await {
        if let guest_push::PushErrorKind::HostKey { .. } = error.kind() {
            let record = audit_record(ctx, Event::HostKeyMismatch, "proxmox_upload_link", authz::Tier::Low)
                .denied("host_key", error.to_string());
            if let Err(error) = ctx.app.audit.append(record).await {
                tracing::error!(%error, "a foreign host key could not be audited");
            }
        }
        return Err(ToolFailure::new(
            "node_unreachable",
            format!("node {} cannot take uploads: {error}", guest.node()),
        ));
    }

    let binding = Binding {
        cluster: cluster.name.clone(),
        vmid: guest.vmid(),
        identity,
        dest,
        options: PushOptions { max_bytes: Some(args.size.unwrap_or(max_bytes)), ..options },
        max_bytes,
        size: args.size,
        request_id: ctx.caller.request_id.clone(),
    };
    let wish = args.expires_in.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    let mut entropy = [0_u8; 48];
    getrandom::fill(&mut entropy)
        .map_err(|_| ToolFailure::new("internal", "no randomness to make a link from"))?;
    let owner = ctx.caller.principal.name();
    let minted = transfers
        .links
        .mint(owner, binding, wish, ctx.app.clock.monotonic(), entropy)
        .map_err(|error| ToolFailure::new("too_many_links", error.to_string()))?;
    let record = audit_record(ctx, Event::TransferMint, "proxmox_upload_link", authz::Tier::Low)
        .allowed()
        .link(minted.id.to_string())
        .argument("dest", args.dest.unwrap_or_default())
        .detail("expires_in", minted.expires_in.as_secs());
    if ctx.app.audit.append_durable(record).await.is_err() {
        transfers.links.void(&minted.id, "the mint could not be audited", ctx.app.clock.monotonic());
        return Err(audit_down());
    }
    let url = format!("{base}{PREFIX}{}", minted.token.expose());
    Ok(json!({
        "link_id": minted.id.to_string(),
        "url": url,
        "curl": format!("curl --fail-with-body -sS -T FILE '{url}'"),
        "expires_in": minted.expires_in.as_secs(),
        "max_bytes": args.size.unwrap_or(max_bytes),
        "next": format!("after the upload, call get_transfer with link_id {}", minted.id),
    }))
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
    let status = transfers
        .links
        .status(&id, ctx.caller.principal.name(), ctx.app.clock.monotonic())
        .ok_or_else(unknown)?;
    let mut out = Map::new();
    out.insert("link_id".to_owned(), id.to_string().into());
    match status {
        LinkStatus::Pending { expires_in } => {
            out.insert("state".to_owned(), "pending".into());
            out.insert("expires_in".to_owned(), expires_in.as_secs().into());
        }
        LinkStatus::Running { bytes, stage } => {
            out.insert("state".to_owned(), "running".into());
            out.insert("bytes".to_owned(), bytes.into());
            out.insert("stage".to_owned(), stage.into());
        }
        LinkStatus::Done { outcome } => ended(&mut out, outcome),
    }
    Ok(Value::Object(out))
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

fn transfers_of(ctx: &CallContext) -> Result<&Transfers, ToolFailure> {
    ctx.app.transfers.as_deref().ok_or_else(|| {
        ToolFailure::new(
            "no_transfers",
            "no HTTP listener serves uploads; the operator starts one with --transfer-listen",
        )
    })
}

/// The prefix of a minted URL: what the operator configured, never what a request's headers claim.
fn public_base(ctx: &CallContext, transfers: &Transfers) -> Result<String, ToolFailure> {
    ctx.caller.snapshot.policy.public_url.clone().or_else(|| transfers.loopback_base.clone()).ok_or_else(|| {
        ToolFailure::new(
            "no_public_url",
            "the server listens beyond loopback and does not know its own URL; the operator sets `policy.public_url` in clusters.json",
        )
    })
}

fn options_of(args: &UploadLinkArgs) -> Result<PushOptions, ToolFailure> {
    let mut options = PushOptions {
        mkdir: args.mkdir.unwrap_or(false),
        overwrite: args.overwrite.unwrap_or(false),
        ..PushOptions::default()
    };
    if let Some(mode) = &args.mode {
        options.mode = Mode::parse(mode).map_err(|error| argument("mode", &error.to_string()))?;
    }
    if let Some(owner) = &args.owner {
        options.owner = Some(Account::parse(owner).map_err(|error| argument("owner", &error.to_string()))?);
    }
    if let Some(group) = &args.group {
        options.group = Some(Account::parse(group).map_err(|error| argument("group", &error.to_string()))?);
    }
    if let Some(checksum) = &args.checksum {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(checksum.as_bytes()).ok();
        let hash = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        options.expected_sha256 =
            Some(hash.ok_or_else(|| argument("checksum", "expected the SHA-256 as 64 hex digits"))?);
    }
    Ok(options)
}

fn argument(field: &str, problem: &str) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{field}`: {problem}")).with("field", field)
}
