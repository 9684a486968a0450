//! Whether one more pending set is let in: one decision for every engine.

use crate::store::Limits;
use crate::{ChangeSet, ChangeSetId};

/// What an engine has found, inside the transaction that is going to insert.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionFacts {
    /// The set of the same planner's token with the same idempotency key, in any state.
    pub same_key: Option<ChangeSet>,
    /// The same planner's pending set on the same target, not overdue.
    pub pending_on_target: Option<ChangeSetId>,
    /// The planner's pending sets, not overdue.
    pub pending_by_planner: usize,
    /// All pending sets, not overdue.
    pub pending_total: usize,
}

/// A new set may be stored, or is an old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// The same request again: this is its set.
    Existing(Box<ChangeSet>),
    /// Store it.
    New,
}

/// Decides.
///
/// # Errors
/// The key was used for something else, a set is pending on the target, or a cap is reached.
pub fn admit(set: &ChangeSet, facts: AdmissionFacts, limits: &Limits) -> Result<Admitted, AdmissionRefusal> {
    if let Some(before) = facts.same_key {
        return if before.plan().asks_the_same(set.plan()) {
            Ok(Admitted::Existing(Box::new(before)))
        } else {
            Err(AdmissionRefusal::KeyReused { id: before.id() })
        };
    }
    if let Some(id) = facts.pending_on_target {
        return Err(AdmissionRefusal::TargetPending { id });
    }
    if facts.pending_by_planner >= limits.pending_per_planner {
        return Err(AdmissionRefusal::PlannerCap { cap: limits.pending_per_planner });
    }
    if facts.pending_total >= limits.pending_total {
        return Err(AdmissionRefusal::ServerCap { cap: limits.pending_total });
    }
    Ok(Admitted::New)
}

/// Why a plan was not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionRefusal {
    /// The idempotency key names another request.
    #[error("the idempotency key was used for {id} with other arguments: use a new key for a new request")]
    KeyReused {
        /// The set of the earlier request.
        id: ChangeSetId,
    },
    /// The planner has too many open plans.
    #[error("you have {cap} pending change sets, which is the most: apply or cancel one first")]
    PlannerCap {
        /// The cap.
        cap: usize,
    },
    /// The server has too many open plans.
    #[error(
        "the server has {cap} pending change sets, which is the most: one must be applied or cancelled first"
    )]
    ServerCap {
        /// The cap.
        cap: usize,
    },
    /// One pending set per planner and target.
    #[error("{id} is pending for this target already: apply or cancel it first")]
    TargetPending {
        /// The pending set.
        id: ChangeSetId,
    },
}

impl AdmissionRefusal {
    /// A stable word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::KeyReused { .. } => "idempotency_key_reused",
            Self::PlannerCap { .. } => "planner_cap",
            Self::ServerCap { .. } => "server_cap",
            Self::TargetPending { .. } => "target_pending",
        }
    }
}
