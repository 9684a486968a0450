//! Every method of the client against the simulated clusters of `lab`, whose answers follow PVE 9.2.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod agent;
mod changes;
mod firewall;
mod lifecycle;
mod surface;

use std::time::Duration;

use lab::{Action, Fault, HaConfig, Lab, LabCluster, LabConfig};
use proxmox_api::{
    ApiToken, Client, ContentFilter, DestroyOptions, DiskSource, Effect, Endpoint, ErrorKind, Field,
    GuestKind, GuestRef, ResourceKind, RunState, TaskExit, TaskFilter, TaskSource, Timeouts, Trust, Upid,
    WaitPolicy, Waited,
};

struct Setup {
    alpha: LabCluster,
    client: Client,
    _lab: Lab,
}

async fn setup() -> Setup {
    let mut config = LabConfig::two_clusters().unwrap();
    let alpha = config.clusters.get_mut("alpha").unwrap();
    alpha.ha.push(HaConfig::new("ct:202", "started"));
    let lab = Lab::start(config).await.unwrap();
    let alpha = lab.cluster("alpha");
    let client = client(&alpha, alpha.token_id());
    Setup { alpha, client, _lab: lab }
}

fn client(cluster: &LabCluster, token_id: &str) -> Client {
    let secret = cluster.secret_of(token_id).unwrap();
    client_with(cluster, ApiToken::new(token_id, secret.into()).unwrap())
}

fn client_with(cluster: &LabCluster, token: ApiToken) -> Client {
    Client::builder()
        .endpoint(Endpoint::parse(&cluster.endpoint()).unwrap())
        .token(token)
        .trust(Trust::Ca(cluster.ca_pem().to_owned()))
        .build()
        .unwrap()
}

fn guest(node: &str, kind: GuestKind, vmid: u32) -> GuestRef {
    GuestRef { node: node.parse().unwrap(), kind, vmid: vmid.try_into().unwrap() }
}

impl Setup {
    async fn finish(&self, upid: &Upid) -> TaskExit {
        let policy = WaitPolicy {
            first: Duration::from_millis(2),
            longest: Duration::from_millis(20),
            deadline: Duration::from_secs(60),
        };
        match self.client.wait_task(upid, &policy).await.unwrap() {
            Waited::Ended(exit) => exit,
            Waited::StillRunning => TaskExit::Failed("the task did not end".to_owned()),
        }
    }
}

#[tokio::test]
async fn the_cluster_and_its_nodes() {
    let Setup { client, .. } = &setup().await;
    let version = client.version().await.unwrap();
    assert_eq!(version.numbers().unwrap().0, 9);

    let status = client.cluster_status().await.unwrap();
    assert_eq!((status.quorate, status.skipped), (Field::Value(true), 0));
    let online: Vec<(&str, Field<bool>)> =
        status.nodes.iter().map(|node| (node.name.as_str(), node.online)).collect();
    assert!(online.contains(&("pve1", Field::Value(true))), "{online:?}");
    assert!(online.contains(&("pve3", Field::Value(false))), "{online:?}");

    let nodes = client.nodes().await.unwrap();
    assert_eq!((nodes.len(), nodes.skipped), (3, 0));
    for node in &nodes {
        assert_eq!(node.is_online(), node.name.as_str() != "pve3");
        assert_eq!(node.maxmem.is_some(), node.is_online(), "an offline node tells nothing: {node:?}");
    }
}

#[tokio::test]
async fn a_single_host_has_no_quorum_to_lose() {
    let lab = Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap();
    let beta = lab.cluster("beta");
    let status = client(&beta, beta.token_id()).cluster_status().await.unwrap();
    assert_eq!((status.name, status.quorate, status.nodes.len()), (None, Field::Absent, 1));
}

