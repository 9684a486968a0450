//! A large upload passes through the server: its memory does not grow with the file, and no copy stays anywhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body, Frame};
use serde_json::json;
use support::{Client, Stage, path_of, send};

const SIZE: u64 = 1 << 30;
const GROWTH: u64 = 16 << 20;
const CHUNK: usize = 256 << 10;

/// So many bytes, made as they are asked for.
struct Generated {
    left: u64,
    chunk: Bytes,
}

impl Generated {
    fn of(size: u64) -> Self {
        Self { left: size, chunk: Bytes::from(vec![0x5a; CHUNK]) }
    }
}

impl Body for Generated {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(CHUNK);
        self.left -= take as u64;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.slice(..take)))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.left)
    }
}

/// The real program, killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A field of `/proc/<pid>/status`, in bytes.
fn memory(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

async fn upload(agent: &Client, dest: &str, size: u64) {
    let minted = agent
        .call("proxmox_upload_link", json!({"cluster": "alpha", "vmid": 200, "dest": dest}))
        .await
        .unwrap();
    let put = Request::builder()
        .method(Method::PUT)
        .uri(path_of(&minted))
        .header("host", agent.address.to_string())
        .body(Generated::of(size))
        .unwrap();
    let answer = send(agent.address, put).await.unwrap();
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.json()["bytes"], size);
    assert_eq!(answer.json()["checksum_verified"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_neither_grows_the_server_nor_stays_on_its_disk() {
    let stage = Stage::new().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut line = stage.command_line(&[]);
    let at = line.iter().position(|flag| flag == "0").unwrap();
    line[at] = port.port().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_proxward"))
        .args(line)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let program = Program(child);
    let pid = program.0.id();
    while tokio::net::TcpStream::connect(port).await.is_err() {
        tokio::task::yield_now().await;
    }
    let agent = stage.client(port, "agent");
    // What is allocated once and kept: connections, caches, the runtime's threads.
    upload(&agent, "/root/warm-up", 8 << 20).await;
    let before = memory(pid, "VmRSS:");
    // Writing 5 makes the peak start anew from here.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    upload(&agent, "/root/large", SIZE).await;
    let peak = memory(pid, "VmHWM:");
    let grown = peak.saturating_sub(before);
    println!("{} MiB uploaded, {} KiB grown from {} KiB", SIZE >> 20, grown >> 10, before >> 10);
    assert!(grown < GROWTH, "grew by {grown} bytes from {before}");

    let root = stage.alpha().guest_root(200).join("root");
    assert_eq!(std::fs::metadata(root.join("large")).unwrap().len(), SIZE);
    assert!(bytes_below(&root) < SIZE + (9 << 20), "a second copy is in the guest");
    assert!(bytes_below(&stage.path("state")) < 1 << 20, "the upload is in the server's state");
    let staging = stage.alpha().node_root("pve1").join("var/tmp/proxward");
    assert_eq!(bytes_below(&staging), 0, "the upload is still on the node");
}
