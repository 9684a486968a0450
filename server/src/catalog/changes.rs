//! Change sets: plan, look, approve, apply.

use authz::{Tier, ToolRule};

use super::open_object;
use super::schema::schema_of;
use super::spec::{Addresses, CREATES, DESTROYS, GuestKinds, READ, ROUTINE, ToolSpec};
use crate::changes::op;
use crate::tools::{changes, parsed};

const fn scope(name: &'static str, tier: Tier) -> ToolRule {
    ToolRule { name, tier, interrupts: true, writes_guest: true, wildcard: false }
}

/// Authorization-only scopes: a token holds them to plan the operation of that name, or to put a new guest into a pool; no tool is
/// called so. All but the last are refused on a protected guest.
pub static SCOPES: &[ToolRule] = &[
    scope("delete_vm", Tier::Destructive),
    scope("delete_container", Tier::Destructive),
    scope("delete_snapshot", Tier::Destructive),
    scope("rollback_snapshot", Tier::Destructive),
    scope("delete_backup", Tier::Destructive),
    scope("restore_backup", Tier::Destructive),
    scope("restore_backup_new_vmid", Tier::Low),
    scope("migrate", Tier::Low),
    scope("update_vm_config", Tier::Low),
    scope("update_container_config", Tier::Low),
    scope(crate::tools::provision::POOL_SCOPE, Tier::Low),
    ToolRule {
        name: "delete_iso",
        tier: Tier::Destructive,
        interrupts: false,
        writes_guest: false,
        wildcard: false,
    },
];

/// The operations that a change set can be about, by the names that waivers use.
pub static OPERATIONS: &[&str] = &[
    op::DESTROY_GUEST,
    op::DELETE_SNAPSHOT,
    op::ROLLBACK_SNAPSHOT,
    op::DELETE_BACKUP,
    op::DELETE_ISO,
    op::RESTORE_BACKUP,
    op::RESTORE_NEW_VMID,
    op::MIGRATE,
    op::UPDATE_VM_CONFIG,
    op::UPDATE_CONTAINER_CONFIG,
    "firewall_rule_create",
    "firewall_rule_update",
    "firewall_rule_delete",
    "firewall_rule_move",
    "firewall_options_update",
    "firewall_alias_create",
    "firewall_alias_update",
    "firewall_alias_delete",
    "firewall_ipset_create",
    "firewall_ipset_delete",
    "firewall_ipset_entry_create",
    "firewall_ipset_entry_update",
    "firewall_ipset_entry_delete",
    "firewall_group_create",
    "firewall_group_delete",
    "ha_rule_create",
    "ha_rule_update",
    "ha_rule_delete",
];

/// The scope of changing a guest's firewall, which a protected guest refuses; the cluster's and a node's have no guest to protect.
pub static FIREWALL_OF_GUEST: ToolRule = scope("plan_firewall_change", Tier::Low);

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

const PLANS: ToolRule = ToolRule {
    name: "plan_proxmox_destroy",
    tier: Tier::Low,
    interrupts: false,
    writes_guest: false,
    wildcard: false,
};

/// What `plan_proxmox_destroy` is for an image, which belongs to no guest: it addresses the cluster.
pub(super) static PLAN_ISO: ToolSpec = ToolSpec {
    rule: PLANS,
    title: "Plan deleting an image",
    description: "Plans deleting an ISO image.",
    addresses: Addresses::Cluster,
    hints: CREATES,
    privileges: &["Datastore.Audit"],
    input: schema_of::<changes::PlanDestroyArgs>,
    output: set_output,
    approver_only: false,
    needs_transfers: false,
    handler: |ctx, permit, target, args| {
        Box::pin(async move { changes::plan_destroy(&ctx, permit, &target, parsed(args)?).await })
    },
};

