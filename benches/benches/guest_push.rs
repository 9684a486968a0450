//! Quoting and destinations: what stands before every push.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use guest_push::{Dest, KnownHosts, quote};

fn quoting(c: &mut Criterion) {
    let script = include_str!("../../guest-push/src/route/scripts/commit.sh");
    let command: [&[u8]; 11] = [
        b"sudo",
        b"-n",
        b"pct",
        b"exec",
        b"905",
        b"--",
        b"sh",
        b"-c",
        script.as_bytes(),
        b"proxward",
        b"/root/it's a $(file).bin",
    ];
    let bytes = command.iter().map(|word| word.len() as u64).sum();
    let mut group = c.benchmark_group("guest_push/quote");
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("commit_command", |b| b.iter(|| quote::argv(black_box(&command))));
    let quotes = vec![b'\''; 64 * 1024];
    group.throughput(Throughput::Bytes(quotes.len() as u64));
    group.bench_function("64_KiB_of_quotes", |b| b.iter(|| quote::sh(black_box(&quotes))));
}

fn destinations(c: &mut Criterion) {
    let deep = "/srv".to_owned() + &"/a-directory".repeat(300) + "/file.bin";
    let mut group = c.benchmark_group("guest_push/dest");
    for (name, text) in [("short", "/root/file.bin"), ("3600_bytes", deep.as_str())] {
        group.bench_function(name, |b| b.iter(|| Dest::parse(black_box(text))));
    }
}

/// A thousand hosts by pattern, asked for the last one.
fn known_hosts(c: &mut Criterion) {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGekXSQtW1P3XYlvKZWw5jKpbHTLMjobpUP5NmjQWcal";
    let text: String =
        (0..1_000).map(|n| format!("pve{n}.example,10.0.{}.{} {key}\n", n / 256, n % 256)).collect();
    let known = KnownHosts::parse(&text).unwrap();
    let mut group = c.benchmark_group("guest_push/known_hosts_of_1000");
    group.bench_function("parse", |b| b.iter(|| KnownHosts::parse(black_box(&text))));
    group.bench_function("look_up", |b| b.iter(|| known.fingerprints(black_box("pve999.example"), 22)));
}

criterion_group!(groups, quoting, destinations, known_hosts);

fn main() {
    groups();
    Criterion::default().configure_from_args().final_summary();
}
