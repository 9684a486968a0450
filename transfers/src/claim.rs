//! The one winner's hold on a link.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::sync::Mutex;
use crate::{LinkId, LinkStore, Outcome};

/// What the store says to a presented token.
///
/// The client sees no difference between `Absent` and `Reused`; whoever audits does.
#[derive(Debug)]
pub enum Presented<B> {
    /// This presentation spent the link, and no other ever will.
    Won(Claim<B>),
    /// No such link: never minted, expired, voided, retired, or not even a token.
    Absent,
    /// The link was spent before. Somebody else holds the same token: worth an alert.
    Reused {
        /// The link.
        id: LinkId,
        /// Who minted it.
        owner: Arc<str>,
    },
}

/// How far a transfer has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) bytes: u64,
    pub(crate) stage: &'static str,
}

/// Shared by the claim, which writes it, and the store, which reads it for `status`.
#[derive(Default)]
pub(crate) struct Gauge(Mutex<Progress>);

impl Gauge {
    pub(crate) fn read(&self) -> Progress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, progress: Progress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// A spent link in the hands of its one winner.
///
/// Carry it into the task that does the transfer, and end it with [`finish`](Claim::finish). A claim that is
/// dropped without leaves [`Outcome::Aborted`], so a panic or a cancelled task can never leave a link that looks as if it
/// were still running.
pub struct Claim<B> {
    store: Arc<LinkStore<B>>,
    id: LinkId,
    owner: Arc<str>,
    binding: B,
    gauge: Arc<Gauge>,
    open: bool,
}

impl<B> Claim<B> {
    pub(crate) fn new(
        store: Arc<LinkStore<B>>,
        id: LinkId,
        owner: Arc<str>,
        binding: B,
        gauge: Arc<Gauge>,
    ) -> Claim<B> {
        Claim { store, id, owner, binding, gauge, open: true }
    }

    /// The link's public id.
    #[must_use]
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// Who minted the link.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// What the link was minted for.
    #[must_use]
    pub fn binding(&self) -> &B {
        &self.binding
    }

    /// Reports how far the transfer has come; cheap enough for every chunk.
    pub fn progress(&self, bytes: u64, stage: &'static str) {
        self.gauge.write(Progress { bytes, stage });
    }

    /// Ends the transfer; the outcome is readable from now on, for as long as the limits say.
    pub fn finish(mut self, outcome: Outcome, now: Duration) {
        self.open = false;
        self.store.conclude(self.id, outcome, Some(now));
    }
}

impl<B> Drop for Claim<B> {
    fn drop(&mut self) {
        if self.open {
            let bytes = self.gauge.read().bytes;
            self.store.conclude(self.id, Outcome::Aborted { bytes }, None);
        }
    }
}

impl<B> fmt::Debug for Claim<B> {
    /// Shows neither the binding nor the store: what they hold is the embedder's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("id", &self.id).field("owner", &self.owner).finish_non_exhaustive()
    }
}
