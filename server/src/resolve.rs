//! From a vmid to the guest it is now: node, kind, and the facts authorization decides on.
//!
//! The node is never taken from a caller. Reads may use a listing up to `policy.resource_cache_ttl_secs` old; whatever
//! changes a guest is resolved anew, and its configuration is read for tags and PVE's own `protection` flag.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use authz::{GuestFacts, Known, Principal, Vmid};
use proxmox_api::{Entry, Error, Field, GuestConfig, GuestRef, Inventory, Lookup, Resource, Tags};
use tokio::sync::watch;

use crate::config::Cluster;

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// At most this old: reads.
    Within(Duration),
    /// Fetched for this call: mutations, plans, applies, redeems.
    Now,
}

/// A guest as it is now.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Where PVE has it: node, kind and vmid.
    pub at: GuestRef,
    /// What authorization decides on. Shared, so that a permit can keep it without a copy.
    pub facts: Arc<GuestFacts>,
    /// PVE's status word: `running`, `stopped`, `unknown`, …
    pub status: String,
    /// Whether it is a template.
    pub template: bool,
    /// Its configuration; present only when resolved with [`Freshness::Now`] and readable.
    pub config: Option<GuestConfig>,
}

impl Guest {
    /// Its number.
    pub fn vmid(&self) -> u32 {
        self.facts.vmid.value()
    }

    /// The node it is on.
    pub fn node(&self) -> &str {
        self.at.node.as_str()
    }

    /// Its name, or its number where it has none.
    pub fn label(&self) -> String {
        self.facts.name.clone().unwrap_or_else(|| self.vmid().to_string())
    }

    /// Whether PVE says it is running.
    pub fn running(&self) -> bool {
        self.status == "running"
    }
}

/// Why a guest could not be resolved.
#[derive(Debug)]
pub enum ResolveError {
    /// No such guest, or none in this principal's scope.
    Absent,
    /// The cluster contradicts itself about the vmid, at least once in this principal's scope: it lists it more than once, or on
    /// a node that it does not have (PX-09).
    Ambiguous,
    /// The cluster could not be asked.
    Cluster(Error),
}

/// Finds guests, with one cached inventory a cluster.
#[derive(Debug, Default)]
pub struct Resolver {
    slots: std::sync::Mutex<HashMap<String, Arc<Slot>>>,
}

/// One cluster's place in the cache.
#[derive(Debug, Default)]
struct Slot {
    /// How often something in the cluster was changed through this server.
    changes: AtomicU64,
    state: std::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Kept>,
    /// The request on its way that others may wait for.
    flight: Option<Flight>,
}

/// What an answer was, or will be, true of.
#[derive(Debug, Clone)]
struct Asked {
    /// Which configuration of the cluster it was asked with.
    cluster: Arc<Cluster>,
    /// Before the request: an answer may be older than its arrival, never younger.
    at: Instant,
    /// What [`Slot::changes`] said before the request.
    changes: u64,
}

#[derive(Debug)]
struct Kept {
    asked: Asked,
    listing: Arc<Listing>,
}

/// An inventory, and the guests that calls have asked for out of it: reads name the same few again and again.
#[derive(Debug)]
struct Listing {
    inventory: Arc<Inventory>,
    /// Only of numbers that the inventory does not contradict itself about; so there are never more than it lists.
    guests: std::sync::Mutex<HashMap<u32, Arc<Guest>>>,
}

impl Listing {
    fn new(inventory: Arc<Inventory>) -> Arc<Self> {
        Arc::new(Self { inventory, guests: std::sync::Mutex::default() })
    }

