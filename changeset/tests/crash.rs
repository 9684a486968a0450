//! `kill -9` between and inside store calls: whatever was acknowledged is there when the file is opened again.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "sqlite")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use changeset::store::{Inserted, Limits, Store};
use changeset::{
    Apply, ChangeSet, ChangeSetId, Effect, Event, SendResult, SqliteStore, State, TaskEnd, Timing,
};
use common::{agent, at, draft, fingerprint, human, key, planned};

mod common;

const PATH: &str = "CHANGESET_CRASH_STATE";
const ROUND: &str = "CHANGESET_CRASH_ROUND";
const KILLS: u64 = 60;

#[test]
fn cs_23_cs_24_acknowledged_state_survives_sixty_kills() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut acknowledged: BTreeMap<ChangeSetId, (u64, State)> = BTreeMap::new();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..KILLS {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // At least one, so that each round does work before it dies.
        let lines = 1 + (seed >> 33) % 23;
        for line in run_and_kill(&path, round, lines) {
            let mut words = line.split(' ');
            assert_eq!(words.next(), Some("ack"), "{line}");
            let id = words.next().unwrap().parse().unwrap();
            let version = words.next().unwrap().parse().unwrap();
            let state = State::from_name(words.next().unwrap()).unwrap();
            let before = acknowledged.insert(id, (version, state));
            assert!(before.is_none_or(|(before, _)| before < version), "{line}");
        }
        let store = SqliteStore::open(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(store.check(), [], "round {round}");
        for (id, (version, state)) in &acknowledged {
            let found = store.load(id).unwrap().unwrap_or_else(|| panic!("round {round}: {id} is lost"));
            // The child may have died between a write and its acknowledgement: later is fine, earlier is not.
            assert!(found.version() >= *version, "round {round}: {id} went back");
            assert!(found.version() > *version || found.state() == *state, "round {round}: {id} changed");
        }
    }
    assert!(acknowledged.len() as u64 >= KILLS / 2, "too little was stored: {}", acknowledged.len());
    let states: Vec<State> = acknowledged.values().map(|(_, state)| *state).collect();
    assert!(states.contains(&State::Applied), "no set got to its end: {states:?}");
}

/// Lets a child work until it has acknowledged so many writes, kills it, and gives back all it acknowledged.
fn run_and_kill(path: &Path, round: u64, lines: u64) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash_child", "--nocapture", "--test-threads=1"])
        .env(PATH, path)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut seen = Vec::new();
    let mut line = String::new();
    while (seen.len() as u64) < lines && reader.read_line(&mut line).unwrap() > 0 {
        seen.extend(acknowledgement(&line));
        line.clear();
    }
    assert_eq!(seen.len() as u64, lines, "the child ended early");
    kill(&mut child);
    // What was in the pipe when it died was acknowledged too; a last line may be cut.
    while reader.read_line(&mut line).unwrap() > 0 {
        if line.ends_with('\n') {
            seen.extend(acknowledgement(&line));
        }
        line.clear();
    }
    seen
}

/// The test harness writes lines of its own.
fn acknowledgement(line: &str) -> Option<String> {
    line.find("ack cs_").and_then(|at| line.get(at..)).map(|line| line.trim_end().to_owned())
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Not a test of its own: what the killed process does.
#[test]
fn crash_child() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let mut store = SqliteStore::open(path).unwrap();
    for n in 0_u64.. {
        let mut entropy = [0; 16];
        entropy[..8].copy_from_slice(&round.to_be_bytes());
        entropy[8..].copy_from_slice(&n.to_be_bytes());
        let mut plan = draft(1);
        plan.id = ChangeSetId::from_entropy(entropy);
        plan.target.key = format!("guest/{round}-{n}");
        let set = planned(plan);
        let limits = Limits { pending_per_planner: usize::MAX, pending_total: usize::MAX };
        assert_eq!(store.insert(&set, &limits), Ok(Inserted::Stored));
        acknowledge(&set);
        let next = set.approve(&human("olga"), &set.digest(), &key(), at(0)).unwrap();
        assert_eq!(store.replace_if(&next, set.version()), Ok(true));
        acknowledge(&next);
        apply(&mut store, next);
    }
}

fn apply(store: &mut SqliteStore, set: ChangeSet) {
    let (mut machine, mut effect) = Apply::begin(set, agent("bot"), &key(), Timing::default(), at(1));
    loop {
        let event = match effect {
            Effect::ResolveAndDecide { .. } => {
                Event::Decided { fingerprint: fingerprint(), approver_valid: true, planner_valid: true }
            }
            Effect::Watermark { .. } => Event::Watermark { tasks: vec![], node: "pve1".to_owned() },
            Effect::Persist { set, expected_version, .. } => {
                assert_eq!(store.replace_if(&set, expected_version), Ok(true));
                acknowledge(&set);
                Event::Persisted
            }
            Effect::Send { .. } => Event::Sent(SendResult::Handle("UPID:new".to_owned())),
            Effect::Follow { .. } => Event::Task(TaskEnd::Ok),
            Effect::Finish(_) => return,
            other => panic!("{other:?}"),
        };
        effect = machine.on(event, at(1)).unwrap();
    }
}

fn acknowledge(set: &ChangeSet) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ack {} {} {}", set.id(), set.version(), set.state()).unwrap();
    out.flush().unwrap();
}
