//! Planning, reading, approving and applying change sets.

mod ha;
mod list;
mod plan;
mod wall;
mod withdraw;

use std::sync::Arc;
use std::time::Duration;

use authz::{GuestFacts, Permit, Principal};
use changeset::{
    Actor, ActorKind, ApplyRefusal, ChangeSet, ChangeSetId, PlanDigest, StoreError, TransitionError,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub use self::ha::{HaVerb, PlanHaArgs, plan_ha_rule};
pub use self::list::{ListSetsArgs, StateName, list};
pub use self::plan::{PlanDestroyArgs, RestoreNewArgs, UndoArgs, plan_destroy, plan_restore_new, plan_undo};
pub use self::wall::{PlanFirewallArgs, plan_firewall};
pub use self::withdraw::{Found, ResolveArgs, WithdrawArgs, cancel, reject, resolve};
use crate::audit::{Event, Record};
use crate::catalog::HandlerResult;
use crate::changes::{self, Applier, ApplyEnd, ChangesError, Moved};
use crate::config::Cluster;
use crate::resolve::{Freshness, ResolveError};
use crate::stack::{CallContext, ToolFailure, Via, audit_record};

/// How long an apply is waited for before the caller gets the task to follow.
const APPLY_WAIT: Duration = Duration::from_secs(40);
/// How often a caller that asked for it is told that the apply goes on.
const APPLY_REPORT: Duration = Duration::from_secs(1);

/// Arguments that name a change set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetArgs {
    /// The change set, as its plan answered.
    pub change_set_id: String,
}

/// Arguments of `approve_proxmox_change_set`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveArgs {
    /// The change set, as its plan answered.
    pub change_set_id: String,
    /// The digest of exactly what you saw: all 64 hex digits.
    pub digest: String,
    /// The guest's number, once more; required for a destructive set.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub confirm_vmid: Option<u32>,
}

/// `get_proxmox_change_set`.
pub async fn show(ctx: &CallContext, args: SetArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::visible).await?;
    Ok(changes::view(&set))
}

/// `approve_proxmox_change_set`.
pub async fn approve(ctx: &CallContext, _permit: Permit, args: ApproveArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::holds).await?;
    let vmid = changes::vmid(&set);
    let seen: PlanDigest = args.digest.parse().map_err(|error| {
        ToolFailure::new(
            "invalid_argument",
            format!("`digest`: {error}; send the digest of the preview you read"),
        )
        .with("field", "digest")
    })?;
    // Where it is not required, a wrong number still says that the approver means something else.
    let confirmed = match (args.confirm_vmid, vmid) {
        (Some(given), guest) => guest == Some(given),
        (None, Some(_)) => !set.plan().tier_destructive(),
        (None, None) => true,
    };
    if !confirmed {
        return Err(ToolFailure::new(
            "confirmation_missing",
            "`confirm_vmid` must be the number of the guest that this happens to; read it from the preview",
        ));
    }
    let caller = &ctx.caller;
    let cluster = caller.snapshot.cluster(Some(&set.plan().target().cluster)).ok_or_else(unknown_set)?;
    match vmid {
        Some(vmid) => judge_approver(ctx, &set, cluster, vmid).await?,
        None if changes::may_approve(&set, &caller.principal, ctx.now()) => {}
        None => {
            return Err(ToolFailure::new(
                "approver_unfit",
                format!(
                    "only a human other than the planner's person approves this, with the action `{}`; {}",
                    changes::tier(&set),
                    changes::NEEDS_ALL_GUESTS
                ),
            ));
        }
    }
    let approver = actor(ctx);
    let moved = ctx
        .app
        .changes
        .transition(set.id(), ctx.now(), move |set, key, now| set.approve(&approver, &seen, key, now))
        .await;
    let moved = stored(ctx, moved).await?;
    let approved = moved.map_err(|moved| moved_failure(moved, refused))?;
    let mut record = audit_record(ctx, Event::ChangeApprove, "approve_proxmox_change_set", authz::Tier::Low)
        .allowed()
        .cluster(approved.plan().target().cluster.clone())
        .change_set(approved.id().to_string())
        .detail("digest", approved.digest().to_string())
        .detail("target", approved.plan().target().key.clone())
        .detail("planner", approved.plan().planner().token.clone());
    if let Some(vmid) = vmid {
        record = record.vmid(vmid);
    }
    ctx.app.audit.append_durable(record).await.map_err(|_| {
        ToolFailure::new(
            "audit_unavailable",
            "the approval is recorded, but the audit log cannot be written; applying is refused until it can",
        )
    })?;
    Ok(changes::view(&approved))
}

/// Whether this caller may approve a set about a guest, as the guest is now.
async fn judge_approver(
    ctx: &CallContext,
    set: &ChangeSet,
    cluster: &Arc<Cluster>,
    vmid: u32,
) -> Result<(), ToolFailure> {
    let caller = &ctx.caller;
    let guest = match ctx.app.resolver.guest(cluster, vmid, Freshness::Now, &caller.principal).await {
        Ok(guest) => guest,
        Err(ResolveError::Cluster(error)) => return Err(error.into()),
        Err(ResolveError::Absent | ResolveError::Ambiguous) => {
            return Err(authz::Denial::guest_unknown().into());
        }
    };
    authz::decide_approval(&caller.principal, &changes::approval_facts(set, &guest.facts), ctx.now())?;
    Ok(())
}

