//! `stop_task`.

use authz::Permit;
use proxmox_api::{TaskExit, Upid};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::args::id;
use super::cluster_of;
use super::routine::{How, Routine};
use crate::catalog::{HandlerResult, Target};
use crate::redact;
use crate::stack::{CallContext, ToolFailure};

/// Arguments of `stop_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopTaskArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The task, as a tool or PVE named it: `UPID:node:…:`.
    pub upid: String,
}

/// `stop_task`. What the task had done by then stays done, and whether that is whole is for the caller to look at.
pub async fn stop(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: StopTaskArgs,
    how: How,
) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let upid: Upid = id("upid", &args.upid)?;
    // A task of no guest is not filtered by one: whoever stops it must be one who may see it.
    if matches!(target, Target::Cluster(_))
        && upid.guest().is_none()
        && !ctx.caller.principal.unrestricted_guests()
    {
        return Err(authz::Denial::guest_unknown().into());
    }
    let status = cluster.client.task_status(&upid).await?;
    if let Some(exit) = status.exit {
        let said = match &exit {
            TaskExit::Unstated(_) => "in a way that PVE cannot tell".to_owned(),
            exit => format!("with `{}`", redact::free_text(&exit.to_string())),
        };
        return Err(ToolFailure::new(
            "task_ended",
            format!("the task has ended already, {said}; there is nothing to stop"),
        )
        .with("upid", upid.to_string()));
    }
    let vmid = upid.guest().map(proxmox_api::Vmid::get);
    let routine = Routine::at(ctx, cluster, vmid, upid.node().as_str(), how);
    let sent = routine.client().stop_task(&upid).await;
    let mut out = routine.end(sent).await?;
    out["stopped"] = json!(upid.to_string());
    Ok(out)
}
