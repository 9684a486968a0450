//! Drives the coordinator: does what it asks, tells it what happened.
//!
//! The order of an apply is the coordinator's (`changeset::coordinator`); what it asks of a cluster is in `dispatch`.

use std::sync::Arc;
use std::time::Duration;

use changeset::{Actor, Apply, ApplyRefusal, ChangeSet, Effect, Event, Finish, Mark, OutOfOrder, Recover};
use jiff::Timestamp;
use proxmox_api::Vmid;

use super::decide::decide;
use super::dispatch::{find, follow, send, watermark};
use super::{Busy, Changes};
use crate::app::App;
use crate::audit::{Event as AuditEvent, Record};
use crate::stack::Trail;

/// The points an apply passes, in order. Whatever happens between two of them, at most one request is ever sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Facts were fetched and the decision made.
    Decided,
    /// Known tasks were listed.
    Watermarked,
    /// The audit's attempt record is durable.
    Attempted,
    /// The intent is durable; nothing has been sent.
    IntentDurable,
    /// The cluster has answered the request; nothing of the answer is stored.
    Answered,
    /// The task's handle is durable.
    HandleDurable,
    /// The task has ended; its end is not stored.
    TaskEnded,
    /// The end is durable.
    EndDurable,
}

impl Point {
    /// Every point, in order.
    pub const ALL: [Point; 8] = [
        Point::Decided,
        Point::Watermarked,
        Point::Attempted,
        Point::IntentDurable,
        Point::Answered,
        Point::HandleDurable,
        Point::TaskEnded,
        Point::EndDurable,
    ];

    /// A stable word, for harnesses.
    pub fn name(self) -> &'static str {
        match self {
            Point::Decided => "decided",
            Point::Watermarked => "watermarked",
            Point::Attempted => "attempted",
            Point::IntentDurable => "intent_durable",
            Point::Answered => "answered",
            Point::HandleDurable => "handle_durable",
            Point::TaskEnded => "task_ended",
            Point::EndDurable => "end_durable",
        }
    }
}

/// How an apply ended.
#[derive(Debug)]
pub enum ApplyEnd {
    /// It ran; the set says how far.
    Ran(Box<ChangeSet>),
    /// Nothing was sent.
    Refused(ApplyRefusal),
    /// Nothing was sent: the cluster has had its destructive requests for this hour. So long until the next.
    Limited(Duration),
}

/// Who applies, and under which name the audit knows the call.
#[derive(Debug, Clone)]
pub struct Applier {
    /// As the store records it.
    pub actor: Actor,
    /// Joins the records of this apply.
    pub request_id: String,
    /// Knows whether the caller is still there.
    pub trail: Trail,
}

enum Machine {
    Apply(Box<Apply>, Applier),
    Recover(Box<Recover>),
}

impl Machine {
    fn on(&mut self, event: Event, now: Timestamp) -> Result<Effect, OutOfOrder> {
        match self {
            Machine::Apply(apply, _) => apply.on(event, now),
            Machine::Recover(recover) => recover.on(event, now),
        }
    }

    /// Whether whoever asked for this has left. Nobody asks for a recovery.
    fn caller_is_gone(&self) -> bool {
        match self {
            Machine::Apply(_, applier) => applier.trail.facts().caller_gone,
            Machine::Recover(_) => false,
        }
    }
}

/// Whether no step of the set has so much as an intent.
fn is_untouched(set: &ChangeSet) -> bool {
    set.state() == changeset::State::Approved
}

