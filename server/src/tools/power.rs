//! Starting and stopping guests.

use authz::Permit;
use proxmox_api::Upid;
use serde_json::json;

use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::resolve::Guest;
use crate::stack::{CallContext, ToolFailure};

/// `start_vm`.
pub async fn start(ctx: &CallContext, _permit: Permit, target: &Target) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let upid = cluster.client.start(&guest.at).await;
    answer(ctx, cluster, guest, upid).await
}

/// `stop_vm`.
pub async fn stop(ctx: &CallContext, _permit: Permit, target: &Target) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let upid = cluster.client.stop(&guest.at).await;
    answer(ctx, cluster, guest, upid).await
}

/// The guest a call was permitted for.
pub(crate) fn guest_of(target: &Target) -> Result<(&std::sync::Arc<Cluster>, &Guest), ToolFailure> {
    match target {
        Target::Guest(cluster, guest) => Ok((cluster, guest)),
        Target::Nothing | Target::Cluster(_) => {
            Err(ToolFailure::new("invalid_argument", "`vmid` is missing: expected a guest's number"))
        }
    }
}

async fn answer(
    ctx: &CallContext,
    cluster: &Cluster,
    guest: &Guest,
    sent: Result<Upid, proxmox_api::Error>,
) -> HandlerResult {
    ctx.app.resolver.forget(cluster).await;
    let upid = sent.map_err(|error| doubt(error, guest))?;
    ctx.trail.note(|facts| facts.upid = Some(upid.to_string()));
    Ok(json!({"upid": upid.to_string(), "vmid": guest.vmid(), "node": guest.node()}))
}

/// A request that may have been written is never repeated, and the caller is told so, and nothing that sounds like "try again".
fn doubt(error: proxmox_api::Error, guest: &Guest) -> ToolFailure {
    if error.effect() != proxmox_api::Effect::Unknown {
        return error.into();
    }
    let message = format!(
        "{}; the request may have taken effect: read get_guest_status of {} before repeating it",
        error.message().trim_end(),
        guest.vmid()
    );
    ToolFailure::new("outcome_unknown", message).with("effect", "unknown")
}
