//! A store that forgets: for tests, for stdio siblings, and as the plainest reading of the [`Store`] contract.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::store::{
    AdmissionFacts, Admitted, Counts, Filter, Inserted, Limits, Store, StoreError, admit, check_successor,
    clock, needs_clock,
};
use crate::{ChangeSet, ChangeSetId, State, Target};

/// Change sets in memory. A clone is a copy of everything, as a disk would look after a crash.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    sets: BTreeMap<ChangeSetId, ChangeSet>,
    seen: Option<Timestamp>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn pending(&self, now: Timestamp) -> impl Iterator<Item = &ChangeSet> {
        self.sets.values().filter(move |set| set.state().is_pending() && !set.is_overdue(now))
    }
}

impl Store for MemoryStore {
    fn insert(&mut self, set: &ChangeSet, limits: &Limits) -> Result<Inserted, StoreError> {
        let now = set.updated();
        let seen = clock(self.seen, now)?;
        let planner = &set.plan().planner().token;
        let key = set.plan().idempotency_key();
        let facts = AdmissionFacts {
            same_key: self
                .sets
                .values()
                .find(|old| {
                    key.is_some()
                        && old.plan().idempotency_key() == key
                        && old.plan().planner().token == *planner
                })
                .cloned(),
            pending_on_target: self.pending_for(planner, set.plan().target(), now)?,
            pending_by_planner: self
                .pending(now)
                .filter(|old| old.plan().planner().token == *planner)
                .count(),
            pending_total: self.pending(now).count(),
        };
        match admit(set, facts, limits) {
            Err(refusal) => return Ok(Inserted::Refused(refusal)),
            Ok(Admitted::Existing(old)) => return Ok(Inserted::Existing(old)),
            Ok(Admitted::New) => {}
        }
        if self.sets.contains_key(&set.id()) {
            return Err(StoreError::DuplicateId { id: set.id() });
        }
        self.sets.insert(set.id(), set.clone());
        self.seen = Some(seen);
        Ok(Inserted::Stored)
    }

    fn load(&self, id: &ChangeSetId) -> Result<Option<ChangeSet>, StoreError> {
        Ok(self.sets.get(id).cloned())
    }

    fn replace_if(&mut self, set: &ChangeSet, expected_version: u64) -> Result<bool, StoreError> {
        let Some(stored) = self.sets.get_mut(&set.id()).filter(|old| old.version() == expected_version)
        else {
            return Ok(false);
        };
        check_successor(stored, set)?;
        if needs_clock(set) {
            self.seen = Some(clock(self.seen, set.updated())?);
        }
        *stored = set.clone();
        Ok(true)
    }

    fn list(&self, filter: &Filter) -> Result<Vec<ChangeSet>, StoreError> {
        let mut sets: Vec<_> = self.sets.values().filter(|set| filter.admits(set)).cloned().collect();
        sets.sort_by_key(|set| (std::cmp::Reverse(set.plan().created()), set.id()));
        sets.truncate(filter.newest.unwrap_or(usize::MAX));
        Ok(sets)
    }

    fn pending_for(
        &self,
        planner_token: &str,
        target: &Target,
        now: Timestamp,
    ) -> Result<Option<ChangeSetId>, StoreError> {
        Ok(self
            .pending(now)
            .find(|set| set.plan().planner().token == planner_token && set.plan().target().is_same(target))
            .map(ChangeSet::id))
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        let in_state = |state| self.sets.values().filter(|set| set.state() == state).count();
        Ok(Counts {
            total: self.sets.len(),
            planned: in_state(State::Planned),
            approved: in_state(State::Approved),
            applying: in_state(State::Applying),
            unknown: in_state(State::Unknown),
        })
    }

    fn observe_time(&mut self, now: Timestamp) -> Result<Timestamp, StoreError> {
        let seen = clock(self.seen, now)?;
        self.seen = Some(seen);
        Ok(seen)
    }

    fn accept_time(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.seen = Some(now);
        Ok(())
    }

    fn poisoned(&self) -> Option<&str> {
        None
    }
}