    /// The guest of that number, if `principal` holds it.
    fn guest(&self, cluster: &str, vmid: u32, principal: &Principal) -> Result<Arc<Guest>, ResolveError> {
        let known = self.guests().get(&vmid).cloned();
        if let Some(guest) = known {
            return if principal.holds(&guest.facts) { Ok(guest) } else { Err(ResolveError::Absent) };
        }
        let Ok(number) = proxmox_api::Vmid::new(vmid) else { return Err(ResolveError::Absent) };
        let found = self.inventory.numbered(number).filter_map(|entry| guest_of(cluster, entry));
        let found: Vec<_> = found.map(Arc::new).collect();
        let at_odds = !matches!(self.inventory.guest(number), Lookup::Guest(_));
        if !at_odds && let [guest] = found.as_slice() {
            self.guests().insert(vmid, guest.clone());
        }
        // Before anything else: what is outside the scope must not even show by being contradictory.
        let Some(guest) = found.into_iter().find(|guest| principal.holds(&guest.facts)) else {
            return Err(ResolveError::Absent);
        };
        if at_odds { Err(ResolveError::Ambiguous) } else { Ok(guest) }
    }

    fn guests(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Guest>>> {
        // A map of whole values is whole after a panic as well.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Flight {
    asked: Asked,
    end: watch::Receiver<End>,
}

#[derive(Debug, Clone)]
enum End {
    Awaited,
    Answered(Arc<Listing>),
    Failed,
}

/// What a call for an inventory has to do.
enum Part {
    Have(Arc<Listing>),
    /// Wait for somebody else's request.
    Wait(watch::Receiver<End>),
    /// Make the request that others wait for.
    Ask(Asked, watch::Sender<End>),
}

impl Asked {
    /// Whether the answer to this is good for a call made now.
    fn serves(&self, cluster: &Arc<Cluster>, changes: u64) -> bool {
        Arc::ptr_eq(&self.cluster, cluster) && self.changes == changes
    }
}

impl State {
    fn kept(&self, cluster: &Arc<Cluster>, changes: u64, oldest: Duration) -> Option<Arc<Listing>> {
        let kept = self.kept.as_ref()?;
        let good = kept.asked.serves(cluster, changes) && kept.asked.at.elapsed() < oldest;
        good.then(|| kept.listing.clone())
    }
}

impl Slot {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Every change of the state is one assignment, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self, cluster: &Arc<Cluster>, oldest: Duration) -> Option<Arc<Listing>> {
        let state = self.state();
        state.kept(cluster, self.changes.load(Ordering::SeqCst), oldest)
    }

    fn part(&self, cluster: &Arc<Cluster>, oldest: Duration) -> Part {
        let mut state = self.state();
        let changes = self.changes.load(Ordering::SeqCst);
        if let Some(listing) = state.kept(cluster, changes, oldest) {
            return Part::Have(listing);
        }
        // A request whose caller went away has no sender any more, and no end.
        if let Some(flight) = &state.flight
            && flight.asked.serves(cluster, changes)
            && flight.end.has_changed().is_ok()
        {
            return Part::Wait(flight.end.clone());
        }
        let (sender, end) = watch::channel(End::Awaited);
        let asked = Asked { cluster: cluster.clone(), at: Instant::now(), changes };
        state.flight = Some(Flight { asked: asked.clone(), end });
        Part::Ask(asked, sender)
    }

    /// Keeps an answer, unless the cluster was changed since it was asked for or a younger one is kept already.
    fn landed(&self, asked: Asked, listing: &Arc<Listing>) {
        let mut state = self.state();
        let younger = |kept: &Kept| kept.asked.changes == asked.changes && kept.asked.at > asked.at;
        if asked.changes == self.changes.load(Ordering::SeqCst) && !state.kept.as_ref().is_some_and(younger) {
            state.kept = Some(Kept { asked, listing: listing.clone() });
        }
    }
}

impl Resolver {
    /// Everything in the cluster. Calls that need the same answer at the same time share one request, and where that fails each
    /// makes its own: nobody waits for more than one request of somebody else.
    ///
    /// # Errors
    /// Whatever kept the cluster from answering.
    pub async fn inventory(
        &self,
        cluster: &Arc<Cluster>,
        freshness: Freshness,
    ) -> Result<Arc<Inventory>, Error> {
        Ok(self.listing(cluster, freshness).await?.inventory.clone())
    }

