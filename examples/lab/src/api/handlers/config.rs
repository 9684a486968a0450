//! A guest's config: GET and PUT.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api::format::split_list;
use crate::api::handlers::power::at_work;
use crate::api::handlers::{Call, worker};
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::guest::{Guest, is_disk_key, is_numeric};

/// Parameters of PUT that are not options of the guest.
const CONTROLS: &[&str] =
    &["node", "vmid", "digest", "delete", "revert", "skiplock", "force", "background_delay"];

/// Options of a running VM that change at once; the others wait for the next start.
const AT_ONCE: &[&str] =
    &["name", "tags", "description", "onboot", "protection", "startup", "lock", "template"];

pub(crate) fn get(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let mut section = Map::new();
    let config = match call.get("snapshot") {
        Some(name) => {
            let snapshot = guest.snapshots.iter().find(|snapshot| snapshot.name == name);
            let Some(snapshot) = snapshot else {
                return Err(Refusal::die(format!("snapshot '{name}' does not exist")));
            };
            section.insert("snaptime".to_owned(), json!(snapshot.snaptime));
            section.extend(snapshot.parent.iter().map(|parent| ("parent".to_owned(), json!(parent))));
            if !snapshot.description.is_empty() {
                section.insert("description".to_owned(), json!(snapshot.description));
            }
            &snapshot.config
        }
        None if call.flag("current") => guest.active_config(),
        None => &guest.config,
    };
    let mut data: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), on_the_wire(kind, key, value))).collect();
    data.extend(section);
    data.insert("digest".to_owned(), json!(guest.digest()));
    Ok(Answer::Data(Value::Object(data)))
}

/// Numbers where PVE's schema has numbers; a container's description with its line feed.
pub(crate) fn on_the_wire(kind: GuestKind, key: &str, value: &str) -> Value {
    if key == "description" && kind == GuestKind::Lxc {
        return json!(format!("{value}\n"));
    }
    match value.parse::<i64>() {
        Ok(number) if is_numeric(kind, key) => json!(number),
        _ => json!(value),
    }
}

/// Refuses a call that was made on an older config.
pub(crate) fn same_digest(call: &Call<'_>, guest: &Guest) -> Result<(), Refusal> {
    if call.get("digest").is_some_and(|digest| !digest.is_empty() && digest != guest.digest()) {
        return Err(Refusal::die(match guest.kind {
            GuestKind::Qemu => "checksum mismatch (file change by other user?)",
            GuestKind::Lxc => "detected modified configuration - file changed by other user? Try again.",
        }));
    }
    Ok(())
}

pub(crate) fn put(call: &mut Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let changed = changed(call, kind)?;
    let vmid = call.vmid();
    call.state.guests.insert(vmid, changed);
    Ok(Answer::Changed)
}

/// The same with a worker; with `background_delay` the lab's worker is always done in time.
pub(crate) fn post(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    if call.get("background_delay").is_some() {
        return put(call, GuestKind::Qemu);
    }
    let changed = changed(call, GuestKind::Qemu)?;
    let settings = call.parameters.iter().filter(|(key, _)| !CONTROLS.contains(&key.as_str()));
    let mut words: Vec<String> = settings.map(|(key, value)| format!("-{key} {value}")).collect();
    words.extend(call.get("delete").map(|list| format!("-delete {list}")));
    Ok(worker::for_guest(call, GuestKind::Qemu, "config", None, move |state, node, vmid| {
        let guest = at_work(state, node, GuestKind::Qemu, vmid)?;
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        guest.config = changed.config;
        guest.active = changed.active;
        Ok(vec![format!("update VM {vmid}: {}", words.join(" "))])
    }))
}

