//! A server in a child process that is killed, and what its callers do.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "shared by the crash tests, none of which uses all of it; a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Read, Seek};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proxward::changes::Point;
use proxward::cli::{Cli, Command as Verb};
use proxward::serve::{Options, start_http};
use serde_json::{Value, json};

use crate::support::{Client, Stage};

/// How long anything here may take before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

// === the child ===

/// Not a test of its own: the server's side of the harness, when this program is started as its child.
#[test]
fn child_process() {
    let Ok(line) = std::env::var("PROXWARD_CRASH_CHILD") else { return };
    let line: Vec<String> = serde_json::from_str(&line).unwrap();
    // `Answered` is the first time that point is passed, `Answered:2` the second: of the second step.
    let fatal = std::env::var("PROXWARD_CRASH_POINT").ok().map(|text| match text.split_once(':') {
        Some((name, nth)) => (name.to_owned(), nth.parse().unwrap()),
        None => (text, 1),
    });
    let passed = AtomicUsize::new(0);
    let Some(Verb::Serve(args)) =
        clap::Parser::try_parse_from(std::iter::once("proxward".to_owned()).chain(line))
            .map(|cli: Cli| cli.command)
            .unwrap()
    else {
        panic!("not a serve command")
    };
    let observer = Arc::new(move |point: Point| {
        let Some((name, nth)) = &fatal else { return };
        if name == point.name() && passed.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = start_http(&args, Options { observer: Some(observer) }).await.unwrap();
        println!("listening {}", running.address);
        std::future::pending::<()>().await;
    });
}

/// A server in a child process. Killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts one on the stage and waits until it serves; it kills itself at `point`.
    pub fn start(stage: &Stage, point: Option<Point>) -> Self {
        Self::start_until(stage, point.map(|point| (point, 1)))
    }

    /// The same; it kills itself when it passes the point for the nth time.
    pub fn start_until(stage: &Stage, point: Option<(Point, usize)>) -> Self {
        let mut child = Self::spawn_until(stage, point);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect_line();
            if let Some(at) = line.split("listening ").nth(1) {
                break at.trim().parse().unwrap();
            }
        };
        Self { child, address }
    }

    pub fn spawn(stage: &Stage, point: Option<Point>) -> Child {
        Self::spawn_until(stage, point.map(|point| (point, 1)))
    }

    fn spawn_until(stage: &Stage, point: Option<(Point, usize)>) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "crash::child_process", "--nocapture"])
            .env("PROXWARD_CRASH_CHILD", serde_json::to_string(&stage.command_line(&[])).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        match point {
            Some((point, nth)) => command.env("PROXWARD_CRASH_POINT", format!("{}:{nth}", point.name())),
            None => command.env_remove("PROXWARD_CRASH_POINT"),
        };
        command.spawn().unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for a child that kills itself.
    pub fn died(mut self) {
        killed(&mut self.child);
    }
}

pub fn killed(child: &mut Child) {
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing a child that is dead already fails, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

trait ExpectLine {
    fn expect_line(self) -> String;
}

impl ExpectLine for Option<std::io::Result<String>> {
    fn expect_line(self) -> String {
        match self {
            Some(Ok(line)) => line,
            other => panic!("the server did not start: {other:?}"),
        }
    }
}

// === what a caller does ===

pub async fn plan(agent: &Client, vmid: u32) -> Option<Value> {
    agent
        .try_call("plan_proxmox_destroy", json!({"cluster": "alpha", "vmid": vmid, "op": "destroy_guest"}))
        .await?
        .ok()
}

pub async fn approve(approver: &Client, plan: &Value, vmid: u32) -> Option<Result<Value, Value>> {
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": vmid});
    approver.try_call("approve_proxmox_change_set", approval).await
}

pub async fn apply(agent: &Client, plan: &Value) -> Option<Result<Value, Value>> {
    agent.try_call("apply_proxmox_change_set", json!({"change_set_id": plan["change_set_id"]})).await
}

pub async fn show(agent: &Client, plan: &Value) -> Value {
    agent.call("get_proxmox_change_set", json!({"change_set_id": plan["change_set_id"]})).await.unwrap()
}

/// Reads the set until recovery has nothing more to find out about it.
pub async fn settled(agent: &Client, plan: &Value) -> Value {
    let started = Instant::now();
    loop {
        let set = show(agent, plan).await;
        if set["state"] != "applying" {
            return set;
        }
        assert!(started.elapsed() < PATIENCE, "still applying: {set}");
        tokio::task::yield_now().await;
    }
}

/// How often the lab received the request that destroys `vmid`.
pub fn deletes(stage: &Stage, vmid: u32) -> usize {
    let ending = format!("/lxc/{vmid}");
    let requests = stage.alpha().requests();
    requests.iter().filter(|r| r.method == "DELETE" && r.path.ends_with(&ending)).count()
}

pub fn verify_audit(stage: &Stage) {
    proxward::audit::verify(&stage.path("state/audit.jsonl")).unwrap_or_else(|e| panic!("{e}"));
}

/// AU-02: the trail of `set`, as it stands settled, holds an attempt before it was sent, and how it ended.
pub fn check_trail(trail: &[Value], set: &Value, context: &str) {
    let of_set = |event: &'static str| {
        trail.iter().filter(move |r| r["event"] == event && r["change_set"] == set["change_set_id"])
    };
    assert_eq!(of_set("change.plan").count(), 1, "{context}: the plan");
    let (attempts, mut outcomes) = (of_set("change.attempt").count(), of_set("change.outcome"));
    match set["state"].as_str().unwrap() {
        "planned" => assert_eq!(attempts, 0, "{context}"),
        // An apply that was killed before its intent has left an attempt and nothing else.
        "approved" => assert_eq!(outcomes.count(), 0, "{context}"),
        state => {
            assert!(attempts >= 1, "{context}: ended without an attempt");
            let last = outcomes.next_back().unwrap_or_else(|| panic!("{context}: no outcome of {set}"));
            assert_eq!(last["details"]["state"], state, "{context}");
        }
    }
}

/// The trail's records from this byte on, so that a long run does not read all of it in every round.
pub fn trail_from(stage: &Stage, start: u64) -> Vec<Value> {
    let mut file = std::fs::File::open(stage.path("state/audit.jsonl")).unwrap();
    file.seek(std::io::SeekFrom::Start(start)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    // A line is written in one piece but may be read in two: what has no end yet is not there yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sets on this guest for which a request may have been sent: those with an attempt.
pub fn attempted(trail: &[Value], vmid: u32) -> usize {
    let attempts = trail.iter().filter(|r| r["event"] == "change.attempt" && r["vmid"] == vmid);
    attempts.map(|r| r["change_set"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>().len()
}

/// A small generator of the harness's own, so that a seed is all there is to print.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

pub async fn settled_if_applying(agent: &Client, set: Value) -> Value {
    if set["state"] == "applying" { settled(agent, &set).await } else { set }
}
