//! The world that the callers share: disk, peer, clock and configuration, and what must hold in it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use changeset::store::StoreError;
use changeset::{
    Actor, ActorKind, ApplyRefusal, ChangeSet, ChangeSetId, Event, Fingerprint, Mark, Plan, PlanDigest,
    SendResult, State, TaskEnd,
};
use jiff::Timestamp;

use crate::Bounds;
use crate::common::{agent, at, draft, fingerprint, human, key, planned, two_steps};
use crate::disk::Disk;
use crate::run::{Run, Want};

mod acts;
mod checks;

pub(crate) use acts::{Act, By, Call, Change, Happened, Invariant, Turn};

#[derive(Debug, Clone)]
enum Slot {
    Idle,
    /// A move was made of what was loaded, and waits to be stored; `None` for a new set.
    Writing {
        before: Option<u64>,
        next: Box<ChangeSet>,
        by_a_person: bool,
    },
    Running(Box<Run>),
}

/// What the peer knows about one request.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    sent: u8,
    arrived: bool,
    ended: Option<bool>,
}

/// One state of everything. Two worlds are the same when all that decides their future is.
#[derive(Debug, Clone)]
pub(crate) struct World {
    bounds: Bounds,
    disk: Disk,
    slots: Vec<Slot>,
    peer: BTreeMap<(u8, usize), Request>,
    attempts: BTreeSet<(u8, usize)>,
    agreed: BTreeMap<u8, PlanDigest>,
    told: BTreeMap<u8, (u64, State)>,
    resolved: u8,
    planned: u8,
    seconds: u64,
    approver_stands: bool,
    planner_stands: bool,
    moved: bool,
    protected: bool,
    broken: u16,
    happened: u16,
    key: [u64; 2],
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key.hash(hasher);
    }
}

fn id_of(n: u8) -> ChangeSetId {
    ChangeSetId::from_entropy([n; 16])
}

fn planner() -> Actor {
    Actor::new("bot", "ann", Some(ActorKind::Agent))
}

fn task(n: u8, step: usize) -> String {
    format!("UPID:{n}:{step}")
}

