//! Faults: what a test makes the simulated API do instead of, before or after the right thing.
//!
//! A [`Fault`] names an endpoint by method and path template, tells which of the matching requests it strikes,
//! and what happens then. Injecting it returns a [`FaultHandle`] to wait for the strike and to release a held
//! request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

/// Which requests a fault concerns.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// HTTP method, or `*` for any.
    pub method: String,
    /// The path below `/api2/json` as a template: `/nodes/{node}/qemu/{vmid}/status/start`. A segment in braces
    /// matches any one segment (`{volume}` and `{cidr}` at the end the whole rest); a concrete segment (`/nodes/pve1/qemu/100/config`) only itself.
    pub path: String,
}

/// Which of the matching requests a fault strikes, counted from its injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nth {
    /// Every one.
    Every,
    /// Only the n-th, from 1.
    Only(u64),
}

/// What happens to a struck request.
#[derive(Debug, Clone)]
pub enum Action {
    /// It is handled after a pause.
    Delay(Duration),
    /// It is answered with this status, reason phrase and JSON body, without effect. An empty body stays empty.
    Status {
        /// HTTP status.
        code: u16,
        /// Reason phrase.
        reason: String,
        /// Body, sent as it is.
        body: String,
    },
    /// The connection is cut and the request has no effect.
    DropBefore,
    /// The request has its effect and the connection is cut instead of the answer.
    DropAfter,
    /// The request has its effect, and its answer is cut in the middle of the body.
    Truncate,
    /// The request has its effect, and is answered 200 with this body, whatever it is.
    Raw(Bytes),
    /// The request waits, before it has any effect, until [`FaultHandle::release`].
    HoldBefore,
    /// The request has its effect, and its answer waits until [`FaultHandle::release`].
    HoldAfter,
}

/// One fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Which requests.
    pub matcher: Matcher,
    /// Which of them.
    pub nth: Nth,
    /// What happens.
    pub action: Action,
}

impl Fault {
    /// A fault that strikes the first matching request only.
    pub fn once(method: &str, path: &str, action: Action) -> Fault {
        let matcher = Matcher { method: method.to_owned(), path: path.to_owned() };
        Fault { matcher, nth: Nth::Only(1), action }
    }

    /// A fault that strikes every matching request until the faults are cleared.
    pub fn always(method: &str, path: &str, action: Action) -> Fault {
        Fault { nth: Nth::Every, ..Fault::once(method, path, action) }
    }

    /// The same fault, for the `n`-th matching request (from 1).
    #[must_use]
    pub fn nth(self, n: u64) -> Fault {
        Fault { nth: Nth::Only(n), ..self }
    }
}

impl Matcher {
    fn matches(&self, method: &str, path: &str) -> bool {
        if self.method != "*" && self.method != method {
            return false;
        }
        let mut wanted = self.path.split('/');
        let mut found = path.split('/');
        loop {
            match (wanted.next(), found.next()) {
                (None, None) => return true,
                // These have slashes of their own.
                (Some("{volume}" | "{cidr}"), Some(_)) if wanted.clone().next().is_none() => return true,
                (Some(want), Some(have)) if want == have || is_placeholder(want) && !have.is_empty() => {}
                _ => return false,
            }
        }
    }
}

fn is_placeholder(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}')
}

/// Follows one injected fault.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    strikes: watch::Receiver<u64>,
    released: Arc<watch::Sender<bool>>,
}

impl FaultHandle {
    /// How many requests it has struck.
    pub fn strikes(&self) -> u64 {
        *self.strikes.borrow()
    }

    /// Waits until it has struck at least one request. For [`Action::HoldAfter`] the request has had its effect
    /// by then; for [`Action::HoldBefore`] it has not.
    pub async fn struck(&mut self) {
        // The sender lives as long as the fault or this request; once it is gone nothing can strike any more.
        let _ = self.strikes.wait_for(|strikes| *strikes > 0).await;
    }

    /// Lets a held request go on, and all later ones that this fault would hold.
    pub fn release(&self) {
        self.released.send_replace(true);
    }
}

/// The faults of one cluster.
#[derive(Debug, Default)]
pub(crate) struct FaultBook {
    faults: Mutex<Vec<Arc<Armed>>>,
}

#[derive(Debug)]
pub(crate) struct Armed {
    fault: Fault,
    seen: AtomicU64,
    strikes: watch::Sender<u64>,
    released: Arc<watch::Sender<bool>>,
}

impl Armed {
    pub(crate) fn action(&self) -> &Action {
        &self.fault.action
    }

    pub(crate) fn strike(&self) {
        self.strikes.send_modify(|strikes| *strikes += 1);
    }

    pub(crate) async fn wait_for_release(&self) {
        let mut released = self.released.subscribe();
        let _ = released.wait_for(|released| *released).await;
    }
}

impl FaultBook {
    pub(crate) fn inject(&self, fault: Fault) -> FaultHandle {
        let (strikes, receiver) = watch::channel(0);
        let released = Arc::new(watch::Sender::new(false));
        let armed = Arc::new(Armed { fault, seen: AtomicU64::new(0), strikes, released: released.clone() });
        self.lock().push(armed);
        FaultHandle { strikes: receiver, released }
    }

    /// Removes all faults and lets go what they hold.
    pub(crate) fn clear(&self) {
        for armed in self.lock().drain(..) {
            armed.released.send_replace(true);
        }
    }

    /// The fault that strikes this request, if any; the one injected first wins.
    pub(crate) fn strike(&self, method: &str, path: &str) -> Option<Arc<Armed>> {
        let mut struck = None;
        for armed in self.lock().iter().filter(|armed| armed.fault.matcher.matches(method, path)) {
            let seen = armed.seen.fetch_add(1, Ordering::Relaxed) + 1;
            let hit = match armed.fault.nth {
                Nth::Every => true,
                Nth::Only(n) => n == seen,
            };
            if hit && struck.is_none() {
                struck = Some(armed.clone());
            }
        }
        struck
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Armed>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_and_concrete_paths_match_whole_segments() {
        let template =
            Matcher { method: "POST".into(), path: "/nodes/{node}/qemu/{vmid}/status/start".into() };
        assert!(template.matches("POST", "/nodes/pve1/qemu/100/status/start"));
        assert!(!template.matches("GET", "/nodes/pve1/qemu/100/status/start"));
        assert!(!template.matches("POST", "/nodes/pve1/qemu/100/status/start/x"));
        assert!(!template.matches("POST", "/nodes/pve1/qemu//status/start"));
        let concrete = Matcher { method: "*".into(), path: "/nodes/pve1/qemu/100/config".into() };
        assert!(concrete.matches("PUT", "/nodes/pve1/qemu/100/config"));
        assert!(!concrete.matches("PUT", "/nodes/pve1/qemu/101/config"));
    }

    #[test]
    fn nth_strikes_once_and_counts_from_the_injection() {
        let book = FaultBook::default();
        let handle = book.inject(Fault::once("GET", "/version", Action::DropBefore).nth(2));
        assert!(book.strike("GET", "/version").is_none());
        let struck = book.strike("GET", "/version").unwrap();
        struck.strike();
        assert!(book.strike("GET", "/version").is_none());
        assert_eq!(handle.strikes(), 1);
    }
}
