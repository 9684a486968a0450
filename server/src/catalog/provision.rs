//! New guests.

use authz::{Tier, ToolRule};

use super::schema::schema_of;
use super::spec::{Addresses, CREATES, GuestKinds, ToolSpec};
use crate::tools::provision::{clone, container, vm};
use crate::tools::{parsed, routine};

const fn rule(name: &'static str) -> ToolRule {
    ToolRule { name, tier: Tier::Low, interrupts: false, writes_guest: false, wildcard: false }
}

fn clone_output() -> serde_json::Value {
    let mut fields = routine::OUTPUT.to_vec();
    fields.push(("newid", "integer", "the clone's number"));
    super::open_object(&fields)
}

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: rule("create_vm"),
        title: "Create a virtual machine",
        description: "Makes a new QEMU virtual machine under a number that no guest has; the token's grant must hold that number by \
                      `*` or a `vmid:` range, and the operator must not have protected it. Only new volumes, ISO images and cloud-init \
                      drives can be given: keys that reach the node or volumes that exist are refused. Answers with the task.",
        addresses: Addresses::NewGuest,
        hints: CREATES,
        privileges: &[
            "VM.Allocate",
            "VM.Config.CDROM",
            "VM.Config.CPU",
            "VM.Config.Cloudinit",
            "VM.Config.Disk",
            "VM.Config.HWType",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "VM.PowerMgmt",
            "Datastore.AllocateSpace",
            "Datastore.Audit",
            "SDN.Use",
        ],
        input: schema_of::<vm::CreateVmArgs>,
        output: routine::output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { vm::create(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: rule("create_container"),
        title: "Create a container",
        description: "Makes a new unprivileged LXC container from a template, under a number that no guest has; the token's grant must \
                      hold that number by `*` or a `vmid:` range, and the operator must not have protected it. Host mounts, devices, \
                      raw `lxc` keys and privileged containers are refused. Answers with the task.",
        addresses: Addresses::NewGuest,
        hints: CREATES,
        privileges: &[
            "VM.Allocate",
            "VM.Config.CPU",
            "VM.Config.Disk",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "VM.PowerMgmt",
            "Datastore.AllocateSpace",
            "Datastore.Audit",
            "SDN.Use",
        ],
        input: schema_of::<container::CreateContainerArgs>,
        output: routine::output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { container::create(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: rule(clone::NAME),
        title: "Clone a guest",
        description: "Clones a virtual machine, container or template to the number `newid`, which no guest may have and the token's \
                      grant must hold by `*` or a `vmid:` range. Protected guests may be cloned; the clone has their tags. Answers with \
                      the task.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: &["VM.Clone", "VM.Allocate", "Datastore.AllocateSpace", "SDN.Use"],
        input: schema_of::<clone::CloneArgs>,
        output: clone_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { clone::clone(&ctx, permit, &target, parsed(args)?).await })
        },
    },
];
