//! Starting and stopping.

use authz::{Tier, ToolRule};

use super::schema::schema_of;
use super::spec::{Addresses, GuestKinds, Hints, INTERRUPTS, ROUTINE, ToolSpec};
use crate::tools::power::{self, Action, PowerArgs, RebootArgs, ShutdownArgs, SuspendArgs};
use crate::tools::{parsed, routine};

const PRIVILEGES: &[&str] = &["VM.PowerMgmt"];

const fn rule(name: &'static str, interrupts: bool) -> ToolRule {
    ToolRule { name, tier: Tier::Low, interrupts, writes_guest: false, wildcard: false }
}

const fn hints(interrupts: bool) -> Hints {
    if interrupts { INTERRUPTS } else { ROUTINE }
}

/// A tool of this area: what all of them share is said once.
macro_rules! tool {
    (
        $name:literal, $title:literal, $kinds:ident, interrupts: $interrupts:literal, $privileges:expr,
        $args:ty, |$ctx:ident, $permit:ident, $target:ident, $given:ident| $call:expr, $description:expr $(,)?
    ) => {
        ToolSpec {
            rule: rule($name, $interrupts),
            title: $title,
            description: $description,
            addresses: Addresses::Guest(GuestKinds::$kinds),
            hints: hints($interrupts),
            privileges: $privileges,
            input: schema_of::<$args>,
            output: routine::output,
            approver_only: false,
            needs_transfers: false,
            handler: |ctx, $permit, target, args| {
                Box::pin(async move {
                    let ($ctx, $target) = (&ctx, &target);
                    let $given: $args = parsed(args)?;
                    $call.await
                })
            },
        }
    };
}

pub(super) static TOOLS: &[ToolSpec] = &[
    tool!(
        "start_vm", "Start a virtual machine", Qemu, interrupts: false, PRIVILEGES,
        PowerArgs, |ctx, permit, target, args| power::act(ctx, permit, target, Action::Start, args),
        "Starts one QEMU virtual machine and answers with the task. Allowed on protected guests. Starting a running machine ends \
         as PVE says: the task fails with `already running`.",
    ),
    tool!(
        "stop_vm", "Stop a virtual machine", Qemu, interrupts: true, PRIVILEGES,
        PowerArgs, |ctx, permit, target, args| power::act(ctx, permit, target, Action::Stop, args),
        "Stops one QEMU virtual machine at once, as pulling its plug would, and answers with the task. Refused on a protected \
         guest unless an operator's waiver for `stop_vm` covers it. shutdown_vm asks it nicely.",
    ),
    tool!(
        "shutdown_vm", "Shut a virtual machine down", Qemu, interrupts: true, PRIVILEGES,
        ShutdownArgs, |ctx, permit, target, args| power::shutdown(ctx, permit, target, args),
        "Asks one QEMU virtual machine to shut down, and answers with the task, which fails where the machine is not down in time. \
         Refused on a protected guest.",
    ),
    tool!(
        "reboot_vm", "Reboot a virtual machine", Qemu, interrupts: true, PRIVILEGES,
        RebootArgs, |ctx, permit, target, args| power::reboot(ctx, permit, target, args),
        "Shuts one QEMU virtual machine down and starts it again, whereby configuration that waits for it takes effect. Refused on \
         a protected guest.",
    ),
    tool!(
        "reset_vm", "Reset a virtual machine", Qemu, interrupts: true, PRIVILEGES,
        PowerArgs, |ctx, permit, target, args| power::act(ctx, permit, target, Action::Reset, args),
        "Resets one QEMU virtual machine, as its reset button would: what it had not written is lost. Refused on a protected guest.",
    ),
    tool!(
        "suspend_vm", "Suspend a virtual machine", Qemu, interrupts: true,
        &["VM.PowerMgmt", "VM.Config.Disk", "Datastore.AllocateSpace"],
        SuspendArgs, |ctx, permit, target, args| power::suspend(ctx, permit, target, args),
        "Pauses one QEMU virtual machine in memory (resume_vm lets it run on), or with `todisk` writes its memory to a volume and \
         stops it (start_vm resumes it). Refused on a protected guest.",
    ),
    tool!(
        "resume_vm", "Resume a virtual machine", Qemu, interrupts: false, PRIVILEGES,
        PowerArgs, |ctx, permit, target, args| power::act(ctx, permit, target, Action::Resume, args),
        "Lets one QEMU virtual machine that was paused run on. Allowed on protected guests. One that was suspended to disk is \
         resumed by start_vm.",
    ),
    tool!(
        "start_container", "Start a container", Lxc, interrupts: false, PRIVILEGES,
        PowerArgs, |ctx, permit, target, args| power::act(ctx, permit, target, Action::Start, args),
        "Starts one LXC container and answers with the task. Allowed on protected guests. PVE refuses a running one.",
    ),
    tool!(
        "stop_container", "Stop a container", Lxc, interrupts: true, PRIVILEGES,
        PowerArgs, |ctx, permit, target, args| power::act(ctx, permit, target, Action::Stop, args),
        "Stops one LXC container at once, without asking it, and answers with the task. Refused on a protected guest. \
         shutdown_container asks it nicely.",
    ),
    tool!(
        "shutdown_container", "Shut a container down", Lxc, interrupts: true, PRIVILEGES,
        ShutdownArgs, |ctx, permit, target, args| power::shutdown(ctx, permit, target, args),
        "Asks one LXC container to shut down, and answers with the task, which fails where it is not down in time. Refused on a \
         protected guest.",
    ),
    tool!(
        "restart_container", "Restart a container", Lxc, interrupts: true, PRIVILEGES,
        RebootArgs, |ctx, permit, target, args| power::reboot(ctx, permit, target, args),
        "Shuts one LXC container down and starts it again, whereby configuration that waits for it takes effect. Refused on a \
         protected guest.",
    ),
];
