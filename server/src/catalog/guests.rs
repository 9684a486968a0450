//! Reads of nodes, guests and tasks.

use authz::{Tier, ToolRule};

use super::open_object;
use super::schema::schema_of;
use super::spec::{Addresses, GuestKinds, READ, ToolSpec};
use crate::tools::{guests, parsed};

const fn read(name: &'static str) -> ToolRule {
    ToolRule { name, tier: Tier::Read, interrupts: false, writes_guest: false, wildcard: true }
}

fn list_output() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "object"}, "description": "this page, sorted by a stable key"},
            "total": {"type": "integer", "description": "how many there are in all, of those this token may see"},
            "offset": {"type": "integer", "description": "index of the first item of this page"},
            "limit": {"type": "integer", "description": "largest number of items this page could hold"},
            "has_more": {"type": "boolean", "description": "whether another page follows"},
            "skipped": {"type": "integer", "description": "rows of the cluster's answer that could not be read"}
        },
        "required": ["items", "total", "offset", "limit", "has_more"]
    })
}

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: read("get_nodes"),
        title: "Cluster nodes",
        description: "Lists the nodes of one cluster with status, CPU, memory and uptime. Needs no guest scope. \
                      An offline node is listed with status `offline`.",
        addresses: Addresses::Cluster,
        hints: READ,
        privileges: &["Sys.Audit"],
        input: schema_of::<guests::ListArgs>,
        output: list_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, target, args| {
            Box::pin(async move { guests::nodes(&ctx, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: read("get_vms"),
        title: "QEMU virtual machines",
        description: "Lists the QEMU virtual machines of one cluster that this token may see: vmid, name, node, status, tags, \
                      pool, CPU, memory. Pages by `offset` and `limit` (default 500, at most 700); `fields` keeps only the \
                      named columns.",
        addresses: Addresses::Cluster,
        hints: READ,
        privileges: &["VM.Audit"],
        input: schema_of::<guests::ListArgs>,
        output: list_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, target, args| {
            Box::pin(async move { guests::list(&ctx, &target, authz::GuestKind::Qemu, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: read("get_containers"),
        title: "LXC containers",
        description: "Lists the LXC containers of one cluster that this token may see: vmid, name, node, status, tags, pool, \
                      CPU, memory. Pages by `offset` and `limit` (default 500, at most 700); `fields` keeps only the named \
                      columns.",
        addresses: Addresses::Cluster,
        hints: READ,
        privileges: &["VM.Audit"],
        input: schema_of::<guests::ListArgs>,
        output: list_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, target, args| {
            Box::pin(async move { guests::list(&ctx, &target, authz::GuestKind::Lxc, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: read("get_guest_status"),
        title: "Guest status",
        description: "Runtime status of one guest, QEMU or LXC: status, uptime, CPU, memory, disk, lock, HA state. The server finds \
                      the node; a `node` that is given is only compared.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: READ,
        privileges: &["VM.Audit"],
        input: schema_of::<guests::GuestArgs>,
        output: || {
            open_object(&[
                ("vmid", "integer", "the guest's number"),
                ("node", "string", "where it is now"),
                ("kind", "string", "`qemu` or `lxc`"),
                ("status", "string", "PVE's word: running, stopped, paused, …"),
            ])
        },
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, target, _args| Box::pin(async move { guests::status(&ctx, &target).await }),
    },
    ToolSpec {
        rule: read("get_vm_config"),
        title: "QEMU configuration",
        description: "Configuration of one QEMU virtual machine with PVE's digest. Refuses containers. Passwords are removed, and \
                      text that looks like a credential is removed from `description`, `args` and `cicustom`; do not rely on that to \
                      keep a secret in them.",
        addresses: Addresses::Guest(GuestKinds::Qemu),
        hints: READ,
        privileges: &["VM.Audit"],
        input: schema_of::<guests::GuestArgs>,
        output: || {
            open_object(&[
                ("vmid", "integer", "the guest's number"),
                ("node", "string", "where it is now"),
                ("digest", "string", "PVE's digest of this configuration"),
                ("config", "object", "the configuration, by PVE's option names, values as text"),
            ])
        },
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, target, _args| {
            Box::pin(async move { guests::vm_config(&ctx, &target).await })
        },
    },
    ToolSpec {
        rule: read("get_task_status"),
        title: "Task status",
        description: "State of one PVE task by its UPID: running, or stopped with its exit status. `OK` alone is success; \
                      `WARNINGS: n` is success with warnings. A task on a guest outside this token's scope is refused like an \
                      unknown one.",
        addresses: Addresses::Task,
        hints: READ,
        privileges: &["Sys.Audit"],
        input: schema_of::<guests::TaskArgs>,
        output: || {
            open_object(&[
                ("upid", "string", "the task"),
                ("node", "string", "where it runs or ran"),
                ("type", "string", "PVE's worker type"),
                ("status", "string", "`running` or `stopped`"),
                ("exitstatus", "string", "PVE's words, once stopped"),
                ("success", "boolean", "whether it ended well, once stopped"),
            ])
        },
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, _permit, target, args| {
            Box::pin(async move { guests::task_status(&ctx, &target, parsed(args)?).await })
        },
    },
];