#[tokio::test]
async fn guests_come_with_their_address() {
    let Setup { client, .. } = &setup().await;
    let guests = client.guests().await.unwrap();
    assert_eq!(guests.skipped, 0);
    let find =
        |vmid: u32| guests.iter().find(|guest| guest.vmid.is_some_and(|found| found.get() == vmid)).unwrap();
    let web = find(100);
    assert_eq!(web.guest(), Some(guest("pve1", GuestKind::Qemu, 100)));
    assert_eq!((web.name.as_deref(), web.status.as_deref()), (Some("web"), Some("running")));
    assert_eq!(web.tags.value().unwrap().to_string(), "prod;web");
    assert_eq!(web.pool, Field::Value("production".to_owned()));
    assert_eq!(find(110).template, Field::Value(true));
    assert_eq!(find(102).lock.as_deref(), Some("backup"));
    assert_eq!(find(200).kind, ResourceKind::Lxc);
    // The node of this one is down: its address is known, its state is not.
    let far = find(130);
    assert_eq!(far.guest(), Some(guest("pve3", GuestKind::Qemu, 130)));
    assert_eq!(far.status.as_deref(), Some("unknown"));

    let all = client.resources().await.unwrap();
    assert_eq!(all.skipped, 0);
    let count = |kind: &ResourceKind| all.iter().filter(|entry| &entry.kind == kind).count();
    assert_eq!(count(&ResourceKind::Qemu) + count(&ResourceKind::Lxc), guests.len());
    assert_eq!(count(&ResourceKind::Node), 3);
    assert!(count(&ResourceKind::Storage) > 0 && count(&ResourceKind::Pool) > 0);
}

#[tokio::test]
async fn the_configuration_of_both_kinds() {
    let Setup { client, alpha, .. } = &setup().await;
    let web = guest("pve1", GuestKind::Qemu, 100);
    let config = client.guest_config(&web).await.unwrap();
    assert_eq!(config.name(), Some("web"));
    assert!(config.digest.is_some() && config.unreadable.is_empty());
    assert_eq!(config.protection(), Field::Absent);
    assert_eq!(config.disks()[0].source, DiskSource::Volume("local-lvm:vm-100-disk-0".parse().unwrap()));
    assert_eq!(config.nets()[0].mac.as_deref(), Some("BC:24:11:0A:00:01"));

    alpha.set_protection(100, true).unwrap();
    alpha.set_tags(100, &["late"]).unwrap();
    let changed = client.guest_config(&web).await.unwrap();
    assert_eq!(changed.protection(), Field::Value(true));
    assert!(changed.tags().value().unwrap().contains("late"));
    assert_ne!(changed.digest, config.digest);

    let files = client.guest_config(&guest("pve1", GuestKind::Lxc, 200)).await.unwrap();
    assert_eq!(files.name(), Some("files"));
    assert_eq!(files.disks().first().unwrap().slot, "rootfs");
    assert!(files.nets()[0].mac.is_some());

    let locked = client.guest_config(&guest("pve1", GuestKind::Qemu, 102)).await.unwrap();
    assert_eq!(locked.lock(), Some("backup"));
    let template = client.guest_config(&guest("pve2", GuestKind::Qemu, 110)).await.unwrap();
    assert_eq!(template.template(), Field::Value(true));
}

#[tokio::test]
async fn the_state_and_the_snapshots_of_a_guest() {
    let Setup { client, .. } = &setup().await;
    let web = guest("pve1", GuestKind::Qemu, 100);
    let status = client.guest_status(&web).await.unwrap();
    assert_eq!((status.state, status.name.as_deref()), (RunState::Running, Some("web")));
    assert_eq!(status.ha_managed.or_default(false), Some(false));
    let worker = client.guest_status(&guest("pve2", GuestKind::Lxc, 202)).await.unwrap();
    assert_eq!(worker.ha_managed, Field::Value(true));
    let scratch = client.guest_status(&guest("pve2", GuestKind::Qemu, 104)).await.unwrap();
    assert_eq!(scratch.state, RunState::Stopped);

    let snapshots = client.snapshots(&web).await.unwrap();
    let names: Vec<&str> = snapshots.items.iter().map(|snapshot| snapshot.name.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&"clean") && names.contains(&"before-update"), "{names:?}");
    assert_eq!(snapshots.current_parent.as_deref(), Some("before-update"));
    assert_eq!(snapshots.digest, client.guest_config(&web).await.unwrap().digest);
    let none = client.snapshots(&guest("pve2", GuestKind::Qemu, 104)).await.unwrap();
    assert!(none.items.is_empty() && none.current_parent.is_none());
}

