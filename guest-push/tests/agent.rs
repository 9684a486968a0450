//! The `agent` route against a guest whose agent is a program of this test: the fixed scripts run in a real shell, and the
//! agent has the limits of Proxmox VE's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use guest_push::{
    AgentChannel, AgentError, AgentErrorKind, AgentPusher, Deadlines, Dest, ExecStatus, Mode, PushError,
    PushErrorKind, PushOptions, Receipt, Source, SourceError, SourceErrorKind, VerifiedAt,
};
use sha2::{Digest, Sha256};

/// The most characters that one `file-write` takes.
const CAP: usize = 61_440;

fn characters(bytes: &[u8]) -> usize {
    data_encoding::BASE64.encode_len(bytes.len())
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// This write (from 0) fails.
    Write(usize),
    /// This write is acknowledged and loses its last byte.
    ShortWrite(usize),
    /// This exec (from 0) fails.
    Exec(usize),
    /// This exec is lost after it ran.
    StatusLost(usize),
    /// This exec never ends.
    Hangs(usize),
    /// This exec is killed by a signal.
    Killed(usize),
    /// The agent does not run.
    Down,
}

#[derive(Default)]
struct State {
    writes: usize,
    execs: usize,
    largest: usize,
    running: HashMap<u64, (ExecStatus, u32)>,
    hung: Vec<u64>,
}

struct Agent {
    fault: Fault,
    state: Mutex<State>,
}

impl Agent {
    fn new(fault: Fault) -> Arc<Self> {
        Arc::new(Self { fault, state: Mutex::default() })
    }
}

fn failed(text: &str) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, text)
}

impl AgentChannel for Agent {
    async fn write_file(&self, path: &str, bytes: &[u8]) -> Result<(), AgentError> {
        let mut state = self.state.lock().unwrap();
        let number = state.writes;
        state.writes += 1;
        state.largest = state.largest.max(characters(bytes));
        assert!(characters(bytes) <= CAP, "over what PVE takes: {}", characters(bytes));
        if self.fault == Fault::Write(number) {
            return Err(failed("Agent error: failed to open file: No space left on device"));
        }
        let mut bytes = bytes.to_vec();
        if self.fault == Fault::ShortWrite(number) {
            bytes.pop();
        }
        std::fs::write(path, bytes).map_err(|error| failed(&error.to_string()))
    }

    async fn exec(&self, argv: &[&str]) -> Result<u64, AgentError> {
        if self.fault == Fault::Down {
            return Err(AgentError::new(AgentErrorKind::NotRunning, "QEMU guest agent is not running"));
        }
        let mut state = self.state.lock().unwrap();
        let number = state.execs;
        state.execs += 1;
        if self.fault == Fault::Exec(number) {
            return Err(failed("Agent error: Guest agent command failed"));
        }
        let output = std::process::Command::new(argv[0]).args(&argv[1..]).output().unwrap();
        let pid = 1000 + number as u64;
        let exit_code =
            (self.fault != Fault::Killed(number)).then(|| i64::from(output.status.code().unwrap()));
        if self.fault == Fault::Hangs(number) {
            state.hung.push(pid);
        }
        let status = ExecStatus { exited: true, exit_code, stdout: output.stdout, stderr: output.stderr };
        state.running.insert(pid, (status, 2));
        Ok(pid)
    }

    async fn exec_status(&self, pid: u64) -> Result<ExecStatus, AgentError> {
        let mut state = self.state.lock().unwrap();
        if state.hung.contains(&pid) {
            return Ok(ExecStatus::default());
        }
        if self.fault == Fault::StatusLost((pid - 1000) as usize) {
            return Err(AgentError::new(AgentErrorKind::Unreachable, "connection reset"));
        }
        // Runs for two questions, then ends, and forgets.
        let Some((_, left)) = state.running.get_mut(&pid) else {
            return Err(failed("Agent error: PID does not exist"));
        };
        if *left > 0 {
            *left -= 1;
            return Ok(ExecStatus::default());
        }
        Ok(state.running.remove(&pid).unwrap().0)
    }

    async fn read_file(&self, path: &str, offset: u64, count: u64) -> Result<Bytes, AgentError> {
        let all = std::fs::read(path).map_err(|error| failed(&error.to_string()))?;
        let from = (offset as usize).min(all.len());
        let to = (from + count as usize).min(all.len());
        Ok(Bytes::copy_from_slice(&all[from..to]))
    }
}

fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect::<Vec<u8>>().into()
}

fn quick() -> Deadlines {
    let second = Duration::from_secs(1);
    Deadlines { step: second, copy_base: second, cleanup: 2 * second, ..Deadlines::default() }
}

struct Guest {
    home: tempfile::TempDir,
}

impl Guest {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("it's $(x).bin")
    }

    fn dest(&self) -> Dest {
        Dest::parse(self.file().to_str().unwrap()).unwrap()
    }

    async fn push(
        &self,
        agent: &Arc<Agent>,
        options: &PushOptions,
        data: Bytes,
    ) -> Result<Receipt, PushError> {
        AgentPusher::new(Arc::clone(agent), quick()).push(&self.dest(), options, data, &|_, _| ()).await
    }

    fn names(&self) -> Vec<String> {
        names(self.home.path())
    }
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

