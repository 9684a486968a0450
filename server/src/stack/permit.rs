//! `Admitted` → `Permitted`: stage 2 of authorization. The guest is resolved by the server, then grant, tier and protection
//! decide.

use std::sync::Arc;

use authz::{Denial, Overrides, Permit};
use serde_json::Value;

use super::audit::record_lift;
use super::call::{Admitted, Call, CallContext, Permitted};
use super::failure::ToolFailure;
use super::step::Step;
use crate::catalog::{Addresses, Arguments, GuestKinds, Target, ToolSpec};
use crate::config::Cluster;
use crate::resolve::{Freshness, Guest, ResolveError};

/// Resolves what is addressed and decides.
#[derive(Debug, Clone)]
pub(super) struct Decide;

impl Step<Admitted> for Decide {
    type Out = Permitted;

    async fn step(&self, call: Call<Admitted>) -> Result<Call<Permitted>, ToolFailure> {
        let Call { context, stage: Admitted { spec, arguments, admitted, cluster } } = call;
        let (permit, target) = match (spec.addresses, cluster) {
            (Addresses::Guest(kinds), Some(cluster)) => {
                let vmid = wanted_vmid(&arguments)?;
                let guest = found(&context, spec, &cluster, vmid).await.map_err(unresolved)?;
                let permit = decide_guest(&context, spec, admitted, &cluster, &guest).await?;
                right_kind(spec, kinds, &guest)?;
                cross_check_node(&arguments, &guest)?;
                (permit, Target::Guest(cluster, guest))
            }
            (Addresses::NewGuest, Some(cluster)) => {
                let permit = decide_number(&context, admitted, &cluster, wanted_vmid(&arguments)?)?;
                (permit, Target::Cluster(cluster))
            }
            (Addresses::Task, Some(cluster)) if spec.mutates() => {
                Box::pin(decide_task(&context, spec, admitted, cluster, &arguments)).await?
            }
            (Addresses::Whole(_), Some(cluster)) => {
                (authz::permit_whole_read(admitted, context.now())?, Target::Cluster(cluster))
            }
            (_, Some(cluster)) => (unaddressed(spec, admitted, context.now())?, Target::Cluster(cluster)),
            (_, None) => (unaddressed(spec, admitted, context.now())?, Target::Nothing),
        };
        if spec.mutates() {
            context.trail.note(|facts| facts.reasons = Some(in_one_line(&permit)));
        }
        Ok(Call::<Permitted>::at(context, Permitted { spec, arguments, permit, target }))
    }
}

