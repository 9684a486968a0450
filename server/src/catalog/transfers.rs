//! Upload links and their outcomes.

use authz::{Tier, ToolRule};

use super::open_object;
use super::schema::schema_of;
use super::spec::{Addresses, CREATES, FETCHES, GuestKinds, READ, ROUTINE, ToolSpec};
use crate::tools::{parsed, transfers};

fn outcome_output() -> serde_json::Value {
    open_object(&[
        ("link_id", "string", "the link"),
        (
            "state",
            "string",
            "pending, running, or the outcome: ok, failed, aborted_by_client, aborted, voided, expired",
        ),
        ("bytes", "integer", "bytes received so far, or in all"),
        ("sha256", "string", "of the bytes, as they arrived in the guest"),
    ])
}

/// What `proxmox_upload_link` is when it is given a `link_id` alone: the read that its arguments ask for.
pub(super) static LINK_OUTCOME: ToolSpec = ToolSpec {
    rule: ToolRule {
        name: "proxmox_upload_link",
        tier: Tier::Read,
        interrupts: false,
        writes_guest: false,
        wildcard: false,
    },
    title: "Outcome of an upload",
    description: "Reads the outcome of one upload link.",
    addresses: Addresses::Transfer,
    hints: READ,
    privileges: &[],
    input: schema_of::<transfers::UploadLinkArgs>,
    output: outcome_output,
    approver_only: false,
    needs_transfers: true,
    handler: |ctx, _permit, _target, args| {
        Box::pin(async move { transfers::outcome(&ctx, parsed(args)?).await })
    },
};

/// Through the guest agent; containers and machines with SSH need `VM.Audit` alone.
const FILES_IN: &[&str] = &["VM.Audit", "VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted"];
/// The same for reading.
const FILES_OUT: &[&str] = &["VM.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted"];

const fn low(name: &'static str, writes_guest: bool) -> ToolRule {
    ToolRule { name, tier: Tier::Low, interrupts: false, writes_guest, wildcard: false }
}

