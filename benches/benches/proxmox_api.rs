//! A listing of 10,000 guests, beside a borrowed serde_json parse of the same bytes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench stops at the first surprise and documents itself"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use proxmox_api::{Resource, Upid};
use serde::Deserialize;
use serde_json::json;

fn listing(guests: u32) -> String {
    let rows: Vec<_> = (0..guests)
        .map(|n| {
            let kind = if n % 2 == 0 { "qemu" } else { "lxc" };
            json!({
                "id": format!("{kind}/{}", 100 + n), "type": kind, "vmid": 100 + n, "node": format!("pve{}", n % 16),
                "name": format!("guest-{n}"), "status": "running", "tags": "prod;web", "pool": "prod", "template": 0,
                "cpu": 0.031_25, "maxcpu": 4, "mem": 1_430_945_792_u64, "maxmem": 4_294_967_296_u64, "disk": 0,
                "maxdisk": 34_359_738_368_u64, "uptime": 310_942, "netin": 91_733_212_u64, "netout": 33_812_122_u64,
                "diskread": 1_288_490_188_u64, "diskwrite": 9_663_676_416_u64
            })
        })
        .collect();
    json!({"data": rows}).to_string()
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what a typed peer would read; only the reading counts")]
struct Borrowed<'a> {
    #[serde(borrow)]
    data: Vec<Row<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what a typed peer would read; only the reading counts")]
struct Row<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    vmid: u32,
    node: &'a str,
    name: &'a str,
    status: &'a str,
    tags: &'a str,
    pool: &'a str,
    template: u8,
    cpu: f64,
    maxcpu: f64,
    mem: u64,
    maxmem: u64,
    disk: u64,
    maxdisk: u64,
    uptime: u64,
}

fn resources(c: &mut Criterion) {
    let body = listing(10_000);
    let mut group = c.benchmark_group("proxmox_api/resources, 10000 guests");
    group.throughput(Throughput::Bytes(body.len() as u64)).sample_size(20);
    group.bench_function("Resource::parse_all", |b| {
        b.iter(|| {
            assert_eq!(Resource::parse_all(black_box(body.clone().into_bytes())).unwrap().len(), 10_000)
        });
    });
    group.bench_function("serde_json, borrowed", |b| {
        b.iter(|| {
            assert_eq!(serde_json::from_str::<Borrowed<'_>>(black_box(&body)).unwrap().data.len(), 10_000)
        });
    });
    group.finish();
    let upid = "UPID:pve1:00007CF2:00041584:6B0CE067:qmstart:102:root@pam!full:";
    c.bench_function("proxmox_api/upid", |b| b.iter(|| black_box(upid).parse::<Upid>().unwrap()));
}

criterion_group!(benches, resources);
criterion_main!(benches);
