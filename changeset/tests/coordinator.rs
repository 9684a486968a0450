//! The apply machine: its order, its refusals, and that nothing is ever sent twice.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use changeset::store::{Limits, Store};
use changeset::{
    Apply, ApplyRefusal, ApprovalKey, ChangeSet, DispatchPermit, Effect, Event, Fingerprint, Finish, Mark,
    MemoryStore, Plan, SendResult, State, StepOutcome, TaskEnd, Timing, UnknownCause,
};
use common::{agent, approved, at, draft, fingerprint, human, key, planned, two_steps};

mod common;

/// An apply over a real store.
struct Run {
    store: MemoryStore,
    apply: Apply,
    sent: Vec<(usize, String)>,
}

impl Run {
    fn begin(set: ChangeSet) -> (Self, Effect) {
        Self::begin_in(stored(&set), set)
    }

    fn begin_in(store: MemoryStore, set: ChangeSet) -> (Self, Effect) {
        let (apply, effect) = Apply::begin(set, agent("bot"), &key(), Timing::default(), at(61));
        (Self { store, apply, sent: Vec::new() }, effect)
    }

    fn on(&mut self, event: Event) -> Effect {
        self.apply.on(event, at(62)).unwrap()
    }

    fn decide(&mut self) -> Effect {
        self.on(decided(fingerprint()))
    }

    fn mark(&mut self) -> Effect {
        self.on(Event::Watermark { tasks: vec!["UPID:old".to_owned()], node: "pve1".to_owned() })
    }

    /// Does what a `Persist` asks for.
    fn persist(&mut self, effect: Effect, expected: Mark) -> Effect {
        let Effect::Persist { set, expected_version, mark } = effect else { panic!("{effect:?}") };
        assert_eq!(mark, expected);
        let event = match self.store.replace_if(&set, expected_version) {
            Ok(true) => Event::Persisted,
            Ok(false) => Event::Conflict,
            Err(error) => Event::PersistFailed(error.to_string()),
        };
        self.on(event)
    }

    /// Goes from the decision to the send of a step.
    fn until_send(&mut self) -> DispatchPermit {
        let fresh = self.decide();
        assert!(matches!(fresh, Effect::Watermark { .. }), "{fresh:?}");
        let intent = self.mark();
        let Effect::Send { step, permit } = self.persist(intent, Mark::Intent) else { panic!("no permit") };
        self.sent.push((step, permit.step().op.clone()));
        permit
    }

    /// The request was accepted and the task ended so.
    fn task(&mut self, end: TaskEnd, mark: Mark) -> Effect {
        let effect = self.on(Event::Sent(SendResult::Handle("UPID:new".to_owned())));
        let follow = self.persist(effect, Mark::Handle);
        assert!(matches!(&follow, Effect::Follow { handle, .. } if handle == "UPID:new"), "{follow:?}");
        let effect = self.on(Event::Task(end));
        self.persist(effect, mark)
    }

    fn stored(&self, set: &ChangeSet) -> ChangeSet {
        self.store.load(&set.id()).unwrap().unwrap()
    }
}

fn stored(set: &ChangeSet) -> MemoryStore {
    let mut store = MemoryStore::new();
    let first = if set.approval().is_some_and(|a| a.kind() == changeset::ApprovalKind::SecondPerson) {
        ChangeSet::planned(set.plan().clone())
    } else {
        set.clone()
    };
    store.insert(&first, &Limits::default()).unwrap();
    assert!(store.advance(&first, set).unwrap());
    store
}

fn decided(fingerprint: Fingerprint) -> Event {
    Event::Decided { fingerprint, approver_valid: true, planner_valid: true }
}

fn finished(effect: Effect) -> Finish {
    let Effect::Finish(finish) = effect else { panic!("{effect:?}") };
    finish
}

fn refusal(effect: Effect) -> ApplyRefusal {
    let Effect::Refuse(refusal) = effect else { panic!("{effect:?}") };
    refusal
}

