//! From a vmid to the guest it is now: node, kind, and the facts authorization decides on.
//!
//! The node is never taken from a caller. Reads may use a listing up to `policy.resource_cache_ttl_secs` old; whatever
//! changes a guest is resolved anew, and its configuration is read for tags and PVE's own `protection` flag.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use authz::{GuestFacts, Known, Principal, Vmid};
use proxmox_api::{Error, Field, GuestConfig, GuestRef, Resource, Tags};
use tokio::sync::Mutex;

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
    /// The cluster lists the vmid more than once (PX-09), at least once in this principal's scope.
    Ambiguous,
    /// The cluster could not be asked.
    Cluster(Error),
}

/// One answer of `/cluster/resources`.
type Rows = Arc<Vec<Resource>>;

/// Finds guests, with one cached listing a cluster.
#[derive(Debug, Default)]
pub struct Resolver {
    listings: Mutex<HashMap<String, Arc<Slot>>>,
}

/// One cluster's place in the cache.
#[derive(Debug, Default)]
struct Slot {
    /// How often something in the cluster was changed through this server.
    changes: AtomicU64,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    listing: Option<Listing>,
    /// When a request for the listing last failed.
    failed: Option<Instant>,
}

#[derive(Debug)]
struct Listing {
    /// Which configuration of the cluster it was fetched with.
    cluster: Arc<Cluster>,
    fetched: Instant,
    /// What [`Slot::changes`] said before it was asked for.
    changes: u64,
    rows: Rows,
}

impl Resolver {
    /// The cluster's resources. Calls that need the same listing at the same time share one request, and where that fails
    /// each makes its own: nobody waits for more than one request of somebody else.
    ///
    /// # Errors
    /// Whatever kept the cluster from answering.
    pub async fn resources(&self, cluster: &Arc<Cluster>, freshness: Freshness) -> Result<Rows, Error> {
        let oldest = match freshness {
            Freshness::Within(oldest) if !oldest.is_zero() => oldest,
            _ => return fetch(cluster).await,
        };
        self.shared(cluster, oldest, || fetch(cluster)).await
    }

