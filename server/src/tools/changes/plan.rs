//! The tools that plan: they look, refuse what could never be, and write down what would happen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use authz::{Permit, Principal};
use changeset::ChangeSet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{actor, known_set, unknown_set};
use crate::catalog::{HandlerResult, Target};
use crate::changes::guest_config::Change;
use crate::changes::{self, GuestOp, PlanRefusal, Planner, op};
use crate::config::Cluster;
use crate::resolve::{Freshness, Guest, ResolveError};
use crate::stack::{CallContext, ToolFailure, record_lift};
use crate::tools::power::guest_of;

/// Arguments of `plan_proxmox_destroy`. Each operation takes some of them and refuses the rest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDestroyArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number; required for every operation but `delete_iso`.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: Option<u32>,
    /// The operation.
    pub op: PlannedOp,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// destroy_guest: also take the guest out of backup jobs, replication and HA.
    pub purge: Option<bool>,
    /// destroy_guest: also destroy disks of this number that its configuration does not name.
    pub destroy_unreferenced_disks: Option<bool>,
    /// delete_snapshot, rollback_snapshot: the snapshot.
    pub snapname: Option<String>,
    /// rollback_snapshot: start the guest afterwards.
    pub start: Option<bool>,
    /// rollback_snapshot, update_vm_config, update_container_config: take a snapshot first where the storage can; true when omitted.
    pub safety_snapshot: Option<bool>,
    /// delete_backup, restore_backup, delete_iso: the volume, as list_backups or list_isos name it.
    pub volid: Option<String>,
    /// restore_backup: the storage for the disks; where they were when omitted.
    pub storage: Option<String>,
    /// migrate: the node to move to.
    pub target_node: Option<String>,
    /// migrate: let a running virtual machine run on.
    pub online: Option<bool>,
    /// migrate: also copy disks on local storage of a running virtual machine.
    pub with_local_disks: Option<bool>,
    /// update_vm_config, update_container_config: PVE's keys and their new values, as text.
    pub set: Option<BTreeMap<String, String>>,
    /// update_vm_config, update_container_config: keys that go back to PVE's default.
    pub delete: Option<Vec<String>>,
    /// A key of your own: the same key with the same arguments answers the same change set.
    #[schemars(length(min = 1, max = 128))]
    pub idempotency_key: Option<String>,
}

/// What can be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PlannedOp {
    /// Destroys a guest and its disks.
    DestroyGuest,
    /// Deletes one snapshot.
    DeleteSnapshot,
    /// Puts a guest back to a snapshot.
    RollbackSnapshot,
    /// Deletes one backup of the guest.
    DeleteBackup,
    /// Deletes an ISO image, which belongs to no guest.
    DeleteIso,
    /// Replaces the guest by one of its backups.
    RestoreBackup,
    /// Moves the guest to another node.
    Migrate,
    /// Changes a virtual machine's configuration.
    UpdateVmConfig,
    /// Changes a container's configuration.
    UpdateContainerConfig,
}

impl PlannedOp {
    fn name(self) -> &'static str {
        match self {
            Self::DestroyGuest => op::DESTROY_GUEST,
            Self::DeleteSnapshot => op::DELETE_SNAPSHOT,
            Self::RollbackSnapshot => op::ROLLBACK_SNAPSHOT,
            Self::DeleteBackup => op::DELETE_BACKUP,
            Self::DeleteIso => op::DELETE_ISO,
            Self::RestoreBackup => op::RESTORE_BACKUP,
            Self::Migrate => op::MIGRATE,
            Self::UpdateVmConfig => op::UPDATE_VM_CONFIG,
            Self::UpdateContainerConfig => op::UPDATE_CONTAINER_CONFIG,
        }
    }

    /// The arguments of this operation alone.
    fn takes(self) -> &'static [&'static str] {
        match self {
            Self::DestroyGuest => &["purge", "destroy_unreferenced_disks"],
            Self::DeleteSnapshot => &["snapname"],
            Self::RollbackSnapshot => &["snapname", "start", "safety_snapshot"],
            Self::DeleteBackup | Self::DeleteIso => &["volid"],
            Self::RestoreBackup => &["volid", "storage"],
            Self::Migrate => &["target_node", "online", "with_local_disks"],
            Self::UpdateVmConfig | Self::UpdateContainerConfig => &["set", "delete", "safety_snapshot"],
        }
    }
}

