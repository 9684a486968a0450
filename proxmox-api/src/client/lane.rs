//! How many calls go to one cluster at a time, and how many may wait for their turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::{Effect, Error, ErrorKind};

/// Reads that are on their way to one cluster at a time.
pub(super) const READS: usize = 64;
const WAITING_READS: usize = 256;
const WRITES: usize = 16;
const WAITING_WRITES: usize = 64;

/// A bounded number of turns with a bounded queue: a cluster that is slow must not gather an unbounded crowd here.
#[derive(Debug)]
pub(super) struct Lane {
    turns: Semaphore,
    waiting: AtomicUsize,
    queue: usize,
}

impl Lane {
    pub(super) fn for_reads() -> Self {
        Self::new(READS, WAITING_READS)
    }

    pub(super) fn for_writes() -> Self {
        Self::new(WRITES, WAITING_WRITES)
    }

    fn new(turns: usize, queue: usize) -> Self {
        Self { turns: Semaphore::new(turns), waiting: AtomicUsize::new(0), queue }
    }

    /// Waits for a turn, which lasts until the permit is dropped.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let _place = Place::take(self)?;
        self.turns.acquire().await.map_err(|_| Error::config("this client is closed"))
    }
}

/// A place in the queue, given back when its owner gets its turn or goes away.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(lane: &'a Lane) -> Result<Self, Error> {
        let place = Self(&lane.waiting);
        if lane.waiting.fetch_add(1, Ordering::Relaxed) < lane.queue {
            return Ok(place);
        }
        let message = format!("{} calls wait for this cluster already; try again later", lane.queue);
        Err(Error::new(ErrorKind::Overloaded, Effect::NotSent, message))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn px_10_the_queue_is_bounded_and_a_place_is_given_back() {
        let lane = Arc::new(Lane::new(1, 2));
        let turn = lane.turn().await.unwrap();
        let wait = |lane: &Arc<Lane>| {
            let lane = lane.clone();
            tokio::spawn(async move { lane.turn().await.map(drop) })
        };
        let waiting = [wait(&lane), wait(&lane)];
        while lane.waiting.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        let error = lane.turn().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Overloaded, Effect::NotSent), "{error}");
        // One that goes away makes room.
        let [first, second] = waiting;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let third = wait(&lane);
        while lane.waiting.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        drop(turn);
        second.await.unwrap().unwrap();
        third.await.unwrap().unwrap();
        assert_eq!(lane.waiting.load(Ordering::Relaxed), 0);
    }
}
