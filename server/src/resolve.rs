//! From a vmid to the guest it is now: node, kind, and the facts authorization decides on.
//!
//! The node is never taken from a caller. Reads may use a listing up to `policy.resource_cache_ttl_secs` old; whatever
//! changes a guest is resolved anew, and its configuration is read for tags and PVE's own `protection` flag.

use std::collections::HashMap;
use std::sync::Arc;
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
    /// What authorization decides on.
    pub facts: GuestFacts,
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
    /// No such guest, or none this principal may see.
    Absent,
    /// The cluster lists the vmid more than once (PX-09).
    Ambiguous,
    /// The cluster could not be asked.
    Cluster(Error),
}

/// Finds guests, with one cached listing a cluster.
#[derive(Debug, Default)]
pub struct Resolver {
    listings: Mutex<HashMap<String, Arc<Mutex<Option<Listing>>>>>,
}

#[derive(Debug)]
struct Listing {
    /// Which configuration of the cluster it was fetched with.
    cluster: Arc<Cluster>,
    fetched: Instant,
    rows: Arc<Vec<Resource>>,
}

impl Resolver {
    /// The cluster's resources. Calls that need the same listing at the same time share one request.
    ///
    /// # Errors
    /// Whatever kept the cluster from answering.
    pub async fn resources(
        &self,
        cluster: &Arc<Cluster>,
        freshness: Freshness,
    ) -> Result<Arc<Vec<Resource>>, Error> {
        let oldest = match freshness {
            Freshness::Within(oldest) if !oldest.is_zero() => oldest,
            _ => return cluster.client.resources().await.map(|listing| Arc::new(listing.items)),
        };
        let slot = self.listings.lock().await.entry(cluster.name.clone()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(listing) = slot.as_ref()
            && Arc::ptr_eq(&listing.cluster, cluster)
            && listing.fetched.elapsed() < oldest
        {
            return Ok(listing.rows.clone());
        }
        // Taken before the request: an answer may be older than its arrival, never younger.
        let fetched = Instant::now();
        let rows = Arc::new(cluster.client.resources().await?.items);
        *slot = Some(Listing { cluster: cluster.clone(), fetched, rows: rows.clone() });
        Ok(rows)
    }

    /// Forgets a cluster's listing, after something in it was changed.
    pub async fn forget(&self, cluster: &Cluster) {
        let slot = self.listings.lock().await.get(&cluster.name).cloned();
        if let Some(slot) = slot {
            *slot.lock().await = None;
        }
    }

    /// Resolves one guest for `principal`.
    ///
    /// A guest outside the principal's grant answers [`ResolveError::Absent`] after the same single request as one that does
    /// not exist, so neither words nor time tell the two apart.
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
        let mut found = rows.iter().filter(|row| row.guest().is_some_and(|at| at.vmid.get() == vmid));
        let row = found.next().ok_or(ResolveError::Absent)?;
        if found.next().is_some() {
            return Err(ResolveError::Ambiguous);
        }
        let mut guest = guest_of_row(&cluster.name, row).ok_or(ResolveError::Absent)?;
        if !principal.visible(&guest.facts) {
            return Err(ResolveError::Absent);
        }
        if freshness == Freshness::Now {
            self.read_config(cluster, &mut guest).await;
        }
        Ok(guest)
    }

    /// Reads the configuration for the facts that the listing lacks. What cannot be read stays unreadable, and unreadable
    /// means protected.
    async fn read_config(&self, cluster: &Cluster, guest: &mut Guest) {
        match cluster.client.guest_config(&guest.at).await {
            Ok(config) => {
                guest.facts.tags = known_tags(&config.tags());
                guest.facts.protection = known(config.protection().or_default(false));
                guest.config = Some(config);
            }
            Err(error) => {
                tracing::warn!(cluster = %cluster.name, vmid = guest.vmid(), error = %error, "guest configuration unreadable, treated as protected");
                guest.facts.tags = Known::Unreadable;
                guest.facts.protection = Known::Unreadable;
            }
        }
    }
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
        facts,
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
