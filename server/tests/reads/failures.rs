//! Nodes that are away, agents that do not answer, rows that make no sense.

use lab::{Action, Fault, TaskExit};
use serde_json::{Value, json};

use crate::support::{AGENT, Rights, Stage};

fn guest(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid})
}

fn says(code: u16, message: &str) -> Action {
    Action::Status {
        code,
        reason: "Internal Server Error".to_owned(),
        body: json!({"data": null, "message": format!("{message}\n")}).to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_is_named_as_the_cause() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let node = json!({"cluster": "alpha", "node": "pve3"});
    let mut storage = node.clone();
    storage["storage"] = "local".into();
    for (tool, arguments) in [
        ("get_guest_status", guest(130)),
        ("get_vm_config", guest(130)),
        ("get_vm_ip", guest(130)),
        ("get_container_ip", guest(230)),
        ("list_snapshots", guest(230)),
        ("get_node_status", node.clone()),
        ("get_storage", node.clone()),
        ("list_tasks", node.clone()),
        ("get_node_firewall_rules", node),
        ("list_isos", storage.clone()),
        ("list_backups", storage),
    ] {
        let refused = reader.call(tool, arguments).await.unwrap_err();
        assert_eq!(refused["code"], "node_unreachable", "{tool}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains("node pve3"), "{tool}: {refused}");
    }
    // A11: it stands in nobody else's way.
    for (tool, arguments) in [
        ("get_guest_status", guest(100)),
        ("get_node_status", json!({"cluster": "alpha", "node": "pve1"})),
        ("get_cluster_status", json!({"cluster": "alpha"})),
    ] {
        reader.call(tool, arguments).await.unwrap_or_else(|refused| panic!("{tool}: {refused}"));
    }
    // A09: its guests are listed all the same.
    let found = reader.call("find_guests", json!({"node": "pve3"})).await.unwrap();
    assert_eq!((&found["total"], &found["items"][0]["status"]), (&2.into(), &"unknown".into()));
    server.stop().await;
}

/// A12: in another case it is another name, and the words of a name server help nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_there_is_told_with_the_names_that_are() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    for tool in ["get_node_status", "get_storage", "get_node_firewall_options"] {
        let refused = reader.call(tool, json!({"cluster": "alpha", "node": "PVE1"})).await.unwrap_err();
        assert_eq!(
            (&refused["code"], &refused["field"]),
            (&"not_found".into(), &"node".into()),
            "{tool}: {refused}"
        );
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("`PVE1`") && message.contains("pve1, pve2, pve3"), "{message}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_an_agent_can_fail_says_what_helps() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let path = "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces";
    for (said, code, helps) in [
        ("No QEMU guest agent configured", "agent_unavailable", "agent: 1"),
        ("QEMU guest agent is not running", "agent_unavailable", "start qemu-guest-agent"),
        ("VM 100 is not running", "guest_not_running", "start_vm"),
        (
            "VM 100 qga command 'guest-network-get-interfaces' failed - got timeout",
            "agent_unavailable",
            "try again",
        ),
        (
            "Agent error: Command guest-network-get-interfaces has been disabled",
            "agent_unavailable",
            "forbid",
        ),
        ("something else", "pve_error", "something else"),
    ] {
        stage.alpha().clear_faults();
        stage.alpha().inject(Fault::always("GET", path, says(500, said)));
        let refused = reader.call("get_vm_ip", guest(100)).await.unwrap_err();
        assert_eq!(refused["code"], code, "{said}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains(helps), "{said}: {refused}");
    }
    // A23: an interface without addresses is one without addresses.
    stage.alpha().clear_faults();
    let interfaces = json!({"data": {"result": [
        {"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
        {"name": "veth1"},
        {"name": "eth0", "ip-addresses": [{"ip-address": "10.0.0.5", "prefix": 24}, {"ip-address": "nonsense"}]},
    ]}});
    stage.alpha().inject(Fault::always("GET", path, Action::Raw(interfaces.to_string().into())));
    let found = reader.call("get_vm_ip", guest(100)).await.unwrap();
    assert_eq!(found["addresses"], json!(["10.0.0.5"]));
    assert_eq!(found["interfaces"][1], json!({"name": "veth1", "addresses": []}));
    assert_eq!(found["interfaces"][2]["addresses"], json!(["10.0.0.5/24"]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_run_has_no_addresses_and_says_so() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let refused = reader.call("get_container_ip", guest(201)).await.unwrap_err();
    assert_eq!(refused["code"], "guest_not_running", "{refused}");
    server.stop().await;
}

/// A01, A04, A05, A24, A39, A49: an odd field costs that field, never the row, and no row costs the list.
#[tokio::test(flavor = "multi_thread")]
async fn odd_rows_do_not_lose_the_list() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let rows = json!({"data": [
        {"type": "qemu", "vmid": "201", "node": "pve1", "status": "running", "mem": "134217728", "maxmem": 1.5e9, "cpu": "0.25", "template": ""},
        {"type": "qemu", "vmid": 202, "node": "pve1", "status": null, "name": {"odd": true}, "tags": "web,prod", "mem": null},
        {"type": "qemu", "vmid": 203, "node": "pve9", "status": "unknown"},
        {"type": "qemu", "node": "pve1"},
        {"type": "later-than-this", "id": "x/1"},
        {"type": "node", "node": "pve1", "status": "online"},
    ]});
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", Action::Raw(rows.to_string().into())));
    let vms = reader.call("get_vms", json!({"cluster": "alpha"})).await.unwrap();
    let items = vms["items"].as_array().unwrap();
    assert_eq!((&vms["total"], items.len()), (&3.into(), 3), "{vms}");
    assert_eq!(
        (&items[0]["mem"], &items[0]["cpu"], &items[0]["template"]),
        (&134_217_728.into(), &0.25.into(), &false.into())
    );
    assert_eq!(
        (&items[1]["tags"], items[1].get("mem"), items[1].get("name")),
        (&json!(["prod", "web"]), None, None)
    );
    assert_eq!((&items[2]["status"], items[2].get("name")), (&"unknown".into(), None));

    let content = json!({"data": [
        {"volid": "local:iso/a.iso", "size": 1_048_576, "content": "iso"},
        {"volid": "local:iso/c.iso", "content": "iso"},
        {"volid": "local:iso/b.iso", "size": "2097152", "content": "iso"},
        {"content": "iso"},
    ]});
    let path = "/nodes/{node}/storage/{storage}/content";
    stage.alpha().inject(Fault::always("GET", path, Action::Raw(content.to_string().into())));
    let isos = json!({"cluster": "alpha", "node": "pve1", "storage": "local"});
    let isos = reader.call("list_isos", isos).await.unwrap();
    assert_eq!((&isos["total"], &isos["skipped"]), (&3.into(), &1.into()));
    let sizes: Vec<Option<&Value>> =
        isos["items"].as_array().unwrap().iter().map(|iso| iso.get("size")).collect();
    assert_eq!(sizes, [Some(&1_048_576.into()), Some(&2_097_152.into()), None]);

    // A39: colons in a name, a namespace, a number that is text, a size nobody knows.
    let backups = json!({"data": [
        {"volid": "local:backup/vm/901/2026-03-04T05:06:07Z", "content": "backup", "format": "pbs-vm", "subtype": "qemu",
         "vmid": 901, "size": null, "verification": {"state": "ok", "upid": "UPID:x"}},
        {"volid": "local:backup/ns1/ct/5/2026-01-01T00:00:00Z", "vmid": "105", "verification": {"state": "failed"}},
        {"volid": "local:backup/vm/902/2026-03-04T05:06:07Z", "content": "backup", "vmid": 902, "verification": "odd"},
    ]});
    stage.alpha().clear_faults();
    stage.alpha().inject(Fault::always("GET", path, Action::Raw(backups.to_string().into())));
    let arguments = json!({"cluster": "alpha", "node": "pve1", "storage": "local"});
    let backups = reader.call("list_backups", arguments).await.unwrap();
    let shown: Vec<(&Value, Option<&Value>, Option<&Value>)> = backups["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|backup| (&backup["vmid"], backup.get("size"), backup.get("verification")))
        .collect();
    let (ok, failed) = (json!("ok"), json!("failed"));
    assert_eq!(
        shown,
        [(&105.into(), None, Some(&failed)), (&901.into(), None, Some(&ok)), (&902.into(), None, None)]
    );

    let storages =
        json!({"data": [{"storage": "lvm1", "type": "lvm", "content": "images", "enabled": 1, "active": 0}]});
    stage.alpha().inject(Fault::always(
        "GET",
        "/nodes/{node}/storage",
        Action::Raw(storages.to_string().into()),
    ));
    let storages = reader.call("get_storage", json!({"cluster": "alpha", "node": "pve1"})).await.unwrap();
    assert_eq!((&storages["items"][0]["usable"], storages["items"][0].get("total")), (&false.into(), None));
    server.stop().await;
}

/// A26: a token of PVE's that may see nothing gets an empty list, which is no list of a cluster without guests.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_shows_nothing_at_all_is_no_cluster_without_guests() {
    let stage = Stage::with_policy(json!({"resource_cache_ttl_secs": 0})).await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let answer = |data: &Value| Action::Raw(json!({"data": data}).to_string().into());
    let node = json!([{"id": "node/pve1", "node": "pve1", "type": "node", "status": "online"}]);
    for (resources, held, missing) in [
        (json!([]), json!({}), Some("privilege separation")),
        // PVE names the nodes to everybody.
        (node.clone(), json!({"/": {}, "/vms": {}}), Some("privilege separation")),
        (node.clone(), json!({"/nodes": {"Sys.Audit": 1}}), Some("`VM.Audit` nowhere")),
        (node, json!({"/vms": {"VM.Audit": 1}}), None),
    ] {
        stage.alpha().clear_faults();
        stage.alpha().inject(Fault::always("GET", "/cluster/resources", answer(&resources)));
        stage.alpha().inject(Fault::always("GET", "/access/permissions", answer(&held)));
        let listed = reader.call("get_vms", json!({"cluster": "alpha"})).await;
        match missing {
            None => assert_eq!(listed.unwrap()["total"], 0),
            Some(missing) => {
                let refused = listed.unwrap_err();
                assert_eq!(refused["code"], "pve_permission");
                assert!(refused["message"].as_str().unwrap().contains(missing), "{refused}");
            }
        }
    }
    stage.alpha().clear_faults();
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", answer(&json!([]))));
    stage.alpha().inject(Fault::always("GET", "/access/permissions", answer(&json!({}))));
    let found = reader.call("find_guests", json!({})).await.unwrap();
    assert_eq!((&found["unreachable"][0]["cluster"], &found["total"]), (&"alpha".into(), &3.into()));
    server.stop().await;
}

/// A13, E11 (what was started is followed by its task), and the end that nobody can tell: neither success nor failure.
#[tokio::test(flavor = "multi_thread")]
async fn how_a_task_ended_is_told_as_far_as_pve_knows() {
    let mut stage = Stage::new().await;
    stage.token("hands", Rights { tools: &["*", "start_vm"], ..AGENT });
    let server = stage.serve().await;
    let hands = stage.client(server.address, "hands");
    stage.alpha().stop(100).unwrap();
    let started = hands.call("start_vm", guest(100)).await.unwrap();
    let task = json!({"cluster": "alpha", "upid": started["upid"]});
    let path = "/nodes/{node}/tasks/{upid}/status";
    let unreadable = "unable to get last line from task log - No such file or directory";
    for (exit, success, warnings) in [
        (json!("OK"), Some(true), None),
        (json!("WARNINGS: 2"), Some(true), Some(2)),
        (json!("VM is locked (backup)"), Some(false), None),
        (json!("unexpected status"), Some(false), None),
        (json!(unreadable), None, None),
        (Value::Null, None, None),
    ] {
        stage.alpha().clear_faults();
        let body = json!({"data": {"status": "stopped", "exitstatus": exit}}).to_string();
        stage.alpha().inject(Fault::always("GET", path, Action::Raw(body.into())));
        let log = ["starting", "WARN: no TPM state", "WARN: no space", "TASK WARNINGS: 2"];
        let log = log.iter().zip(1..).map(|(t, n)| json!({"n": n, "t": t})).collect::<Vec<_>>();
        let log = json!({"data": log, "total": 4}).to_string();
        stage.alpha().inject(Fault::always("GET", "/nodes/{node}/tasks/{upid}/log", Action::Raw(log.into())));
        let status = hands.call("get_task_status", task.clone()).await.unwrap();
        assert_eq!(status["status"], "stopped");
        assert_eq!(status.get("success"), success.map(Value::from).as_ref(), "{exit}: {status}");
        assert_eq!(status.get("warnings"), warnings.map(Value::from).as_ref(), "{exit}: {status}");
        let lines =
            if warnings.is_some() { json!(["WARN: no TPM state", "WARN: no space"]) } else { json!([]) };
        assert_eq!(status["warning_lines"], lines, "{exit}: {status}");
        assert!(!status["exitstatus"].as_str().unwrap().is_empty(), "{exit}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_by_how_they_ended() {
    let mut stage = Stage::new().await;
    stage.token("hands", Rights { tools: &["*", "start_vm", "stop_vm"], ..AGENT });
    let server = stage.serve().await;
    let hands = stage.client(server.address, "hands");
    let listed = async |more: Value| {
        let mut arguments = json!({"cluster": "alpha", "node": "pve2", "vmid": 104, "fields": ["upid"]});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let page = hands.call("list_tasks", arguments).await.unwrap();
        let tasks = page["items"].as_array().unwrap();
        assert_eq!((&page["total"], &page["has_more"]), (&tasks.len().into(), &false.into()), "{page}");
        tasks.iter().map(|task| task["upid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = listed(json!({"outcome": "ok"})).await;
    let mut upids = Vec::new();
    for (tool, exit) in [
        ("start_vm", TaskExit::Failed("start failed".to_owned())),
        ("start_vm", TaskExit::Warnings(1)),
        ("stop_vm", TaskExit::Ok),
    ] {
        stage.alpha().next_task_exit(exit);
        let upid = hands.call(tool, guest(104)).await.unwrap()["upid"].clone();
        let task = json!({"cluster": "alpha", "upid": upid});
        while hands.call("get_task_status", task.clone()).await.unwrap()["status"] == "running" {}
        upids.push(upid.as_str().unwrap().to_owned());
    }
    stage.alpha().hold_tasks(true);
    let upid = hands.call("start_vm", guest(104)).await.unwrap()["upid"].as_str().unwrap().to_owned();
    let [failed, warned, ok] = [&upids[0], &upids[1], &upids[2]].map(Clone::clone);
    assert_eq!(listed(json!({"outcome": "failed"})).await, [failed]);
    assert_eq!(listed(json!({"outcome": "warnings"})).await, std::slice::from_ref(&warned));
    assert_eq!(listed(json!({"outcome": "ok"})).await, [vec![ok, warned], before].concat());
    for running in [json!({"outcome": "running"}), json!({"outcome": "running", "source": "active"})] {
        assert_eq!(listed(running).await, std::slice::from_ref(&upid));
    }
    for (outcome, source) in [("running", "archive"), ("ok", "active"), ("failed", "active")] {
        let arguments = json!({"cluster": "alpha", "node": "pve2", "outcome": outcome, "source": source});
        let refused = hands.call("list_tasks", arguments).await.unwrap_err();
        assert_eq!((&refused["code"], &refused["field"]), (&"invalid_argument".into(), &"outcome".into()));
    }
    stage.alpha().hold_tasks(false);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_from_where_one_asks_and_a_missing_one_is_said_to_be_missing() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let tasks = reader.call("list_tasks", json!({"cluster": "alpha", "node": "pve1"})).await.unwrap();
    let upid = tasks["items"][0]["upid"].clone();
    let all = reader.call("get_task_log", json!({"cluster": "alpha", "upid": upid})).await.unwrap();
    let lines = all["items"].as_array().unwrap();
    assert_eq!((&all["total"], &all["has_more"]), (&lines.len().into(), &false.into()));
    let last = json!({"cluster": "alpha", "upid": upid, "offset": lines.len() - 1, "limit": 1});
    let last = reader.call("get_task_log", last).await.unwrap();
    assert_eq!((&last["items"][0], &last["has_more"]), (&lines[lines.len() - 1], &false.into()));
    let unknown = "UPID:pve1:0000ABCD:00123456:65A00001:qmstart:100:root@pam:";
    let refused =
        reader.call("get_task_log", json!({"cluster": "alpha", "upid": unknown})).await.unwrap_err();
    assert_eq!(refused["code"], "not_found");
    let refused =
        reader.call("get_task_status", json!({"cluster": "alpha", "upid": unknown})).await.unwrap_err();
    assert_eq!(refused["code"], "not_found");
    server.stop().await;
}

/// A41: before PVE 9 there are no HA rules.
#[tokio::test(flavor = "multi_thread")]
async fn what_this_version_of_pve_does_not_have_is_said_to_be_missing_there() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let none = says(501, "Method 'GET /cluster/ha/rules' not implemented");
    stage.alpha().inject(Fault::always("GET", "/cluster/ha/rules", none));
    let refused = reader.call("list_ha_rules", json!({"cluster": "alpha"})).await.unwrap_err();
    assert_eq!(refused["code"], "unsupported");
    assert!(refused["message"].as_str().unwrap().contains("version"), "{refused}");
    server.stop().await;
}
