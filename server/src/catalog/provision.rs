//! New guests.

use super::change::{Change, change, followed};
use super::spec::{Addresses, CREATES, GuestKinds, ToolSpec};
use crate::tools::provision::{clone, container, vm};
use crate::tools::routine;

fn clone_output() -> serde_json::Value {
    routine::output_with(&[("newid", "integer", "the clone's number")])
}

pub(super) static TOOLS: &[ToolSpec] = &[
    Change {
        name: "create_vm",
        title: "Create a virtual machine",
        description: "Makes a new QEMU virtual machine under a number that no guest has; the token's grant must hold that number by \
                      `*` or a `vmid:` range, and the operator must not have protected it. Only new volumes, ISO images and cloud-init \
                      drives can be given: keys that reach the node or volumes that exist are refused. Answers with the task.",
        addresses: Addresses::NewGuest,
        interrupts: false,
        writes_guest: false,
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
        input: followed::<vm::CreateVmArgs>,
        output: routine::output,
        run: change!(vm::create),
    }
    .tool(),
    Change {
        name: "create_container",
        title: "Create a container",
        description: "Makes a new unprivileged LXC container from a template, under a number that no guest has; the token's grant must \
                      hold that number by `*` or a `vmid:` range, and the operator must not have protected it. Host mounts, devices, \
                      raw `lxc` keys and privileged containers are refused. Answers with the task.",
        addresses: Addresses::NewGuest,
        interrupts: false,
        writes_guest: false,
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
        input: followed::<container::CreateContainerArgs>,
        output: routine::output,
        run: change!(container::create),
    }
    .tool(),
    Change {
        name: clone::NAME,
        title: "Clone a guest",
        description: "Clones a virtual machine, container or template to the number `newid`, which no guest may have and the token's \
                      grant must hold by `*` or a `vmid:` range. Protected guests may be cloned; the clone has their tags. Answers with \
                      the task.",
        addresses: Addresses::Guest(GuestKinds::Any),
        interrupts: false,
        writes_guest: false,
        hints: CREATES,
        privileges: &["VM.Clone", "VM.Allocate", "Datastore.AllocateSpace", "SDN.Use"],
        input: followed::<clone::CloneArgs>,
        output: clone_output,
        run: change!(clone::clone),
    }
    .tool(),
];