    async fn listing(&self, cluster: &Arc<Cluster>, freshness: Freshness) -> Result<Arc<Listing>, Error> {
        match freshness {
            Freshness::Within(oldest) => self.shared(cluster, oldest, || fetch(cluster)).await,
            Freshness::Now => fetch(cluster).await,
        }
    }

    /// [`Resolver::inventory`] as values of their own, for callers that look at most columns of most entries.
    ///
    /// # Errors
    /// Whatever kept the cluster from answering.
    pub async fn resources(
        &self,
        cluster: &Arc<Cluster>,
        freshness: Freshness,
    ) -> Result<Arc<Vec<Resource>>, Error> {
        Ok(Arc::new(self.inventory(cluster, freshness).await?.to_listing().items))
    }

    /// The cached listing, where it is young enough.
    fn kept(&self, cluster: &Arc<Cluster>, freshness: Freshness) -> Option<Arc<Listing>> {
        let Freshness::Within(oldest) = freshness else { return None };
        self.slot(&cluster.name).kept(cluster, oldest)
    }

    /// The cached inventory, or what `ask` answers, for as many callers as wait for it. One that was asked for before the last
    /// change of the cluster is neither kept nor waited for.
    async fn shared<F, A>(
        &self,
        cluster: &Arc<Cluster>,
        oldest: Duration,
        ask: A,
    ) -> Result<Arc<Listing>, Error>
    where
        F: Future<Output = Result<Arc<Listing>, Error>> + Send,
        A: Fn() -> F + Send,
    {
        let slot = self.slot(&cluster.name);
        loop {
            match slot.part(cluster, oldest) {
                Part::Have(listing) => return Ok(listing),
                Part::Wait(mut end) => {
                    let end = end.wait_for(|end| !matches!(end, End::Awaited)).await.map(|end| end.clone());
                    match end {
                        Ok(End::Answered(listing)) => return Ok(listing),
                        Ok(End::Failed | End::Awaited) => return ask().await,
                        // Its caller went away before there was an answer: begin anew, and let one of those waiting ask.
                        Err(_) => {}
                    }
                }
                Part::Ask(asked, sender) => {
                    let answer = ask().await;
                    match &answer {
                        Ok(listing) => {
                            slot.landed(asked, listing);
                            sender.send_replace(End::Answered(listing.clone()));
                        }
                        Err(_) => {
                            sender.send_replace(End::Failed);
                        }
                    }
                    return answer;
                }
            }
        }
    }

    /// Forgets a cluster's listing, after something in it was changed; also one that is still on its way. Waits for no
    /// request.
    pub async fn forget(&self, cluster: &Cluster) {
        self.slot(&cluster.name).changes.fetch_add(1, Ordering::SeqCst);
    }

    fn slot(&self, cluster: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.get(cluster) {
            Some(slot) => slot.clone(),
            None => slots.entry(cluster.to_owned()).or_default().clone(),
        }
    }

    /// Resolves one guest for `principal`.
    ///
    /// A guest outside the principal's scope answers [`ResolveError::Absent`] after the same single request as one that does
    /// not exist, so neither words nor time tell the two apart. A guest inside it is not yet allowed anything: that is for
    /// [`authz::decide`] and its siblings to say, which know the tier.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn guest(
        &self,
        cluster: &Arc<Cluster>,
        vmid: u32,
        freshness: Freshness,
        principal: &Principal,
    ) -> Result<Arc<Guest>, ResolveError> {
        // Asking is rare and its future large: whoever finds the answer kept does not carry it.
        let listing = match self.kept(cluster, freshness) {
            Some(listing) => listing,
            None => Box::pin(self.listing(cluster, freshness)).await.map_err(ResolveError::Cluster)?,
        };
        let mut guest = listing.guest(&cluster.name, vmid, principal)?;
        if freshness == Freshness::Now {
            // The listing was fetched for this call alone, and goes now: the guest is nobody else's, and is not copied.
            drop(listing);
            Box::pin(self.read_config(cluster, Arc::make_mut(&mut guest))).await;
        }
        Ok(guest)
    }

