//! After a crash: what became of the sets that were being applied?

use jiff::Timestamp;

use crate::coordinator::{Effect, Event, OutOfOrder, Timing};
use crate::set::OpenStep;
use crate::tail::{Tail, TailStep};
use crate::{ChangeSet, ChangeSetId, State};

/// Finds out how an interrupted apply ended. It can never send: no path leads from here to a
/// [`DispatchPermit`](crate::DispatchPermit).
///
/// - With a durable handle, the task is followed to its end.
/// - With an intent alone, the tasks that are new since its watermark are read once the settling time is over:
///   exactly one is adopted and followed; none or several leave the set unknown, for a person to resolve.
/// - Steps that were not started stay so: the set ends as failed, saying where it stopped. Starting them would
///   need a fresh decision, and nobody is there to ask for it.
#[derive(Debug)]
pub struct Recover {
    tail: Tail,
}

impl Recover {
    /// Starts with a set that the store holds as applying.
    ///
    /// # Errors
    /// The set is not applying: there is nothing to find out.
    pub fn begin(set: ChangeSet, timing: Timing, now: Timestamp) -> Result<(Self, Effect), NotApplying> {
        let (tail, effect) = match set.open_step() {
            None => return Err(NotApplying { id: set.id(), state: set.state() }),
            Some(OpenStep::Dispatched { step, handle }) => Tail::following(set, step, handle, timing),
            Some(OpenStep::Intended { step, intent }) => Tail::finding(set, step, intent, timing, now),
            Some(OpenStep::NotStarted { step }) => Tail::stopping(set, step, INTERRUPTED, now),
        };
        Ok((Self { tail }, effect))
    }

    /// Takes what happened, answers what to do next: never [`Effect::Send`].
    ///
    /// # Errors
    /// The event does not answer the last effect; the machine has not moved.
    pub fn on(&mut self, event: Event, now: Timestamp) -> Result<Effect, OutOfOrder> {
        match self.tail.on(event, now)? {
            TailStep::Do(effect) => Ok(effect),
            TailStep::Next { set, step } => {
                let (tail, effect) = Tail::stopping(set, step, INTERRUPTED, now);
                self.tail = tail;
                Ok(effect)
            }
        }
    }
}

const INTERRUPTED: &str = "the apply was interrupted; plan again for what is left";

/// The set is not being applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id} is {state}, not applying: there is nothing to recover")]
pub struct NotApplying {
    /// The set.
    pub id: ChangeSetId,
    /// Where it stands.
    pub state: State,
}