#[test]
fn an_approved_set_is_applied_in_order() {
    let set = approved(draft(1));
    let (mut run, effect) = Run::begin(set.clone());
    assert!(matches!(effect, Effect::ResolveAndDecide { step: 0 }));
    assert!(run.apply.nothing_sent());
    let permit = run.until_send();
    assert!(!run.apply.nothing_sent());
    assert_eq!((permit.set(), permit.index(), permit.node()), (set.id(), 0, "pve1"));
    assert_eq!((permit.target(), permit.step()), (set.plan().target(), &set.plan().steps()[0]));
    assert_eq!(permit.fingerprint(), &fingerprint());
    let durable = run.stored(&set);
    let intent = durable.records()[0].intent.as_ref().unwrap();
    assert_eq!((durable.state(), intent.node.as_str()), (State::Applying, "pve1"));
    assert!(intent.watermark.contains("UPID:old"), "the intent names a watermark before the send");
    let finish = finished(run.task(TaskEnd::Ok, Mark::End));
    assert_eq!((finish.set.state(), finish.problem), (State::Applied, None));
    assert_eq!(run.stored(&set), *finish.set);
    assert_eq!(finish.set.applied_by(), Some(&agent("bot")));
    let late = run.apply.on(Event::Persisted, at(63)).unwrap_err();
    assert_eq!(
        late.to_string(),
        "the event does not answer the last effect: the machine waits for nothing: it is done"
    );
}

#[test]
fn cs_13_only_an_approved_set_is_applied() {
    let set = planned(draft(1));
    for unapproved in [
        set.clone(),
        set.reject(&human("olga"), "", at(1)).unwrap(),
        set.cancel(&agent("bot"), "", at(1)).unwrap(),
        set.expire(set.plan().expires()).unwrap(),
    ] {
        let (state, mut run) = (unapproved.state(), Run::begin(unapproved));
        assert_eq!(refusal(run.1), ApplyRefusal::NotApproved { state });
        assert!(run.0.apply.on(decided(fingerprint()), at(62)).is_err(), "{state} went on");
    }
}

#[test]
fn cs_18_an_ended_set_is_never_applied_again() {
    for (end, state) in [
        (TaskEnd::Ok, State::Applied),
        (TaskEnd::Failed("no".to_owned()), State::Failed),
        (TaskEnd::Lost("gone".to_owned()), State::Unknown),
    ] {
        let set = approved(draft(1));
        let (mut run, _) = Run::begin(set.clone());
        run.until_send();
        let ended = finished(run.task(end, Mark::End)).set;
        let (_, effect) = Run::begin_in(run.store.clone(), *ended);
        assert_eq!(refusal(effect), ApplyRefusal::NotApproved { state });
        // Nor with the approved set from before: the claim was spent.
        let (mut replay, _) = Run::begin_in(run.store, set);
        replay.decide();
        let intent = replay.mark();
        assert_eq!(refusal(replay.persist(intent, Mark::Intent)), ApplyRefusal::Conflict);
    }
}

#[test]
fn cs_18_the_same_plan_again_is_another_set() {
    let (one, other) = (planned(draft(1)), {
        let mut again = draft(1);
        again.id = changeset::ChangeSetId::from_entropy([99; 16]);
        planned(again)
    });
    assert!(one.plan().asks_the_same(other.plan()));
    assert_ne!(one.digest(), other.digest(), "an approval of one is none of the other");
    assert!(other.approve(&human("olga"), &one.digest(), &key(), at(1)).is_err());
}

#[test]
fn cs_16_a_set_being_applied_is_refused() {
    let set = approved(draft(1));
    let (mut run, _) = Run::begin(set.clone());
    run.until_send();
    let (_, effect) = Run::begin_in(run.store.clone(), run.stored(&set));
    assert_eq!(refusal(effect), ApplyRefusal::AlreadyApplying);
}

