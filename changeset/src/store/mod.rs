//! Where change sets are kept.
//!
//! [`Store`] is synchronous and asks for exclusive access to write: an embedder drives it from one writer thread.
//! [`MemoryStore`](memory::MemoryStore) keeps nothing across a restart; `SqliteStore` (feature `sqlite`) is the
//! durable engine. Another engine proves itself with [`suite::run`] and may use [`codec`] for its rows.

mod admission;
pub mod codec;
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod suite;

use std::time::Duration;

use jiff::Timestamp;

pub use admission::{AdmissionFacts, AdmissionRefusal, Admitted, admit};

use crate::{ChangeSet, ChangeSetId, Move, State, Target};

/// How far the clock may stand behind the latest time seen before it counts as set back: two calls that overlap
/// may report their times in either order.
pub const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// The caps on pending sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pending sets of one planner's token. Default 10.
    pub pending_per_planner: usize,
    /// Pending sets in all. Default 100.
    pub pending_total: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pending_per_planner: 10, pending_total: 100 }
    }
}

/// What [`Store::insert`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// Stored under its own identifier.
    Stored,
    /// The planner asked for the same thing under the same idempotency key before; this is that set, as it
    /// stands now. Nothing was stored.
    Existing(Box<ChangeSet>),
    /// Not stored.
    Refused(AdmissionRefusal),
}

/// Which sets [`Store::list`] gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this state.
    pub state: Option<State>,
    /// Only sets of this planner's token.
    pub planner: Option<String>,
    /// Only sets on this cluster.
    pub cluster: Option<String>,
    /// Only planned, approved and applying sets.
    pub pending_only: bool,
    /// Only sets planned at this moment or later.
    pub created_since: Option<Timestamp>,
    /// At most this many, the newest; all when absent.
    pub newest: Option<usize>,
}

impl Filter {
    /// Whether a set passes. `newest` counts sets and is no property of one.
    #[must_use]
    pub fn admits(&self, set: &ChangeSet) -> bool {
        self.state.is_none_or(|state| set.state() == state)
            && self.planner.as_ref().is_none_or(|planner| set.plan().planner().token == *planner)
            && self.cluster.as_ref().is_none_or(|cluster| set.plan().target().cluster == *cluster)
            && (!self.pending_only || set.state().is_pending())
            && self.created_since.is_none_or(|since| set.plan().created() >= since)
    }
}

/// How many sets there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub total: usize,
    /// Waiting for an approval.
    pub planned: usize,
    /// Waiting for an apply.
    pub approved: usize,
    /// Being applied.
    pub applying: usize,
    /// Waiting for a person to resolve them.
    pub unknown: usize,
}

/// A store of change sets.
///
/// Every method that returns `Ok` after writing promises that the write survives a crash, as far as the engine
/// keeps anything at all. After an error on a write, a durable engine is *poisoned*: it refuses further writes
/// until it is opened anew, because it no longer knows what the disk holds.
pub trait Store: Send {
    /// Admits and stores a new set in one atomic step: idempotency key, one pending set per planner and target,
    /// caps. "Now" is the set's own [`updated`](ChangeSet::updated); overdue sets do not count as pending.
    ///
    /// # Errors
    /// The clock is set back, or the engine failed. A refusal by the rules is no error: see [`Inserted`].
    fn insert(&mut self, set: &ChangeSet, limits: &Limits) -> Result<Inserted, StoreError>;

    /// The set of that name; `None` when there is none.
    ///
    /// # Errors
    /// The stored set is damaged or its digest does not match, or the engine failed.
    fn load(&self, id: &ChangeSetId) -> Result<Option<ChangeSet>, StoreError>;

    /// Stores `set` if the stored version is still `expected_version`; `false` when it is not, or when there is
    /// no such set. This is the claim: of any number of callers, one gets `true`.
    ///
    /// # Errors
    /// `set` is no lawful successor of the stored one ([`check_successor`]), the clock is set back (for a move to
    /// approved or applying), or the engine failed.
    fn replace_if(&mut self, set: &ChangeSet, expected_version: u64) -> Result<bool, StoreError>;

    /// The sets that pass the filter, newest first, then by identifier.
    ///
    /// # Errors
    /// As [`load`](Self::load), for any one of them.
    fn list(&self, filter: &Filter) -> Result<Vec<ChangeSet>, StoreError>;

    /// The sets that were being applied: what recovery looks at.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn applying(&self) -> Result<Vec<ChangeSet>, StoreError> {
        self.list(&Filter { state: Some(State::Applying), ..Filter::default() })
    }

    /// The pending set of that planner on that target, leaving out sets overdue at `now`.
    ///
    /// # Errors
    /// The engine failed.
    fn pending_for(
        &self,
        planner_token: &str,
        target: &Target,
        now: Timestamp,
    ) -> Result<Option<ChangeSetId>, StoreError>;

    /// How many sets there are, by state.
    ///
    /// # Errors
    /// The engine failed.
    fn counts(&self) -> Result<Counts, StoreError>;

    /// Takes note of the time and gives back the one to use: the later of `now` and the latest time ever seen, so
    /// that nothing un-expires.
    ///
    /// # Errors
    /// `now` is more than [`CLOCK_SLACK`] behind: the clock was set back, and nothing may be approved or applied
    /// until it has caught up or a person calls [`accept_time`](Self::accept_time). Or the engine failed.
    fn observe_time(&mut self, now: Timestamp) -> Result<Timestamp, StoreError>;

    /// A person says that the clock is right now: the latest time seen becomes `now`.
    ///
    /// # Errors
    /// The engine failed.
    fn accept_time(&mut self, now: Timestamp) -> Result<(), StoreError>;

    /// Why the store refuses to write; `None` while it does not.
    fn poisoned(&self) -> Option<&str>;

    /// Stores what a move made of `before`; `true` also when the move changed nothing.
    ///
    /// # Errors
    /// As [`replace_if`](Self::replace_if).
    fn advance(&mut self, before: &ChangeSet, after: &ChangeSet) -> Result<bool, StoreError> {
        if before == after { Ok(true) } else { self.replace_if(after, before.version()) }
    }
}

