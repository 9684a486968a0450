//! A plan with its history, and the moves people make.

use std::sync::Arc;

use jiff::Timestamp;

use crate::approval::{Approval, ApprovalKey, ApprovalKind};
use crate::digest::PlanDigest;
use crate::step::{Intent, StepOutcome, StepRecord};
use crate::{Actor, ChangeSetId, Move, Plan, State};

/// How and why a set left the pending states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// When.
    pub at: Timestamp,
    /// Who ended it; `None` when its own course did.
    pub by: Option<Actor>,
    /// In words.
    pub note: String,
}

/// A plan, where it stands, who approved it, and what became of each step.
///
/// A set is a value: a move returns a new one with the next version and leaves the old as it was. It becomes true
/// when [`Store::replace_if`](crate::Store::replace_if) has stored it over the version it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSet {
    pub(crate) plan: Arc<Plan>,
    pub(crate) digest: PlanDigest,
    pub(crate) state: State,
    pub(crate) approval: Option<Approval>,
    pub(crate) applied_by: Option<Actor>,
    pub(crate) records: Vec<StepRecord>,
    pub(crate) ending: Option<Ending>,
    pub(crate) version: u64,
    pub(crate) updated: Timestamp,
}

impl ChangeSet {
    /// A set that waits for its approval.
    #[must_use]
    pub fn planned(plan: Plan) -> Self {
        Self {
            digest: plan.digest(),
            state: State::Planned,
            approval: None,
            applied_by: None,
            records: vec![StepRecord::default(); plan.steps().len()],
            ending: None,
            version: 1,
            updated: plan.created(),
            plan: Arc::new(plan),
        }
    }

    /// A set as the server's mode wants it: approved at once when the plan was made in lab mode *and* its target
    /// is protected, planned otherwise. An ordinary target needs its second person in lab mode too.
    #[must_use]
    pub fn create(plan: Plan, key: &ApprovalKey) -> Self {
        let mut set = Self::planned(plan);
        if set.plan.lab_mode() && set.plan.target_protected() {
            let (by, at) = (set.plan.planner().clone(), set.plan.created());
            set.approval = Some(Approval::sign(ApprovalKind::LabMode, by, &set.plan, key, at));
            set.state = State::Approved;
        }
        set
    }

    /// The set's name.
    #[must_use]
    pub fn id(&self) -> ChangeSetId {
        self.plan.id()
    }