#[tokio::test]
async fn storages_and_what_is_on_them() {
    let Setup { client, .. } = &setup().await;
    let node = "pve1".parse().unwrap();
    let storages = client.storages(&node).await.unwrap();
    let backup = storages.iter().find(|storage| storage.storage.as_str() == "backup").unwrap();
    assert_eq!((backup.active, backup.shared), (Field::Value(true), Field::Value(true)));
    assert_eq!(backup.content, ["backup"]);
    assert!(backup.total.unwrap() > backup.used.unwrap());

    let filter = ContentFilter { content: Some("backup".to_owned()), vmid: Some(100.try_into().unwrap()) };
    let items = client.storage_content(&node, &backup.storage, &filter).await.unwrap();
    assert_eq!(items.skipped, 0);
    assert!(!items.is_empty());
    for item in &items {
        assert_eq!(item.vmid.map(|vmid| vmid.get()), Some(100));
        assert_eq!(item.subtype.as_deref(), Some("qemu"));
        assert_eq!(item.volid.storage(), &backup.storage);
        assert!(item.size.is_some() && item.ctime.is_some());
    }
    let local = "local".parse().unwrap();
    let isos = client.storage_content(&node, &local, &ContentFilter::default()).await.unwrap();
    assert!(isos.iter().any(|item| item.content.as_deref() == Some("iso")));
}

#[tokio::test]
async fn guests_under_ha() {
    let Setup { client, .. } = &setup().await;
    let managed = client.ha_resources().await.unwrap();
    assert_eq!(managed.skipped, 0);
    let worker = managed.iter().find(|resource| resource.vmid.get() == 202).unwrap();
    assert_eq!((worker.kind, worker.sid.as_str()), (GuestKind::Lxc, "ct:202"));
    assert_eq!(worker.state.as_deref(), Some("started"));
}

#[tokio::test]
async fn start_and_stop_are_tasks_that_can_be_followed() {
    let setup = setup().await;
    let Setup { client, alpha, .. } = &setup;
    let scratch = guest("pve2", GuestKind::Qemu, 104);

    alpha.hold_tasks(true);
    let upid = client.start(&scratch).await.unwrap();
    assert_eq!((upid.kind(), upid.guest(), upid.node()), ("qmstart", Some(scratch.vmid), &scratch.node));
    assert_eq!(upid.user(), client.token_id());
    assert!(client.task_status(&upid).await.unwrap().running);
    let filter = TaskFilter { vmid: Some(scratch.vmid), ..TaskFilter::default() };
    let running = client.tasks(&scratch.node, &filter).await.unwrap();
    let listed = running.iter().find(|task| task.upid == upid).unwrap();
    assert_eq!((&listed.exit, running.skipped), (&None, 0));
    let archive = TaskFilter { source: TaskSource::Archive, ..filter.clone() };
    assert!(!client.tasks(&scratch.node, &archive).await.unwrap().iter().any(|task| task.upid == upid));
    alpha.hold_tasks(false);

    assert_eq!(setup.finish(&upid).await, TaskExit::Ok);
    assert_eq!(alpha.guest_running(104), Some(true));
    let log = client.task_log(&upid, 0, 50).await.unwrap();
    assert_eq!(log.items.last().unwrap().t, "TASK OK");
    assert_eq!(log.skipped, 0);
    let ended = client.tasks(&scratch.node, &filter).await.unwrap();
    let listed = ended.iter().find(|task| task.upid == upid).unwrap();
    assert_eq!(listed.exit, Some(TaskExit::Ok));

    let upid = client.stop(&scratch).await.unwrap();
    assert_eq!(upid.kind(), "qmstop");
    assert_eq!(setup.finish(&upid).await, TaskExit::Ok);
    assert_eq!(alpha.guest_running(104), Some(false));
}