/// The guest as a call would have it.
fn changed(call: &Call<'_>, kind: GuestKind) -> Result<Guest, Refusal> {
    call.guest(kind)?;
    if call.flag("skiplock") {
        return Err(Refusal::parameter("skiplock", "Only root may use this option."));
    }
    let settings: BTreeMap<&str, &str> = call
        .parameters
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .filter(|(key, _)| !CONTROLS.contains(key))
        .collect();
    let deletes: Vec<&str> = call.get("delete").map(|list| split_list(list).collect()).unwrap_or_default();
    for key in &deletes {
        if settings.contains_key(key) {
            let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
            return Err(Refusal::parameter("delete", text));
        }
        if !is_option(kind, key) {
            return Err(Refusal::parameter("delete", format!("unknown option '{key}'")));
        }
    }
    if settings.is_empty() && deletes.is_empty() && call.get("revert").is_none() {
        return Err(Refusal::die("no options specified"));
    }
    for key in settings.keys().chain(&deletes) {
        may_change(call, kind, key, settings.get(key).copied())?;
    }
    let guest = call.guest(kind)?;
    if kind == GuestKind::Lxc && settings.contains_key("unprivileged") {
        return Err(Refusal::die("unable to modify read-only option: 'unprivileged'"));
    }
    same_digest(call, guest)?;
    if let Some(error) = guest.lock_error() {
        return Err(Refusal::die(error));
    }
    let mut changed = guest.clone();
    for key in &deletes {
        remove(&mut changed, key, call.flag("force"))?;
    }
    for (key, value) in &settings {
        if kind == GuestKind::Lxc && changed.is_protected() && is_disk_key(kind, key) {
            let vmid = changed.vmid;
            return Err(Refusal::die(format!(
                "can't update CT {vmid} drive '{key}' - protection mode enabled"
            )));
        }
        let value = stored(&changed, key, value);
        changed.config.insert((*key).to_owned(), value.clone());
        if is_at_once(&changed, key) {
            changed.active.insert((*key).to_owned(), value);
        }
    }
    for key in call.get("revert").into_iter().flat_map(split_list) {
        match changed.active.get(key).cloned() {
            Some(value) => changed.config.insert(key.to_owned(), value),
            None => changed.config.remove(key),
        };
    }
    Ok(changed)
}

/// Whether PVE knows an option of this name. (The schema has more than the lab's clients set.)
fn is_option(kind: GuestKind, key: &str) -> bool {
    let template = format!("/nodes/{{node}}/{}/{{vmid}}/config", kind.as_str());
    !CONTROLS.contains(&key)
        && (key == "unprivileged" && kind == GuestKind::Lxc
            || crate::facts::endpoint("PUT", &template)
                .is_some_and(|endpoint| crate::api::check::schema_of(&endpoint.parameters, key).is_some()))
}

/// Whether a change of an option holds at once, and not from the next start on.
fn is_at_once(guest: &Guest, key: &str) -> bool {
    guest.kind == GuestKind::Lxc
        || !guest.running
        || AT_ONCE.contains(&key)
        || key.starts_with("net")
        || is_disk_key(guest.kind, key)
}

/// Unsets an option; a disk is detached to `unusedN`, and destroyed only when it is unused already or with `force`.
fn remove(guest: &mut Guest, key: &str, force: bool) -> Result<(), Refusal> {
    let is_disk = is_disk_key(guest.kind, key);
    if guest.is_protected() && (is_disk || key.starts_with("unused")) {
        let what = match (guest.kind, is_disk) {
            (_, false) => "unused disk",
            (GuestKind::Qemu, true) => "drive",
            (GuestKind::Lxc, true) => "mount point",
        };
        let word = if guest.kind == GuestKind::Lxc { "can't remove CT" } else { "can't remove" };
        return Err(Refusal::die(format!("{word} {what} '{key}' - protection mode enabled")));
    }
    if is_at_once(guest, key) || key.starts_with("unused") {
        guest.active.remove(key);
    }
    if let Some(value) = guest.config.remove(key)
        && is_disk
        && !force
    {
        let volid = value.split(',').next().unwrap_or_default().to_owned();
        let free =
            (0..=255).map(|index| format!("unused{index}")).find(|name| !guest.config.contains_key(name));
        if let Some(free) = free {
            guest.config.insert(free, volid);
        }
    }
    Ok(())
}

/// What PVE writes for a given value: tags sorted and without doubles, a MAC for a new NIC, a volume for a new
/// disk.
pub(crate) fn stored(guest: &Guest, key: &str, value: &str) -> String {
    match key {
        "tags" => {
            let mut tags: Vec<String> = split_list(value).map(str::to_ascii_lowercase).collect();
            tags.sort();
            tags.dedup();
            tags.join(";")
        }
        _ if key.starts_with("net") => with_mac(guest, key, value),
        _ if is_disk_key(guest.kind, key) => with_volume(guest, value),
        _ => value.to_owned(),
    }
}

fn with_mac(guest: &Guest, key: &str, value: &str) -> String {
    let index: u32 = key.trim_start_matches("net").parse().unwrap_or(0);
    let [_, a, b, c] = guest.vmid.wrapping_mul(2_654_435_761).wrapping_add(index).to_be_bytes();
    let mac = format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}");
    let lower = value.to_ascii_lowercase();
    match guest.kind {
        GuestKind::Lxc if !lower.contains("hwaddr=") => format!("{value},hwaddr={mac}"),
        GuestKind::Qemu if !lower.contains("macaddr=") => {
            let (model, rest) =
                value.split_once(',').map_or((value, None), |(model, rest)| (model, Some(rest)));
            let model = if model.contains('=') && !model.starts_with("model=") {
                model.to_owned()
            } else {
                format!("{}={mac}", model.trim_start_matches("model="))
            };
            rest.map_or(model.clone(), |rest| format!("{model},{rest}"))
        }
        _ => value.to_owned(),
    }
}