    /// What is wanted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan's digest: what an approver must send back.
    #[must_use]
    pub fn digest(&self) -> PlanDigest {
        self.digest
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The approval, also after it was spent.
    #[must_use]
    pub fn approval(&self) -> Option<&Approval> {
        self.approval.as_ref()
    }

    /// Who applied it.
    #[must_use]
    pub fn applied_by(&self) -> Option<&Actor> {
        self.applied_by.as_ref()
    }

    /// What is durable about each step, in the plan's order.
    #[must_use]
    pub fn records(&self) -> &[StepRecord] {
        &self.records
    }

    /// How it ended; `None` while pending.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Counts the changes, from 1; the store's compare-and-swap compares it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When it last changed.
    #[must_use]
    pub fn updated(&self) -> Timestamp {
        self.updated
    }

    /// The moment from which a planned or approved set counts as expired.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.state {
            State::Planned => Some(self.plan.expires()),
            State::Approved => self.approval.as_ref().map(Approval::expires),
            _ => None,
        }
    }

    /// Whether its time is up at `now` (at the deadline is too late).
    #[must_use]
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// A second person agrees to the plan whose digest they saw. The approval is good for
    /// [`APPROVED_TTL`](crate::APPROVED_TTL).
    ///
    /// The same approver's second call gives the set back unchanged, with its old version: there is nothing to
    /// store then.
    ///
    /// # Errors
    /// Not human, the planner or the planner's other token, another digest than the set's, too late, approved by
    /// somebody else, or a state that cannot be approved.
    pub fn approve(
        &self,
        approver: &Actor,
        seen: &PlanDigest,
        key: &ApprovalKey,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        let state = self.after(Move::Approve)?;
        if !approver.is_human() {
            return Err(TransitionError::NotHuman { token: approver.token.clone() });
        }
        if approver.is_same_person(self.plan.planner()) {
            return Err(TransitionError::SamePerson { person: self.plan.planner().person.clone() });
        }
        if *seen != self.digest {
            return Err(TransitionError::DigestChanged { seen: *seen, current: self.digest });
        }
        self.in_time(now)?;
        if let Some(approval) = &self.approval {
            return if approval.kind == ApprovalKind::SecondPerson && approval.by == *approver {
                Ok(self.clone())
            } else {
                Err(TransitionError::AlreadyApproved { by: approval.by.token.clone() })
            };
        }
        let mut next = self.next(state, now);
        next.approval =
            Some(Approval::sign(ApprovalKind::SecondPerson, approver.clone(), &self.plan, key, now));
        Ok(next)
    }

    /// Somebody says no. Anybody may whom the embedder lets: saying no is safe.
    ///
    /// # Errors
    /// The state cannot be rejected.
    pub fn reject(&self, by: &Actor, note: &str, now: Timestamp) -> Result<Self, TransitionError> {
        self.end(Move::Reject, Some(by), note, now)
    }

    /// The plan is withdrawn, by its planner or an operator.
    ///
    /// # Errors
    /// The state cannot be cancelled: what is being applied runs to its end.
    pub fn cancel(&self, by: &Actor, note: &str, now: Timestamp) -> Result<Self, TransitionError> {
        self.end(Move::Cancel, Some(by), note, now)
    }

    /// Its time is up.
    ///
    /// # Errors
    /// There is time left, or the state does not expire.
    pub fn expire(&self, now: Timestamp) -> Result<Self, TransitionError> {
        self.after(Move::Expire)?;
        match self.deadline() {
            Some(until) if now < until => Err(TransitionError::NotExpired { until }),
            _ => self.end(Move::Expire, None, "nobody acted in time", now),
        }
    }

    /// A person has looked and found that an unknown set did happen, completely.
    ///
    /// # Errors
    /// The state is not unknown.
    pub fn resolve_applied(&self, by: &Actor, note: &str, now: Timestamp) -> Result<Self, TransitionError> {
        self.end(Move::ResolveApplied, Some(by), note, now)
    }

    /// A person has looked and found that an unknown set did not happen, or not all of it.
    ///
    /// # Errors
    /// The state is not unknown.
    pub fn resolve_failed(&self, by: &Actor, note: &str, now: Timestamp) -> Result<Self, TransitionError> {
        self.end(Move::ResolveFailed, Some(by), note, now)
    }

    /// The step that an interrupted apply left open; `None` unless applying.
    pub(crate) fn open_step(&self) -> Option<OpenStep> {
        if self.state != State::Applying {
            return None;
        }
        let (step, record) = self
            .records
            .iter()
            .enumerate()
            .find(|(_, record)| !record.outcome.as_ref().is_some_and(StepOutcome::is_ok))?;
        Some(match (&record.intent, &record.handle) {
            (None, _) => OpenStep::NotStarted { step },
            (Some(intent), None) => OpenStep::Intended { step, intent: intent.clone() },
            (Some(_), Some(handle)) => OpenStep::Dispatched { step, handle: handle.clone() },
        })
    }

    /// Marks the intent to send a step's one request. The first step's intent spends the approval.
    pub(crate) fn intend(
        &self,
        step: usize,
        intent: Intent,
        applier: &Actor,
        key: &ApprovalKey,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        let state = self.after(Move::Intend)?;
        self.in_time(now)?;
        if !self.approval.as_ref().is_some_and(|approval| approval.is_genuine(&self.plan, key)) {
            return Err(TransitionError::ApprovalVoid);
        }
        let earlier_ok = self
            .records
            .iter()
            .take(step)
            .all(|record| record.outcome.as_ref().is_some_and(StepOutcome::is_ok));
        let mut next = self.next(state, now);
        match next.records.get_mut(step) {
            Some(record) if earlier_ok && *record == StepRecord::default() => record.intent = Some(intent),
            _ => return Err(TransitionError::StepOrder { step }),
        }
        next.applied_by.get_or_insert_with(|| applier.clone());
        Ok(next)
    }

    /// Records a step's task handle, once.
    pub(crate) fn dispatched(
        &self,
        step: usize,
        handle: &str,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        let mut next = self.next(self.after(Move::Dispatch)?, now);
        match next.records.get_mut(step) {
            Some(StepRecord { intent: Some(_), handle: slot @ None, outcome: None }) => {
                *slot = Some(handle.to_owned());
            }
            _ => return Err(TransitionError::StepOrder { step }),
        }
        Ok(next)
    }

    /// Records how a step ended, and with it where the set goes.
    pub(crate) fn step_ended(
        &self,
        step: usize,
        outcome: StepOutcome,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        let is_last = step.checked_add(1) == Some(self.records.len());
        let number = step.saturating_add(1);
        let (by, note) = match &outcome {
            StepOutcome::Ok | StepOutcome::OkWithWarnings(_) if !is_last => (Move::EndStep, None),
            StepOutcome::Ok => (Move::Succeed, Some("every step ended OK".to_owned())),
            StepOutcome::OkWithWarnings(n) => {
                (Move::Succeed, Some(format!("ended with {n} warnings in step {number}")))
            }
            StepOutcome::Failed(why) => (Move::Fail, Some(format!("step {number} failed: {why}"))),
            StepOutcome::Unknown(why) => (Move::Lose, Some(format!("step {number} is unknown: {why}"))),
        };
        let mut next = self.next(self.after(by)?, now);
        match next.records.get_mut(step) {
            Some(StepRecord { intent: Some(_), outcome: slot @ None, .. }) => *slot = Some(outcome),
            _ => return Err(TransitionError::StepOrder { step }),
        }
        next.ending = note.map(|note| Ending { at: now, by: None, note });
        Ok(next)
    }

    /// Ends a set whose next step is not going to start. Nothing is in doubt: the steps before ended well.
    pub(crate) fn stopped_before(
        &self,
        step: usize,
        why: &str,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        match self.open_step() {
            Some(OpenStep::NotStarted { step: open }) if open == step => {
                let number = step.saturating_add(1);
                self.end(Move::Fail, None, &format!("step {number} was not started: {why}"), now)
            }
            _ => Err(TransitionError::StepOrder { step }),
        }
    }

    fn end(
        &self,
        by: Move,
        who: Option<&Actor>,
        note: &str,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        let mut next = self.next(self.after(by)?, now);
        next.ending = Some(Ending { at: now, by: who.cloned(), note: note.to_owned() });
        Ok(next)
    }

    fn after(&self, by: Move) -> Result<State, TransitionError> {
        self.state.after(by).ok_or(TransitionError::Forbidden { state: self.state, by })
    }

    fn in_time(&self, now: Timestamp) -> Result<(), TransitionError> {
        match self.deadline() {
            Some(at) if now >= at => Err(TransitionError::Expired { at }),
            _ => Ok(()),
        }
    }

    fn next(&self, state: State, now: Timestamp) -> Self {
        Self { state, version: self.version.saturating_add(1), updated: now, ..self.clone() }
    }
}

