//! One consistent configuration, and the pointer to the current one.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use authz::{TokenTable, WaiverSet};

use super::clusters::Cluster;
use super::policy::Policy;
use super::problem::Problem;

/// Everything that was read together. A call takes one snapshot and keeps it to its end.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts from 1; every reload that was taken adds one.
    pub generation: u64,
    /// The clusters by name.
    pub clusters: BTreeMap<String, Arc<Cluster>>,
    /// Who may call. Empty where the transport needs none.
    pub tokens: Arc<TokenTable>,
    /// Exceptions from protection.
    pub waivers: Arc<WaiverSet>,
    /// Limits and addresses.
    pub policy: Arc<Policy>,
    /// `--lab-mode`.
    pub lab_mode: bool,
    /// SHA-256 over what decides about changes (clusters, waivers, lab mode), in hex: the policy version that a
    /// plan's digest binds.
    pub policy_version: String,
}

impl Snapshot {
    /// The cluster of a call: the one named, or the only one.
    pub fn cluster(&self, name: Option<&str>) -> Option<&Arc<Cluster>> {
        match name {
            Some(name) => self.clusters.get(name),
            None if self.clusters.len() == 1 => self.clusters.values().next(),
            None => None,
        }
    }
}

/// Why the server runs on an older configuration than the files hold.
#[derive(Debug)]
pub struct Degraded {
    /// What was wrong with the files at the last reload.
    pub problems: Vec<Problem>,
}

/// The current snapshot.
#[derive(Debug)]
pub struct Live {
    current: ArcSwap<Snapshot>,
    degraded: ArcSwapOption<Degraded>,
}

impl Live {
    /// Begins with a first snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { current: ArcSwap::from_pointee(snapshot), degraded: ArcSwapOption::empty() }
    }

    /// The snapshot of now. Take it once per call.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Set while the last reload failed; `/readyz` then says `degraded`.
    pub fn degraded(&self) -> Option<Arc<Degraded>> {
        self.degraded.load_full()
    }

    pub(super) fn replace(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
        self.degraded.store(None);
    }

    pub(super) fn keep(&self, problems: Vec<Problem>) {
        self.degraded.store(Some(Arc::new(Degraded { problems })));
    }
}