const WRITTEN: &[(&str, &str, &str)] = &[
    ("vmid", "integer", "the guest"),
    ("dest", "string", "the file"),
    ("bytes", "integer", "its length"),
    ("sha256", "string", "of the bytes as they were sent"),
    (
        "checksum_verified",
        "boolean",
        "whether that hash was computed in the guest over the file that is in place",
    ),
    ("verified_at", "string", "guest, node or none"),
    ("route", "string", "the way the bytes took"),
];

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: ToolRule {
            name: "proxmox_upload_link",
            tier: Tier::Low,
            interrupts: false,
            writes_guest: true,
            wildcard: false,
        },
        title: "Upload link",
        description: "Mints a single-use URL that carries one file into a running guest: `curl -T FILE URL`. Any size into a container \
                      or a virtual machine with SSH configured; through the guest agent small files (64 MiB unless the operator allows more). \
                      The link is bound to this guest and `dest`, spent by the first PUT or POST, and expires (`expires_in` 60-3600 s, \
                      default 600). The bytes are verified inside the guest before they get their name; an existing file is refused \
                      unless `overwrite`. Refused on a protected guest. With `link_id` alone it reads the outcome, as get_transfer \
                      does. A proxy in between may cap bodies (Cloudflare's free plan: 100 MB).",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: FILES_IN,
        input: schema_of::<transfers::UploadLinkArgs>,
        output: || {
            open_object(&[
                ("link_id", "string", "names the link when its outcome is read; not a secret"),
                ("url", "string", "the single-use URL; whoever has it can upload once"),
                ("curl", "string", "a ready command line"),
                ("expires_in", "integer", "seconds until the link expires"),
                ("max_bytes", "integer", "largest file it takes"),
                ("next", "string", "what to call to learn the outcome"),
            ])
        },
        approver_only: false,
        needs_transfers: true,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { transfers::upload_link(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "get_transfer",
            tier: Tier::Read,
            interrupts: false,
            writes_guest: false,
            wildcard: true,
        },
        title: "Outcome of a transfer",
        description: "Reads the state of one transfer by its `link_id`: pending, running with bytes and stage, or its outcome with \
                      size and SHA-256. Only the principal who minted the link can read it, for one hour after it ended.",
        addresses: Addresses::Transfer,
        hints: READ,
        privileges: &[],
        input: schema_of::<transfers::TransferArgs>,
        output: outcome_output,
        approver_only: false,
        needs_transfers: true,
        handler: |ctx, _permit, _target, args| {
            Box::pin(async move { transfers::outcome(&ctx, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "list_transfers",
            tier: Tier::Read,
            interrupts: false,
            writes_guest: false,
            wildcard: true,
        },
        title: "Transfers of this token",
        description: "Lists this token's links, pending, running or ended within the last hour: what they are for, where they stand. Never a URL.",
        addresses: Addresses::Nothing,
        hints: READ,
        privileges: &[],
        input: schema_of::<transfers::TransfersArgs>,
        output: || {
            open_object(&[
                ("items", "array", "the transfers, by link_id"),
                ("total", "integer", "how many there are"),
                ("offset", "integer", "index of the first item"),
                ("limit", "integer", "largest number of items"),
                ("has_more", "boolean", "whether there are items behind these"),
            ])
        },
        approver_only: false,
        needs_transfers: true,
        handler: |ctx, _permit, _target, args| {
            Box::pin(async move { transfers::list(&ctx, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("cancel_transfer", false),
        title: "Cancel a transfer",
        description: "Takes back a link that is pending, or stops a transfer that is running; only the token that minted it can. \
                      Nothing is put in place and what was on its way is removed.",
        addresses: Addresses::Transfer,
        hints: ROUTINE,
        privileges: &[],
        input: schema_of::<transfers::TransferArgs>,
        output: || open_object(&[("link_id", "string", "the link"), ("cancelled", "boolean", "true")]),
        approver_only: false,
        needs_transfers: true,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { transfers::cancel(&ctx, permit, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("proxmox_download_link", false),
        title: "Download link",
        description: "Mints a single-use URL that carries one file out of a running guest: `curl -o FILE URL`. The file is looked at now; \
                      its length and SHA-256 come with the link. The URL is spent by the first GET (HEAD and prefetches spend nothing) \
                      and expires (`expires_in` 60-3600 s, default 600). A file that changes while it is read breaks off. Through the \
                      guest agent small files only (64 MiB unless the operator allows more). get_transfer tells how it ended.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: FILES_OUT,
        input: schema_of::<transfers::DownloadLinkArgs>,
        output: || {
            open_object(&[
                ("link_id", "string", "names the link when its outcome is read; not a secret"),
                ("url", "string", "the single-use URL; whoever has it can download once"),
                ("curl", "string", "a ready command line"),
                ("expires_in", "integer", "seconds until the link expires"),
                ("bytes", "integer", "the file's length now"),
                ("sha256", "string", "its hash now, where the guest can compute one"),
                ("next", "string", "what to call to learn the outcome"),
            ])
        },
        approver_only: false,
        needs_transfers: true,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { transfers::download_link(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("proxmox_fetch_url", true),
        title: "Fetch a URL into a guest",
        description: "The server downloads an http or https URL and streams it into a file of a running guest, verified there; nothing is \
                      kept on the server. The guest and `dest` are checked before anything is looked up. Public addresses only, at the \
                      ports the operator allows (80 and 443): private, loopback, link-local, metadata and the like are refused, behind \
                      redirects too (at most 5, never from https to http), unless the operator allowed exactly that address and port. \
                      No user name or password in the URL. `checksum` is compared before the file gets its name. Refused on a \
                      protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: FETCHES,
        privileges: FILES_IN,
        input: schema_of::<transfers::fetch::FetchArgs>,
        output: || {
            let mut fields = WRITTEN.to_vec();
            fields.extend([
                ("host", "string", "the host that sent the file, after redirects"),
                ("name", "string", "the last part of its path"),
                ("etag", "string", "the entity tag it had"),
            ]);
            open_object(&fields)
        },
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { transfers::fetch::fetch_url(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("proxmox_upload_file", true),
        title: "Upload a file of the server",
        description: "Pushes a file of the server's own transfer directory (`source`, below `policy.transfers.dir`, off unless the operator \
                      set one) into a running guest, verified there. For a file of your own use proxmox_upload_link. An existing file is \
                      refused unless `overwrite`. Refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: FILES_IN,
        input: schema_of::<transfers::files::UploadFileArgs>,
        output: || open_object(WRITTEN),
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { transfers::files::upload_file(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("read_guest_file", false),
        title: "Read a small file of a guest",
        description: "Reads a file of at most 128 KiB out of a running guest, as text where it is UTF-8, else as base64 (`encoding` chooses). \
                      For a larger one ask for a proxmox_download_link.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: FILES_OUT,
        input: schema_of::<transfers::files::ReadArgs>,
        output: || {
            open_object(&[
                ("vmid", "integer", "the guest"),
                ("source", "string", "the file"),
                ("bytes", "integer", "its length"),
                ("encoding", "string", "text or base64"),
                ("content", "string", "all of it"),
                ("sha256", "string", "its hash, where the guest can compute one"),
            ])
        },
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { transfers::files::read(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("write_guest_file", true),
        title: "Write a small file of a guest",
        description: "Writes at most 1 MiB of text or base64 (`encoding`) into a file of a running guest, verified there before it gets its \
                      name. An existing file is refused unless `overwrite`. For a larger file ask for a proxmox_upload_link. Refused \
                      on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: FILES_IN,
        input: schema_of::<transfers::files::WriteArgs>,
        output: || open_object(WRITTEN),
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { transfers::files::write(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: low("upload_to_storage_link", false),
        title: "Upload link onto a storage",
        description: "Mints a single-use URL that carries an ISO image, a container template or an import image onto a storage: \
                      `curl -T FILE URL`. The bytes are streamed into PVE's own upload, and the task that moves the file to its place \
                      is followed. `checksum` is checked by PVE. An existing file of that name is refused unless `overwrite`. The \
                      length must be declared or given as `size`. A proxy in between may cap bodies (Cloudflare's free plan: 100 MB).",
        addresses: Addresses::Cluster,
        hints: CREATES,
        privileges: &["Datastore.Audit", "Datastore.AllocateTemplate"],
        input: schema_of::<transfers::storage::StorageLinkArgs>,
        output: || {
            open_object(&[
                ("link_id", "string", "names the link when its outcome is read; not a secret"),
                ("url", "string", "the single-use URL; whoever has it can upload once"),
                ("curl", "string", "a ready command line"),
                ("volid", "string", "the volume that the file becomes"),
                ("expires_in", "integer", "seconds until the link expires"),
                ("max_bytes", "integer", "largest file it takes"),
                ("next", "string", "what to call to learn the outcome"),
            ])
        },
        approver_only: false,
        needs_transfers: true,
        handler: |ctx, permit, target, args| {
            Box::pin(
                async move { transfers::storage::storage_link(&ctx, permit, &target, parsed(args)?).await },
            )
        },
    },
];
