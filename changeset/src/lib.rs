#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// The crate decides whether something may be destroyed: it must answer, never panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::todo,
        clippy::unimplemented,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

// The fixtures of the integration tests serve the unit tests too.
#[cfg(test)]
extern crate self as changeset;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

mod actor;
pub mod approval;
pub mod coordinator;
pub mod digest;
mod fingerprint;
mod id;
pub mod plan;
mod preview;
pub mod recovery;
mod set;
pub mod state;
pub mod step;
pub mod store;
mod tail;
mod time;

pub use actor::{Actor, ActorKind};
pub use approval::{APPROVED_TTL, Approval, ApprovalKey, ApprovalKind};
pub use coordinator::{
    Apply, ApplyRefusal, DispatchPermit, Effect, Event, Finish, Lookup, Mark, OutOfOrder, SendResult,
    TaskEnd, Timing,
};
pub use digest::{ParseDigestError, PlanDigest};
pub use fingerprint::Fingerprint;
pub use id::{ChangeSetId, ParseIdError};
pub use plan::{MAX_PLAN_BYTES, MAX_STEPS, PLANNED_TTL, Plan, PlanDraft, PlanError, Target};
pub use preview::Preview;
pub use recovery::{NotApplying, Recover};
pub use set::{ChangeSet, Ending, TransitionError};
pub use state::{Move, State};
pub use step::{Intent, Step, StepOutcome, StepRecord, UnknownCause};
#[cfg(feature = "sqlite")]
pub use store::sqlite::SqliteStore;
pub use store::{Store, StoreError, memory::MemoryStore};
