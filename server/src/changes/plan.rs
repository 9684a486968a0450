//! Planning: refuse what could never be applied, look at everything, write down what would happen.

mod prepare;

use std::collections::BTreeSet;
use std::sync::Arc;

use authz::Permit;
use changeset::store::{AdmissionRefusal, Inserted};
use changeset::{Actor, ChangeSet, ChangeSetId, Fingerprint, Plan, PlanDraft, Preview, Step, Target};
use proxmox_api::{Field, NodeName, SnapName, StorageId, Vmid, Volid};

pub(super) use self::prepare::Prepared;
use super::guest_config::Change;
use super::runner::record;
use super::wall::WallChange;
use super::{Changes, ChangesError, fingerprint, op, preview};
use crate::app::App;
use crate::audit::Event;
use crate::config::{Cluster, Snapshot};
use crate::resolve::Guest;

/// What is to be done to one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestOp {
    /// Destroy it and its disks.
    Destroy {
        /// Also leave backup jobs, replication and HA.
        purge: bool,
        /// Also destroy disks of its number that its configuration does not name.
        destroy_unreferenced_disks: bool,
    },
    /// Delete one snapshot.
    DeleteSnapshot {
        /// Its name.
        snapname: SnapName,
    },
    /// Go back to a snapshot.
    Rollback {
        /// Its name.
        snapname: SnapName,
        /// Start the guest afterwards.
        start: bool,
        /// Take a snapshot first, where the storage can.
        safety: bool,
    },
    /// Delete one backup.
    DeleteBackup {
        /// The archive.
        volid: Volid,
    },
    /// Replace the guest by one of its backups.
    Restore {
        /// The archive.
        volid: Volid,
        /// Where its disks go; where they were when absent.
        storage: Option<StorageId>,
    },
    /// Make another guest from one of its backups.
    RestoreNew {
        /// The archive.
        volid: Volid,
        /// The new guest's number.
        newid: Vmid,
        /// Where its disks go; where they were when absent.
        storage: Option<StorageId>,
    },
    /// Move it to another node.
    Migrate {
        /// Where to.
        target: NodeName,
        /// Let a running virtual machine run on.
        online: bool,
        /// Also copy local disks of a running virtual machine.
        with_local_disks: bool,
    },
    /// Change its firewall.
    Firewall(WallChange),
    /// Change its configuration.
    UpdateConfig {
        /// What changes.
        change: Change,
        /// Take a snapshot first, where the storage can.
        safety: bool,
    },
}

impl GuestOp {
    /// The operation's name on this kind of guest: what waivers name.
    pub fn name(&self, kind: authz::GuestKind) -> &'static str {
        match self {
            Self::Destroy { .. } => op::DESTROY_GUEST,
            Self::DeleteSnapshot { .. } => op::DELETE_SNAPSHOT,
            Self::Rollback { .. } => op::ROLLBACK_SNAPSHOT,
            Self::DeleteBackup { .. } => op::DELETE_BACKUP,
            Self::Restore { .. } => op::RESTORE_BACKUP,
            Self::RestoreNew { .. } => op::RESTORE_NEW_VMID,
            Self::Migrate { .. } => op::MIGRATE,
            Self::UpdateConfig { .. } => op::update_config(kind),
            Self::Firewall(change) => change.op(),
        }
    }
}

/// Who plans, and how they call it.
#[derive(Debug, Clone)]
pub struct Planner {
    /// As the store records them.
    pub actor: Actor,
    /// Their key for the same request again.
    pub idempotency_key: Option<String>,
    /// Joins the audit records.
    pub request_id: String,
}

/// Why nothing was planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanRefusal {
    /// It could never be applied.
    #[error("{0}")]
    Impossible(String),
    /// Another set is pending, or a cap is reached.
    #[error(transparent)]
    Admission(#[from] AdmissionRefusal),
    /// The plan itself is out of bounds.
    #[error(transparent)]
    Plan(#[from] changeset::PlanError),
    /// The cluster could not be asked.
    #[error("the guest could not be looked at: {0}")]
    Cluster(#[from] proxmox_api::Error),
    /// The cluster's nodes are too few to change anything.
    #[error(
        "cluster {0} has no majority of its nodes: it can be read, and nothing on it can be changed until it has, so nothing was planned"
    )]
    NoQuorum(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] ChangesError),
    /// No randomness for a name.
    #[error("no randomness to name a change set with")]
    Entropy,
    /// The audit log cannot be written.
    #[error(
        "the audit log cannot be written, so nothing was planned; the operator must make it writable again"
    )]
    Audit,
}

impl PlanRefusal {
    /// A stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Impossible(_) => "plan_impossible",
            Self::Admission(AdmissionRefusal::TargetPending { .. }) => "already_pending",
            Self::Admission(AdmissionRefusal::KeyReused { .. }) => "idempotency_key_reused",
            Self::Admission(_) => "too_many_pending",
            Self::Plan(_) => "plan_out_of_bounds",
            Self::Cluster(_) => "cluster_unreachable",
            Self::NoQuorum(_) => "no_quorum",
            Self::Store(_) => "state_store",
            Self::Entropy => "internal",
            Self::Audit => "audit_unavailable",
        }
    }
}

/// Everything of a plan but its name, planner and time.
pub(super) struct Draft {
    pub target: Target,
    pub destructive: bool,
    pub protected: bool,
    pub steps: Vec<Step>,
    pub fingerprint: Fingerprint,
    pub preview: Preview,
}

