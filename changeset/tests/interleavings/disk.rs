//! What outlives the process: the crate's own store, and two that are broken on purpose.

use std::collections::BTreeMap;

use changeset::store::{Inserted, Limits, Store, StoreError};
use changeset::{ChangeSet, ChangeSetId, MemoryStore, State};
use jiff::Timestamp;

/// Which store a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The crate's.
    Sound,
    /// The last write wins.
    NoCompareAndSwap,
    /// A write is durable only when the next one comes.
    WritesLate,
}

#[derive(Debug, Clone)]
pub(crate) enum Disk {
    Sound(MemoryStore),
    NoCompareAndSwap(BTreeMap<ChangeSetId, ChangeSet>),
    WritesLate { shown: MemoryStore, kept: MemoryStore },
}

impl Disk {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sound => Self::Sound(MemoryStore::new()),
            Kind::NoCompareAndSwap => Self::NoCompareAndSwap(BTreeMap::new()),
            Kind::WritesLate => Self::WritesLate { shown: MemoryStore::new(), kept: MemoryStore::new() },
        }
    }

    pub(crate) fn load(&self, id: ChangeSetId) -> Option<ChangeSet> {
        match self {
            Self::Sound(store) | Self::WritesLate { shown: store, .. } => store.load(&id).expect("memory"),
            Self::NoCompareAndSwap(sets) => sets.get(&id).cloned(),
        }
    }

    /// Whether it was stored.
    pub(crate) fn insert(&mut self, set: &ChangeSet) -> Result<bool, StoreError> {
        self.remember();
        match self {
            Self::Sound(store) | Self::WritesLate { shown: store, .. } => {
                store.insert(set, &Limits::default()).map(|inserted| inserted == Inserted::Stored)
            }
            Self::NoCompareAndSwap(sets) => {
                sets.insert(set.id(), set.clone());
                Ok(true)
            }
        }
    }

    pub(crate) fn replace_if(&mut self, set: &ChangeSet, expected_version: u64) -> Result<bool, StoreError> {
        self.remember();
        match self {
            Self::Sound(store) | Self::WritesLate { shown: store, .. } => {
                store.replace_if(set, expected_version)
            }
            Self::NoCompareAndSwap(sets) => {
                sets.insert(set.id(), set.clone());
                Ok(true)
            }
        }
    }

    /// What the store makes of the time; the error when the clock counts as set back.
    pub(crate) fn observe(&mut self, now: Timestamp) -> Result<Timestamp, StoreError> {
        match self {
            Self::Sound(store) | Self::WritesLate { shown: store, .. } => store.observe_time(now),
            Self::NoCompareAndSwap(_) => Ok(now),
        }
    }

    pub(crate) fn applying(&self) -> Vec<ChangeSet> {
        match self {
            Self::Sound(store) | Self::WritesLate { shown: store, .. } => store.applying().expect("memory"),
            Self::NoCompareAndSwap(sets) => {
                sets.values().filter(|set| set.state() == State::Applying).cloned().collect()
            }
        }
    }

    /// The process dies.
    pub(crate) fn crash(&mut self) {
        if let Self::WritesLate { shown, kept } = self {
            *shown = kept.clone();
        }
    }

    fn remember(&mut self) {
        if let Self::WritesLate { shown, kept } = self {
            *kept = shown.clone();
        }
    }
}
