//! The canonical encoding of a plan, and its digest.
//!
//! The encoding is written by hand and frozen by golden vectors, because what a serialisation library prints may
//! change with its version, its features or the order of a struct's fields. Its rules:
//!
//! - it starts with the 17 bytes `pxw-changeset-v1\0`; another encoding would be another tag;
//! - a text is its length in bytes as a big-endian `u64`, then its UTF-8 bytes;
//! - a list or map is its number of entries as a big-endian `u64`, then the entries; maps are sorted by the
//!   bytes of their keys;
//! - a flag is one byte, `0` or `1`; an optional value is a flag, then the value if there is one;
//! - a time is whole seconds since 1970 as a big-endian `i64`, then nanoseconds as a big-endian `i32`;
//! - an actor is its token, its person, and one byte: 0 undeclared, 1 human, 2 agent.
//!
//! The fields, in this order: id (16 raw bytes), planner, target (cluster, key, label), destructive, target
//! protected, fingerprint, steps (op, params, summary, moves), preview (text, facts), policy version, lab mode,
//! idempotency key, created, expires. Every field of a plan is in it, so that none can be changed unnoticed, and
//! the encoding can be read back without doubt, so that two different plans never share one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::{Actor, ActorKind, Plan};

/// The domain tag of the plan encoding, version 1.
pub const DOMAIN: &[u8] = b"pxw-changeset-v1\0";

/// SHA-256 of a plan's canonical encoding; 64 lower-case hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanDigest([u8; 32]);

impl PlanDigest {
    pub(crate) fn of(canonical: &[u8]) -> Self {
        Self(Sha256::digest(canonical).into())
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PlanDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for PlanDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanDigest({self})")
    }
}

/// The text is no plan digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a plan digest: expected all 64 lower-case hex digits, as the preview shows them")]
pub struct ParseDigestError;

impl FromStr for PlanDigest {
    type Err = ParseDigestError;

    /// Accepts all 64 lower-case digits and nothing shorter.
    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| ParseDigestError)?;
        Ok(Self(<[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| ParseDigestError)?))
    }
}

pub(crate) fn encode(plan: &Plan) -> Vec<u8> {
    let draft = plan.draft();
    let mut out = Encoder::new(DOMAIN);
    out.raw(draft.id.as_bytes());
    out.actor(&draft.planner);
    out.text(&draft.target.cluster);
    out.text(&draft.target.key);
    out.text(&draft.target.label);
    out.flag(draft.tier_destructive);
    out.flag(draft.target_protected);
    out.map(&draft.fingerprint.fields);
    out.count(draft.steps.len());
    for step in &draft.steps {
        out.text(&step.op);
        out.map(&step.params);
        out.text(&step.summary);
        out.count(step.moves.len());
        step.moves.iter().for_each(|field| out.text(field));
    }
    out.text(&draft.preview.text);
    out.map(&draft.preview.facts);
    out.text(&draft.policy_version);
    out.flag(draft.lab_mode);
    out.flag(draft.idempotency_key.is_some());
    if let Some(key) = &draft.idempotency_key {
        out.text(key);
    }
    out.time(draft.created);
    out.time(plan.expires());
    out.finish()
}

/// Writes the primitive shapes of the encoding.
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn new(domain: &[u8]) -> Self {
        Self(domain.to_vec())
    }

    /// Bytes of a length that the format fixes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn count(&mut self, n: usize) {
        // A u64 holds every usize of the platforms Rust runs on.
        self.raw(&(n as u64).to_be_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.raw(text.as_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.raw(&[u8::from(flag)]);
    }

    pub(crate) fn map(&mut self, map: &BTreeMap<String, String>) {
        self.count(map.len());
        for (key, value) in map {
            self.text(key);
            self.text(value);
        }
    }

    pub(crate) fn actor(&mut self, actor: &Actor) {
        self.text(&actor.token);
        self.text(&actor.person);
        self.raw(&[match actor.kind {
            None => 0,
            Some(ActorKind::Human) => 1,
            Some(ActorKind::Agent) => 2,
        }]);
    }

    pub(crate) fn time(&mut self, at: Timestamp) {
        self.raw(&at.as_second().to_be_bytes());
        self.raw(&at.subsec_nanosecond().to_be_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}
