//! The store: one lock around the [ledger](crate::ledger), and nothing that blocks or panics under it.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use zeroize::Zeroize;

use crate::ledger::{Found, Ledger};
use crate::link::TokenHash;
use crate::sync::Mutex;
use crate::{Claim, Limits, LinkId, LinkStatus, LinkToken, Outcome, Presented};

/// A fresh link, as its owner gets to see it.
#[derive(Debug)]
pub struct Minted {
    /// The secret that redeems the link once.
    pub token: LinkToken,
    /// The public name under which the owner reads the outcome.
    pub id: LinkId,
    /// The lifetime the link really got; it may differ from the wish.
    pub expires_in: Duration,
}

/// Why no link was minted. Nothing else changed: no pending link is ever evicted for a new one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The store is full.
    #[error(
        "{limit} transfer links are pending, the most this server keeps at once: wait until one is used or \
         expires, then ask again"
    )]
    StoreFull {
        /// [`Limits::max_pending`].
        limit: usize,
    },
    /// This owner's share is used up.
    #[error(
        "you have {limit} transfer links pending, the most one token may have at once: use one of them or \
         wait until it expires, then ask again"
    )]
    OwnerFull {
        /// [`Limits::per_owner`].
        limit: usize,
    },
    /// The entropy made a token or an id that is known already, which chance does not do.
    #[error("the random source repeated itself: no link was made; restart the server on a sound one")]
    EntropyRepeated,
}

/// How many links there are in each part of their life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Minted and not presented yet.
    pub pending: usize,
    /// Presented and not finished yet.
    pub running: usize,
    /// Over, with an outcome still kept.
    pub outcomes: usize,
}

/// Single-use links, each bound to a `B` that says what it is for.
///
/// Everything is in memory and gone with the process, on purpose: a restart voids every link.
///
/// Time is a [`Duration`] since any fixed moment of a clock that never jumps (since the start of the process,
/// say). It never goes backwards here: the store takes the latest `now` it was ever given, so two threads that
/// read the clock in one order and arrive in another cannot have a link both expired and spent.
pub struct LinkStore<B> {
    ledger: Mutex<Ledger<B>>,
}

impl<B> LinkStore<B> {
    /// An empty store.
    #[must_use]
    pub fn new(limits: Limits) -> LinkStore<B> {
        LinkStore { ledger: Mutex::new(Ledger::new(limits)) }
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.locked(|ledger, _| ledger.limits())
    }

    /// Other limits from now on. Links that are pending keep the life they were promised, and none is taken back where there
    /// are more than may be now.
    pub fn set_limits(&self, limits: Limits) {
        self.locked(|ledger, _| ledger.set_limits(limits));
    }

    /// Every link of this owner with where it stands, by id.
    #[must_use]
    pub fn list(&self, owner: &str, now: Duration) -> Vec<(LinkId, LinkStatus)> {
        self.locked(|ledger, trash| ledger.list(owner, now, trash))
    }

    /// Mints a link for `owner`. `entropy` must be 48 bytes from the system's random source: 32 make the
    /// token, 16 the id. It is wiped here; the caller wipes its own copy.
    ///
    /// # Errors
    /// [`MintError`] where a cap is reached (links that have expired do not count) or the entropy repeats.
    pub fn mint(
        &self,
        owner: &str,
        binding: B,
        ttl: Option<Duration>,
        now: Duration,
        mut entropy: [u8; 48],
    ) -> Result<Minted, MintError> {
        let (mut secret, mut public) = ([0_u8; 32], [0_u8; 16]);
        for (to, from) in secret.iter_mut().chain(&mut public).zip(&entropy) {
            *to = *from;
        }
        entropy.zeroize();
        let id = LinkId::from_entropy(public);
        let hash = TokenHash::of_entropy(&secret);
        let minted = self
            .locked(|ledger, trash| ledger.mint(owner, binding, ttl, now, hash, id, trash))
            .map(|expires_in| Minted { token: LinkToken::from_entropy(&secret), id, expires_in });
        secret.zeroize();
        minted
    }

    /// Presents a token, exactly as it stands in the path. The first to present a live token wins it, and
    /// has thereby spent it, whatever becomes of the transfer.
    ///
    /// A text that is not a canonical token costs neither a hash nor the lock.
    pub fn claim(self: &Arc<Self>, raw_path_token: &str, now: Duration) -> Presented<B> {
        let Some(hash) = TokenHash::of_presented(raw_path_token) else {
            return Presented::Absent;
        };
        match self.locked(|ledger, trash| ledger.claim(hash, now, trash)) {
            Found::Won { id, owner, binding, gauge } => {
                Presented::Won(Claim::new(Arc::clone(self), id, owner, binding, gauge))
            }
            Found::Reused { id, owner } => Presented::Reused { id, owner },
            Found::Absent => Presented::Absent,
        }
    }

    /// Where a link stands, for its owner. Anybody else gets the answer of an unknown id: `None`.
    #[must_use]
    pub fn status(&self, id: &LinkId, owner: &str, now: Duration) -> Option<LinkStatus> {
        self.locked(|ledger, trash| ledger.status(id, owner, now, trash))
    }

    /// Takes a pending link back: its token redeems nothing any more, its owner reads the reason. `false`
    /// where the link is not pending (unknown, spent, over).
    pub fn void(&self, id: &LinkId, reason: &str, now: Duration) -> bool {
        self.locked(|ledger, trash| ledger.void(id, reason, now, trash))
    }

    /// Drops what time has ended. Every other call does so too; call this from a timer so that an idle
    /// store lets go of its bindings.
    pub fn sweep(&self, now: Duration) {
        self.locked(|ledger, trash| ledger.settle(now, trash));
    }

    /// How many links there are, as of the last call.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.locked(|ledger, _| ledger.counts())
    }

    /// The end of a claim; `now` is `None` where it was dropped and nobody could tell the time.
    pub(crate) fn conclude(&self, id: LinkId, outcome: Outcome, now: Option<Duration>) {
        self.locked(|ledger, trash| ledger.conclude(id, outcome, now, trash));
    }

    /// Runs `work` under the lock. Bindings that fall out of the ledger go to the trash, which is emptied
    /// after the lock is free: their `Drop` is foreign code.
    fn locked<T>(&self, work: impl FnOnce(&mut Ledger<B>, &mut Vec<B>) -> T) -> T {
        let mut trash = Vec::new();
        // No foreign code runs under the lock and the ledger does not panic, so a poisoned lock could only
        // mean an allocation failure: the state is as sound as before.
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut ledger, &mut trash);
        drop(ledger);
        result
    }
}

impl<B> fmt::Debug for LinkStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
