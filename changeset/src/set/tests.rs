//! Every move from every state, and what each mark of a step demands.

use super::*;
use crate::common::{agent, approved, at, draft, human, key, planned, two_steps};
use crate::step::UnknownCause;
use crate::{APPROVED_TTL, Actor, ActorKind, PLANNED_TTL};

fn intent() -> Intent {
    Intent { at: at(61), node: "pve1".to_owned(), watermark: ["UPID:old".to_owned()].into() }
}

fn intended(set: &ChangeSet) -> ChangeSet {
    set.intend(0, intent(), &agent("bot"), &key(), at(61)).unwrap()
}

fn ended(outcome: StepOutcome) -> ChangeSet {
    intended(&approved(draft(1))).step_ended(0, outcome, at(70)).unwrap()
}

fn in_state(state: State) -> ChangeSet {
    let set = planned(draft(1));
    match state {
        State::Planned => set,
        State::Approved => approved(draft(1)),
        State::Applying => intended(&approved(draft(1))),
        State::Applied => ended(StepOutcome::Ok),
        State::Failed => ended(StepOutcome::Failed("no".to_owned())),
        State::Unknown => ended(StepOutcome::Unknown(UnknownCause::NotFound)),
        State::Rejected => set.reject(&human("olga"), "no", at(5)).unwrap(),
        State::Cancelled => set.cancel(&agent("bot"), "", at(5)).unwrap(),
        State::Expired => set.expire(set.plan().expires()).unwrap(),
    }
}

/// Makes the move as its caller would, with everything but the state as it should be.
fn make(set: &ChangeSet, by: Move) -> Result<ChangeSet, TransitionError> {
    let (bot, olga, now) = (agent("bot"), human("olga"), at(62));
    match by {
        Move::Approve => set.approve(&olga, &set.digest(), &key(), now),
        Move::Reject => set.reject(&olga, "", now),
        Move::Cancel => set.cancel(&bot, "", now),
        Move::Expire => set.expire(set.deadline().unwrap_or(now)),
        Move::Intend => {
            let ready = if set.state == State::Applying {
                intended(&approved(two_steps(1))).step_ended(0, StepOutcome::Ok, now)?
            } else {
                set.clone()
            };
            ready.intend(usize::from(set.state == State::Applying), intent(), &bot, &key(), now)
        }
        Move::Dispatch => set.dispatched(0, "UPID:new", now),
        Move::EndStep => {
            let steps =
                if set.state == State::Applying { intended(&approved(two_steps(1))) } else { set.clone() };
            steps.step_ended(0, StepOutcome::Ok, now)
        }
        Move::Succeed => set.step_ended(0, StepOutcome::Ok, now),
        Move::Fail => set.step_ended(0, StepOutcome::Failed("no".to_owned()), now),
        Move::Lose => set.step_ended(0, StepOutcome::Unknown(UnknownCause::NotFound), now),
        Move::ResolveApplied => set.resolve_applied(&olga, "looked", now),
        Move::ResolveFailed => set.resolve_failed(&olga, "looked", now),
    }
}

#[test]
fn cs_13_every_state_and_move_follows_the_table() {
    let mut allowed = 0;
    for state in State::ALL {
        for by in Move::ALL {
            let set = in_state(state);
            assert_eq!(set.state(), state);
            let before = set.clone();
            match (state.after(by), make(&set, by)) {
                (Some(to), Ok(next)) => {
                    assert_eq!(next.state(), to, "{state} by {by}");
                    assert_eq!(next.state().is_pending(), next.ending().is_none(), "{state} by {by}");
                    allowed += 1;
                }
                (None, Err(TransitionError::Forbidden { state: from, by: how })) => {
                    assert_eq!(from, state);
                    // The move of a step's end follows from its outcome.
                    assert!(
                        how == by || (by == Move::EndStep && how == Move::Succeed),
                        "{state}: {how} for {by}"
                    );
                }
                (expected, found) => panic!("{state} by {by}: expected {expected:?}, got {found:?}"),
            }
            assert_eq!(set, before, "a move left its mark on the old set");
        }
    }
    assert_eq!(allowed, crate::state::TABLE.len());
}