impl PlanDestroyArgs {
    /// Refuses arguments of other operations: who gives them means something that will not happen.
    fn only_its_own(&self) -> Result<(), ToolFailure> {
        let given = [
            ("purge", self.purge.is_some()),
            ("destroy_unreferenced_disks", self.destroy_unreferenced_disks.is_some()),
            ("snapname", self.snapname.is_some()),
            ("start", self.start.is_some()),
            ("safety_snapshot", self.safety_snapshot.is_some()),
            ("volid", self.volid.is_some()),
            ("storage", self.storage.is_some()),
            ("target_node", self.target_node.is_some()),
            ("online", self.online.is_some()),
            ("with_local_disks", self.with_local_disks.is_some()),
            ("set", self.set.is_some()),
            ("delete", self.delete.is_some()),
        ];
        let foreign = given.iter().find(|(name, is_given)| *is_given && !self.op.takes().contains(name));
        match foreign {
            None => Ok(()),
            Some((name, _)) => Err(ToolFailure::new(
                "invalid_argument",
                format!(
                    "`{name}` is no argument of {}; it takes {}",
                    self.op.name(),
                    self.op.takes().join(", ")
                ),
            )
            .with("field", *name)),
        }
    }

    fn guest_op(self, guest: &Guest) -> Result<GuestOp, ToolFailure> {
        let safety = self.safety_snapshot.unwrap_or(true);
        Ok(match self.op {
            PlannedOp::DestroyGuest => GuestOp::Destroy {
                purge: self.purge.unwrap_or(false),
                destroy_unreferenced_disks: self.destroy_unreferenced_disks.unwrap_or(false),
            },
            PlannedOp::DeleteSnapshot => {
                GuestOp::DeleteSnapshot { snapname: needed("snapname", self.snapname)? }
            }
            PlannedOp::RollbackSnapshot => GuestOp::Rollback {
                snapname: needed("snapname", self.snapname)?,
                start: self.start.unwrap_or(false),
                safety,
            },
            PlannedOp::DeleteBackup => GuestOp::DeleteBackup { volid: needed("volid", self.volid)? },
            PlannedOp::RestoreBackup => GuestOp::Restore {
                volid: needed("volid", self.volid)?,
                storage: optional("storage", self.storage)?,
            },
            PlannedOp::Migrate => GuestOp::Migrate {
                target: needed("target_node", self.target_node)?,
                online: self.online.unwrap_or(false),
                with_local_disks: self.with_local_disks.unwrap_or(false),
            },
            PlannedOp::UpdateVmConfig | PlannedOp::UpdateContainerConfig => {
                let right = op::update_config(guest.facts.kind);
                if self.op.name() != right {
                    return Err(ToolFailure::new(
                        "wrong_guest_kind",
                        format!("guest {} is changed with {right}", guest.vmid()),
                    ));
                }
                let change = Change {
                    set: self.set.unwrap_or_default(),
                    delete: self.delete.unwrap_or_default().into_iter().collect::<BTreeSet<_>>(),
                };
                if change == Change::default() {
                    return Err(ToolFailure::new("invalid_argument", "name a key in `set` or `delete`"));
                }
                GuestOp::UpdateConfig { change, safety }
            }
            PlannedOp::DeleteIso => {
                return Err(ToolFailure::new(
                    "invalid_argument",
                    "an ISO image belongs to no guest; leave `vmid` out",
                ));
            }
        })
    }
}

fn needed<T>(name: &'static str, given: Option<String>) -> Result<T, ToolFailure>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    optional(name, given)?.ok_or_else(|| {
        ToolFailure::new("invalid_argument", format!("`{name}` is missing: this operation needs it"))
            .with("field", name)
    })
}

fn optional<T>(name: &'static str, given: Option<String>) -> Result<Option<T>, ToolFailure>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let parse = |text: String| {
        text.parse().map_err(|error| {
            ToolFailure::new("invalid_argument", format!("`{name}`: {error}")).with("field", name)
        })
    };
    given.map(parse).transpose()
}

