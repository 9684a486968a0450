//! Drives the coordinator: does what it asks, tells it what happened.
//!
//! The order of an apply is the coordinator's (`changeset::coordinator`); this file holds the only code that sends a change set's
//! request, and it can only be called with the coordinator's [`DispatchPermit`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use authz::Tier;
use changeset::{
    Actor, Apply, ApplyRefusal, ChangeSet, DispatchPermit, Effect, Event, Finish, Lookup, Mark, OutOfOrder,
    Recover, SendResult, TaskEnd,
};
use jiff::Timestamp;
use proxmox_api::{DestroyOptions, Error, GuestKind, GuestRef, TaskFilter, Upid, Vmid};

use super::plan::DESTROY_GUEST;
use super::{Changes, fingerprint};
use crate::app::App;
use crate::audit::{Event as AuditEvent, Record};
use crate::catalog;
use crate::config::{Cluster, Snapshot};
use crate::resolve::{Freshness, ResolveError};

/// First and longest pause between two readings of a task.
const FIRST_POLL: Duration = Duration::from_millis(150);
const LONGEST_POLL: Duration = Duration::from_secs(2);
/// How long a task that cannot be read is still waited for.
const LOST_AFTER: Duration = Duration::from_secs(15 * 60);

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
}

impl Changes {
    /// Applies `set`, which was just loaded. Runs to its end once something may have been sent, so it must be driven in a task of
    /// its own, not in a caller's.
    pub async fn apply(&self, app: &Arc<App>, set: ChangeSet, applier: Applier) -> ApplyEnd {
        let target = set.plan().target().clone();
        let Some(_lock) = self.try_lock(&target.cluster, &target.key) else {
            return ApplyEnd::Refused(ApplyRefusal::AlreadyApplying);
        };
        let turn = if set.state() == changeset::State::Approved && set.plan().tier_destructive() {
            let per_hour = app.live.load().policy.limits.destructive_applies_per_hour;
            let now = app.clock.monotonic();
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

    /// Finds out what became of a set that was being applied when the server stopped.
    pub(super) async fn recover(&self, app: &Arc<App>, set: ChangeSet) -> ApplyEnd {
        let target = set.plan().target().clone();
        let _lock = self.try_lock(&target.cluster, &target.key);
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
                Effect::Persist { set: next, expected_version, mark } => {
                    self.persist(app, &machine, *next, expected_version, mark).await
                }
                Effect::Send { permit, .. } => {
                    let result = send(app, permit).await;
                    self.passed(Point::Answered);
                    Event::Sent(result)
                }
                Effect::Follow { handle, .. } => {
                    let end = follow(app, &set.plan().target().cluster, &handle).await;
                    self.passed(Point::TaskEnded);
                    Event::Task(end)
                }
                Effect::FindTask(lookup) => find(app, &lookup).await,
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
        let token = set.applied_by().map(|actor| actor.token.clone()).unwrap_or_default();
        let ok = set.state() == changeset::State::Applied;
        let mut outcome = record(&set, AuditEvent::ChangeOutcome, &token, "")
            .outcome(if ok { "applied" } else { "not_applied" })
            .detail("state", set.state().to_string());
        if let Some(ending) = set.ending() {
            outcome = outcome.reason(ending.note.clone());
        }
        if let Some(problem) = &finish.problem {
            tracing::error!(change_set = %set.id(), %problem, "the end of a change set is not stored; recovery looks at it at the next start");
            outcome = outcome.detail("problem", problem.clone());
        }
        if let Err(error) = app.audit.append_durable(outcome).await {
            tracing::error!(change_set = %set.id(), %error, "the outcome of a change set could not be audited");
        }
        if let Some(cluster) = app.live.load().cluster(Some(&set.plan().target().cluster)) {
            app.resolver.forget(cluster).await;
        }
        ApplyEnd::Ran(set)
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

/// Authorization, protection and facts, all as of now and under the configuration in force now.
async fn decide(app: &App, set: &ChangeSet, applier: &Actor) -> Event {
    let snapshot = app.live.load();
    let now = app.clock.now();
    let plan = set.plan();
    let denied = |why: &str| Event::Denied(why.to_owned());
    let Some(principal) = snapshot.tokens.principal(&applier.token) else {
        return denied("the applying token is gone");
    };
    let Some(cluster) = snapshot.cluster(Some(&plan.target().cluster)) else {
        return denied("the cluster of this change set is no longer configured");
    };
    let Some(vmid) = vmid_of(set) else { return denied("the change set names no guest") };
    let Some(rule) = plan.steps().first().and_then(|step| op_scope(&step.op, step.params.get("kind")?))
    else {
        return denied("the change set holds an operation this server does not know");
    };
    let admitted = match authz::admit(&principal, rule, Some(&cluster.name), now) {
        Ok(admitted) => admitted,
        Err(denial) => return Event::Denied(denial.public_message().to_owned()),
    };
    let guest = match app.resolver.guest(cluster, vmid.get(), Freshness::Now, &principal).await {
        Ok(guest) => guest,
        Err(ResolveError::Absent) => {
            return Event::Denied(authz::Denial::guest_unknown().public_message().to_owned());
        }
        Err(ResolveError::Ambiguous) => {
            return Event::Unavailable("the cluster lists the guest more than once".to_owned());
        }
        Err(ResolveError::Cluster(error)) => return Event::Unavailable(error.to_string()),
    };
    let overrides = authz::Overrides { waivers: &snapshot.waivers, lab_mode: snapshot.lab_mode };
    let op = plan.steps().first().map_or("", |step| step.op.as_str());
    if let Err(denial) =
        authz::decide(admitted, &guest.facts, op, principal.name(), &cluster.protection, &overrides, now)
    {
        return Event::Denied(denial.public_message().to_owned());
    }
    let Some(config) = guest.config.clone() else {
        return Event::Unavailable("the guest's configuration is unreadable".to_owned());
    };
    let fingerprint = match fingerprint::of(&app.resolver, cluster, &guest, &config).await {
        Ok(fingerprint) => fingerprint,
        Err(error) => return Event::Unavailable(error.to_string()),
    };
    Event::Decided {
        fingerprint,
        planner_valid: planner_valid(&snapshot, set, rule, cluster, now),
        approver_valid: approver_valid(&snapshot, set, &guest.facts, now),
    }
}

fn planner_valid(
    snapshot: &Snapshot,
    set: &ChangeSet,
    rule: &authz::ToolRule,
    cluster: &Cluster,
    now: Timestamp,
) -> bool {
    let planner = set.plan().planner();
    snapshot
        .tokens
        .principal(&planner.token)
        .is_some_and(|principal| authz::admit(&principal, rule, Some(&cluster.name), now).is_ok())
}

fn approver_valid(snapshot: &Snapshot, set: &ChangeSet, facts: &authz::GuestFacts, now: Timestamp) -> bool {
    let Some(approval) = set.approval() else { return false };
    match approval.kind() {
        changeset::ApprovalKind::LabMode => snapshot.lab_mode,
        changeset::ApprovalKind::SecondPerson => {
            snapshot.tokens.principal(&approval.by().token).is_some_and(|approver| {
                authz::decide_approval(&approver, &approval_facts(set, facts), now).is_ok()
            })
        }
    }
}

/// What authorization needs to know about a set to judge an approver.
pub(crate) fn approval_facts<'a>(
    set: &'a ChangeSet,
    facts: &'a authz::GuestFacts,
) -> authz::ApprovalFacts<'a> {
    let planner = set.plan().planner();
    authz::ApprovalFacts {
        planner_name: &planner.token,
        planner_person: &planner.person,
        tier: if set.plan().tier_destructive() { Tier::Destructive } else { Tier::Low },
        facts,
    }
}

/// The authorization-only scope of an operation on a kind of guest.
pub(super) fn op_scope(op: &str, kind: &str) -> Option<&'static authz::ToolRule> {
    match (op, kind) {
        (DESTROY_GUEST, "qemu") => catalog::rule("delete_vm"),
        (DESTROY_GUEST, "lxc") => catalog::rule("delete_container"),
        _ => None,
    }
}

/// Worker types an operation's request can start.
fn task_types(op: &str) -> &'static [&'static str] {
    match op {
        DESTROY_GUEST => &["qmdestroy", "vzdestroy"],
        _ => &[],
    }
}

