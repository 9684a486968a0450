//! How fast and how much at once one principal may call. Nobody's share depends on anybody else's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;

/// The principals' buckets. As many as there are tokens.
#[derive(Debug, Default)]
pub struct PrincipalLimiter {
    principals: Mutex<HashMap<String, Principal>>,
}

#[derive(Debug)]
struct Principal {
    tokens: f64,
    at: Duration,
    in_flight: Arc<Semaphore>,
    /// What the semaphore was made with; another limit after a reload makes another semaphore.
    in_flight_limit: u64,
}

/// Why a call must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limited {
    /// Too many calls a second.
    #[error("too many calls; slow down and try again in a second")]
    Rate,
    /// Too many calls at once.
    #[error("too many calls of this token are running; wait for one of them to end")]
    InFlight,
}

/// One call's share of what may run at once; give it back by dropping it.
#[derive(Debug)]
pub struct Share(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl PrincipalLimiter {
    /// Takes one call of `name` at monotonic time `now`.
    ///
    /// # Errors
    /// [`Limited`].
    pub fn take(&self, name: &str, limits: &Limits, now: Duration) -> Result<Share, Limited> {
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        let burst = to_f64(limits.call_burst);
        let fresh = || Principal {
            tokens: burst,
            at: now,
            in_flight: semaphore(limits),
            in_flight_limit: limits.calls_in_flight,
        };
        let principal = principals.entry(name.to_owned()).or_insert_with(fresh);
        let passed = now.saturating_sub(principal.at).as_secs_f64();
        principal.tokens = (principal.tokens + passed * to_f64(limits.calls_per_second)).min(burst);
        principal.at = now;
        if principal.in_flight_limit != limits.calls_in_flight {
            principal.in_flight = semaphore(limits);
            principal.in_flight_limit = limits.calls_in_flight;
        }
        if principal.tokens < 1.0 {
            return Err(Limited::Rate);
        }
        let share = principal.in_flight.clone().try_acquire_owned().map_err(|_| Limited::InFlight)?;
        principal.tokens -= 1.0;
        Ok(Share(share))
    }
}

fn semaphore(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(usize::try_from(limits.calls_in_flight).unwrap_or(Semaphore::MAX_PERMITS)))
}

#[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
fn to_f64(limit: u64) -> f64 {
    limit as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_04_one_principal_is_held_to_its_share_and_others_are_not() {
        let limits = Limits { calls_per_second: 2, call_burst: 3, calls_in_flight: 2, ..Limits::default() };
        let limiter = PrincipalLimiter::default();
        let mut now = Duration::from_secs(9);
        let first = limiter.take("a", &limits, now).unwrap();
        let _second = limiter.take("a", &limits, now).unwrap();
        assert_eq!(limiter.take("a", &limits, now).unwrap_err(), Limited::InFlight);
        drop(first);
        drop(limiter.take("a", &limits, now).unwrap());
        assert_eq!(limiter.take("a", &limits, now).unwrap_err(), Limited::Rate);
        assert!(limiter.take("b", &limits, now).is_ok());
        now += Duration::from_millis(500);
        assert!(limiter.take("a", &limits, now).is_ok());
    }
}
