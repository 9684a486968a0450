//! Each promise broken once: passing the suite would mean nothing if it let any of these pass.

use std::sync::{Arc, Mutex, MutexGuard};

use super::*;
use crate::MemoryStore;
use crate::store::Counts;

/// The one thing that an engine does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    LosesSets,
    LosesOutcomes,
    LosesTheTime,
    TakesIdsTwice,
    IgnoresVersions,
    TakesAnySuccessor,
    IgnoresTargets,
    IgnoresPlannerCap,
    IgnoresServerCap,
    IgnoresKeys,
    RefusesForAnotherReason,
    ListsOldestFirst,
    ListsWhatEnded,
    CountsNothing,
    IgnoresTheClock,
}

/// A store in memory that lives as long as its last opening, and has a fault.
#[derive(Clone)]
struct Faulty {
    store: Arc<Mutex<MemoryStore>>,
    fault: Fault,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self { store: Arc::default(), fault }
    }

    fn reopen(&self) -> Self {
        if self.fault == Fault::LosesTheTime {
            self.sound().accept_time(Timestamp::UNIX_EPOCH).unwrap();
        }
        self.clone()
    }

    fn sound(&self) -> MutexGuard<'_, MemoryStore> {
        self.store.lock().unwrap()
    }
}

impl Store for Faulty {
    fn insert(&mut self, set: &ChangeSet, limits: &Limits) -> Result<Inserted, StoreError> {
        use AdmissionRefusal::{KeyReused, PlannerCap, ServerCap, TargetPending};
        use Inserted::{Existing, Refused, Stored};
        let done = self.sound().insert(set, limits);
        match (self.fault, done) {
            (Fault::TakesIdsTwice, Err(StoreError::DuplicateId { .. }))
            | (Fault::IgnoresTargets, Ok(Refused(TargetPending { .. })))
            | (Fault::IgnoresPlannerCap, Ok(Refused(PlannerCap { .. })))
            | (Fault::IgnoresServerCap, Ok(Refused(ServerCap { .. })))
            | (Fault::IgnoresKeys, Ok(Existing(_) | Refused(KeyReused { .. }))) => Ok(Stored),
            (Fault::RefusesForAnotherReason, Ok(Refused(_))) => Ok(Refused(ServerCap { cap: 99 })),
            (_, done) => done,
        }
    }

    fn load(&self, id: &ChangeSetId) -> Result<Option<ChangeSet>, StoreError> {
        let mut found = self.sound().load(id)?;
        match self.fault {
            Fault::LosesSets => found = None,
            Fault::LosesOutcomes => {
                found.iter_mut().flat_map(|set| &mut set.records).for_each(|record| record.outcome = None);
            }
            _ => {}
        }
        Ok(found)
    }

    fn replace_if(&mut self, set: &ChangeSet, expected_version: u64) -> Result<bool, StoreError> {
        let mut store = self.sound();
        let expected = match (self.fault, store.load(&set.id())?) {
            (Fault::IgnoresVersions, Some(stored)) => stored.version(),
            _ => expected_version,
        };
        match (self.fault, store.replace_if(set, expected)) {
            (Fault::TakesAnySuccessor, Err(StoreError::Unlawful { .. })) => Ok(true),
            (_, done) => done,
        }
    }

    fn list(&self, filter: &Filter) -> Result<Vec<ChangeSet>, StoreError> {
        let mut filter = filter.clone();
        filter.pending_only &= self.fault != Fault::ListsWhatEnded;
        let mut found = self.sound().list(&filter)?;
        if self.fault == Fault::ListsOldestFirst {
            found.reverse();
        }
        Ok(found)
    }

    fn pending_for(
        &self,
        planner_token: &str,
        target: &Target,
        now: Timestamp,
    ) -> Result<Option<ChangeSetId>, StoreError> {
        self.sound().pending_for(planner_token, target, now)
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        if self.fault == Fault::CountsNothing { Ok(Counts::default()) } else { self.sound().counts() }
    }

    fn observe_time(&mut self, now: Timestamp) -> Result<Timestamp, StoreError> {
        let seen = self.sound().observe_time(now);
        if self.fault == Fault::IgnoresTheClock { Ok(now) } else { seen }
    }

    fn accept_time(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.sound().accept_time(now)
    }

    fn poisoned(&self) -> Option<&str> {
        None
    }
}

#[test]
fn a_sound_store_passes_and_every_fault_is_found_where_it_is() {
    assert_eq!(run(|| Faulty::new(Fault::None)), Ok(CHECKS.len()));
    for (fault, check, why) in [
        (Fault::LosesSets, "a set comes back as it was stored", "is not there"),
        (Fault::LosesOutcomes, "every state and mark comes back as it was stored", "stored ChangeSet"),
        (Fault::TakesIdsTwice, "an identifier is used once", "expected a duplicate, got Ok(Stored)"),
        (Fault::IgnoresVersions, "compare-and-swap has one winner", "another version was replaced"),
        (Fault::TakesAnySuccessor, "what breaks the history is refused", "another plan under the same name"),
        (Fault::IgnoresTargets, "one pending set per planner and target", "expected TargetPending"),
        (Fault::RefusesForAnotherReason, "one pending set per planner and target", "got Refused(ServerCap"),
        (Fault::IgnoresPlannerCap, "the caps on pending sets hold", "the planner's cap"),
        (Fault::IgnoresServerCap, "the caps on pending sets hold", "the server's cap"),
        (Fault::IgnoresKeys, "an idempotency key finds its set", "the same request again: Stored"),
        (Fault::ListsOldestFirst, "lists are filtered and ordered", "not newest first"),
        (Fault::ListsWhatEnded, "lists are filtered and ordered", "the pending filter"),
        (Fault::CountsNothing, "lists are filtered and ordered", "the counts"),
        (Fault::IgnoresTheClock, "a clock set back is refused", "within the slack"),
    ] {
        let failures = run(|| Faulty::new(fault)).unwrap_err();
        let found = failures.iter().find(|failure| failure.check == check);
        let found = found.unwrap_or_else(|| panic!("{fault:?}: {failures:?}"));
        assert!(found.why.contains(why), "{fault:?}: {found}");
    }
}

#[test]
fn what_is_lost_between_two_openings_is_found() {
    let sound = Faulty::new(Fault::None);
    assert_eq!(run_durable(|| sound.reopen()), Ok(()));
    for (fault, why) in [
        (Fault::LosesSets, "is not there"),
        (Fault::LosesOutcomes, "stored ChangeSet"),
        (Fault::LosesTheTime, "the latest time seen was forgotten"),
    ] {
        let store = Faulty::new(fault);
        let failure = run_durable(|| store.reopen()).unwrap_err();
        assert_eq!(failure.check, "acknowledged state survives a restart", "{fault:?}");
        assert!(failure.why.contains(why), "{fault:?}: {failure}");
    }
}

/// What an engine says itself is told, and which check it was said in.
#[test]
fn a_failure_reads_as_its_check_and_the_engines_own_words() {
    let store = Faulty::new(Fault::None);
    // Ten minutes ahead of every time that the suite uses.
    store.sound().observe_time(later(START, Duration::from_secs(600))).unwrap();
    let failures = run(|| store.reopen()).unwrap_err();
    let text = failures[0].to_string();
    assert!(text.starts_with("a set comes back as it was stored: the clock says "), "{text}");
    assert!(text.ends_with(&text_of_a_clock_set_back()), "{text}");
}

fn text_of_a_clock_set_back() -> String {
    let seen = later(START, Duration::from_secs(600));
    StoreError::ClockSetBack { now: START, seen }.to_string()
}
