//! How many fetches run at a time: in all, and of one principal; and how many may wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Places for fetches.
#[derive(Debug, Default)]
pub struct FetchSlots {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    by_principal: HashMap<String, usize>,
    waiting: usize,
}

/// A place, given back on drop.
#[derive(Debug)]
pub struct FetchSlot {
    slots: Arc<FetchSlots>,
    principal: String,
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many fetches are running and waiting; try again in a minute")]
pub struct Busy;

/// How many, from the policy.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// In all.
    pub at_once: usize,
    /// Of one principal.
    pub per_principal: usize,
    /// That may wait.
    pub queue: usize,
}

impl FetchSlots {
    /// Waits for a place.
    ///
    /// # Errors
    /// [`Busy`] where the queue is full.
    pub async fn enter(self: &Arc<Self>, principal: &str, limits: FetchLimits) -> Result<FetchSlot, Busy> {
        let mut queued: Option<Waiting<'_>> = None;
        loop {
            // Registered before looking, so that a place given back in between is not missed.
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                let mine = state.by_principal.get(principal).copied().unwrap_or(0);
                if state.running < limits.at_once && mine < limits.per_principal {
                    state.running += 1;
                    state.by_principal.insert(principal.to_owned(), mine + 1);
                    drop(state);
                    drop(queued);
                    return Ok(FetchSlot { slots: self.clone(), principal: principal.to_owned() });
                }
                if queued.is_none() {
                    if state.waiting >= limits.queue {
                        return Err(Busy);
                    }
                    state.waiting += 1;
                    queued = Some(Waiting(self));
                }
            }
            changed.await;
        }
    }
}

struct Waiting<'a>(&'a FetchSlots);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }
}

impl Drop for FetchSlot {
    fn drop(&mut self) {
        {
            let mut state = self.slots.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.running -= 1;
            if let Some(count) = state.by_principal.get_mut(&self.principal) {
                *count -= 1;
                if *count == 0 {
                    state.by_principal.remove(&self.principal);
                }
            }
        }
        self.slots.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FetchLimits = FetchLimits { at_once: 8, per_principal: 2, queue: 16 };

    #[tokio::test]
    async fn fu_21_two_of_one_principal_eight_in_all_sixteen_wait_and_the_rest_is_refused() {
        let slots = Arc::new(FetchSlots::default());
        let mut held = Vec::new();
        for principal in ["a", "b", "c", "d"] {
            for _ in 0..2 {
                held.push(slots.enter(principal, LIMITS).await.unwrap());
            }
        }
        let waiting: Vec<_> = (0..16)
            .map(|n| {
                let slots = slots.clone();
                tokio::spawn(async move { slots.enter(&format!("w{n}"), LIMITS).await.map(drop) })
            })
            .collect();
        while slots.state.lock().unwrap().waiting < 16 {
            tokio::task::yield_now().await;
        }
        assert_eq!(slots.enter("a", LIMITS).await.unwrap_err(), Busy);
        assert_eq!(slots.enter("new", LIMITS).await.unwrap_err(), Busy);
        held.pop();
        for waiter in waiting {
            waiter.await.unwrap().unwrap();
        }
        drop(held);
        let state = slots.state.lock().unwrap();
        assert_eq!((state.running, state.waiting, state.by_principal.len()), (0, 0, 0));
    }
}
