//! The two clocks the server reads, behind one trait so that tests choose the time.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A wall clock (plans, waivers, token expiry) and a monotonic one (links, limiters).
pub trait Clock: Debug + Send + Sync {
    /// The wall time now.
    fn now(&self) -> Timestamp;

    /// Time since the process started; never goes back, whatever happens to the wall clock.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts at zero now. Make one per process and share it.
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
pub(crate) mod manual {
    //! A clock that a test moves.

    use std::sync::Mutex;

    use super::{Clock, Duration, Timestamp};

    /// Wall and monotonic time set by hand, independently of each other.
    #[derive(Debug)]
    pub(crate) struct ManualClock(Mutex<(Timestamp, Duration)>);

    impl ManualClock {
        pub(crate) fn at(now: Timestamp) -> Self {
            Self(Mutex::new((now, Duration::ZERO)))
        }

        pub(crate) fn set_wall(&self, now: Timestamp) {
            self.0.lock().unwrap().0 = now;
        }

        pub(crate) fn advance(&self, by: Duration) {
            self.0.lock().unwrap().1 += by;
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            self.0.lock().unwrap().0
        }

        fn monotonic(&self) -> Duration {
            self.0.lock().unwrap().1
        }
    }
}
