//! The requests an apply makes of a cluster, and how their tasks are found and followed.
//!
//! This file holds the only code that sends a change set's request, and it can only be called with the coordinator's
//! [`DispatchPermit`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use changeset::{ChangeSet, DispatchPermit, Event, Lookup, SendResult, Step, TaskEnd};
use proxmox_api::{
    DestroyOptions, Error, GuestKind, GuestRef, MigrateOptions, NewSnapshot, NodeName, RestoreOptions,
    SnapName, TaskExit, TaskFilter, Upid, Vmid, Volid,
};

use super::guest_config::{self, Change};
use super::plan::safety_snapshot;
use super::runner::vmid_of;
use super::{ha_rule, op, wall};
use crate::app::App;
use crate::config::Cluster;
use crate::resolve::Freshness;

/// First and longest pause between two readings of a task.
const FIRST_POLL: Duration = Duration::from_millis(150);
const LONGEST_POLL: Duration = Duration::from_secs(2);
/// Where a request goes that no node answers for.
pub(super) const NO_NODE: &str = "cluster";

/// The tasks on a node that a step's request could have started, whoever started them.
async fn known_tasks(cluster: &Cluster, node: &NodeName, step: &Step) -> Result<Vec<Upid>, Error> {
    // PVE filters by a number that stands alone; a volume's task is named otherwise.
    let named = match step.op.as_str() {
        op::DELETE_BACKUP | op::DELETE_ISO => None,
        op::RESTORE_NEW_VMID => step.params.get("newid"),
        _ => step.params.get("vmid"),
    };
    let vmid = named.and_then(|vmid| vmid.parse::<Vmid>().ok());
    let filter = TaskFilter { vmid, limit: 500, ..TaskFilter::default() };
    let tasks = cluster.client.tasks(node, &filter).await?.items;
    Ok(tasks.into_iter().map(|task| task.upid).filter(|upid| op::is_task_of(upid, step)).collect())
}

pub(super) async fn watermark(app: &App, set: &ChangeSet, step: usize) -> Event {
    let unavailable = |why: &str| Event::Unavailable(why.to_owned());
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&set.plan().target().cluster)) else {
        return unavailable("the cluster is no longer configured");
    };
    let Some(step) = set.plan().steps().get(step) else {
        return unavailable("the change set has no such step");
    };
    let node = match node_of(app, cluster, set, step).await {
        Ok(node) => node,
        Err(why) => return Event::Unavailable(why),
    };
    let Some(node) = node else { return Event::Watermark { tasks: Vec::new(), node: NO_NODE.to_owned() } };
    if op::is_synchronous(&step.op) {
        return Event::Watermark { tasks: Vec::new(), node: node.to_string() };
    }
    match known_tasks(cluster, &node, step).await {
        Ok(tasks) => Event::Watermark {
            tasks: tasks.iter().map(ToString::to_string).collect(),
            node: node.to_string(),
        },
        Err(error) => Event::Unavailable(error.to_string()),
    }
}

/// Where a step's request goes: the node that was planned, where one was, else the guest's own as of now. `None`: the cluster
/// itself answers.
async fn node_of(
    app: &App,
    cluster: &Arc<Cluster>,
    set: &ChangeSet,
    step: &Step,
) -> Result<Option<NodeName>, String> {
    if let Some(node) = step.params.get("node") {
        return node.parse().map(Some).map_err(|error| format!("the plan's node is unusable: {error}"));
    }
    let Some(vmid) = vmid_of(set) else { return Ok(None) };
    let rows = app.resolver.resources(cluster, Freshness::Now).await.map_err(|error| error.to_string())?;
    let at = rows.iter().filter_map(proxmox_api::Resource::guest).find(|at| at.vmid == vmid);
    at.map(|at| Some(at.node)).ok_or_else(|| "the guest is no longer listed".to_owned())
}