/// `apply_proxmox_change_set`.
pub async fn apply(ctx: &CallContext, _permit: Permit, args: SetArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::holds).await?;
    let id = set.id();
    let applier =
        Applier { actor: actor(ctx), request_id: ctx.caller.request_id.clone(), trail: ctx.trail.clone() };
    let app = ctx.app.clone();
    let mut running = ctx.app.tracker.spawn(async move { app.changes.apply(&app, set, applier).await });
    let watched = async {
        let started = tokio::time::Instant::now();
        loop {
            tokio::select! {
                end = &mut running => return end,
                () = tokio::time::sleep(APPLY_REPORT) => {
                    let done = started.elapsed().as_secs_f64();
                    ctx.listener.report(done, None, "the change set is being applied");
                }
            }
        }
    };
    let end = match tokio::time::timeout(APPLY_WAIT, watched).await {
        Ok(Ok(end)) => end,
        Ok(Err(_)) => {
            return Err(ToolFailure::new(
                "internal",
                "the apply ended unexpectedly; read the change set before anything else",
            ));
        }
        // Still running: the caller reads on.
        Err(_) => match stored(ctx, ctx.app.changes.load(id, ctx.now()).await).await? {
            Some(set) => return Ok(changes::view(&set)),
            None => return Err(unknown_set()),
        },
    };
    match end {
        ApplyEnd::Ran(set) => Ok(changes::view(&set)),
        ApplyEnd::Refused(refusal) => Err(apply_refused(&refusal, ctx.app.changes.approve_line(id))),
        ApplyEnd::Limited(wait) => Err(ToolFailure::new(
            "rate_limited",
            format!(
                "this cluster has had as many destructive changes as the operator allows in an hour; try again in {} minutes",
                wait.as_secs() / 60 + 1
            ),
        )),
    }
}

fn apply_refused(refusal: &ApplyRefusal, approve_line: String) -> ToolFailure {
    let failure = |remedy: String| ToolFailure::new(refusal.code(), format!("{refusal}{remedy}"));
    match refusal {
        ApplyRefusal::NotApproved { state: changeset::State::Planned } => {
            failure(format!(
                "; a human other than the planner's person must approve it first, with approve_proxmox_change_set or, on the \
                 server's host, with: {approve_line}"
            ))
            .with("approve_with", approve_line)
        }
        _ => failure(String::new()),
    }
}

fn refused(error: &TransitionError) -> ToolFailure {
    ToolFailure::new(error.code(), error.to_string())
}

fn moved_failure<E>(moved: Moved<E>, refused: impl FnOnce(&E) -> ToolFailure) -> ToolFailure {
    match moved {
        Moved::Gone => {
            ToolFailure::new("conflict", "the change set was changed by somebody else; read it again")
        }
        Moved::Refused(error) => refused(&error),
    }
}

/// What the store answered. A stored set that is not the one its digest was made of is an alert: somebody changed the state file.
async fn stored<T>(ctx: &CallContext, answer: Result<T, ChangesError>) -> Result<T, ToolFailure> {
    let error = match answer {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if let ChangesError::Store(StoreError::DigestMismatch { id, .. }) = &error {
        let record = Record::new(Event::ChangePreviewMismatch)
            .principal(ctx.caller.principal.name())
            .request_id(&ctx.caller.request_id)
            .change_set(id.to_string())
            .denied("preview_mismatch", error.to_string());
        if let Err(error) = ctx.app.audit.append_durable(record).await {
            tracing::error!(%error, change_set = %id, "a change set that was changed in the store could not be audited");
        }
        return Err(ToolFailure::new(
            "preview_mismatch",
            format!("{error}; nothing was changed. The operator must look: `proxward state check`"),
        ));
    }
    Err(ToolFailure::new("state_store", format!("{error}; nothing was changed")))
}

fn unknown_set() -> ToolFailure {
    ToolFailure::new(
        "unknown_change_set",
        "there is no such change set in this token's scope; names start with cs_",
    )
}

/// The set, if this caller may know of it: its planner, or a token that may do `what` with its guest (see it, or have it in
/// scope: deciding follows). Malformed, unknown and hidden names are one answer.
async fn known_set(
    ctx: &CallContext,
    name: &str,
    what: fn(&Principal, &GuestFacts) -> bool,
) -> Result<ChangeSet, ToolFailure> {
    let id: ChangeSetId = name.parse().map_err(|_| unknown_set())?;
    ctx.trail.note(|facts| facts.change_set = Some(id.to_string()));
    let set = stored(ctx, ctx.app.changes.load(id, ctx.now()).await).await?.ok_or_else(unknown_set)?;
    if may_know(ctx, &set, what) {
        ctx.trail.note(|facts| {
            facts.cluster = Some(set.plan().target().cluster.clone());
            facts.vmid = changes::vmid(&set);
        });
        Ok(set)
    } else {
        Err(unknown_set())
    }
}

/// Whether this caller may know of a set: see [`known_set`].
fn may_know(ctx: &CallContext, set: &ChangeSet, what: fn(&Principal, &GuestFacts) -> bool) -> bool {
    let principal = &ctx.caller.principal;
    let in_scope = || match (changes::vmid(set), changes::planned_facts(set)) {
        (Some(_), facts) => facts.is_some_and(|facts| what(principal, &facts)),
        (None, _) => principal.unrestricted_guests(),
    };
    set.plan().planner().token == principal.name()
        || (principal.may_see_cluster(&set.plan().target().cluster) && in_scope())
}

/// The caller as change control records it. Over stdio nobody is attributed, so nobody there counts as human.
fn actor(ctx: &CallContext) -> Actor {
    let principal = &ctx.caller.principal;
    let kind = match (ctx.caller.via, principal.actor()) {
        (Via::Stdio, _) | (_, None) => None,
        (_, Some(authz::ActorKind::Human)) => Some(ActorKind::Human),
        (_, Some(authz::ActorKind::Agent)) => Some(ActorKind::Agent),
    };
    Actor::new(principal.name(), principal.person(), kind)
}
