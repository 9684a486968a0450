//! What somebody wants done, complete and unchangeable.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::digest::{self, PlanDigest};
use crate::time::later;
use crate::{Actor, ChangeSetId, Fingerprint, Preview, Step};

/// Steps in one plan, at most.
pub const MAX_STEPS: usize = 32;
/// Bytes of a plan's canonical encoding, at most (64 KiB).
pub const MAX_PLAN_BYTES: usize = 64 * 1024;
/// How long a plan waits for its approval: 24 hours.
pub const PLANNED_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The one thing a set acts on. Opaque to this crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The cluster's configured name.
    pub cluster: String,
    /// The target inside the cluster, in one canonical spelling (`guest/905`).
    pub key: String,
    /// The target in words, for people; not part of its identity.
    pub label: String,
}

impl Target {
    /// A target.
    pub fn new(cluster: impl Into<String>, key: impl Into<String>, label: impl Into<String>) -> Self {
        Self { cluster: cluster.into(), key: key.into(), label: label.into() }
    }

    /// Whether both name the same thing; labels are not compared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.cluster == other.cluster && self.key == other.key
    }
}

/// Everything a plan is made of, before its limits are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanDraft {
    /// The set's name, from fresh randomness.
    pub id: ChangeSetId,
    /// Who plans.
    pub planner: Actor,
    /// What it acts on.
    pub target: Target,
    /// Whether the plan destroys data. Bound in the digest, decided by the embedder.
    pub tier_destructive: bool,
    /// Whether the target is protected. Under lab mode such a plan is approved at creation.
    pub target_protected: bool,
    /// The steps, in order, 1 to [`MAX_STEPS`].
    pub steps: Vec<Step>,
    /// The target's facts at plan time.
    pub fingerprint: Fingerprint,
    /// What the approver will read.
    pub preview: Preview,
    /// The version of the policy the plan was admitted under.
    pub policy_version: String,
    /// Whether the server runs in lab mode; stamped into the digest.
    pub lab_mode: bool,
    /// The planner's key for "the same request again".
    pub idempotency_key: Option<String>,
    /// When the plan was made; it expires [`PLANNED_TTL`] later.
    pub created: Timestamp,
}

/// A plan inside its limits. It cannot be changed, only digested, approved and applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    draft: PlanDraft,
    expires: Timestamp,
}

impl Plan {
    /// Checks a draft's limits.
    ///
    /// # Errors
    /// No step or more than [`MAX_STEPS`], a canonical encoding over [`MAX_PLAN_BYTES`], or an empty name.
    pub fn new(draft: PlanDraft) -> Result<Self, PlanError> {
        let expires = later(draft.created, PLANNED_TTL);
        Self::with_expiry(draft, expires)
    }

    /// Rebuilds a stored plan, whose expiry is a stored fact.
    pub(crate) fn with_expiry(draft: PlanDraft, expires: Timestamp) -> Result<Self, PlanError> {
        if draft.steps.is_empty() {
            return Err(PlanError::NoSteps);
        }
        if draft.steps.len() > MAX_STEPS {
            return Err(PlanError::TooManySteps { steps: draft.steps.len() });
        }
        let mut names = vec![
            ("planner.token", &draft.planner.token),
            ("planner.person", &draft.planner.person),
            ("target.cluster", &draft.target.cluster),
            ("target.key", &draft.target.key),
            ("policy_version", &draft.policy_version),
            ("preview.text", &draft.preview.text),
        ];
        names.extend(draft.steps.iter().map(|step| ("step.op", &step.op)));
        names.extend(draft.idempotency_key.iter().map(|key| ("idempotency_key", key)));
        if let Some((field, _)) = names.iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(PlanError::Empty { field });
        }
        let plan = Self { draft, expires };
        let bytes = plan.canonical_bytes().len();
        if bytes > MAX_PLAN_BYTES {
            return Err(PlanError::TooLarge { bytes });
        }
        Ok(plan)
    }

    /// The set's name.
    #[must_use]
    pub fn id(&self) -> ChangeSetId {
        self.draft.id
    }

    /// Who planned.
    #[must_use]
    pub fn planner(&self) -> &Actor {
        &self.draft.planner
    }

    /// What it acts on.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.draft.target
    }

    /// Whether it destroys data.
    #[must_use]
    pub fn tier_destructive(&self) -> bool {
        self.draft.tier_destructive
    }

    /// Whether the target was protected at plan time.
    #[must_use]
    pub fn target_protected(&self) -> bool {
        self.draft.target_protected
    }

    /// The steps, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.draft.steps
    }

    /// The target's facts at plan time.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.draft.fingerprint
    }

    /// What the approver reads.
    #[must_use]
    pub fn preview(&self) -> &Preview {
        &self.draft.preview
    }

    /// The policy it was admitted under.
    #[must_use]
    pub fn policy_version(&self) -> &str {
        &self.draft.policy_version
    }

    /// Whether it was made in lab mode.
    #[must_use]
    pub fn lab_mode(&self) -> bool {
        self.draft.lab_mode
    }

    /// The planner's key for the same request again.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.draft.idempotency_key.as_deref()
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.draft.created
    }

    /// From this moment on, the plan can no longer be approved.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// SHA-256 over [`canonical_bytes`](Self::canonical_bytes): what an approval binds.
    #[must_use]
    pub fn digest(&self) -> PlanDigest {
        PlanDigest::of(&self.canonical_bytes())
    }

    /// The explicit, length-prefixed encoding of every field; see [`digest`](mod@crate::digest).
    #[must_use]
    pub fn canonical_bytes(&self) -> Vec<u8> {
        digest::encode(self)
    }

    /// Whether `other` asks for the same thing: target and steps. Live facts (preview, fingerprint, times) may
    /// differ, since they are not what the planner said.
    #[must_use]
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let asked = |plan: &Self| -> Vec<(String, BTreeMap<String, String>)> {
            plan.steps().iter().map(|step| (step.op.clone(), step.params.clone())).collect()
        };
        self.target().is_same(other.target()) && asked(self) == asked(other)
    }

    pub(crate) fn draft(&self) -> &PlanDraft {
        &self.draft
    }
}

/// A draft is outside a plan's limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A name is missing.
    #[error("`{field}` is empty: a plan names it")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// Nothing to do.
    #[error("the plan has no steps: expected 1 to {MAX_STEPS}")]
    NoSteps,
    /// Too much in one plan, by size.
    #[error("the plan is {bytes} bytes: expected at most {MAX_PLAN_BYTES}, so split it into several")]
    TooLarge {
        /// Bytes of the canonical encoding.
        bytes: usize,
    },
    /// Too much in one plan, by count.
    #[error("the plan has {steps} steps: expected 1 to {MAX_STEPS}, so split it into several")]
    TooManySteps {
        /// Steps in the draft.
        steps: usize,
    },
}
