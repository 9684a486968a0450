//! The server's long-lived parts, made once at start.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::audit::Audit;
use crate::catalog::Catalog;
use crate::changes::Changes;
use crate::clock::Clock;
use crate::config::Live;
use crate::fetch::{FetchSlots, Fetcher};
use crate::metrics;
use crate::resolve::Resolver;
use crate::transfer_http::Transfers;
use crate::transfer_http::slots::Slots;

/// Everything a call may need that outlives it.
pub struct App {
    /// The configuration in force.
    pub live: Arc<Live>,
    /// Time of day and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The audit log.
    pub audit: Audit,
    /// The tools.
    pub catalog: Arc<Catalog>,
    /// Finds guests.
    pub resolver: Resolver,
    /// Change sets.
    pub changes: Changes,
    /// Upload links; absent where no HTTP listener can serve them.
    pub transfers: Option<Arc<Transfers>>,
    /// How many transfers each node runs at a time.
    pub slots: Arc<Slots>,
    /// Gets files from the web.
    pub fetcher: Fetcher,
    /// How many of those run at a time.
    pub fetch_slots: Arc<FetchSlots>,
    /// Work that finishes even when its caller has gone.
    pub tracker: Tracker,
    /// What is counted.
    pub metrics: metrics::Shared,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// Counts detached work, so that shutting down can wait for it.
#[derive(Debug, Clone)]
pub struct Tracker {
    running: Arc<tokio::sync::watch::Sender<usize>>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self { running: Arc::new(tokio::sync::watch::channel(0).0) }
    }
}

impl Tracker {
    /// Starts `work` in a task of its own.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let guard = self.enter();
        tokio::spawn(async move {
            let _guard = guard;
            work.await
        })
    }

    /// Counts one piece of work until the guard is dropped.
    pub(crate) fn enter(&self) -> Guard {
        self.running.send_modify(|count| *count += 1);
        Guard(self.running.clone())
    }

    /// How many pieces of work are running.
    pub fn running(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until nothing is running.
    pub async fn idle(&self) {
        let mut changes = self.running.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = changes.wait_for(|count| *count == 0).await;
    }
}

/// One piece of work that shutting down waits for.
pub(crate) struct Guard(Arc<tokio::sync::watch::Sender<usize>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_counted_until_it_ends_even_by_panic() {
        let tracker = Tracker::default();
        let gate = Arc::new(tokio::sync::Notify::new());
        let opened = gate.clone();
        let first = tracker.spawn(async move { opened.notified().await });
        let second = tracker.spawn(async { panic!("a handler's fault") });
        assert!(second.await.is_err());
        assert_eq!(tracker.running(), 1);
        gate.notify_one();
        first.await.unwrap();
        tracker.idle().await;
        assert_eq!(tracker.running(), 0);
    }
}
