//! Which successor a store takes, and when it needs a clock: rule by rule, on sets that no caller could make.

use super::*;
use crate::common::{agent, approved, at, draft, human, key, planned, two_steps};
use crate::{Intent, StepOutcome, StepRecord};

fn intent() -> Intent {
    Intent { at: at(61), node: "pve1".to_owned(), watermark: ["UPID:old".to_owned()].into() }
}

/// Two steps, the first with a durable handle.
fn dispatched() -> ChangeSet {
    let set = approved(two_steps(1)).intend(0, intent(), &agent("bot"), &key(), at(61)).unwrap();
    set.dispatched(0, "UPID:1", at(62)).unwrap()
}

/// Two steps, the first ended well.
fn between() -> ChangeSet {
    dispatched().step_ended(0, StepOutcome::Ok, at(63)).unwrap()
}

fn refused(stored: &ChangeSet, next: &ChangeSet, why: &str) {
    match check_successor(stored, next) {
        Err(StoreError::Unlawful { id, why: said }) => {
            assert_eq!(id, stored.id());
            assert!(said.contains(why), "{said}, not {why}");
        }
        other => panic!("{other:?}, not {why}"),
    }
}

fn changed(set: &ChangeSet, change: impl FnOnce(&mut ChangeSet)) -> ChangeSet {
    let mut set = set.clone();
    change(&mut set);
    set
}

#[test]
fn cs_16_a_successor_is_of_the_same_plan_by_a_move_and_newer() {
    let (before, after) = (planned(draft(1)), approved(draft(1)));
    assert_eq!(check_successor(&before, &after), Ok(()));
    refused(&planned(draft(2)), &after, "another plan");
    // One name, another plan; and one plan under another name, which only a forged digest could be.
    refused(&before, &changed(&after, |set| set.digest = planned(draft(2)).digest()), "another plan");
    let renamed = changed(&after, |set| {
        set.plan = planned(draft(2)).plan;
        set.digest = before.digest();
    });
    refused(&before, &renamed, "another plan");

    refused(&after, &changed(&before, |set| set.version = 9), "no move leads from approved to planned");
    refused(&before, &changed(&after, |set| set.state = State::Applying), "from planned to applying");
    let cancelled = before.cancel(&agent("bot"), "", at(1)).unwrap();
    refused(&cancelled, &changed(&after, |set| set.version = 9), "from cancelled to approved");

    for version in [0, before.version()] {
        refused(&before, &changed(&after, |set| set.version = version), "not newer");
    }
    assert_eq!(check_successor(&before, &changed(&after, |set| set.version = 7)), Ok(()));
}

#[test]
fn cs_16_a_successor_keeps_the_approval() {
    let (before, after) = (planned(draft(1)), approved(draft(1)));
    let rejected = before.reject(&human("olga"), "no", at(1)).unwrap();
    assert_eq!(check_successor(&before, &rejected), Ok(()));
    refused(&before, &changed(&rejected, |set| set.approval = after.approval.clone()), "the approval");
    let applying = after.intend(0, intent(), &agent("bot"), &key(), at(61)).unwrap();
    assert_eq!(check_successor(&after, &applying), Ok(()));
    refused(&after, &changed(&applying, |set| set.approval = None), "the approval");
    let other = before.approve(&human("piet"), &before.digest(), &key(), at(2)).unwrap();
    refused(&after, &changed(&applying, |set| set.approval = other.approval.clone()), "the approval");
}

#[test]
fn cs_16_a_successor_adds_marks_and_changes_none() {
    let before = dispatched();
    let after = between();
    assert_eq!(check_successor(&before, &after), Ok(()));
    for steps in [1, 3] {
        let longer = changed(&after, |set| set.records.resize(steps, StepRecord::default()));
        refused(&before, &longer, "number of steps");
    }
    refused(&before, &changed(&after, |set| set.records[0].intent = None), "a step's marks");
    refused(
        &before,
        &changed(&after, |set| set.records[0].intent.as_mut().unwrap().node = "pve2".to_owned()),
        "marks",
    );
    refused(&before, &changed(&after, |set| set.records[0].handle = None), "a step's marks");
    refused(&before, &changed(&after, |set| set.records[0].handle = Some("UPID:2".to_owned())), "marks");
    let third = after.intend(1, intent(), &agent("bot"), &key(), at(64)).unwrap();
    assert_eq!(check_successor(&after, &third), Ok(()));
    refused(&after, &changed(&third, |set| set.records[0].outcome = None), "a step's marks");
    let failed = Some(StepOutcome::Failed("no".to_owned()));
    refused(&after, &changed(&third, |set| set.records[0].outcome = failed), "a step's marks");
}

