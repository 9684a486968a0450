//! Every interleaving of calls that race, explored by loom.
//!
//! The modules below are the crate's own sources, compiled once more with locks that loom schedules: what is explored is the
//! store itself, and the crate that others build knows nothing of it.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking, and uses a part of the sources that it includes"
)]

#[path = "../src/claim.rs"]
mod claim;
#[path = "../src/ledger.rs"]
mod ledger;
#[path = "../src/limits.rs"]
mod limits;
#[path = "../src/link.rs"]
mod link;
#[path = "../src/outcome.rs"]
mod outcome;
#[path = "../src/store.rs"]
mod store;
mod sync {
    pub(crate) use loom::sync::Mutex;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use claim::{Claim, Presented};
pub use limits::Limits;
pub use link::{LinkId, LinkToken};
use loom::thread;
pub use outcome::{LinkStatus, Outcome};
pub use store::{Counts, LinkStore, MintError, Minted};

type Store = Arc<LinkStore<u8>>;

const NOW: Duration = Duration::from_secs(1);
/// When a link that was minted at `NOW` with the shortest lifetime is over.
const LATE: Duration = Duration::from_secs(61);
const SHORT: Option<Duration> = Some(Duration::from_secs(60));

fn store(limits: Limits) -> Store {
    Arc::new(LinkStore::new(limits))
}

fn mint(store: &Store, n: u8) -> Minted {
    store.mint("alice", n, SHORT, NOW, [n; 48]).unwrap()
}

fn finished() -> Outcome {
    Outcome::AbortedByClient { bytes: 7 }
}

/// How a presentation ended: won (and finished at once), reused or absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Won,
    Reused,
    Absent,
}

fn present(store: &Store, token: &str, now: Duration) -> Seen {
    match store.claim(token, now) {
        Presented::Won(claim) => {
            claim.progress(7, "receive");
            claim.finish(finished(), now);
            Seen::Won
        }
        Presented::Reused { .. } => Seen::Reused,
        Presented::Absent => Seen::Absent,
    }
}

fn outcome(store: &Store, id: &LinkId, now: Duration) -> Outcome {
    match store.status(id, "alice", now) {
        Some(LinkStatus::Done { outcome }) => outcome,
        other => panic!("not over: {other:?}"),
    }
}

/// Runs a model and tells how many interleavings it had; one would mean that nothing raced.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let explored = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&explored);
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let explored = explored.load(Ordering::Relaxed);
    println!("{explored} interleavings");
    assert!(explored > 1, "nothing raced");
}

#[test]
fn ul_10_of_three_presentations_one_wins_in_every_interleaving() {
    explore(|| {
        let store = store(Limits::default());
        let link = mint(&store, 1);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (store, token) = (Arc::clone(&store), link.token.expose().to_owned());
                thread::spawn(move || present(&store, &token, NOW))
            })
            .collect();
        let mut seen = vec![present(&store, link.token.expose(), NOW)];
        seen.extend(others.into_iter().map(|other| other.join().unwrap()));
        seen.sort_unstable();
        assert_eq!(seen, [Seen::Won, Seen::Reused, Seen::Reused]);
        assert_eq!(outcome(&store, &link.id, NOW), finished());
        assert_eq!(store.counts(), Counts { pending: 0, running: 0, outcomes: 1 });
    });
}

#[test]
fn ul_12_a_presentation_and_the_end_of_its_life_have_one_result() {
    explore(|| {
        let store = store(Limits::default());
        let link = mint(&store, 1);
        let (of_sweeper, of_rival) = (Arc::clone(&store), Arc::clone(&store));
        let token = link.token.expose().to_owned();
        let sweeper = thread::spawn(move || of_sweeper.sweep(LATE));
        let rival = thread::spawn(move || present(&of_rival, &token, NOW));
        let mine = present(&store, link.token.expose(), NOW);
        let theirs = rival.join().unwrap();
        sweeper.join().unwrap();
        match (mine, theirs) {
            (Seen::Won, Seen::Reused) | (Seen::Reused, Seen::Won) => {
                assert_eq!(outcome(&store, &link.id, LATE), finished());
            }
            (Seen::Absent, Seen::Absent) => assert_eq!(outcome(&store, &link.id, LATE), Outcome::Expired),
            both => panic!("{both:?}"),
        }
    });
}