// B01: exactly one encoding. B02: no request over the cap, and the parts are joined.
#[tokio::test]
async fn b01_b02_binary_of_any_size_arrives_whole_in_parts_below_the_cap() {
    let guest = Guest::new();
    let agent = Agent::new(Fault::None);
    let options =
        PushOptions { overwrite: true, mode: Mode::parse("0600").unwrap(), ..PushOptions::default() };
    let tricky = Bytes::from_static(&[0x00, 0xff, 0x0a, 0x0d, 0x80]);
    for data in [tricky, noise(46_079), noise(46_080), noise(46_081), noise(65 * 46_080 + 1)] {
        let receipt = guest.push(&agent, &options, data.clone()).await.unwrap();
        assert_eq!((receipt.route, receipt.verified_at), ("agent", VerifiedAt::Guest));
        assert_eq!((receipt.bytes, receipt.sha256), (data.len() as u64, Sha256::digest(&data).into()));
        assert_eq!(std::fs::read(guest.file()).unwrap(), data);
        assert_eq!(guest.names(), ["it's $(x).bin"]);
    }
    assert_eq!(agent.state.lock().unwrap().largest, CAP);
    assert_eq!(std::fs::metadata(guest.file()).unwrap().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn sh_17_whatever_fails_leaves_the_old_file_and_no_part() {
    let data = noise(3 * 46_080 + 5);
    for fault in [
        Fault::Write(0),
        Fault::Write(2),
        Fault::ShortWrite(1),
        Fault::Exec(0),
        Fault::Exec(1),
        Fault::Exec(2),
        Fault::Exec(3),
        Fault::Exec(4),
        Fault::Exec(5),
        Fault::Killed(2),
        Fault::Killed(4),
        Fault::StatusLost(1),
        Fault::StatusLost(2),
        Fault::StatusLost(4),
        Fault::Hangs(1),
        Fault::Hangs(3),
    ] {
        let guest = Guest::new();
        std::fs::write(guest.file(), "old").unwrap();
        let options = PushOptions { overwrite: true, ..PushOptions::default() };
        let outcome = guest.push(&Agent::new(fault), &options, data.clone()).await;
        let error = outcome.unwrap_err();
        assert!(!error.residue(), "{error}");
        assert_eq!(std::fs::read(guest.file()).unwrap(), b"old", "{error}");
        assert_eq!(guest.names(), ["it's $(x).bin"], "{error}");
        if let Fault::Write(_) = fault {
            assert_eq!(error.kind(), &PushErrorKind::NoSpace);
        }
    }
}

// B34: an unknown exit code is never success.
#[tokio::test]
async fn b34_a_rename_whose_end_is_unknown_is_no_success_and_says_so() {
    let guest = Guest::new();
    let error =
        guest.push(&Agent::new(Fault::StatusLost(5)), &PushOptions::default(), noise(10)).await.unwrap_err();
    assert!(error.to_string().contains("may already hold the new file"), "{error}");
    let error = Guest::new()
        .push(&Agent::new(Fault::Killed(5)), &PushOptions::default(), noise(10))
        .await
        .unwrap_err();
    assert!(error.residue(), "{error}");
}

// B10: over the cap another way is named instead of hours of parts.
#[tokio::test]
async fn sh_17_what_is_in_the_way_or_too_large_is_named_before_a_byte_is_written() {
    let guest = Guest::new();
    let agent = Agent::new(Fault::None);
    std::fs::write(guest.file(), "old").unwrap();
    let error = guest.push(&agent, &PushOptions::default(), noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::DestExists);
    let options = PushOptions { overwrite: true, max_bytes: Some(9), ..PushOptions::default() };
    let error = guest.push(&agent, &options, noise(10)).await.unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Source(s) if s.kind() == SourceErrorKind::TooLarge));
    let error = guest.push(&Agent::new(Fault::Down), &options, noise(1)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestUnreachable);
    assert_eq!(agent.state.lock().unwrap().writes, 0);
    let pusher = AgentPusher::new(agent, quick());
    pusher.check(&guest.dest(), &options).await.unwrap();
    let missing = Dest::parse(&format!("{}/new/f", guest.home.path().display())).unwrap();
    let mkdir = PushOptions { mkdir: true, ..PushOptions::default() };
    pusher.check(&missing, &mkdir).await.unwrap();
    assert_eq!(guest.names(), ["it's $(x).bin"], "a check changes nothing");
    pusher.push(&missing, &mkdir, noise(10), &|_, _| ()).await.unwrap();
}

struct Stalls(usize);

impl Source for Stalls {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.0 == 0 {
            std::future::pending::<()>().await;
        }
        self.0 -= 1;
        Ok(Some(noise(100_000)))
    }
}

#[tokio::test]
async fn a_push_that_is_dropped_leaves_no_part() {
    let guest = Guest::new();
    let pusher = AgentPusher::new(Agent::new(Fault::None), quick());
    let dest = guest.dest();
    let options = PushOptions::default();
    let pushing = pusher.push(&dest, &options, Stalls(3), &|_, _| ());
    assert!(tokio::time::timeout(Duration::from_millis(700), pushing).await.is_err());
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    while !guest.names().is_empty() {
        assert!(std::time::Instant::now() < patience, "still there: {:?}", guest.names());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_file_is_read_through_the_agent_with_its_hash() {
    let guest = Guest::new();
    let data = noise(2_500_000);
    std::fs::write(guest.file(), &data).unwrap();
    let pusher = AgentPusher::new(Agent::new(Fault::None), quick());
    let download = pusher.read(&guest.dest()).await.unwrap();
    assert_eq!((download.size(), download.sha256()), (2_500_000, Some(Sha256::digest(&data).into())));
    assert_eq!(download.collect(u64::MAX).await.unwrap(), data);
    std::fs::set_permissions(guest.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::remove_file(guest.file()).unwrap();
    assert_eq!(pusher.read(&guest.dest()).await.unwrap_err().kind(), &PushErrorKind::Missing);
}
