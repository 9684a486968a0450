//! Random lives of change sets: people, applies and crashes in any order, checked against what must always hold.
//!
//! The world is a memory store (the disk), the machines under way (lost in a crash), and a peer that counts what it
//! was sent. Each invariant of the threat model is checked where it could be broken.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use changeset::store::{Inserted, Limits, Store, StoreError};
use changeset::{
    APPROVED_TTL, Actor, ActorKind, Apply, ApprovalKind, ChangeSet, ChangeSetId, Effect, Event, MemoryStore,
    PLANNED_TTL, Plan, PlanDigest, Recover, SendResult, State, StepOutcome, TaskEnd, Timing, TransitionError,
};
use common::{agent, at, fingerprint, human, key, two_steps};
use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

mod common;

#[derive(Debug, Clone)]
enum Op {
    Plan { planner: usize, target: u8, lab: bool, protected: bool },
    Approve { set: Index, who: usize, right_digest: bool },
    Reject { set: Index },
    Cancel { set: Index },
    Expire { set: Index },
    Resolve { set: Index, applied: bool },
    Apply { set: Index },
    Step { machine: Index, answer: u8 },
    Crash,
    Wait { seconds: u64 },
}

fn any_op() -> impl Strategy<Value = Op> {
    let set = || any::<Index>();
    prop_oneof![
        6 => (0..2_usize, 0..3_u8, any::<bool>(), any::<bool>())
            .prop_map(|(planner, target, lab, protected)| Op::Plan { planner, target, lab, protected }),
        8 => (set(), 0..4_usize, prop::bool::weighted(0.9))
            .prop_map(|(set, who, right_digest)| Op::Approve { set, who, right_digest }),
        1 => set().prop_map(|set| Op::Reject { set }),
        1 => set().prop_map(|set| Op::Cancel { set }),
        1 => set().prop_map(|set| Op::Expire { set }),
        1 => (set(), any::<bool>()).prop_map(|(set, applied)| Op::Resolve { set, applied }),
        8 => set().prop_map(|set| Op::Apply { set }),
        60 => (set(), any::<u8>()).prop_map(|(machine, answer)| Op::Step { machine, answer }),
        1 => Just(Op::Crash),
        1 => prop_oneof![Just(60_u64), Just(APPROVED_TTL.as_secs()), Just(PLANNED_TTL.as_secs())]
            .prop_map(|seconds| Op::Wait { seconds }),
    ]
}

/// Bot and ann plan; ann's second token, olga, piet and another agent approve, or try to.
fn planners() -> [Actor; 2] {
    [agent("bot"), human("ann")]
}

fn approvers() -> [Actor; 4] {
    [human("olga"), human("piet"), agent("bot2"), Actor::new("ann-2", "ANN", Some(ActorKind::Human))]
}

enum Machine {
    Apply(Box<Apply>),
    Recover(Box<Recover>),
}

struct Running {
    set: ChangeSetId,
    machine: Machine,
    effect: Effect,
    /// The last decision this machine was given: whether both tokens stood.
    decided: Option<bool>,
}

#[derive(Default)]
struct World {
    disk: MemoryStore,
    running: Vec<Running>,
    ids: Vec<ChangeSetId>,
    sent: BTreeMap<(ChangeSetId, usize), usize>,
    /// What each set's approval was of, taken down when it was given.
    agreed: BTreeMap<ChangeSetId, PlanDigest>,
    acknowledged: BTreeMap<ChangeSetId, ChangeSet>,
    seconds: u64,
    next: u8,
}

impl World {
    fn now(&self) -> Timestamp {
        at(self.seconds)
    }

    fn pick(&self, index: &Index) -> Option<ChangeSet> {
        // Among the latest, so that something happens to them before they end.
        let latest = &self.ids[self.ids.len().saturating_sub(4)..];
        let id = (!latest.is_empty()).then(|| index.get(latest))?;
        self.disk.load(id).unwrap()
    }

