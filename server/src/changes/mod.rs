//! Change sets in the server: the coordinator's effects on real clusters, and the service that tools and the command line use.

mod decide;
mod dispatch;
mod facts;
pub mod fingerprint;
pub mod guest_config;
mod ha_rule;
pub mod op;
mod place;
mod plan;
mod preview;
mod recovery;
mod rollback;
mod runner;
mod store;
mod view;
mod wall;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use changeset::store::Filter;
use changeset::{ApprovalKey, ChangeSet, ChangeSetId, StoreError, Timing};
use jiff::Timestamp;

pub(crate) use decide::{approval_facts, tier};
pub use ha_rule::{CREATE as HA_CREATE, DELETE as HA_DELETE, HaChange, UPDATE as HA_UPDATE};
pub use op::DESTROY_GUEST;
pub(crate) use place::{NEEDS_ALL_GUESTS, may_approve};
pub use plan::{GuestOp, PlanRefusal, Planner};
pub use rollback::{History, Seen, older_than_trail};
pub use runner::{Applier, ApplyEnd, Point};
pub use store::{StoreClosed, StoreThread};
pub use view::view;
pub use wall::{Object, Verb, WallChange};

/// The window of the limit on destructive requests.
const HOUR: Duration = Duration::from_secs(3600);

/// Told of every point an apply passes. For crash harnesses; the program passes none.
pub type Observer = Arc<dyn Fn(Point) + Send + Sync>;

/// The set that acts on each target now, by cluster and key.
type Holders = Arc<Mutex<HashMap<(String, String), ChangeSetId>>>;

/// The right to act on one target; given back when dropped.
#[derive(Debug)]
pub struct TargetLock {
    holders: Holders,
    target: (String, String),
}

impl Drop for TargetLock {
    fn drop(&mut self) {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.target);
    }
}

/// Another set acts on the target, or this very one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy(pub Option<ChangeSetId>);

/// Change sets: the store's thread, the key approvals are signed with, and one lock a target.
#[derive(Clone)]
pub struct Changes {
    store: StoreThread,
    key: ApprovalKey,
    timing: Timing,
    holders: Holders,
    dispatches: Arc<Mutex<HashMap<String, VecDeque<Timestamp>>>>,
    observer: Option<Observer>,
    flags: Arc<str>,
    frozen: Option<Arc<str>>,
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
    /// The state is an older copy.
    #[error("{0}")]
    Frozen(Arc<str>),
}

impl Changes {
    /// Over a store, with the approval key and the timing of look-ups.
    pub fn new(store: StoreThread, key: ApprovalKey, timing: Timing, observer: Option<Observer>) -> Self {
        Self {
            store,
            key,
            timing,
            holders: Arc::default(),
            dispatches: Arc::default(),
            observer,
            flags: "".into(),
            frozen: None,
        }
    }

    /// Flags that a `proxward change` line on this host needs to reach this server: refusals name the whole line.
    #[must_use]
    pub fn with_flags(mut self, flags: &str) -> Self {
        self.flags = flags.into();
        self
    }

    /// Refuses every plan, move and apply for this reason, until a person has settled it.
    #[must_use]
    pub fn frozen(mut self, why: Option<String>) -> Self {
        self.frozen = why.map(Into::into);
        self
    }

    fn thawed(&self) -> Result<(), ChangesError> {
        self.frozen.clone().map_or(Ok(()), |why| Err(ChangesError::Frozen(why)))
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
        self.thawed()?;
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
        if let Some(why) = &self.frozen {
            return Some(why.to_string());
        }
        match self.store.with(|store| store.poisoned().map(str::to_owned)).await {
            Ok(reason) => reason,
            Err(closed) => Some(closed.to_string()),
        }
    }

    /// Reads from the store how many destructive requests each cluster has been sent within the last hour, so that a restart
    /// forgets none of them. A set that was applied within the hour was approved at most [`changeset::APPROVED_TTL`] before,
    /// and planned at most [`changeset::PLANNED_TTL`] before that.
    ///
    /// # Errors
    /// The store failed.
    pub async fn count_recent(&self, now: Timestamp) -> Result<(), ChangesError> {
        let window = HOUR + changeset::APPROVED_TTL + changeset::PLANNED_TTL;
        let since = now.checked_sub(window).unwrap_or(Timestamp::MIN);
        let mut sent: Vec<(String, Timestamp)> = self
            .list(Filter { created_since: Some(since), ..Filter::default() })
            .await?
            .iter()
            .filter(|set| set.plan().tier_destructive())
            .filter_map(|set| {
                let first = set.records().first()?.intent.as_ref()?;
                Some((set.plan().target().cluster.clone(), first.at))
            })
            .collect();
        sent.sort_by_key(|(_, at)| *at);
        let mut dispatches = self.dispatches.lock().unwrap_or_else(PoisonError::into_inner);
        for (cluster, at) in sent {
            dispatches.entry(cluster).or_default().push_back(at);
        }
        Ok(())
    }

    /// Takes one of the destructive requests that a cluster may be sent within an hour, at `now`. A runaway agent with a willing
    /// approver is slowed down to a pace at which somebody notices.
    ///
    /// # Errors
    /// How long until the next one is free.
    fn take_turn(&self, cluster: &str, per_hour: u64, now: Timestamp) -> Result<(), Duration> {
        let mut dispatches = self.dispatches.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = dispatches.entry(cluster.to_owned()).or_default();
        // A time ahead of a clock that was set back counts until the clock has passed it.
        let age = |at: &Timestamp| Duration::try_from(now.duration_since(*at)).unwrap_or_default();
        while recent.front().is_some_and(|at| age(at) >= HOUR) {
            recent.pop_front();
        }
        match recent.front() {
            Some(oldest) if recent.len() as u64 >= per_hour => Err(HOUR.saturating_sub(age(oldest))),
            _ => {
                recent.push_back(now);
                Ok(())
            }
        }
    }

    /// Gives back a turn that was taken at `taken`: nothing was sent.
    fn give_back_turn(&self, cluster: &str, taken: Timestamp) {
        let mut dispatches = self.dispatches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recent) = dispatches.get_mut(cluster)
            && let Some(at) = recent.iter().position(|at| *at == taken)
        {
            recent.remove(at);
        }
    }

    /// The right to act on one target, if nobody has it: two sets never act on one guest at once.
    fn try_lock(&self, cluster: &str, key: &str, by: ChangeSetId) -> Result<TargetLock, Busy> {
        let target = (cluster.to_owned(), key.to_owned());
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = holders.get(&target) {
            return Err(Busy(Some(*holder)));
        }
        holders.insert(target.clone(), by);
        Ok(TargetLock { holders: self.holders.clone(), target })
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
