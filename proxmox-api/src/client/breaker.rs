//! Leaves a cluster alone that does not answer.
//!
//! Every call to a dead cluster costs its caller the whole deadline, and every call with a token that is not accepted
//! keeps a worker of pveproxy busy for 3 s. After some failures in a row calls are refused here, at once and with the
//! cause; after a pause one call is let through, and its end decides. What counts is whether the *cluster* answers: one
//! node down, a missing privilege or a refused parameter are answers, or a caller could switch the cluster off for all
//! others by asking for something impossible.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::error::{Effect, Error, ErrorKind};

/// Failures in a row after which the cluster is left alone.
const FAILURES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One cluster's breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    pause: Duration,
    /// Set once there are [`FAILURES`].
    until: Option<Instant>,
    probing: bool,
    last: Option<(ErrorKind, String)>,
}

/// Leave to make one call.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    probe: bool,
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave to call now, or the reason why not.
    pub(super) fn pass(&self, now: Instant) -> Result<Pass<'_>, Error> {
        let mut state = self.state();
        let Some(until) = state.until else { return Ok(Pass { breaker: self, probe: false }) };
        if now >= until && !state.probing {
            state.probing = true;
            return Ok(Pass { breaker: self, probe: true });
        }
        let (kind, last) = state.last.clone().unwrap_or((ErrorKind::Unreachable, String::new()));
        let rest = until.saturating_duration_since(now).as_secs_f64();
        let message = format!(
            "the cluster is not asked for {rest:.1} s more, after {FAILURES} calls in a row failed; the last: {last}"
        );
        Err(Error::new(kind, Effect::NotSent, message))
    }
}

impl Pass<'_> {
    /// How the call ended.
    pub(super) fn end<T>(self, result: &Result<T, Error>, now: Instant) {
        let mut state = self.breaker.state();
        match result {
            Err(error) if says_nothing(error) => {}
            Err(error) if is_failure(error) => {
                state.failures = state.failures.saturating_add(1);
                state.last = Some((error.kind(), error.message().to_owned()));
                if self.probe {
                    state.pause = (state.pause * 2).min(LONGEST_PAUSE);
                } else if state.failures == FAILURES {
                    state.pause = FIRST_PAUSE;
                } else {
                    // Not yet enough, or one that was on its way when the others were.
                    return;
                }
                state.until = Some(now + state.pause);
            }
            _ => *state = State::default(),
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.probe {
            self.breaker.state().probing = false;
        }
    }
}

/// Whether the call ended before it could show anything about the cluster.
fn says_nothing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::Config | ErrorKind::Source)
        || error.kind() == ErrorKind::TooLarge && error.effect() == Effect::NotSent
}

/// Whether the cluster as a whole failed.
fn is_failure(error: &Error) -> bool {
    match error.status() {
        Some(status) => matches!(status, 401 | 502..=504),
        None => matches!(
            error.kind(),
            ErrorKind::Unreachable
                | ErrorKind::Tls
                | ErrorKind::Timeout
                | ErrorKind::Disconnected
                | ErrorKind::Malformed
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: ErrorKind) -> Result<(), Error> {
        Err(Error::new(kind, Effect::Refused, "it broke"))
    }

    fn status(status: u16) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Server, Effect::Refused, "it said no").with_status(status))
    }

    fn call(breaker: &Breaker, now: Instant, result: &Result<(), Error>) {
        breaker.pass(now).unwrap().end(result, now);
    }

    #[test]
    fn px_10_after_five_failures_in_a_row_a_cluster_is_left_alone_for_a_growing_while() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..3 {
            for _ in 0..4 {
                call(&breaker, start, &failed(ErrorKind::Timeout));
            }
            call(&breaker, start, &Ok(()));
        }
        for _ in 0..5 {
            call(&breaker, start, &failed(ErrorKind::Unreachable));
        }
        let mut now = start;
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            let refused = breaker.pass(now).unwrap_err();
            assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Unreachable, Effect::NotSent));
            assert!(refused.message().ends_with("it broke"), "{refused}");
            now += Duration::from_secs(pause);
            assert!(breaker.pass(now - Duration::from_millis(1)).is_err(), "{pause}");
            let probe = breaker.pass(now).unwrap();
            assert!(breaker.pass(now).is_err(), "one at a time");
            probe.end(&failed(ErrorKind::Unreachable), now);
        }
        now += Duration::from_secs(30);
        call(&breaker, now, &status(403));
        for _ in 0..4 {
            call(&breaker, now, &failed(ErrorKind::Tls));
        }
        assert!(breaker.pass(now).is_ok(), "an answer, even a refusal, begins anew");
    }

    #[test]
    fn px_10_a_probe_that_is_given_up_makes_room_for_another() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let passes: Vec<Pass<'_>> = (0..8).map(|_| breaker.pass(now).unwrap()).collect();
        for pass in passes {
            // Those beyond the fifth were on their way already: they make the pause no longer.
            pass.end(&failed(ErrorKind::Disconnected), now);
        }
        let later = now + FIRST_PAUSE;
        drop(breaker.pass(later).unwrap());
        call(&breaker, later, &Ok(()));
        assert!(breaker.pass(later).is_ok());
    }

    #[test]
    fn px_10_what_an_answer_says_about_a_call_says_nothing_about_the_cluster() {
        for (answer, opens) in [
            (status(401), true),
            (status(502), true),
            (status(400), false),
            (status(403), false),
            (status(500), false),
            (status(595), false),
            (status(596), false),
            (status(599), false),
            (failed(ErrorKind::TooLarge), false),
            (failed(ErrorKind::Malformed), true),
        ] {
            let (breaker, now) = (Breaker::default(), Instant::now());
            for _ in 0..20 {
                let Ok(pass) = breaker.pass(now) else { break };
                pass.end(&answer, now);
            }
            assert_eq!(breaker.pass(now).is_err(), opens, "{answer:?}");
        }
        // What never left this process neither opens nor closes.
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..4 {
            call(&breaker, now, &failed(ErrorKind::Timeout));
        }
        call(&breaker, now, &failed(ErrorKind::Overloaded));
        call(&breaker, now, &failed(ErrorKind::Timeout));
        assert!(breaker.pass(now).is_err());
    }
}
