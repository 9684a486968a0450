//! One injected failure at each file system call of a change set's life: the server refuses or recovers, and never says what is
//! not so. The calls are made to fail by `strace`, in the real program, on the files that hold its state.
//!
//! `PROXWARD_SYSCALL_STEP=1` takes every call; by default every eleventh is taken, from a different one on each run.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/crash.rs"]
mod crash;
#[path = "support/program.rs"]
mod program;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crash::{apply, approve, deletes, number, plan, settled, verify_audit};
use program::Program;
use serde_json::Value;
use support::{Client, Stage};

/// The guests: one a round, stopped containers.
const FIRST: u32 = 30_000;
const MODEL: u32 = 201;
const MOST_ROUNDS: u64 = 1500;
/// Calls on the files of the state that can fail, and how.
const CALLS: &[(&str, &str)] = &[
    ("openat", "EMFILE"),
    ("write", "ENOSPC"),
    ("pwrite64", "ENOSPC"),
    ("pread64", "EIO"),
    ("read", "EIO"),
    ("fdatasync", "EIO"),
    ("fsync", "EIO"),
    ("ftruncate", "EIO"),
    ("fstat", "EIO"),
    ("fcntl", "ENOLCK"),
    ("rename", "EIO"),
    ("unlink", "EIO"),
];
const FILES: &[&str] = &["state.db", "state.db-wal", "state.db-shm", "audit.jsonl", "audit.jsonl.head"];

/// Whether a process may be traced here at all.
fn can_trace() -> bool {
    let traced =
        Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    traced.is_ok_and(|status| status.success())
}

async fn stage() -> Stage {
    let mut config = lab::LabConfig::two_clusters().unwrap();
    let alpha = config.clusters.get_mut("alpha").unwrap();
    let model = alpha.guests.iter().find(|guest| guest.vmid == MODEL).unwrap().clone();
    for vmid in (FIRST..).take(usize::try_from(MOST_ROUNDS).unwrap()) {
        let mut guest = model.clone();
        guest.vmid = vmid;
        alpha.guests.push(guest);
    }
    Stage::on(config, support::roomy()).await
}

/// The program under `strace`, which makes the nth call of that name on the state's files fail.
fn traced(stage: &Stage, call: &str, error: &str, nth: u64, log: &Path) -> Program {
    let mut command = Command::new("strace");
    // The tracer is a grandchild, so that signals reach the program itself.
    command.args(["-D", "-f", "-qq", "-o"]).arg(log);
    for file in FILES {
        command.arg("-P").arg(stage.path("state").join(file));
    }
    command.arg("-e").arg(format!("trace={call}"));
    command.arg("-e").arg(format!("inject={call}:error={error}:when={nth}"));
    let inner = program::command(&stage.command_line(&[]));
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Program::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

/// What callers were told of one set.
#[derive(Debug, Default)]
struct Told {
    plan: Option<Value>,
    approved: bool,
    ended: Option<String>,
}

async fn live(agent: &Client, approver: &Client, vmid: u32) -> Told {
    let mut told = Told { plan: plan(agent, vmid).await, ..Told::default() };
    let Some(plan) = &told.plan else { return told };
    if let Some(Ok(_)) = approve(approver, plan, vmid).await {
        told.approved = true;
    }
    if let Some(Ok(set)) = apply(agent, plan).await
        && set["state"] != "applying"
    {
        told.ended = Some(set["state"].as_str().unwrap().to_owned());
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failure_at_a_file_system_call_is_refused_or_recovered_and_never_lied_about() {
    if !can_trace() {
        println!("not applicable: strace cannot trace a process here");
        return;
    }
    let step = number("PROXWARD_SYSCALL_STEP", 11);
    let from = number("PROXWARD_SYSCALL_FROM", u64::from(std::process::id()) % step);
    println!("every {step}th call, from the {}th on", from + 1);
    let (mut rounds, mut counts) = (0, BTreeMap::<String, u64>::new());
    for (call, error) in CALLS {
        // A stage of its own for each: what earlier rounds left behind makes later ones longer.
        let stage = stage().await;
        // Makes the keys and the files, so that every round meets the same.
        let (server, _) = Program::serve(&stage.command_line(&[]));
        assert_eq!(server.terminate().code, Some(0));
        let log = stage.path("strace.log");
        let mut vmid = FIRST;
        let mut nth = 1 + from;
        loop {
            stage.alpha().clear_requests();
            let context = format!("{call} {nth} {error}");
            let server = traced(&stage, call, error, nth, &log);
            let told = match server.ready() {
                Ok(address) => {
                    let (agent, approver) =
                        (stage.client(address, "agent"), stage.client(address, "approver"));
                    let told = live(&agent, &approver, vmid).await;
                    server.terminate();
                    told
                }
                Err(said) => {
                    assert_ne!(server.exit().code, Some(0), "{context}: {said}");
                    assert!(
                        said.contains("error"),
                        "{context}: it did not start and did not say why: {said}"
                    );
                    *counts.entry("did not start".to_owned()).or_default() += 1;
                    Told::default()
                }
            };
            if !std::fs::read_to_string(&log).unwrap().contains("(INJECTED)") {
                break;
            }
            let (server, address) = Program::serve(&stage.command_line(&[]));
            let agent = stage.client(address, "agent");
            if let Some(plan) = &told.plan {
                let set = settled(&agent, plan).await;
                let state = set["state"].as_str().unwrap();
                let sent = deletes(&stage, vmid);
                assert!(sent <= 1, "{context}: {sent} requests");
                assert_eq!(set["digest"], plan["digest"], "{context}");
                assert!(!told.approved || state != "planned", "{context}: the approval is lost: {set}");
                assert!(
                    sent == 0 || !["planned", "approved"].contains(&state),
                    "{context}: a request was sent and the set says {state}"
                );
                if let Some(ended) = &told.ended {
                    assert_eq!(state, ended, "{context}: the end is another");
                }
                if state == "applied" {
                    assert_eq!((sent, stage.alpha().guest_exists(vmid)), (1, false), "{context}: {set}");
                }
                *counts.entry(state.to_owned()).or_default() += 1;
            } else {
                assert_eq!(deletes(&stage, vmid), 0, "{context}: sent without a plan");
                *counts.entry("no plan".to_owned()).or_default() += 1;
            }
            assert_eq!(server.terminate().code, Some(0), "{context}");
            verify_audit(&stage);
            vmid += 1;
            nth += step;
            if u64::from(vmid - FIRST) >= MOST_ROUNDS {
                panic!("{context}: more calls than rounds");
            }
        }
        println!("{call}: up to {nth}");
        rounds += vmid - FIRST;
    }
    println!("{rounds} rounds: {counts:?}");
    assert!(rounds > 0, "nothing was injected");
}