impl Changes {
    /// Applies `set`, which was loaded to show it to the caller. Runs to its end once something may have been sent, so it must be
    /// driven in a task of its own, not in a caller's.
    pub async fn apply(&self, app: &Arc<App>, set: ChangeSet, applier: Applier) -> ApplyEnd {
        if let Err(frozen) = self.thawed() {
            return ApplyEnd::Refused(ApplyRefusal::StoreFailed(frozen.to_string()));
        }
        let target = set.plan().target().clone();
        let _lock = match self.try_lock(&target.cluster, &target.key, set.id()) {
            Ok(lock) => lock,
            Err(Busy(Some(by))) if by == set.id() => return ApplyEnd::Refused(ApplyRefusal::AlreadyApplying),
            Err(Busy(by)) => return ApplyEnd::Refused(ApplyRefusal::TargetBusy { by }),
        };
        // Read again under the lock: whoever held it before may have ended the set.
        let set = match self.load(set.id(), app.clock.now()).await {
            Ok(Some(set)) => set,
            Ok(None) => return ApplyEnd::Refused(ApplyRefusal::Conflict),
            Err(error) => return ApplyEnd::Refused(ApplyRefusal::StoreFailed(error.to_string())),
        };
        let turn = if set.state() == changeset::State::Approved && set.plan().tier_destructive() {
            let per_hour = app.live.load().policy.limits.destructive_applies_per_hour;
            let now = app.clock.now();
            if let Err(wait) = self.take_turn(&target.cluster, per_hour, now) {
                return ApplyEnd::Limited(wait);
            }
            Some(now)
        } else {
            None
        };
        let (machine, effect) =
            Apply::begin(set.clone(), applier.actor.clone(), &self.key, self.timing, app.clock.now());
        let end = self.drive(app, set, Machine::Apply(Box::new(machine), applier), effect).await;
        if let (ApplyEnd::Refused(_), Some(taken)) = (&end, turn) {
            self.give_back_turn(&target.cluster, taken);
        }
        end
    }

    /// Finds out what became of a set that was being applied when the server stopped, under the lock on its target.
    pub(super) async fn recover(
        &self,
        app: &Arc<App>,
        set: ChangeSet,
        _lock: Option<super::TargetLock>,
    ) -> ApplyEnd {
        match Recover::begin(set.clone(), self.timing, app.clock.now()) {
            Ok((machine, effect)) => self.drive(app, set, Machine::Recover(Box::new(machine)), effect).await,
            Err(_) => ApplyEnd::Ran(Box::new(set)),
        }
    }

    async fn drive(
        &self,
        app: &Arc<App>,
        set: ChangeSet,
        mut machine: Machine,
        mut effect: Effect,
    ) -> ApplyEnd {
        loop {
            let event = match effect {
                Effect::Finish(finish) => return self.finish(app, finish).await,
                Effect::Refuse(refusal) => return ApplyEnd::Refused(refusal),
                Effect::ResolveAndDecide { .. } => {
                    let event = match &machine {
                        Machine::Apply(_, applier) => decide(app, &set, &applier.actor).await,
                        Machine::Recover(_) => Event::Denied("recovery decides nothing".to_owned()),
                    };
                    self.passed(Point::Decided);
                    event
                }
                Effect::Watermark { step } => {
                    let event = watermark(app, &set, step).await;
                    self.passed(Point::Watermarked);
                    event
                }
                // Nothing was sent for this set yet, and nobody waits for it any more (CS-31).
                Effect::Persist { mark: Mark::Intent, .. }
                    if is_untouched(&set) && machine.caller_is_gone() =>
                {
                    return ApplyEnd::Refused(ApplyRefusal::CallerGone);
                }
                Effect::Persist { set: next, expected_version, mark } => {
                    self.persist(app, &machine, *next, expected_version, mark).await
                }
                Effect::Send { permit, .. } => {
                    let result = send(app, permit).await;
                    self.passed(Point::Answered);
                    Event::Sent(result)
                }
                Effect::Follow { handle, .. } => {
                    let end = follow(app, &set.plan().target().cluster, &handle, self.timing.give_up).await;
                    self.passed(Point::TaskEnded);
                    Event::Task(end)
                }
                Effect::FindTask(lookup) => find(app, &set, &lookup).await,
            };
            effect = match machine.on(event, app.clock.now()) {
                Ok(effect) => effect,
                Err(error) => {
                    // A fault of ours. The store keeps what is durable, and recovery looks at it at the next start.
                    tracing::error!(change_set = %set.id(), %error, "change set left for recovery");
                    return ApplyEnd::Ran(Box::new(set));
                }
            };
        }
    }

