//! Clones.

use crate::api::handlers::power::at_work;
use crate::api::handlers::{Call, disks, worker};
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::State;
use crate::state::guest::Guest;

/// What a clone does not take over.
const NOT_COPIED: &[&str] = &["lock", "parent", "template"];

/// Where the number of a new guest is taken already.
fn taken(state: &State, kind: GuestKind, vmid: u32) -> Option<String> {
    let other = state.guests.get(&vmid)?;
    Some(match kind {
        GuestKind::Qemu => format!("unable to create VM {vmid}: config file already exists"),
        GuestKind::Lxc => format!("{} {vmid} already exists on node '{}'", other.kind.word(), other.node),
    })
}

/// Whether other nodes can read all disks of a guest.
pub(crate) fn is_shared(state: &State, guest: &Guest) -> bool {
    disks::storages_of(guest)
        .iter()
        .all(|id| state.storages.iter().any(|storage| storage.id == *id && storage.shared))
}

pub(crate) fn clone(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let newid: u32 = call.get("newid").and_then(|newid| newid.parse().ok()).unwrap_or_default();
    let full = call.get("full").map_or(!guest.is_template(), |full| full == "1");
    let storage = call.get("storage").map(str::to_owned);
    let target = call.get("target").unwrap_or(call.node()).to_owned();
    if call.state.node(&target).is_none() {
        return Err(Refusal::die(format!("no such cluster node '{target}'")));
    }
    for id in storage.iter().cloned().map(|id| vec![id]).next().unwrap_or_else(|| disks::storages_of(guest)) {
        require(call.state, call.token, &format!("/storage/{id}"), &["Datastore.AllocateSpace"], false)?;
    }
    let snapshot = call.get("snapname").map(str::to_owned);
    if let Some(name) =
        snapshot.as_ref().filter(|name| !guest.snapshots.iter().any(|known| known.name == **name))
    {
        return Err(Refusal::die(format!("snapshot '{name}' does not exist")));
    }
    if !full && (storage.is_some() || call.get("format").is_some()) {
        let which = if storage.is_some() { "storage" } else { "format" };
        return Err(Refusal::die(format!("parameter '{which}' not allowed for linked clones")));
    }
    if let Some(id) = storage.as_ref().filter(|id| !call.state.storages.iter().any(|known| known.id == **id))
    {
        return Err(Refusal::die(format!("storage '{id}' does not exist")));
    }
    if target != call.node() && !is_shared(call.state, guest) {
        let word = kind.word();
        return Err(Refusal::die(format!(
            "can't clone {word} to node '{target}' ({word} uses local storage)"
        )));
    }
    if let Some(text) = taken(call.state, kind, newid) {
        return Err(Refusal::die(text));
    }
    if kind == GuestKind::Lxc && full && guest.running && snapshot.is_none() {
        return Err(Refusal::die("cannot do full clones on a running container without snapshots"));
    }
    if !full && !guest.is_template() {
        return Err(Refusal::die("Linked clone feature is not supported for a guest that is no template"));
    }
    let pool = call.get("pool").map(str::to_owned);
    if let Some(pool) = pool.as_ref().filter(|pool| !call.state.pools.iter().any(|known| known.id == **pool))
    {
        return Err(Refusal::die(format!("pool '{pool}' does not exist")));
    }
    let name_key = if kind == GuestKind::Qemu { "name" } else { "hostname" };
    let name = call.get(name_key).map(str::to_owned);
    let description = call.get("description").map(str::to_owned);
    let root = call.cluster.root.clone();
    Ok(worker::for_guest(call, kind, "clone", Some("clone"), move |state, node, vmid| {
        let source = at_work(state, node, kind, vmid)?.clone();
        if let Some(text) = taken(state, kind, newid) {
            return Err(text);
        }
        let old = match &snapshot {
            Some(name) => {
                source.snapshots.iter().find(|known| known.name == *name).map(|known| &known.config)
            }
            None => Some(&source.config),
        };
        let mut config = old.cloned().unwrap_or_default();
        config.retain(|key, _| !NOT_COPIED.contains(&key.as_str()) && !key.starts_with("unused"));
        let (mut config, copies) = disks::copied(state, kind, &config, newid, storage.as_deref());
        let copy = format!("Copy-of-{}-{}", kind.word(), source.name());
        config.insert(name_key.to_owned(), name.unwrap_or(copy));
        if let Some(description) = description {
            config.insert("description".to_owned(), description);
        }
        let word = if kind == GuestKind::Qemu { "VM" } else { "container" };
        let mut log = vec![format!("creating a clone of {word} {vmid} with ID {newid}")];
        for (key, from, to, size) in &copies {
            log.extend(copy_log(kind, full, key, from, to, *size));
        }
        let guest = state.insert_guest(newid, kind, &target, config);
        guest.new_identity();
        let generation = guest.generation;
        state.join_pool(pool.as_deref(), newid);
        worker::make_folder(&root, newid, generation)?;
        Ok(log)
    }))
}

fn copy_log(kind: GuestKind, full: bool, key: &str, from: &str, to: &str, size: u64) -> Vec<String> {
    let what = if kind == GuestKind::Qemu { "drive" } else { "mountpoint" };
    if !full {
        return vec![format!("create linked clone of {what} {key} ({from})")];
    }
    let mut log = vec![format!("create full clone of {what} {key} ({from})"), disks::created_line(to)];
    match kind {
        GuestKind::Qemu => {
            let mib = size >> 20;
            log.push(format!("allocated target volume '{to}'"));
            log.push(format!("transferred 0.0 B of {mib} MiB (0.00%)"));
            log.push(format!("transferred {mib} MiB of {mib} MiB (100.00%)"));
        }
        GuestKind::Lxc => {
            log.push("Number of files: 1,234".to_owned());
            log.push(format!("total size is {size}"));
        }
    }
    log
}
