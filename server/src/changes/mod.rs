//! Change sets in the server: the coordinator's effects on real clusters, and the service that tools and the command line use.

mod dispatch;
pub mod fingerprint;
mod plan;
mod preview;
mod recovery;
mod runner;
mod store;
mod view;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use changeset::store::Filter;
use changeset::{ApprovalKey, ChangeSet, ChangeSetId, StoreError, Timing};
use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;

pub use plan::{DESTROY_GUEST, PlanRefusal, PlanRequest};
pub(crate) use runner::approval_facts;
pub use runner::{Applier, ApplyEnd, Point};
pub use store::{StoreClosed, StoreThread};
pub use view::view;

/// Told of every point an apply passes. For crash harnesses; the program passes none.
pub type Observer = Arc<dyn Fn(Point) + Send + Sync>;

/// One lock for each target that is being acted on, by cluster and key.
type TargetLocks = HashMap<(String, String), Arc<tokio::sync::Mutex<()>>>;

/// Change sets: the store's thread, the key approvals are signed with, and one lock a target.
#[derive(Clone)]
pub struct Changes {
    store: StoreThread,
    key: ApprovalKey,
    timing: Timing,
    locks: Arc<Mutex<TargetLocks>>,
    dispatches: Arc<Mutex<HashMap<String, VecDeque<Duration>>>>,
    observer: Option<Observer>,
    flags: Arc<str>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("timing", &self.timing).finish_non_exhaustive()
    }
}

/// The store could not be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChangesError {
    /// The store's own words.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is stopping.
    #[error(transparent)]
    Closed(#[from] StoreClosed),
}

impl Changes {
    /// Over a store, with the approval key and the timing of look-ups.
    pub fn new(store: StoreThread, key: ApprovalKey, timing: Timing, observer: Option<Observer>) -> Self {
        Self {
            store,
            key,
            timing,
            locks: Arc::default(),
            dispatches: Arc::default(),
            observer,
            flags: "".into(),
        }
    }

    /// Flags that a `proxward change` line on this host needs to reach this server: refusals name the whole line.
    #[must_use]
    pub fn with_flags(mut self, flags: &str) -> Self {
        self.flags = flags.into();
        self
    }

    /// The command line with which a person on this host approves a set.
    pub fn approve_line(&self, id: ChangeSetId) -> String {
        format!("proxward change approve {id}{}", self.flags)
    }

    /// The stored sets that pass the filter, newest first. Overdue ones come as they are stored.
    ///
    /// # Errors
    /// The store failed, or one of the sets is damaged.
    pub async fn list(&self, filter: Filter) -> Result<Vec<ChangeSet>, ChangesError> {
        Ok(self.store.with(move |store| store.list(&filter)).await??)
    }

    /// The set of that name as it stands at `now`: one that is overdue is expired on the way.
    ///
    /// # Errors
    /// The store failed, or the stored set is damaged.
    pub async fn load(&self, id: ChangeSetId, now: Timestamp) -> Result<Option<ChangeSet>, ChangesError> {
        Ok(self
            .store
            .with(move |store| {
                let Some(set) = store.load(&id)? else { return Ok(None) };
                if !set.is_overdue(now) {
                    return Ok(Some(set));
                }
                let Ok(expired) = set.expire(now) else { return Ok(Some(set)) };
                if store.replace_if(&expired, set.version())? { Ok(Some(expired)) } else { store.load(&id) }
            })
            .await??)
    }

    /// Takes a move of a set: `change` gets the set as the store holds it and the time to use.
    ///
    /// # Errors
    /// The store failed; the inner result is the move's own refusal.
    pub async fn transition<E, F>(
        &self,
        id: ChangeSetId,
        now: Timestamp,
        change: F,
    ) -> Result<Result<ChangeSet, Moved<E>>, ChangesError>
    where
        E: Send + 'static,
        F: FnOnce(&ChangeSet, &ApprovalKey, Timestamp) -> Result<ChangeSet, E> + Send + 'static,
    {
        let key = self.key.clone();
        Ok(self
            .store
            .with(move |store| {
                let now = store.observe_time(now)?;
                let Some(before) = store.load(&id)? else { return Ok(Err(Moved::Gone)) };
                let after = match change(&before, &key, now) {
                    Ok(after) => after,
                    Err(error) => return Ok(Err(Moved::Refused(error))),
                };
                if store.advance(&before, &after)? { Ok(Ok(after)) } else { Ok(Err(Moved::Gone)) }
            })
            .await?
            .map_err(|error: StoreError| error)?)
    }

