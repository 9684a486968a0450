//! `/cluster/resources` and `/pools`, which show the same rows.

use serde_json::{Value, json};

use crate::api::handlers::{Call, guest, node, storage};
use crate::api::reply::{Answer, Refusal};
use crate::config::{GuestKind, PoolConfig, StorageConfig};
use crate::state::guest::Guest;

/// A guest. One on an offline node has no figures and no name, as PVE has none from there.
fn guest_row(call: &Call<'_>, guest: &Guest) -> Value {
    let kind = guest.kind.as_str();
    let mut row = json!({
        "id": format!("{kind}/{}", guest.vmid), "type": kind, "vmid": guest.vmid, "node": guest.node,
    });
    if call.state.is_online(&guest.node) {
        let io = if guest.running && guest.kind == GuestKind::Lxc { (1000, 2000) } else { (0, 0) };
        let figures = [
            ("name", json!(guest.name())),
            ("status", json!(guest::status_word(guest))),
            ("template", json!(u8::from(guest.is_template()))),
            ("uptime", json!(guest.uptime())),
            ("cpu", json!(0)),
            ("maxcpu", json!(guest.maxcpu())),
            ("mem", json!(guest::mem(guest))),
            ("maxmem", json!(guest.maxmem())),
            ("disk", json!(guest::disk(guest))),
            ("maxdisk", json!(guest.maxdisk())),
            ("netin", json!(0)),
            ("netout", json!(0)),
            ("diskread", json!(io.0)),
            ("diskwrite", json!(io.1)),
        ];
        for (key, value) in figures {
            row[key] = value;
        }
    } else {
        row["status"] = json!("unknown");
    }
    row
}

fn storage_row(call: &Call<'_>, storage: &StorageConfig, node: &str) -> Value {
    let mut row = json!({
        "type": "storage", "id": format!("storage/{node}/{}", storage.id), "storage": storage.id, "node": node,
        "plugintype": storage.kind, "content": storage.content.join(","), "shared": u8::from(storage.shared),
        "status": "unknown",
    });
    if call.state.is_online(node) {
        row["status"] = json!("available");
        row["maxdisk"] = json!(storage.total);
        row["disk"] = json!(storage.used);
    }
    row
}

pub(crate) fn resources(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.get("type");
    let wants = |kind: &str| wanted.is_none_or(|wanted| wanted == kind);
    let state = &call.state;
    let mut rows = Vec::new();
    if wanted.is_none() {
        rows.extend(state.pools.iter().filter_map(|pool| pool_row(call, pool)));
    }
    if wants("vm") {
        for guest in
            state.guests.values().filter(|guest| call.may(&format!("/vms/{}", guest.vmid), "VM.Audit"))
        {
            let mut row = guest_row(call, guest);
            for key in ["tags", "lock"] {
                if let Some(value) = guest.option(key) {
                    row[key] = json!(value);
                }
            }
            let pool = state.pool_of(guest.vmid);
            if let Some(pool) = pool.filter(|pool| call.may(&format!("/pool/{pool}"), "Pool.Audit")) {
                row["pool"] = json!(pool);
            }
            rows.push(row);
        }
    }
    if wants("node") {
        for entry in &state.nodes {
            let mut row = node::row(call, entry);
            if entry.online {
                row["cgroup-mode"] = json!(2);
            }
            rows.push(row);
        }
    }
    if wants("storage") {
        for entry in state.storages.iter().filter(|entry| storage::may_see(call, &entry.id)) {
            let nodes = state.nodes.iter().filter(|node| storage::is_on(entry, &node.name));
            rows.extend(nodes.map(|node| storage_row(call, entry, &node.name)));
        }
    }
    let zone = "/sdn/zones/localnetwork";
    if wants("sdn") && (call.may(zone, "SDN.Audit") || call.may(zone, "SDN.Use")) {
        for entry in &state.nodes {
            rows.push(json!({
                "type": "network", "id": format!("network/{}/zone/localnetwork", entry.name), "node": entry.name,
                "network": "localnetwork", "network-type": "zone", "status": "ok",
            }));
        }
    }
    Ok(Answer::Data(Value::Array(rows)))
}

/// A pool with the sums of its guests, as PVE adds them up.
fn pool_row(call: &Call<'_>, pool: &PoolConfig) -> Option<Value> {
    if !call.may(&format!("/pool/{}", pool.id), "Pool.Audit") {
        return None;
    }
    let mut row = json!({ "type": "pool", "pool": pool.id, "id": format!("/pool/{}", pool.id) });
    let guests: Vec<&Guest> = pool.vms.iter().filter_map(|vmid| call.state.guests.get(vmid)).collect();
    if !guests.is_empty() {
        row["cpu"] = json!(0);
        row["maxcpu"] = json!(guests.iter().map(|guest| guest.maxcpu()).sum::<u64>());
        row["mem"] = json!(guests.iter().map(|guest| guest::mem(guest)).sum::<u64>());
        row["maxmem"] = json!(guests.iter().map(|guest| guest.maxmem()).sum::<u64>());
        row["uptime"] = json!(guests.iter().map(|guest| guest.uptime()).max());
    }
    Some(row)
}

pub(crate) fn pools(call: &Call<'_>) -> Result<Answer, Refusal> {
    if let Some(id) = call.get("poolid") {
        let needed = format!("/pool/{id}");
        crate::api::permission::require(call.state, call.token, &needed, &["Pool.Audit"], false)?;
        let mut row = with_members(call, id)?;
        row["poolid"] = json!(id);
        return Ok(Answer::Data(json!([row])));
    }
    let visible =
        call.state.pools.iter().filter(|pool| call.may(&format!("/pool/{}", pool.id), "Pool.Audit"));
    Ok(Answer::Data(visible.map(head).collect()))
}

/// The older form, which answers with the pool and not with a list of one.
pub(crate) fn pool(call: &Call<'_>) -> Result<Answer, Refusal> {
    with_members(call, call.get("poolid").unwrap_or_default()).map(Answer::Data)
}

fn with_members(call: &Call<'_>, id: &str) -> Result<Value, Refusal> {
    let Some(pool) = call.state.pools.iter().find(|pool| pool.id == id) else {
        return Err(Refusal::die(format!("pool '{id}' does not exist")));
    };
    let wanted = call.get("type");
    let mut members = Vec::new();
    for guest in pool.vms.iter().filter_map(|vmid| call.state.guests.get(vmid)) {
        let visible = call.may(&format!("/vms/{}", guest.vmid), "VM.Audit");
        if visible && wanted.is_none_or(|wanted| wanted == guest.kind.as_str()) {
            members.push(guest_row(call, guest));
        }
    }
    if wanted.is_none_or(|wanted| wanted == "storage") {
        for storage in call.state.storages.iter().filter(|storage| pool.storage.contains(&storage.id)) {
            members.push(storage_row(call, storage, call.state.contacted()));
        }
    }
    let mut row = head(pool);
    row["members"] = Value::Array(members);
    Ok(row)
}

fn head(pool: &PoolConfig) -> Value {
    let mut row = json!({ "poolid": pool.id });
    if let Some(comment) = &pool.comment {
        row["comment"] = json!(comment);
    }
    row
}
