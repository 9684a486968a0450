//! Reads of guests: lists, status, snapshots.

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::guest::Guest;
use crate::state::{now, sid};

/// Bytes of memory that a running container uses in the lab.
const CT_MEMORY: u64 = 100 << 20;

/// Bytes of memory in use.
pub(crate) fn mem(guest: &Guest) -> u64 {
    match (guest.running, guest.kind) {
        (false, _) => 0,
        (true, GuestKind::Qemu) => guest.maxmem() / 2,
        (true, GuestKind::Lxc) => CT_MEMORY.min(guest.maxmem()),
    }
}

/// Bytes of disk in use; PVE knows it for containers only.
pub(crate) fn disk(guest: &Guest) -> u64 {
    if guest.running && guest.kind == GuestKind::Lxc { guest.maxdisk() / 4 } else { 0 }
}

/// `running` or `stopped`.
pub(crate) fn status_word(guest: &Guest) -> &'static str {
    if guest.running { "running" } else { "stopped" }
}

/// The figures of the lists and of `status/current`.
fn row(guest: &Guest) -> Value {
    let mut row = json!({
        "vmid": guest.vmid, "name": guest.name(), "status": status_word(guest), "uptime": guest.uptime(),
        "cpu": 0, "cpus": guest.maxcpu(), "maxmem": guest.maxmem(), "maxdisk": guest.maxdisk(), "disk": disk(guest),
        "netin": 0, "netout": 0,
    });
    let pressure = match guest.kind {
        GuestKind::Qemu => json!(0),
        GuestKind::Lxc => Value::Null,
    };
    match guest.kind {
        GuestKind::Qemu => {
            row["mem"] = json!(0);
            row["memhost"] = json!(0);
        }
        GuestKind::Lxc => {
            row["type"] = json!("lxc");
            row["mem"] = json!(mem(guest));
            row["swap"] = json!(0);
            row["maxswap"] = json!(guest.number("swap").unwrap_or(512) << 20);
            row["diskread"] = json!(if guest.running { 1000 } else { 0 });
            row["diskwrite"] = json!(if guest.running { 2000 } else { 0 });
        }
    }
    if guest.running {
        row["pid"] = json!(7000 + guest.vmid);
        for kind in ["cpusome", "cpufull", "iosome", "iofull", "memorysome", "memoryfull"] {
            row[format!("pressure{kind}")] = pressure.clone();
        }
    }
    for key in ["tags", "lock"] {
        if let Some(value) = guest.option(key) {
            row[key] = json!(value);
        }
    }
    if guest.is_template() {
        row["template"] = json!(1);
    }
    row
}

pub(crate) fn list(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let node = call.node();
    let visible = call.state.guests.values().filter(|guest| {
        guest.kind == kind && guest.node == node && call.may(&format!("/vms/{}", guest.vmid), "VM.Audit")
    });
    let rows = visible.map(|guest| {
        let mut row = row(guest);
        if call.flag("full") {
            row["qmpstatus"] = json!(status_word(guest));
        }
        row
    });
    Ok(Answer::Data(rows.collect()))
}

pub(crate) fn current(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let mut row = row(guest);
    row["ha"] = match call.state.ha_of(kind, guest.vmid) {
        Some(resource) => json!({ "managed": 1, "state": resource.state, "sid": sid(kind, guest.vmid) }),
        None => json!({ "managed": 0 }),
    };
    if kind == GuestKind::Qemu {
        row["qmpstatus"] = json!(if guest.running && guest.paused { "paused" } else { status_word(guest) });
        if guest.has_agent() {
            row["agent"] = json!(1);
        }
        if guest.running {
            running_machine(guest, &mut row);
        }
    }
    Ok(Answer::Data(row))
}

fn running_machine(guest: &Guest, row: &mut Value) {
    let (max, used) = (guest.maxmem(), mem(guest));
    row["mem"] = json!(used);
    row["freemem"] = json!(max - used);
    row["balloon"] = json!(max);
    row["diskread"] = json!(0);
    row["diskwrite"] = json!(0);
    row["running-machine"] = json!("pc-i440fx-10.1+pve0");
    row["running-qemu"] = json!("10.1.2");
    row["ballooninfo"] = json!({
        "actual": max, "max_mem": max, "total_mem": max, "free_mem": max - used, "last_update": now(),
        "mem_swapped_in": 0, "mem_swapped_out": 0, "major_page_faults": 10, "minor_page_faults": 1000,
    });
    row["proxmox-support"] = json!({
        "backup-fleecing": true, "backup-max-workers": true, "pbs-dirty-bitmap": true,
        "pbs-dirty-bitmap-migration": true, "pbs-dirty-bitmap-savevm": true, "pbs-library-version": "1.5.1",
        "pbs-masterkey": true, "query-bitmap-info": true,
    });
}

pub(crate) fn snapshots(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let mut rows: Vec<Value> = guest
        .snapshots
        .iter()
        .map(|snapshot| {
            let mut row = json!({
                "name": snapshot.name, "snaptime": snapshot.snaptime, "description": snapshot.description,
            });
            if kind == GuestKind::Qemu {
                row["vmstate"] = json!(u8::from(snapshot.vmstate));
            }
            if let Some(parent) = &snapshot.parent {
                row["parent"] = json!(parent);
            }
            row
        })
        .collect();
    let mut here = json!({
        "name": "current", "description": "You are here!", "digest": guest.digest(),
        "running": u8::from(guest.running),
    });
    if let Some(parent) = guest.option("parent") {
        here["parent"] = json!(parent);
    }
    rows.push(here);
    Ok(Answer::Data(Value::Array(rows)))
}

/// What a snapshot says of itself and of the guest at its time.
pub(crate) fn snapshot_config(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let name = call.get("snapname").unwrap_or_default();
    let Some(snapshot) = guest.snapshots.iter().find(|snapshot| snapshot.name == name) else {
        return Err(Refusal::die(format!("snapshot '{name}' does not exist")));
    };
    let mut row: serde_json::Map<String, Value> = snapshot
        .config
        .iter()
        .map(|(key, value)| (key.clone(), super::config::on_the_wire(kind, key, value)))
        .collect();
    row.insert("snaptime".to_owned(), json!(snapshot.snaptime));
    row.insert("description".to_owned(), json!(snapshot.description));
    if let Some(parent) = &snapshot.parent {
        row.insert("parent".to_owned(), json!(parent));
    }
    Ok(Answer::Data(Value::Object(row)))
}
