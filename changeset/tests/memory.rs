//! The memory store under the conformance suite, and the plan caps at their real size.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use changeset::store::{AdmissionRefusal, Inserted, Limits, Store, suite};
use changeset::{Actor, ActorKind, ChangeSetId, MemoryStore, Target};
use common::{draft, planned};

mod common;

#[test]
fn cs_15_cs_16_cs_19_cs_37_the_memory_store_keeps_the_contract() {
    assert_eq!(suite::run(MemoryStore::new), Ok(10));
}

/// The suite finds a store that breaks its promises; otherwise passing it would mean nothing.
#[test]
fn the_suite_finds_a_store_that_forgets() {
    let failures = suite::run_durable(MemoryStore::new).unwrap_err();
    assert!(failures.why.contains("is not there"), "{failures}");
}

#[test]
fn cs_37_ten_thousand_plans_meet_the_caps() {
    let mut store = MemoryStore::new();
    let (mut stored, mut by_planner, mut by_server) = (0, 0, 0);
    for n in 0_u32..10_000 {
        let mut plan = draft(1);
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        plan.id = ChangeSetId::from_entropy(id);
        // One greedy planner first, then nineteen others and the greedy one again.
        let planner = format!("bot{}", if n < 5_000 { 0 } else { n % 20 });
        plan.planner = Actor::new(&planner, &planner, Some(ActorKind::Agent));
        plan.target = Target::new("alpha", format!("guest/{n}"), "");
        match store.insert(&planned(plan), &Limits::default()).unwrap() {
            Inserted::Stored => stored += 1,
            Inserted::Refused(AdmissionRefusal::PlannerCap { cap: 10 }) => by_planner += 1,
            Inserted::Refused(AdmissionRefusal::ServerCap { cap: 100 }) => by_server += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((stored, by_planner, by_server), (100, 5_240, 4_660));
    assert_eq!(store.counts().unwrap().total, 100);
}

#[test]
fn cs_40_a_guessed_identifier_finds_nothing() {
    let mut store = MemoryStore::new();
    store.insert(&planned(draft(1)), &Limits::default()).unwrap();
    let mut guess = [1; 16];
    guess[15] ^= 1;
    assert_eq!(store.load(&ChangeSetId::from_entropy(guess)), Ok(None));
}