/// Why it was allowed, for the audit record.
fn in_one_line(permit: &Permit) -> String {
    permit.reasons().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Reads whose functions show guest by guest; and the bookkeeping of change sets, whose guests the change service decides about.
fn unaddressed(spec: &ToolSpec, admitted: authz::Admitted, now: jiff::Timestamp) -> Result<Permit, Denial> {
    if spec.mutates() {
        authz::permit_cluster_write(admitted, now)
    } else {
        authz::permit_unaddressed(admitted)
    }
}

fn wanted_vmid(arguments: &Arguments) -> Result<u32, ToolFailure> {
    let vmid = arguments.get("vmid").and_then(Value::as_u64).and_then(|v| u32::try_from(v).ok());
    vmid.ok_or_else(|| ToolFailure::new("invalid_argument", "`vmid` is missing: expected a guest's number"))
}

/// A guest that does not exist (yet, or any more): nothing but its number can be decided about.
fn decide_number(
    context: &CallContext,
    admitted: authz::Admitted,
    cluster: &Cluster,
    vmid: u32,
) -> Result<Permit, ToolFailure> {
    context.trail.note(|facts| facts.vmid = Some(vmid));
    let number = authz::Vmid::new(vmid).ok_or_else(|| {
        ToolFailure::new("invalid_argument", "`vmid`: expected 100 to 999999999").with("field", "vmid")
    })?;
    Ok(authz::decide_new_guest(admitted, &cluster.name, number, &cluster.protection, context.now())?)
}

/// A task that is to be changed belongs to its guest, by its worker type. Where the guest is gone, or not there yet, its number
/// decides; only whoever may have that number learns so.
async fn decide_task(
    context: &CallContext,
    spec: &ToolSpec,
    admitted: authz::Admitted,
    cluster: Arc<Cluster>,
    arguments: &Arguments,
) -> Result<(Permit, Target), ToolFailure> {
    let text = arguments.get("upid").and_then(Value::as_str).unwrap_or_default();
    let upid: proxmox_api::Upid = crate::tools::args::id("upid", text)?;
    let vmid = upid.guest().ok_or_else(Denial::guest_unknown)?;
    let number = authz::Vmid::new(vmid.get()).ok_or_else(Denial::guest_unknown)?;
    let grant = context.caller.principal.grant();
    let holds_number = grant.is_some_and(|grant| grant.selects_new(number).is_some());
    let guest = match found(context, spec, &cluster, vmid.get()).await {
        // To whoever holds the number a guest of it would not be absent: there is none.
        Err(ResolveError::Absent) if holds_number => {
            let permit = decide_number(context, admitted, &cluster, vmid.get())?;
            return Ok((permit, Target::Cluster(cluster)));
        }
        found => found.map_err(unresolved)?,
    };
    let permit = decide_guest(context, spec, admitted, &cluster, &guest).await?;
    Ok((permit, Target::Guest(cluster, guest)))
}

/// The guest as it is now. Reads may use the cache; whatever changes a guest is decided on facts fetched for this call.
async fn found(
    context: &CallContext,
    spec: &ToolSpec,
    cluster: &Arc<Cluster>,
    vmid: u32,
) -> Result<Arc<Guest>, ResolveError> {
    let caller = &context.caller;
    let freshness = if spec.mutates() { Freshness::Now } else { caller.snapshot.read_freshness() };
    context.app.resolver.guest(cluster, vmid, freshness, &caller.principal).await
}

fn unresolved(error: ResolveError) -> ToolFailure {
    match error {
        // Absent, and there but not this token's: one answer, after the same work.
        ResolveError::Absent => Denial::guest_unknown().into(),
        ResolveError::Ambiguous => ToolFailure::new(
            "ambiguous_guest",
            "the cluster reports this vmid more than once, or on a node that it does not have; nothing is done until an \
             administrator has looked",
        ),
        ResolveError::Cluster(error) => error.into(),
    }
}

async fn decide_guest(
    context: &CallContext,
    spec: &ToolSpec,
    admitted: authz::Admitted,
    cluster: &Cluster,
    guest: &Guest,
) -> Result<Permit, ToolFailure> {
    let caller = &context.caller;
    let overrides = Overrides { waivers: &caller.snapshot.waivers, lab_mode: caller.snapshot.lab_mode };
    let planner = caller.principal.name().to_owned();
    let decided = authz::decide(
        admitted,
        &guest.facts,
        spec.name(),
        &planner,
        &cluster.protection,
        &overrides,
        context.now(),
    );
    context.trail.note(|facts| {
        facts.vmid = Some(guest.vmid());
        facts.protection = Some(match &decided {
            Ok(permit) => permit.lift().map_or_else(|| "none".to_owned(), |lift| format!("lifted: {lift}")),
            Err(denial) => denial.code().to_owned(),
        });
    });
    let permit = decided?;
    if permit.lift().is_some() {
        Box::pin(record_lift(context, spec.name(), spec.rule.tier, &permit)).await?;
    }
    Ok(permit)
}

fn right_kind(spec: &ToolSpec, kinds: GuestKinds, guest: &Guest) -> Result<(), ToolFailure> {
    let (wanted, other) = match (kinds, guest.facts.kind) {
        (GuestKinds::Qemu, authz::GuestKind::Lxc) => ("a QEMU virtual machine", "an LXC container"),
        (GuestKinds::Lxc, authz::GuestKind::Qemu) => ("an LXC container", "a QEMU virtual machine"),
        _ => return Ok(()),
    };
    Err(ToolFailure::new(
        "wrong_guest_kind",
        format!("{} works on {wanted}, and guest {} is {other}", spec.name(), guest.vmid()),
    ))
}

/// `node` is only ever a cross-check: a wrong one is refused, never followed.
fn cross_check_node(arguments: &Arguments, guest: &Guest) -> Result<(), ToolFailure> {
    match arguments.get("node").and_then(Value::as_str) {
        Some(node) if node != guest.node() => Err(ToolFailure::new(
            "wrong_node",
            format!(
                "guest {} is on node {}, not on the node given; omit `node`, the server finds it",
                guest.vmid(),
                guest.node()
            ),
        )),
        _ => Ok(()),
    }
}