    /// Reads the configuration for the facts that the listing lacks. What cannot be read stays unreadable, and unreadable
    /// means protected.
    async fn read_config(&self, cluster: &Cluster, guest: &mut Guest) {
        let config = cluster.client.guest_config(&guest.at).await;
        let facts = Arc::make_mut(&mut guest.facts);
        match config {
            Ok(config) => {
                facts.tags = known_tags(&config.tags());
                facts.protection = known(config.protection().or_default(false));
                guest.config = Some(config);
            }
            Err(error) => {
                tracing::warn!(cluster = %cluster.name, vmid = facts.vmid.value(), error = %error, "guest configuration unreadable, treated as protected");
                facts.tags = Known::Unreadable;
                facts.protection = Known::Unreadable;
            }
        }
    }
}

async fn fetch(cluster: &Cluster) -> Result<Arc<Listing>, Error> {
    cluster.client.inventory().await.map(|inventory| Listing::new(Arc::new(inventory)))
}

/// What authorization decides on, as far as the inventory tells it; `None` for entries that are no guest.
pub fn facts_of(cluster: &str, entry: Entry<'_>) -> Option<GuestFacts> {
    Some(GuestFacts {
        cluster: cluster.to_owned(),
        vmid: Vmid::new(entry.vmid()?.get())?,
        kind: kind_of(entry.guest_kind()?),
        name: entry.name().map(Into::into),
        tags: known_tags(&entry.tags()),
        pool: known_pool(entry.pool()),
        // The inventory does not carry it; only a fresh resolve reads the configuration.
        protection: Known::Unreadable,
    })
}

/// The guest an entry describes; `None` for entries that are no guest.
pub fn guest_of(cluster: &str, entry: Entry<'_>) -> Option<Guest> {
    Some(Guest {
        at: entry.guest()?,
        facts: Arc::new(facts_of(cluster, entry)?),
        status: entry.status().map_or_else(|| "unknown".to_owned(), Into::into),
        template: entry.template().value().copied().unwrap_or(false),
        config: None,
    })
}

/// PVE's kind of guest as authorization has it.
pub fn kind_of(kind: proxmox_api::GuestKind) -> authz::GuestKind {
    match kind {
        proxmox_api::GuestKind::Qemu => authz::GuestKind::Qemu,
        proxmox_api::GuestKind::Lxc => authz::GuestKind::Lxc,
    }
}

fn known_pool<T: Into<String>>(pool: Field<T>) -> Known<Option<String>> {
    match pool {
        Field::Absent => Known::Known(None),
        Field::Value(pool) => Known::Known(Some(pool.into())),
        Field::Unreadable => Known::Unreadable,
    }
}

/// The guests that `principal` may see, by number. Their facts are looked at only where the scope needs them: a list of ten
/// thousand guests makes none for a principal who may see all.
pub fn visible_guests<'i, 'a>(
    inventory: &'i Inventory,
    cluster: &'a str,
    principal: &'a Principal,
) -> impl Iterator<Item = Entry<'i>> + use<'i, 'a> {
    let all = principal.unrestricted_guests() && principal.may_see_cluster(cluster);
    inventory
        .guests()
        .filter(move |entry| all || facts_of(cluster, *entry).is_some_and(|facts| principal.visible(&facts)))
}

fn known_tags(tags: &Field<Tags>) -> Known<Vec<String>> {
    match tags {
        Field::Absent => Known::Known(Vec::new()),
        Field::Value(tags) => Known::Known(tags.iter().map(str::to_owned).collect()),
        Field::Unreadable => Known::Unreadable,
    }
}

fn known<T>(value: Option<T>) -> Known<T> {
    value.map_or(Known::Unreadable, Known::Known)
}

impl crate::config::Snapshot {
    /// How old a listing may be that a read is answered from.
    pub fn read_freshness(&self) -> Freshness {
        Freshness::Within(self.policy.resource_cache_ttl)
    }
}

#[cfg(test)]
mod tests;
