//! The link store and the capped hasher.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use benches::{percentiles, time};
use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use transfers::{CappedHasher, Limits, LinkStore, LinkToken, Outcome, Presented};

const NOW: Duration = Duration::from_secs(1);

/// Distinct entropy, spread over the whole token, at no cost worth measuring.
fn entropy(n: u64) -> [u8; 48] {
    let mut entropy = [0; 48];
    for (k, part) in entropy.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ ((k as u64) << 32)).to_le_bytes());
    }
    entropy
}

fn drawn() -> [u8; 48] {
    let mut entropy = [0; 48];
    getrandom::fill(&mut entropy).unwrap();
    entropy
}

fn store(max_pending: usize) -> Arc<LinkStore<u64>> {
    Arc::new(LinkStore::new(Limits { max_pending, per_owner: max_pending, ..Limits::default() }))
}

fn pair(store: &Arc<LinkStore<u64>>, n: u64, entropy: [u8; 48]) {
    let link = store.mint("alice", n, None, NOW, entropy).unwrap();
    let Presented::Won(claim) = store.claim(link.token.expose(), NOW) else { panic!("not won") };
    claim.finish(Outcome::AbortedByClient { bytes: 0 }, NOW);
}

fn pairs(c: &mut Criterion) {
    let mut group = c.benchmark_group("transfers/mint_and_redeem");
    group.throughput(Throughput::Elements(1));
    for (name, draw) in [("counter", false), ("system_entropy", true)] {
        let (store, mut n) = (store(50), 0);
        group.bench_function(name, |b| {
            b.iter(|| {
                n += 1;
                pair(&store, n, if draw { drawn() } else { entropy(n) });
            });
        });
    }
}

/// A store with `pending` links, and their tokens.
fn filled(pending: u64) -> (Arc<LinkStore<u64>>, Vec<LinkToken>) {
    let store = store(20_000);
    let mint = |n| store.mint("alice", n, None, NOW, entropy(n)).unwrap().token;
    let tokens = (0..pending).map(mint).collect();
    (store, tokens)
}

/// Redeems one of 10,000 and mints another in its place; times the redeeming.
fn redeem(store: &Arc<LinkStore<u64>>, tokens: &mut [LinkToken], n: u64) -> Duration {
    let slot = usize::try_from(n.wrapping_mul(7919)).unwrap() % tokens.len();
    let mut claim = None;
    let took = time(|| claim = Some(store.claim(tokens[slot].expose(), NOW)));
    assert!(matches!(claim, Some(Presented::Won(_))));
    drop(claim);
    tokens[slot] = store.mint("alice", n, None, NOW, entropy(n)).unwrap().token;
    took
}

fn at_ten_thousand(c: &mut Criterion) {
    let (store, mut tokens) = filled(10_000);
    let mut n = 10_000;
    let mut group = c.benchmark_group("transfers/at_10000_pending");
    group.bench_function("redeem", |b| {
        b.iter_custom(|rounds| {
            (0..rounds)
                .map(|_| {
                    n += 1;
                    redeem(&store, &mut tokens, n)
                })
                .sum()
        });
    });
    let (stranger, _) = filled(1);
    let wrong = stranger.mint("x", 0, None, NOW, entropy(u64::MAX / 2)).unwrap().token;
    group.bench_function("wrong_token", |b| b.iter(|| store.claim(black_box(wrong.expose()), NOW)));
    group.bench_function("not_a_token", |b| b.iter(|| store.claim(black_box("../../etc/passwd"), NOW)));
}

fn hashing(c: &mut Criterion) {
    const CHUNK: usize = 32 * 1024;
    let chunk = vec![0x5a; CHUNK];
    let mut group = c.benchmark_group("transfers/capped_hasher");
    group.throughput(Throughput::Bytes(64 * CHUNK as u64));
    group.bench_function("64_chunks_of_32_KiB", |b| {
        b.iter_batched(
            || CappedHasher::new(u64::MAX),
            |mut hasher| {
                for _ in 0..64 {
                    hasher.update(black_box(&chunk)).unwrap();
                }
                hasher.finish().unwrap()
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(groups, pairs, at_ten_thousand, hashing);

fn main() {
    groups();
    let (store, mut tokens) = filled(10_000);
    let mut n = 10_000;
    percentiles("redeem at 10,000 pending", 200_000, || {
        n += 1;
        redeem(&store, &mut tokens, n)
    });
    Criterion::default().configure_from_args().final_summary();
}
