//! Reading `GET /cluster/resources` of a large cluster.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::fmt::Write as _;
use std::hint::black_box;

use benches::{compare, time};
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group};
use proxmox_api::{Resource, Upid};
use serde::Deserialize;

/// An answer with 10,000 guests, 16 nodes and 64 storages, fields as PVE 9 has them.
fn answer() -> String {
    let mut text = String::from("{\"data\":[");
    for n in 0..10_000 {
        let (kind, node) = (if n % 3 == 0 { "lxc" } else { "qemu" }, n % 16);
        write!(
            text,
            r#"{{"cpu":0.0{:03},"disk":0,"diskread":{n}0240,"diskwrite":{n}7712,"id":"{kind}/{vmid}","maxcpu":4,"maxdisk":34359738368,"maxmem":4294967296,"mem":{n}31072,"memhost":{n}41072,"name":"guest-{n}.example","netin":{n}881,"netout":{n}129,"node":"pve{node}","pool":"dev","status":"running","tags":"linux;team-{node};web","template":0,"type":"{kind}","uptime":{n}3,"vmid":{vmid}}},"#,
            n % 1000, vmid = 100 + n,
        )
        .unwrap();
    }
    for n in 0..16 {
        write!(text, r#"{{"cpu":0.11,"disk":{n}1,"id":"node/pve{n}","level":"","maxcpu":64,"maxdisk":98765432100,"maxmem":549755813888,"mem":{n}2,"node":"pve{n}","status":"online","type":"node","uptime":86400}},"#).unwrap();
    }
    for n in 0..64 {
        let comma = if n == 63 { "" } else { "," };
        write!(text, r#"{{"content":"images,rootdir","disk":{n}1,"id":"storage/pve{0}/s{n}","maxdisk":98765432100,"node":"pve{0}","plugintype":"lvmthin","shared":0,"status":"available","storage":"s{n}","type":"storage"}}{comma}"#, n % 16).unwrap();
    }
    text.push_str("]}");
    text
}

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
    let text = answer();
    let body = Bytes::from(text.clone());
    let list = Resource::parse_all(body.clone()).unwrap();
    assert_eq!((list.len(), list.skipped), (10_080, 0));
    let mut group = c.benchmark_group("proxmox_api/resources_of_10000_guests");
    group.sample_size(20).throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("resources", |b| b.iter(|| Resource::parse_all(black_box(body.clone()))));
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
    let text = answer();
    let body = Bytes::from(text.clone());
    let floor = || time(|| serde_json::from_str::<Envelope<'_>>(black_box(&text)).unwrap().data.len());
    let ours = || time(|| Resource::parse_all(body.clone()).unwrap());
    compare(60, ("resources of 10,000 guests", ours), ("borrowed floor", floor));
    compare(
        60,
        ("resources of 10,000 guests", ours),
        ("serde_json to Value", || {
            time(|| serde_json::from_str::<serde_json::Value>(black_box(&text)).unwrap())
        }),
    );
    Criterion::default().configure_from_args().final_summary();
}