/// The tasks of an operation's types on the guest that the node knows, whoever started them.
async fn known_tasks(
    cluster: &Cluster,
    node: &proxmox_api::NodeName,
    vmid: Vmid,
    op: &str,
) -> Result<Vec<Upid>, Error> {
    let filter = TaskFilter { vmid: Some(vmid), limit: 500, ..TaskFilter::default() };
    let tasks = cluster.client.tasks(node, &filter).await?.items;
    Ok(tasks.into_iter().map(|task| task.upid).filter(|upid| task_types(op).contains(&upid.kind())).collect())
}

async fn watermark(app: &App, set: &ChangeSet, step: usize) -> Event {
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&set.plan().target().cluster)) else {
        return Event::Unavailable("the cluster is no longer configured".to_owned());
    };
    let (Some(vmid), Some(op)) = (vmid_of(set), set.plan().steps().get(step).map(|step| step.op.clone()))
    else {
        return Event::Unavailable("the change set names no guest".to_owned());
    };
    let rows = match app.resolver.resources(cluster, Freshness::Now).await {
        Ok(rows) => rows,
        Err(error) => return Event::Unavailable(error.to_string()),
    };
    let Some(at) = rows.iter().filter_map(proxmox_api::Resource::guest).find(|at| at.vmid == vmid) else {
        return Event::Unavailable("the guest is no longer listed".to_owned());
    };
    match known_tasks(cluster, &at.node, vmid, &op).await {
        Ok(tasks) => Event::Watermark {
            tasks: tasks.iter().map(ToString::to_string).collect(),
            node: at.node.to_string(),
        },
        Err(error) => Event::Unavailable(error.to_string()),
    }
}

