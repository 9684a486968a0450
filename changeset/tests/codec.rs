//! Rows that no lawful history could have written are damage, and every lawful one comes back as it was.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use changeset::store::codec::{self, StepRow, Stored};
use changeset::store::{StoreError, check_successor};
use changeset::{Apply, ChangeSet, Effect, Event, PlanDraft, SendResult, State, TaskEnd, Timing};
use common::{agent, approved, at, draft, fingerprint, human, key, planned, two_steps};

mod common;

/// Every set on the way of one apply, from the approved one to the last.
fn history(plan: PlanDraft, send: SendResult, ends: &[TaskEnd]) -> Vec<ChangeSet> {
    let (mut ends, mut history) = (ends.iter(), vec![approved(plan)]);
    let (mut apply, mut effect) =
        Apply::begin(history[0].clone(), agent("bot"), &key(), Timing::default(), at(61));
    loop {
        let event = match effect {
            Effect::ResolveAndDecide { .. } => {
                Event::Decided { fingerprint: fingerprint(), approver_valid: true, planner_valid: true }
            }
            Effect::Watermark { .. } => {
                Event::Watermark { tasks: vec!["UPID:old".to_owned()], node: "pve1".to_owned() }
            }
            Effect::Persist { set, .. } => {
                check_successor(history.last().unwrap(), &set).unwrap();
                history.push(*set);
                Event::Persisted
            }
            Effect::Send { .. } => Event::Sent(send.clone()),
            Effect::Follow { .. } => Event::Task(ends.next().unwrap().clone()),
            Effect::FindTask(_) => Event::Found(vec![]),
            Effect::Finish(_) => return history,
            Effect::Refuse(refusal) => panic!("{refusal}"),
        };
        effect = apply.on(event, at(62)).unwrap();
    }
}

fn handle() -> SendResult {
    SendResult::Handle("UPID:1".to_owned())
}

fn last(mut history: Vec<ChangeSet>) -> ChangeSet {
    history.pop().unwrap()
}

fn damage(stored: &Stored) -> String {
    match codec::decode(stored) {
        Err(StoreError::Damaged { why, .. }) => why,
        other => panic!("{stored:?} reads as {other:?}"),
    }
}

#[test]
fn every_lawful_set_comes_back_as_it_was() {
    let lost = SendResult::Unknown("reset".to_owned());
    let harmless = PlanDraft { tier_destructive: false, ..draft(9) };
    let mut sets = vec![planned(draft(1)), planned(harmless)];
    sets.extend(history(two_steps(2), handle(), &[TaskEnd::Warnings(3), TaskEnd::Ok]));
    sets.extend(history(two_steps(3), handle(), &[TaskEnd::Ok, TaskEnd::Failed("no".to_owned())]));
    sets.extend(history(draft(4), handle(), &[TaskEnd::Lost("gone".to_owned())]));
    sets.extend(history(draft(5), SendResult::Refused("locked".to_owned()), &[]));
    sets.extend(history(draft(6), SendResult::Synchronous, &[]));
    let unknown = last(history(draft(7), lost, &[]));
    sets.push(unknown.resolve_applied(&human("olga"), "looked", at(99)).unwrap());
    sets.push(unknown.resolve_failed(&human("olga"), "looked", at(99)).unwrap());
    sets.push(unknown);
    sets.push(approved(draft(8)).cancel(&agent("bot"), "", at(99)).unwrap());
    sets.push(planned(draft(9)).reject(&human("olga"), "no", at(99)).unwrap());
    sets.push(planned(draft(10)).expire(at(24 * 60 * 60)).unwrap());
    for set in sets {
        assert_eq!(codec::decode(&codec::encode(&set).unwrap()), Ok(set));
    }
}