    async fn persist(
        &self,
        app: &Arc<App>,
        machine: &Machine,
        set: ChangeSet,
        expected: u64,
        mark: Mark,
    ) -> Event {
        if mark == Mark::Intent {
            if let Machine::Apply(_, applier) = machine {
                let record =
                    record(&set, AuditEvent::ChangeAttempt, &applier.actor.token, &applier.request_id);
                if let Err(error) = app.audit.append_durable(record).await {
                    return Event::PersistFailed(format!("the audit log cannot be written: {error}"));
                }
            }
            self.passed(Point::Attempted);
        }
        if mark == Mark::End {
            // Before the store: recovery does not look at a set that has ended, so nobody would write it later.
            record_outcome(app, &set, None, machine.caller_is_gone()).await;
        }
        let stored = self
            .store
            .with(move |store| {
                // An intent spends the approval: it needs a clock that was not set back.
                if mark == Mark::Intent {
                    store.observe_time(set.updated())?;
                }
                store.replace_if(&set, expected)
            })
            .await;
        let event = match stored {
            Ok(Ok(true)) => Event::Persisted,
            Ok(Ok(false)) => Event::Conflict,
            Ok(Err(error)) => Event::PersistFailed(error.to_string()),
            Err(closed) => Event::PersistFailed(closed.to_string()),
        };
        if event == Event::Persisted {
            self.passed(match mark {
                Mark::Intent => Point::IntentDurable,
                Mark::Handle => Point::HandleDurable,
                Mark::End | Mark::StepEnd => Point::EndDurable,
            });
        }
        event
    }

    async fn finish(&self, app: &Arc<App>, finish: Finish) -> ApplyEnd {
        let set = finish.set;
        if let Some(problem) = &finish.problem {
            tracing::error!(change_set = %set.id(), %problem, "the end of a change set is not stored; recovery looks at it at the next start");
            record_outcome(app, &set, Some(problem), false).await;
        }
        if let Some(cluster) = app.live.load().cluster(Some(&set.plan().target().cluster)) {
            app.resolver.forget(cluster).await;
        }
        ApplyEnd::Ran(set)
    }
}

/// Records how a set ended, and what of it could not be stored.
async fn record_outcome(app: &App, set: &ChangeSet, problem: Option<&str>, client_gone: bool) {
    let token = set.applied_by().map(|actor| actor.token.clone()).unwrap_or_default();
    let ok = set.state() == changeset::State::Applied;
    let mut outcome = record(set, AuditEvent::ChangeOutcome, &token, "")
        .outcome(if ok { "applied" } else { "not_applied" })
        .detail("state", set.state().to_string());
    if let Some(ending) = set.ending() {
        outcome = outcome.reason(ending.note.clone());
    }
    if let Some(problem) = problem {
        outcome = outcome.detail("problem", problem);
    }
    if client_gone {
        outcome = outcome.detail("client_gone", true);
    }
    if let Err(error) = app.audit.append_durable(outcome).await {
        tracing::error!(change_set = %set.id(), %error, "the outcome of a change set could not be audited");
    }
}

/// An audit record about a set.
pub(super) fn record(set: &ChangeSet, event: AuditEvent, token: &str, request_id: &str) -> Record {
    let plan = set.plan();
    let mut record = Record::new(event)
        .principal(token)
        .cluster(plan.target().cluster.clone())
        .change_set(set.id().to_string())
        .detail("digest", set.digest().to_string())
        .detail("target", plan.target().key.clone())
        .detail("planner", plan.planner().token.clone());
    if !request_id.is_empty() {
        record = record.request_id(request_id);
    }
    if let Some(vmid) = vmid_of(set) {
        record = record.vmid(vmid.get());
    }
    if let Some(approval) = set.approval() {
        record = record.detail("approver", approval.by().token.clone());
    }
    record = record.lab_mode(plan.lab_mode());
    record
}

/// The guest a set acts on.
pub(super) fn vmid_of(set: &ChangeSet) -> Option<Vmid> {
    set.plan().target().key.strip_prefix("guest/")?.parse().ok()
}
