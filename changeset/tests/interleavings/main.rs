//! Every interleaving of two callers and one crash, by a model checker.
//!
//! `stateright` walks all orders in which two callers plan, approve, reject, cancel, expire, apply and resolve, the
//! configuration is reloaded, the target is changed, time passes, writes fail, requests get lost and the process dies,
//! once, between any two of these. What takes the steps is the crate itself: [`changeset::Apply`],
//! [`changeset::Recover`], the moves of [`changeset::ChangeSet`] and [`changeset::MemoryStore`]. The model adds the
//! peer, the clock and the bookkeeping of what must always hold.
//!
//! An ordinary run walks small worlds. `CHANGESET_MODEL=full cargo test -p changeset --test interleavings -- --nocapture
//! cs_17` walks the large ones.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod run;
mod world;

use std::time::Instant;

use changeset::State;
use disk::Kind;
use stateright::{Checker, HasDiscoveries, Model, Path, Property};
use world::{Act, Call, Happened, Invariant, World};

/// How large the world is.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    name: &'static str,
    disk: Kind,
    /// Sets that may be planned, all on one target.
    sets: u8,
    /// Steps of each.
    steps: usize,
    /// Calls that the two callers begin in all.
    calls: u8,
    /// Failed writes and readings.
    faults: u8,
    /// Reloads that take a right away, changes of the target.
    changes: u8,
    /// Times that the next deadline comes.
    waits: u8,
    crashes: u8,
}

const SMALL: Bounds = Bounds {
    name: "one set of one step",
    disk: Kind::Sound,
    sets: 1,
    steps: 1,
    calls: 4,
    faults: 1,
    changes: 1,
    waits: 1,
    crashes: 1,
};

/// What one run walks: together they hold two sets, several steps, and every kind of trouble.
fn worlds(full: bool) -> Vec<Bounds> {
    let two_steps = Bounds { name: "one set of two steps", steps: 2, changes: 0, waits: 0, ..SMALL };
    let two_sets = Bounds { name: "two sets", sets: 2, calls: 5, faults: 0, changes: 0, waits: 0, ..SMALL };
    if full {
        vec![
            Bounds { calls: 5, changes: 2, waits: 2, ..SMALL },
            Bounds { calls: 5, faults: 2, changes: 1, ..two_steps },
            Bounds { calls: 6, faults: 1, ..two_sets },
        ]
    } else {
        vec![SMALL, two_steps, two_sets]
    }
}

impl Model for Bounds {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(*self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Act>) {
        world.possible(actions);
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        world.after(act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(Invariant::Once.name(), |_, w: &World| w.holds(Invariant::Once)),
            Property::always(Invariant::Approved.name(), |_, w: &World| w.holds(Invariant::Approved)),
            Property::always(Invariant::TwoPeople.name(), |_, w: &World| w.holds(Invariant::TwoPeople)),
            Property::always(Invariant::NoWayBack.name(), |_, w: &World| w.holds(Invariant::NoWayBack)),
            Property::always(Invariant::Survives.name(), |_, w: &World| w.holds(Invariant::Survives)),
            Property::always(Invariant::IntentFirst.name(), |_, w: &World| w.holds(Invariant::IntentFirst)),
            Property::always(Invariant::AuditFirst.name(), |_, w: &World| w.holds(Invariant::AuditFirst)),
            Property::always(Invariant::FreshFacts.name(), |_, w: &World| w.holds(Invariant::FreshFacts)),
            Property::always(Invariant::Truth.name(), |_, w: &World| w.holds(Invariant::Truth)),
            Property::always(Invariant::Lawful.name(), |_, w: &World| w.holds(Invariant::Lawful)),
            Property::sometimes("a set is applied", |_, w: &World| w.has(State::Applied)),
            Property::sometimes("a set fails", |_, w: &World| w.has(State::Failed)),
            Property::sometimes("a set is unknown", |_, w: &World| w.has(State::Unknown)),
            Property::sometimes("a set is rejected", |_, w: &World| w.has(State::Rejected)),
            Property::sometimes("a set is cancelled", |_, w: &World| w.has(State::Cancelled)),
            Property::sometimes("a race is lost", |_, w: &World| w.saw(Happened::RaceLost)),
            Property::sometimes("a task is adopted", |_, w: &World| w.saw(Happened::Adopted)),
            Property::sometimes("a recovery ends a set", |_, w: &World| w.saw(Happened::Recovered)),
            Property::sometimes("a person resolves", |_, w: &World| w.saw(Happened::Resolved)),
            // What these need is not in every world.
            Property::sometimes("a set expires", |m: &Self, w: &World| m.waits == 0 || w.has(State::Expired)),
            Property::sometimes("a refused right stops an apply", |m: &Self, w: &World| {
                m.changes == 0 || w.saw(Happened::Stopped)
            }),
            Property::sometimes("a failed write stops an apply", |m: &Self, w: &World| {
                m.faults == 0 || w.saw(Happened::WriteFailed)
            }),
        ]
    }
}

#[test]
fn cs_17_invariants_hold_in_every_interleaving() {
    let full = std::env::var("CHANGESET_MODEL").is_ok_and(|text| text == "full");
    for bounds in worlds(full) {
        let start = Instant::now();
        let checker = bounds.checker().threads(2).spawn_dfs().join();
        println!(
            "{}: {} states, {} transitions, depth {}, {:.1?}\n  {bounds:?}",
            bounds.name,
            checker.unique_state_count(),
            checker.state_count(),
            checker.max_depth(),
            start.elapsed()
        );
        assert!(checker.is_done());
        checker.assert_properties();
    }
}

/// The way to a broken invariant in a world whose store is broken on purpose.
fn caught(disk: Kind, invariant: Invariant) -> Path<World, Act> {
    let bounds = Bounds { disk, faults: 0, changes: 0, waits: 0, ..SMALL };
    let wanted = HasDiscoveries::AnyOf([invariant.name()].into());
    let checker = bounds.checker().finish_when(wanted).spawn_bfs().join();
    checker.discovery(invariant.name()).unwrap_or_else(|| panic!("nobody noticed: {}", invariant.name()))
}

/// The model would notice: a store without compare-and-swap lets two callers send one step.
#[test]
fn cs_10_a_store_without_compare_and_swap_is_caught() {
    let acts = caught(Kind::NoCompareAndSwap, Invariant::Once).into_actions();
    let applies = acts.iter().filter(|act| matches!(act, Act::Begin(_, Call::Apply, _))).count();
    assert_eq!(applies, 2, "{acts:?}");
}

/// What has ended comes back when the last write wins.
#[test]
fn cs_16_a_store_without_compare_and_swap_lets_ended_sets_come_back() {
    caught(Kind::NoCompareAndSwap, Invariant::NoWayBack);
}

/// A store that says "durable" one write too early is caught at the crash, and by what is sent again after it.
#[test]
fn cs_24_a_store_that_writes_late_is_caught() {
    for invariant in [Invariant::Survives, Invariant::Once] {
        let acts = caught(Kind::WritesLate, invariant).into_actions();
        assert!(acts.contains(&Act::Crash), "{acts:?}");
    }
}