impl Changes {
    /// Plans `what` on `guest`. `permit` is the decision for the operation itself, not for the planning tool.
    ///
    /// # Errors
    /// See [`PlanRefusal`]; nothing was stored.
    pub async fn plan_on_guest(
        &self,
        app: &Arc<App>,
        snapshot: &Snapshot,
        (cluster, guest): (&Arc<Cluster>, &Guest),
        permit: Permit,
        what: &GuestOp,
        planner: Planner,
    ) -> Result<ChangeSet, PlanRefusal> {
        let config =
            guest.config.as_ref().ok_or_else(|| impossible("the guest's configuration could not be read"))?;
        // Two configurations without a digest would look the same.
        if config.digest.is_none() {
            return Err(impossible(
                "the cluster gave the guest's configuration without a digest, so nobody could tell whether it changes",
            ));
        }
        let id = fresh_id()?;
        let prepared = prepare::guest(app, cluster, guest, config, what, id).await?;
        let mut fingerprint =
            fingerprint::for_steps(&app.resolver, cluster, guest, config, &prepared.steps).await?;
        let walls = super::wall::of_guest(cluster, guest, &prepared.steps).await.map_err(impossible)?;
        fingerprint.fields.extend(walls);
        let preview = preview::guest(cluster, guest, config, &permit, snapshot.lab_mode, &prepared);
        let Prepared { steps, .. } = prepared;
        let draft = Draft {
            target: Target::new(&*cluster.name, format!("guest/{}", guest.vmid()), guest.label()),
            destructive: op::is_destructive(what.name(guest.facts.kind)),
            protected: permit.lift().is_some(),
            steps,
            fingerprint,
            preview,
        };
        self.store_plan(app, snapshot, id, draft, planner).await
    }

    /// Stores a plan and puts it on record.
    pub(super) async fn store_plan(
        &self,
        app: &Arc<App>,
        snapshot: &Snapshot,
        id: ChangeSetId,
        draft: Draft,
        planner: Planner,
    ) -> Result<ChangeSet, PlanRefusal> {
        self.thawed()?;
        quorum(snapshot, &draft.target.cluster).await?;
        let plan = Plan::new(PlanDraft {
            id,
            planner: planner.actor,
            target: draft.target,
            tier_destructive: draft.destructive,
            target_protected: draft.protected,
            steps: draft.steps,
            fingerprint: draft.fingerprint,
            preview: draft.preview,
            policy_version: snapshot.policy_version.clone(),
            lab_mode: snapshot.lab_mode,
            idempotency_key: planner.idempotency_key,
            created: app.clock.now(),
        })?;
        let set = ChangeSet::create(plan, &self.key);
        let limits = &snapshot.policy.limits;
        let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let limits = changeset::store::Limits {
            pending_per_planner: count(limits.pending_changes_per_planner),
            pending_total: count(limits.pending_changes),
        };
        let stored = set.clone();
        match self
            .store
            .with(move |store| store.insert(&stored, &limits))
            .await
            .map_err(ChangesError::from)?
            .map_err(ChangesError::from)?
        {
            Inserted::Stored => {}
            // A refusal and a repeat make no plan, so no record may say that one was made.
            Inserted::Existing(existing) => return Ok(*existing),
            Inserted::Refused(refusal) => return Err(refusal.into()),
        }
        // The call's attempt is on record already. This record says that a plan came of it, and nobody hears of the plan before.
        let audit = record(&set, Event::ChangePlan, &set.plan().planner().token, &planner.request_id)
            .allowed()
            .detail("state", set.state().to_string());
        if app.audit.append_durable(audit).await.is_err() {
            let by = set.plan().planner().clone();
            let withdrawn = set.cancel(&by, "the audit log could not be written", app.clock.now());
            if let Ok(withdrawn) = withdrawn {
                let expected = set.version();
                // If this fails too, the plan lapses by itself; applying needs the audit anyway.
                let _ = self.store.with(move |store| store.replace_if(&withdrawn, expected)).await;
            }
            return Err(PlanRefusal::Audit);
        }
        Ok(set)
    }
}

/// Refuses to plan on a cluster that says it has no quorum. One that does not say is asked by the change itself, and refuses that.
async fn quorum(snapshot: &Snapshot, cluster: &str) -> Result<(), PlanRefusal> {
    let Some(cluster) = snapshot.cluster(Some(cluster)) else { return Ok(()) };
    match cluster.client.cluster_status().await {
        Ok(status) if status.quorate == Field::Value(false) => {
            Err(PlanRefusal::NoQuorum(cluster.name.clone()))
        }
        _ => Ok(()),
    }
}

/// A name that nobody can guess.
pub(super) fn fresh_id() -> Result<ChangeSetId, PlanRefusal> {
    let mut entropy = [0_u8; 16];
    getrandom::fill(&mut entropy).map_err(|_| PlanRefusal::Entropy)?;
    Ok(ChangeSetId::from_entropy(entropy))
}

/// The name of a set's safety snapshot.
pub(super) fn safety_snapshot(id: ChangeSetId) -> String {
    let id = id.to_string();
    let random: String = id.chars().skip(3).take(12).collect();
    format!("pxw_{random}")
}

/// Fingerprint fields that a safety snapshot moves.
pub(super) fn moved_by_snapshot() -> BTreeSet<&'static str> {
    BTreeSet::from(["config_digest"])
}

pub(super) fn impossible(why: impl Into<String>) -> PlanRefusal {
    PlanRefusal::Impossible(why.into())
}
