//! The link store: a life from mint to outcome, and a redemption among many pending links.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench stops at the first surprise and documents itself"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use transfers::{Limits, LinkStore, Outcome, Presented};

fn store(pending: usize) -> Arc<LinkStore<u64>> {
    let roomy = usize::MAX;
    let limits = Limits {
        max_pending: roomy,
        per_owner: roomy,
        max_outcomes: 64,
        outcomes_per_owner: 64,
        ..Limits::default()
    };
    let store = Arc::new(LinkStore::new(limits));
    for number in 0..pending {
        store.mint("owner", 0, None, Duration::ZERO, entropy(number as u64 | 1 << 40)).unwrap();
    }
    store
}

/// Different every time; real entropy is the embedder's cost, not the store's.
fn entropy(number: u64) -> [u8; 48] {
    let mut bytes = [7; 48];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[40..48].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn links(c: &mut Criterion) {
    let mut group = c.benchmark_group("transfers");
    group.throughput(Throughput::Elements(1));
    for pending in [0, 10_000] {
        let store = store(pending);
        let mut number = 0_u64;
        group.bench_function(format!("mint and redeem, {pending} pending"), |b| {
            b.iter(|| {
                number += 1;
                let minted = store.mint("owner", number, None, Duration::ZERO, entropy(number)).unwrap();
                match store.claim(minted.token.expose(), Duration::ZERO) {
                    Presented::Won(claim) => claim.finish(Outcome::Expired, Duration::ZERO),
                    other => panic!("{other:?}"),
                }
            });
        });
    }
    let store = store(10_000);
    let mut number = 1 << 50;
    group.bench_function("redeem alone, 10000 pending", |b| {
        b.iter_batched(
            || {
                number += 1;
                store.mint("owner", 0, None, Duration::ZERO, entropy(number)).unwrap().token
            },
            |token| match store.claim(token.expose(), Duration::ZERO) {
                Presented::Won(claim) => claim.finish(Outcome::Expired, Duration::ZERO),
                other => panic!("{other:?}"),
            },
            BatchSize::SmallInput,
        );
    });
    let wrong = "A".repeat(43);
    group.bench_function("a wrong token, 10000 pending", |b| {
        b.iter(|| black_box(store.claim(&wrong, Duration::ZERO)))
    });
    group.finish();
}

criterion_group!(benches, links);
criterion_main!(benches);