/// Arguments of `plan_restore_new_vmid`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreNewArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest that the backup is of.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// The backup, as list_backups names it.
    pub volid: String,
    /// The number of the guest to be made.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub newid: u32,
    /// The storage for its disks; where they were when omitted.
    pub storage: Option<String>,
    /// Optional cross-check: refused unless the guest `vmid` is on this node.
    pub node: Option<String>,
    /// A key of your own: the same key with the same arguments answers the same change set.
    #[schemars(length(min = 1, max = 128))]
    pub idempotency_key: Option<String>,
}

/// Arguments of `plan_undo`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoArgs {
    /// The applied change set to take back.
    pub change_set_id: String,
    /// A key of your own: the same key with the same arguments answers the same change set.
    #[schemars(length(min = 1, max = 128))]
    pub idempotency_key: Option<String>,
}

/// `plan_proxmox_destroy`.
pub async fn plan_destroy(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    mut args: PlanDestroyArgs,
) -> HandlerResult {
    args.only_its_own()?;
    let idempotency_key = args.idempotency_key.take();
    match target {
        Target::Cluster(cluster) => plan_iso(ctx, cluster, args, idempotency_key).await,
        _ => {
            let (cluster, guest) = guest_of(target)?;
            let what = args.guest_op(guest)?;
            plan_on_guest(ctx, cluster, guest, &what, idempotency_key).await
        }
    }
}

/// `plan_restore_new_vmid`.
pub async fn plan_restore_new(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: RestoreNewArgs,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let invalid =
        |error: &dyn std::fmt::Display| ToolFailure::new("invalid_argument", format!("`newid`: {error}"));
    let newid = proxmox_api::Vmid::new(args.newid).map_err(|error| invalid(&error))?;
    let number = authz::Vmid::new(args.newid).ok_or_else(|| invalid(&"expected a guest's number"))?;
    let scope = op::scope(op::RESTORE_NEW_VMID, guest.facts.kind.as_str()).ok_or_else(no_scope)?;
    let now = ctx.now();
    let admitted = authz::admit(&ctx.caller.principal, scope, Some(&cluster.name), now)?;
    authz::decide_new_guest(admitted, &cluster.name, number, &cluster.protection, now)?;
    let what = GuestOp::RestoreNew {
        volid: needed("volid", Some(args.volid))?,
        newid,
        storage: optional("storage", args.storage)?,
    };
    plan_on_guest(ctx, cluster, guest, &what, args.idempotency_key).await
}

/// `plan_undo`.
pub async fn plan_undo(ctx: &CallContext, _permit: Permit, args: UndoArgs) -> HandlerResult {
    let set = known_set(ctx, &args.change_set_id, Principal::holds).await?;
    let what = reverse(&set)?;
    let vmid = changes::vmid(&set).ok_or_else(unknown_set)?;
    let caller = &ctx.caller;
    let cluster = caller.snapshot.cluster(Some(&set.plan().target().cluster)).ok_or_else(unknown_set)?;
    let guest = match ctx.app.resolver.guest(cluster, vmid, Freshness::Now, &caller.principal).await {
        Ok(guest) => guest,
        Err(ResolveError::Cluster(error)) => return Err(error.into()),
        Err(ResolveError::Absent | ResolveError::Ambiguous) => {
            return Err(authz::Denial::guest_unknown().into());
        }
    };
    plan_on_guest(ctx, cluster, &guest, &what, args.idempotency_key).await
}

