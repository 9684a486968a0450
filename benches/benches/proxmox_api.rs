//! Reading `GET /cluster/resources` of a large cluster.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::hint::black_box;

use benches::{compare, large_cluster, time};
use criterion::{Criterion, Throughput, criterion_group};
use proxmox_api::{Inventory, Resource, Upid};
use serde::Deserialize;

/// The floor: the same fields, borrowed, by derive, from a sender that never errs. It makes no ids, takes no text
/// for a number, and one odd field costs the whole list.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: Vec<Row<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "reading the fields is the work that is measured")]
struct Row<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    node: Option<&'a str>,
    vmid: Option<u32>,
    name: Option<&'a str>,
    status: Option<&'a str>,
    tags: Option<&'a str>,
    pool: Option<&'a str>,
    template: Option<u8>,
    lock: Option<&'a str>,
    hastate: Option<&'a str>,
    storage: Option<&'a str>,
    plugintype: Option<&'a str>,
    shared: Option<u8>,
    cpu: Option<f64>,
    maxcpu: Option<f64>,
    mem: Option<u64>,
    maxmem: Option<u64>,
    disk: Option<u64>,
    maxdisk: Option<u64>,
    uptime: Option<u64>,
}

fn resources(c: &mut Criterion) {
    let text = large_cluster(10_000);
    let all = Inventory::parse(text.clone()).unwrap();
    assert_eq!((all.len(), all.guests().count(), all.skipped()), (10_080, 10_000, 0));
    let mut group = c.benchmark_group("proxmox_api/resources_of_10000_guests");
    group.sample_size(20).throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("inventory", |b| b.iter_with_setup(|| text.clone(), Inventory::parse));
    group.bench_function("owned_records", |b| b.iter_with_setup(|| text.clone(), Resource::parse_all));
    group.bench_function("borrowed_floor", |b| {
        b.iter(|| serde_json::from_str::<Envelope<'_>>(black_box(&text)).unwrap().data.len());
    });
    group.bench_function("serde_json_value", |b| {
        b.iter(|| serde_json::from_str::<serde_json::Value>(black_box(&text)).unwrap());
    });
}

fn ids(c: &mut Criterion) {
    let text = "UPID:pve1:0003A5F1:0012BC3D:66A1B2C3:vzdestroy:905:agent@pve!mcp:";
    c.bench_function("proxmox_api/upid", |b| b.iter(|| black_box(text).parse::<Upid>()));
}

criterion_group!(groups, resources, ids);

fn main() {
    groups();
    let text = large_cluster(10_000);
    let floor = || time(|| serde_json::from_str::<Envelope<'_>>(black_box(&text)).unwrap().data.len());
    let inventory = || {
        // The client hands its buffer over, so the copy made here is not part of the work.
        let body = text.clone();
        time(|| Inventory::parse(body))
    };
    let records = || {
        let body = text.clone();
        time(|| Resource::parse_all(body))
    };
    compare(60, ("parse and index 10,000 guests", inventory), ("borrowed serde_json parse", floor));
    compare(60, ("10,000 guests as owned records", records), ("borrowed serde_json parse", floor));
    compare(
        60,
        ("parse and index 10,000 guests", inventory),
        ("serde_json to Value", || {
            time(|| serde_json::from_str::<serde_json::Value>(black_box(&text)).unwrap())
        }),
    );
    Criterion::default().configure_from_args().final_summary();
}
