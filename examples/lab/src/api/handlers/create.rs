//! New guests: made anew, or out of a backup.

use std::collections::BTreeMap;

use crate::api::handlers::{Call, config, disks, worker};
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::config::{GuestKind, HaConfig, VolumeConfig};
use crate::state::{State, now, sid};

/// Parameters that are no options of the new guest.
const CONTROLS: &[&str] = &[
    "node",
    "vmid",
    "archive",
    "ostemplate",
    "restore",
    "force",
    "storage",
    "unique",
    "start",
    "pool",
    "live-restore",
    "bwlimit",
    "ha-managed",
    "password",
    "ssh-public-keys",
    "ignore-unpack-errors",
    "import-working-storage",
    "skiplock",
    "host-managed",
];

/// What is asked for besides the options.
struct Order {
    storage: Option<String>,
    pool: Option<String>,
    start: bool,
    managed: bool,
    unique: bool,
}

pub(crate) fn create(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let vmid = call.vmid();
    let order = Order {
        storage: call.get("storage").map(str::to_owned),
        pool: call.get("pool").map(str::to_owned),
        start: call.flag("start"),
        managed: call.flag("ha-managed"),
        unique: call.flag("unique"),
    };
    let archive = match kind {
        GuestKind::Qemu => call.get("archive").map(str::to_owned),
        GuestKind::Lxc => call.get("ostemplate").filter(|_| call.flag("restore")).map(str::to_owned),
    };
    may_allocate(call, &order, archive.is_some())?;
    if let Some(pool) =
        order.pool.as_ref().filter(|pool| !call.state.pools.iter().any(|known| known.id == **pool))
    {
        return Err(Refusal::die(format!("pool '{pool}' does not exist")));
    }
    if let Some(id) =
        order.storage.as_ref().filter(|id| !call.state.storages.iter().any(|known| known.id == **id))
    {
        return Err(Refusal::die(format!("storage '{id}' does not exist")));
    }
    match archive {
        Some(archive) => restore(call, kind, vmid, order, &archive),
        None => make(call, kind, vmid, order),
    }
}

/// `VM.Allocate` on the number or on the pool; who may back up a guest may put a backup over it.
fn may_allocate(call: &Call<'_>, order: &Order, is_restore: bool) -> Result<(), Refusal> {
    let path = format!("/vms/{}", call.vmid());
    let by_pool = order.pool.as_ref().is_some_and(|pool| call.may(&format!("/pool/{pool}"), "VM.Allocate"));
    let over_own = is_restore && call.flag("force") && call.may(&path, "VM.Backup");
    if by_pool || over_own {
        return Ok(());
    }
    require(call.state, call.token, &path, &["VM.Allocate"], false)
}

