//! What HA's manager says about itself and the resources.

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::config::HaConfig;

pub(crate) fn current(call: &Call<'_>) -> Result<Answer, Refusal> {
    let state = &call.state;
    let here = state.contacted();
    let quorate = state.is_quorate();
    let mut rows = vec![
        json!({
            "id": "quorum", "type": "quorum", "node": here, "quorate": u8::from(quorate),
            "status": if quorate { "OK".to_owned() } else { format!("No quorum on node '{here}'!") },
        }),
        json!({
            "id": "fencing", "type": "fencing", "node": here, "armed-state": "standby",
            "status": "standby (CRM watchdog standby)",
        }),
    ];
    rows.extend(state.ha.iter().map(|resource| service(call, resource)));
    Ok(Answer::Data(Value::Array(rows)))
}

/// One resource. The lab runs no HA manager: a resource is in the state that its guest is in, and queued while
/// that is not the wanted one.
fn service(call: &Call<'_>, resource: &HaConfig) -> Value {
    let (_, vmid) = resource.sid.split_once(':').unwrap_or_default();
    let guest = vmid.parse().ok().and_then(|vmid: u32| call.state.guests.get(&vmid));
    let node = guest.map_or("", |guest| guest.node.as_str());
    let running = guest.is_some_and(|guest| guest.running);
    let word = match (resource.state.as_str(), running) {
        ("ignored", _) => "ignored",
        ("disabled", false) => "disabled",
        ("stopped", false) => "stopped",
        ("started", true) => "started",
        _ => "queued",
    };
    let number =
        |key: &str| -> i64 { resource.options.get(key).and_then(|value| value.parse().ok()).unwrap_or(1) };
    json!({
        "id": format!("service:{}", resource.sid), "type": "service", "sid": resource.sid, "node": node,
        "state": word, "request_state": resource.state, "status": format!("{} ({node}, {word})", resource.sid),
        "max_restart": number("max_restart"), "max_relocate": number("max_relocate"), "failback": number("failback"),
    })
}