    /// The cached listing, or what `ask` answers, for as many callers as wait for it.
    async fn shared<F, A>(&self, cluster: &Arc<Cluster>, oldest: Duration, ask: A) -> Result<Rows, Error>
    where
        F: Future<Output = Result<Rows, Error>> + Send,
        A: Fn() -> F + Send,
    {
        let asked = Instant::now();
        let slot = self.listings.lock().await.entry(cluster.name.clone()).or_default().clone();
        let mut latest = slot.latest.lock().await;
        // Both are taken before the request: an answer may be older than its arrival, never younger.
        let (fetched, changes) = (Instant::now(), slot.changes.load(Ordering::SeqCst));
        if let Some(listing) = &latest.listing
            && Arc::ptr_eq(&listing.cluster, cluster)
            && listing.changes == changes
            && listing.fetched.elapsed() < oldest
        {
            return Ok(listing.rows.clone());
        }
        if latest.failed.is_some_and(|at| at >= asked) {
            drop(latest);
            return ask().await;
        }
        match ask().await {
            Ok(rows) => {
                latest.listing =
                    Some(Listing { cluster: cluster.clone(), fetched, changes, rows: rows.clone() });
                Ok(rows)
            }
            Err(error) => {
                latest.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// Forgets a cluster's listing, after something in it was changed; also one that is still on its way. Waits for no
    /// request.
    pub async fn forget(&self, cluster: &Cluster) {
        if let Some(slot) = self.listings.lock().await.get(&cluster.name) {
            slot.changes.fetch_add(1, Ordering::SeqCst);
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
    ) -> Result<Guest, ResolveError> {
        let rows = self.resources(cluster, freshness).await.map_err(ResolveError::Cluster)?;
        let mut found: Vec<Guest> = rows
            .iter()
            .filter(|row| row.guest().is_some_and(|at| at.vmid.get() == vmid))
            .filter_map(|row| guest_of_row(&cluster.name, row))
            .collect();
        // Before anything else: what is outside the scope must not even show by being contradictory.
        if !found.iter().any(|guest| principal.holds(&guest.facts)) {
            return Err(ResolveError::Absent);
        }
        let mut guest = match (found.pop(), found.is_empty()) {
            (Some(guest), true) => guest,
            _ => return Err(ResolveError::Ambiguous),
        };
        if freshness == Freshness::Now {
            self.read_config(cluster, &mut guest).await;
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

async fn fetch(cluster: &Cluster) -> Result<Rows, Error> {
    cluster.client.resources().await.map(|listing| Arc::new(listing.items))
}

/// The guest a row of `/cluster/resources` describes; `None` for rows that are no guest.
pub fn guest_of_row(cluster: &str, row: &Resource) -> Option<Guest> {
    let at = row.guest()?;
    let kind = match at.kind {
        proxmox_api::GuestKind::Qemu => authz::GuestKind::Qemu,
        proxmox_api::GuestKind::Lxc => authz::GuestKind::Lxc,
    };
    let facts = GuestFacts {
        cluster: cluster.to_owned(),
        vmid: Vmid::new(at.vmid.get())?,
        kind,
        name: row.name.clone(),
        tags: known_tags(&row.tags),
        pool: match &row.pool {
            Field::Absent => Known::Known(None),
            Field::Value(pool) => Known::Known(Some(pool.clone())),
            Field::Unreadable => Known::Unreadable,
        },
        // The listing does not carry it; only a fresh resolve reads the configuration.
        protection: Known::Unreadable,
    };
    Some(Guest {
        at,
        facts: Arc::new(facts),
        status: row.status.clone().unwrap_or_else(|| "unknown".to_owned()),
        template: row.template.value().copied().unwrap_or(false),
        config: None,
    })
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
mod tests {
    use std::sync::atomic::AtomicUsize;

    use proxmox_api::{ApiToken, Client, Endpoint, Fingerprint, Trust};
    use tokio::sync::Notify;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A cluster of whose client nothing is asked: nothing listens there.
    fn cluster() -> Arc<Cluster> {
        let client = Client::builder()
            .endpoint(Endpoint::parse("https://127.0.0.1:1").unwrap())
            .token(ApiToken::new("proxward@pve!test", "11111111-2222".into()).unwrap())
            .trust(Trust::Leaf(Fingerprint::of(b"")))
            .build()
            .unwrap();
        let protection = authz::Protection::default();
        Arc::new(Cluster { name: "alpha".to_owned(), client, endpoints: Vec::new(), protection, ssh: None })
    }

    async fn unreachable(cluster: &Arc<Cluster>) -> Error {
        cluster.client.version().await.unwrap_err()
    }

    /// Held up by a cluster that hangs, callers must not queue behind one failure after the other.
    #[tokio::test]
    async fn do_04_who_waited_for_a_failure_asks_beside_the_others() {
        let (resolver, cluster) = (Arc::new(Resolver::default()), cluster());
        let (asking, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (entered, all_in) = (Arc::new(Notify::new()), Arc::new(tokio::sync::Barrier::new(3)));
        let first = {
            let (resolver, cluster, go, entered) =
                (resolver.clone(), cluster.clone(), go.clone(), entered.clone());
            tokio::spawn(async move {
                let ask = || async {
                    entered.notify_one();
                    go.notified().await;
                    Err(unreachable(&cluster).await)
                };
                resolver.shared(&cluster, MINUTE, ask).await.unwrap_err()
            })
        };
        entered.notified().await;
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (resolver, cluster) = (resolver.clone(), cluster.clone());
                let (asking, all_in) = (asking.clone(), all_in.clone());
                tokio::spawn(async move {
                    let ask = || async {
                        asking.fetch_add(1, Ordering::SeqCst);
                        // Only passed when all three ask at once.
                        all_in.wait().await;
                        Ok(Rows::default())
                    };
                    resolver.shared(&cluster, MINUTE, ask).await.unwrap()
                })
            })
            .collect();
        // On this one-threaded runtime: until every one of them has run up to the lock.
        tokio::task::yield_now().await;
        assert_eq!(asking.load(Ordering::SeqCst), 0);
        go.notify_one();
        first.await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert_eq!(asking.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn what_was_asked_for_before_a_change_is_not_kept() {
        let (resolver, cluster) = (Resolver::default(), cluster());
        let asked = AtomicUsize::new(0);
        let ask = || async {
            asked.fetch_add(1, Ordering::SeqCst);
            Ok(Rows::default())
        };
        // The change happens while the answer is on its way, and does not wait for it.
        let while_asking = || async {
            resolver.forget(&cluster).await;
            ask().await
        };
        resolver.shared(&cluster, MINUTE, while_asking).await.unwrap();
        resolver.shared(&cluster, MINUTE, ask).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        resolver.shared(&cluster, MINUTE, ask).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        resolver.forget(&cluster).await;
        resolver.shared(&cluster, MINUTE, ask).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }
}
