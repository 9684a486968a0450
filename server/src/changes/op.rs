//! The operations that a change set's steps can hold: their names, scopes, tasks and the words people read.

use authz::{GuestKind, ToolRule};
use changeset::Step;
use proxmox_api::Upid;

use super::{ha_rule, wall};
use crate::catalog;

/// Destroys a guest and its disks.
pub const DESTROY_GUEST: &str = "destroy_guest";
/// Deletes one snapshot of a guest.
pub const DELETE_SNAPSHOT: &str = "delete_snapshot";
/// Puts a guest back to one of its snapshots.
pub const ROLLBACK_SNAPSHOT: &str = "rollback_snapshot";
/// Deletes one backup archive of a guest.
pub const DELETE_BACKUP: &str = "delete_backup";
/// Deletes one ISO image.
pub const DELETE_ISO: &str = "delete_iso";
/// Replaces a guest by one of its backups.
pub const RESTORE_BACKUP: &str = "restore_backup";
/// Makes a new guest from another one's backup.
pub const RESTORE_NEW_VMID: &str = "restore_new_vmid";
/// Moves a guest to another node.
pub const MIGRATE: &str = "migrate";
/// Changes the configuration of a virtual machine.
pub const UPDATE_VM_CONFIG: &str = "update_vm_config";
/// Changes the configuration of a container.
pub const UPDATE_CONTAINER_CONFIG: &str = "update_container_config";
/// A safety snapshot: only ever a set's first step, never what the set is about.
pub const CREATE_SNAPSHOT: &str = "create_snapshot";

/// What a set is about: waivers name it, and its scope is the one that planner and applier need. A safety step stands before it.
pub fn subject(steps: &[Step]) -> Option<&Step> {
    steps.last()
}

/// The authorization-only scope of an operation, on a kind of guest (`qemu`, `lxc`; empty where there is none).
pub fn scope(op: &str, kind: &str) -> Option<&'static ToolRule> {
    if wall::is_firewall(op) {
        return if kind.is_empty() {
            catalog::rule("plan_firewall_change")
        } else {
            Some(&catalog::FIREWALL_OF_GUEST)
        };
    }
    if ha_rule::is_ha(op) {
        return catalog::rule("plan_ha_rule_change").filter(|_| kind.is_empty());
    }
    let name = match (op, kind) {
        (DESTROY_GUEST, "qemu") => "delete_vm",
        (DESTROY_GUEST, "lxc") => "delete_container",
        (DELETE_SNAPSHOT | ROLLBACK_SNAPSHOT | DELETE_BACKUP | RESTORE_BACKUP | MIGRATE, "qemu" | "lxc") => {
            op
        }
        (UPDATE_VM_CONFIG, "qemu") | (UPDATE_CONTAINER_CONFIG, "lxc") | (DELETE_ISO, "") => op,
        (RESTORE_NEW_VMID, "qemu" | "lxc") => "restore_backup_new_vmid",
        _ => return None,
    };
    catalog::rule(name)
}

/// Whether an operation destroys data. What does not still needs a second person.
pub fn is_destructive(op: &str) -> bool {
    !is_setting(op)
        && !matches!(
            op,
            MIGRATE | UPDATE_VM_CONFIG | UPDATE_CONTAINER_CONFIG | RESTORE_NEW_VMID | CREATE_SNAPSHOT
        )
}

/// Whether an operation changes a setting of the cluster's own.
fn is_setting(op: &str) -> bool {
    wall::is_firewall(op) || ha_rule::is_ha(op)
}

/// The configuration operation of a kind of guest.
pub fn update_config(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Qemu => UPDATE_VM_CONFIG,
        GuestKind::Lxc => UPDATE_CONTAINER_CONFIG,
    }
}

/// Whether an operation's request is answered when it is done, without a task.
pub fn is_synchronous(op: &str) -> bool {
    is_setting(op) || matches!(op, UPDATE_VM_CONFIG | UPDATE_CONTAINER_CONFIG)
}

/// Worker types that an operation's request can start.
pub fn task_types(op: &str) -> &'static [&'static str] {
    match op {
        DESTROY_GUEST => &["qmdestroy", "vzdestroy"],
        CREATE_SNAPSHOT => &["qmsnapshot", "vzsnapshot"],
        DELETE_SNAPSHOT => &["qmdelsnapshot", "vzdelsnapshot"],
        ROLLBACK_SNAPSHOT => &["qmrollback", "vzrollback"],
        DELETE_BACKUP | DELETE_ISO => &["imgdel"],
        RESTORE_BACKUP | RESTORE_NEW_VMID => &["qmrestore", "vzrestore", "vzcreate"],
        MIGRATE => &["qmigrate", "vzmigrate"],
        _ => &[],
    }
}

/// Whether a task can be the one that a step's request started.
pub fn is_task_of(upid: &Upid, step: &Step) -> bool {
    if !task_types(&step.op).contains(&upid.kind()) {
        return false;
    }
    let param = |name: &str| step.params.get(name).map(String::as_str).unwrap_or_default();
    match step.op.as_str() {
        // PVE names these after the storage, with the owner's number before it where a volume has one.
        DELETE_BACKUP | DELETE_ISO => {
            let storage = param("volid").split(':').next().unwrap_or_default();
            let id = upid.id();
            id == storage || id == param("volid") || id.split_once('@').is_some_and(|(_, of)| of == storage)
        }
        RESTORE_NEW_VMID => upid.id() == param("newid"),
        _ => upid.id() == param("vmid"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_a_waiver_can_name_has_a_scope_and_no_scope_is_reached_by_a_wildcard() {
        for op in catalog::OPERATIONS {
            let found: Vec<_> = ["qemu", "lxc", ""].iter().filter_map(|kind| scope(op, kind)).collect();
            assert!(!found.is_empty(), "{op}");
            for rule in found {
                assert!(!rule.wildcard, "{op}");
                assert_eq!(rule.tier == authz::Tier::Destructive, is_destructive(op), "{op}");
            }
            assert_eq!(is_synchronous(op), task_types(op).is_empty(), "{op} has a task or none");
        }
        assert!(scope(CREATE_SNAPSHOT, "qemu").is_none(), "a safety step is never what a set is about");
    }

    #[test]
    fn cs_25_only_a_task_on_the_same_thing_is_ours() {
        let upid = |kind: &str, id: &str| -> Upid {
            format!("UPID:pve1:00001234:00005678:65000000:{kind}:{id}:proxward@pve!gate:").parse().unwrap()
        };
        let step = |op: &str, params: &[(&str, &str)]| Step::new(op, params.iter().copied(), "");
        let rollback = step(ROLLBACK_SNAPSHOT, &[("vmid", "104")]);
        assert!(is_task_of(&upid("qmrollback", "104"), &rollback));
        assert!(!is_task_of(&upid("qmrollback", "105"), &rollback));
        assert!(!is_task_of(&upid("qmsnapshot", "104"), &rollback));
        let backup =
            step(DELETE_BACKUP, &[("vmid", "104"), ("volid", "nas:backup/vzdump-qemu-104-x.vma.zst")]);
        assert!(is_task_of(&upid("imgdel", "104@nas"), &backup));
        assert!(is_task_of(&upid("imgdel", "nas"), &backup));
        assert!(!is_task_of(&upid("imgdel", "104@other"), &backup));
        let restore = step(RESTORE_NEW_VMID, &[("vmid", "104"), ("newid", "990")]);
        assert!(is_task_of(&upid("qmrestore", "990"), &restore));
        assert!(!is_task_of(&upid("qmrestore", "104"), &restore));
    }
}
