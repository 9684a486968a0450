//! High availability: resources, rules, status.

mod resources;
mod rules;
mod status;

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::state::digest;

/// Calls the endpoint, if it is one of HA.
pub(crate) fn dispatch(method: &str, template: &str, call: &mut Call<'_>) -> Option<Result<Answer, Refusal>> {
    Some(match (method, template.strip_prefix("/cluster/ha")?) {
        ("GET", "/groups") => Err(migrated("index groups")),
        ("POST", "/groups") => Err(migrated("create group")),
        ("GET", "/resources") => resources::list(call),
        ("POST", "/resources") => resources::create(call),
        ("GET", "/resources/{sid}") => resources::one(call),
        ("PUT", "/resources/{sid}") => resources::update(call),
        ("DELETE", "/resources/{sid}") => resources::delete(call),
        ("POST", "/resources/{sid}/migrate" | "/resources/{sid}/relocate") => resources::relocate(call),
        ("GET", "/rules") => rules::list(call),
        ("POST", "/rules") => rules::create(call),
        ("GET", "/rules/{rule}") => rules::one(call),
        ("PUT", "/rules/{rule}") => rules::update(call),
        ("DELETE", "/rules/{rule}") => rules::delete(call),
        ("GET", "/status/current") => status::current(call),
        _ => return None,
    })
}

/// Groups are gone since PVE 9.
fn migrated(what: &str) -> Refusal {
    Refusal::die(format!("cannot {what}: ha groups have been migrated to rules"))
}

/// One digest for the file of resources.
fn resources_digest(call: &Call<'_>) -> String {
    digest(&format!("{:?}", call.state.ha))
}

/// One digest for the file of rules.
fn rules_digest(call: &Call<'_>) -> String {
    digest(&format!("{:?}", call.state.ha_rules))
}

/// Refuses a call that was made on an older state.
fn unchanged(call: &Call<'_>, digest: &str) -> Result<(), Refusal> {
    match call.get("digest") {
        Some(given) if !given.is_empty() && given != digest => {
            Err(Refusal::die("detected modified configuration - file changed by other user? Try again."))
        }
        _ => Ok(()),
    }
}
