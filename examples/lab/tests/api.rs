//! The API as a client sees it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{call, call_as, exit_of, send};
use lab::{Action, Fault, Lab, LabCluster, LabConfig, TaskExit};
use serde_json::json;

async fn lab() -> (Lab, LabCluster) {
    let lab = Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap();
    let alpha = lab.cluster("alpha");
    alpha.task_duration(Duration::from_millis(5));
    (lab, alpha)
}

#[tokio::test]
async fn an_unknown_token_gets_an_empty_401_with_its_cause_in_the_reason() {
    let (_lab, alpha) = lab().await;
    for (header, reason) in [
        (None, "No ticket"),
        (Some("PVEAPIToken=nobody@pve!x=00000000-0000-0000-0000-000000000000"), "Authentication failed!"),
        (Some("PVEAPIToken=root@pam!lab="), "Authentication failed!"),
    ] {
        let got = send(&alpha, header, "GET", "/version", "").await.unwrap();
        assert_eq!((got.status, got.reason.as_str(), got.text.as_str(), got.closes), (401, reason, "", true));
    }
}

#[tokio::test]
async fn privileges_decide_and_403_names_what_is_missing() {
    let (_lab, alpha) = lab().await;
    let audit = |method: &'static str, path: &'static str| call_as(&alpha, "audit@pve!lab", method, path, "");
    assert_eq!(audit("GET", "/cluster/status").await.status, 200);
    let got = audit("POST", "/nodes/pve1/qemu/100/status/stop").await;
    assert_eq!((got.status, got.reason.as_str()), (403, "Permission check failed (/vms/100, VM.PowerMgmt)"));
    assert_eq!(got.json()["message"], "Permission check failed (/vms/100, VM.PowerMgmt)\n");
    let nobody = call_as(&alpha, "nobody@pve!lab", "GET", "/cluster/status", "").await;
    assert_eq!(nobody.reason, "Permission check failed (/, Sys.Audit)");
    assert_eq!(
        call_as(&alpha, "nobody@pve!lab", "GET", "/cluster/resources?type=vm", "").await.data(),
        json!([])
    );
    let content = call_as(&alpha, "nobody@pve!lab", "GET", "/nodes/pve1/storage/local/content", "").await;
    assert_eq!(
        content.reason,
        "Permission check failed (/storage/local, Datastore.Audit|Datastore.AllocateSpace)"
    );
}

