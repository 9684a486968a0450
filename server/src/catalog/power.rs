//! Starting and stopping.

use authz::{Tier, ToolRule};

use super::open_object;
use super::schema::schema_of;
use super::spec::{Addresses, GuestKinds, INTERRUPTS, ROUTINE, ToolSpec};
use crate::tools::args::GuestArgs;
use crate::tools::power;

fn task_output() -> serde_json::Value {
    open_object(&[
        ("upid", "string", "the task that was started; get_task_status follows it"),
        ("vmid", "integer", "the guest's number"),
        ("node", "string", "where the task runs"),
    ])
}

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: ToolRule {
            name: "start_vm",
            tier: Tier::Low,
            interrupts: false,
            writes_guest: false,
            wildcard: false,
        },
        title: "Start a virtual machine",
        description: "Starts one QEMU virtual machine and answers with the task. Allowed on protected guests. Starting a running \
                      machine ends as PVE says: the task fails with `already running`.",
        addresses: Addresses::Guest(GuestKinds::Qemu),
        hints: ROUTINE,
        privileges: &["VM.PowerMgmt"],
        input: schema_of::<GuestArgs>,
        output: task_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, _args| {
            Box::pin(async move { power::start(&ctx, permit, &target).await })
        },
    },
    ToolSpec {
        rule: ToolRule {
            name: "stop_vm",
            tier: Tier::Low,
            interrupts: true,
            writes_guest: false,
            wildcard: false,
        },
        title: "Stop a virtual machine",
        description: "Stops one QEMU virtual machine at once, as pulling its plug would, and answers with the task. Refused on a \
                      protected guest unless an operator's waiver for `stop_vm` covers it.",
        addresses: Addresses::Guest(GuestKinds::Qemu),
        hints: INTERRUPTS,
        privileges: &["VM.PowerMgmt"],
        input: schema_of::<GuestArgs>,
        output: task_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, _args| {
            Box::pin(async move { power::stop(&ctx, permit, &target).await })
        },
    },
];
