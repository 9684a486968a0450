//! Snapshots: taking, deleting, describing, and going back to one.

use crate::api::handlers::power::at_work;
use crate::api::handlers::{Call, worker};
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::config::{GuestKind, SnapshotConfig};
use crate::state::guest::{Guest, is_disk_key};
use crate::state::{State, now};

/// Names that mean something else.
fn is_reserved(kind: GuestKind, name: &str) -> bool {
    match kind {
        GuestKind::Qemu => matches!(name, "current" | "pending"),
        GuestKind::Lxc => matches!(name, "current" | "vzdump"),
    }
}

/// Whether the storage of a volume can take snapshots of it.
fn can_snapshot(state: &State, volid: &str) -> bool {
    let Some((id, name)) = volid.split_once(':') else { return false };
    let storage = state.storages.iter().find(|storage| storage.id == id);
    storage.is_some_and(|storage| match storage.kind.as_str() {
        "lvmthin" | "zfspool" | "zfs" | "rbd" | "btrfs" => true,
        _ => name.ends_with(".qcow2"),
    })
}

pub(crate) fn create(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    call.guest(kind)?;
    let name = call.get("snapname").unwrap_or_default().to_owned();
    if is_reserved(kind, &name) {
        return Err(Refusal::die(format!("unable to use snapshot name '{name}' (reserved name)")));
    }
    let description = call.get("description").unwrap_or_default().to_owned();
    let with_ram = call.flag("vmstate");
    Ok(worker::for_guest(call, kind, "snapshot", Some("snapshot"), move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?.clone();
        if guest.snapshots.iter().any(|snapshot| snapshot.name == name) {
            return Err(format!("snapshot name '{name}' already used"));
        }
        if guest.is_template() {
            return Err("you can't take a snapshot if it's a template".to_owned());
        }
        let disks: Vec<(String, String)> = guest
            .disks()
            .into_iter()
            .filter(|(key, _, _)| is_disk_key(kind, key) && !guest.is_cdrom(key))
            .map(|(key, volid, _)| (key.to_owned(), volid.to_owned()))
            .collect();
        if !disks.iter().all(|(_, volid)| can_snapshot(state, volid)) {
            return Err("snapshot feature is not available".to_owned());
        }
        let with_ram = with_ram && kind == GuestKind::Qemu && guest.running;
        let mut log = Vec::new();
        if with_ram {
            let storage = disks.first().and_then(|(_, volid)| volid.split(':').next()).unwrap_or("local");
            log.push(format!("  Logical volume \"vm-{vmid}-state-{name}\" created."));
            log.push(format!("saving VM state and RAM using storage '{storage}'"));
            log.push("completed saving the VM state in 0s, saved 0.00 B".to_owned());
        }
        if kind == GuestKind::Qemu {
            log.extend(disks.iter().map(|(key, volid)| format!("snapshotting 'drive-{key}' ({volid})")));
        }
        let guest = at_work(state, node, kind, vmid)?;
        let mut config = guest.active_config().clone();
        for key in ["lock", "parent", "description"] {
            config.remove(key);
        }
        guest.snapshots.push(SnapshotConfig {
            name: name.clone(),
            snaptime: now(),
            parent: guest.config.get("parent").cloned(),
            description,
            vmstate: with_ram,
            config,
        });
        guest.set("parent", &name);
        Ok(log)
    }))
}

fn missing(name: &str) -> String {
    format!("snapshot '{name}' does not exist")
}

pub(crate) fn delete(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    call.guest(kind)?;
    let name = call.get("snapname").unwrap_or_default().to_owned();
    Ok(worker::for_guest(call, kind, "delsnapshot", Some("snapshot-delete"), move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        let at = guest.snapshots.iter().position(|snapshot| snapshot.name == name);
        let gone = guest.snapshots.remove(at.ok_or_else(|| missing(&name))?);
        // Its children become those of its parent.
        for snapshot in guest.snapshots.iter_mut().filter(|snapshot| snapshot.parent.as_ref() == Some(&name))
        {
            snapshot.parent.clone_from(&gone.parent);
        }
        if guest.option("parent") == Some(&name) {
            match &gone.parent {
                Some(parent) => guest.set("parent", parent),
                None => guest.unset("parent"),
            }
        }
        let mut log = Vec::new();
        if gone.vmstate {
            log.push(format!("  Logical volume \"vm-{vmid}-state-{name}\" successfully removed."));
        }
        Ok(log)
    }))
}

pub(crate) fn describe(call: &mut Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    if let Some(error) = guest.lock_error() {
        return Err(Refusal::die(error));
    }
    let (vmid, name) = (guest.vmid, call.get("snapname").unwrap_or_default().to_owned());
    let description = call.get("description").map(str::to_owned);
    let guest = call.state.guests.get_mut(&vmid);
    let snapshot = guest.and_then(|guest| guest.snapshots.iter_mut().find(|snapshot| snapshot.name == name));
    match snapshot {
        None => Err(Refusal::die(missing(&name))),
        Some(snapshot) => {
            if let Some(description) = description {
                snapshot.description = description;
            }
            Ok(Answer::Changed)
        }
    }
}

/// Going back leaves a VM stopped unless the snapshot has its RAM, and stops a container.
pub(crate) fn rollback(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    call.guest(kind)?;
    let start = call.flag("start");
    if start {
        let path = format!("/vms/{}", call.vmid());
        require(call.state, call.token, &path, &["VM.PowerMgmt"], false)?;
    }
    let name = call.get("snapname").unwrap_or_default().to_owned();
    Ok(worker::for_guest(call, kind, "rollback", Some("rollback"), move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        if guest.is_template() {
            return Err("you can't rollback if vm is a template".to_owned());
        }
        let found = guest.snapshots.iter().find(|snapshot| snapshot.name == name);
        let snapshot = found.ok_or_else(|| missing(&name))?.clone();
        apply(guest, &snapshot);
        guest.running = false;
        if start || snapshot.vmstate {
            guest.start();
        }
        Ok(Vec::new())
    }))
}

/// The guest's own notes and its unused disks stay; all else is as it was.
fn apply(guest: &mut Guest, snapshot: &SnapshotConfig) {
    let kept = |key: &str| key == "description" || key.starts_with("unused");
    guest.config.retain(|key, _| kept(key));
    let old = snapshot.config.iter().filter(|(key, _)| !kept(key));
    guest.config.extend(old.map(|(key, value)| (key.clone(), value.clone())));
    guest.config.insert("parent".to_owned(), snapshot.name.clone());
    guest.active = guest.config.clone();
}
