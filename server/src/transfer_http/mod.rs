//! Upload links over HTTP: `PUT|POST /transfers/upload/{token}`.
//!
//! The token is the credential, so this route asks for no bearer. It appears nowhere but in the answer that mints it: it is
//! not logged, and it is compared by its hash. Bytes are streamed from the request into the guest; none are kept here.

mod body;
mod push;
pub mod reply;
mod route;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use guest_push::{Dest, PushOptions};
use tokio::sync::Semaphore;
use transfers::LinkStore;

pub(crate) use push::{no_ssh, pusher};
pub use route::{PREFIX, handle, is_transfer_path};

use crate::limiter::PeerLimiter;

/// What a link is bound to when it is minted. Redeeming checks all of it anew.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The cluster.
    pub cluster: String,
    /// The guest's number.
    pub vmid: u32,
    /// What makes it this guest and not a later one of the same number.
    pub identity: String,
    /// Where the file goes inside the guest.
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

/// The link store and what bounds its use.
#[derive(Debug)]
pub struct Transfers {
    /// Pending links and outcomes.
    pub links: Arc<LinkStore<Binding>>,
    /// Wrong tokens by peer.
    pub wrong_tokens: PeerLimiter,
    /// Alerts of reused links by peer.
    reuses: PeerLimiter,
    /// URL prefix that clients reach this server by, without a trailing slash, when `policy.public_url` is not set: the
    /// loopback listener's own address.
    pub loopback_base: Option<String>,
    slots: Mutex<HashMap<(String, String), Arc<Semaphore>>>,
}

impl Transfers {
    /// With these limits.
    pub fn new(limits: transfers::Limits, loopback_base: Option<String>) -> Self {
        Self {
            links: Arc::new(LinkStore::new(limits)),
            wrong_tokens: PeerLimiter::default(),
            reuses: PeerLimiter::default(),
            loopback_base,
            slots: Mutex::default(),
        }
    }

    /// The pushes that one node may run at once. The first use of a node decides how many.
    fn slots(&self, cluster: &str, node: &str, at_once: usize) -> Arc<Semaphore> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots
            .entry((cluster.to_owned(), node.to_owned()))
            .or_insert_with(|| Arc::new(Semaphore::new(at_once)))
            .clone()
    }
}
