//! What every engine must do: the [`Store`] contract as checks that any engine can run.
//!
//! ```
//! use changeset::{MemoryStore, store::suite};
//! suite::run(MemoryStore::new).map_err(|failures| format!("{failures:?}"))?;
//! # Ok::<(), String>(())
//! ```
//!
//! A durable engine runs [`run_durable`] as well. Concurrency and power loss are the engine's own to prove: only it
//! knows how its connections are shared.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::store::{AdmissionRefusal, CLOCK_SLACK, Filter, Inserted, Limits, Store, StoreError};
use crate::time::{earlier, later};
use crate::{
    Actor, ActorKind, ApprovalKey, ChangeSet, ChangeSetId, Fingerprint, Intent, PLANNED_TTL, Plan, PlanDraft,
    Preview, State, Step, StepOutcome, Target, UnknownCause,
};

/// A check that an engine did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The check.
    pub check: &'static str,
    /// What went wrong.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.why)
    }
}

type Checked = Result<(), String>;
type Check = (&'static str, fn(&mut dyn Store) -> Checked);

const CHECKS: &[Check] = &[
    ("a set comes back as it was stored", round_trip),
    ("every state and mark comes back as it was stored", every_history),
    ("an identifier is used once", duplicate_id),
    ("compare-and-swap has one winner", compare_and_swap),
    ("what breaks the history is refused", unlawful),
    ("one pending set per planner and target", one_pending),
    ("the caps on pending sets hold", caps),
    ("an idempotency key finds its set", idempotency),
    ("lists are filtered and ordered", lists),
    ("a clock set back is refused", clock_set_back),
];

/// Runs every check, each on a fresh, empty store. Returns how many passed.
///
/// # Errors
/// The checks that did not pass.
pub fn run<S: Store>(mut fresh: impl FnMut() -> S) -> Result<usize, Vec<Failure>> {
    let failures: Vec<Failure> = CHECKS
        .iter()
        .filter_map(|(check, body)| body(&mut fresh()).err().map(|why| Failure { check, why }))
        .collect();
    if failures.is_empty() { Ok(CHECKS.len()) } else { Err(failures) }
}

/// Checks that what was acknowledged is there after the store was closed and opened again. `open` opens the same,
/// at first empty, place every time; the store before is dropped first.
///
/// # Errors
/// What was lost.
pub fn run_durable<S: Store>(mut open: impl FnMut() -> S) -> Result<(), Failure> {
    let fail = |why: String| Failure { check: "acknowledged state survives a restart", why };
    let mut expected: Vec<ChangeSet> = Vec::new();
    for (n, history) in histories().map_err(fail)?.into_iter().enumerate() {
        let mut store = open();
        for before in &expected {
            same(&loaded(&store, before).map_err(fail)?, before).map_err(fail)?;
        }
        let last = replay(&mut store, &history).map_err(|why| fail(format!("history {n}: {why}")))?;
        expected.push(last);
    }
    let mut store = open();
    let set_back = earlier(START, CLOCK_SLACK.saturating_mul(2));
    match store.observe_time(set_back) {
        Err(StoreError::ClockSetBack { .. }) => Ok(()),
        other => Err(fail(format!("the latest time seen was forgotten: {other:?}"))),
    }
}

fn round_trip(store: &mut dyn Store) -> Checked {
    let set = ChangeSet::planned(plan(1)?);
    must(store.load(&set.id()).map_err(text)?.is_none(), "an empty store has a set")?;
    inserted(store, &set)?;
    must(store.poisoned().is_none(), "a store that failed at nothing is poisoned")?;
    same(&loaded(store, &set)?, &set)
}

fn every_history(store: &mut dyn Store) -> Checked {
    for history in histories()? {
        let last = replay(store, &history)?;
        same(&loaded(store, &last)?, &last)?;
    }
    Ok(())
}

fn duplicate_id(store: &mut dyn Store) -> Checked {
    inserted(store, &ChangeSet::planned(plan(1)?))?;
    let again = ChangeSet::planned(build(draft(1, "other", "guest/2"))?);
    match store.insert(&again, &Limits::default()) {
        Err(StoreError::DuplicateId { .. }) => Ok(()),
        other => Err(format!("expected a duplicate, got {other:?}")),
    }
}

fn compare_and_swap(store: &mut dyn Store) -> Checked {
    let set = ChangeSet::planned(plan(1)?);
    let (first, second) = (approved(&set, "bob")?, approved(&set, "carol")?);
    must(!store.replace_if(&first, 1).map_err(text)?, "a set that is not there was replaced")?;
    inserted(store, &set)?;
    must(!store.replace_if(&first, 7).map_err(text)?, "another version was replaced")?;
    must(store.replace_if(&first, 1).map_err(text)?, "the right version was not replaced")?;
    must(!store.replace_if(&second, 1).map_err(text)?, "a second caller won too")?;
    must(store.advance(&first, &first).map_err(text)?, "a move that changes nothing failed")?;
    same(&loaded(store, &first)?, &first)
}

fn unlawful(store: &mut dyn Store) -> Checked {
    let set = ChangeSet::planned(plan(1)?);
    let agreed = approved(&set, "bob")?;
    let intended = intended(&agreed, 0)?;
    let refused = |store: &mut dyn Store, set: &ChangeSet, version: u64, what: &str| match store
        .replace_if(set, version)
    {
        Err(StoreError::Unlawful { .. }) => Ok(()),
        other => Err(format!("{what}: expected a refusal, got {other:?}")),
    };
    inserted(store, &set)?;
    let mut other_plan = draft(1, "alice", "guest/1");
    other_plan.preview.text = "something harmless".to_owned();
    let other_plan = approved(&ChangeSet::planned(build(other_plan)?), "bob")?;
    refused(store, &other_plan, 1, "another plan under the same name")?;
    refused(store, &intended, 1, "applying without an approval")?;
    refused(store, &set, 1, "the same version again")?;
    must(store.replace_if(&agreed, 1).map_err(text)?, "the approval was not stored")?;
    must(store.replace_if(&intended, 2).map_err(text)?, "the intent was not stored")?;
    let mut back = agreed.clone();
    back.version = 9;
    refused(store, &back, 3, "back to approved")?;
    let dispatched = intended.dispatched(0, "task-1", at(5)).map_err(text)?;
    must(store.replace_if(&dispatched, 3).map_err(text)?, "the handle was not stored")?;
    let mut other_handle = intended.dispatched(0, "task-2", at(6)).map_err(text)?;
    other_handle.version = 9;
    refused(store, &other_handle, 4, "another handle")?;
    let mut forgotten = intended.clone();
    forgotten.version = 9;
    refused(store, &forgotten, 4, "a handle taken away")?;

    let ended = ChangeSet::planned(plan(2)?);
    inserted(store, &ended)?;
    let gone = ended.cancel(&actor("alice"), "", at(3)).map_err(text)?;
    must(store.replace_if(&gone, 1).map_err(text)?, "the cancellation was not stored")?;
    let mut revived = approved(&ended, "bob")?;
    revived.version = 9;
    refused(store, &revived, 2, "out of a final state")?;
    Ok(())
}

fn one_pending(store: &mut dyn Store) -> Checked {
    let first = ChangeSet::planned(plan(1)?);
    inserted(store, &first)?;
    let again = ChangeSet::planned(build(draft(2, "alice", "guest/1"))?);
    refused(store, &again, &AdmissionRefusal::TargetPending { id: first.id() })?;
    let found = store.pending_for("alice", first.plan().target(), at(1)).map_err(text)?;
    must(found == Some(first.id()), "the pending set was not found")?;
    inserted(store, &ChangeSet::planned(build(draft(3, "bob", "guest/1"))?))?;
    let cancelled = first.cancel(&actor("alice"), "", at(2)).map_err(text)?;
    must(store.replace_if(&cancelled, 1).map_err(text)?, "the cancellation was not stored")?;
    inserted(store, &again)?;
    let mut late = draft(4, "alice", "guest/1");
    late.created = later(START, PLANNED_TTL);
    inserted(store, &ChangeSet::planned(build(late)?))
}

fn caps(store: &mut dyn Store) -> Checked {
    let limits = Limits { pending_per_planner: 2, pending_total: 3 };
    let mut last = None;
    for (n, planner) in [(1, "alice"), (2, "alice"), (3, "bob")] {
        let set = ChangeSet::planned(build(draft(n, planner, &format!("guest/{n}")))?);
        must(
            store.insert(&set, &limits).map_err(text)? == Inserted::Stored,
            "a set below the cap was refused",
        )?;
        last = Some(set);
    }
    let try_one = |store: &mut dyn Store, planner: &str| {
        let set = ChangeSet::planned(build(draft(9, planner, "guest/9"))?);
        store.insert(&set, &limits).map_err(text)
    };
    let by_alice = try_one(store, "alice")?;
    must(
        by_alice == Inserted::Refused(AdmissionRefusal::PlannerCap { cap: 2 }),
        "the planner's cap does not hold",
    )?;
    let by_carol = try_one(store, "carol")?;
    must(
        by_carol == Inserted::Refused(AdmissionRefusal::ServerCap { cap: 3 }),
        "the server's cap does not hold",
    )?;
    let last = last.ok_or("no set")?;
    let rejected = last.reject(&actor("dave"), "", at(1)).map_err(text)?;
    must(store.replace_if(&rejected, 1).map_err(text)?, "the rejection was not stored")?;
    must(try_one(store, "carol")? == Inserted::Stored, "an ended set still counts")
}

fn idempotency(store: &mut dyn Store) -> Checked {
    let keyed = |n: u8, planner: &str, target: &str| {
        let mut keyed = draft(n, planner, target);
        keyed.idempotency_key = Some("key-1".to_owned());
        build(keyed).map(ChangeSet::planned)
    };
    let first = keyed(1, "alice", "guest/1")?;
    inserted(store, &first)?;
    let cancelled = first.cancel(&actor("alice"), "", at(1)).map_err(text)?;
    must(store.replace_if(&cancelled, 1).map_err(text)?, "the cancellation was not stored")?;
    match store.insert(&keyed(2, "alice", "guest/1")?, &Limits::default()).map_err(text)? {
        Inserted::Existing(found) => same(&found, &cancelled)?,
        other => return Err(format!("the same request again: {other:?}")),
    }
    let other = keyed(3, "alice", "guest/2")?;
    refused(store, &other, &AdmissionRefusal::KeyReused { id: first.id() })?;
    inserted(store, &keyed(4, "bob", "guest/2")?)
}

fn lists(store: &mut dyn Store) -> Checked {
    let mut sets = Vec::new();
    for (n, planner) in [(1, "alice"), (2, "bob"), (3, "alice")] {
        let mut one = draft(n, planner, &format!("guest/{n}"));
        one.created = at(i64::from(n));
        let set = ChangeSet::planned(build(one)?);
        inserted(store, &set)?;
        sets.push(set);
    }
    let [one, two, three] = sets.as_slice() else { return Err("three sets".to_owned()) };
    let agreed = approved(one, "carol")?;
    let applying = intended(&agreed, 0)?;
    must(store.replace_if(&agreed, 1).map_err(text)?, "the approval was not stored")?;
    must(store.replace_if(&applying, 2).map_err(text)?, "the intent was not stored")?;
    must(names(store, &Filter::default())? == [three.id(), two.id(), one.id()], "not newest first")?;
    let by_bob = Filter { planner: Some("bob".to_owned()), ..Filter::default() };
    must(names(store, &by_bob)? == [two.id()], "the planner's filter")?;
    let elsewhere = Filter { cluster: Some("beta".to_owned()), ..Filter::default() };
    must(names(store, &elsewhere)?.is_empty(), "the cluster's filter")?;
    let planned = Filter { state: Some(State::Planned), ..Filter::default() };
    must(names(store, &planned)? == [three.id(), two.id()], "the state's filter")?;
    let pending = Filter { pending_only: true, ..Filter::default() };
    must(names(store, &pending)? == [three.id(), two.id(), one.id()], "the pending filter")?;
    let recent = Filter { created_since: Some(at(2)), ..Filter::default() };
    must(names(store, &recent)? == [three.id(), two.id()], "the filter by time")?;
    let newest = Filter { newest: Some(1), ..Filter::default() };
    must(names(store, &newest)? == [three.id()], "the newest alone")?;
    let applying_now = store.applying().map_err(text)?;
    must(applying_now == [applying], "the applying sets")?;
    let cancelled = two.cancel(&actor("bob"), "", at(4)).map_err(text)?;
    must(store.replace_if(&cancelled, 1).map_err(text)?, "the cancellation was not stored")?;
    must(names(store, &pending)? == [three.id(), one.id()], "the pending filter")?;
    let counts = store.counts().map_err(text)?;
    must((counts.total, counts.planned, counts.approved, counts.applying) == (3, 1, 0, 1), "the counts")
}

fn clock_set_back(store: &mut dyn Store) -> Checked {
    let set = ChangeSet::planned(plan(1)?);
    inserted(store, &set)?;
    let hour = Duration::from_secs(3600);
    let ahead = later(START, hour);
    must(store.observe_time(ahead).map_err(text)? == ahead, "the time did not pass")?;
    let slack = earlier(ahead, CLOCK_SLACK);
    must(store.observe_time(slack).map_err(text)? == ahead, "within the slack, the later time counts")?;
    let back = earlier(slack, Duration::from_nanos(1));
    let refused = |result: Result<bool, StoreError>| matches!(result, Err(StoreError::ClockSetBack { .. }));
    must(refused(store.observe_time(back).map(|_| true)), "a clock set back passed")?;
    must(refused(store.replace_if(&approved(&set, "bob")?, 1)), "an approval under a clock set back passed")?;
    same(&loaded(store, &set)?, &set)?;
    store.accept_time(START).map_err(text)?;
    must(store.replace_if(&approved(&set, "bob")?, 1).map_err(text)?, "the accepted time is not accepted")
}

fn names(store: &dyn Store, filter: &Filter) -> Result<Vec<ChangeSetId>, String> {
    Ok(store.list(filter).map_err(text)?.iter().map(ChangeSet::id).collect())
}

/// Every kind of end, each as the list of versions that lead there.
fn histories() -> Result<Vec<Vec<ChangeSet>>, String> {
    let mut all = Vec::new();
    let one_step = |n: u8| plan(n).map(ChangeSet::planned);
    let set = one_step(10)?;
    all.push(vec![set.clone(), set.reject(&actor("bob"), "not \"now\"\n", at(1)).map_err(text)?]);
    let set = one_step(11)?;
    all.push(vec![set.clone(), set.expire(set.plan().expires()).map_err(text)?]);
    for (n, outcome) in (20_u8..).zip([
        StepOutcome::Ok,
        StepOutcome::OkWithWarnings(3),
        StepOutcome::Failed("can't lock file".to_owned()),
        StepOutcome::Unknown(UnknownCause::NotFound),
        StepOutcome::Unknown(UnknownCause::Ambiguous(2)),
        StepOutcome::Unknown(UnknownCause::TaskLost("node down".to_owned())),
        StepOutcome::Unknown(UnknownCause::Unreadable("timeout".to_owned())),
    ]) {
        let set = one_step(n)?;
        let agreed = approved(&set, "bob")?;
        let intent = intended(&agreed, 0)?;
        let handle = intent.dispatched(0, "UPID:pve1:00:", at(4)).map_err(text)?;
        let ended = handle.step_ended(0, outcome, at(5)).map_err(text)?;
        let mut history = vec![set, agreed, intent, handle, ended.clone()];
        if ended.state() == State::Unknown {
            history.push(ended.resolve_failed(&actor("dave"), "looked", at(6)).map_err(text)?);
        }
        all.push(history);
    }
    let mut two_steps = draft(30, "alice", "guest/30");
    let again = two_steps.steps.clone();
    two_steps.steps.extend(again);
    two_steps.lab_mode = true;
    two_steps.target_protected = true;
    let set = ChangeSet::create(build(two_steps)?, &key());
    let first = intended(&set, 0)?;
    let first_ok = first.step_ended(0, StepOutcome::Ok, at(4)).map_err(text)?;
    let second = intended(&first_ok, 1)?;
    all.push(vec![set, first, first_ok, second]);
    Ok(all)
}

/// Stores a history version by version; gives back the last.
fn replay(store: &mut dyn Store, history: &[ChangeSet]) -> Result<ChangeSet, String> {
    let (first, later) = history.split_first().ok_or("an empty history")?;
    inserted(store, first)?;
    let mut last = first;
    for next in later {
        must(store.replace_if(next, last.version()).map_err(text)?, "a version was not stored")?;
        last = next;
    }
    Ok(last.clone())
}

/// Any moment would do.
const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(second: i64) -> Timestamp {
    later(START, Duration::from_secs(second.unsigned_abs()))
}

fn key() -> ApprovalKey {
    ApprovalKey::new([7; 32])
}

fn actor(name: &str) -> Actor {
    Actor::new(name, name, Some(ActorKind::Human))
}

fn draft(n: u8, planner: &str, target: &str) -> PlanDraft {
    PlanDraft {
        id: ChangeSetId::from_entropy([n; 16]),
        planner: actor(planner),
        target: Target::new("alpha", target, format!("container {target}")),
        tier_destructive: true,
        target_protected: false,
        steps: vec![Step::new("destroy_lxc", [("purge", "0")], "destroy the container").moving(["digest"])],
        fingerprint: Fingerprint::new([("digest", "aa"), ("name", "web")]),
        preview: Preview::new("destroys container \"web\"", [("status", "stopped")]),
        policy_version: "1".to_owned(),
        lab_mode: false,
        idempotency_key: None,
        created: START,
    }
}

fn build(draft: PlanDraft) -> Result<Plan, String> {
    Plan::new(draft).map_err(text)
}

fn plan(n: u8) -> Result<Plan, String> {
    build(draft(n, "alice", &format!("guest/{n}")))
}

fn approved(set: &ChangeSet, by: &str) -> Result<ChangeSet, String> {
    set.approve(&actor(by), &set.digest(), &key(), at(2)).map_err(text)
}

fn intended(set: &ChangeSet, step: usize) -> Result<ChangeSet, String> {
    let watermark = ["UPID:old:".to_owned()].into_iter().collect();
    let intent = Intent { at: at(3), node: "pve1".to_owned(), watermark };
    set.intend(step, intent, &actor("alice"), &key(), at(3)).map_err(text)
}

fn inserted(store: &mut dyn Store, set: &ChangeSet) -> Checked {
    match store.insert(set, &Limits::default()).map_err(text)? {
        Inserted::Stored => Ok(()),
        other => Err(format!("{} was not stored: {other:?}", set.id())),
    }
}

fn refused(store: &mut dyn Store, set: &ChangeSet, refusal: &AdmissionRefusal) -> Checked {
    match store.insert(set, &Limits::default()).map_err(text)? {
        Inserted::Refused(found) if found == *refusal => Ok(()),
        other => Err(format!("expected {refusal:?}, got {other:?}")),
    }
}

fn loaded(store: &dyn Store, set: &ChangeSet) -> Result<ChangeSet, String> {
    store.load(&set.id()).map_err(text)?.ok_or_else(|| format!("{} is not there", set.id()))
}

fn same(found: &ChangeSet, expected: &ChangeSet) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("stored {expected:?}, found {found:?}")) }
}

fn must(holds: bool, otherwise: &str) -> Checked {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