#[test]
fn cs_12_both_tokens_must_still_stand() {
    for (approver_valid, planner_valid, code) in [
        (false, true, "approver_invalid"),
        (true, false, "planner_invalid"),
        (false, false, "planner_invalid"),
    ] {
        let set = approved(draft(1));
        let (mut run, _) = Run::begin(set.clone());
        let event = Event::Decided { fingerprint: fingerprint(), approver_valid, planner_valid };
        let refused = refusal(run.on(event));
        assert_eq!(refused.code(), code);
        let token = if planner_valid { "olga" } else { "bot" };
        assert!(refused.to_string().contains(&format!("by `{token}` no longer stands")), "{refused}");
        assert_eq!(run.stored(&set), set, "the set is as it was");
    }
}

#[test]
fn cs_20_a_moved_target_is_refused_by_field() {
    let set = approved(draft(1));
    let (mut run, _) = Run::begin(set.clone());
    let mut moved = fingerprint();
    moved.fields.insert("name".to_owned(), "other".to_owned());
    moved.fields.remove("tags");
    moved.fields.insert("hwaddr".to_owned(), "bc:24:11".to_owned());
    let refused = refusal(run.on(decided(moved)));
    let fields = vec!["hwaddr".to_owned(), "name".to_owned(), "tags".to_owned()];
    assert_eq!(refused, ApplyRefusal::FingerprintMoved { fields });
    assert!(refused.to_string().contains("hwaddr, name, tags"), "{refused}");
    assert_eq!(run.stored(&set), set);
}

#[test]
fn what_is_denied_or_unreadable_before_the_intent_sends_nothing() {
    for before_watermark in [true, false] {
        for event in [Event::Denied("protected".to_owned()), Event::Unavailable("timeout".to_owned())] {
            let set = approved(draft(1));
            let (mut run, _) = Run::begin(set.clone());
            if !before_watermark {
                run.decide();
            }
            let code = if matches!(event, Event::Denied(_)) { "denied" } else { "unavailable" };
            assert_eq!(refusal(run.on(event)).code(), code);
            assert_eq!(run.stored(&set), set);
        }
    }
}

#[test]
fn cs_14_an_approval_that_expires_on_the_way_is_not_applied() {
    let set = approved(draft(1));
    let end = set.deadline().unwrap();
    let begin = |now| Apply::begin(set.clone(), agent("bot"), &key(), Timing::default(), now);
    assert_eq!(refusal(begin(end).1), ApplyRefusal::Expired { at: end });
    let (mut apply, _) = begin(end - std::time::Duration::from_nanos(1));
    apply.on(decided(fingerprint()), end).unwrap();
    let effect = apply.on(Event::Watermark { tasks: vec![], node: "pve1".to_owned() }, end).unwrap();
    assert_eq!(refusal(effect), ApplyRefusal::Expired { at: end });
}

#[test]
fn an_approval_under_a_lost_key_is_void() {
    let (_, effect) =
        Apply::begin(approved(draft(1)), agent("bot"), &ApprovalKey::new([9; 32]), Timing::default(), at(61));
    assert_eq!(refusal(effect), ApplyRefusal::ApprovalVoid);
}

#[test]
fn a_lab_mode_approval_is_applied_while_lab_mode_lasts() {
    let set = |n| {
        let mut plan = draft(n);
        (plan.lab_mode, plan.target_protected) = (true, true);
        ChangeSet::create(Plan::new(plan).unwrap(), &key())
    };
    let (mut run, _) = Run::begin(set(1));
    let over = Event::Decided { fingerprint: fingerprint(), approver_valid: false, planner_valid: true };
    assert_eq!(refusal(run.on(over)), ApplyRefusal::ApproverInvalid { approver: "lab mode".to_owned() });
    let (mut run, _) = Run::begin(set(2));
    run.until_send();
    assert_eq!(finished(run.task(TaskEnd::Ok, Mark::End)).set.state(), State::Applied);
}