fn given(call: &Call<'_>) -> BTreeMap<String, String> {
    let options = call.parameters.iter().filter(|(key, _)| !CONTROLS.contains(&key.as_str()));
    options.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What was there before: the number may belong to a guest of either kind on any node.
fn taken(state: &State, kind: GuestKind, vmid: u32, verb: &str) -> Option<String> {
    let other = state.guests.get(&vmid)?;
    let exists = format!("{} {vmid} already exists on node '{}'", other.kind.word(), other.node);
    Some(match kind {
        GuestKind::Qemu => format!("unable to {verb} VM {vmid} - {exists}"),
        GuestKind::Lxc => exists,
    })
}

fn make(call: &Call<'_>, kind: GuestKind, vmid: u32, order: Order) -> Result<Answer, Refusal> {
    let mut options = given(call);
    if kind == GuestKind::Lxc {
        container_defaults(call, vmid, &order, &mut options)?;
    }
    for (key, value) in &options {
        config::may_set_at_birth(call, kind, key, value)?;
    }
    if let Some(text) = taken(call.state, kind, vmid, "create") {
        return Err(Refusal::die(text));
    }
    let template = call.get("ostemplate").map(str::to_owned);
    let root = call.cluster.root.clone();
    Ok(worker::for_guest(call, kind, "create", None, move |state, node, vmid| {
        if let Some(text) = taken(state, kind, vmid, "create") {
            return Err(text);
        }
        let guest = state.insert_guest(vmid, kind, node, BTreeMap::new());
        let mut log = Vec::new();
        for (key, value) in &options {
            let value = config::stored(guest, key, value);
            guest.set(key, &value);
            let volid = value.split(',').next().unwrap_or_default();
            if crate::state::guest::is_disk_key(kind, key) && volid.contains("-disk-") {
                log.push(disks::created_line(volid));
                if kind == GuestKind::Qemu {
                    log.push(format!("{key}: successfully created disk '{value}'"));
                }
            }
        }
        guest.new_identity();
        if let Some(template) = template {
            log.push(format!("extracting archive '{template}'"));
            log.push("Total bytes read: 522782720 (499MiB, 100MiB/s)".to_owned());
        }
        if order.start {
            if kind == GuestKind::Qemu {
                log.push("Execute autostart".to_owned());
            }
            guest.start();
        }
        let generation = guest.generation;
        finish(state, kind, vmid, &order);
        worker::make_folder(&root, vmid, generation)?;
        Ok(log)
    }))
}

fn finish(state: &mut State, kind: GuestKind, vmid: u32, order: &Order) {
    state.join_pool(order.pool.as_deref(), vmid);
    if order.managed {
        let state_word = if order.start { "started" } else { "stopped" };
        state.ha.push(HaConfig::new(&sid(kind, vmid), state_word));
    }
}

/// What a container has unless told, and the template that it needs.
fn container_defaults(
    call: &Call<'_>,
    vmid: u32,
    order: &Order,
    options: &mut BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let template = call.get("ostemplate").unwrap_or_default();
    if find(call, template).is_none() {
        return Err(Refusal::die(format!("volume '{template}' does not exist")));
    }
    let storage = order.storage.clone().unwrap_or_else(|| "local".to_owned());
    if !options.contains_key("rootfs") {
        let known = call.state.storages.iter().find(|known| known.id == storage);
        if !known.is_some_and(|known| known.content.iter().any(|content| content == "rootdir")) {
            let text = format!("storage '{storage}' does not support container directories");
            return Err(Refusal::parameter("storage", text));
        }
        options.insert("rootfs".to_owned(), format!("{storage}:4"));
    }
    let defaults = [
        ("arch", "amd64".to_owned()),
        ("hostname", format!("CT{vmid}")),
        ("memory", "512".to_owned()),
        ("ostype", "debian".to_owned()),
        ("swap", "512".to_owned()),
        ("unprivileged", "1".to_owned()),
    ];
    for (key, value) in defaults {
        options.entry(key.to_owned()).or_insert(value);
    }
    Ok(())
}

/// A volume of a storage that the node of the call has.
fn find<'a>(call: &'a Call<'_>, volid: &str) -> Option<&'a VolumeConfig> {
    let storage = volid.split(':').next()?;
    let storage = call.state.storages.iter().find(|known| known.id == storage)?;
    let first = call.state.nodes.first().map(|node| node.name.as_str());
    storage.volumes.iter().find(|volume| {
        volume.volid == volid && (storage.shared || volume.node.as_deref().or(first) == Some(call.node()))
    })
}

fn restore(
    call: &Call<'_>,
    kind: GuestKind,
    vmid: u32,
    order: Order,
    archive: &str,
) -> Result<Answer, Refusal> {
    let (word, force) = (kind.word(), call.flag("force"));
    if let Some(existing) = call.state.guests.get(&vmid) {
        if !force || existing.kind != kind || existing.node != call.node() {
            let text = taken(call.state, kind, vmid, "restore").unwrap_or_default();
            return Err(Refusal::die(text));
        }
        if existing.is_protected() {
            return Err(Refusal::die(format!("unable to restore {word} {vmid} - protection mode enabled")));
        }
        if let Some(error) = existing.lock_error() {
            return Err(Refusal::die(error));
        }
        if existing.running {
            let what = if kind == GuestKind::Qemu { "vm" } else { "container" };
            return Err(Refusal::die(format!("unable to restore {word} {vmid} - {what} is running")));
        }
    }
    let Some(backup) = find(call, archive) else {
        return Err(Refusal::die(format!("volume '{archive}' does not exist")));
    };
    let fits = backup.content == "backup"
        && backup.subtype.as_deref().is_none_or(|kind_of| kind_of == kind.as_str());
    if !fits {
        return Err(Refusal::die(format!("unable to restore '{archive}' - wrong type of volume")));
    }
    let (saved, archive) = (backup.config.clone().unwrap_or_default(), archive.to_owned());
    let given = given(call);
    let root = call.cluster.root.clone();
    Ok(worker::for_guest(call, kind, "restore", None, move |state, node, vmid| {
        let mut saved = saved;
        for key in ["lock", "parent", "template"] {
            saved.remove(key);
        }
        saved.extend(given);
        let mut log = match kind {
            GuestKind::Qemu => {
                vec![format!(
                    "restore vma archive: vma extract -v -r /var/tmp/vzdumptmp.fifo {archive} /var/tmp/vzdumptmp"
                )]
            }
            GuestKind::Lxc => vec![format!("recovering backed-up configuration from '{archive}'")],
        };
        let (config, copies) = disks::copied(state, kind, &saved, vmid, order.storage.as_deref());
        for (_, _, volid, _) in &copies {
            log.push(disks::created_line(volid));
            if kind == GuestKind::Qemu {
                log.push(format!("new volume ID is '{volid}'"));
            }
        }
        if let Some(old) = state.guests.get(&vmid) {
            for (_, volid, _) in old.disks() {
                let name = volid.rsplit(':').next().unwrap_or(volid);
                log.push(format!("  Logical volume \"{name}\" successfully removed."));
            }
        }
        let guest = state.insert_guest(vmid, kind, node, config);
        if order.unique {
            guest.new_identity();
        }
        match kind {
            GuestKind::Qemu => {
                let bytes: u64 = copies.iter().map(|(_, _, _, size)| size).sum();
                log.push(format!("progress 100% (read {bytes} bytes, duration 1 sec)"));
                log.push("rescan volumes...".to_owned());
            }
            GuestKind::Lxc => {
                log.push(format!("restoring '{archive}' now.."));
                log.push(format!("extracting archive '{archive}'"));
                log.push("Total bytes read: 522782720 (499MiB, 100MiB/s)".to_owned());
                log.push("merging backed-up and given configuration..".to_owned());
            }
        }
        if order.start {
            guest.start();
        }
        guest.since = now();
        let generation = guest.generation;
        finish(state, kind, vmid, &order);
        worker::make_folder(&root, vmid, generation)?;
        Ok(log)
    }))
}
