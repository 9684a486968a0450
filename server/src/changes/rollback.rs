//! Was the store restored from an older copy?
//!
//! The audit trail is written apart from it, and what it says of a change set after the store was written must be true of the store:
//! a set that was planned is there, one that was approved is not merely planned, one that was ended has ended. Where it is not so, an
//! approval that was used already may look unused, and nothing may be changed until a person has looked.

use std::collections::BTreeMap;

use changeset::{Store, StoreError};

/// How far the trail saw a change set come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// It was stored.
    Planned,
    /// Its approval was stored.
    Approved,
    /// A step's intent was stored.
    Applying,
    /// Its end was stored.
    Ended,
}

/// What the trail says, by the set's name.
pub type History = BTreeMap<String, Seen>;

/// Why the store is older than the trail; `None` when it is not.
///
/// # Errors
/// The store could not be read.
pub fn older_than_trail(store: &dyn Store, history: &History) -> Result<Option<String>, StoreError> {
    use changeset::State as S;
    for (name, seen) in history {
        let Ok(id) = name.parse() else { continue };
        let found = store.load(&id)?.map(|set| set.state());
        let fits = match (seen, found) {
            (_, None) => false,
            (Seen::Planned, Some(_)) => true,
            (Seen::Approved, Some(state)) => state != S::Planned,
            (Seen::Applying, Some(state)) => !matches!(state, S::Planned | S::Approved),
            (Seen::Ended, Some(state)) => state.is_final(),
        };
        if !fits {
            let says = match seen {
                Seen::Planned => "planned",
                Seen::Approved => "approved",
                Seen::Applying => "applied",
                Seen::Ended => "ended",
            };
            let has =
                found.map_or_else(|| "does not have it".to_owned(), |state| format!("has it as {state}"));
            return Ok(Some(format!(
                "the state is older than the audit trail: the trail says that {name} was {says}, the state {has}. Put the newest \
                 state back; or, if this copy is the right one, stop the server and run `proxward state acknowledge-rollback`"
            )));
        }
    }
    Ok(None)
}