#[test]
fn a_cancellation_and_a_presentation_have_one_result() {
    explore(|| {
        let store = store(Limits::default());
        let link = mint(&store, 1);
        let (of_canceller, id) = (Arc::clone(&store), link.id);
        let canceller = thread::spawn(move || of_canceller.void(&id, "cancelled", NOW));
        let (of_rival, token) = (Arc::clone(&store), link.token.expose().to_owned());
        let rival = thread::spawn(move || present(&of_rival, &token, NOW));
        let mine = present(&store, link.token.expose(), NOW);
        let theirs = rival.join().unwrap();
        let cancelled = canceller.join().unwrap();
        let won = [mine, theirs].iter().filter(|seen| **seen == Seen::Won).count();
        assert_eq!(won, usize::from(!cancelled), "{mine:?} {theirs:?}");
        let end = outcome(&store, &link.id, NOW);
        if cancelled {
            assert_eq!((mine, theirs), (Seen::Absent, Seen::Absent));
            assert_eq!(end, Outcome::Voided { reason: "cancelled".to_owned() });
        } else {
            assert_eq!(end, finished());
        }
    });
}

#[test]
fn ul_15_the_last_free_place_goes_to_one_mint() {
    explore(|| {
        let store = store(Limits { max_pending: 2, ..Limits::default() });
        let first = mint(&store, 1);
        let minters: Vec<_> = [2, 3]
            .into_iter()
            .map(|n| {
                let store = Arc::clone(&store);
                thread::spawn(move || store.mint("bob", n, SHORT, NOW, [n; 48]).map(|minted| minted.id))
            })
            .collect();
        // A place is freed meanwhile, or not yet: two or one of them get in, and nobody is put out for them.
        let mine = present(&store, first.token.expose(), NOW);
        let minted: Vec<_> = minters.into_iter().map(|minter| minter.join().unwrap()).collect();
        assert_eq!(mine, Seen::Won);
        let refused =
            minted.iter().filter(|minted| **minted == Err(MintError::StoreFull { limit: 2 })).count();
        let made: Vec<_> = minted.iter().flatten().collect();
        assert_eq!(made.len() + refused, 2, "{minted:?}");
        assert!(refused < 2, "one place was free from the beginning");
        assert_eq!(store.counts(), Counts { pending: made.len(), running: 0, outcomes: 1 });
        for id in made {
            assert!(matches!(store.status(id, "bob", NOW), Some(LinkStatus::Pending { .. })));
        }
    });
}

#[test]
fn ul_28_who_reads_meanwhile_sees_a_life_that_only_goes_forward() {
    explore(|| {
        let store = store(Limits::default());
        let link = mint(&store, 1);
        let (of_reader, id) = (Arc::clone(&store), link.id);
        let reader = thread::spawn(move || {
            let stage = |status: Option<LinkStatus>| match status {
                Some(LinkStatus::Pending { .. }) => 0,
                Some(LinkStatus::Running { bytes: 0, stage: "" }) => 1,
                Some(LinkStatus::Running { bytes: 7, stage: "receive" }) => 2,
                Some(LinkStatus::Done { outcome }) if outcome == finished() => 3,
                other => panic!("{other:?}"),
            };
            let seen = [(); 2].map(|()| stage(of_reader.status(&id, "alice", NOW)));
            assert!(seen.is_sorted(), "{seen:?}");
            assert_eq!(of_reader.status(&id, "bob", NOW), None);
        });
        assert_eq!(present(&store, link.token.expose(), NOW), Seen::Won);
        reader.join().unwrap();
    });
}

#[test]
fn a_claim_that_is_dropped_while_time_passes_leaves_one_outcome_and_every_place_free() {
    explore(|| {
        let store = store(Limits { per_owner: 1, ..Limits::default() });
        let link = mint(&store, 1);
        let of_dropper = Arc::clone(&store);
        let token = link.token.expose().to_owned();
        let dropper = thread::spawn(move || match of_dropper.claim(&token, NOW) {
            Presented::Won(claim) => {
                claim.progress(3, "receive");
                drop(claim);
                true
            }
            Presented::Absent => false,
            Presented::Reused { .. } => panic!("presented once"),
        });
        let of_minter = Arc::clone(&store);
        let minter = thread::spawn(move || of_minter.mint("alice", 2, SHORT, LATE, [2; 48]).is_ok());
        store.sweep(NOW);
        let won = dropper.join().unwrap();
        // At that moment the first is spent or expired: its owner's one place is free in either case.
        assert!(minter.join().unwrap());
        let end = outcome(&store, &link.id, LATE);
        assert_eq!(end, if won { Outcome::Aborted { bytes: 3 } } else { Outcome::Expired });
        assert_eq!(store.counts(), Counts { pending: 1, running: 0, outcomes: 1 });
    });
}
