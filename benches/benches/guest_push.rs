//! Quoting a command for the far shell, and the hash that every byte passes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench stops at the first surprise and documents itself"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use guest_push::{Dest, quote};
use sha2::{Digest, Sha256};

fn quoting(c: &mut Criterion) {
    let argv = [
        "pct",
        "exec",
        "200",
        "--",
        "sh",
        "-c",
        "set -u\nfile=$1\n",
        "proxward",
        "/root/$(touch PWNED);x y.bin",
    ];
    c.bench_function("guest_push/quote argv", |b| b.iter(|| quote::argv(black_box(&argv)).unwrap()));
    c.bench_function("guest_push/parse dest", |b| {
        b.iter(|| Dest::parse(black_box("/srv/data/2026/image.bin")).unwrap())
    });
}

fn hashing(c: &mut Criterion) {
    let chunk = vec![7_u8; 1 << 20];
    let mut group = c.benchmark_group("guest_push/hash");
    group.throughput(Throughput::Bytes(chunk.len() as u64));
    group.bench_function("sha256 of 1 MiB", |b| b.iter(|| Sha256::digest(black_box(&chunk))));
    group.finish();
}

criterion_group!(benches, quoting, hashing);
criterion_main!(benches);