#[test]
fn cs_13_the_table_is_the_page_of_behaviour() {
    let exits = |from: State| -> Vec<State> {
        let mut to: Vec<_> = State::ALL.into_iter().filter(|to| leads(from, *to)).collect();
        to.retain(|to| *to != from);
        to
    };
    fn leads(from: State, to: State) -> bool {
        crate::state::TABLE.iter().any(|(a, _, b)| *a == from && *b == to)
    }
    let sides = [State::Rejected, State::Cancelled, State::Expired];
    assert_eq!(exits(State::Planned), [&[State::Approved][..], &sides].concat());
    assert_eq!(exits(State::Approved), [&[State::Applying][..], &sides].concat());
    assert_eq!(exits(State::Applying), [State::Applied, State::Failed, State::Unknown]);
    assert_eq!(exits(State::Unknown), [State::Applied, State::Failed]);
    for state in State::ALL {
        let final_one = !matches!(state, State::Planned | State::Approved | State::Applying | State::Unknown);
        assert_eq!(state.is_final(), final_one, "{state}");
        assert_eq!(State::from_name(state.as_str()), Some(state));
    }
    assert_eq!(State::from_name("Planned"), None);
}

#[test]
fn cs_14_at_the_deadline_is_too_late() {
    let nano = std::time::Duration::from_nanos(1);
    let set = planned(draft(1));
    let end = at(0) + PLANNED_TTL;
    let approve = |now| set.approve(&human("olga"), &set.digest(), &key(), now);
    assert!(approve(end - nano).is_ok());
    assert_eq!(approve(end), Err(TransitionError::Expired { at: end }));
    assert_eq!(set.expire(end - nano), Err(TransitionError::NotExpired { until: end }));
    assert_eq!(set.expire(end).unwrap().state(), State::Expired);
    assert!(!set.is_overdue(end - nano) && set.is_overdue(end));

    let set = approve(end - nano).unwrap();
    let end = end - nano + APPROVED_TTL;
    let apply = |now| set.intend(0, intent(), &agent("bot"), &key(), now);
    assert!(apply(end - nano).is_ok());
    assert_eq!(apply(end), Err(TransitionError::Expired { at: end }));
    assert_eq!(set.expire(end - nano), Err(TransitionError::NotExpired { until: end }));
    assert_eq!(set.expire(end).unwrap().state(), State::Expired);
    assert!(!apply(end - nano).unwrap().is_overdue(end), "what is being applied does not expire");
}

#[test]
fn each_mark_of_a_step_comes_in_order_and_once() {
    let set = approved(two_steps(1));
    let bot = agent("bot");
    let wrong = |step| Err(TransitionError::StepOrder { step });
    assert_eq!(set.intend(1, intent(), &bot, &key(), at(61)), wrong(1), "the second step first");
    assert_eq!(set.intend(2, intent(), &bot, &key(), at(61)), wrong(2), "a step that is not there");
    let first = intended(&set);
    assert_eq!(first.intend(0, intent(), &bot, &key(), at(61)), wrong(0), "one step twice");
    assert_eq!(first.intend(1, intent(), &bot, &key(), at(61)), wrong(1), "two steps at once");
    assert_eq!(first.dispatched(1, "UPID:x", at(62)), wrong(1), "a handle without an intent");
    assert_eq!(first.step_ended(1, StepOutcome::Ok, at(62)), wrong(1), "an end without an intent");
    let sent = first.dispatched(0, "UPID:new", at(62)).unwrap();
    assert_eq!(sent.dispatched(0, "UPID:other", at(63)), wrong(0), "a second handle");
    assert_eq!(sent.stopped_before(0, "", at(63)), wrong(0), "a step that has started");
    let done = sent.step_ended(0, StepOutcome::OkWithWarnings(1), at(63)).unwrap();
    assert_eq!(done.step_ended(0, StepOutcome::Ok, at(64)), wrong(0), "a second end");
    assert!(done.intend(1, intent(), &bot, &key(), at(64)).is_ok(), "warnings are success");
    assert_eq!(done.stopped_before(0, "", at(64)), wrong(0), "a step that has ended");
    let stopped = done.stopped_before(1, "denied", at(64)).unwrap();
    assert_eq!(stopped.state(), State::Failed);
    assert_eq!(stopped.ending().unwrap().note, "step 2 was not started: denied");
    let failed = sent.step_ended(0, StepOutcome::Failed("no".to_owned()), at(63)).unwrap();
    assert!(matches!(
        failed.intend(1, intent(), &bot, &key(), at(64)),
        Err(TransitionError::Forbidden { state: State::Failed, .. })
    ));
}

