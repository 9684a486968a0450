//! Plans and people for the tests.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::time::Duration;

use changeset::{
    Actor, ActorKind, ApprovalKey, ChangeSet, ChangeSetId, Fingerprint, Plan, PlanDraft, Preview, Step,
    Target,
};
use jiff::Timestamp;

pub(crate) fn start() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// Seconds after [`start`].
pub(crate) fn at(seconds: u64) -> Timestamp {
    start() + Duration::from_secs(seconds)
}

pub(crate) fn key() -> ApprovalKey {
    ApprovalKey::new([7; 32])
}

pub(crate) fn human(name: &str) -> Actor {
    Actor::new(name, name, Some(ActorKind::Human))
}

pub(crate) fn agent(name: &str) -> Actor {
    Actor::new(name, name, Some(ActorKind::Agent))
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint::new([("config_digest", "5f3a"), ("name", "web"), ("status", "stopped"), ("tags", "prod")])
}

pub(crate) fn draft(n: u8) -> PlanDraft {
    PlanDraft {
        id: ChangeSetId::from_entropy([n; 16]),
        planner: agent("bot"),
        target: Target::new("alpha", format!("guest/{}", 900 + u32::from(n)), format!("container {n}")),
        tier_destructive: true,
        target_protected: false,
        steps: vec![Step::new("destroy_lxc", [("purge", "0"), ("vmid", "905")], "destroy the container")],
        fingerprint: fingerprint(),
        preview: Preview::new("destroys container \"web\"", [("status", "stopped")]),
        policy_version: "1".to_owned(),
        lab_mode: false,
        idempotency_key: None,
        created: start(),
    }
}

/// A snapshot, then the destruction; the snapshot moves the config digest.
pub(crate) fn two_steps(n: u8) -> PlanDraft {
    let mut draft = draft(n);
    draft.steps.insert(
        0,
        Step::new("snapshot_lxc", [("snapname", "before")], "take a safety snapshot")
            .moving(["config_digest"]),
    );
    draft
}

pub(crate) fn planned(draft: PlanDraft) -> ChangeSet {
    ChangeSet::planned(Plan::new(draft).unwrap())
}

pub(crate) fn approved(draft: PlanDraft) -> ChangeSet {
    let set = planned(draft);
    set.approve(&human("olga"), &set.digest(), &key(), at(60)).unwrap()
}