/// In every phase, every event that does not answer the last effect is refused and moves nothing; above all, no
/// permit comes from anything but the durable intent.
#[test]
fn cs_13_only_a_durable_intent_yields_a_permit() {
    let events = || {
        [
            Event::Conflict,
            decided(fingerprint()),
            Event::Denied("no".to_owned()),
            Event::Found(vec!["UPID:new".to_owned()]),
            Event::PersistFailed("disk".to_owned()),
            Event::Persisted,
            Event::Sent(SendResult::Synchronous),
            Event::Task(TaskEnd::Ok),
            Event::Unavailable("no".to_owned()),
            Event::Watermark { tasks: vec![], node: "pve1".to_owned() },
        ]
    };
    type Drive = fn(&mut Run);
    // What is awaited, the way there, and the events that answer it.
    let phases: [(&str, Drive, &[usize]); 7] = [
        ("the decision", |_| {}, &[1, 2, 8]),
        ("the watermark", |run| drop(run.decide()), &[2, 8, 9]),
        ("the result of storing the intent", |run| drop((run.decide(), run.mark())), &[0, 4, 5]),
        ("the result of the send", |run| drop(run.until_send()), &[6]),
        (
            "the result of storing the handle",
            |run| drop((run.until_send(), run.on(Event::Sent(SendResult::Handle("UPID:new".to_owned()))))),
            &[0, 4, 5],
        ),
        (
            "the tasks found",
            |run| drop((run.until_send(), run.on(Event::Sent(SendResult::Unknown("reset".to_owned()))))),
            &[3, 8],
        ),
        (
            "the result of storing the end",
            |run| drop((run.until_send(), run.on(Event::Sent(SendResult::Synchronous)))),
            &[0, 4, 5],
        ),
    ];
    for (awaited, drive, answers) in phases {
        for (n, event) in events().into_iter().enumerate() {
            let (mut run, _) = Run::begin(approved(draft(1)));
            drive(&mut run);
            let before = format!("{:?}", run.apply);
            let is_permit_due = awaited == "the result of storing the intent" && event == Event::Persisted;
            let name = format!("{event:?} for {awaited}");
            match run.apply.on(event, at(62)) {
                Ok(effect) => {
                    assert!(answers.contains(&n), "{name} was taken");
                    assert_eq!(matches!(effect, Effect::Send { .. }), is_permit_due, "{name}");
                }
                Err(error) => {
                    assert!(!answers.contains(&n), "{name} was refused");
                    assert_eq!(error.expected, awaited);
                    assert_eq!(format!("{:?}", run.apply), before, "{name} moved the machine");
                }
            }
        }
    }
}

#[test]
fn an_intent_that_is_not_durable_sends_nothing() {
    for (event, code) in
        [(Event::Conflict, "conflict"), (Event::PersistFailed("disk full".to_owned()), "store_failed")]
    {
        let (mut run, _) = Run::begin(approved(draft(1)));
        run.decide();
        run.mark();
        assert_eq!(refusal(run.on(event)).code(), code);
        assert!(run.apply.on(Event::Persisted, at(63)).is_err(), "a late answer yields a permit");
    }
}

#[test]
fn cs_27_a_send_in_doubt_is_looked_up_and_never_repeated() {
    for (found, state, cause) in [
        (vec!["UPID:old", "UPID:new"], State::Applied, None),
        (vec!["UPID:new", "UPID:new"], State::Applied, None),
        (vec!["UPID:old"], State::Unknown, Some(UnknownCause::NotFound)),
        (vec![], State::Unknown, Some(UnknownCause::NotFound)),
        (vec!["UPID:new", "UPID:new2"], State::Unknown, Some(UnknownCause::Ambiguous(2))),
    ] {
        let set = approved(draft(1));
        let (mut run, _) = Run::begin(set.clone());
        run.until_send();
        let effect = run.on(Event::Sent(SendResult::Unknown("connection reset".to_owned())));
        let Effect::FindTask(lookup) = effect else { panic!("{effect:?}") };
        assert_eq!((lookup.op.as_str(), lookup.node.as_str(), lookup.step), ("destroy_lxc", "pve1", 0));
        assert_eq!(lookup.not_before, at(62) + Timing::default().settle);
        let effect = run.on(Event::Found(found.iter().map(|task| (*task).to_owned()).collect()));
        let finish = if cause.is_none() {
            let follow = run.persist(effect, Mark::Handle);
            assert!(matches!(&follow, Effect::Follow { handle, .. } if handle == "UPID:new"), "{follow:?}");
            let effect = run.on(Event::Task(TaskEnd::Ok));
            finished(run.persist(effect, Mark::End))
        } else {
            finished(run.persist(effect, Mark::End))
        };
        assert_eq!(finish.set.state(), state, "{found:?}");
        let outcome = cause.map_or(StepOutcome::Ok, StepOutcome::Unknown);
        assert_eq!(finish.set.records()[0].outcome, Some(outcome));
        assert_eq!(run.sent.len(), 1);
        assert_eq!(run.stored(&set), *finish.set);
    }
}

