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
use proxward::audit::{Event, Record};
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
/// The thread that writes the audit.
const AUDIT: &str = "audit";
const VMID: u32 = 100;

fn runtime(name: &str) -> Runtime {
    Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build().unwrap()
}

/// The processor time so far of the threads whose name `which` takes.
fn processor_time(which: impl Fn(&str) -> bool) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.filter_map(|task| {
        let folder = task.ok()?.path();
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        let stat = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        which(comm.trim()).then(|| stat.split(' ').next()?.parse::<u64>().ok()).flatten()
    });
    Duration::from_nanos(nanos.sum())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
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
        Target::Guest(cluster.clone(), guest)
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
    let rounds = if measuring() { 1000 } else { 1 };
    let micros = |work: &dyn Fn()| {
        let callers = || processor_time(|name| name != "lab" && name != AUDIT);
        let before = callers();
        work();
        (callers() - before).as_secs_f64() * 1e6 / f64::from(BLOCK)
    };
    let audit_before = processor_time(|name| name == AUDIT);
    let turns: Vec<_> = (0..rounds).map(|_| (micros(&gated), micros(&bare))).collect();
    // The writer of the audit works when it likes, also in the other's turn; all it does is for the calls through the gate.
    // It is done with all of it when it has written one more.
    let last = server.app.audit.append_durable(Record::new(Event::ToolCall));
    server_runtime.block_on(last).unwrap();
    let audit = processor_time(|name| name == AUDIT).saturating_sub(audit_before).as_secs_f64() * 1e6
        / f64::from(BLOCK * rounds);
    if measuring() {
        let with = median(turns.iter().map(|(with, _)| *with).collect());
        let without = median(turns.iter().map(|(_, without)| *without).collect());
        let more = median(turns.iter().map(|(with, without)| with - without).collect());
        println!(
            "µs of processor time: a call through the gate {with:.1}, the tool alone {without:.1}, in turn {more:.1} more, \
             the writer of the audit {audit:.1}: the gate costs {:.1} (medians of {rounds} turns of {BLOCK})",
            more + audit
        );
    }
    server_runtime.block_on(server.stop());
}