impl World {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let mut world = Self {
            bounds,
            disk: Disk::new(bounds.disk),
            slots: vec![Slot::Idle, Slot::Idle],
            peer: BTreeMap::new(),
            attempts: BTreeSet::new(),
            agreed: BTreeMap::new(),
            told: BTreeMap::new(),
            resolved: 0,
            planned: 0,
            seconds: 0,
            approver_stands: true,
            planner_stands: true,
            moved: false,
            protected: false,
            broken: 0,
            happened: 0,
            key: [0; 2],
        };
        world.seal();
        world
    }

    pub(crate) fn holds(&self, invariant: Invariant) -> bool {
        self.broken & (1 << invariant as u16) == 0
    }

    pub(crate) fn saw(&self, what: Happened) -> bool {
        self.happened & (1 << what as u16) != 0
    }

    pub(crate) fn has(&self, state: State) -> bool {
        self.sets().any(|(_, set)| set.state() == state)
    }

    fn sets(&self) -> impl Iterator<Item = (u8, ChangeSet)> {
        (0..self.planned).filter_map(|n| Some((n, self.disk.load(id_of(n))?)))
    }

    fn now(&self) -> Timestamp {
        at(self.seconds)
    }

    fn check(&mut self, invariant: Invariant, holds: bool) {
        if !holds {
            self.broken |= 1 << invariant as u16;
        }
    }

    fn note(&mut self, what: Happened) {
        self.happened |= 1 << what as u16;
    }

    // ---- what can happen -------------------------------------------------------------------------------------------

    pub(crate) fn possible(&self, acts: &mut Vec<Act>) {
        for (n, slot) in self.slots.iter().enumerate() {
            match slot {
                // The callers are alike, so the second begins only when the first is busy.
                Slot::Idle if self.bounds.calls > 0 && n < 2 => {
                    if n == 0 || !matches!(self.slots.first(), Some(Slot::Idle)) {
                        self.calls(n, acts);
                    }
                }
                Slot::Idle => {}
                Slot::Writing { .. } => self.turns(n, &[Turn::Well], &[Turn::Unreadable], acts),
                Slot::Running(run) => {
                    let (free, costly): (&[Turn], &[Turn]) = match run.want() {
                        Want::Decide { .. } | Want::Watermark => (&[Turn::Well], &[Turn::Unreadable]),
                        Want::Persist { .. } => {
                            (&[Turn::Well], &[Turn::Unreadable, Turn::DoneAndReportedFailed])
                        }
                        Want::Send { .. } => {
                            (&[Turn::Well, Turn::Badly, Turn::LostAfter, Turn::LostBefore], &[])
                        }
                        Want::Follow { .. } => (&[Turn::Well, Turn::Badly], &[Turn::Unreadable]),
                        Want::Find(_) => (&[Turn::Well], &[Turn::Unreadable, Turn::Ambiguous]),
                        Want::Finish(_) | Want::Refuse(_) => (&[], &[]),
                    };
                    self.turns(n, free, costly, acts);
                }
            }
        }
        if self.bounds.changes > 0 {
            let open = [
                (Change::ApproverRevoked, self.approver_stands),
                (Change::PlannerRevoked, self.planner_stands),
                (Change::GuestMoved, !self.moved),
                (Change::GuestProtected, !self.protected),
            ];
            acts.extend(open.iter().filter(|(_, open)| *open).map(|(change, _)| Act::Reload(*change)));
        }
        if self.bounds.waits > 0 && self.deadline().is_some() {
            acts.push(Act::Wait);
        }
        if self.bounds.crashes > 0 {
            acts.push(Act::Crash);
        }
    }

    fn turns(&self, n: usize, free: &[Turn], costly: &[Turn], acts: &mut Vec<Act>) {
        let costly = if self.bounds.faults > 0 { costly } else { &[] };
        acts.extend(free.iter().chain(costly).map(|turn| Act::Go(n, *turn)));
    }

    fn calls(&self, n: usize, acts: &mut Vec<Act>) {
        if self.planned < self.bounds.sets {
            acts.push(Act::Begin(n, Call::Plan, self.planned));
        }
        let approvals = [By::Olga, By::Planner, By::Agent, By::OlgaOfAnother].map(Call::Approve);
        let resolves = [true, false].map(|applied| Call::Resolve { applied });
        for (of, _) in self.sets() {
            let others = [Call::Reject, Call::Cancel, Call::Expire, Call::Apply];
            let all = approvals.into_iter().chain(others).chain(resolves);
            acts.extend(all.map(|call| Act::Begin(n, call, of)));
        }
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.sets().filter_map(|(_, set)| set.deadline()).filter(|deadline| *deadline > self.now()).min()
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    /// The world after it; `None` when nothing changes.
    pub(crate) fn after(&self, act: Act) -> Option<Self> {
        let mut next = self.clone();
        next.happened = 0;
        let before: Vec<(u8, ChangeSet)> = self.sets().collect();
        let resolving = self.by_a_person(act);
        match act {
            Act::Begin(n, call, of) => next.begin(n, call, of)?,
            Act::Go(n, turn) => next.go(n, turn),
            Act::Reload(change) => next.reload(change),
            Act::Wait => {
                let until = self.deadline()?.duration_since(at(0));
                next.seconds = u64::try_from(until.as_secs()).expect("after the start");
                next.bounds.waits -= 1;
            }
            Act::Crash => next.crash(),
        }
        next.check_exits(&before, resolving);
        next.check_truth();
        next.seal();
        Some(next)
    }

    fn by_a_person(&self, act: Act) -> bool {
        let Act::Go(n, _) = act else { return false };
        matches!(self.slots.get(n), Some(Slot::Writing { by_a_person: true, .. }))
    }

    fn begin(&mut self, n: usize, call: Call, of: u8) -> Option<()> {
        let now = self.disk.observe(self.now()).ok()?;
        let load = |world: &Self| world.disk.load(id_of(of));
        let slot = match call {
            Call::Plan => {
                let mut draft = if self.bounds.steps == 1 { draft(of) } else { two_steps(of) };
                draft.planner = planner();
                draft.target.key = "guest/905".to_owned();
                draft.created = now;
                self.planned += 1;
                let next = Box::new(planned(draft));
                Slot::Writing { before: None, next, by_a_person: false }
            }
            Call::Apply => {
                let run = Run::apply(load(self)?, agent("bot"), now);
                // What is refused at the door changes nothing.
                if matches!(run.want(), Want::Refuse(_)) {
                    return None;
                }
                Slot::Running(Box::new(run))
            }
            call => {
                let set = load(self)?;
                let (olga, other) = (human("olga"), Plan::new(two_steps(255)).expect("a plan").digest());
                let made = match call {
                    Call::Approve(by) => {
                        let (who, seen) = match by {
                            By::Olga => (olga, set.digest()),
                            By::OlgaOfAnother => (olga, other),
                            By::Agent => (agent("bot2"), set.digest()),
                            By::Planner => (Actor::new("ann-2", "ANN", Some(ActorKind::Human)), set.digest()),
                        };
                        let made = set.approve(&who, &seen, &key(), now);
                        self.check(Invariant::TwoPeople, by == By::Olga || made.is_err());
                        made
                    }
                    Call::Reject => set.reject(&olga, "no", now),
                    Call::Cancel => set.cancel(&planner(), "", now),
                    Call::Expire => set.expire(now),
                    Call::Resolve { applied: true } => set.resolve_applied(&olga, "looked", now),
                    Call::Resolve { applied: false } => set.resolve_failed(&olga, "looked", now),
                    Call::Plan | Call::Apply => unreachable!("handled above"),
                };
                let next = Box::new(made.ok()?);
                if *next == set {
                    return None;
                }
                let by_a_person = matches!(call, Call::Resolve { .. });
                Slot::Writing { before: Some(set.version()), next, by_a_person }
            }
        };
        self.bounds.calls -= 1;
        self.slots[n] = slot;
        Some(())
    }

    fn go(&mut self, n: usize, turn: Turn) {
        if matches!(turn, Turn::Unreadable | Turn::DoneAndReportedFailed | Turn::Ambiguous) {
            self.bounds.faults -= 1;
        }
        let slot = std::mem::replace(&mut self.slots[n], Slot::Idle);
        self.slots[n] = match slot {
            Slot::Idle => Slot::Idle,
            Slot::Writing { before, next, by_a_person } => {
                self.write(before, &next, by_a_person, turn);
                Slot::Idle
            }
            Slot::Running(run) => self.run(run, turn),
        };
    }

    /// A person's move is stored, or somebody was faster.
    fn write(&mut self, before: Option<u64>, next: &ChangeSet, by_a_person: bool, turn: Turn) {
        if turn != Turn::Well {
            return;
        }
        let stored = match before {
            None => self.disk.insert(next),
            Some(version) => self.disk.replace_if(next, version),
        };
        match self.store_said(stored) {
            Some(true) => {
                let n = self.number(next.id());
                if next.state() == State::Approved {
                    self.agreed.insert(n, next.digest());
                }
                if by_a_person {
                    self.resolved |= 1 << n;
                    self.note(Happened::Resolved);
                }
                self.tell_caller(next);
            }
            Some(false) if before.is_some() => self.note(Happened::RaceLost),
            _ => {}
        }
    }

    /// `None` for an error that a caller is told; an unlawful successor is a finding.
    fn store_said(&mut self, stored: Result<bool, StoreError>) -> Option<bool> {
        if let Err(error) = &stored {
            self.check(Invariant::Lawful, matches!(error, StoreError::ClockSetBack { .. }));
        }
        stored.ok()
    }

    fn tell_caller(&mut self, set: &ChangeSet) {
        let n = self.number(set.id());
        self.told.insert(n, (set.version(), set.state()));
    }

    fn number(&self, id: ChangeSetId) -> u8 {
        (0..self.planned).find(|n| id_of(*n) == id).expect("a set of this world")
    }

    fn run(&mut self, mut run: Box<Run>, turn: Turn) -> Slot {
        let n = self.number(run.id());
        let event = match run.want().clone() {
            Want::Decide { step } => {
                let (approver_valid, planner_valid) = (self.approver_stands, self.planner_stands);
                let clean = approver_valid && planner_valid && !self.moved && !self.protected;
                run.decided = Some((step, turn == Turn::Well && clean));
                if turn == Turn::Unreadable {
                    Event::Unavailable("timeout".to_owned())
                } else if self.protected {
                    Event::Denied("protected".to_owned())
                } else {
                    Event::Decided { fingerprint: self.fingerprint(), approver_valid, planner_valid }
                }
            }
            Want::Watermark if turn == Turn::Unreadable => Event::Unavailable("timeout".to_owned()),
            Want::Watermark => {
                Event::Watermark { tasks: vec!["UPID:old".to_owned()], node: "pve1".to_owned() }
            }
            Want::Persist { set, expected_version, mark } => self.persist(&set, expected_version, mark, turn),
            Want::Send { set, step, node, op } => {
                assert_eq!((set, node.as_str()), (run.id(), "pve1"));
                self.send(&run, n, step, &op, turn)
            }
            Want::Follow { step } => {
                let request = self.peer.entry((n, step)).or_default();
                Event::Task(match turn {
                    Turn::Unreadable => TaskEnd::Lost("gone".to_owned()),
                    // A task ends once, however often it is asked.
                    _ if *request.ended.get_or_insert(turn == Turn::Well) => TaskEnd::Ok,
                    _ => TaskEnd::Failed("no space".to_owned()),
                })
            }
            Want::Find(lookup) => {
                let arrived = self.peer.get(&(n, lookup.step)).is_some_and(|request| request.arrived);
                let mut tasks = vec!["UPID:old".to_owned()];
                tasks.extend(arrived.then(|| task(n, lookup.step)));
                match turn {
                    Turn::Unreadable => Event::Unavailable("node down".to_owned()),
                    Turn::Ambiguous => {
                        tasks.extend(["UPID:a".to_owned(), "UPID:b".to_owned()]);
                        Event::Found(tasks)
                    }
                    _ => {
                        if arrived {
                            self.note(Happened::Adopted);
                        }
                        Event::Found(tasks)
                    }
                }
            }
            Want::Finish(_) | Want::Refuse(_) => panic!("a machine that is done has no slot"),
        };
        run.tell(event, self.now());
        match run.want() {
            Want::Refuse(refusal) => self.refused(refusal),
            Want::Finish(finish) if finish.problem.is_none() => {
                self.tell_caller(&finish.set);
                if run.is_recovery() {
                    self.note(Happened::Recovered);
                }
            }
            Want::Finish(_) => {}
            _ => return Slot::Running(run),
        }
        Slot::Idle
    }

    fn refused(&mut self, refusal: &ApplyRefusal) {
        match refusal {
            ApplyRefusal::Conflict => self.note(Happened::RaceLost),
            ApplyRefusal::StoreFailed(_) => self.note(Happened::WriteFailed),
            ApplyRefusal::ApproverInvalid { .. }
            | ApplyRefusal::PlannerInvalid { .. }
            | ApplyRefusal::Denied(_)
            | ApplyRefusal::FingerprintMoved { .. } => self.note(Happened::Stopped),
            _ => {}
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut facts = fingerprint();
        if self.moved {
            facts.fields.insert("status".to_owned(), "running".to_owned());
        }
        facts
    }

    fn persist(&mut self, set: &ChangeSet, expected_version: u64, mark: Mark, turn: Turn) -> Event {
        if mark == Mark::Intent {
            let n = self.number(set.id());
            let open = set.records().iter().rposition(|record| record.intent.is_some());
            self.attempts.insert((n, open.expect("an intent")));
        }
        if turn == Turn::Unreadable {
            return Event::PersistFailed("no space".to_owned());
        }
        let stored = self.disk.replace_if(set, expected_version);
        match self.store_said(stored) {
            None => Event::PersistFailed("the clock".to_owned()),
            Some(false) => Event::Conflict,
            Some(true) if turn == Turn::DoneAndReportedFailed => {
                Event::PersistFailed("after the write".to_owned())
            }
            Some(true) => {
                self.tell_caller(set);
                Event::Persisted
            }
        }
    }

    /// The only moment at which most of what must hold can be broken.
    fn send(&mut self, run: &Run, n: u8, step: usize, op: &str, turn: Turn) -> Event {
        self.check(Invariant::Once, !run.is_recovery());
        let request = self.peer.entry((n, step)).or_default();
        request.sent += 1;
        let (sent, arrives) = (request.sent, matches!(turn, Turn::Well | Turn::LostAfter));
        request.arrived |= arrives;
        self.check(Invariant::Once, sent == 1);
        self.check(Invariant::AuditFirst, self.attempts.contains(&(n, step)));
        self.check(Invariant::FreshFacts, run.decided.is_some_and(|(decided, _)| decided == step));
        self.check(Invariant::TwoPeople, run.decided.is_some_and(|(_, clean)| clean));
        match self.disk.load(run.id()) {
            None => self.check(Invariant::IntentFirst, false),
            Some(durable) => self.check_durable(&durable, n, step, op),
        }
        Event::Sent(match turn {
            Turn::Badly => SendResult::Refused("locked".to_owned()),
            Turn::LostAfter | Turn::LostBefore => SendResult::Unknown("reset".to_owned()),
            _ => SendResult::Handle(task(n, step)),
        })
    }

    fn reload(&mut self, change: Change) {
        self.bounds.changes -= 1;
        match change {
            Change::ApproverRevoked => self.approver_stands = false,
            Change::PlannerRevoked => self.planner_stands = false,
            Change::GuestMoved => self.moved = true,
            Change::GuestProtected => self.protected = true,
        }
    }

    /// Everything but the disk is gone; recovery looks at what was being applied.
    fn crash(&mut self) {
        self.bounds.crashes -= 1;
        self.disk.crash();
        for (n, (version, state)) in self.told.clone() {
            let found = self.disk.load(id_of(n));
            let kept = found.as_ref().is_some_and(|set| {
                set.version() >= version && (set.version() > version || set.state() == state)
            });
            self.check(Invariant::Survives, kept);
        }
        self.slots = vec![Slot::Idle, Slot::Idle];
        let now = self.now();
        let recoveries = self.disk.applying().into_iter().map(|set| Run::recover(set, now));
        self.slots.extend(recoveries.map(|run| Slot::Running(Box::new(run))));
    }

    /// Computes what tells this world from others.
    fn seal(&mut self) {
        let mut slots: Vec<String> = self.slots.iter().map(Slot::view).collect();
        // The callers are alike.
        slots[..2].sort();
        let sets: Vec<String> = self
            .sets()
            .map(|(n, set)| {
                let approval = set.approval().map(|a| (a.by().token.clone(), a.at()));
                let ended = set.ending().map(|ending| (ending.at, ending.note.clone()));
                format!(
                    "{n} {} {} {} {:?} {approval:?} {ended:?}",
                    set.state(),
                    set.version(),
                    set.updated(),
                    set.records()
                )
            })
            .collect();
        let Bounds { calls, faults, changes, waits, crashes, .. } = self.bounds;
        let kept = match &self.disk {
            Disk::WritesLate { kept, .. } => format!("{kept:?}"),
            _ => String::new(),
        };
        let text = format!(
            "{slots:?} {sets:?} {kept} {:?} {:?} {:?} {:?} {} {} {} {:?} {} {} {calls} {faults} {changes} {waits} {crashes}",
            self.peer,
            self.attempts,
            self.agreed.keys(),
            self.told,
            self.resolved,
            self.planned,
            self.seconds,
            [self.approver_stands, self.planner_stands, self.moved, self.protected],
            self.broken,
            self.happened,
        );
        self.key = [0_u8, 1].map(|salt| {
            let mut hasher = DefaultHasher::new();
            (salt, &text).hash(&mut hasher);
            hasher.finish()
        });
    }
}

impl Slot {
    fn view(&self) -> String {
        match self {
            Self::Idle => "idle".to_owned(),
            Self::Writing { before, next, .. } => {
                let ending = next.ending().map(|ending| ending.note.clone());
                format!("{before:?} {} {} {} {ending:?}", next.id(), next.state(), next.updated())
            }
            Self::Running(run) => run.view(),
        }
    }
}
