//! What must hold: when something is sent, and between any two acts.

use changeset::{ApprovalKind, ChangeSet, State, StepOutcome};

use super::{Invariant, World, id_of};
use crate::common::key;

impl World {
    pub(super) fn check_durable(&mut self, durable: &ChangeSet, n: u8, step: usize, op: &str) {
        let earlier =
            durable.records().iter().take(step).all(|r| r.outcome.as_ref().is_some_and(StepOutcome::is_ok));
        self.check(Invariant::Once, earlier && durable.state() == State::Applying);
        let intent = durable.records().get(step).and_then(|record| record.intent.as_ref());
        self.check(Invariant::IntentFirst, intent.is_some_and(|intent| !intent.watermark.is_empty()));
        let approval = durable.approval();
        let genuine = approval.is_some_and(|approval| approval.is_genuine(durable.plan(), &key()));
        let agreed = self.agreed.get(&n) == Some(&durable.plan().digest());
        let asked = durable.plan().steps().get(step).is_some_and(|step| step.op == op);
        self.check(Invariant::Approved, genuine && agreed && asked);
        let two = approval.is_some_and(|approval| {
            approval.kind() == ApprovalKind::SecondPerson
                && approval.by().is_human()
                && !approval.by().is_same_person(durable.plan().planner())
        });
        self.check(Invariant::TwoPeople, two);
    }

    pub(super) fn check_exits(&mut self, before: &[(u8, ChangeSet)], by_a_person: bool) {
        for (n, old) in before {
            // A set that is gone is a matter of what was told.
            let Some(new) = self.disk.load(id_of(*n)) else { continue };
            let (from, to) = (old.state(), new.state());
            let lawful = match from {
                _ if from == to => true,
                State::Unknown => by_a_person && matches!(to, State::Applied | State::Failed),
                _ => !from.is_final(),
            };
            self.check(Invariant::NoWayBack, lawful);
        }
    }

    /// What the store says about an end, against what the peer saw.
    pub(super) fn check_truth(&mut self) {
        for (n, set) in self.sets().collect::<Vec<_>>() {
            if self.resolved & (1 << n) != 0 {
                continue;
            }
            let seen = |step: usize| self.peer.get(&(n, step)).copied().unwrap_or_default();
            let true_to_it = set.records().iter().enumerate().all(|(step, record)| match &record.outcome {
                Some(StepOutcome::Ok | StepOutcome::OkWithWarnings(_)) => seen(step).ended == Some(true),
                Some(StepOutcome::Failed(_)) => !seen(step).arrived || seen(step).ended == Some(false),
                Some(StepOutcome::Unknown(_)) | None => true,
            });
            let all_well = set.records().iter().all(|r| r.outcome.as_ref().is_some_and(StepOutcome::is_ok));
            let ended_well = set.state() == State::Applied;
            self.check(Invariant::Truth, true_to_it && (!ended_well || all_well));
        }
    }
}
