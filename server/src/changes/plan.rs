//! Planning: refuse what could never be applied, look at everything, write down what would happen.

use std::sync::Arc;

use authz::Permit;
use changeset::store::{AdmissionRefusal, Inserted};
use changeset::{Actor, ChangeSet, ChangeSetId, Plan, PlanDraft, Step, Target};

use super::preview::{self, DestroyOptions, Extras};
use super::runner::{op_scope, record};
use super::{Changes, ChangesError, fingerprint};
use crate::app::App;
use crate::audit::Event;
use crate::config::{Cluster, Snapshot};
use crate::resolve::Guest;

/// The one destructive operation on a whole guest.
pub const DESTROY_GUEST: &str = "destroy_guest";

/// A plan to destroy one guest.
#[derive(Debug)]
pub struct PlanRequest {
    /// Who plans.
    pub planner: Actor,
    /// Also leave backup jobs, replication and HA.
    pub purge: bool,
    /// Also destroy disks of this number that the configuration does not name.
    pub destroy_unreferenced_disks: bool,
    /// The planner's key for the same request again.
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
            Self::Store(_) => "state_store",
            Self::Entropy => "internal",
            Self::Audit => "audit_unavailable",
        }
    }
}

impl Changes {
    /// Plans destroying `guest`. `permit` is the decision for the operation itself, not for the planning tool.
    ///
    /// # Errors
    /// See [`PlanRefusal`]; nothing was stored.
    pub async fn plan_destroy(
        &self,
        app: &Arc<App>,
        snapshot: &Snapshot,
        cluster: &Arc<Cluster>,
        guest: &Guest,
        permit: Permit,
        request: PlanRequest,
    ) -> Result<ChangeSet, PlanRefusal> {
        let config =
            guest.config.as_ref().ok_or_else(|| impossible("the guest's configuration could not be read"))?;
        if guest.running() {
            return Err(impossible("the guest is running; stop it first, then plan again"));
        }
        if let Some(lock) = config.lock() {
            return Err(impossible(&format!(
                "the guest is locked ({lock}); wait for the task that holds it"
            )));
        }
        if config.protection().value() == Some(&true) {
            return Err(impossible(
                "PVE's own protection flag is set on the guest; PVE refuses to destroy it until an administrator clears it",
            ));
        }
        let extras = extras(cluster, guest).await?;
        let options = DestroyOptions {
            purge: request.purge,
            destroy_unreferenced_disks: request.destroy_unreferenced_disks,
        };
        if let (Some(ha), false) = (&extras.ha, request.purge) {
            return Err(impossible(&format!(
                "the guest is managed by HA ({ha}); plan with `purge` to take it out of HA as well"
            )));
        }
        let preview = preview::destroy(cluster, guest, config, &extras, options, &permit, snapshot.lab_mode);
        let fingerprint = fingerprint::of(&app.resolver, cluster, guest, config).await?;
        let mut entropy = [0_u8; 16];
        getrandom::fill(&mut entropy).map_err(|_| PlanRefusal::Entropy)?;
        let kind = guest.facts.kind.as_str();
        let flag = |on: bool| if on { "1" } else { "0" };
        let step = Step::new(
            DESTROY_GUEST,
            [
                ("kind", kind),
                ("vmid", &guest.vmid().to_string()),
                ("purge", flag(options.purge)),
                ("destroy-unreferenced-disks", flag(options.destroy_unreferenced_disks)),
            ],
            format!("destroy {kind} guest {}", guest.vmid()),
        );
        let plan = Plan::new(PlanDraft {
            id: ChangeSetId::from_entropy(entropy),
            planner: request.planner,
            target: Target::new(&*cluster.name, format!("guest/{}", guest.vmid()), guest.label()),
            tier_destructive: true,
            target_protected: permit.lift().is_some(),
            steps: vec![step],
            fingerprint,
            preview,
            policy_version: snapshot.policy_version.clone(),
            lab_mode: snapshot.lab_mode,
            idempotency_key: request.idempotency_key,
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
        // The record comes first: a plan that nobody can trace back must not exist.
        let audit = record(&set, Event::ChangePlan, &set.plan().planner().token, &request.request_id)
            .allowed()
            .detail("state", set.state().to_string());
        app.audit.append_durable(audit).await.map_err(|_| PlanRefusal::Audit)?;
        match self
            .store
            .with(move |store| store.insert(&stored, &limits))
            .await
            .map_err(ChangesError::from)?
            .map_err(ChangesError::from)?
        {
            Inserted::Stored => Ok(set),
            Inserted::Existing(existing) => Ok(*existing),
            Inserted::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// The scope that unlocks destroying a guest of this kind.
    pub fn destroy_scope(kind: authz::GuestKind) -> Option<&'static authz::ToolRule> {
        op_scope(DESTROY_GUEST, kind.as_str())
    }
}

async fn extras(cluster: &Cluster, guest: &Guest) -> Result<Extras, proxmox_api::Error> {
    let listed = cluster.client.snapshots(&guest.at).await?;
    let mut snapshots: Vec<(String, Option<jiff::Timestamp>)> = listed
        .items
        .iter()
        .map(|snapshot| {
            let at = snapshot
                .snaptime
                .and_then(|at| i64::try_from(at).ok())
                .and_then(|at| jiff::Timestamp::from_second(at).ok());
            (snapshot.name.clone(), at)
        })
        .collect();
    snapshots.sort_by_key(|(_, at)| *at);
    let ha = cluster
        .client
        .ha_resources()
        .await?
        .items
        .into_iter()
        .find(|resource| resource.vmid == guest.at.vmid && resource.state.as_deref() != Some("ignored"))
        .map(|resource| {
            format!("{}, {}", resource.sid, resource.state.as_deref().unwrap_or("state unknown"))
        });
    Ok(Extras { snapshots, ha })
}

fn impossible(why: &str) -> PlanRefusal {
    PlanRefusal::Impossible(why.to_owned())
}
