//! Upload links and their outcomes.

use authz::{Tier, ToolRule};

use super::open_object;
use super::schema::schema_of;
use super::spec::{Addresses, CREATES, GuestKinds, READ, ToolSpec};
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
        description: "Mints a single-use URL that carries one file of any size into a running LXC container: `curl -T FILE URL`. \
                      The link is bound to this guest and `dest`, is spent by the first PUT or POST whatever comes of it, and \
                      expires (`expires_in` 60-3600 s, default 600). The bytes are streamed, hashed, and verified inside the \
                      guest before they get their name; an existing file is refused unless `overwrite`. Refused on a protected \
                      guest. With `link_id` alone it reads the outcome, as get_transfer does. A proxy in between may cap \
                      bodies (Cloudflare's free plan: 100 MB).",
        addresses: Addresses::Guest(GuestKinds::Lxc),
        hints: CREATES,
        privileges: &["VM.Audit"],
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
];