/// A state column edited by itself: the marks of the steps say otherwise.
#[test]
fn cs_05_a_state_that_the_steps_contradict_is_damage() {
    let ok = history(draft(1), handle(), &[TaskEnd::Ok]);
    let applying = ok[1].clone();
    let applied = last(ok);
    let failed = last(history(draft(2), handle(), &[TaskEnd::Failed("no".to_owned())]));
    let unknown = last(history(draft(3), handle(), &[TaskEnd::Lost("gone".to_owned())]));
    for (set, state, why) in [
        (&applied, "failed", "outcomes"),
        (&applied, "unknown", "outcomes"),
        (&failed, "applied", "outcomes"),
        (&failed, "unknown", "outcomes"),
        // Nobody resolved it.
        (&unknown, "applied", "outcomes"),
        (&applied, "applying", "ending"),
        (&applied, "cancelled", "marks"),
        (&applied, "approved", "marks"),
        (&applying, "applied", "ending"),
        (&applying, "planned", "marks"),
        (&approved(draft(4)), "applying", "marks"),
        (&approved(draft(4)), "applied", "marks"),
        (&approved(draft(4)), "rejected", "ending"),
        (&planned(draft(5)), "approved", "approval"),
        (&planned(draft(5)), "finished", "no state"),
    ] {
        let stored = Stored { state: state.to_owned(), ..codec::encode(set).unwrap() };
        let found = damage(&stored);
        assert!(found.contains(why), "{} as {state}: {found}", set.state());
    }
    // What is still being applied has neither ended well nor badly.
    for outcome in [r#""ok""#, r#"{"failed":"no"}"#, r#""unknown_not_found""#] {
        let mut stored = codec::encode(&applying).unwrap();
        stored.steps[0].outcome = Some(outcome.to_owned());
        assert!(damage(&stored).contains("outcomes"), "{outcome}");
    }
}

#[test]
fn cs_05_marks_that_no_apply_leaves_are_damage() {
    let sets = history(two_steps(1), handle(), &[TaskEnd::Ok, TaskEnd::Ok]);
    let stored = |n: usize| codec::encode(&sets[n]).unwrap();
    let intent = stored(1).steps[0].intent.clone();
    assert_eq!(sets[1].state(), State::Applying);

    let mut early = stored(1);
    early.steps[1].intent.clone_from(&intent);
    assert!(damage(&early).contains("the one before did not end well"));

    for mark in [
        StepRow { handle: Some("UPID:1".to_owned()), ..StepRow::default() },
        StepRow { outcome: Some(r#""ok""#.to_owned()), ..StepRow::default() },
    ] {
        let mut unmarked = stored(1);
        unmarked.steps[1] = mark;
        assert!(damage(&unmarked).contains("without an intent"));
    }
    for steps in [1, 3] {
        let mut rows = stored(1);
        rows.steps.resize(steps, StepRow::default());
        assert!(damage(&rows).contains("number of step rows"), "{steps}");
    }
    for (intent, why) in [
        (r#"{"at":"2026-11-30T12:01:01Z","node":"pve1"}"#, "watermark"),
        (r#"{"at":"yesterday","node":"pve1","watermark":[]}"#, "`yesterday` is no time"),
        (r#"{"at":"2026-11-30T12:01:01Z","node":"pve1","watermark":[],"sent":true}"#, "sent"),
    ] {
        let mut rows = stored(1);
        rows.steps[0].intent = Some(intent.to_owned());
        assert!(damage(&rows).contains(why), "{intent}");
    }
    let mut rows = stored(1);
    rows.steps[0].outcome = Some(r#""fine""#.to_owned());
    assert!(damage(&rows).contains("fine"));
}

#[test]
fn a_body_that_is_not_one_of_ours_is_damage() {
    let body = codec::encode(&approved(draft(1))).unwrap().body;
    for (find, put, why) in [
        (r#""kind":"human""#, r#""kind":"robot""#, "`robot` is no kind of actor"),
        (r#""kind":"second_person""#, r#""kind":"nobody""#, "`nobody` is no kind of approval"),
        (r#""mac":""#, r#""mac":"zz"#, ""),
        (r#""updated":"2026"#, r#""updated":"in 2026"#, "is no time"),
        (r#""format":1"#, r#""format":0"#, "body format 0 is not 1"),
    ] {
        let edited = body.replacen(find, put, 1);
        assert_ne!(edited, body, "{find}");
        let stored = Stored { body: edited, ..codec::encode(&approved(draft(1))).unwrap() };
        assert!(damage(&stored).contains(why), "{find}");
    }
    // A MAC that is hexadecimal, and too short.
    let start = body.find(r#""mac":""#).unwrap() + 7;
    let mut short = body.clone();
    short.replace_range(start..start + 2, "");
    let stored = Stored { body: short, ..codec::encode(&approved(draft(1))).unwrap() };
    assert!(damage(&stored).contains("not 64 hex digits"));
    // The approval of another plan.
    let set = approved(draft(1));
    let digest = set.digest().to_string();
    let other = planned(draft(2)).digest().to_string();
    let stored = codec::encode(&set).unwrap();
    let stored = Stored { body: stored.body.replace(&digest, &other), ..stored };
    assert!(
        matches!(codec::decode(&stored), Err(StoreError::DigestMismatch { stored, .. }) if stored == other)
    );
}
