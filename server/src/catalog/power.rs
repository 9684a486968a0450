//! Starting and stopping.

use super::change::{Change, change, followed};
use super::spec::{Addresses, GuestKinds, INTERRUPTS, ROUTINE, ToolSpec};
use crate::tools::args::GuestArgs;
use crate::tools::power::{self, RebootArgs, ShutdownArgs, SuspendArgs};
use crate::tools::routine;

const PRIVILEGES: &[&str] = &["VM.PowerMgmt"];

/// What all of them share.
const START: Change = Change {
    name: "",
    title: "",
    description: "",
    addresses: Addresses::Guest(GuestKinds::Qemu),
    interrupts: false,
    writes_guest: false,
    hints: ROUTINE,
    privileges: PRIVILEGES,
    input: followed::<GuestArgs>,
    output: routine::output,
    run: change!(power::start),
};
/// The same of what takes the guest down.
const STOP: Change = Change { interrupts: true, hints: INTERRUPTS, run: change!(power::stop), ..START };
const LXC: Addresses = Addresses::Guest(GuestKinds::Lxc);

pub(super) static TOOLS: &[ToolSpec] = &[
    Change {
        name: "start_vm",
        title: "Start a virtual machine",
        description: "Starts one QEMU virtual machine and answers with the task. Allowed on protected guests. Starting a running machine ends \
         as PVE says: the task fails with `already running`.",
        ..START
    }
    .tool(),
    Change {
        name: "stop_vm",
        title: "Stop a virtual machine",
        description: "Stops one QEMU virtual machine at once, as pulling its plug would, and answers with the task. Refused on a protected \
         guest unless an operator's waiver for `stop_vm` covers it. shutdown_vm asks it nicely.",
        ..STOP
    }
    .tool(),
    Change {
        name: "shutdown_vm",
        title: "Shut a virtual machine down",
        description: "Asks one QEMU virtual machine to shut down, and answers with the task, which fails where the machine is not down in time. \
         Refused on a protected guest.",
        input: followed::<ShutdownArgs>,
        run: change!(power::shutdown),
        ..STOP
    }
    .tool(),
    Change {
        name: "reboot_vm",
        title: "Reboot a virtual machine",
        description: "Shuts one QEMU virtual machine down and starts it again, whereby configuration that waits for it takes effect. Refused on \
         a protected guest.",
        input: followed::<RebootArgs>,
        run: change!(power::reboot),
        ..STOP
    }
    .tool(),
    Change {
        name: "reset_vm",
        title: "Reset a virtual machine",
        description: "Resets one QEMU virtual machine, as its reset button would: what it had not written is lost. Refused on a protected guest.",
        run: change!(power::reset),
        ..STOP
    }
    .tool(),
    Change {
        name: "suspend_vm",
        title: "Suspend a virtual machine",
        description: "Pauses one QEMU virtual machine in memory (resume_vm lets it run on), or with `todisk` writes its memory to a volume and \
         stops it (start_vm resumes it). Refused on a protected guest.",
        privileges: &["VM.PowerMgmt", "VM.Config.Disk", "Datastore.AllocateSpace"],
        input: followed::<SuspendArgs>,
        run: change!(power::suspend),
        ..STOP
    }
    .tool(),
    Change {
        name: "resume_vm",
        title: "Resume a virtual machine",
        description: "Lets one QEMU virtual machine that was paused run on. Allowed on protected guests. One that was suspended to disk is \
         resumed by start_vm.",
        run: change!(power::resume),
        ..START
    }
    .tool(),
    Change {
        name: "start_container",
        title: "Start a container",
        description: "Starts one LXC container and answers with the task. Allowed on protected guests. PVE refuses a running one.",
        addresses: LXC,
        ..START
    }
    .tool(),
    Change {
        name: "stop_container",
        title: "Stop a container",
        description: "Stops one LXC container at once, without asking it, and answers with the task. Refused on a protected guest. \
         shutdown_container asks it nicely.",
        addresses: LXC,
        ..STOP
    }
    .tool(),
    Change {
        name: "shutdown_container",
        title: "Shut a container down",
        description: "Asks one LXC container to shut down, and answers with the task, which fails where it is not down in time. Refused on a \
         protected guest.",
        addresses: LXC,
        input: followed::<ShutdownArgs>,
        run: change!(power::shutdown),
        ..STOP
    }
    .tool(),
    Change {
        name: "restart_container",
        title: "Restart a container",
        description: "Shuts one LXC container down and starts it again, whereby configuration that waits for it takes effect. Refused on a \
         protected guest.",
        addresses: LXC,
        input: followed::<RebootArgs>,
        run: change!(power::reboot),
        ..STOP
    }
    .tool(),
];