/// Sends one step's one request. No retry, here or below.
pub(super) async fn send(app: &App, permit: DispatchPermit) -> SendResult {
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&permit.target().cluster)) else {
        return SendResult::Refused("the cluster is no longer configured".to_owned());
    };
    let digest = |field: &str| permit.fingerprint().fields.get(field).cloned().unwrap_or_default();
    if wall::is_firewall(&permit.step().op) {
        return wall::send(cluster, permit.step(), permit.node(), &digest("firewall_digest")).await;
    }
    if ha_rule::is_ha(&permit.step().op) {
        return ha_rule::send(cluster, permit.step(), &digest("ha_digest")).await;
    }
    let request = match request_of(&permit) {
        Ok(request) => request,
        Err(why) => return SendResult::Refused(why),
    };
    let client = &cluster.client;
    let answer = match request {
        Request::Destroy(at, options) => client.destroy(&at, options).await,
        Request::Snapshot(at, name, new) => client.create_snapshot(&at, &name, &new).await,
        Request::DeleteSnapshot(at, name) => client.delete_snapshot(&at, &name, false).await,
        Request::Rollback(at, name, start) => client.rollback_snapshot(&at, &name, start).await,
        Request::DeleteVolume(node, volid) => client.delete_volume(&node, &volid).await,
        Request::Restore(at, volid, options) => client.restore(&at, &volid, &options).await,
        Request::Migrate(at, target, options) => client.migrate(&at, &target, &options).await,
        Request::Configure(at, change) => return configure(cluster, &at, &change, &permit).await,
    };
    match answer {
        Ok(upid) if upid.node().as_str() == permit.node() && op::is_task_of(&upid, permit.step()) => {
            SendResult::Handle(upid.to_string())
        }
        // To follow somebody else's task would be to report its end as ours.
        Ok(upid) => SendResult::Unknown(format!("the cluster answered with another task: {upid}")),
        Err(error) => failed(&error),
    }
}

pub(super) fn failed(error: &Error) -> SendResult {
    match error.effect() {
        proxmox_api::Effect::NotSent | proxmox_api::Effect::Refused => SendResult::Refused(error.to_string()),
        proxmox_api::Effect::Unknown => SendResult::Unknown(error.to_string()),
    }
}

/// Changes a configuration that is still the one that was approved; PVE compares the digest once more.
async fn configure(cluster: &Cluster, at: &GuestRef, change: &Change, permit: &DispatchPermit) -> SendResult {
    let now = match cluster.client.guest_config(at).await {
        Ok(config) => config,
        Err(error) => return SendResult::Refused(format!("the configuration could not be read: {error}")),
    };
    let approved = permit.fingerprint().fields.get("config");
    let Some(digest) = now.digest.clone().filter(|_| approved == Some(&guest_config::digest(&now))) else {
        return SendResult::Refused("the configuration is not the one that was approved".to_owned());
    };
    match cluster.client.update_config(at, &change.update().digest(digest)).await {
        Ok(()) => SendResult::Synchronous,
        Err(error) => failed(&error),
    }
}

enum Request {
    Destroy(GuestRef, DestroyOptions),
    Snapshot(GuestRef, SnapName, NewSnapshot),
    DeleteSnapshot(GuestRef, SnapName),
    Rollback(GuestRef, SnapName, bool),
    DeleteVolume(NodeName, Volid),
    Restore(GuestRef, Volid, RestoreOptions),
    Migrate(GuestRef, NodeName, MigrateOptions),
    Configure(GuestRef, Change),
}

/// The request that was approved, built from what the permit carries and nothing else.
fn request_of(permit: &DispatchPermit) -> Result<Request, String> {
    let step = permit.step();
    let node: NodeName =
        permit.node().parse().map_err(|error| format!("the intent's node is unusable: {error}"))?;
    let at = |number: &str| -> Result<GuestRef, String> {
        let kind = match param(step, "kind")? {
            "qemu" => GuestKind::Qemu,
            "lxc" => GuestKind::Lxc,
            _ => return Err("the plan names an unknown kind of guest".to_owned()),
        };
        Ok(GuestRef { node: node.clone(), kind, vmid: parsed(step, number)? })
    };
    let storage = || step.params.contains_key("storage").then(|| parsed(step, "storage")).transpose();
    Ok(match step.op.as_str() {
        op::DESTROY_GUEST => {
            let options = DestroyOptions {
                purge: param(step, "purge")? == "1",
                destroy_unreferenced_disks: param(step, "destroy-unreferenced-disks")? == "1",
            };
            Request::Destroy(at("vmid")?, options)
        }
        op::CREATE_SNAPSHOT => {
            let name = safety_snapshot(permit.set());
            let name =
                name.parse().map_err(|error| format!("the safety snapshot's name is unusable: {error}"))?;
            let description = Some(format!("before change set {}", permit.set()));
            Request::Snapshot(at("vmid")?, name, NewSnapshot { description, vmstate: false })
        }
        op::DELETE_SNAPSHOT => Request::DeleteSnapshot(at("vmid")?, parsed(step, "snapname")?),
        op::ROLLBACK_SNAPSHOT => {
            Request::Rollback(at("vmid")?, parsed(step, "snapname")?, param(step, "start")? == "1")
        }
        op::DELETE_BACKUP | op::DELETE_ISO => Request::DeleteVolume(node, parsed(step, "volid")?),
        op::RESTORE_BACKUP => {
            let options = RestoreOptions { storage: storage()?, force: true, ..RestoreOptions::default() };
            Request::Restore(at("vmid")?, parsed(step, "volid")?, options)
        }
        op::RESTORE_NEW_VMID => {
            let options = RestoreOptions { storage: storage()?, unique: true, ..RestoreOptions::default() };
            Request::Restore(at("newid")?, parsed(step, "volid")?, options)
        }
        op::MIGRATE => {
            let options = MigrateOptions {
                online: param(step, "online")? == "1",
                with_local_disks: param(step, "with-local-disks")? == "1",
                ..MigrateOptions::default()
            };
            Request::Migrate(at("vmid")?, parsed(step, "target")?, options)
        }
        op::UPDATE_VM_CONFIG | op::UPDATE_CONTAINER_CONFIG => {
            Request::Configure(at("vmid")?, Change::of_step(step))
        }
        op => return Err(format!("this server cannot do {op}")),
    })
}

