//! The options of a firewall.

use serde_json::{Map, Value, json};

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::handlers::firewall::{digest, unchanged};
use crate::api::reply::{Answer, Refusal};
use crate::facts;
use crate::state::firewall::Scope;

/// Parameters that are no options.
const CONTROLS: &[&str] = &["node", "vmid", "digest", "delete"];

/// The endpoint that describes the options of a scope.
fn template(scope: &Scope) -> &'static str {
    match scope {
        Scope::Cluster => "/cluster/firewall/options",
        Scope::Node(_) => "/nodes/{node}/firewall/options",
        Scope::Guest(_) => "/nodes/{node}/qemu/{vmid}/firewall/options",
    }
}

/// Whether PVE's schema has an option as a number.
fn is_numeric(scope: &Scope, key: &str) -> bool {
    facts::endpoint("PUT", template(scope))
        .and_then(|endpoint| endpoint.parameters.get(key)?.kind.as_deref())
        .is_some_and(|kind| matches!(kind, "integer" | "boolean"))
}

pub(crate) fn get(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let options = &call.state.firewalls.of(scope).options;
    let mut data: Map<String, Value> = options
        .iter()
        .map(|(key, value)| match value.parse::<i64>() {
            Ok(number) if is_numeric(scope, key) => (key.clone(), json!(number)),
            _ => (key.clone(), json!(value)),
        })
        .collect();
    data.insert("digest".to_owned(), json!(digest(options)));
    Ok(Answer::Data(Value::Object(data)))
}

pub(crate) fn put(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let mut options = call.state.firewalls.of(scope).options.clone();
    unchanged(call, &digest(&options))?;
    for key in call.get("delete").into_iter().flat_map(split_list) {
        let known = facts::endpoint("PUT", template(scope))
            .is_some_and(|endpoint| endpoint.parameters.contains_key(key) && !CONTROLS.contains(&key));
        if !known {
            return Err(Refusal::parameter("delete", format!("no such option '{key}'")));
        }
        options.remove(key);
    }
    for (key, value) in call.parameters.iter().filter(|(key, _)| !CONTROLS.contains(&key.as_str())) {
        options.insert(key.clone(), value.clone());
    }
    call.state.firewalls.of_mut(scope).options = options;
    Ok(Answer::Changed)
}
