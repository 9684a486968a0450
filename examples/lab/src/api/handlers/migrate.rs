//! Migration, and what has to hold before it.

use serde_json::{Map, Value, json};

use crate::api::handlers::power::at_work;
use crate::api::handlers::{Call, clone, time, worker};
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::now;

/// What keeps a guest from a node, and what it would have to copy.
pub(crate) fn precondition(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let others: Vec<&str> =
        call.state.nodes.iter().map(|node| node.name.as_str()).filter(|node| *node != guest.node).collect();
    let allowed: Vec<&str> = others.clone();
    let running = u8::from(guest.running);
    let managed = call.state.ha_of(kind, guest.vmid).map(|resource| resource.sid.clone());
    if kind == GuestKind::Lxc {
        let mut row = json!({ "running": running, "allowed-nodes": allowed, "not-allowed-nodes": {} });
        if let Some(sid) = managed {
            row["dependent-ha-resources"] = json!([sid]);
        }
        return Ok(Answer::Data(row));
    }
    let mut local: Vec<Value> = guest
        .disks()
        .into_iter()
        .filter(|(key, volid, _)| !guest.is_cdrom(key) && !is_shared(call, volid))
        .map(|(key, volid, size)| {
            let snapshots: Map<String, Value> = guest
                .snapshots
                .iter()
                .filter(|snapshot| snapshot.config.values().any(|value| value.starts_with(volid)))
                .map(|snapshot| (snapshot.name.clone(), json!(1)))
                .collect();
            let unused = u8::from(key.starts_with("unused"));
            let mut row = json!({
                "volid": volid, "drivename": key, "size": size, "shared": 0, "cdrom": 0, "replicate": 1,
                "is_attached": 1 - unused, "is_unused": unused, "is_cloudinit": 0, "is_tpmstate": 0,
                "is_vmstate": 0,
            });
            if !snapshots.is_empty() {
                row["referenced_in_snapshot"] = Value::Object(snapshots);
            }
            row
        })
        .collect();
    // The RAM of snapshots, on the storage of the first disk.
    let home =
        guest.disks().first().and_then(|(_, volid, _)| volid.split(':').next()).unwrap_or("local").to_owned();
    local.extend(guest.snapshots.iter().filter(|snapshot| snapshot.vmstate).map(|snapshot| {
        let name = &snapshot.name;
        json!({
            "volid": format!("{home}:vm-{}-state-{name}", guest.vmid), "shared": 0, "cdrom": 0, "replicate": 1,
            "is_attached": 0, "is_unused": 0, "is_cloudinit": 0, "is_tpmstate": 0, "is_vmstate": 1,
            "referenced_in_snapshot": { name.as_str(): 1 },
        })
    }));
    let not_allowed: Map<String, Value> = others.iter().map(|node| ((*node).to_owned(), json!({}))).collect();
    Ok(Answer::Data(json!({
        "running": running, "allowed_nodes": allowed, "not_allowed_nodes": not_allowed, "local_disks": local,
        "local_resources": [], "mapped-resources": [], "mapped-resource-info": {}, "has-dbus-vmstate": 1,
    })))
}

fn is_shared(call: &Call<'_>, volid: &str) -> bool {
    let id = volid.split(':').next().unwrap_or_default();
    call.state.storages.iter().any(|storage| storage.id == id && storage.shared)
}

pub(crate) fn migrate(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let target = call.get("target").unwrap_or_default().to_owned();
    if target == call.node() {
        return Err(Refusal::parameter("target", "target is local node."));
    }
    if call.state.node(&target).is_none() {
        return Err(Refusal::die(format!("no such cluster node '{target}'")));
    }
    let (online, restart) = (call.flag("online"), call.flag("restart"));
    if guest.running && !online && !restart {
        return Err(Refusal::die(match kind {
            GuestKind::Qemu => "can't migrate running VM without --online",
            GuestKind::Lxc => "can't migrate running container without --online or --restart",
        }));
    }
    for pair in
        call.get("targetstorage").or(call.get("target-storage")).into_iter().flat_map(|list| list.split(','))
    {
        let id = pair.rsplit(':').next().unwrap_or_default();
        let known = call.state.storages.iter().find(|storage| storage.id == id);
        if id != "1" && !known.is_some_and(|storage| super::storage::is_on(storage, &target)) {
            return Err(Refusal::die(format!("storage '{id}' is not available on node '{target}'")));
        }
    }
    let word = kind.word();
    let managed = call.state.ha_of(kind, guest.vmid).is_some();
    let lock = if managed { None } else { Some("migrate") };
    let verb = if managed { "hamigrate" } else { "migrate" };
    Ok(worker::for_guest(call, kind, verb, lock, move |state, node, vmid| {
        let stamp = time::in_log(now());
        let guest = at_work(state, node, kind, vmid)?.clone();
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        if !state.is_online(&target) {
            return Err("migration aborted".to_owned());
        }
        let mut log = Vec::new();
        if managed {
            log.push(format!("Requesting HA migration for {word} {vmid} to node {target}"));
        } else {
            if restart && guest.running {
                log.push(format!("{stamp} shutdown {word} {vmid}"));
            }
            for (_, volid, _) in guest.disks() {
                let id = volid.split(':').next().unwrap_or_default();
                if !state.storages.iter().any(|storage| storage.id == id && storage.shared) {
                    log.push(format!("{stamp} found local disk '{volid}' (attached)"));
                }
            }
            if guest.running && !restart && !clone::is_shared(state, &guest) {
                log.push(format!("{stamp} starting {word} {vmid} on remote node '{target}'"));
            }
            log.push(format!("{stamp} migration finished successfully (duration 00:00:00)"));
        }
        at_work(state, node, kind, vmid)?.node.clone_from(&target);
        Ok(log)
    }))
}
