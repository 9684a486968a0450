//! The requests an apply makes of a cluster, and how their tasks are found and followed.
//!
//! This file holds the only code that sends a change set's request, and it can only be called with the coordinator's
//! [`DispatchPermit`].

use std::time::{Duration, Instant};

use changeset::{ChangeSet, DispatchPermit, Event, Lookup, SendResult, TaskEnd};
use proxmox_api::{DestroyOptions, Error, GuestKind, GuestRef, TaskExit, TaskFilter, Upid, Vmid};

use super::plan::DESTROY_GUEST;
use super::runner::vmid_of;
use crate::app::App;
use crate::config::Cluster;
use crate::resolve::Freshness;

/// First and longest pause between two readings of a task.
const FIRST_POLL: Duration = Duration::from_millis(150);
const LONGEST_POLL: Duration = Duration::from_secs(2);

/// Worker types an operation's request can start.
fn task_types(op: &str) -> &'static [&'static str] {
    match op {
        DESTROY_GUEST => &["qmdestroy", "vzdestroy"],
        _ => &[],
    }
}

/// The tasks of an operation's types on the guest that the node knows, whoever started them.
async fn known_tasks(
    cluster: &Cluster,
    node: &proxmox_api::NodeName,
    vmid: Vmid,
    op: &str,
) -> Result<Vec<Upid>, Error> {
    let filter = TaskFilter { vmid: Some(vmid), limit: 500, ..TaskFilter::default() };
    let tasks = cluster.client.tasks(node, &filter).await?.items;
    Ok(tasks.into_iter().map(|task| task.upid).filter(|upid| task_types(op).contains(&upid.kind())).collect())
}

pub(super) async fn watermark(app: &App, set: &ChangeSet, step: usize) -> Event {
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&set.plan().target().cluster)) else {
        return Event::Unavailable("the cluster is no longer configured".to_owned());
    };
    let (Some(vmid), Some(op)) = (vmid_of(set), set.plan().steps().get(step).map(|step| step.op.clone()))
    else {
        return Event::Unavailable("the change set names no guest".to_owned());
    };
    let inventory = match app.resolver.inventory(cluster, Freshness::Now).await {
        Ok(inventory) => inventory,
        Err(error) => return Event::Unavailable(error.to_string()),
    };
    let at = match inventory.guest(vmid) {
        proxmox_api::Lookup::Guest(entry) => entry.guest(),
        proxmox_api::Lookup::Absent => None,
        proxmox_api::Lookup::Contradiction(what) => return Event::Unavailable(what.to_string()),
    };
    let Some(at) = at else { return Event::Unavailable("the guest is no longer listed".to_owned()) };
    match known_tasks(cluster, &at.node, vmid, &op).await {
        Ok(tasks) => Event::Watermark {
            tasks: tasks.iter().map(ToString::to_string).collect(),
            node: at.node.to_string(),
        },
        Err(error) => Event::Unavailable(error.to_string()),
    }
}

/// Sends one step's one request. No retry, here or below.
pub(super) async fn send(app: &App, permit: DispatchPermit) -> SendResult {
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&permit.target().cluster)) else {
        return SendResult::Refused("the cluster is no longer configured".to_owned());
    };
    let request = match request_of(&permit) {
        Ok(request) => request,
        Err(why) => return SendResult::Refused(why),
    };
    let (at, answer) = match request {
        Request::Destroy(at, options) => (at.clone(), cluster.client.destroy(&at, options).await),
    };
    match answer {
        Ok(upid) if is_of(&upid, &at, &permit.step().op) => SendResult::Handle(upid.to_string()),
        // To follow somebody else's task would be to report its end as ours.
        Ok(upid) => SendResult::Unknown(format!("the cluster answered with another task: {upid}")),
        Err(error) => match error.effect() {
            proxmox_api::Effect::NotSent | proxmox_api::Effect::Refused => {
                SendResult::Refused(error.to_string())
            }
            proxmox_api::Effect::Unknown => SendResult::Unknown(error.to_string()),
        },
    }
}

/// Whether a task can be the one that an operation's request on this guest started.
fn is_of(upid: &Upid, at: &GuestRef, op: &str) -> bool {
    upid.node() == &at.node && upid.id() == at.vmid.to_string() && task_types(op).contains(&upid.kind())
}

enum Request {
    Destroy(GuestRef, DestroyOptions),
}

/// The request that was approved, built from what the permit carries and nothing else.
fn request_of(permit: &DispatchPermit) -> Result<Request, String> {
    let step = permit.step();
    let param = |name: &str| {
        step.params.get(name).map(String::as_str).ok_or_else(|| format!("the plan lacks {name}"))
    };
    match step.op.as_str() {
        DESTROY_GUEST => {
            let at = GuestRef {
                node: permit
                    .node()
                    .parse()
                    .map_err(|error| format!("the intent's node is unusable: {error}"))?,
                kind: match param("kind")? {
                    "qemu" => GuestKind::Qemu,
                    "lxc" => GuestKind::Lxc,
                    _ => return Err("the plan names an unknown kind of guest".to_owned()),
                },
                vmid: param("vmid")?
                    .parse()
                    .map_err(|error| format!("the plan's vmid is unusable: {error}"))?,
            };
            let options = DestroyOptions {
                purge: param("purge")? == "1",
                destroy_unreferenced_disks: param("destroy-unreferenced-disks")? == "1",
            };
            Ok(Request::Destroy(at, options))
        }
        op => Err(format!("this server cannot do {op}")),
    }
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

/// Looks for the task of a request that may have arrived, once the settling time is over.
pub(super) async fn find(app: &App, lookup: &Lookup) -> Event {
    let wait = lookup.not_before.duration_since(app.clock.now());
    if let Ok(wait) = Duration::try_from(wait) {
        tokio::time::sleep(wait).await;
    }
    let snapshot = app.live.load();
    let Some(cluster) = snapshot.cluster(Some(&lookup.target.cluster)) else {
        return Event::Unavailable("the cluster is no longer configured".to_owned());
    };
    let vmid = lookup.target.key.strip_prefix("guest/").and_then(|vmid| vmid.parse::<Vmid>().ok());
    let (Some(vmid), Ok(node)) = (vmid, lookup.node.parse()) else {
        return Event::Unavailable("the recorded target is unreadable".to_owned());
    };
    match known_tasks(cluster, &node, vmid, &lookup.op).await {
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
