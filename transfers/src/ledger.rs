//! What is known of every link, as plain single-threaded data: [`LinkStore`](crate::LinkStore) puts the lock
//! around it.
//!
//! A link has one record from its mint until its outcome retires: pending → running → done, or pending → done.
//! Two ordered sets say whose time runs out next, so that settling costs nothing while nothing is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Gauge;
use crate::link::{RandomKeyed, TokenHash};
use crate::store::Counts;
use crate::{Limits, LinkId, LinkStatus, MintError, Outcome};

pub(crate) struct Ledger<B> {
    limits: Limits,
    /// The latest time anybody told; time does not go back.
    clock: Duration,
    records: RandomKeyed<LinkId, Record<B>>,
    /// One entry per record, of whatever phase: this is how a spent token is remembered.
    tokens: RandomKeyed<TokenHash, LinkId>,
    /// The pending records by the moment they expire.
    expiring: BTreeSet<(Duration, LinkId)>,
    /// The finished records by the moment they retire, with their owner.
    retiring: BTreeMap<(Duration, LinkId), Arc<str>>,
    /// The owners of pending and finished records.
    tallies: HashMap<Arc<str>, Tally>,
}

struct Record<B> {
    token: TokenHash,
    owner: Arc<str>,
    /// Whether the token was ever presented in time.
    spent: bool,
    phase: Phase<B>,
}

enum Phase<B> {
    Pending { binding: B, expires_at: Duration },
    Running(Arc<Gauge>),
    Done(Outcome),
}

#[derive(Default)]
struct Tally {
    pending: usize,
    outcomes: usize,
}

/// The ledger's answer to a presented token.
pub(crate) enum Found<B> {
    Won { id: LinkId, owner: Arc<str>, binding: B, gauge: Arc<Gauge> },
    Reused { id: LinkId, owner: Arc<str> },
    Absent,
}

