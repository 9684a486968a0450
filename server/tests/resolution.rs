//! Where a guest is, and whose word counts: the cluster's, read anew for whatever changes something.

mod support;

use lab::{Action, Fault};
use serde_json::{Value, json};
use support::{AGENT, Rights, Stage};

fn guest(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid})
}

/// An answer of `/cluster/resources` with these guests on nodes `pve1` and `pve2`.
fn listing(guests: &[Value]) -> Action {
    let mut rows: Vec<Value> = ["pve1", "pve2"]
        .map(|node| json!({"id": format!("node/{node}"), "type": "node", "node": node, "status": "online"}))
        .into();
    rows.extend_from_slice(guests);
    Action::Raw(json!({"data": rows}).to_string().into())
}

fn row(vmid: u32, node: &str, pool: Option<&str>) -> Value {
    json!({"id": format!("qemu/{vmid}"), "type": "qemu", "vmid": vmid, "node": node, "status": "stopped", "name": "x",
           "pool": pool.unwrap_or_default()})
}

/// How often a path that begins and ends like this was asked for.
fn asked(stage: &Stage, method: &str, start: &str, end: &str) -> usize {
    let requests = stage.alpha().requests();
    let hit = |path: &str| path.trim_start_matches("/api2/json").starts_with(start) && path.ends_with(end);
    requests.iter().filter(|request| request.method == method && hit(&request.path)).count()
}

/// A37: read right after a migration, from a listing of before it.
#[tokio::test(flavor = "multi_thread")]
async fn gr_12_a_guest_that_moved_since_it_was_listed_is_found_once_more() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    assert_eq!(reader.call("get_guest_status", guest(100)).await.unwrap()["node"], "pve1");
    stage.alpha().migrate(100, "pve2").unwrap();
    stage.alpha().clear_requests();
    let moved = reader.call("get_guest_status", guest(100)).await.unwrap();
    assert_eq!(moved["node"], "pve2");
    assert_eq!(asked(&stage, "GET", "/cluster/resources", ""), 1);
    assert_eq!(asked(&stage, "GET", "/nodes/pve1/qemu/100", "/current"), 1, "the listing said so");
    // The cross-check is made against where it is now, not where it was.
    stage.alpha().migrate(100, "pve1").unwrap();
    let stale = json!({"cluster": "alpha", "vmid": 100, "node": "pve2"});
    assert_eq!(reader.call("get_guest_status", stale).await.unwrap_err()["code"], "wrong_node");
    // One that is gone for good is looked for once, not for ever.
    stage.alpha().remove(100).unwrap();
    stage.alpha().clear_requests();
    let gone = reader.call("get_guest_status", guest(100)).await.unwrap_err();
    assert_eq!(gone["code"], "authorization_failed", "{gone}");
    assert!(asked(&stage, "GET", "/cluster/resources", "") <= 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_12_a_mutation_goes_where_the_guest_is_now_and_only_once() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    stage.alpha().stop(100).unwrap();
    let agent = stage.client(server.address, "agent");
    // The listing for reads says pve1 from here on.
    agent.call("get_guest_status", guest(100)).await.unwrap();
    stage.alpha().migrate(100, "pve2").unwrap();
    agent.call("start_vm", guest(100)).await.unwrap();
    assert_eq!(asked(&stage, "POST", "/nodes/pve2/qemu/100", "/start"), 1);
    assert_eq!(asked(&stage, "POST", "/nodes/pve1", ""), 0);

    // It moves between the look and the request: PVE refuses, and nothing is sent a second time.
    stage.alpha().stop(100).unwrap();
    stage.alpha().clear_requests();
    let start = "/nodes/{node}/qemu/{vmid}/status/start";
    let mut held = stage.alpha().inject(Fault::once("POST", start, Action::HoldBefore));
    let starting = tokio::spawn(async move { agent.call("start_vm", guest(100)).await });
    held.struck().await;
    stage.alpha().migrate(100, "pve1").unwrap();
    held.release();
    let refused = starting.await.unwrap().unwrap_err();
    assert_eq!(refused["code"], "guest_moved", "{refused}");
    assert_eq!(asked(&stage, "POST", "/nodes/", ""), 1);
    assert_eq!(stage.alpha().guest_running(100), Some(false));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_07_a_guest_that_left_the_pool_is_out_of_reach_of_a_mutation_at_once() {
    let mut stage = Stage::new().await;
    stage.token("pooled", Rights { guests: &["pool:dev"], ..AGENT });
    let server = stage.serve().await;
    stage.alpha().stop(100).unwrap();
    let pooled = stage.client(server.address, "pooled");
    stage.alpha().inject(Fault::always(
        "GET",
        "/cluster/resources",
        listing(&[row(100, "pve1", Some("dev"))]),
    ));
    pooled.call("get_guest_status", guest(100)).await.unwrap();
    stage.alpha().clear_faults();
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", listing(&[row(100, "pve1", None)])));
    // The listing of before is good enough for a read for some seconds, and for nothing else.
    pooled.call("get_guest_status", guest(100)).await.unwrap();
    let refused = pooled.call("start_vm", guest(100)).await.unwrap_err();
    assert_eq!(refused["code"], "authorization_failed", "{refused}");
    assert_eq!(stage.alpha().mutations(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn px_09_a_guest_the_cluster_contradicts_itself_about_is_left_alone() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let rows = [
        row(100, "pve9", None),
        row(101, "../../x", None),
        row(102, "pve1", None),
        row(102, "pve2", None),
        row(103, "PVE1", None),
    ];
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", listing(&rows)));
    for (vmid, code) in [
        (100, "ambiguous_guest"),
        (101, "authorization_failed"),
        (102, "ambiguous_guest"),
        (103, "ambiguous_guest"),
    ] {
        for tool in ["get_guest_status", "start_vm", "stop_vm"] {
            let refused = agent.call(tool, guest(vmid)).await.unwrap_err();
            assert_eq!(refused["code"], code, "{tool} {vmid}: {refused}");
        }
        let mut arguments = guest(vmid);
        arguments["op"] = "destroy_guest".into();
        let plan = agent.call("plan_proxmox_destroy", arguments).await.unwrap_err();
        assert!(plan["code"] == code || plan["code"] == "authorization_failed", "{vmid}: {plan}");
    }
    assert_eq!(stage.alpha().mutations(), 0);
    let nodes: Vec<_> =
        stage.alpha().requests().into_iter().filter(|r| r.path.starts_with("/nodes/")).collect();
    assert!(nodes.is_empty(), "nobody is asked about such a guest: {nodes:?}");
    server.stop().await;
}
