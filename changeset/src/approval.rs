//! A second person's word, bound to exactly one plan.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::digest::{Encoder, PlanDigest};
use crate::time::later;
use crate::{Actor, Plan};

/// How long an approval waits for its apply: one hour.
pub const APPROVED_TTL: Duration = Duration::from_secs(60 * 60);

const DOMAIN: &[u8] = b"pxw-approval-v1\0";

/// The key under which approvals are made. Losing it voids every open approval.
#[derive(Clone)]
pub struct ApprovalKey(Zeroizing<[u8; 32]>);

impl ApprovalKey {
    /// A key from 32 bytes of good randomness.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    fn mac(&self, message: &[u8]) -> Hmac<Sha256> {
        // HMAC pads a short key with zeros to the block size; doing it here needs no fallible constructor.
        let mut block = Zeroizing::new([0_u8; 64]);
        for (slot, byte) in block.iter_mut().zip(self.0.iter()) {
            *slot = *byte;
        }
        let mut mac = Hmac::<Sha256>::new((&*block).into());
        mac.update(message);
        mac
    }
}

impl fmt::Debug for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalKey(..)")
    }
}

/// On whose authority a plan was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalKind {
    /// Lab mode, at creation, for a protected target. Nobody looked.
    LabMode,
    /// A human other than the planner.
    SecondPerson,
}

/// An approval: who, when, of what, and the HMAC-SHA256 that proves this server recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub(crate) kind: ApprovalKind,
    pub(crate) by: Actor,
    pub(crate) at: Timestamp,
    pub(crate) expires: Timestamp,
    pub(crate) digest: PlanDigest,
    pub(crate) mac: [u8; 32],
}

impl Approval {
    /// Signs; the rules about who may are in [`ChangeSet::approve`](crate::ChangeSet::approve).
    pub(crate) fn sign(kind: ApprovalKind, by: Actor, plan: &Plan, key: &ApprovalKey, at: Timestamp) -> Self {
        let digest = plan.digest();
        let mut approval = Self { kind, by, at, expires: later(at, APPROVED_TTL), digest, mac: [0; 32] };
        approval.mac = key.mac(&approval.message()).finalize().into_bytes().into();
        approval
    }

    /// On whose authority.
    #[must_use]
    pub fn kind(&self) -> ApprovalKind {
        self.kind
    }

    /// Who approved; under lab mode, the planner.
    #[must_use]
    pub fn by(&self) -> &Actor {
        &self.by
    }

    /// When.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// From this moment on, the approval can no longer be applied.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// What was approved.
    #[must_use]
    pub fn digest(&self) -> PlanDigest {
        self.digest
    }

    /// Whether this approval was recorded under `key` and is for exactly `plan`.
    #[must_use]
    pub fn is_genuine(&self, plan: &Plan, key: &ApprovalKey) -> bool {
        let rules_kept = match self.kind {
            ApprovalKind::LabMode => plan.lab_mode() && plan.target_protected(),
            ApprovalKind::SecondPerson => self.by.is_human() && !self.by.is_same_person(plan.planner()),
        };
        rules_kept && self.digest == plan.digest() && key.mac(&self.message()).verify_slice(&self.mac).is_ok()
    }

    fn message(&self) -> Vec<u8> {
        let mut out = Encoder::new(DOMAIN);
        out.raw(self.digest.as_bytes());
        out.flag(self.kind == ApprovalKind::LabMode);
        out.actor(&self.by);
        out.time(self.at);
        out.time(self.expires);
        out.finish()
    }
}