#[test]
fn a_refused_request_is_a_failure_not_a_doubt() {
    let (mut run, _) = Run::begin(approved(draft(1)));
    run.until_send();
    let effect = run.on(Event::Sent(SendResult::Refused("can't lock file".to_owned())));
    let set = finished(run.persist(effect, Mark::End)).set;
    assert_eq!(set.state(), State::Failed);
    assert_eq!(set.ending().unwrap().note, "step 1 failed: can't lock file");
}

#[test]
fn cs_30_only_ok_is_success_and_warnings_are_shown() {
    let failed = |text: &str| TaskEnd::Failed(text.to_owned());
    for (text, end) in [
        ("OK", TaskEnd::Ok),
        ("WARNINGS: 3", TaskEnd::Warnings(3)),
        ("ok", failed("ok")),
        ("OK ", failed("OK ")),
        ("", failed("")),
        ("WARNINGS: ", failed("WARNINGS: ")),
        ("WARNINGS: -1", failed("WARNINGS: -1")),
        ("WARNINGS: +1", failed("WARNINGS: +1")),
        ("WARNINGS: 99999999999999999999", failed("WARNINGS: 99999999999999999999")),
        ("warnings: 3", failed("warnings: 3")),
        ("unexpected status", failed("unexpected status")),
        ("interrupted by signal", failed("interrupted by signal")),
    ] {
        assert_eq!(TaskEnd::from_exit_status(text), end, "{text:?}");
        let (mut run, _) = Run::begin(approved(draft(1)));
        run.until_send();
        let set = finished(run.task(end.clone(), Mark::End)).set;
        let success = matches!(end, TaskEnd::Ok | TaskEnd::Warnings(_));
        assert_eq!(set.state(), if success { State::Applied } else { State::Failed }, "{text:?}");
        if end == TaskEnd::Warnings(3) {
            assert_eq!(set.ending().unwrap().note, "ended with 3 warnings in step 1");
        }
    }
}

#[test]
fn steps_run_in_order_each_after_a_fresh_decision() {
    let set = approved(two_steps(1));
    let (mut run, _) = Run::begin(set.clone());
    run.until_send();
    let effect = run.task(TaskEnd::Warnings(1), Mark::StepEnd);
    assert!(matches!(effect, Effect::ResolveAndDecide { step: 1 }), "{effect:?}");
    // The snapshot moved the config digest, as the plan said it would.
    let mut moved = fingerprint();
    moved.fields.insert("config_digest".to_owned(), "6666".to_owned());
    assert!(matches!(run.on(decided(moved)), Effect::Watermark { step: 1 }));
    let intent = run.mark();
    let Effect::Send { step: 1, permit } = run.persist(intent, Mark::Intent) else { panic!("no permit") };
    assert_eq!((permit.index(), permit.step().op.as_str()), (1, "destroy_lxc"));
    let set = finished(run.task(TaskEnd::Ok, Mark::End)).set;
    assert_eq!(set.state(), State::Applied);
    assert!(set.records().iter().all(|record| record.outcome.as_ref().unwrap().is_ok()));
}

