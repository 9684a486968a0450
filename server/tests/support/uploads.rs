//! Upload links on a stage with a server in this process.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "shared by several test programs, none of which uses all of it; a test stops at the first surprise"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use proxward::audit::{Event, Record};
use proxward::serve::Running;
use serde_json::{Value, json};

use crate::raw::{PATIENCE, Raw, Reply, once, put};
use crate::support::{Client, Stage, path_of, roomy};

/// The container that is uploaded into: it runs on `pve1` of alpha.
pub const VMID: u32 = 200;

pub struct Uploads {
    pub stage: Stage,
    pub server: Running,
    pub address: SocketAddr,
    pub agent: Client,
    minted: AtomicUsize,
}

/// A minted link.
pub struct Link {
    /// The request target that redeems it.
    pub path: String,
    pub token: String,
    pub id: String,
    /// Where its file lands on this machine.
    pub file: PathBuf,
    pub minted: Value,
}

impl Uploads {
    pub async fn new() -> Self {
        Self::limited(json!({})).await
    }

    /// With these limits in place of the roomy ones.
    pub async fn limited(limits: Value) -> Self {
        let mut policy = roomy();
        for (key, value) in limits.as_object().unwrap() {
            policy["limits"][key] = value.clone();
        }
        Self::of(Stage::with_policy(policy).await).await
    }

    /// By way of the node's staging directory.
    pub async fn by_node() -> Self {
        let mut policy = roomy();
        policy["transfers"] = json!({"lxc_route": "sftp+pct_push"});
        Self::of(Stage::with_policy(policy).await).await
    }

    pub async fn of(stage: Stage) -> Self {
        let server = stage.serve().await;
        let agent = stage.client(server.address, "agent");
        Self { address: server.address, stage, server, agent, minted: AtomicUsize::new(0) }
    }

    /// A link for a file that does not exist yet.
    pub async fn link(&self) -> Link {
        self.link_with(json!({})).await
    }

    /// The same with further arguments.
    pub async fn link_with(&self, more: Value) -> Link {
        let name = format!("root/upload-{}.bin", self.minted.fetch_add(1, Ordering::Relaxed));
        let mut arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": format!("/{name}")});
        for (key, value) in more.as_object().unwrap() {
            arguments[key] = value.clone();
        }
        let minted = self.agent.call("proxmox_upload_link", arguments).await.unwrap();
        let path = path_of(&minted);
        Link {
            token: path.rsplit('/').next().unwrap().to_owned(),
            path,
            id: minted["link_id"].as_str().unwrap().to_owned(),
            file: self.stage.alpha().guest_root(VMID).join(name),
            minted,
        }
    }

    pub async fn put(&self, target: &str, body: &str) -> Reply {
        once(self.address, put(self.address, target, body)).await
    }

    pub async fn open(&self) -> Raw {
        Raw::open(self.address).await
    }

    /// What the minter is told about a link.
    pub async fn status(&self, link: &Link) -> Value {
        self.agent.call("get_transfer", json!({"link_id": link.id})).await.unwrap()
    }

    /// The same, once it is neither pending nor running.
    pub async fn outcome(&self, link: &Link) -> Value {
        self.status_when(link, |status| !["pending", "running"].iter().any(|s| status["state"] == *s)).await
    }

    pub async fn status_when(&self, link: &Link, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status(link).await;
            if holds(&status) {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "still {status}");
        }
    }

    /// The answer to a token that never was.
    pub async fn not_found(&self) -> Reply {
        let reply = self.put(&format!("/transfers/upload/{}", "A".repeat(43)), "x").await;
        assert_eq!(reply.status, 404, "{reply:?}");
        reply
    }

    /// The link is still good: it redeems.
    pub async fn assert_unspent(&self, link: &Link) {
        let reply = self.put(&link.path, "still good").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(std::fs::read(&link.file).unwrap(), b"still good");
    }

    /// The link is no longer good, and nothing was written for it.
    pub async fn assert_spent(&self, link: &Link) {
        assert_eq!(self.put(&link.path, "too late").await, self.not_found().await);
        assert!(!link.file.exists());
        self.no_residue().await;
    }

    /// Records of this event, oldest first.
    pub async fn records(&self, event: &str) -> Vec<Value> {
        // Alerts are not waited for when they are made. This record is, and it comes behind them.
        self.server.app.audit.append_durable(Record::new(Event::Stop)).await.unwrap();
        self.stage.audit().into_iter().filter(|record| record["event"] == event).collect()
    }

    /// Waits until nothing that an upload made is left on any node or guest.
    pub async fn no_residue(&self) {
        let started = Instant::now();
        loop {
            let left = residue(self.stage.lab.folder());
            if left.is_empty() {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "left behind: {left:?}");
            tokio::task::yield_now().await;
        }
    }
}

/// Staging files and temporary siblings below a folder.
pub fn residue(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().contains("pxw-") {
            found.push(path);
        } else if path.is_dir() && !path.is_symlink() {
            found.extend(residue(&path));
        }
    }
    found
}