    /// Whether the store holds any set at all.
    ///
    /// # Errors
    /// The store failed.
    pub async fn any(&self) -> Result<bool, ChangesError> {
        Ok(self.store.with(|store| store.counts()).await??.total > 0)
    }

    /// Why the store takes no writes; `None` while it does.
    pub async fn poisoned(&self) -> Option<String> {
        match self.store.with(|store| store.poisoned().map(str::to_owned)).await {
            Ok(reason) => reason,
            Err(closed) => Some(closed.to_string()),
        }
    }

    /// Takes one of the destructive requests that a cluster may be sent within an hour, at monotonic time `now`. A runaway
    /// agent with a willing approver is slowed down to a pace at which somebody notices.
    ///
    /// # Errors
    /// How long until the next one is free.
    fn take_turn(&self, cluster: &str, per_hour: u64, now: Duration) -> Result<(), Duration> {
        const HOUR: Duration = Duration::from_secs(3600);
        let mut dispatches = self.dispatches.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = dispatches.entry(cluster.to_owned()).or_default();
        while recent.front().is_some_and(|at| now.saturating_sub(*at) >= HOUR) {
            recent.pop_front();
        }
        match recent.front() {
            Some(oldest) if recent.len() as u64 >= per_hour => {
                Err(HOUR.saturating_sub(now.saturating_sub(*oldest)))
            }
            _ => {
                recent.push_back(now);
                Ok(())
            }
        }
    }

    /// Gives back a turn that was taken at `taken`: nothing was sent.
    fn give_back_turn(&self, cluster: &str, taken: Duration) {
        let mut dispatches = self.dispatches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recent) = dispatches.get_mut(cluster)
            && let Some(at) = recent.iter().position(|at| *at == taken)
        {
            recent.remove(at);
        }
    }

    /// The lock on one target, if nobody holds it: two sets never act on one guest at once.
    fn try_lock(&self, cluster: &str, key: &str) -> Option<OwnedMutexGuard<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // A lock that nobody holds or waits for is forgotten, so that the map stays as small as the work at hand.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry((cluster.to_owned(), key.to_owned())).or_default().clone().try_lock_owned().ok()
    }

    fn passed(&self, point: Point) {
        if let Some(observer) = &self.observer {
            observer(point);
        }
    }
}

/// Why a move was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved<E> {
    /// The set is not there, or somebody else moved it first.
    Gone,
    /// The move itself refused.
    Refused(E),
}

/// The number of the guest a set acts on.
pub fn vmid(set: &ChangeSet) -> Option<u32> {
    runner::vmid_of(set).map(|vmid| vmid.get())
}

/// The guest as it was when the set was planned: what decides who may read the set once the guest itself is gone.
pub fn planned_facts(set: &ChangeSet) -> Option<authz::GuestFacts> {
    let fields = &set.plan().fingerprint().fields;
    let text = |name: &str| fields.get(name).filter(|value| !value.is_empty()).cloned();
    Some(authz::GuestFacts {
        cluster: text("cluster")?,
        vmid: authz::Vmid::new(vmid(set)?)?,
        kind: if text("kind")? == "qemu" { authz::GuestKind::Qemu } else { authz::GuestKind::Lxc },
        name: text("name"),
        tags: authz::Known::Known(
            text("tags").map(|tags| tags.split(';').map(str::to_owned).collect()).unwrap_or_default(),
        ),
        pool: authz::Known::Known(text("pool")),
        protection: authz::Known::Unreadable,
    })
}
