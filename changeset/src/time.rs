//! Arithmetic on time that cannot panic.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// `at + by`, or the end of time.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| at.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// `at - by`, or the beginning of time.
pub(crate) fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| at.checked_sub(by).ok()).unwrap_or(Timestamp::MIN)
}
