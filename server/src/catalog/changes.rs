//! Change sets: plan, look, approve, apply.

use authz::{Tier, ToolRule};

use super::open_object;
use super::schema::schema_of;
use super::spec::{Addresses, CREATES, DESTROYS, GuestKinds, READ, ROUTINE, ToolSpec};
use crate::tools::{changes, parsed};

const fn scope(name: &'static str) -> ToolRule {
    ToolRule { name, tier: Tier::Destructive, interrupts: true, writes_guest: true, wildcard: false }
}

/// Authorization-only scopes: a token holds them to plan the operation of that name, no tool is called so.
pub static SCOPES: &[ToolRule] = &[scope("delete_vm"), scope("delete_container")];

/// The operations that a change set's steps can hold, by the names that waivers use.
pub static OPERATIONS: &[&str] = &[crate::changes::DESTROY_GUEST];

fn set_output() -> serde_json::Value {
    open_object(&[
        ("change_set_id", "string", "the change set"),
        (
            "state",
            "string",
            "planned, approved, applying, applied, failed, unknown, rejected, cancelled or expired",
        ),
        ("digest", "string", "64 hex digits over plan and preview; approve exactly this"),
        ("preview", "string", "what would happen, from live facts"),
        ("expires_at", "string", "when it lapses, RFC 3339"),
        ("next", "string", "what can be done now, and by whom"),
    ])
}

fn list_output() -> serde_json::Value {
    open_object(&[
        (
            "items",
            "array",
            "change_set_id, state, cluster, target, ops, summary, destructive, planner, created_at, expires_at, approved_by, older",
        ),
        ("total", "integer", "how many there are for this token"),
        ("offset", "integer", "index of the first item"),
        ("limit", "integer", "most items of this page"),
        ("has_more", "boolean", "whether another page follows"),
    ])
}

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: ToolRule {
            name: "plan_proxmox_destroy",
            tier: Tier::Low,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Plan a destructive change",
        description: "Plans a destructive operation on one guest and changes nothing: answers with a preview made from live facts and \
                      the digest an approver must approve. `op` is `destroy_guest`; the token also needs the scope `delete_vm` or \
                      `delete_container` and the action `destructive`. Refused: a running guest, a guest with a lock, a protected \
                      guest without an operator's waiver, a second plan for the same guest while one is pending.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: &["VM.Audit", "Sys.Audit"],
        input: schema_of::<changes::PlanDestroyArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { changes::plan_destroy(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "get_proxmox_change_set",
            tier: Tier::Read,
            interrupts: false,
            writes_guest: false,
            wildcard: true,
        },
        title: "Change set",
        description: "One change set: state, preview, digest, approval, steps with their tasks. Shown to its planner and to tokens \
                      whose scope holds its guest; for everyone else it does not exist.",
        addresses: Addresses::ChangeSet,
        hints: READ,
        privileges: &["VM.Audit"],
        input: schema_of::<changes::SetArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, _target, args| {
            Box::pin(async move { changes::show(&ctx, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "list_change_sets",
            tier: Tier::Read,
            interrupts: false,
            writes_guest: false,
            wildcard: true,
        },
        title: "Change sets",
        description: "Change sets that still need somebody (planned, approved, applying, unknown), newest first; `state` or `all` for \
                      others. Only the caller's own and those whose guest its token may see. Planned sets for one target are one \
                      row: the newest, with the others under `older`. The preview and the digest to approve are in \
                      get_proxmox_change_set.",
        addresses: Addresses::ChangeSet,
        hints: READ,
        privileges: &[],
        input: schema_of::<changes::ListSetsArgs>,
        output: list_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, _target, args| {
            Box::pin(async move { changes::list(&ctx, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "approve_proxmox_change_set",
            tier: Tier::Low,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Approve a change set",
        description: "Approves a planned change set. Only a human's token can, never the planner's person, and only with the \
                      `digest` of exactly what the approver saw; a destructive set also needs `confirm_vmid`. The approval lapses \
                      after one hour.",
        addresses: Addresses::ChangeSet,
        hints: ROUTINE,
        privileges: &["VM.Audit"],
        input: schema_of::<changes::ApproveArgs>,
        output: set_output,
        approver_only: true,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::approve(&ctx, permit, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "reject_change_set",
            tier: Tier::Low,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Reject a change set",
        description: "Says no to a planned or approved change set, for good. Only a human's token whose grant holds the set's guest \
                      can. What is being applied already runs to its end and cannot be rejected.",
        addresses: Addresses::ChangeSet,
        hints: ROUTINE,
        privileges: &[],
        input: schema_of::<changes::WithdrawArgs>,
        output: set_output,
        approver_only: true,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::reject(&ctx, permit, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "cancel_change_set",
            tier: Tier::Low,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Cancel a change set",
        description: "Takes back a planned or approved change set of one's own, for good; its guest can then be planned for again. \
                      Refused for anybody but the planner's person, and for a set that is being applied already.",
        addresses: Addresses::ChangeSet,
        hints: ROUTINE,
        privileges: &[],
        input: schema_of::<changes::WithdrawArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::cancel(&ctx, permit, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "apply_proxmox_change_set",
            tier: Tier::Destructive,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Apply a change set",
        description: "Applies an approved change set, once. Guest, protection, approval and both people's tokens are checked anew; \
                      whatever moved since the plan refuses it. Waits up to 40 s for the task, then answers with the task it is \
                      following.",
        addresses: Addresses::ChangeSet,
        hints: DESTROYS,
        privileges: &["VM.Allocate", "VM.Audit", "Sys.Audit"],
        input: schema_of::<changes::SetArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::apply(&ctx, permit, parsed(args)?).await })
        },
    },
];