/// What `plan_firewall_change` is for a guest's firewall: it addresses the guest.
pub(super) static PLAN_GUEST_FIREWALL: ToolSpec = ToolSpec {
    rule: ToolRule { name: "plan_firewall_change", ..PLANS },
    title: "Plan a change of a guest's firewall",
    description: "Plans one change of a guest's firewall.",
    addresses: Addresses::Guest(GuestKinds::Any),
    hints: CREATES,
    privileges: &["VM.Audit"],
    input: schema_of::<changes::PlanFirewallArgs>,
    output: set_output,
    approver_only: false,
    needs_transfers: false,
    handler: |ctx, permit, target, args| {
        Box::pin(async move { changes::plan_firewall(&ctx, permit, &target, parsed(args)?).await })
    },
};

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: ToolRule { name: "plan_firewall_change", ..PLANS },
        title: "Plan a firewall change",
        description: "Plans one change of the firewall of the cluster, a node or a guest and changes nothing: rules by position \
                      (bound to the list as it is), options, aliases, IP sets and their entries, security groups. Answers like \
                      plan_proxmox_destroy, with the entry before and after, and a warning when administrators could be locked \
                      out. Approve with approve_firewall_change, apply with apply_firewall_change. Cluster and node need a token \
                      whose grant holds every guest; a protected guest is refused without a waiver.",
        addresses: Addresses::Cluster,
        hints: CREATES,
        privileges: &["Sys.Audit", "VM.Audit"],
        input: schema_of::<changes::PlanFirewallArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { changes::plan_firewall(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule { name: "plan_ha_rule_change", ..PLANS },
        title: "Plan a change of an HA rule",
        description: "Plans making, changing or deleting a rule about where guests under HA may run, and changes nothing. Answers \
                      like plan_proxmox_destroy, with the rule before and after. Needs a token whose grant holds every guest. \
                      Refused: a guest that is protected, without an operator's waiver; a cluster before PVE 9, which has no rules.",
        addresses: Addresses::Cluster,
        hints: CREATES,
        privileges: &["Sys.Audit", "VM.Audit"],
        input: schema_of::<changes::PlanHaArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { changes::plan_ha_rule(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule { name: "approve_firewall_change", ..PLANS },
        title: "Approve a firewall change",
        description: "Another name of approve_proxmox_change_set.",
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
            name: "apply_firewall_change",
            tier: Tier::Destructive,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Apply a firewall change",
        description: "Another name of apply_proxmox_change_set.",
        addresses: Addresses::ChangeSet,
        hints: DESTROYS,
        privileges: &["Sys.Modify", "VM.Config.Network", "VM.Audit", "Sys.Audit"],
        input: schema_of::<changes::SetArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::apply(&ctx, permit, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: PLANS,
        title: "Plan a governed change",
        description: "Plans one operation on one guest and changes nothing: answers with a preview made from live facts and the \
                      digest an approver must approve. The token also needs the scope of the operation: `delete_vm` or \
                      `delete_container` for destroy_guest, else the scope named like `op`. Needs `snapname`: delete_snapshot, \
                      rollback_snapshot. `volid`: delete_backup, restore_backup (over this guest), delete_iso (no `vmid`). \
                      `target_node`: migrate. `set` or `delete`: update_vm_config, update_container_config. Refused: what could \
                      never be applied (a running guest that must be stopped, a lock, another guest's archive), a protected guest \
                      without an operator's waiver, a second plan for the same guest while one is pending.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: &["VM.Audit", "Sys.Audit", "Datastore.Audit"],
        input: schema_of::<changes::PlanDestroyArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { changes::plan_destroy(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule { name: "plan_restore_new_vmid", ..PLANS },
        title: "Plan a restore to a new number",
        description: "Plans making a new guest `newid` from a backup of guest `vmid`, which stays as it is. Answers like \
                      plan_proxmox_destroy. The token also needs the scope `restore_backup_new_vmid`, and a grant of `*` or a \
                      `vmid:` range that holds `newid`. Refused: a number in use, another guest's archive, a protected guest \
                      without a waiver for `restore_new_vmid`.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: &["VM.Audit", "Sys.Audit", "Datastore.Audit"],
        input: schema_of::<changes::RestoreNewArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { changes::plan_restore_new(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: ToolRule { name: "plan_undo", ..PLANS },
        title: "Plan taking a change back",
        description: "Plans the reverse of an applied change set, as a change set of its own that is approved like any other: the \
                      old values after a configuration change, the safety snapshot after a rollback, the way back after a \
                      migration. Needs the scope of the reverse operation. Refused for what cannot be taken back.",
        addresses: Addresses::ChangeSet,
        hints: CREATES,
        privileges: &["VM.Audit", "Sys.Audit"],
        input: schema_of::<changes::UndoArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::plan_undo(&ctx, permit, parsed(args)?).await })
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
        privileges: &[
            "VM.Allocate",
            "VM.Audit",
            "VM.Snapshot",
            "VM.Backup",
            "VM.Migrate",
            "VM.Config.CPU",
            "VM.Config.Cloudinit",
            "VM.Config.Disk",
            "VM.Config.HWType",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "Datastore.Allocate",
            "Datastore.AllocateSpace",
            "Sys.Audit",
            "Sys.Console",
        ],
        input: schema_of::<changes::SetArgs>,
        output: set_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, _target, args| {
            Box::pin(async move { changes::apply(&ctx, permit, parsed(args)?).await })
        },
    },
];