/// Where an interrupted apply stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenStep {
    /// The handle is durable.
    Dispatched { step: usize, handle: String },
    /// The intent is durable, the handle is not: in doubt.
    Intended { step: usize, intent: Intent },
    /// The steps before ended well, nothing of this one was sent.
    NotStarted { step: usize },
}

/// A move was refused; the set is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// Somebody else approved already.
    #[error("already approved by `{by}`: one approval is enough, apply it")]
    AlreadyApproved {
        /// The approver's token name.
        by: String,
    },
    /// The approval is not one this server recorded for this plan.
    #[error("the approval is not valid for this plan under the present key: cancel the set and plan again")]
    ApprovalVoid,
    /// The approver saw another plan.
    #[error("the digest seen is {seen}, the set's is {current}: read the preview again and send its digest")]
    DigestChanged {
        /// What the approver sent.
        seen: PlanDigest,
        /// What the set has.
        current: PlanDigest,
    },
    /// Too late.
    #[error("expired at {at}: plan again")]
    Expired {
        /// The deadline.
        at: Timestamp,
    },
    /// The table has no such move.
    #[error("a set that is {state} cannot be {by}")]
    Forbidden {
        /// Where the set stands.
        state: State,
        /// What was tried.
        by: Move,
    },
    /// Too early.
    #[error("not expired before {until}")]
    NotExpired {
        /// The deadline.
        until: Timestamp,
    },
    /// Not declared human.
    #[error(
        "token `{token}` is not declared human: a person with a token of actor type `human` must approve"
    )]
    NotHuman {
        /// The approver's token name.
        token: String,
    },
    /// One person in both roles.
    #[error("planned by `{person}`: a different person must approve")]
    SamePerson {
        /// The planner's person.
        person: String,
    },
    /// A step's marks come in order, each once.
    #[error("step {} is not at a point where that can be recorded", .step.saturating_add(1))]
    StepOrder {
        /// The step, from 0.
        step: usize,
    },
}

impl TransitionError {
    /// A stable word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::AlreadyApproved { .. } => "already_approved",
            Self::ApprovalVoid => "approval_void",
            Self::DigestChanged { .. } => "digest_changed",
            Self::Expired { .. } => "expired",
            Self::Forbidden { .. } => "wrong_state",
            Self::NotExpired { .. } => "not_expired",
            Self::NotHuman { .. } => "not_human",
            Self::SamePerson { .. } => "same_person",
            Self::StepOrder { .. } => "step_order",
        }
    }
}

#[cfg(test)]
mod tests;