    fn acknowledge(&mut self, set: &ChangeSet) {
        self.acknowledged.insert(set.id(), set.clone());
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Plan { planner, target, lab, protected } => self.plan(planner, target, lab, protected),
            Op::Approve { set, who, right_digest } => {
                if let Some(set) = self.pick(&set) {
                    self.approve(&set, &approvers()[who], right_digest);
                }
            }
            Op::Reject { set } => self.change(&set, |set, now| set.reject(&human("olga"), "no", now)),
            Op::Cancel { set } => self.change(&set, |set, now| set.cancel(&agent("bot"), "", now)),
            Op::Expire { set } => self.change(&set, ChangeSet::expire),
            Op::Resolve { set, applied } => self.change(&set, |set, now| match applied {
                true => set.resolve_applied(&human("olga"), "looked", now),
                false => set.resolve_failed(&human("olga"), "looked", now),
            }),
            Op::Apply { set } => {
                if let Some(set) = self.pick(&set) {
                    let id = set.id();
                    let (apply, effect) =
                        Apply::begin(set, agent("bot"), &key(), Timing::default(), self.now());
                    let machine = Machine::Apply(Box::new(apply));
                    self.running.push(Running { set: id, machine, effect, decided: None });
                }
            }
            Op::Step { machine, answer } => {
                if !self.running.is_empty() {
                    self.step(machine.index(self.running.len()), answer);
                }
            }
            Op::Crash => self.crash(),
            Op::Wait { seconds } => self.seconds += seconds,
        }
    }

    fn plan(&mut self, planner: usize, target: u8, lab: bool, protected: bool) {
        let mut draft = two_steps(self.next);
        self.next = self.next.wrapping_add(1);
        draft.planner = planners()[planner].clone();
        draft.target.key = format!("guest/{target}");
        (draft.lab_mode, draft.target_protected, draft.created) = (lab, protected, self.now());
        let set = ChangeSet::create(Plan::new(draft).unwrap(), &key());
        let pending =
            self.disk.pending_for(&set.plan().planner().token, set.plan().target(), self.now()).unwrap();
        match self.disk.insert(&set, &Limits::default()).unwrap() {
            Inserted::Stored => {
                assert_eq!(pending, None, "two pending sets of one planner on one target");
                assert_eq!(set.state() == State::Approved, lab && protected);
                self.ids.push(set.id());
                if set.state() == State::Approved {
                    self.agreed.insert(set.id(), set.digest());
                }
                self.acknowledge(&set);
            }
            Inserted::Refused(_) => assert!(pending.is_some() || self.disk.counts().unwrap().total >= 10),
            Inserted::Existing(_) => panic!("no key was given"),
        }
    }

    fn approve(&mut self, set: &ChangeSet, who: &Actor, right_digest: bool) {
        let other = || {
            let mut other = two_steps(255);
            other.policy_version = "other".to_owned();
            Plan::new(other).unwrap().digest()
        };
        let seen = if right_digest { set.digest() } else { other() };
        if let Ok(next) = set.approve(who, &seen, &key(), self.now()) {
            assert!(right_digest && who.is_human() && !who.is_same_person(set.plan().planner()));
            assert!(self.disk.advance(set, &next).unwrap());
            self.agreed.insert(set.id(), seen);
            self.acknowledge(&next);
        }
    }

    fn change(
        &mut self,
        set: &Index,
        by: impl Fn(&ChangeSet, Timestamp) -> Result<ChangeSet, TransitionError>,
    ) {
        let Some(set) = self.pick(set) else { return };
        if let Ok(next) = by(&set, self.now()) {
            assert!(self.disk.advance(&set, &next).unwrap());
            self.acknowledge(&next);
        }
    }

    /// Does what one machine asked for, with an answer drawn at random.
    fn step(&mut self, n: usize, answer: u8) {
        let now = self.now();
        let mut running = self.running.swap_remove(n);
        let id = running.set;
        let event = match running.effect {
            Effect::ResolveAndDecide { .. } => {
                running.decided = Some(answer % 8 > 3);
                match answer % 8 {
                    0 => Event::Denied("protected".to_owned()),
                    1 => Event::Unavailable("timeout".to_owned()),
                    _ => Event::Decided {
                        fingerprint: fingerprint(),
                        approver_valid: answer % 8 != 2,
                        planner_valid: answer % 8 != 3,
                    },
                }
            }
            Effect::Watermark { .. } => {
                Event::Watermark { tasks: vec!["UPID:old".to_owned()], node: "pve1".to_owned() }
            }
            Effect::Persist { ref set, expected_version, .. } => {
                // A store may fail before it wrote, and after it did.
                if answer.is_multiple_of(16) {
                    Event::PersistFailed("before".to_owned())
                } else {
                    match self.disk.replace_if(set, expected_version) {
                        Ok(true) if answer % 16 == 1 => Event::PersistFailed("after".to_owned()),
                        Ok(true) => {
                            self.acknowledge(set);
                            Event::Persisted
                        }
                        Ok(false) => Event::Conflict,
                        // An intent formed long before it is stored looks like a clock set back.
                        Err(error @ StoreError::ClockSetBack { .. }) => {
                            Event::PersistFailed(error.to_string())
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            Effect::Send { step, ref permit } => {
                assert!(matches!(running.machine, Machine::Apply(_)), "a recovery sends");
                assert_eq!(
                    running.decided.take(),
                    Some(true),
                    "I3, I8: sent without a fresh decision for both tokens"
                );
                assert_eq!((permit.set(), permit.index()), (id, step));
                self.check_dispatch(id, step);
                match answer % 4 {
                    0 => Event::Sent(SendResult::Unknown("reset".to_owned())),
                    1 => Event::Sent(SendResult::Refused("locked".to_owned())),
                    2 => Event::Sent(SendResult::Synchronous),
                    _ => Event::Sent(SendResult::Handle(format!("UPID:{id}:{step}"))),
                }
            }
            Effect::Follow { .. } => Event::Task(match answer % 6 {
                0 => TaskEnd::Failed("no".to_owned()),
                1 => TaskEnd::Lost("gone".to_owned()),
                2 => TaskEnd::Warnings(1),
                _ => TaskEnd::Ok,
            }),
            Effect::FindTask(ref lookup) => match answer % 4 {
                0 => Event::Unavailable("node down".to_owned()),
                1 => Event::Found(vec![]),
                2 => Event::Found(vec!["UPID:a".to_owned(), "UPID:b".to_owned()]),
                _ => Event::Found(vec!["UPID:old".to_owned(), format!("UPID:{id}:{}", lookup.step)]),
            },
            Effect::Finish(_) | Effect::Refuse(_) => return,
        };
        running.effect = match &mut running.machine {
            Machine::Apply(apply) => apply.on(event, now).unwrap(),
            Machine::Recover(recover) => recover.on(event, now).unwrap(),
        };
        self.running.push(running);
    }

    /// I1, I2, I3 and I6, at the only moment they can be broken.
    fn check_dispatch(&mut self, id: ChangeSetId, step: usize) {
        let count = self.sent.entry((id, step)).or_default();
        *count += 1;
        assert_eq!(*count, 1, "I1: {id} step {step} was sent twice");
        let durable = self.disk.load(&id).unwrap().unwrap();
        assert_eq!(durable.state(), State::Applying);
        for (earlier, record) in durable.records().iter().enumerate().take(step) {
            assert!(record.outcome.as_ref().is_some_and(StepOutcome::is_ok), "I1: step {earlier} is not OK");
        }
        let intent = durable.records()[step].intent.as_ref().expect("I6: sent without a durable intent");
        assert!(!intent.watermark.is_empty(), "I6: no watermark");
        let approval = durable.approval().expect("I2: sent without an approval");
        assert_eq!(self.agreed.get(&id), Some(&durable.plan().digest()), "I2: another plan was approved");
        match approval.kind() {
            ApprovalKind::LabMode => assert!(durable.plan().lab_mode() && durable.plan().target_protected()),
            ApprovalKind::SecondPerson => {
                assert!(approval.by().is_human(), "I3: approved by no human");
                assert!(!approval.by().is_same_person(durable.plan().planner()), "I3: one person");
            }
        }
    }

    /// The process dies: the machines are gone, the disk stays; recovery looks at what was being applied.
    fn crash(&mut self) {
        self.running.clear();
        for (id, acknowledged) in &self.acknowledged {
            let found = self.disk.load(id).unwrap().expect("I5: an acknowledged set is lost");
            assert!(found.version() >= acknowledged.version(), "I5: {id} went back");
        }
        for set in self.disk.applying().unwrap() {
            let id = set.id();
            let (recover, effect) = Recover::begin(set, Timing::default(), self.now()).unwrap();
            let machine = Machine::Recover(Box::new(recover));
            self.running.push(Running { set: id, machine, effect, decided: None });
        }
    }

    /// I4: nothing leaves a final state, and `unknown` only goes where a person sends it.
    fn check_exits(&self, before: &BTreeMap<ChangeSetId, State>, by_a_person: bool) {
        for (id, from) in before {
            let to = self.disk.load(id).unwrap().unwrap().state();
            if from.is_final() {
                assert_eq!(to, *from, "I4: {id} left a final state");
            }
            if *from == State::Unknown && to != State::Unknown {
                assert!(
                    by_a_person && matches!(to, State::Applied | State::Failed),
                    "I4: {id} from unknown to {to}"
                );
            }
        }
    }

    fn states(&self) -> BTreeMap<ChangeSetId, State> {
        self.ids.iter().map(|id| (*id, self.disk.load(id).unwrap().unwrap().state())).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cs_10_cs_13_cs_16_invariants_hold_in_any_order(ops in vec(any_op(), 1..250)) {
        let mut world = World::default();
        for op in ops {
            let before = world.states();
            let by_a_person = matches!(op, Op::Resolve { .. });
            world.run(op);
            world.check_exits(&before, by_a_person);
        }
        world.crash();
    }
}

/// The model would notice: left to itself, it gets sets to every end and crashes on the way.
#[test]
fn the_model_reaches_every_state_and_sends() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut reached, mut sent) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..400 {
        let mut world = World::default();
        for op in vec(any_op(), 250).new_tree(&mut runner).unwrap().current() {
            world.run(op);
            reached.extend(world.states().into_values());
        }
        sent += world.sent.len();
    }
    assert_eq!(reached.len(), State::ALL.len(), "only {reached:?}");
    assert!(sent > 400, "only {sent} requests in all");
}
