//! Routine work on guests that are there.

use serde_json::Value;

use super::change::{Change, at_once, change, followed};
use super::spec::{Addresses, Arguments, CREATES, GuestKinds, INTERRUPTS, ROUTINE, ToolSpec};
use crate::tools::routine;
use crate::tools::upkeep::{self, BackupArgs, NotesTagsArgs, ResizeArgs, ResourcesArgs, SnapshotArgs};

fn resources_output() -> Value {
    routine::output_with(&[("pending", "array", "keys that wait for the container's next start")])
}

fn tags_output() -> Value {
    routine::output_with(&[("tags", "array", "the tags it has now")])
}

const BACKUP: Change = Change {
    name: "create_backup",
    title: "Back a guest up",
    description: "Backs a guest up to a storage and removes no older backup. Allowed on protected guests in the mode `snapshot`, which \
                      lets the guest run on; `suspend` and `stop` take it down meanwhile and need a waiver for `create_backup` there. A \
                      node makes one backup at a time: another task waits, and looks running. Answers with the task.",
    addresses: Addresses::Guest(GuestKinds::Any),
    interrupts: false,
    writes_guest: false,
    hints: CREATES,
    privileges: &["VM.Backup", "Datastore.AllocateSpace"],
    input: followed::<BackupArgs>,
    output: routine::output,
    run: change!(upkeep::backup),
};
/// What `create_backup` is with a `mode` that takes the guest down: the same scope, and refused on a protected guest.
pub(super) static BACKUP_THAT_INTERRUPTS: ToolSpec =
    Change { interrupts: true, hints: INTERRUPTS, ..BACKUP }.tool();

/// Whether these arguments of `create_backup` take the guest down.
pub(super) fn backup_interrupts(arguments: &Arguments) -> bool {
    arguments.get("mode").is_some_and(|mode| mode.as_str() != Some("snapshot"))
}

pub(super) static TOOLS: &[ToolSpec] = &[
    Change {
        name: "create_snapshot",
        title: "Take a snapshot",
        description: "Takes a snapshot of a guest, with `vmstate` also of a running machine's memory. Allowed on protected guests. The \
                      storage of every disk must be able to. Answers with the task. Deleting one and going back to it are change sets.",
        addresses: Addresses::Guest(GuestKinds::Any),
        interrupts: false,
        writes_guest: false,
        hints: CREATES,
        privileges: &["VM.Snapshot"],
        input: followed::<SnapshotArgs>,
        output: routine::output,
        run: change!(upkeep::snapshot),
    }
    .tool(),
    BACKUP.tool(),
    Change {
        name: "resize_disk",
        title: "Make a disk larger",
        description: "Makes one disk of a guest larger by `size`, `+10G`. PVE never shrinks a disk, and the file system in the guest grows \
                      only where the guest does it. Refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        interrupts: false,
        writes_guest: true,
        hints: CREATES,
        privileges: &["VM.Config.Disk", "Datastore.AllocateSpace"],
        input: followed::<ResizeArgs>,
        output: routine::output,
        run: change!(upkeep::resize),
    }
    .tool(),
    Change {
        name: "update_container_resources",
        title: "Change a container's resources",
        description: "Changes cores, memory or swap of one LXC container. A running container takes it at once where it can; `pending` \
                      names what waits for its next start, and nothing is restarted. Less memory than it uses can kill processes in \
                      it, so it is refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Lxc),
        interrupts: true,
        writes_guest: true,
        hints: INTERRUPTS,
        privileges: &["VM.Config.CPU", "VM.Config.Memory"],
        input: at_once::<ResourcesArgs>,
        output: resources_output,
        run: change!(upkeep::resources),
    }
    .tool(),
    Change {
        name: "update_guest_notes_tags",
        title: "Change a guest's notes and tags",
        description: "Changes the note of a guest, or its tags: all of them by `tags`, single ones by `add_tags` and `remove_tags`. Tags \
                      decide which tokens may act on a guest and what is protected. Refused on a protected guest.",
        addresses: Addresses::Guest(GuestKinds::Any),
        interrupts: false,
        writes_guest: true,
        hints: ROUTINE,
        privileges: &["VM.Config.Options"],
        input: at_once::<NotesTagsArgs>,
        output: tags_output,
        run: change!(upkeep::notes_tags),
    }
    .tool(),
];
