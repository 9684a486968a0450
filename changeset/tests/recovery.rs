//! After a crash: what was sent is found or stays unknown, and nothing is sent again.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use changeset::store::{Limits, Store};
use changeset::{
    Apply, ChangeSet, Effect, Event, Finish, Mark, MemoryStore, PlanDraft, Recover, SendResult, State,
    StepOutcome, TaskEnd, Timing, UnknownCause,
};
use common::{agent, approved, at, draft, fingerprint, human, key, planned, two_steps};

mod common;

#[derive(Clone, Copy, PartialEq)]
enum Crash {
    AfterIntent,
    AfterHandle,
    BetweenSteps,
}

/// Applies until the crash, and gives back the disk.
fn crashed(plan: PlanDraft, when: Crash) -> (MemoryStore, ChangeSet) {
    let set = approved(plan);
    let mut store = MemoryStore::new();
    let first = ChangeSet::planned(set.plan().clone());
    store.insert(&first, &Limits::default()).unwrap();
    assert!(store.advance(&first, &set).unwrap());
    let (mut apply, mut effect) = Apply::begin(set.clone(), agent("bot"), &key(), Timing::default(), at(61));
    loop {
        let event = match effect {
            Effect::ResolveAndDecide { step: 0 } => {
                Event::Decided { fingerprint: fingerprint(), approver_valid: true, planner_valid: true }
            }
            Effect::Watermark { .. } => {
                Event::Watermark { tasks: vec!["UPID:old".to_owned()], node: "pve1".to_owned() }
            }
            Effect::Persist { set, expected_version, mark } => {
                assert!(store.replace_if(&set, expected_version).unwrap());
                let is_now = match when {
                    Crash::AfterIntent => mark == Mark::Intent,
                    Crash::AfterHandle => mark == Mark::Handle,
                    Crash::BetweenSteps => mark == Mark::StepEnd,
                };
                if is_now {
                    let left = store.applying().unwrap().remove(0);
                    return (store, left);
                }
                Event::Persisted
            }
            Effect::Send { .. } => Event::Sent(SendResult::Handle("UPID:new".to_owned())),
            Effect::Follow { .. } => Event::Task(TaskEnd::Ok),
            other => panic!("{other:?}"),
        };
        effect = apply.on(event, at(62)).unwrap();
    }
}

/// Stores what is asked for; everything else is the test's.
fn persist(store: &mut MemoryStore, recover: &mut Recover, effect: Effect) -> Effect {
    let Effect::Persist { set, expected_version, .. } = effect else { panic!("{effect:?}") };
    assert!(store.replace_if(&set, expected_version).unwrap());
    recover.on(Event::Persisted, at(200)).unwrap()
}

fn finished(effect: Effect) -> Finish {
    let Effect::Finish(finish) = effect else { panic!("{effect:?}") };
    finish
}

fn begin(set: &ChangeSet) -> (Recover, Effect) {
    Recover::begin(set.clone(), Timing::default(), at(100)).unwrap()
}

