//! Caps and lifetimes of a store, and the one rule that turns a caller's lifetime into ours.

use std::time::Duration;

/// What a [`LinkStore`](crate::LinkStore) keeps, at most and for how long.
///
/// Whoever embeds the store may change any of them; the defaults are those of Proxward's upload links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Links that may be pending at once, over all owners (50).
    pub max_pending: usize,
    /// Links that one owner may have pending at once (10).
    pub per_owner: usize,
    /// How long the outcome of a link stays readable, and the reuse of its token reportable (1 hour).
    pub outcomes_kept: Duration,
    /// Outcomes kept at once over all owners; the oldest goes first (1000).
    pub max_outcomes: usize,
    /// Outcomes kept at once for one owner, whose own oldest goes first (200): an owner who mints and spends
    /// in a loop retires no outcome of another.
    pub outcomes_per_owner: usize,
    /// The shortest lifetime; a shorter wish is raised to it (60 seconds).
    pub ttl_min: Duration,
    /// The longest lifetime; a longer wish is lowered to it (3600 seconds).
    pub ttl_max: Duration,
    /// The lifetime where none is wished for (600 seconds).
    pub ttl_default: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_pending: 50,
            per_owner: 10,
            outcomes_kept: Duration::from_secs(3600),
            max_outcomes: 1000,
            outcomes_per_owner: 200,
            ttl_min: Duration::from_secs(60),
            ttl_max: Duration::from_secs(3600),
            ttl_default: Duration::from_secs(600),
        }
    }
}

/// A wished lifetime that is not a whole number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a lifetime: expected a whole number of seconds, such as 600")]
pub struct TtlError;

impl Limits {
    /// The lifetime a link gets for a wish: the default where there is none, else the wish held within
    /// `ttl_min` and `ttl_max`.
    #[must_use]
    pub fn ttl(&self, wished: Option<Duration>) -> Duration {
        // Not `Duration::clamp`: it panics where an embedder's minimum exceeds the maximum.
        wished.unwrap_or(self.ttl_default).max(self.ttl_min).min(self.ttl_max)
    }

    /// The lifetime for a wish written as a decimal number of seconds, as it stands in a JSON number or string.
    ///
    /// Any whole number is held within the limits, however large or negative. The text is canonical: `-1`
    /// and `600` are numbers, `600.5`, `6e2`, `+600`, `0600` and ` 600` are not.
    ///
    /// # Errors
    /// [`TtlError`] where the text is not a canonical whole number.
    pub fn ttl_from_text(&self, text: &str) -> Result<Duration, TtlError> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let canonical = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (!digits.starts_with('0') || text == "0");
        if !canonical {
            return Err(TtlError);
        }
        // Nothing but digits is left, so the only way to fail is a number beyond u64: held to the maximum.
        let seconds = if negative { 0 } else { digits.parse().unwrap_or(u64::MAX) };
        Ok(self.ttl(Some(Duration::from_secs(seconds))))
    }
}