/// `storage:8` becomes `storage:vm-100-disk-3,size=8G`.
fn with_volume(guest: &Guest, value: &str) -> String {
    let (volume, rest) = value.split_once(',').map_or((value, None), |(volume, rest)| (volume, Some(rest)));
    let Some((storage, size)) = volume.split_once(':') else { return value.to_owned() };
    if size.is_empty() || !size.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.to_owned();
    }
    let taken: Vec<&str> = guest.disks().iter().map(|(_, volid, _)| *volid).collect();
    let name = (0..)
        .map(|index| format!("{storage}:vm-{}-disk-{index}", guest.vmid))
        .find(|name| !taken.contains(&name.as_str()))
        .unwrap_or_default();
    rest.map_or(format!("{name},size={size}G"), |rest| format!("{name},{rest},size={size}G"))
}

/// PVE's check of one option: the privilege it needs, and what is for the real root alone.
fn may_change(call: &Call<'_>, kind: GuestKind, key: &str, value: Option<&str>) -> Result<(), Refusal> {
    let vm = format!("/vms/{}", call.vmid());
    let need = |path: &str, privilege: &str| require(call.state, call.token, path, &[privilege], false);
    let base = key.trim_end_matches(|char: char| char.is_ascii_digit());
    if is_disk_key(kind, key) || base == "unused" {
        need(&vm, "VM.Config.Disk")?;
        let first = value.and_then(|value| value.split(',').next()).unwrap_or_default();
        if kind == GuestKind::Lxc && first.starts_with('/') {
            return Err(Refusal::permission("mount point type bind is only allowed for root@pam"));
        }
        return match first.split_once(':') {
            Some((storage, _)) => need(&format!("/storage/{storage}"), "Datastore.AllocateSpace"),
            None => Ok(()),
        };
    }
    match (kind, base) {
        (
            _,
            "cores" | "cpu" | "cpulimit" | "cpuunits" | "numa" | "smp" | "sockets" | "vcpus" | "affinity",
        ) => need(&vm, "VM.Config.CPU"),
        (_, "memory" | "balloon" | "shares" | "swap" | "allow-ksm") => need(&vm, "VM.Config.Memory"),
        (_, "net" | "nameserver" | "searchdomain" | "hostname" | "ipconfig") => {
            need(&vm, "VM.Config.Network")
        }
        (GuestKind::Qemu, "boot" | "bootdisk" | "vmstatestorage") => need(&vm, "VM.Config.Disk"),
        (GuestKind::Qemu, "cdrom") => need(&vm, "VM.Config.CDROM"),
        (GuestKind::Qemu, "cipassword" | "citype" | "ciuser" | "ciupgrade" | "cicustom" | "sshkeys") => {
            need(&vm, "VM.Config.Cloudinit")
        }
        (
            GuestKind::Qemu,
            "acpi" | "hotplug" | "kvm" | "machine" | "scsihw" | "smbios" | "tablet" | "vga" | "watchdog"
            | "audio" | "usb" | "hostpci" | "serial" | "rng",
        ) => need(&vm, "VM.Config.HWType"),
        (
            GuestKind::Qemu,
            "args" | "lock" | "hookscript" | "ivshmem" | "hugepages" | "keephugepages" | "parallel",
        ) => Err(Refusal::die(format!("only root can set '{key}' config"))),
        (_, "startup") => {
            need(&vm, "VM.Config.Options")?;
            need("/", "Sys.Modify")
        }
        (GuestKind::Lxc, "hookscript") => {
            Err(Refusal::permission("changing the hookscript is only allowed for root@pam"))
        }
        (GuestKind::Lxc, "dev") => {
            Err(Refusal::permission("configuring device passthrough is only allowed for root@pam"))
        }
        (GuestKind::Lxc, "features") => {
            let only_nesting =
                value.is_some_and(|value| value.split(',').all(|part| part.starts_with("nesting=")));
            if only_nesting {
                need(&vm, "VM.Allocate")
            } else {
                let text = "changing feature flags (except nesting) is only allowed for root@pam";
                Err(Refusal::permission(text))
            }
        }
        _ => need(&vm, "VM.Config.Options"),
    }
}

/// The same check for an option of a guest that is being made: who may make it may set what is not about other things.
pub(crate) fn may_set_at_birth(
    call: &Call<'_>,
    kind: GuestKind,
    key: &str,
    value: &str,
) -> Result<(), Refusal> {
    if matches!(key, "unprivileged" | "ostype" | "arch" | "hostname") {
        if key == "unprivileged" && value == "0" {
            return require(call.state, call.token, "/", &["Sys.Modify"], false);
        }
        return Ok(());
    }
    may_change(call, kind, key, Some(value))
}
