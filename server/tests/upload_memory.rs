//! A large upload passes through the server: its memory does not grow with the file, and no copy stays anywhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/program.rs"]
mod program;
mod support;

use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body, Frame};
use program::Program;
use serde_json::json;
use support::{Client, Stage, path_of, send};

/// What one upload may add to the server's memory, whatever its size.
const GROWTH: u64 = 8 << 20;
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

/// In MiB: small and large; `PROXWARD_MEMORY_MIB=100,1024,8192` for others.
fn sizes() -> Vec<u64> {
    let wished = std::env::var("PROXWARD_MEMORY_MIB").unwrap_or_else(|_| "100,1024".to_owned());
    wished.split(',').map(|mib| mib.parse::<u64>().unwrap() << 20).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_neither_grows_the_server_nor_stays_on_its_disk() {
    let stage = Stage::new().await;
    let (program, address) = Program::serve(&stage.command_line(&[]));
    let pid = program.pid();
    let agent = stage.client(address, "agent");
    // What is allocated once and kept: connections, caches, the runtime's threads.
    upload(&agent, "/root/warm-up", 8 << 20).await;
    let root = stage.alpha().guest_root(200).join("root");
    let mut grown = Vec::new();
    for size in sizes() {
        let before = memory(pid, "VmRSS:");
        // Writing 5 makes the peak start anew from here.
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        upload(&agent, "/root/large", size).await;
        let growth = memory(pid, "VmHWM:").saturating_sub(before);
        println!("{} MiB uploaded, {} KiB grown from {} KiB", size >> 20, growth >> 10, before >> 10);
        assert!(growth <= GROWTH, "grew by {growth} bytes from {before}");
        grown.push(growth);

        assert_eq!(std::fs::metadata(root.join("large")).unwrap().len(), size);
        assert!(bytes_below(&root) < size + (9 << 20), "a second copy is in the guest");
        std::fs::remove_file(root.join("large")).unwrap();
    }
    // A larger file costs no more than a smaller one, but for what allocators round.
    assert!(grown.iter().all(|growth| growth.abs_diff(grown[0]) <= 4 << 20), "{grown:?}");
    assert!(bytes_below(&stage.path("state")) < 1 << 20, "the upload is in the server's state");
    let staging = stage.alpha().node_root("pve1").join("var/tmp/proxward");
    assert_eq!(bytes_below(&staging), 0, "the upload is still on the node");
}
