//! The two ways into a container, and OpenSSH's own `sftp` to the same server, in one run: figures for choosing the default.
//!
//! Small by default, so that it is a test of all three; `PROXWARD_COMPARE_MIB=1024 cargo test --release -p guest-push --test
//! routes_compared -- --nocapture` prints what `docs/transfers.md` quotes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use guest_push::{Deadlines, Dest, LxcRoute, PushOptions, Source, SourceError};
use support::Sshd;

const VMID: u32 = 905;
const CHUNK: usize = 256 * 1024;

/// So many chunks of the same noise.
struct Chunks {
    chunk: Bytes,
    left: usize,
}

impl Source for Chunks {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        Ok(Some(self.chunk.clone()))
    }
}

fn noise() -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(CHUNK).collect::<Vec<u8>>().into()
}

fn sftp(node: &Sshd, folder: &std::path::Path, file: &std::path::Path) -> Option<Duration> {
    let (key, known) = (folder.join("key"), folder.join("known"));
    std::fs::write(&key, node.client_key_pem()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, mode).unwrap();
    std::fs::write(&known, node.known_hosts_line()).unwrap();
    let batch = folder.join("batch");
    std::fs::write(&batch, format!("put {} {}/put.bin\n", file.display(), folder.display())).unwrap();
    let started = Instant::now();
    let status = Command::new("sftp")
        .args(["-q", "-P", &node.port().to_string(), "-i", key.to_str()?, "-b", batch.to_str()?])
        .args(["-o", &format!("UserKnownHostsFile={}", known.display()), "-o", "IdentitiesOnly=yes"])
        .arg(format!("{}@{}", node.user(), node.host()))
        .stdout(Stdio::null())
        .status()
        .ok()?;
    status.success().then(|| started.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_routes_carry_the_same_bytes_and_the_figures_are_printed() {
    let Some(node) = Sshd::start() else { return };
    node.add_guest(VMID);
    let mib: usize = std::env::var("PROXWARD_COMPARE_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let rounds = if mib > 64 { 3 } else { 1 };
    let chunk = noise();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.bin");
    let whole: Vec<u8> = chunk.iter().copied().cycle().take(mib << 20).collect();
    std::fs::write(&file, whole).unwrap();
    let pusher = node.pusher(Deadlines::default());
    let dest = Dest::parse("/root/f").unwrap();
    let mut best = [Duration::MAX; 3];
    for _round in 0..rounds {
        for (index, route) in [LxcRoute::Stream, LxcRoute::SftpPctPush].into_iter().enumerate() {
            let options = PushOptions { route, overwrite: true, ..PushOptions::default() };
            let source = Chunks { chunk: chunk.clone(), left: (mib << 20) / CHUNK };
            let started = Instant::now();
            let receipt = pusher.push_lxc(VMID, &dest, &options, source, &|_, _| ()).await.unwrap();
            best[index] = best[index].min(started.elapsed());
            assert_eq!((receipt.bytes, receipt.checksum_verified), ((mib as u64) << 20, true));
            assert_eq!(receipt.route, route.as_str());
        }
        match sftp(&node, folder.path(), &file) {
            Some(took) => best[2] = best[2].min(took),
            None => println!("skipped: OpenSSH's sftp is missing"),
        }
    }
    for (name, took) in
        ["stream, verified", "sftp+pct_push, verified", "OpenSSH sftp put, node only"].iter().zip(best)
    {
        if took < Duration::MAX {
            let seconds = took.as_secs_f64();
            println!("{name}: {mib} MiB in {seconds:.2} s, {:.0} MiB/s", mib as f64 / seconds);
        }
    }
}
