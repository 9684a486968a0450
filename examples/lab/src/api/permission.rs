//! The permission expressions of PVE's API description.

use serde_json::Value;

use crate::api::reply::Refusal;
use crate::api::request::Parameters;
use crate::state::State;

/// Whether a token may call an endpoint. Paths name parameters of the call, wherever these stand.
pub(crate) fn check(
    state: &State,
    token: &str,
    permissions: &Value,
    parameters: &Parameters,
) -> Result<(), Refusal> {
    if permissions.get("user").is_some() {
        return Ok(());
    }
    match permissions.get("check").and_then(Value::as_array) {
        Some(expression) => evaluate(state, token, expression, parameters),
        // A method without permissions is for root@pam alone, which no token is.
        None => Err(Refusal::permission("user != root@pam")),
    }
}

/// `["perm", path, [privileges], "any", 1]`, and `["and" | "or", …]` of such.
fn evaluate(
    state: &State,
    token: &str,
    expression: &[Value],
    parameters: &Parameters,
) -> Result<(), Refusal> {
    let parts = || expression.iter().skip(1).filter_map(Value::as_array);
    match expression.first().and_then(Value::as_str) {
        Some("perm") => {
            let mut path = expression.get(1).and_then(Value::as_str).unwrap_or("/").to_owned();
            if expression.get(3).and_then(Value::as_str) == Some("require_param")
                && !expression
                    .get(4)
                    .and_then(Value::as_str)
                    .is_some_and(|name| parameters.contains_key(name))
            {
                return Err(unnamed());
            }
            if path.contains('{') {
                for (name, value) in parameters {
                    path = path.replace(&format!("{{{name}}}"), &value.display());
                }
            }
            let wanted: Vec<&str> = expression
                .get(2)
                .and_then(Value::as_array)
                .map(|list| list.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            let any = expression.get(3).and_then(Value::as_str) == Some("any");
            require(state, token, &path, &wanted, any)
        }
        Some("and") => parts().try_for_each(|part| evaluate(state, token, part, parameters)),
        Some("or") => {
            let allowed = parts().any(|part| evaluate(state, token, part, parameters).is_ok());
            if allowed { Ok(()) } else { Err(unnamed()) }
        }
        _ => Err(Refusal::permission("unknown check")),
    }
}

/// PVE does not say which of several alternatives was missing.
fn unnamed() -> Refusal {
    Refusal::Text(403, "Permission check failed".to_owned())
}

/// All of the privileges on a path, or any of them.
pub(crate) fn require(
    state: &State,
    token: &str,
    path: &str,
    wanted: &[&str],
    any: bool,
) -> Result<(), Refusal> {
    let has = |privilege: &&str| state.acl.has(token, path, privilege, &state.pools);
    if any {
        if wanted.iter().any(has) {
            return Ok(());
        }
        return Err(Refusal::permission(&format!("{path}, {}", wanted.join("|"))));
    }
    match wanted.iter().find(|privilege| !has(privilege)) {
        None => Ok(()),
        Some(missing) => Err(Refusal::permission(&format!("{path}, {missing}"))),
    }
}