#[tokio::test]
async fn parameters_are_checked_against_the_schema() {
    let (_lab, alpha) = lab().await;
    let got = call(&alpha, "PUT", "/nodes/pve1/qemu/100/config", "cores=0&onboot=yes&bogus=1").await;
    assert_eq!((got.status, got.reason.as_str(), got.closes), (400, "Parameter verification failed.", true));
    assert_eq!(
        got.json(),
        json!({ "data": null, "message": "Parameter verification failed.\n", "errors": {
            "cores": "value must have a minimum value of 1",
            "onboot": "type check ('boolean') failed - got 'yes'",
            "bogus": "property is not defined in schema and the schema does not allow additional properties",
        }})
    );
    let got = call(&alpha, "PUT", "/nodes/pve1/qemu/100/config", r#"{"onboot":true,"cores":3}"#).await;
    assert_eq!(got.status, 200, "{got:?}");
    let config = call(&alpha, "GET", "/nodes/pve1/qemu/100/config", "").await.data();
    assert_eq!((&config["onboot"], &config["cores"]), (&json!(1), &json!(3)));
    let got = call(&alpha, "PUT", "/nodes/pve1/qemu/100/config", "node=pve2&cores=1").await;
    let conflict = "duplicate parameter (already defined in URI) with conflicting values!";
    assert_eq!(got.json()["errors"]["node"], conflict);
    // The query wins over the body.
    let got = call(&alpha, "PUT", "/nodes/pve1/qemu/104/config?cores=x", "cores=1").await;
    assert_eq!(got.status, 400);
}

#[tokio::test]
async fn the_transport_refuses_what_pve_refuses() {
    let (_lab, alpha) = lab().await;
    let got = call(&alpha, "GET", "/foo", "").await;
    assert_eq!((got.status, got.reason.as_str()), (501, "Method 'GET /foo' not implemented"));
    let got = call(&alpha, "PATCH", "/version", "").await;
    assert_eq!(
        (got.status, got.reason.as_str(), got.text.as_str()),
        (501, "method 'PATCH' not available", "")
    );
    let got = call(&alpha, "DELETE", "/nodes/pve1/lxc/201", "force=1").await;
    assert_eq!(got.reason, "Unexpected content for method 'DELETE'");
    assert!(alpha.guest_exists(201));
    let got =
        call(&alpha, "PUT", "/nodes/pve1/qemu/100/config", &format!("description={}", "x".repeat(600_000)))
            .await;
    assert_eq!((got.status, got.reason.as_str()), (501, "for data too large"));
    let mut sender = common::connect(&alpha).await;
    let request = http::Request::put("/api2/json/nodes/pve1/qemu/104/config")
        .header("host", "127.0.0.1")
        .header("authorization", common::authorization(&alpha, alpha.token_id()))
        .body(Chunks(vec!["cores=1"]))
        .unwrap();
    let got = common::read(sender.send_request(request).await.unwrap()).await.unwrap();
    assert_eq!((got.status, got.reason.as_str()), (501, "chunked transfer encoding not supported"));
    assert!(alpha.effects().is_empty());
}

/// A body of unknown length, which hyper sends in chunks.
struct Chunks(Vec<&'static str>);

impl hyper::body::Body for Chunks {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Ready(
            self.0.pop().map(|chunk| Ok(hyper::body::Frame::data(bytes::Bytes::from(chunk)))),
        )
    }
}

#[tokio::test]
async fn an_offline_node_answers_595_and_its_guests_have_no_status() {
    let (_lab, alpha) = lab().await;
    let got = call(&alpha, "GET", "/nodes/pve3/qemu/130/config", "").await;
    assert_eq!((got.status, got.reason.as_str(), got.text.as_str()), (595, "No route to host", ""));
    let got = call(&alpha, "GET", "/nodes/nope/status", "").await;
    assert!(got.reason.starts_with("hostname lookup 'nope' failed"), "{got:?}");
    let rows = call(&alpha, "GET", "/cluster/resources?type=vm", "").await.data();
    let row = rows.as_array().unwrap().iter().find(|row| row["vmid"] == 130).unwrap().clone();
    assert_eq!((&row["status"], &row["node"], row.get("name")), (&json!("unknown"), &json!("pve3"), None));
    assert_eq!(row["tags"], "prod");
}

#[tokio::test]
async fn power_actions_check_first_or_in_the_task_as_each_kind_does() {
    let (_lab, alpha) = lab().await;
    let post = |path: &'static str| call(&alpha, "POST", path, "");
    let upid = |got: common::Got| got.data().as_str().unwrap().to_owned();
    let start = upid(post("/nodes/pve2/qemu/104/status/start").await);
    assert!(start.contains(":qmstart:104:root@pam!lab:"), "{start}");
    assert_eq!(exit_of(&alpha, &start).await, "OK");
    assert_eq!(alpha.guest_running(104), Some(true));
    let again = upid(post("/nodes/pve2/qemu/104/status/start").await);
    assert_eq!(exit_of(&alpha, &again).await, "VM 104 already running");
    assert_eq!(post("/nodes/pve1/lxc/200/status/start").await.reason, "CT 200 already running");
    let locked = upid(post("/nodes/pve1/qemu/102/status/start").await);
    assert_eq!(exit_of(&alpha, &locked).await, "VM is locked (backup)");
    let template = upid(post("/nodes/pve2/qemu/110/status/start").await);
    assert_eq!(exit_of(&alpha, &template).await, "you can't start a vm if it's a template");
    assert_eq!(post("/nodes/pve1/lxc/201/status/stop").await.reason, "CT 201 not running");
    let stubborn = upid(post("/nodes/pve2/qemu/105/status/shutdown").await);
    assert_eq!(exit_of(&alpha, &stubborn).await, "VM quit/powerdown failed - got timeout");
    let got = call(&alpha, "POST", "/nodes/pve2/qemu/105/status/start", "skiplock=1").await;
    assert_eq!(got.json()["errors"]["skiplock"], "Only root may use this option.");
}

#[tokio::test]
async fn destroying_is_refused_for_running_locked_and_protected_guests() {
    let (_lab, alpha) = lab().await;
    let reason = |path: &'static str| async { call(&alpha, "DELETE", path, "").await.reason };
    assert_eq!(reason("/nodes/pve1/qemu/100").await, "VM 100 is running - destroy failed");
    assert_eq!(reason("/nodes/pve2/qemu/103").await, "can't remove VM 103 - protection mode enabled");
    assert_eq!(reason("/nodes/pve2/lxc/203").await, "can't remove CT 203 - protection mode enabled");
    assert_eq!(reason("/nodes/pve1/lxc/200").await, "unable to destroy CT 200 - container is running");
    assert_eq!(
        reason("/nodes/pve1/lxc/202").await,
        "Configuration file 'nodes/pve1/lxc/202.conf' does not exist"
    );
    alpha.set_lock(201, Some("backup")).unwrap();
    assert_eq!(reason("/nodes/pve1/lxc/201").await, "CT is locked (backup)");
    alpha.set_lock(201, None).unwrap();
    let got = call(&alpha, "DELETE", "/nodes/pve1/lxc/201?purge=1", "").await;
    assert_eq!(exit_of(&alpha, got.data().as_str().unwrap()).await, "OK");
    assert!(!alpha.guest_exists(201));
    let locked = call(&alpha, "DELETE", "/nodes/pve1/qemu/102", "").await;
    assert_eq!(exit_of(&alpha, locked.data().as_str().unwrap()).await, "VM is locked (backup)");
    assert!(alpha.guest_exists(102));
    let pools = call(&alpha, "GET", "/pools?poolid=sandbox&type=lxc", "").await.data();
    assert_eq!(pools[0]["members"], json!([]));
}

#[tokio::test]
async fn config_writes_need_the_digest_they_name() {
    let (_lab, alpha) = lab().await;
    let config = call(&alpha, "GET", "/nodes/pve2/qemu/104/config", "").await.data();
    let digest = config["digest"].as_str().unwrap();
    assert_eq!(
        (digest.len(), config["memory"].as_str(), config["cores"].as_i64()),
        (40, Some("2048"), Some(2))
    );
    let body = format!("cores=3&tags=b%3Ba%3BB&digest={digest}");
    assert_eq!(
        call(&alpha, "PUT", "/nodes/pve2/qemu/104/config", &body).await.json(),
        json!({ "data": null })
    );
    assert_eq!(alpha.guest_option(104, "tags").as_deref(), Some("a;b"));
    let stale = call(&alpha, "PUT", "/nodes/pve2/qemu/104/config", &body).await;
    assert_eq!(stale.reason, "checksum mismatch (file change by other user?)");
    let stale = call(&alpha, "PUT", "/nodes/pve1/lxc/201/config", "digest=abc&cores=2").await;
    assert_eq!(stale.reason, "detected modified configuration - file changed by other user? Try again.");
    let locked = call(&alpha, "PUT", "/nodes/pve1/qemu/102/config", "cores=2").await;
    assert_eq!(locked.reason, "VM is locked (backup)");
    assert_eq!(call(&alpha, "PUT", "/nodes/pve2/qemu/104/config", "").await.reason, "no options specified");
    let protected = call(&alpha, "PUT", "/nodes/pve2/qemu/103/config", "delete=scsi0").await;
    assert_eq!(protected.reason, "can't remove drive 'scsi0' - protection mode enabled");
    assert_eq!(call(&alpha, "PUT", "/nodes/pve2/qemu/104/config", "delete=scsi0").await.status, 200);
    assert_eq!(alpha.guest_option(104, "unused0").as_deref(), Some("local-lvm:vm-104-disk-0"));
}

#[tokio::test]
async fn task_lists_have_pve_s_defaults_and_hide_what_others_started() {
    let (_lab, alpha) = lab().await;
    let rows = |got: common::Got| got.data().as_array().unwrap().clone();
    let archive = call(&alpha, "GET", "/nodes/pve1/tasks", "").await;
    assert_eq!(archive.json()["total"], 4);
    let newest = rows(archive)[0].clone();
    assert_eq!(
        (&newest["type"], &newest["user"], newest.get("tokenid")),
        (&json!("aptupdate"), &json!("root@pam"), None)
    );
    alpha.hold_tasks(true);
    let upid = call(&alpha, "POST", "/nodes/pve1/qemu/100/status/stop", "").await.data();
    assert_eq!(rows(call(&alpha, "GET", "/nodes/pve1/tasks?limit=500", "").await).len(), 4);
    let active = rows(call(&alpha, "GET", "/nodes/pve1/tasks?source=active", "").await);
    assert_eq!((active.len(), &active[0]["upid"], &active[0]["status"]), (1, &upid, &json!("RUNNING")));
    let path = format!("/nodes/pve1/tasks/{}", upid.as_str().unwrap());
    let status = call(&alpha, "GET", &format!("{path}/status"), "").await.data();
    assert_eq!((&status["status"], status.get("exitstatus")), (&json!("running"), None));
    let others = call_as(&alpha, "nobody@pve!lab", "GET", &format!("{path}/status"), "").await;
    assert_eq!(others.reason, "Permission check failed (/nodes/pve1, Sys.Audit)");
    assert_eq!(
        rows(call_as(&alpha, "nobody@pve!lab", "GET", "/nodes/pve1/tasks?source=all", "").await).len(),
        0
    );
    assert_eq!(call(&alpha, "DELETE", &path, "").await.json(), json!({ "data": null }));
    let status = call(&alpha, "GET", &format!("{path}/status"), "").await.data();
    assert_eq!(status["exitstatus"], "interrupted by signal");
    alpha.hold_tasks(false);
    alpha.idle().await;
    assert_eq!(alpha.guest_running(100), Some(true));
    let log = call(&alpha, "GET", &format!("{path}/log"), "").await.json();
    assert_eq!(log, json!({ "data": [{ "n": 1, "t": "TASK ERROR: interrupted by signal" }], "total": 1 }));
    let since = rows(call(&alpha, "GET", "/nodes/pve1/tasks?since=1&vmid=101&typefilter=vzdump", "").await);
    assert_eq!(since.len(), 1);
}

#[tokio::test]
async fn task_exits_can_be_chosen_and_a_failed_one_has_no_effect() {
    let (_lab, alpha) = lab().await;
    alpha.next_task_exit(TaskExit::Warnings(2));
    alpha.next_task_exit(TaskExit::Failed("unexpected status".into()));
    let started = call(&alpha, "POST", "/nodes/pve2/qemu/104/status/start", "").await.data();
    assert_eq!(exit_of(&alpha, started.as_str().unwrap()).await, "WARNINGS: 2");
    assert_eq!(alpha.guest_running(104), Some(true));
    let stopped = call(&alpha, "POST", "/nodes/pve2/qemu/104/status/stop", "").await.data();
    assert_eq!(exit_of(&alpha, stopped.as_str().unwrap()).await, "unexpected status");
    assert_eq!(alpha.guest_running(104), Some(true));
}

#[tokio::test]
async fn cs_24_faults_drop_before_or_after_the_effect_and_the_record_tells_which() {
    let (_lab, alpha) = lab().await;
    let start = "/nodes/{node}/qemu/{vmid}/status/start";
    let authorization = common::authorization(&alpha, alpha.token_id());
    let send =
        |method: &'static str, path: &'static str| send(&alpha, Some(&authorization), method, path, "");
    alpha.inject(Fault::once("POST", start, Action::DropBefore));
    assert!(send("POST", "/nodes/pve2/qemu/104/status/start").await.is_err());
    assert_eq!((alpha.mutations(), alpha.effects().len()), (1, 0));
    alpha.inject(Fault::once("POST", start, Action::DropAfter));
    assert!(send("POST", "/nodes/pve2/qemu/104/status/start").await.is_err());
    alpha.idle().await;
    assert_eq!((alpha.mutations(), alpha.effects().len(), alpha.guest_running(104)), (2, 1, Some(true)));
    alpha.inject(Fault::once("GET", "/version", Action::Truncate));
    assert!(send("GET", "/version").await.is_err());
    alpha.inject(Fault::once("GET", "/version", Action::Raw("{\"data\":[[[[".into())));
    assert_eq!(send("GET", "/version").await.unwrap().text, "{\"data\":[[[[");
    let action = Action::Status { code: 596, reason: "Connection timed out".into(), body: String::new() };
    alpha.inject(Fault::once("GET", "/version", action).nth(2));
    assert_eq!(send("GET", "/version").await.unwrap().status, 200);
    assert_eq!(send("GET", "/version").await.unwrap().reason, "Connection timed out");
}

#[tokio::test]
async fn a_held_request_waits_before_or_after_its_effect_even_when_its_client_leaves() {
    let (_lab, alpha) = lab().await;
    let stop = "/nodes/pve1/qemu/100/status/stop";
    let mut after = alpha.inject(Fault::once("POST", stop, Action::HoldAfter));
    let cluster = alpha.clone();
    let held = tokio::spawn(async move { call(&cluster, "POST", stop, "").await });
    after.struck().await;
    alpha.idle().await;
    assert_eq!(alpha.guest_running(100), Some(false));
    assert!(!held.is_finished());
    after.release();
    assert_eq!(held.await.unwrap().status, 200);

    let start = "/nodes/pve1/qemu/100/status/start";
    let mut before = alpha.inject(Fault::once("POST", start, Action::HoldBefore));
    let cluster = alpha.clone();
    let held = tokio::spawn(async move { call(&cluster, "POST", start, "").await });
    before.struck().await;
    held.abort();
    assert_eq!(alpha.effects().len(), 1);
    before.release();
    alpha.wait_for(|alpha| alpha.guest_running(100) == Some(true)).await;
    assert_eq!(alpha.effects().len(), 2);
}

#[tokio::test]
async fn a_recreated_guest_keeps_its_number_and_name_and_nothing_else() {
    let (_lab, alpha) = lab().await;
    let get = |path: &'static str| call(&alpha, "GET", path, "");
    let before = get("/nodes/pve1/qemu/100/config").await.data();
    alpha.recreate(100).unwrap();
    let after = get("/nodes/pve1/qemu/100/config").await.data();
    assert_eq!(before["name"], after["name"]);
    assert_ne!(before["vmgenid"], after["vmgenid"]);
    assert_ne!(before["meta"], after["meta"]);
    assert_ne!(before["digest"], after["digest"]);
    assert_eq!(get("/nodes/pve1/tasks?vmid=100&typefilter=qmcreate").await.json()["total"], 1);
    let old = alpha.guest_root(200);
    let net = alpha.guest_option(200, "net0");
    alpha.recreate(200).unwrap();
    assert_ne!(alpha.guest_option(200, "net0"), net);
    assert_ne!(alpha.guest_root(200), old);
    alpha.migrate(200, "pve2").unwrap();
    assert_eq!(get("/nodes/pve1/lxc/200/config").await.status, 500);
    assert_eq!(get("/nodes/pve2/lxc/200/config").await.status, 200);
}

#[tokio::test]
async fn ha_managed_guests_are_handed_to_ha() {
    let mut config = LabConfig::two_clusters().unwrap();
    let alpha = config.clusters.get_mut("alpha").unwrap();
    alpha.ha = vec![lab::HaConfig::new("vm:104", "stopped")];
    alpha.task_ms = 1;
    let lab = Lab::start(config).await.unwrap();
    let alpha = lab.cluster("alpha");
    let upid = call(&alpha, "POST", "/nodes/pve2/qemu/104/status/start", "").await.data();
    assert!(upid.as_str().unwrap().contains(":hastart:104:root@pam!lab:"));
    assert_eq!(exit_of(&alpha, upid.as_str().unwrap()).await, "OK");
    assert_eq!(alpha.guest_running(104), Some(true));
    assert_eq!(call(&alpha, "GET", "/cluster/ha/resources", "").await.data()[0]["state"], "started");
    alpha.stop(104).unwrap();
    let refused = call(&alpha, "DELETE", "/nodes/pve2/qemu/104", "").await;
    assert_eq!(refused.reason, "unable to remove VM 104 - used in HA resources and purge parameter not set.");
}

#[tokio::test]
async fn plain_http_is_sent_to_https() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (_lab, alpha) = lab().await;
    let mut stream = tokio::net::TcpStream::connect(alpha.address()).await.unwrap();
    stream.write_all(b"GET /api2/json/version HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 301 ") && text.contains("https://x/api2/json/version"), "{text}");
}

#[tokio::test]
async fn a_standalone_host_has_only_its_node() {
    let (lab, _) = lab().await;
    let rows = call(&lab.cluster("beta"), "GET", "/cluster/status", "").await.data();
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["type"], &rows[0]["nodeid"]),
        (1, &json!("node"), &json!(0))
    );
}