#[test]
fn cs_16_no_step_ends_before_it_began_and_no_two_begin_at_once() {
    let before = approved(two_steps(1));
    let after = before.intend(0, intent(), &agent("bot"), &key(), at(61)).unwrap();
    assert_eq!(check_successor(&before, &after), Ok(()));
    for with_intent in [true, false] {
        let mark = |change: fn(&mut StepRecord)| {
            changed(&after, |set| {
                set.records[0].intent = with_intent.then(intent);
                change(&mut set.records[0]);
            })
        };
        refused(
            &before,
            &mark(|record| record.handle = Some("UPID:1".to_owned())),
            "without a durable intent",
        );
        refused(&before, &mark(|record| record.outcome = Some(StepOutcome::Ok)), "without a durable intent");
    }
    refused(&before, &changed(&after, |set| set.records[1].intent = Some(intent())), "two steps at once");
    // Where nothing begins, nothing is wrong with that.
    assert_eq!(check_successor(&before, &before.cancel(&agent("bot"), "", at(62)).unwrap()), Ok(()));
}

#[test]
fn cs_15_a_clock_is_needed_to_approve_and_to_begin() {
    assert!(!needs_clock(&planned(two_steps(1))));
    let approved = approved(two_steps(1));
    assert!(needs_clock(&approved));
    let begun = approved.intend(0, intent(), &agent("bot"), &key(), at(61)).unwrap();
    assert!(needs_clock(&begun));
    // What was sent is followed to its end, whatever the clock says.
    assert!(!needs_clock(&dispatched()));
    assert!(!needs_clock(&begun.step_ended(0, StepOutcome::Ok, at(62)).unwrap()));
    assert!(!needs_clock(&between()));
    assert!(!needs_clock(&approved.cancel(&agent("bot"), "", at(62)).unwrap()));
}

#[test]
fn cs_15_the_clock_may_lag_a_minute_and_time_never_runs_back() {
    assert_eq!(clock(None, at(5)), Ok(at(5)));
    assert_eq!(clock(Some(at(100)), at(100)), Ok(at(100)));
    assert_eq!(clock(Some(at(100)), at(101)), Ok(at(101)));
    assert_eq!(clock(Some(at(100)), at(99)), Ok(at(100)));
    assert_eq!(clock(Some(at(100)), at(40)), Ok(at(100)));
    assert_eq!(clock(Some(at(100)), at(39)), Err(StoreError::ClockSetBack { now: at(39), seen: at(100) }));
}

#[test]
fn a_filter_admits_what_every_part_of_it_admits() {
    let set = planned(draft(1));
    let all = Filter {
        state: Some(State::Planned),
        planner: Some("bot".to_owned()),
        cluster: Some("alpha".to_owned()),
        pending_only: true,
        created_since: Some(at(0)),
        newest: None,
    };
    assert!(all.admits(&set) && Filter::default().admits(&set));
    for filter in [
        Filter { state: Some(State::Approved), ..all.clone() },
        Filter { planner: Some("ann".to_owned()), ..all.clone() },
        Filter { cluster: Some("beta".to_owned()), ..all.clone() },
        Filter { created_since: Some(at(1)), ..all.clone() },
    ] {
        assert!(!filter.admits(&set), "{filter:?}");
    }
    let cancelled = set.cancel(&agent("bot"), "", at(1)).unwrap();
    let pending = Filter { pending_only: true, ..Filter::default() };
    assert!(pending.admits(&set) && !pending.admits(&cancelled) && Filter::default().admits(&cancelled));
}

#[test]
fn every_refused_plan_has_a_word_of_its_own() {
    let id = planned(draft(1)).id();
    for (refusal, word) in [
        (AdmissionRefusal::KeyReused { id }, "idempotency_key_reused"),
        (AdmissionRefusal::PlannerCap { cap: 1 }, "planner_cap"),
        (AdmissionRefusal::ServerCap { cap: 1 }, "server_cap"),
        (AdmissionRefusal::TargetPending { id }, "target_pending"),
    ] {
        assert_eq!(refusal.code(), word);
    }
}
