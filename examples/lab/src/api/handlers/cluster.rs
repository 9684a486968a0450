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
        rows.push(json!({
            "type": "cluster", "id": "cluster", "name": state.cluster, "version": 3,
            "nodes": state.nodes.len(), "quorate": u8::from(state.is_quorate()),
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