#[tokio::test]
async fn cs_30_warnings_and_failures_of_a_task_arrive() {
    let setup = setup().await;
    let Setup { client, alpha, .. } = &setup;
    let scratch = guest("pve2", GuestKind::Qemu, 104);
    alpha.next_task_exit(lab::TaskExit::Warnings(2));
    let upid = client.start(&scratch).await.unwrap();
    assert_eq!(setup.finish(&upid).await, TaskExit::Warnings(2));
    alpha.next_task_exit(lab::TaskExit::Failed("unexpected status".to_owned()));
    let upid = client.stop(&scratch).await.unwrap();
    assert_eq!(setup.finish(&upid).await, TaskExit::Failed("unexpected status".to_owned()));
    // A lock of a virtual machine is told by the task.
    let upid = client.start(&guest("pve1", GuestKind::Qemu, 102)).await.unwrap();
    assert_eq!(setup.finish(&upid).await, TaskExit::Failed("VM is locked (backup)".to_owned()));
    // A container that runs is told at once.
    let error = client.start(&guest("pve1", GuestKind::Lxc, 200)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Server, Effect::Refused), "{error}");
    assert_eq!(error.message(), "CT 200 already running");
}

#[tokio::test]
async fn destroy_takes_a_stopped_unprotected_guest_only() {
    let setup = setup().await;
    let Setup { client, alpha, .. } = &setup;
    let upid = client.destroy(&guest("pve2", GuestKind::Qemu, 104), DestroyOptions::default()).await.unwrap();
    assert_eq!((upid.kind(), setup.finish(&upid).await), ("qmdestroy", TaskExit::Ok));
    assert!(!alpha.guest_exists(104));
    let request = alpha.requests().into_iter().find(|request| request.method == "DELETE").unwrap();
    assert_eq!(request.params["purge"], "0");
    assert_eq!(request.params["destroy-unreferenced-disks"], "0");
    assert_eq!(request.params.len(), 2);

    let everything = DestroyOptions { purge: true, destroy_unreferenced_disks: true };
    let upid = client.destroy(&guest("pve1", GuestKind::Lxc, 201), everything).await.unwrap();
    assert_eq!((upid.kind(), setup.finish(&upid).await), ("vzdestroy", TaskExit::Ok));

    // PVE says no at once or in the task; either way the guest stays.
    for (guest, vmid) in [
        (guest("pve2", GuestKind::Qemu, 103), 103),
        (guest("pve1", GuestKind::Qemu, 100), 100),
        (guest("pve2", GuestKind::Lxc, 203), 203),
        (guest("pve2", GuestKind::Lxc, 202), 202),
    ] {
        match client.destroy(&guest, DestroyOptions::default()).await {
            Ok(upid) => assert!(!setup.finish(&upid).await.succeeded(), "{guest}"),
            Err(error) => assert_eq!(error.effect(), Effect::Refused, "{error}"),
        }
        assert!(alpha.guest_exists(vmid), "{guest}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_told_apart() {
    let Setup { client, .. } = &setup().await;
    let error = client.guest_config(&guest("pve1", GuestKind::Qemu, 999)).await.unwrap_err();
    assert!(error.is_missing_guest(), "{error}");
    // Asked at the wrong node PVE says the same.
    let error = client.guest_config(&guest("pve2", GuestKind::Qemu, 100)).await.unwrap_err();
    assert!(error.is_missing_guest(), "{error}");
    let error = client.storages(&"nope".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(!error.is_missing_guest());
    let error = client.storages(&"pve3".parse().unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::NodeUnreachable, "No route to host"));
    let (node, storage) = ("pve1".parse().unwrap(), "nope".parse().unwrap());
    let error = client.storage_content(&node, &storage, &ContentFilter::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let upid = "UPID:pve1:00000001:00000001:00000001:qmstart:100:root@pam:".parse().unwrap();
    let error = client.task_status(&upid).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test]
async fn a_token_is_told_what_it_lacks() {
    let Setup { alpha, .. } = &setup().await;
    let audit = client(alpha, "audit@pve!lab");
    let error = audit.start(&guest("pve2", GuestKind::Qemu, 104)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::PermissionDenied, Effect::Refused), "{error}");
    assert_eq!(error.message(), "Permission check failed (/vms/104, VM.PowerMgmt)");
    let nobody = client(alpha, "nobody@pve!lab");
    assert!(nobody.guests().await.unwrap().is_empty());
    let token = ApiToken::new(alpha.token_id(), "00000000-0000-0000-0000-000000000000".into()).unwrap();
    let error = client_with(alpha, token).version().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unauthorized, Some(401)), "{error}");
    assert_eq!(error.message(), "Authentication failed!");
    assert!(alpha.effects().is_empty());
}