#[test]
fn a_first_step_compares_the_fields_it_is_going_to_move() {
    let (mut run, _) = Run::begin(approved(two_steps(1)));
    let mut moved = fingerprint();
    moved.fields.insert("config_digest".to_owned(), "6666".to_owned());
    assert_eq!(refusal(run.on(decided(moved))).code(), "fingerprint_moved");
}

#[test]
fn a_failed_or_unknown_step_ends_the_set() {
    for (end, state) in [
        (TaskEnd::Failed("no".to_owned()), State::Failed),
        (TaskEnd::Lost("gone".to_owned()), State::Unknown),
    ] {
        let (mut run, _) = Run::begin(approved(two_steps(1)));
        run.until_send();
        let set = finished(run.task(end, Mark::End)).set;
        assert_eq!((set.state(), &set.records()[1]), (state, &changeset::StepRecord::default()));
        assert_eq!(run.sent.len(), 1);
    }
}

#[test]
fn what_is_refused_before_a_later_step_ends_the_set_as_failed() {
    let mut other = fingerprint();
    other.fields.insert("name".to_owned(), "other".to_owned());
    for event in [
        Event::Denied("protected".to_owned()),
        Event::Unavailable("timeout".to_owned()),
        decided(other),
        Event::Decided { fingerprint: fingerprint(), approver_valid: false, planner_valid: true },
    ] {
        let set = approved(two_steps(1));
        let (mut run, _) = Run::begin(set.clone());
        run.until_send();
        run.task(TaskEnd::Ok, Mark::StepEnd);
        assert!(!run.apply.nothing_sent(), "the first step was sent");
        let effect = run.on(event);
        let ended = finished(run.persist(effect, Mark::End)).set;
        assert_eq!(ended.state(), State::Failed);
        assert!(ended.ending().unwrap().note.starts_with("step 2 was not started: "));
        assert_eq!(run.stored(&set), *ended);
        assert_eq!(run.sent.len(), 1);
    }
}

#[test]
fn a_store_that_fails_after_the_send_is_told_and_the_task_followed() {
    let set = approved(draft(1));
    for event in [Event::PersistFailed("disk full".to_owned()), Event::Conflict] {
        let (mut run, _) = Run::begin(set.clone());
        run.until_send();
        run.on(Event::Sent(SendResult::Handle("UPID:new".to_owned())));
        let follow = run.on(event.clone());
        assert!(matches!(follow, Effect::Follow { .. }), "{follow:?}");
        let Effect::Persist { expected_version, .. } = run.on(Event::Task(TaskEnd::Ok)) else {
            panic!("no end")
        };
        assert_eq!(
            expected_version,
            run.stored(&set).version(),
            "the next write is over what the store holds"
        );
        let finish = finished(run.on(event.clone()));
        assert_eq!(finish.set.state(), State::Applied);
        assert!(finish.problem.is_some(), "{event:?} was kept quiet");
        assert_eq!(run.stored(&set).state(), State::Applying, "recovery will look again");
    }
}

#[test]
fn no_later_step_starts_when_the_good_end_of_one_is_not_durable() {
    let (mut run, _) = Run::begin(approved(two_steps(1)));
    run.until_send();
    run.on(Event::Sent(SendResult::Synchronous));
    let finish = finished(run.on(Event::PersistFailed("disk full".to_owned())));
    assert_eq!(finish.problem.as_deref(), Some("disk full"));
    assert_eq!(run.sent.len(), 1);
}

#[test]
fn no_later_step_starts_when_its_intent_is_not_durable() {
    for (event, problem) in [
        (Event::PersistFailed("disk full".to_owned()), "disk full"),
        (Event::Conflict, "the stored set was changed by somebody else"),
    ] {
        let set = approved(two_steps(1));
        let (mut run, _) = Run::begin(set.clone());
        run.until_send();
        run.task(TaskEnd::Ok, Mark::StepEnd);
        run.decide();
        run.mark();
        let finish = finished(run.on(event));
        assert_eq!(finish.problem.as_deref(), Some(problem));
        assert_eq!(*finish.set, run.stored(&set));
        assert_eq!(run.sent.len(), 1);
    }
}
