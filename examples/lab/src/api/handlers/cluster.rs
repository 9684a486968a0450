//! `/version` and `/cluster/*` besides the resources.

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};

/// The release the lab is after.
pub(crate) const VERSION: &str = "9.2.11";
pub(crate) const REPOID: &str = "14a22df35955d97d";

pub(crate) fn version() -> Result<Answer, Refusal> {
    Ok(Answer::Data(json!({ "version": VERSION, "release": "9.2", "repoid": REPOID })))
}

pub(crate) fn status(call: &Call<'_>) -> Result<Answer, Refusal> {
    let state = &call.state;
    let mut rows = Vec::new();
    if !state.standalone {
        let online = state.nodes.iter().filter(|node| node.online).count();
        rows.push(json!({
            "type": "cluster", "id": "cluster", "name": state.cluster, "version": 3,
            "nodes": state.nodes.len(), "quorate": u8::from(online * 2 > state.nodes.len()),
        }));
    }
    for (index, node) in state.nodes.iter().enumerate() {
        rows.push(json!({
            "type": "node", "id": format!("node/{}", node.name), "name": node.name, "level": "", "ip": node.ip,
            "nodeid": if state.standalone { 0 } else { index + 1 },
            "online": u8::from(node.online), "local": u8::from(node.name == state.contacted()),
        }));
    }
    Ok(Answer::Data(Value::Array(rows)))
}

pub(crate) fn nextid(call: &Call<'_>) -> Result<Answer, Refusal> {
    if let Some(wanted) = call.get("vmid") {
        let taken = call.state.guests.contains_key(&call.vmid());
        return if taken {
            Err(Refusal::parameter("vmid", format!("VM {wanted} already exists")))
        } else {
            Ok(Answer::Data(json!(wanted)))
        };
    }
    let free = (100..=999_999_999).find(|vmid| !call.state.guests.contains_key(vmid));
    match free {
        // A string, as PVE has it.
        Some(vmid) => Ok(Answer::Data(json!(vmid.to_string()))),
        None => Err(Refusal::die("unable to get any free VMID in range [100, 999999999]")),
    }
}

pub(crate) fn ha_resources(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.get("type").map(|kind| format!("{kind}:"));
    let rows =
        call.state.ha.iter().filter(|resource| {
            wanted.as_ref().is_none_or(|prefix| resource.sid.starts_with(prefix.as_str()))
        });
    let rows = rows.map(|resource| {
        let kind = resource.sid.split(':').next();
        json!({ "sid": resource.sid, "state": resource.state, "type": kind, "digest": digest(call) })
    });
    Ok(Answer::Data(rows.collect()))
}

/// One digest for the whole HA configuration, of the form of PVE's.
fn digest(call: &Call<'_>) -> String {
    use sha2::{Digest, Sha256};
    let text: Vec<String> =
        call.state.ha.iter().map(|resource| format!("{}{}", resource.sid, resource.state)).collect();
    let mut hex = data_encoding::HEXLOWER.encode(&Sha256::digest(text.join("\n")));
    hex.truncate(40);
    hex
}