#[test]
fn cs_07_the_approver_must_have_seen_this_digest() {
    let (set, other) = (planned(draft(1)), planned(draft(2)));
    let refused = set.approve(&human("olga"), &other.digest(), &key(), at(1));
    assert_eq!(refused, Err(TransitionError::DigestChanged { seen: other.digest(), current: set.digest() }));
}

#[test]
fn cs_08_the_planner_cannot_approve_under_any_name() {
    let mut plan = draft(1);
    plan.planner = Actor::new("bot", "Änne", Some(ActorKind::Agent));
    let set = planned(plan);
    for (token, person) in
        [("bot", "olga"), ("BOT", "olga"), ("olga", "Änne"), ("olga", "ÄNNE"), ("olga", " änne ")]
    {
        let approver = Actor::new(token, person, Some(ActorKind::Human));
        let refused = set.approve(&approver, &set.digest(), &key(), at(1));
        assert!(matches!(refused, Err(TransitionError::SamePerson { .. })), "{token} of {person}");
    }
}

#[test]
fn cs_09_only_a_declared_human_approves() {
    let set = planned(draft(1));
    for kind in [Some(ActorKind::Agent), None] {
        let refused = set.approve(&Actor::new("olga", "olga", kind), &set.digest(), &key(), at(1));
        assert_eq!(refused, Err(TransitionError::NotHuman { token: "olga".to_owned() }));
    }
}

#[test]
fn cs_10_a_second_approval_changes_nothing() {
    let set = approved(draft(1));
    assert_eq!((set.version(), set.updated(), set.approval().unwrap().at()), (2, at(60), at(60)));
    let again = set.approve(&human("olga"), &set.digest(), &key(), at(99)).unwrap();
    assert_eq!(again, set, "the same approver once more");
    let other = set.approve(&human("piet"), &set.digest(), &key(), at(99));
    assert_eq!(other, Err(TransitionError::AlreadyApproved { by: "olga".to_owned() }));
    let late = set.approve(&human("olga"), &set.digest(), &key(), set.deadline().unwrap());
    assert!(matches!(late, Err(TransitionError::Expired { .. })), "an expired approval is not renewed");
}

#[test]
fn lab_mode_approves_a_protected_target_only() {
    let create = |lab_mode, target_protected| {
        let mut plan = draft(1);
        (plan.lab_mode, plan.target_protected) = (lab_mode, target_protected);
        ChangeSet::create(crate::Plan::new(plan).unwrap(), &key())
    };
    for (lab_mode, protected) in [(false, false), (false, true), (true, false)] {
        let set = create(lab_mode, protected);
        assert_eq!((set.state(), set.approval()), (State::Planned, None), "{lab_mode} {protected}");
    }
    let set = create(true, true);
    let approval = set.approval().unwrap();
    assert_eq!((set.state(), approval.kind()), (State::Approved, ApprovalKind::LabMode));
    assert_eq!((approval.by(), approval.digest()), (set.plan().planner(), set.digest()));
    assert!(approval.is_genuine(set.plan(), &key()));
    let by_person = set.approve(&human("olga"), &set.digest(), &key(), at(1));
    assert!(matches!(by_person, Err(TransitionError::AlreadyApproved { .. })));
}