fn param<'s>(step: &'s Step, name: &str) -> Result<&'s str, String> {
    step.params.get(name).map(String::as_str).ok_or_else(|| format!("the plan lacks {name}"))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(step: &Step, name: &str) -> Result<T, String> {
    param(step, name)?.parse().map_err(|error| format!("the plan's {name} is unusable: {error}"))
}

/// Reads a task until it ends. A cluster that does not answer, or does not say how the task ended, is waited for; only after
/// `give_up` without an answer is the task given up as lost.
pub(super) async fn follow(app: &App, cluster: &str, handle: &str, give_up: Duration) -> TaskEnd {
    let Ok(upid) = handle.parse::<Upid>() else {
        return TaskEnd::Lost("the recorded task id is unreadable".to_owned());
    };
    let mut pause = FIRST_POLL;
    let mut answered = Instant::now();
    loop {
        let problem = match app.live.load().cluster(Some(cluster)) {
            None => "the cluster is no longer configured".to_owned(),
            Some(cluster) => match cluster.client.task_status(&upid).await.map(|status| status.exit) {
                Ok(None) => {
                    answered = Instant::now();
                    String::new()
                }
                Ok(Some(TaskExit::Unstated(text))) => text,
                Ok(Some(exit)) => return TaskEnd::from_exit_status(&exit.to_string()),
                Err(error) => error.to_string(),
            },
        };
        if answered.elapsed() > give_up {
            return TaskEnd::Lost(problem);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_POLL);
    }
}

/// Looks for the task of a request that may have arrived, once the settling time is over; for an operation without a task, at what
/// it would have changed.
pub(super) async fn find(app: &App, set: &ChangeSet, lookup: &Lookup) -> Event {
    let wait = lookup.not_before.duration_since(app.clock.now());
    if let Ok(wait) = Duration::try_from(wait) {
        tokio::time::sleep(wait).await;
    }
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&lookup.target.cluster)) else {
        return Event::Unavailable("the cluster is no longer configured".to_owned());
    };
    let Some(step) = set.plan().steps().get(lookup.step) else {
        return Event::Unavailable("the recorded step is not in the plan".to_owned());
    };
    if op::is_synchronous(&step.op) {
        return match observe(cluster, step, &lookup.node).await {
            Ok(as_asked) => Event::Observed { as_asked },
            Err(why) => Event::Unavailable(why),
        };
    }
    let Ok(node) = lookup.node.parse() else {
        return Event::Unavailable("the recorded node is unreadable".to_owned());
    };
    match known_tasks(cluster, &node, step).await {
        Ok(tasks) => Event::Found(
            tasks
                .into_iter()
                .filter(|upid| upid.user() == cluster.client.token_id())
                .map(|upid| upid.to_string())
                .collect(),
        ),
        Err(error) => Event::Unavailable(error.to_string()),
    }
}

/// Whether what a step changes is exactly as the step makes it.
async fn observe(cluster: &Cluster, step: &Step, node: &str) -> Result<bool, String> {
    if wall::is_firewall(&step.op) {
        return wall::observe(cluster, step, node).await;
    }
    if ha_rule::is_ha(&step.op) {
        return ha_rule::observe(cluster, step).await;
    }
    let node = node.parse().map_err(|error| format!("the recorded node is unusable: {error}"))?;
    let kind = if param(step, "kind")? == "qemu" { GuestKind::Qemu } else { GuestKind::Lxc };
    let at = GuestRef { node, kind, vmid: parsed(step, "vmid")? };
    let config = cluster.client.guest_config(&at).await.map_err(|error| error.to_string())?;
    Ok(Change::of_step(step).is_in(&config))
}
