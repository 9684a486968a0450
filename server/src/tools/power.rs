//! Starting and stopping guests.

use authz::Permit;
use proxmox_api::{ShutdownOptions, Suspend};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::{GuestArgs, id};
use super::routine::{How, Routine};
use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::resolve::Guest;
use crate::stack::{CallContext, ToolFailure};

/// Arguments of a tool that asks a guest to shut down.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Seconds the guest has to shut down.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout: Option<u32>,
    /// Stop it at once when that time is over; otherwise the task fails then and the guest runs on.
    pub force_stop: Option<bool>,
}

/// Arguments of a tool that reboots a guest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RebootArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Seconds the guest has to shut down.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout: Option<u32>,
}

/// Arguments of `suspend_vm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuspendArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Write its memory to a volume and stop it; start_vm resumes it then. Otherwise it is paused in memory.
    pub todisk: Option<bool>,
    /// With `todisk`: the storage of that volume; PVE chooses one when omitted.
    pub storage: Option<String>,
}

/// `start_vm`, `start_container`.
pub async fn start(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    _args: GuestArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let routine = Routine::on(ctx, cluster, guest, how).expecting(guest, true);
    let sent = routine.client().start(&guest.at).await;
    routine.end(sent).await
}

/// `stop_vm`, `stop_container`.
pub async fn stop(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    _args: GuestArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let routine = Routine::on(ctx, cluster, guest, how).expecting(guest, false);
    let sent = routine.client().stop(&guest.at).await;
    routine.end(sent).await
}

/// `reset_vm`.
pub async fn reset(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    _args: GuestArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().reset(&guest.at).await;
    routine.end(sent).await
}

/// `resume_vm`.
pub async fn resume(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    _args: GuestArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().resume(&guest.at).await;
    routine.end(sent).await
}

/// `shutdown_vm`, `shutdown_container`.
pub async fn shutdown(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: ShutdownArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let routine = Routine::on(ctx, cluster, guest, how).expecting(guest, false);
    let options = ShutdownOptions { timeout: args.timeout, force_stop: args.force_stop.unwrap_or(false) };
    let sent = routine.client().shutdown(&guest.at, options).await;
    routine.end(sent).await
}

/// `reboot_vm`, `restart_container`.
pub async fn reboot(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: RebootArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let routine = Routine::on(ctx, cluster, guest, how).expecting(guest, true);
    let sent = routine.client().reboot(&guest.at, args.timeout).await;
    routine.end(sent).await
}

/// `suspend_vm`.
pub async fn suspend(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: SuspendArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let storage = args.storage.as_deref().map(|text| id("storage", text)).transpose()?;
    let suspended = match (args.todisk.unwrap_or(false), storage) {
        (true, statestorage) => Suspend::ToDisk { statestorage },
        (false, None) => Suspend::ToRam,
        (false, Some(_)) => {
            return Err(ToolFailure::new(
                "invalid_argument",
                "`storage` is for `todisk`: a machine that is paused in memory is written nowhere",
            )
            .with("field", "storage"));
        }
    };
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().suspend(&guest.at, &suspended).await;
    routine.end(sent).await
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
