//! Threads that really race.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, RwLock};
use std::thread;
use std::time::Duration;

use transfers::{Limits, LinkStatus, LinkStore, LinkToken, Outcome, Presented};

const CLAIMERS: usize = 64;

/// `UL_10_ROUNDS=100000 cargo nextest run -p transfers ul_10` for a longer run.
fn rounds() -> usize {
    std::env::var("UL_10_ROUNDS").ok().map_or(2_000, |text| text.parse().unwrap())
}

fn entropy(n: usize) -> [u8; 48] {
    let mut entropy = [0x33; 48];
    entropy[24..32].copy_from_slice(&(n as u64).to_be_bytes());
    entropy[40..].copy_from_slice(&(n as u64).to_be_bytes());
    entropy
}

#[test]
fn ul_10_concurrent_claims_have_one_winner() {
    let rounds = rounds();
    let now = Duration::from_secs(1);
    let limits = Limits { max_outcomes: 8, outcomes_per_owner: 8, ..Limits::default() };
    let store = Arc::new(LinkStore::new(limits));
    let (start, end) = (Barrier::new(CLAIMERS + 1), Barrier::new(CLAIMERS + 1));
    let token: RwLock<Option<LinkToken>> = RwLock::new(None);
    let (won, reused, absent) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLAIMERS {
            scope.spawn(|| {
                for round in 0..rounds {
                    start.wait();
                    let token = token.read().unwrap();
                    let presented = store.claim(token.as_ref().unwrap().expose(), now);
                    let counter = match &presented {
                        Presented::Won(claim) => {
                            assert_eq!(*claim.binding(), round);
                            &won
                        }
                        Presented::Reused { .. } => &reused,
                        Presented::Absent => &absent,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                    if let Presented::Won(claim) = presented {
                        claim.finish(Outcome::AbortedByClient { bytes: 0 }, now);
                    }
                    drop(token);
                    end.wait();
                }
            });
        }
        for round in 0..rounds {
            let link = store.mint("alice", round, None, now, entropy(round)).unwrap();
            *token.write().unwrap() = Some(link.token);
            start.wait();
            end.wait();
            assert_eq!(won.load(Ordering::Relaxed), round + 1, "exactly one winner in round {round}");
            assert_eq!(
                reused.load(Ordering::Relaxed),
                (round + 1) * (CLAIMERS - 1),
                "and each loser reported"
            );
            let outcome = Outcome::AbortedByClient { bytes: 0 };
            assert_eq!(store.status(&link.id, "alice", now), Some(LinkStatus::Done { outcome }));
        }
    });
    assert_eq!(absent.load(Ordering::Relaxed), 0);
    assert_eq!(store.counts().pending + store.counts().running, 0);
}

/// Claims just before the end of a link race sweeps just after it: spent or expired, never both, never neither.
#[test]
fn ul_12_claim_and_expiry_race_to_one_end() {
    let rounds = rounds();
    let ttl = Duration::from_secs(60);
    // The store's clock never goes back: each round has a store of its own.
    let slot: RwLock<Option<(Arc<LinkStore<()>>, LinkToken)>> = RwLock::new(None);
    let (start, end) = (Barrier::new(5), Barrier::new(5));
    let won = AtomicUsize::new(0);
    let mut spent = 0;
    thread::scope(|scope| {
        for thread in 0..4 {
            let (slot, start, end, won) = (&slot, &start, &end, &won);
            scope.spawn(move || {
                for _ in 0..rounds {
                    start.wait();
                    let guard = slot.read().unwrap();
                    let (store, token) = guard.as_ref().unwrap();
                    if thread % 2 == 0 {
                        match store.claim(token.expose(), ttl - Duration::from_millis(1)) {
                            Presented::Won(claim) => {
                                won.fetch_add(1, Ordering::Relaxed);
                                claim.finish(Outcome::AbortedByClient { bytes: 0 }, ttl);
                            }
                            Presented::Absent | Presented::Reused { .. } => {}
                        }
                    } else {
                        store.sweep(ttl + Duration::from_millis(1));
                    }
                    drop(guard);
                    end.wait();
                }
            });
        }
        for round in 0..rounds {
            let store = Arc::new(LinkStore::new(Limits::default()));
            let link = store.mint("alice", (), Some(ttl), Duration::ZERO, entropy(round)).unwrap();
            *slot.write().unwrap() = Some((Arc::clone(&store), link.token));
            start.wait();
            end.wait();
            let winners = won.swap(0, Ordering::Relaxed);
            let outcome = match winners {
                0 => Outcome::Expired,
                1 => Outcome::AbortedByClient { bytes: 0 },
                more => panic!("{more} winners in round {round}"),
            };
            assert_eq!(
                store.status(&link.id, "alice", ttl),
                Some(LinkStatus::Done { outcome }),
                "round {round}"
            );
            spent += winners;
        }
    });
    println!("{spent} of {rounds} links spent, the others expired");
}

/// The caps hold while many threads mint, claim and void at once.
#[test]
fn ul_15_caps_hold_under_load() {
    let limits = Limits {
        max_pending: 12,
        per_owner: 4,
        max_outcomes: 20,
        outcomes_per_owner: 9,
        ..Limits::default()
    };
    let store = Arc::new(LinkStore::new(limits));
    let (minted, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..8 {
            let (store, minted, refused) = (&store, &minted, &refused);
            scope.spawn(move || {
                let owner = format!("owner {}", thread % 4);
                let mut held = Vec::new();
                for n in 0..2_000 {
                    let now = Duration::from_millis(n as u64);
                    match store.mint(&owner, (), None, now, entropy(thread * 1_000_000 + n)) {
                        Ok(link) => {
                            minted.fetch_add(1, Ordering::Relaxed);
                            held.push(link);
                        }
                        Err(_) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            match held.pop() {
                                Some(link) if n % 3 == 0 => assert!(store.void(&link.id, "enough", now)),
                                Some(link) => {
                                    assert!(matches!(
                                        store.claim(link.token.expose(), now),
                                        Presented::Won(_)
                                    ));
                                }
                                None => {}
                            }
                        }
                    }
                    let counts = store.counts();
                    assert!(
                        counts.pending <= 12 && counts.outcomes <= 20 && counts.running <= 8,
                        "{counts:?}"
                    );
                }
            });
        }
    });
    println!("{minted:?} minted, {refused:?} refused");
    assert!(refused.into_inner() > 0);
}