/// Whether `next` may take the place of `stored`: the same plan, a move of the table, the next version, and step
/// marks only added, in order. Engines call it before they write, so that no caller can undo a dispatch or leave a
/// final state.
///
/// # Errors
/// [`StoreError::Unlawful`], saying what does not fit.
pub fn check_successor(stored: &ChangeSet, next: &ChangeSet) -> Result<(), StoreError> {
    let unlawful = |why: &str| Err(StoreError::Unlawful { id: stored.id(), why: why.to_owned() });
    if stored.id() != next.id() || stored.digest() != next.digest() {
        return unlawful("it is another plan");
    }
    if !Move::ALL.into_iter().any(|by| stored.state().after(by) == Some(next.state())) {
        return unlawful(&format!("no move leads from {} to {}", stored.state(), next.state()));
    }
    if next.version() <= stored.version() {
        return unlawful("its version is not newer");
    }
    let approval_kept = match (stored.approval(), next.approval()) {
        (None, None) => true,
        (None, Some(_)) => next.state() == State::Approved,
        (before, after) => before == after,
    };
    if !approval_kept {
        return unlawful("it changes the approval");
    }
    if stored.records().len() != next.records().len() {
        return unlawful("it changes the number of steps");
    }
    let mut new_intents = 0_usize;
    for (before, after) in stored.records().iter().zip(next.records()) {
        let kept = (before.intent.is_none() || before.intent == after.intent)
            && (before.handle.is_none() || before.handle == after.handle)
            && (before.outcome.is_none() || before.outcome == after.outcome);
        if !kept {
            return unlawful("it changes a step's marks");
        }
        if before.intent.is_none() && (after.handle.is_some() || after.outcome.is_some()) {
            return unlawful("a step has an outcome without a durable intent");
        }
        if before.intent.is_none() && after.intent.is_some() {
            new_intents = new_intents.saturating_add(1);
        }
    }
    if new_intents > 1 {
        return unlawful("it starts two steps at once");
    }
    Ok(())
}

/// Whether a write of `next` needs a clock that was not set back.
pub(crate) fn needs_clock(next: &ChangeSet) -> bool {
    next.state() == State::Approved
        || (next.state() == State::Applying
            && next.records().iter().all(|record| record.handle.is_none() && record.outcome.is_none()))
}

/// The latest time seen, after `now`; the error when the clock was set back.
pub(crate) fn clock(seen: Option<Timestamp>, now: Timestamp) -> Result<Timestamp, StoreError> {
    match seen {
        Some(seen) if now < crate::time::earlier(seen, CLOCK_SLACK) => {
            Err(StoreError::ClockSetBack { now, seen })
        }
        Some(seen) => Ok(seen.max(now)),
        None => Ok(now),
    }
}

/// A store said no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the store; nothing was written.
    #[error("the state store is busy: another process holds it; try again")]
    Busy,
    /// The clock went backwards.
    #[error(
        "the clock says {now}, but {seen} was seen before: set it right, or confirm that it is right now, before \
         anything is approved or applied"
    )]
    ClockSetBack {
        /// The clock.
        now: Timestamp,
        /// The latest time seen.
        seen: Timestamp,
    },
    /// A stored set cannot be read back.
    #[error("stored change set {id} is damaged ({why}): restore the state from a backup")]
    Damaged {
        /// The set, as the store names it.
        id: String,
        /// What is wrong.
        why: String,
    },
    /// A stored set is not the one that was stored.
    #[error(
        "stored change set {id} does not match its digest (stored {stored}, recomputed {computed}): it was changed \
         outside the server; cancel it and plan again"
    )]
    DigestMismatch {
        /// The set.
        id: ChangeSetId,
        /// The digest in the store.
        stored: String,
        /// The digest of the fields in the store.
        computed: String,
    },
    /// Two sets of one name.
    #[error("a change set named {id} exists already: identifiers need fresh randomness")]
    DuplicateId {
        /// The name.
        id: ChangeSetId,
    },
    /// The engine failed.
    #[error("the state store failed: {why}")]
    Engine {
        /// The engine's words.
        why: String,
    },
    /// The file is not usable as a state store.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong, and the way out.
        why: String,
    },
    /// An earlier write failed.
    #[error(
        "the state store takes no more writes, because an earlier one failed ({why}): find the cause, then restart"
    )]
    Poisoned {
        /// The earlier failure.
        why: String,
    },
    /// The write would break the history.
    #[error("change set {id} cannot be replaced like that: {why}")]
    Unlawful {
        /// The set.
        id: ChangeSetId,
        /// What does not fit.
        why: String,
    },
}

#[cfg(test)]
mod tests;
