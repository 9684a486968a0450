//! Routine work on guests that are there.

use authz::{Tier, ToolRule};
use serde_json::Value;

use super::schema::schema_of;
use super::spec::{Addresses, Arguments, CREATES, GuestKinds, INTERRUPTS, ROUTINE, ToolSpec};
use crate::tools::upkeep::{self, BackupArgs, NotesTagsArgs, ResizeArgs, ResourcesArgs, SnapshotArgs};
use crate::tools::{parsed, routine};

const fn rule(name: &'static str, interrupts: bool, writes_guest: bool) -> ToolRule {
    ToolRule { name, tier: Tier::Low, interrupts, writes_guest, wildcard: false }
}

fn resources_output() -> Value {
    let mut fields = routine::OUTPUT.to_vec();
    fields.push(("pending", "array", "keys that wait for the container's next start"));
    super::open_object(&fields)
}

fn tags_output() -> Value {
    let mut fields = routine::OUTPUT.to_vec();
    fields.push(("tags", "array", "the tags it has now"));
    super::open_object(&fields)
}

const BACKUP_TITLE: &str = "Back a guest up";
const BACKUP_PRIVILEGES: &[&str] = &["VM.Backup", "Datastore.AllocateSpace"];

/// What `create_backup` is with a `mode` that takes the guest down: the same scope, and refused on a protected guest.
pub(super) static BACKUP_THAT_INTERRUPTS: ToolSpec = ToolSpec {
    rule: rule("create_backup", true, false),
    title: BACKUP_TITLE,
    description: "Backs a guest up while it is paused or stopped.",
    addresses: Addresses::Guest(GuestKinds::Any),
    hints: INTERRUPTS,
    privileges: BACKUP_PRIVILEGES,
    input: schema_of::<BackupArgs>,
    output: routine::output,
    approver_only: false,
    needs_transfers: false,
    handler: |ctx, permit, target, args| {
        Box::pin(async move { upkeep::backup(&ctx, permit, &target, parsed(args)?).await })
    },
};

/// Whether these arguments of `create_backup` take the guest down.
pub(super) fn backup_interrupts(arguments: &Arguments) -> bool {
    arguments.get("mode").is_some_and(|mode| mode.as_str() != Some("snapshot"))
}

pub(super) static TOOLS: &[ToolSpec] = &[
    ToolSpec {
        rule: rule("create_snapshot", false, false),
        title: "Take a snapshot",
        description: "Takes a snapshot of a guest, with `vmstate` also of a running machine's memory. Allowed on protected guests. The \
                      storage of every disk must be able to. Answers with the task. Deleting one and going back to it are change sets.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: &["VM.Snapshot"],
        input: schema_of::<SnapshotArgs>,
        output: routine::output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { upkeep::snapshot(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: rule("create_backup", false, false),
        title: BACKUP_TITLE,
        description: "Backs a guest up to a storage and removes no older backup. Allowed on protected guests in the mode `snapshot`, which \
                      lets the guest run on; `suspend` and `stop` take it down meanwhile and need a waiver for `create_backup` there. A \
                      node makes one backup at a time: another task waits, and looks running. Answers with the task.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: BACKUP_PRIVILEGES,
        input: schema_of::<BackupArgs>,
        output: routine::output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { upkeep::backup(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: rule("resize_disk", false, true),
        title: "Make a disk larger",
        description: "Makes one disk of a guest larger by `size`, `+10G`. PVE never shrinks a disk, and the file system in the guest grows \
                      only where the guest does it. Refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: CREATES,
        privileges: &["VM.Config.Disk", "Datastore.AllocateSpace"],
        input: schema_of::<ResizeArgs>,
        output: routine::output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { upkeep::resize(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: rule("update_container_resources", true, true),
        title: "Change a container's resources",
        description: "Changes cores, memory or swap of one LXC container. A running container takes it at once where it can; `pending` \
                      names what waits for its next start, and nothing is restarted. Less memory than it uses can kill processes in \
                      it, so it is refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Lxc),
        hints: INTERRUPTS,
        privileges: &["VM.Config.CPU", "VM.Config.Memory"],
        input: schema_of::<ResourcesArgs>,
        output: resources_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { upkeep::resources(&ctx, permit, &target, parsed(args)?).await })
        },
    },
    ToolSpec {
        rule: rule("update_guest_notes_tags", false, true),
        title: "Change a guest's notes and tags",
        description: "Changes the note of a guest, or its tags: all of them by `tags`, single ones by `add_tags` and `remove_tags`. Tags \
                      decide which tokens may act on a guest and what is protected. Refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        hints: ROUTINE,
        privileges: &["VM.Config.Options"],
        input: schema_of::<NotesTagsArgs>,
        output: tags_output,
        approver_only: false,
        needs_transfers: false,
        handler: |ctx, permit, target, args| {
            Box::pin(async move { upkeep::notes_tags(&ctx, permit, &target, parsed(args)?).await })
        },
    },
];