impl<B> Ledger<B> {
    pub(crate) fn new(limits: Limits) -> Ledger<B> {
        Ledger {
            limits,
            clock: Duration::ZERO,
            records: RandomKeyed::default(),
            tokens: RandomKeyed::default(),
            expiring: BTreeSet::new(),
            retiring: BTreeMap::new(),
            tallies: HashMap::new(),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one mint; a struct would be built and taken apart at once"
    )]
    pub(crate) fn mint(
        &mut self,
        owner: &str,
        binding: B,
        ttl: Option<Duration>,
        now: Duration,
        token: TokenHash,
        id: LinkId,
        trash: &mut Vec<B>,
    ) -> Result<Duration, MintError> {
        self.settle(now, trash);
        if let Err(error) = self.admit(owner, token, id) {
            trash.push(binding);
            return Err(error);
        }
        let ttl = self.limits.ttl(ttl);
        let expires_at = self.clock.saturating_add(ttl);
        let owner = match self.tallies.get_key_value(owner) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(owner),
        };
        self.tally(&owner, |tally| tally.pending = tally.pending.saturating_add(1));
        self.tokens.insert(token, id);
        self.expiring.insert((expires_at, id));
        let phase = Phase::Pending { binding, expires_at };
        self.records.insert(id, Record { token, owner, spent: false, phase });
        Ok(ttl)
    }

    /// Whether one more link of this owner may be pending.
    fn admit(&self, owner: &str, token: TokenHash, id: LinkId) -> Result<(), MintError> {
        let limits = &self.limits;
        // The owner's own cap first: it is the one the owner can do something about.
        if self.tallies.get(owner).map_or(0, |tally| tally.pending) >= limits.per_owner {
            return Err(MintError::OwnerFull { limit: limits.per_owner });
        }
        if self.expiring.len() >= limits.max_pending {
            return Err(MintError::StoreFull { limit: limits.max_pending });
        }
        if self.tokens.contains_key(&token) || self.records.contains_key(&id) {
            return Err(MintError::EntropyRepeated);
        }
        Ok(())
    }

    pub(crate) fn claim(&mut self, token: TokenHash, now: Duration, trash: &mut Vec<B>) -> Found<B> {
        self.settle(now, trash);
        let Some(id) = self.tokens.get(&token).copied() else {
            return Found::Absent;
        };
        let gauge = Arc::new(Gauge::default());
        match self.leave_pending(&id, Phase::Running(Arc::clone(&gauge))) {
            Some((owner, binding)) => {
                if let Some(record) = self.records.get_mut(&id) {
                    record.spent = true;
                }
                Found::Won { id, owner, binding, gauge }
            }
            None => match self.records.get(&id) {
                Some(record) if record.spent => Found::Reused { id, owner: Arc::clone(&record.owner) },
                _ => Found::Absent,
            },
        }
    }

    pub(crate) fn status(
        &mut self,
        id: &LinkId,
        owner: &str,
        now: Duration,
        trash: &mut Vec<B>,
    ) -> Option<LinkStatus> {
        self.settle(now, trash);
        let record = self.records.get(id).filter(|record| &*record.owner == owner)?;
        Some(self.standing(record))
    }

    fn standing(&self, record: &Record<B>) -> LinkStatus {
        match &record.phase {
            Phase::Pending { expires_at, .. } => {
                LinkStatus::Pending { expires_in: expires_at.saturating_sub(self.clock) }
            }
            Phase::Running(gauge) => {
                let progress = gauge.read();
                LinkStatus::Running { bytes: progress.bytes, stage: progress.stage }
            }
            Phase::Done(outcome) => LinkStatus::Done { outcome: outcome.clone() },
        }
    }

    pub(crate) fn list(
        &mut self,
        owner: &str,
        now: Duration,
        trash: &mut Vec<B>,
    ) -> Vec<(LinkId, LinkStatus)> {
        self.settle(now, trash);
        let mut found: Vec<_> = self
            .records
            .iter()
            .filter(|(_, record)| &*record.owner == owner)
            .map(|(id, record)| (*id, self.standing(record)))
            .collect();
        found.sort_by_key(|(id, _)| *id);
        found
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub(crate) fn void(&mut self, id: &LinkId, reason: &str, now: Duration, trash: &mut Vec<B>) -> bool {
        self.settle(now, trash);
        let outcome = Outcome::Voided { reason: reason.to_owned() };
        self.end_pending(id, outcome, self.clock, trash)
    }

    pub(crate) fn conclude(
        &mut self,
        id: LinkId,
        outcome: Outcome,
        now: Option<Duration>,
        trash: &mut Vec<B>,
    ) {
        self.settle(now.unwrap_or(self.clock), trash);
        if let Some(record) = self.records.get_mut(&id)
            && matches!(record.phase, Phase::Running(_))
        {
            record.phase = Phase::Done(outcome.bounded());
            let owner = Arc::clone(&record.owner);
            self.keep_outcome(id, owner, self.clock);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let (pending, outcomes) = (self.expiring.len(), self.retiring.len());
        Counts {
            pending,
            running: self.records.len().saturating_sub(pending).saturating_sub(outcomes),
            outcomes,
        }
    }

    /// Does what time has brought: ends the pending links whose life is over and retires old outcomes.
    pub(crate) fn settle(&mut self, now: Duration, trash: &mut Vec<B>) {
        self.clock = self.clock.max(now);
        while let Some(&(expires_at, id)) = self.expiring.first()
            && expires_at <= self.clock
        {
            // Its outcome counts from the moment it expired, not from when that was noticed.
            self.end_pending(&id, Outcome::Expired, expires_at, trash);
        }
        while let Some((&(retires_at, id), _)) = self.retiring.first_key_value()
            && retires_at <= self.clock
        {
            self.retire((retires_at, id));
        }
    }

    fn end_pending(&mut self, id: &LinkId, outcome: Outcome, at: Duration, trash: &mut Vec<B>) -> bool {
        let Some((owner, binding)) = self.leave_pending(id, Phase::Done(outcome.bounded())) else {
            return false;
        };
        trash.push(binding);
        self.keep_outcome(*id, owner, at);
        true
    }

    /// Moves a pending record to its next phase and yields what it was bound to; the one way out of pending.
    fn leave_pending(&mut self, id: &LinkId, next: Phase<B>) -> Option<(Arc<str>, B)> {
        let record = self.records.get_mut(id)?;
        if !matches!(record.phase, Phase::Pending { .. }) {
            return None;
        }
        let Phase::Pending { binding, expires_at } = std::mem::replace(&mut record.phase, next) else {
            return None;
        };
        let owner = Arc::clone(&record.owner);
        self.expiring.remove(&(expires_at, *id));
        self.tally(&owner, |tally| tally.pending = tally.pending.saturating_sub(1));
        Some((owner, binding))
    }

    /// Keeps the outcome of a link that ended `at`, and lets the oldest go where that is one too many.
    fn keep_outcome(&mut self, id: LinkId, owner: Arc<str>, at: Duration) {
        let retires_at = at.saturating_add(self.limits.outcomes_kept);
        self.retiring.insert((retires_at, id), Arc::clone(&owner));
        let mut kept = 0;
        self.tally(&owner, |tally| {
            tally.outcomes = tally.outcomes.saturating_add(1);
            kept = tally.outcomes;
        });
        if kept > self.limits.outcomes_per_owner
            && let Some((&oldest, _)) = self.retiring.iter().find(|(_, whose)| **whose == owner)
        {
            self.retire(oldest);
        }
        if self.retiring.len() > self.limits.max_outcomes
            && let Some((&oldest, _)) = self.retiring.first_key_value()
        {
            self.retire(oldest);
        }
    }

    fn retire(&mut self, entry: (Duration, LinkId)) {
        if let Some(owner) = self.retiring.remove(&entry) {
            self.tally(&owner, |tally| tally.outcomes = tally.outcomes.saturating_sub(1));
        }
        if let Some(record) = self.records.remove(&entry.1) {
            self.tokens.remove(&record.token);
        }
    }

    /// Changes an owner's tally, and forgets an owner of whom nothing is left.
    fn tally(&mut self, owner: &Arc<str>, change: impl FnOnce(&mut Tally)) {
        let Some(tally) = self.tallies.get_mut(owner) else {
            let mut tally = Tally::default();
            change(&mut tally);
            self.tallies.insert(Arc::clone(owner), tally);
            return;
        };
        change(tally);
        if tally.pending == 0 && tally.outcomes == 0 {
            self.tallies.remove(owner);
        }
    }
}
