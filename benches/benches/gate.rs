//! What the gate costs a call: the stack (schema, both stages of authorization, the guest from the cached listing, the audit
//! record) around a tool's function, against the function alone. Both ask the lab for the guest's status, over TLS.
//!
//! Processor time of everything but the lab, per call; the two take turns.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop at the first surprise"
)]

mod stage;

use std::time::Duration;

use benches::measuring;
use lab::{Lab, LabConfig};
use proxward::catalog::{Arguments, Target};
use proxward::resolve::Freshness;
use proxward::serve::{Options, Running, start_http};
use proxward::stack::{CallContext, Caller, Listener, Trail, Via, run};
use proxward::tools::args::GuestArgs;
use proxward::tools::guests;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Calls of one turn.
const BLOCK: u32 = 50;
const VMID: u32 = 100;

fn runtime(name: &str) -> Runtime {
    Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build().unwrap()
}

/// The processor time of all threads but those of that name.
fn processor_time_without(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.filter_map(|task| {
        let folder = task.ok()?.path();
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        let stat = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        (comm.trim() != name).then(|| stat.split(' ').next()?.parse::<u64>().ok()).flatten()
    });
    Duration::from_nanos(nanos.sum())
}

fn context(server: &Running) -> CallContext {
    let snapshot = server.app.live.load();
    let principal = snapshot.tokens.principal("reader").unwrap();
    let caller = Caller {
        principal,
        via: Via::Http("192.0.2.7:4711".parse().unwrap()),
        snapshot,
        request_id: "req_bench".to_owned(),
        share: None,
    };
    CallContext { app: server.app.clone(), caller, trail: Trail::default(), listener: Listener::default() }
}

fn main() {
    let lab_runtime = runtime("lab");
    let lab = lab_runtime.block_on(Lab::start(LabConfig::two_clusters().unwrap())).unwrap();
    let dir = TempDir::new().unwrap();
    let server_runtime = runtime("server");
    let guests = ["vmid:500-600", "tag:none", "pool:none", "vmid:100-299"];
    let (args, _bearer) = stage::reader_of(&lab, &dir, json!({"resource_cache_ttl_secs": 3600}), &guests);
    let server = server_runtime.block_on(start_http(&args, Options::default())).unwrap();
    let arguments =
        || -> Arguments { json!({"cluster": "alpha", "vmid": VMID}).as_object().unwrap().clone() };
    let caller = context(&server);
    let cluster = caller.caller.snapshot.cluster(Some("alpha")).unwrap().clone();
    let target = server_runtime.block_on(async {
        let freshness = Freshness::Within(Duration::from_secs(3600));
        let guest =
            server.app.resolver.guest(&cluster, VMID, freshness, &caller.caller.principal).await.unwrap();
        Target::Guest(cluster.clone(), Box::new(guest))
    });
    let gated = || {
        server_runtime.block_on(async {
            for _ in 0..BLOCK {
                run(context(&server), "get_guest_status".to_owned(), arguments()).await.unwrap();
            }
        });
    };
    let bare = || {
        server_runtime.block_on(async {
            for _ in 0..BLOCK {
                let args: GuestArgs = serde_json::from_value(Value::Object(arguments())).unwrap();
                guests::status(&context(&server), &target, args).await.unwrap();
            }
        });
    };
    gated();
    bare();
    let rounds = if measuring() { 200 } else { 1 };
    let cost = |work: &dyn Fn()| {
        let before = processor_time_without("lab");
        work();
        (processor_time_without("lab") - before) / BLOCK
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(cost(&gated));
        without.push(cost(&bare));
    }
    with.sort_unstable();
    without.sort_unstable();
    let (with, without) = (with[with.len() / 2], without[without.len() / 2]);
    if measuring() {
        println!(
            "a call through the gate {with:?}, the tool alone {without:?}: the gate costs {:?} of processor time (medians of {rounds} turns of {BLOCK})",
            with.saturating_sub(without)
        );
    }
    server_runtime.block_on(server.stop());
}
