//! What follows a send, for an apply and for a recovery alike.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::coordinator::{Effect, Event, Finish, Lookup, Mark, OutOfOrder, SendResult, TaskEnd, Timing};
use crate::time::later;
use crate::{ChangeSet, Intent, State, StepOutcome, UnknownCause};

/// The answer of a tail.
pub(crate) enum TailStep {
    /// Do this.
    Do(Effect),
    /// The step ended well and durably, and this one is next.
    Next { set: ChangeSet, step: usize },
}

/// Follows one step's request to its durable end. It cannot send.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The set as it should be; ahead of the store while a write is under way or has failed.
    set: ChangeSet,
    /// The version the store holds.
    stored_version: u64,
    step: usize,
    timing: Timing,
    /// The first write that went wrong.
    problem: Option<String>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Sending { intent: Intent },
    SavingHandle { handle: String },
    Following,
    Finding { lookup: Lookup, give_up_at: Timestamp, pause: Duration },
    SavingEnd,
    Done,
}

/// Between two readings of an unreadable task list: first and longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Tail {
    /// The request is being sent; `set` is durable.
    pub(crate) fn sending(set: ChangeSet, step: usize, intent: Intent, timing: Timing) -> Self {
        Self::new(set, step, timing, Phase::Sending { intent })
    }

    /// The task is known; `set` is durable.
    pub(crate) fn following(set: ChangeSet, step: usize, handle: String, timing: Timing) -> (Self, Effect) {
        (Self::new(set, step, timing, Phase::Following), Effect::Follow { step, handle })
    }

    /// The request's fate is in doubt; `set` is durable.
    pub(crate) fn finding(
        set: ChangeSet,
        step: usize,
        intent: Intent,
        timing: Timing,
        now: Timestamp,
    ) -> (Self, Effect) {
        let mut tail = Self::new(set, step, timing, Phase::Done);
        let effect = tail.find(intent, now);
        (tail, effect)
    }

    /// `step` is not going to start; `set` is durable. Nothing is looked for, so no timing matters.
    pub(crate) fn stopping(set: ChangeSet, step: usize, why: &str, now: Timestamp) -> (Self, Effect) {
        let ended = set.stopped_before(step, why, now);
        let mut tail = Self::new(set, step, Timing::default(), Phase::Done);
        let effect = tail.save_end(ended);
        (tail, effect)
    }

    fn new(set: ChangeSet, step: usize, timing: Timing, phase: Phase) -> Self {
        Self { stored_version: set.version(), set, step, timing, problem: None, phase }
    }

    /// Takes what happened. An event that does not fit leaves everything as it was.
    pub(crate) fn on(&mut self, event: Event, now: Timestamp) -> Result<TailStep, OutOfOrder> {
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        let effect = match (phase, event) {
            (Phase::Sending { intent }, Event::Sent(result)) => match result {
                SendResult::Handle(handle) => self.save_handle(handle, now),
                SendResult::Synchronous => self.step_ended(StepOutcome::Ok, now),
                SendResult::Refused(why) => self.step_ended(StepOutcome::Failed(why), now),
                SendResult::Unknown(_) => self.find(intent, now),
            },
            (Phase::SavingHandle { handle }, event) if is_store_answer(&event) => {
                // The task runs whatever the store says, so it is followed in any case.
                self.store_answered(event);
                self.phase = Phase::Following;
                Effect::Follow { step: self.step, handle }
            }
            (Phase::Following, Event::Task(end)) => self.step_ended(
                match end {
                    TaskEnd::Ok => StepOutcome::Ok,
                    TaskEnd::Warnings(n) => StepOutcome::OkWithWarnings(n),
                    TaskEnd::Failed(why) => StepOutcome::Failed(why),
                    TaskEnd::Lost(why) => StepOutcome::Unknown(UnknownCause::TaskLost(why)),
                },
                now,
            ),
            (Phase::Finding { lookup, .. }, Event::Found(tasks)) => self.found(&lookup, tasks, now),
            (Phase::Finding { .. }, Event::Observed { as_asked }) => {
                let outcome =
                    if as_asked { StepOutcome::Ok } else { StepOutcome::Unknown(UnknownCause::NotFound) };
                self.step_ended(outcome, now)
            }
            (Phase::Finding { lookup, give_up_at, pause }, Event::Unavailable(why)) => {
                self.unreadable(lookup, give_up_at, pause, why, now)
            }
            (Phase::SavingEnd, event) if is_store_answer(&event) => {
                self.store_answered(event);
                if self.problem.is_none() && self.set.state() == State::Applying {
                    return Ok(TailStep::Next { set: self.set.clone(), step: self.step.saturating_add(1) });
                }
                self.finish()
            }
            (phase, _) => {
                let expected = phase.expected();
                self.phase = phase;
                return Err(OutOfOrder { expected });
            }
        };
        Ok(TailStep::Do(effect))
    }

    fn save_handle(&mut self, handle: String, now: Timestamp) -> Effect {
        match self.set.dispatched(self.step, &handle, now) {
            Ok(next) => {
                self.phase = Phase::SavingHandle { handle };
                self.save(next, Mark::Handle)
            }
            Err(error) => self.stuck(&error),
        }
    }

    fn step_ended(&mut self, outcome: StepOutcome, now: Timestamp) -> Effect {
        self.save_end(self.set.step_ended(self.step, outcome, now))
    }

    fn save_end(&mut self, ended: Result<ChangeSet, crate::TransitionError>) -> Effect {
        match ended {
            Ok(next) => {
                let mark = if next.state() == State::Applying { Mark::StepEnd } else { Mark::End };
                self.phase = Phase::SavingEnd;
                self.save(next, mark)
            }
            Err(error) => self.stuck(&error),
        }
    }

    fn save(&mut self, next: ChangeSet, mark: Mark) -> Effect {
        self.set = next.clone();
        Effect::Persist { set: Box::new(next), expected_version: self.stored_version, mark }
    }

    fn store_answered(&mut self, event: Event) {
        let problem = match event {
            Event::Persisted => {
                self.stored_version = self.set.version();
                return;
            }
            Event::PersistFailed(why) => why,
            _ => "the stored set was changed by somebody else".to_owned(),
        };
        self.problem.get_or_insert(problem);
    }

    fn find(&mut self, intent: Intent, now: Timestamp) -> Effect {
        let op = self.set.plan().steps().get(self.step).map(|step| step.op.clone()).unwrap_or_default();
        let lookup = Lookup {
            id: self.set.id(),
            target: self.set.plan().target().clone(),
            step: self.step,
            op,
            node: intent.node,
            watermark: intent.watermark,
            since: intent.at,
            not_before: later(now, self.timing.settle),
        };
        let give_up_at = later(now, self.timing.give_up);
        self.phase = Phase::Finding { lookup: lookup.clone(), give_up_at, pause: FIRST_PAUSE };
        Effect::FindTask(lookup)
    }

    fn found(&mut self, lookup: &Lookup, tasks: Vec<String>, now: Timestamp) -> Effect {
        let new: BTreeSet<String> =
            tasks.into_iter().filter(|task| !lookup.watermark.contains(task)).collect();
        let count = new.len();
        match (count, new.into_iter().next()) {
            (1, Some(handle)) => self.save_handle(handle, now),
            (0, _) => self.step_ended(StepOutcome::Unknown(UnknownCause::NotFound), now),
            _ => self.step_ended(StepOutcome::Unknown(UnknownCause::Ambiguous(count as u64)), now),
        }
    }

    fn unreadable(
        &mut self,
        mut lookup: Lookup,
        give_up_at: Timestamp,
        pause: Duration,
        why: String,
        now: Timestamp,
    ) -> Effect {
        if now >= give_up_at {
            return self.step_ended(StepOutcome::Unknown(UnknownCause::Unreadable(why)), now);
        }
        lookup.not_before = later(now, pause).max(lookup.not_before);
        let pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        self.phase = Phase::Finding { lookup: lookup.clone(), give_up_at, pause };
        Effect::FindTask(lookup)
    }

    /// A mark did not fit the set. The store still says `applying`, so recovery and then a person will look.
    fn stuck(&mut self, error: &crate::TransitionError) -> Effect {
        self.problem.get_or_insert(error.to_string());
        self.finish()
    }

    fn finish(&mut self) -> Effect {
        self.phase = Phase::Done;
        Effect::Finish(Finish { set: Box::new(self.set.clone()), problem: self.problem.clone() })
    }
}

impl Phase {
    fn expected(&self) -> &'static str {
        match self {
            Self::Sending { .. } => "the result of the send",
            Self::SavingHandle { .. } => "the result of storing the handle",
            Self::Following => "the end of the task",
            Self::Finding { .. } => "the tasks found",
            Self::SavingEnd => "the result of storing the end",
            Self::Done => "nothing: it is done",
        }
    }
}

fn is_store_answer(event: &Event) -> bool {
    matches!(event, Event::Persisted | Event::Conflict | Event::PersistFailed(_))
}