fn tasks(names: &[&str]) -> Event {
    Event::Found(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn cs_24_an_intent_without_a_task_stays_unknown() {
    let (mut store, set) = crashed(draft(1), Crash::AfterIntent);
    let (mut recover, effect) = begin(&set);
    let Effect::FindTask(lookup) = effect else { panic!("{effect:?}") };
    assert_eq!(lookup.not_before, at(100) + Timing::default().settle, "not before the settling time");
    let effect = recover.on(tasks(&["UPID:old"]), lookup.not_before).unwrap();
    let ended = finished(persist(&mut store, &mut recover, effect)).set;
    assert_eq!(ended.state(), State::Unknown);
    assert_eq!(ended.records()[0].outcome, Some(StepOutcome::Unknown(UnknownCause::NotFound)));
    assert_eq!(UnknownCause::NotFound.code(), "not_found");
    let resolved = ended.resolve_failed(&human("olga"), "the guest is still there", at(300)).unwrap();
    assert_eq!(resolved.state(), State::Failed);
    assert_eq!(resolved.ending().unwrap().by, Some(human("olga")));
}

#[test]
fn cs_25_exactly_one_new_task_is_adopted_and_followed() {
    let (mut store, set) = crashed(draft(1), Crash::AfterIntent);
    let (mut recover, effect) = begin(&set);
    let Effect::FindTask(lookup) = effect else { panic!("{effect:?}") };
    assert_eq!((lookup.id, &lookup.target, lookup.since), (set.id(), set.plan().target(), at(62)));
    assert_eq!((lookup.op.as_str(), lookup.node.as_str()), ("destroy_lxc", "pve1"));
    assert!(lookup.watermark.contains("UPID:old"));
    let effect = recover.on(tasks(&["UPID:old", "UPID:late"]), lookup.not_before).unwrap();
    let effect = persist(&mut store, &mut recover, effect);
    assert!(matches!(&effect, Effect::Follow { step: 0, handle } if handle == "UPID:late"), "{effect:?}");
    let durable = store.load(&set.id()).unwrap().unwrap();
    assert_eq!(durable.records()[0].handle.as_deref(), Some("UPID:late"));
    let effect = recover.on(Event::Task(TaskEnd::Failed("no space".to_owned())), at(150)).unwrap();
    let ended = finished(persist(&mut store, &mut recover, effect)).set;
    assert_eq!(ended.state(), State::Failed);
}

#[test]
fn cs_25_two_new_tasks_are_nobodys() {
    let (mut store, set) = crashed(draft(1), Crash::AfterIntent);
    let (mut recover, _) = begin(&set);
    let effect = recover.on(tasks(&["UPID:a", "UPID:b"]), at(150)).unwrap();
    let ended = finished(persist(&mut store, &mut recover, effect)).set;
    assert_eq!(ended.state(), State::Unknown);
    assert_eq!(ended.records()[0].outcome, Some(StepOutcome::Unknown(UnknownCause::Ambiguous(2))));
}

#[test]
fn cs_26_a_durable_handle_is_followed_to_the_tasks_own_end() {
    for (end, state) in [
        (TaskEnd::Ok, State::Applied),
        (TaskEnd::Warnings(2), State::Applied),
        (TaskEnd::Failed("exit code 1".to_owned()), State::Failed),
        (TaskEnd::Lost("no such task".to_owned()), State::Unknown),
    ] {
        let (mut store, set) = crashed(draft(1), Crash::AfterHandle);
        let (mut recover, effect) = begin(&set);
        assert!(matches!(&effect, Effect::Follow { step: 0, handle } if handle == "UPID:new"), "{effect:?}");
        let effect = recover.on(Event::Task(end), at(150)).unwrap();
        let ended = finished(persist(&mut store, &mut recover, effect)).set;
        assert_eq!(ended.state(), state);
        assert_eq!(store.load(&set.id()).unwrap(), Some(*ended));
    }
}

#[test]
fn an_unreadable_task_list_is_read_again_until_it_is_given_up() {
    let (mut store, set) = crashed(draft(1), Crash::AfterIntent);
    let (mut recover, mut effect) = begin(&set);
    let give_up = at(100) + Timing::default().give_up;
    let (mut now, mut pauses) = (at(100), Vec::new());
    while let Effect::FindTask(lookup) = &effect {
        assert!(lookup.not_before >= now);
        pauses.push(lookup.not_before.duration_since(now).as_secs());
        now = lookup.not_before;
        effect = recover.on(Event::Unavailable("node down".to_owned()), now).unwrap();
    }
    assert_eq!(pauses.get(..8), Some(&[30, 1, 2, 4, 8, 16, 32, 60][..]));
    assert!(pauses.iter().skip(8).all(|pause| *pause == 60));
    assert!(now >= give_up && now < give_up + Duration::from_secs(60));
    let ended = finished(persist(&mut store, &mut recover, effect)).set;
    let cause = UnknownCause::Unreadable("node down".to_owned());
    assert_eq!(ended.records()[0].outcome, Some(StepOutcome::Unknown(cause)));
}

#[test]
fn steps_that_had_not_started_stay_so() {
    for when in [Crash::AfterHandle, Crash::BetweenSteps] {
        let (mut store, set) = crashed(two_steps(1), when);
        let (mut recover, mut effect) = begin(&set);
        if when == Crash::AfterHandle {
            let end = recover.on(Event::Task(TaskEnd::Ok), at(150)).unwrap();
            effect = persist(&mut store, &mut recover, end);
        }
        let ended = finished(persist(&mut store, &mut recover, effect)).set;
        assert_eq!(ended.state(), State::Failed);
        assert!(ended.ending().unwrap().note.starts_with("step 2 was not started"));
        assert_eq!(ended.records()[0].outcome, Some(StepOutcome::Ok));
        assert_eq!(ended.records()[1], changeset::StepRecord::default());
    }
}

#[test]
fn only_what_was_being_applied_is_recovered() {
    for set in [planned(draft(1)), approved(draft(1))] {
        let refused = Recover::begin(set.clone(), Timing::default(), at(100)).unwrap_err();
        assert_eq!((refused.id, refused.state), (set.id(), set.state()));
    }
}

#[test]
fn cs_28_without_a_task_the_target_itself_tells_that_it_happened_and_never_that_it_did_not() {
    for (as_asked, state) in [(true, State::Applied), (false, State::Unknown)] {
        let (mut store, left) = crashed(draft(1), Crash::AfterIntent);
        let (mut recover, effect) = begin(&left);
        assert!(matches!(effect, Effect::FindTask(_)), "{effect:?}");
        let effect = recover.on(Event::Observed { as_asked }, at(131)).unwrap();
        let finish = finished(persist(&mut store, &mut recover, effect));
        assert_eq!(finish.set.state(), state);
        assert_eq!(finish.problem, None);
    }
}