#[test]
fn cs_04_an_approval_fits_one_plan_one_key_and_its_own_facts() {
    let set = approved(draft(1));
    let approval = set.approval().unwrap();
    assert!(approval.is_genuine(set.plan(), &key()));
    assert!(!approval.is_genuine(set.plan(), &ApprovalKey::new([8; 32])), "another key");
    assert!(!approval.is_genuine(planned(draft(2)).plan(), &key()), "another plan");
    let mut forged = Vec::new();
    for change in 0..7 {
        let mut approval = approval.clone();
        match change {
            0 => approval.by.token.push('x'),
            1 => approval.by.person = "piet".to_owned(),
            2 => approval.by.kind = None,
            3 => approval.at = at(61),
            4 => approval.expires = at(9_999),
            5 => approval.kind = ApprovalKind::LabMode,
            _ => approval.mac[31] ^= 1,
        }
        forged.push(approval);
    }
    for approval in forged {
        let mut set = set.clone();
        assert!(!approval.is_genuine(set.plan(), &key()), "{approval:?}");
        set.approval = Some(approval);
        assert_eq!(
            set.intend(0, intent(), &agent("bot"), &key(), at(61)),
            Err(TransitionError::ApprovalVoid)
        );
    }
}

/// A signature is not enough: what was signed must keep the rules too.
#[test]
fn cs_08_a_signed_approval_that_breaks_the_rules_is_void() {
    let set = planned(draft(1));
    for (kind, by) in [
        (ApprovalKind::SecondPerson, agent("bot")),
        (ApprovalKind::SecondPerson, human("bot")),
        (ApprovalKind::SecondPerson, agent("olga")),
        (ApprovalKind::LabMode, human("olga")),
    ] {
        let signed = Approval::sign(kind, by, set.plan(), &key(), at(1));
        assert!(!signed.is_genuine(set.plan(), &key()), "{signed:?}");
    }
}

#[test]
fn cs_08_an_approval_by_lab_mode_needs_the_mode_and_a_protected_target() {
    for (lab_mode, target_protected) in [(true, true), (true, false), (false, true), (false, false)] {
        let set = planned(crate::PlanDraft { lab_mode, target_protected, ..draft(1) });
        let signed = Approval::sign(ApprovalKind::LabMode, agent("bot"), set.plan(), &key(), at(1));
        assert_eq!(signed.is_genuine(set.plan(), &key()), lab_mode && target_protected, "{signed:?}");
    }
}

#[test]
fn every_refused_move_has_a_word_of_its_own() {
    let set = planned(draft(1));
    let token = || "olga".to_owned();
    for (error, word) in [
        (TransitionError::AlreadyApproved { by: token() }, "already_approved"),
        (TransitionError::ApprovalVoid, "approval_void"),
        (TransitionError::DigestChanged { seen: set.digest(), current: set.digest() }, "digest_changed"),
        (TransitionError::Expired { at: at(0) }, "expired"),
        (TransitionError::Forbidden { state: State::Failed, by: Move::Cancel }, "wrong_state"),
        (TransitionError::NotExpired { until: at(0) }, "not_expired"),
        (TransitionError::NotHuman { token: token() }, "not_human"),
        (TransitionError::SamePerson { person: token() }, "same_person"),
        (TransitionError::StepOrder { step: 0 }, "step_order"),
    ] {
        assert_eq!(error.code(), word);
    }
}

#[test]
fn a_forbidden_move_is_told_in_words_that_no_other_has() {
    let text = |by| TransitionError::Forbidden { state: State::Failed, by }.to_string();
    assert_eq!(text(Move::Cancel), "a set that is failed cannot be cancelled");
    let texts: std::collections::BTreeSet<String> = Move::ALL.into_iter().map(text).collect();
    assert_eq!(texts.len(), Move::ALL.len(), "{texts:?}");
}

/// Whoever resolves a set reads in its ending why nobody knows.
#[test]
fn an_unknown_end_says_what_is_not_known() {
    for (cause, words) in [
        (UnknownCause::Ambiguous(2), "2 new tasks match the request"),
        (UnknownCause::NotFound, "no new task matches the request"),
        (UnknownCause::TaskLost("node down".to_owned()), "can no longer be read: node down"),
        (UnknownCause::Unreadable("timeout".to_owned()), "could not be read: timeout"),
    ] {
        let note = ended(StepOutcome::Unknown(cause)).ending().unwrap().note.clone();
        assert!(note.starts_with("step 1 is unknown: ") && note.contains(words), "{note}");
    }
}

#[test]
fn the_key_is_never_printed() {
    assert_eq!(format!("{:?}", key()), "ApprovalKey(..)");
}