/// Sends one step's one request. No retry, here or below.
async fn send(app: &App, permit: DispatchPermit) -> SendResult {
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&permit.target().cluster)) else {
        return SendResult::Refused("the cluster is no longer configured".to_owned());
    };
    let request = match request_of(&permit) {
        Ok(request) => request,
        Err(why) => return SendResult::Refused(why),
    };
    let answer = match request {
        Request::Destroy(at, options) => cluster.client.destroy(&at, options).await,
    };
    match answer {
        Ok(upid) => SendResult::Handle(upid.to_string()),
        Err(error) => match error.effect() {
            proxmox_api::Effect::NotSent | proxmox_api::Effect::Refused => {
                SendResult::Refused(error.to_string())
            }
            proxmox_api::Effect::Unknown => SendResult::Unknown(error.to_string()),
        },
    }
}

enum Request {
    Destroy(GuestRef, DestroyOptions),
}

/// The request that was approved, built from what the permit carries and nothing else.
fn request_of(permit: &DispatchPermit) -> Result<Request, String> {
    let step = permit.step();
    let param = |name: &str| {
        step.params.get(name).map(String::as_str).ok_or_else(|| format!("the plan lacks {name}"))
    };
    match step.op.as_str() {
        DESTROY_GUEST => {
            let at = GuestRef {
                node: permit
                    .node()
                    .parse()
                    .map_err(|error| format!("the intent's node is unusable: {error}"))?,
                kind: match param("kind")? {
                    "qemu" => GuestKind::Qemu,
                    "lxc" => GuestKind::Lxc,
                    _ => return Err("the plan names an unknown kind of guest".to_owned()),
                },
                vmid: param("vmid")?
                    .parse()
                    .map_err(|error| format!("the plan's vmid is unusable: {error}"))?,
            };
            let options = DestroyOptions {
                purge: param("purge")? == "1",
                destroy_unreferenced_disks: param("destroy-unreferenced-disks")? == "1",
            };
            Ok(Request::Destroy(at, options))
        }
        op => Err(format!("this server cannot do {op}")),
    }
}

/// Reads a task until it ends. A cluster that does not answer is waited for; only after [`LOST_AFTER`] without an answer is the
/// task given up as lost.
async fn follow(app: &App, cluster: &str, handle: &str) -> TaskEnd {
    let Ok(upid) = handle.parse::<Upid>() else {
        return TaskEnd::Lost("the recorded task id is unreadable".to_owned());
    };
    let mut pause = FIRST_POLL;
    let mut answered = Instant::now();
    loop {
        let problem = match app.live.load().cluster(Some(cluster)) {
            None => "the cluster is no longer configured".to_owned(),
            Some(cluster) => match cluster.client.task_status(&upid).await {
                Ok(status) => {
                    answered = Instant::now();
                    match status.exit {
                        Some(exit) if !status.running => return TaskEnd::from_exit_status(&exit.to_string()),
                        _ => String::new(),
                    }
                }
                Err(error) => error.to_string(),
            },
        };
        if answered.elapsed() > LOST_AFTER {
            return TaskEnd::Lost(problem);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_POLL);
    }
}

/// Looks for the task of a request that may have arrived, once the settling time is over.
async fn find(app: &App, lookup: &Lookup) -> Event {
    let wait = lookup.not_before.duration_since(app.clock.now());
    if let Ok(wait) = Duration::try_from(wait) {
        tokio::time::sleep(wait).await;
    }
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&lookup.target.cluster)) else {
        return Event::Unavailable("the cluster is no longer configured".to_owned());
    };
    let vmid = lookup.target.key.strip_prefix("guest/").and_then(|vmid| vmid.parse::<Vmid>().ok());
    let (Some(vmid), Ok(node)) = (vmid, lookup.node.parse()) else {
        return Event::Unavailable("the recorded target is unreadable".to_owned());
    };
    match known_tasks(cluster, &node, vmid, &lookup.op).await {
        Ok(tasks) => Event::Found(
            tasks
                .into_iter()
                .filter(|upid| upid.user() == cluster.client.token_id())
                .map(|upid| upid.to_string())
                .collect(),
        ),
        Err(error) => Event::Unavailable(error.to_string()),
    }
}
