//! Reads of guests.

use super::read::{Read, list, list_of, record};
use super::schema::schema_of;
use super::spec::{Addresses, GuestKinds, ToolSpec};
use crate::tools::args::{ClusterArgs, GuestArgs};
use crate::tools::{addresses, guests};

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "get_vms",
        title: "QEMU virtual machines",
        description: "Lists the QEMU virtual machines of one cluster that this token may see: vmid, name, node, status, tags, \
                      pool, CPU, memory. Sorted by vmid. A machine on an offline node has status `unknown` and may lack its name.",
        addresses: Addresses::Cluster,
        privileges: &["VM.Audit"],
        input: list_of::<ClusterArgs>,
        output: || guests::GUESTS.list_schema(),
        run: list!(guests::vms),
    }
    .tool(),
    Read {
        name: "get_containers",
        title: "LXC containers",
        description: "Lists the LXC containers of one cluster that this token may see: vmid, name, node, status, tags, pool, \
                      CPU, memory. Sorted by vmid. A container on an offline node has status `unknown` and may lack its name.",
        addresses: Addresses::Cluster,
        privileges: &["VM.Audit"],
        input: list_of::<ClusterArgs>,
        output: || guests::GUESTS.list_schema(),
        run: list!(guests::containers),
    }
    .tool(),
    Read {
        name: "find_guests",
        title: "Find guests",
        description: "Finds guests of either kind in all clusters that this token may see, or in `cluster`, by name, tag, pool, \
                      status or node; conditions that are given must all hold. Sorted by cluster and vmid. A cluster that does \
                      not answer is named in `unreachable` and the others are still searched.",
        addresses: Addresses::Clusters,
        privileges: &["VM.Audit"],
        input: list_of::<guests::FindArgs>,
        output: || guests::with_unreachable(guests::FOUND.list_schema()),
        run: list!(guests::find),
    }
    .tool(),
    Read {
        name: "get_guest_status",
        title: "Guest status",
        description: "Runtime status of one guest, QEMU or LXC: status, uptime, CPU, memory, disk, lock, HA state. The server finds \
                      the node; a `node` that is given is only compared.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: schema_of::<GuestArgs>,
        output: || guests::STATUS.record_schema(),
        run: record!(guests::status),
    }
    .tool(),
    Read {
        name: "get_vm_config",
        title: "QEMU configuration",
        description: "Configuration of one QEMU virtual machine with PVE's digest. Refuses containers. Passwords are removed, and \
                      text that looks like a credential is removed from `description`, `args` and `cicustom`; do not rely on that to \
                      keep a secret in them.",
        addresses: Addresses::Guest(GuestKinds::Qemu),
        privileges: &["VM.Audit"],
        input: schema_of::<GuestArgs>,
        output: || guests::CONFIG.record_schema(),
        run: record!(guests::config),
    }
    .tool(),
    Read {
        name: "get_container_config",
        title: "LXC configuration",
        description: "Configuration of one LXC container with PVE's digest. Refuses virtual machines. Values of environment \
                      variables are removed, and text that looks like a credential is removed from `description` and \
                      `entrypoint`; do not rely on that to keep a secret in them.",
        addresses: Addresses::Guest(GuestKinds::Lxc),
        privileges: &["VM.Audit"],
        input: schema_of::<GuestArgs>,
        output: || guests::CONFIG.record_schema(),
        run: record!(guests::config),
    }
    .tool(),
    Read {
        name: "get_vm_ip",
        title: "QEMU addresses",
        description: "Network interfaces and addresses of one running QEMU virtual machine, as its guest agent tells them. Refuses \
                      containers. Needs the agent: installed and running in the guest, and switched on in its configuration.",
        addresses: Addresses::Guest(GuestKinds::Qemu),
        privileges: &["VM.GuestAgent.Audit"],
        input: schema_of::<GuestArgs>,
        output: || addresses::ADDRESSES.record_schema(),
        run: record!(addresses::of_vm),
    }
    .tool(),
    Read {
        name: "get_container_ip",
        title: "LXC addresses",
        description: "Network interfaces and addresses of one running LXC container. Refuses virtual machines: use get_vm_ip. \
                      Needs PVE 8.1 or newer.",
        addresses: Addresses::Guest(GuestKinds::Lxc),
        privileges: &["VM.Audit"],
        input: schema_of::<GuestArgs>,
        output: || addresses::ADDRESSES.record_schema(),
        run: record!(addresses::of_container),
    }
    .tool(),
    Read {
        name: "list_snapshots",
        title: "Snapshots",
        description: "Snapshots of one guest: name, when it was taken, description, parent, whether it holds the memory. The present \
                      state is none of them; `current_parent` names the snapshot it descends from.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: list_of::<GuestArgs>,
        output: guests::snapshots_schema,
        run: list!(guests::snapshots),
    }
    .tool(),
];