/// What takes a set back.
fn reverse(set: &ChangeSet) -> Result<GuestOp, ToolFailure> {
    let no = |why: String| ToolFailure::new("not_reversible", why);
    if set.state() != changeset::State::Applied {
        return Err(no(format!(
            "{} is {}: only an applied change set can be taken back",
            set.id(),
            set.state()
        )));
    }
    let facts = &set.plan().preview().facts;
    let step = op::subject(set.plan().steps()).ok_or_else(unknown_set)?;
    match step.op.as_str() {
        op::UPDATE_VM_CONFIG | op::UPDATE_CONTAINER_CONFIG => {
            let was = |(name, value): (&String, &String)| {
                Some((name.strip_prefix("was.")?.to_owned(), value.clone()))
            };
            let before: BTreeMap<String, String> = facts.iter().filter_map(was).collect();
            Ok(GuestOp::UpdateConfig { change: Change::of_step(step).reverse(&before), safety: false })
        }
        op::ROLLBACK_SNAPSHOT => {
            let name = facts.get("undo.snapshot").ok_or_else(|| {
                no("no safety snapshot was taken before that rollback, so what was there is lost".to_owned())
            })?;
            Ok(GuestOp::Rollback {
                snapname: needed("snapname", Some(name.clone()))?,
                start: false,
                safety: false,
            })
        }
        op::MIGRATE => {
            let from = facts
                .get("undo.node")
                .ok_or_else(|| no("that plan does not say where the guest was".to_owned()))?;
            let on = |name: &str| step.params.get(name).is_some_and(|value| value == "1");
            Ok(GuestOp::Migrate {
                target: needed("target_node", Some(from.clone()))?,
                online: on("online"),
                with_local_disks: on("with-local-disks"),
            })
        }
        other => {
            Err(no(format!("{other} cannot be taken back; restore a backup instead, where there is one")))
        }
    }
}

pub(super) async fn plan_on_guest(
    ctx: &CallContext,
    cluster: &Arc<Cluster>,
    guest: &Guest,
    what: &GuestOp,
    idempotency_key: Option<String>,
) -> HandlerResult {
    let caller = &ctx.caller;
    let op = what.name(guest.facts.kind);
    // The planner needs what the operation needs: nothing is planned that its planner could not have meant to happen.
    let scope = op::scope(op, guest.facts.kind.as_str()).ok_or_else(no_scope)?;
    let now = ctx.now();
    let admitted = authz::admit(&caller.principal, scope, Some(&cluster.name), now)?;
    let overrides =
        authz::Overrides { waivers: &caller.snapshot.waivers, lab_mode: caller.snapshot.lab_mode };
    let name = caller.principal.name();
    let permit = authz::decide(admitted, &guest.facts, op, name, &cluster.protection, &overrides, now)?;
    record_lift(ctx, op, scope.tier, &permit).await?;
    let planned = ctx
        .app
        .changes
        .plan_on_guest(
            &ctx.app,
            &caller.snapshot,
            (cluster, guest),
            permit,
            what,
            planner(ctx, idempotency_key),
        )
        .await;
    answer(ctx, planned)
}

async fn plan_iso(
    ctx: &CallContext,
    cluster: &Arc<Cluster>,
    args: PlanDestroyArgs,
    idempotency_key: Option<String>,
) -> HandlerResult {
    let caller = &ctx.caller;
    if args.vmid.is_some() || args.node.is_some() {
        return Err(ToolFailure::new(
            "invalid_argument",
            "an ISO image belongs to no guest, and the server finds its node; leave `vmid` and `node` out",
        ));
    }
    let scope = op::scope(op::DELETE_ISO, "").ok_or_else(no_scope)?;
    let admitted = authz::admit(&caller.principal, scope, Some(&cluster.name), ctx.now())?;
    authz::permit_cluster_write(admitted, ctx.now())?;
    if !caller.principal.unrestricted_guests() {
        return Err(ToolFailure::new("authorization_failed", changes::NEEDS_ALL_GUESTS));
    }
    let volid = needed("volid", args.volid)?;
    let planned = ctx
        .app
        .changes
        .plan_delete_iso(&ctx.app, &caller.snapshot, cluster, &volid, planner(ctx, idempotency_key))
        .await;
    answer(ctx, planned)
}

pub(super) fn planner(ctx: &CallContext, idempotency_key: Option<String>) -> Planner {
    Planner { actor: actor(ctx), idempotency_key, request_id: ctx.caller.request_id.clone() }
}

pub(super) fn answer(ctx: &CallContext, planned: Result<ChangeSet, PlanRefusal>) -> HandlerResult {
    let set = planned.map_err(|refusal| match refusal {
        PlanRefusal::Cluster(error) => error.into(),
        other => ToolFailure::new(other.code(), other.to_string()),
    })?;
    ctx.trail.note(|facts| facts.change_set = Some(set.id().to_string()));
    Ok(changes::view(&set))
}

pub(super) fn no_scope() -> ToolFailure {
    ToolFailure::new("internal", "the operation has no scope")
}
