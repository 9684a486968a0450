//! Paging, projection and size, over the whole stack.

use bytes::Bytes;
use lab::{Action, Fault};
use serde_json::{Value, json};

use crate::support::{Client, Stage};

/// Every page of a list, one item at a time.
async fn one_by_one(client: &Client, tool: &str, arguments: &Value) -> Vec<Value> {
    let mut items = Vec::new();
    loop {
        let mut arguments = arguments.clone();
        arguments["offset"] = items.len().into();
        // Models write numbers as text now and then.
        arguments["limit"] = "1".into();
        let page = client.call(tool, arguments).await.unwrap();
        let more = page["has_more"] == true;
        let found = page["items"].as_array().unwrap();
        assert!(found.len() == usize::from(!found.is_empty()), "{page}");
        items.extend(found.iter().cloned());
        if !more {
            return items;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_pages_without_gap_or_repetition() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let cluster = json!({"cluster": "alpha"});
    let node = json!({"cluster": "alpha", "node": "pve1"});
    let backups = json!({"cluster": "alpha", "node": "pve1", "storage": "backup"});
    for (tool, arguments) in [
        ("get_vms", &cluster),
        ("get_nodes", &cluster),
        ("find_guests", &json!({})),
        ("list_clusters", &json!({})),
        ("list_tasks", &node),
        ("list_backups", &backups),
        ("get_cluster_firewall_rules", &cluster),
        ("list_snapshots", &json!({"cluster": "alpha", "vmid": 100})),
    ] {
        let whole = reader.call(tool, arguments.clone()).await.unwrap();
        let whole = whole["items"].as_array().unwrap();
        assert!(whole.len() >= 2, "{tool}");
        let paged = one_by_one(&reader, tool, arguments).await;
        assert_eq!(paged.len(), whole.len(), "{tool}");
        // Load may move between two calls; what identifies a row does not.
        for (paged, whole) in paged.iter().zip(whole) {
            for key in ["vmid", "cluster", "node", "upid", "volid", "pos", "name"] {
                assert_eq!(paged.get(key), whole.get(key), "{tool}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_by_name() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    for (more, field) in [
        (json!({"limit": 701}), "limit"),
        (json!({"limit": 0}), "limit"),
        (json!({"limit": "07"}), "limit"),
        (json!({"offset": -1}), "offset"),
        (json!({"fields": ["vmid", "no_such"]}), "fields"),
        (json!({"fields": "vmid"}), "fields"),
        (json!({"page": 2}), "page"),
    ] {
        let mut arguments = json!({"cluster": "alpha"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = reader.call("get_vms", arguments).await.unwrap_err();
        assert_eq!(
            (&refused["code"], &refused["field"]),
            (&"invalid_argument".into(), &field.into()),
            "{refused}"
        );
    }
    let kept = reader.call("get_vms", json!({"cluster": "alpha", "fields": ["vmid", "name"], "limit": 1}));
    assert_eq!(kept.await.unwrap()["items"], json!([{"vmid": 100, "name": "web"}]));
    server.stop().await;
}

/// Nothing that is no name of PVE's becomes part of a request.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_could_bend_a_path_are_refused_before_a_request_is_made() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    stage.alpha().clear_requests();
    let with = |field: &'static str, value: &str| {
        let mut arguments = json!({"cluster": "alpha"});
        arguments[field] = value.into();
        arguments
    };
    for bent in ["..", "pve1/../pve2", "pve1\n", "pve1%2f", "", "pve1?x=1", "pvé"] {
        for tool in ["get_node_status", "get_storage", "get_node_firewall_rules", "list_tasks"] {
            let refused = reader.call(tool, with("node", bent)).await.unwrap_err();
            assert_eq!(refused["field"], "node", "{tool} {bent:?}: {refused}");
        }
        for tool in ["list_isos", "list_templates", "list_backups"] {
            let mut arguments = with("storage", bent);
            arguments["node"] = "pve1".into();
            let refused = reader.call(tool, arguments).await.unwrap_err();
            assert_eq!(refused["field"], "storage", "{tool} {bent:?}: {refused}");
        }
        for (tool, field) in [
            ("get_task_status", "upid"),
            ("get_task_log", "upid"),
            ("get_ha_rule", "rule"),
            ("get_firewall_ipset_entries", "ipset"),
            ("get_firewall_security_group_rules", "group"),
        ] {
            let refused = reader.call(tool, with(field, bent)).await.unwrap_err();
            assert_eq!(refused["field"], field, "{tool} {bent:?}: {refused}");
        }
    }
    assert!(stage.alpha().requests().is_empty(), "{:?}", stage.alpha().requests());
    server.stop().await;
}

/// E12: however much there is, a page is small, says how much there is, and where to go on.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_thousands_are_given_in_pages_that_a_client_can_hold() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let guests = |i: u32| json!({"type": "qemu", "vmid": 1000 + i, "node": "pve1", "status": "running", "name": format!("vm-{i}")});
    let guests: Vec<Value> = (0..2_000).map(guests).collect();
    let backups = |i: u32| json!({"volid": format!("backup:backup/vzdump-qemu-100-{i:05}.vma.zst"), "content": "backup", "vmid": 100, "size": i});
    let backups: Vec<Value> = (0..10_000).map(backups).collect();
    for (path, body) in [
        ("/cluster/resources", json!({"data": guests})),
        ("/nodes/{node}/storage/{storage}/content", json!({"data": backups})),
    ] {
        stage.alpha().inject(Fault::always("GET", path, Action::Raw(body.to_string().into())));
    }
    let cluster = json!({"cluster": "alpha"});
    for (tool, arguments, total) in [
        ("get_vms", cluster.clone(), 2_000),
        ("find_guests", cluster, 2_000),
        ("list_backups", json!({"cluster": "alpha", "node": "pve1", "storage": "backup"}), 10_000),
    ] {
        let answer = reader.rpc("tools/call", json!({"name": tool, "arguments": arguments.clone()})).await;
        assert!(answer.body.len() <= 512 * 1024, "{tool}: {}", answer.body.len());
        let page = answer.json()["result"]["structuredContent"].clone();
        let items = page["items"].as_array().unwrap();
        assert!((1..=500).contains(&items.len()), "{tool}: {}", items.len());
        assert_eq!((&page["total"], &page["has_more"]), (&total.into(), &true.into()), "{tool}");
        let mut next = arguments;
        next["offset"] = items.len().into();
        next["limit"] = 1.into();
        let next = reader.call(tool, next).await.unwrap();
        assert_ne!(next["items"][0], items[items.len() - 1], "{tool}");
        assert_eq!(next["offset"], items.len(), "{tool}");
    }

    // PVE gives a log in pages itself; 50,000 lines are never asked for at once.
    let tasks = reader.call("list_tasks", json!({"cluster": "alpha", "node": "pve1"})).await.unwrap();
    let upid = tasks["items"][0]["upid"].clone();
    let lines: Vec<Value> = (1..=500).map(|n| json!({"n": n, "t": "x".repeat(80)})).collect();
    let log = json!({"data": lines, "total": 50_000});
    let path = "/nodes/{node}/tasks/{upid}/log";
    stage.alpha().inject(Fault::always("GET", path, Action::Raw(log.to_string().into())));
    stage.alpha().clear_requests();
    let page = reader.call("get_task_log", json!({"cluster": "alpha", "upid": upid})).await.unwrap();
    assert_eq!((&page["total"], &page["has_more"]), (&50_000.into(), &true.into()));
    let asked = stage.alpha().requests().into_iter().find(|request| request.path.ends_with("/log")).unwrap();
    assert_eq!(asked.params["limit"], page["limit"].to_string());
    server.stop().await;
}

/// Both copies count, as they are on the wire.
#[tokio::test(flavor = "multi_thread")]
async fn mc_08_no_answer_exceeds_the_cap_however_long_its_rows_are() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let tags = "tag-\\\"of-a-hundred-and-some-characters;".repeat(30);
    let rows: Vec<Value> = (0..700)
        .map(|i| json!({"type": "qemu", "vmid": 1000 + i, "node": "pve1", "status": "running", "name": "x".repeat(60), "tags": tags}))
        .collect();
    let body = Bytes::from(json!({"data": rows}).to_string());
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", Action::Raw(body)));
    let mut seen = 0;
    loop {
        let arguments = json!({"cluster": "alpha", "offset": seen, "limit": 700});
        let answer = reader.rpc("tools/call", json!({"name": "get_vms", "arguments": arguments})).await;
        assert!(answer.body.len() <= 512 * 1024, "{}", answer.body.len());
        let page = answer.json()["result"]["structuredContent"].clone();
        let items = page["items"].as_array().unwrap();
        assert!(!items.is_empty(), "a page that says there is more must lead on");
        assert_eq!(items[0]["vmid"], 1000 + seen);
        seen += items.len();
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(seen, 700);
    server.stop().await;
}
