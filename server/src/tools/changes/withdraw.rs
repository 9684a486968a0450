//! The ways out of a plan that is not going to happen, and of an outcome that nobody knows.

use authz::{Permit, Principal, Tier};
use changeset::{Actor, ChangeSet, Preview, State, TransitionError};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{actor, known_set, moved_failure, refused, stored};
use crate::audit::Event;
use crate::catalog::{self, HandlerResult};
use crate::changes;
use crate::stack::{CallContext, ToolFailure, audit_down, audit_record};

/// Arguments of `cancel_change_set` and `reject_change_set`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawArgs {
    /// The change set, as its plan answered.
    pub change_set_id: String,
    /// Why, for whoever reads the set later.
    #[schemars(length(max = 500))]
    pub note: Option<String>,
}

/// What a person found out about a set whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It happened, completely.
    Applied,
    /// It did not happen, or not all of it.
    Failed,
}

impl Found {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Failed => "failed",
        }
    }
}

/// Arguments of resolving an unknown set, which is no tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolveArgs {
    /// The change set.
    pub change_set_id: String,
    /// What was found.
    pub found: Found,
    /// How the person found out.
    pub note: String,
}

/// `cancel_change_set`: the planner takes a plan back.
pub async fn cancel(ctx: &CallContext, _permit: Permit, args: WithdrawArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::holds).await?;
    let by = actor(ctx);
    if by.token != set.plan().planner().token && !by.is_same_person(set.plan().planner()) {
        return Err(ToolFailure::new(
            "not_the_planner",
            format!(
                "only whoever planned a change set cancels it; a human who may approve it can say no with reject_change_set for {}",
                set.id()
            ),
        ));
    }
    let note = note("cancelled by its planner", args.note.as_deref());
    withdraw(ctx, &set, Event::ChangeCancel, "cancel_change_set", note, ChangeSet::cancel).await
}

/// `reject_change_set`: a human says no.
pub async fn reject(ctx: &CallContext, _permit: Permit, args: WithdrawArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::holds).await?;
    require_human(ctx, "rejects a change set")?;
    let note = note("rejected", args.note.as_deref());
    withdraw(ctx, &set, Event::ChangeReject, "reject_change_set", note, ChangeSet::reject).await
}

/// Settles a set whose outcome is unknown. Reached from the command line on the server's host alone: the person has looked at
/// the cluster, and an agent must not be able to say that somebody did.
///
/// # Errors
/// Not a human with the set's target and tier in the grant, or the set is not unknown.
pub async fn resolve(ctx: &CallContext, args: ResolveArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::holds).await?;
    require_human(ctx, "resolves a change set")?;
    let scope = catalog::rule("approve_proxmox_change_set")
        .ok_or_else(|| ToolFailure::new("internal", "approving has no scope"))?;
    let cluster = &set.plan().target().cluster;
    authz::admit(&ctx.caller.principal, scope, Some(cluster), ctx.now())?;
    let tier = changes::tier(&set);
    if !ctx.caller.principal.grant().is_some_and(|grant| grant.actions().holds(tier)) {
        return Err(ToolFailure::new(
            "authorization_failed",
            "the token's grant lacks the tier of this change set; the operator can add it to `actions`",
        ));
    }
    if set.state() != State::Unknown {
        return Err(ToolFailure::new(
            "wrong_state",
            format!("{} is {}: only a set whose outcome is unknown can be resolved", set.id(), set.state()),
        ));
    }
    if args.note.trim().is_empty() {
        return Err(ToolFailure::new(
            "invalid_argument",
            "`note` is empty: say how you found out, for whoever reads the audit",
        ));
    }
    // The claim comes first: what a person says about the past must be on record before it counts.
    let record = audit_record(ctx, Event::ToolAttempt, "change resolve", Tier::Destructive)
        .detail("found", args.found.as_str());
    ctx.app.audit.append_durable(record).await.map_err(|_| audit_down())?;
    let note = note(&format!("resolved to {}", args.found.as_str()), Some(&args.note));
    let settle = match args.found {
        Found::Applied => ChangeSet::resolve_applied,
        Found::Failed => ChangeSet::resolve_failed,
    };
    withdraw(ctx, &set, Event::ChangeResolve, "change resolve", note, settle).await
}

type Ends = fn(&ChangeSet, &Actor, &str, Timestamp) -> Result<ChangeSet, TransitionError>;

async fn withdraw(
    ctx: &CallContext,
    set: &ChangeSet,
    event: Event,
    tool: &str,
    note: String,
    ends: Ends,
) -> HandlerResult {
    let (by, reason) = (actor(ctx), note.clone());
    let ended = ctx
        .app
        .changes
        .transition(set.id(), ctx.now(), move |set, _key, now| ends(set, &by, &note, now))
        .await;
    let ended = stored(ctx, ended).await?.map_err(|moved| moved_failure(moved, refused))?;
    let record = audit_record(ctx, event, tool, Tier::Low)
        .allowed()
        .reason(reason)
        .outcome(ended.state().to_string())
        .detail("digest", ended.digest().to_string())
        .detail("planner", ended.plan().planner().token.clone());
    ctx.app.audit.append_durable(record).await.map_err(|_| {
        ToolFailure::new(
            "audit_unavailable",
            "the change set has ended as asked, but the audit log cannot be written; the operator must make it writable again",
        )
    })?;
    Ok(changes::view(&ended))
}

fn require_human(ctx: &CallContext, does: &str) -> Result<(), ToolFailure> {
    if actor(ctx).is_human() {
        return Ok(());
    }
    Err(ToolFailure::new(
        "approver_not_human",
        format!("only a human's token {does}; the operator makes one with --actor-type human"),
    ))
}

/// What is kept: what happened in our words, and why in theirs, quoted.
fn note(what: &str, why: Option<&str>) -> String {
    match why.map(str::trim).filter(|why| !why.is_empty()) {
        Some(why) => format!("{what}: {}", Preview::quote(why)),
        None => what.to_owned(),
    }
}