#[tokio::test]
async fn px_05_a_mutation_whose_answer_is_lost_is_unknown_and_happened_once() {
    let start = "/nodes/{node}/qemu/{vmid}/status/start";
    for action in [Action::DropAfter, Action::Truncate, Action::Raw("{}".into())] {
        let Setup { client, alpha, .. } = &setup().await;
        alpha.inject(Fault::once("POST", start, action.clone()));
        let error = client.start(&guest("pve2", GuestKind::Qemu, 104)).await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "{action:?}: {error}");
        assert_eq!((alpha.mutations(), alpha.effects().len()), (1, 1), "{action:?}");
    }
    let Setup { client, alpha, .. } = &setup().await;
    alpha.inject(Fault::once("POST", start, Action::DropBefore));
    let error = client.start(&guest("pve2", GuestKind::Qemu, 104)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Disconnected, Effect::Unknown), "{error}");
    assert_eq!((alpha.mutations(), alpha.effects().len()), (1, 0));
}

#[tokio::test]
async fn px_05_a_deadline_leaves_a_mutation_unknown_and_a_read_harmless() {
    let Setup { alpha, .. } = &setup().await;
    let moment = Duration::from_millis(300);
    let token = ApiToken::new(alpha.token_id(), alpha.token_secret().into()).unwrap();
    let client = Client::builder()
        .endpoint(Endpoint::parse(&alpha.endpoint()).unwrap())
        .token(token)
        .trust(Trust::Leaf(alpha.fingerprint().parse().unwrap()))
        .timeouts(Timeouts { read: moment, write: moment, ..Timeouts::default() })
        .build()
        .unwrap();
    alpha.inject(Fault::always("*", "/nodes/{node}/qemu/{vmid}/status/{what}", Action::HoldAfter));
    let scratch = guest("pve2", GuestKind::Qemu, 104);
    let error = client.start(&scratch).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error}");
    let error = client.guest_status(&scratch).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Refused), "{error}");
    assert_eq!(alpha.mutations(), 1);
    alpha.clear_faults();
    client.guest_status(&scratch).await.unwrap();
}

#[tokio::test]
async fn px_05_a_read_whose_connection_breaks_is_tried_once_more() {
    let Setup { client, alpha, .. } = &setup().await;
    for action in [Action::DropBefore, Action::Truncate] {
        alpha.inject(Fault::once("GET", "/nodes", action));
        assert_eq!(client.nodes().await.unwrap().len(), 3);
        alpha.clear_faults();
    }
}

#[tokio::test]
async fn an_auditing_token_sees_every_guest() {
    let Setup { alpha, .. } = &setup().await;
    let guests = client(alpha, "audit@pve!lab").guests().await.unwrap();
    let listed: Vec<String> = guests.iter().filter_map(|guest| Some(guest.guest()?.to_string())).collect();
    assert!(listed.contains(&"qemu/100 on pve1".to_owned()), "{listed:?}");
    assert_eq!((listed.len(), guests.skipped), (14, 0));
}
