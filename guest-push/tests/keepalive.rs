//! Silence on a connection: a source that pauses, and a node that is gone without a word. See `support`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use guest_push::{Deadlines, Dest, LxcRoute, PushOptions, Pusher, Source, SourceError};
use support::Sshd;
use tokio::sync::Notify;

const VMID: u32 = 905;
const KEEPALIVE: Duration = Duration::from_millis(250);

fn pusher(node: &Sshd) -> Pusher {
    node.pusher(Deadlines { keepalive: KEEPALIVE, ..Deadlines::default() })
}

/// A chunk, a pause, a chunk, the end. It says when it pauses.
struct Pauses {
    step: usize,
    pause: Duration,
    paused: Arc<Notify>,
}

impl Source for Pauses {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.step += 1;
        if self.step == 2 {
            self.paused.notify_one();
            tokio::time::sleep(self.pause).await;
        }
        Ok((self.step < 3).then(|| Bytes::from_static(&[7; 100_000])))
    }
}

/// Every process below this one.
fn below(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = listed.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    children.iter().flat_map(|pid| below(*pid)).chain(children.iter().copied()).collect()
}

fn signal(pids: &[u32], signal: &str) {
    let pids = pids.iter().map(u32::to_string);
    // One that has ended meanwhile needs none, so the status says nothing.
    Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status().unwrap();
}

/// B30: questions that nobody waits to be answered would end a healthy connection.
#[tokio::test]
async fn a_source_may_pause_for_many_keepalives() {
    let Some(node) = Sshd::start() else { return };
    node.add_guest(VMID);
    for route in [LxcRoute::Stream, LxcRoute::SftpPctPush] {
        let options = PushOptions { route, overwrite: true, ..PushOptions::default() };
        let source = Pauses { step: 0, pause: 12 * KEEPALIVE, paused: Arc::default() };
        let dest = Dest::parse("/root/f").unwrap();
        let receipt = pusher(&node).push_lxc(VMID, &dest, &options, source, &|_, _| ()).await.unwrap();
        assert_eq!(receipt.bytes, 200_000, "{route:?}");
    }
}

/// B30: the node stops answering while the source pauses, so nothing but the questions can show it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_gone_is_noticed_by_its_silence() {
    for route in [LxcRoute::Stream, LxcRoute::SftpPctPush] {
        let Some(node) = Sshd::start() else { return };
        node.add_guest(VMID);
        let paused = Arc::new(Notify::new());
        let source = Pauses { step: 0, pause: Duration::from_secs(45), paused: paused.clone() };
        let pusher = pusher(&node);
        let pushing = tokio::spawn(async move {
            let options = PushOptions { route, ..PushOptions::default() };
            let dest = Dest::parse("/root/f").unwrap();
            pusher.push_lxc(VMID, &dest, &options, source, &|_, _| ()).await
        });
        paused.notified().await;
        let frozen = below(node.pid());
        assert!(!frozen.is_empty());
        signal(&frozen, "-STOP");
        let since = Instant::now();
        let ended = pushing.await.unwrap();
        let took = since.elapsed();
        signal(&frozen, "-CONT");
        let error = ended.unwrap_err();
        assert!(took < Duration::from_secs(40), "{route:?}: {took:?}: {error}");
        assert!(!node.guest_root(VMID).join("root/f").exists());
    }
}
