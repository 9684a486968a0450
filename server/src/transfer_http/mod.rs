//! Files in and out over HTTP: upload links, download links, resumable uploads, uploads to a storage.
//!
//! The token in the path is the credential, so these routes ask for no bearer. It appears nowhere but in the answer that mints
//! it: it is not logged, and it is compared by its hash. Bytes are streamed from the request into the guest, or out of it; none
//! are kept here.

mod agent;
mod body;
pub(crate) mod digest;
mod download;
mod errand;
mod push;
pub mod reply;
mod route;
pub mod slots;
mod storage;
mod tus;
mod way;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use guest_push::{Dest, PushOptions};
use tokio::sync::{Semaphore, watch};
use transfers::{LinkId, LinkStatus, LinkStore};

pub(crate) use body::{BodySource, Pace};
pub(crate) use errand::{Errand, still_allowed};
pub(crate) use push::{Ended, of_push};
pub use route::{DOWNLOAD, PREFIX, STORAGE, handle, is_transfer_path};
pub use storage::StorageBinding;
pub(crate) use way::Way;

use crate::config::Limits;
use crate::limiter::PeerLimiter;

/// What a link is bound to when it is minted. Redeeming checks all of it anew.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The tool that minted it, whose scope the minter must still have.
    pub tool: &'static str,
    /// The cluster.
    pub cluster: String,
    /// The guest's number.
    pub vmid: u32,
    /// What makes it this guest and not a later one of the same number.
    pub identity: String,
    /// The file inside the guest: written by an upload, read by a download.
    pub dest: Dest,
    /// Mode, owner, overwrite and the expected hash.
    pub options: PushOptions,
    /// Largest body, in bytes.
    pub max_bytes: u64,
    /// Exact size the minter promised, if any.
    pub size: Option<u64>,
    /// The call that minted the link, for the audit.
    pub request_id: String,
}

/// What a list shows of a link besides where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    /// `upload`, `download` or `storage`.
    pub(crate) kind: &'static str,
    pub(crate) cluster: String,
    pub(crate) vmid: Option<u32>,
    pub(crate) path: String,
}

/// The link stores and what bounds their use.
#[derive(Debug)]
pub struct Transfers {
    /// Pending upload links and their outcomes.
    pub links: Arc<LinkStore<Binding>>,
    /// Pending download links and their outcomes.
    pub downloads: Arc<LinkStore<Binding>>,
    /// Pending links onto a storage and their outcomes.
    pub storage: Arc<LinkStore<StorageBinding>>,
    /// Resumable uploads under way.
    tus: tus::Uploads,
    /// Wrong tokens by peer.
    pub wrong_tokens: PeerLimiter,
    /// Alerts of reused links by peer.
    reuses: PeerLimiter,
    /// URL prefix that clients reach this server by, without a trailing slash, when `policy.public_url` is not set: the
    /// loopback listener's own address.
    pub loopback_base: Option<String>,
    /// Ports of this server's own listeners, which no fetch may reach.
    own_ports: Mutex<Vec<u16>>,
    downloading: Arc<Semaphore>,
    summaries: Mutex<HashMap<LinkId, Summary>>,
    /// Transfers under way, by the link that started them, to be told when they are cancelled.
    running: Mutex<HashMap<LinkId, watch::Sender<bool>>>,
}

/// The link store's limits as the policy has them.
pub(crate) fn link_limits(limits: &Limits) -> transfers::Limits {
    transfers::Limits {
        max_pending: usize::try_from(limits.pending_links).unwrap_or(usize::MAX),
        per_owner: usize::try_from(limits.pending_links_per_owner).unwrap_or(usize::MAX),
        ..transfers::Limits::default()
    }
}

/// Most downloads that a policy can allow at a time.
const MOST_DOWNLOADS: usize = 1_000;

impl Transfers {
    /// With these limits.
    pub fn new(limits: transfers::Limits, loopback_base: Option<String>) -> Self {
        Self {
            links: Arc::new(LinkStore::new(limits)),
            downloads: Arc::new(LinkStore::new(limits)),
            storage: Arc::new(LinkStore::new(limits)),
            tus: tus::Uploads::default(),
            wrong_tokens: PeerLimiter::default(),
            reuses: PeerLimiter::default(),
            loopback_base,
            own_ports: Mutex::default(),
            downloading: Arc::new(Semaphore::new(MOST_DOWNLOADS)),
            summaries: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// Names a port that this server itself listens on.
    pub fn listens_on(&self, port: u16) {
        self.own_ports.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    }

    pub(crate) fn own_ports(&self) -> Vec<u16> {
        self.own_ports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over the limits of the configuration in force.
    pub(crate) fn follow(&self, limits: &Limits) {
        let limits = link_limits(limits);
        self.links.set_limits(limits);
        self.downloads.set_limits(limits);
        self.storage.set_limits(limits);
    }

    /// Drops what time has ended.
    pub fn sweep(&self, now: Duration) {
        self.links.sweep(now);
        self.downloads.sweep(now);
        self.storage.sweep(now);
        self.tus.sweep(now);
    }

    /// Where a link of this owner stands.
    pub(crate) fn status(&self, id: &LinkId, owner: &str, now: Duration) -> Option<LinkStatus> {
        self.links
            .status(id, owner, now)
            .or_else(|| self.downloads.status(id, owner, now))
            .or_else(|| self.storage.status(id, owner, now))
    }

    /// Every link of this owner with what it is for, by id. Forgets what no store knows any more.
    pub(crate) fn list(&self, owner: &str, now: Duration) -> Vec<(LinkId, Option<Summary>, LinkStatus)> {
        let mut found = self.links.list(owner, now);
        found.extend(self.downloads.list(owner, now));
        found.extend(self.storage.list(owner, now));
        found.sort_by_key(|(id, _)| *id);
        let summaries = self.summaries.lock().unwrap_or_else(PoisonError::into_inner);
        found.into_iter().map(|(id, status)| (id, summaries.get(&id).cloned(), status)).collect()
    }

    /// Remembers what a fresh link is for.
    pub(crate) fn describe(&self, id: LinkId, summary: Summary) {
        const MANY: usize = 4_096;
        let mut summaries = self.summaries.lock().unwrap_or_else(PoisonError::into_inner);
        if summaries.len() >= MANY {
            // The store keeps fewer than that: whatever is missing here is shown without its description.
            summaries.clear();
        }
        summaries.insert(id, summary);
    }

    /// Takes a link back or stops its transfer. `false`: it was over already, or never was this owner's.
    pub(crate) fn cancel(&self, id: &LinkId, owner: &str, now: Duration) -> bool {
        const REASON: &str = "cancelled by its minter";
        if self.status(id, owner, now).is_none() {
            return false;
        }
        if self.links.void(id, REASON, now)
            || self.downloads.void(id, REASON, now)
            || self.storage.void(id, REASON, now)
        {
            return true;
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(id).is_some_and(|cancelled| cancelled.send(true).is_ok())
    }

    /// Runs a transfer until it ends or is cancelled (`None`).
    pub(crate) async fn cancellable<T>(&self, id: LinkId, work: impl Future<Output = T>) -> Option<T> {
        let (sender, mut cancelled) = watch::channel(false);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let _forgotten = Forget { transfers: self, id };
        tokio::select! {
            done = work => Some(done),
            // The sender lives in the map until this ends, so a closed channel is not seen.
            _ = cancelled.wait_for(|cancelled| *cancelled) => None,
        }
    }
}

struct Forget<'a> {
    transfers: &'a Transfers,
    id: LinkId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.transfers.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
