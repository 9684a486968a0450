//! What a token sees that may not read every guest: its own, counted as if there were nothing else.

use bytes::Bytes;
use lab::{Action, Fault};
use proxward::catalog::{self, Addresses};
use serde_json::{Value, json};

use crate::support::{AGENT, READER, Rights, Stage};

const NARROW: Rights<'static> = Rights { guests: &["vmid:100", "vmid:200", "vmid:130"], ..READER };

fn guest(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid})
}

fn numbers(list: &Value, key: &str) -> Vec<u64> {
    list["items"].as_array().unwrap().iter().map(|item| item[key].as_u64().unwrap()).collect()
}

/// Over the catalog, so that a new read of a whole place cannot be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn gr_14_reads_of_a_whole_place_need_every_guest_and_ask_nobody_before() {
    let mut stage = Stage::new().await;
    stage.token("narrow", NARROW);
    stage.token("low-only", Rights { guests: &["*"], actions: &["low"], ..READER });
    let server = stage.serve().await;
    stage.alpha().clear_requests();
    for token in ["narrow", "low-only"] {
        let client = stage.client(server.address, token);
        let listed = client.tools().await;
        let mut whole = 0;
        for spec in catalog::all().filter(|spec| matches!(spec.addresses, Addresses::Whole(_))) {
            whole += 1;
            let mut arguments = json!({"cluster": "alpha"});
            for required in (spec.input)().unwrap()["required"].as_array().into_iter().flatten() {
                arguments[required.as_str().unwrap()] = "pve1".into();
            }
            let refused = client.call(spec.name(), arguments).await.unwrap_err();
            assert_eq!(refused["code"], "insufficient_scope", "{}: {refused}", spec.name());
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains(token) && message.contains("`*`"), "{message}");
            assert!(!listed.iter().any(|name| name == spec.name()), "{} is listed", spec.name());
        }
        assert!(whole >= 14, "{whole}");
    }
    assert!(stage.alpha().requests().is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_14_lists_hold_and_count_only_what_is_in_scope() {
    let mut stage = Stage::new().await;
    stage.token("narrow", NARROW);
    stage.token("nothing", Rights { guests: &["vmid:999"], ..READER });
    stage.token("by-tag", Rights { guests: &["tag:dev"], ..READER });
    stage.token("by-pool", Rights { guests: &["pool:sandbox"], ..READER });
    let server = stage.serve().await;
    let narrow = stage.client(server.address, "narrow");
    let cluster = || json!({"cluster": "alpha"});

    let vms = narrow.call("get_vms", cluster()).await.unwrap();
    assert_eq!((numbers(&vms, "vmid"), &vms["total"]), (vec![100, 130], &2.into()));
    let containers = narrow.call("get_containers", cluster()).await.unwrap();
    assert_eq!((numbers(&containers, "vmid"), &containers["total"]), (vec![200], &1.into()));
    // `vmid:100` holds the number in every cluster of the token.
    let found = narrow.call("find_guests", json!({})).await.unwrap();
    assert_eq!((numbers(&found, "vmid"), &found["total"]), (vec![100, 130, 200, 100], &4.into()));

    // Load is the sum of what all guests do; so is the number of nodes that hold none of one's own.
    let nodes = narrow.call("get_nodes", cluster()).await.unwrap();
    assert_eq!(
        nodes["items"],
        json!([{"node": "pve1", "status": "online"}, {"node": "pve3", "status": "offline"}])
    );
    assert_eq!(nodes["total"], 2);

    let clusters = narrow.call("list_clusters", json!({})).await.unwrap();
    let alpha = &clusters["items"][0];
    assert_eq!((&alpha["cluster"], &alpha["guests"]), (&"alpha".into(), &3.into()));
    assert!(alpha.get("nodes").is_none() && alpha.get("quorate").is_none(), "{alpha}");

    let backups = json!({"cluster": "alpha", "node": "pve1", "storage": "backup"});
    let shown = narrow.call("list_backups", backups.clone()).await.unwrap();
    assert_eq!((numbers(&shown, "vmid"), &shown["total"]), (vec![200, 100], &2.into()));

    let nothing = stage.client(server.address, "nothing");
    for (tool, arguments) in [
        ("get_vms", cluster()),
        ("get_nodes", cluster()),
        ("find_guests", json!({})),
        ("list_backups", backups),
        ("list_ha_rules", cluster()),
    ] {
        let list = nothing.call(tool, arguments).await.unwrap();
        assert_eq!(
            (&list["items"], &list["total"], &list["has_more"]),
            (&json!([]), &0.into(), &false.into()),
            "{tool}"
        );
    }
    let by_tag = stage.client(server.address, "by-tag").call("find_guests", cluster()).await.unwrap();
    assert_eq!(numbers(&by_tag, "vmid"), [102, 104, 105, 201, 202]);
    let by_pool = stage.client(server.address, "by-pool").call("find_guests", json!({})).await.unwrap();
    assert_eq!(numbers(&by_pool, "vmid"), [104, 201]);
    server.stop().await;
}

/// Not there, not yours: the same bytes after the same requests, for every tool on a guest.
#[tokio::test(flavor = "multi_thread")]
async fn gr_10_a_guest_outside_the_scope_costs_and_reads_like_one_that_is_not_there() {
    let mut stage = Stage::with_policy(without_cache()).await;
    stage.token("narrow", NARROW);
    let server = stage.serve().await;
    let narrow = stage.client(server.address, "narrow");
    let mut tried = 0;
    for spec in catalog::all().filter(|spec| spec.rule.wildcard) {
        if !matches!(spec.addresses, Addresses::Guest(_)) {
            continue;
        }
        tried += 1;
        let mut seen = Vec::new();
        // Another's virtual machine, another's container, one that is protected, one on an offline node, none at all.
        for vmid in [104, 201, 101, 230, 998] {
            let mut arguments = guest(vmid);
            for required in (spec.input)().unwrap()["required"].as_array().into_iter().flatten() {
                if required != "vmid" {
                    arguments[required.as_str().unwrap()] = "monitors".into();
                }
            }
            // Not even a wrong node is told.
            arguments["node"] = "pve9".into();
            stage.alpha().clear_requests();
            let answer = narrow.rpc("tools/call", json!({"name": spec.name(), "arguments": arguments})).await;
            let asked: Vec<String> =
                stage.alpha().requests().into_iter().map(|request| request.path).collect();
            seen.push((answer.body, asked));
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{}: {seen:?}", spec.name());
        assert_eq!(seen[0].1, ["/cluster/resources"], "{}", spec.name());
    }
    assert!(tried >= 11, "{tried}");
    // The same where a guest only narrows a list.
    for (tool, mut arguments) in [
        ("list_tasks", json!({"cluster": "alpha", "node": "pve1"})),
        ("list_backups", json!({"cluster": "alpha", "node": "pve1", "storage": "backup"})),
    ] {
        let mut seen = Vec::new();
        for vmid in [104, 998] {
            arguments["vmid"] = vmid.into();
            stage.alpha().clear_requests();
            let refused = narrow.call(tool, arguments.clone()).await.unwrap_err();
            seen.push((refused, stage.alpha().requests().len()));
        }
        assert_eq!(seen[0], seen[1], "{tool}");
        assert_eq!(seen[0].0["message"], "authorization failed", "{tool}");
    }
    server.stop().await;
}

fn without_cache() -> Value {
    let mut policy = crate::support::roomy();
    policy["resource_cache_ttl_secs"] = 0.into();
    policy
}

/// A cluster that does not exist and one of somebody else's are one, for every tool that names a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn gr_11_an_unknown_cluster_is_a_forbidden_one() {
    let mut stage = Stage::new().await;
    stage.token("beta-only", Rights { clusters: &["beta"], ..READER });
    let server = stage.serve().await;
    let client = stage.client(server.address, "beta-only");
    stage.alpha().clear_requests();
    let mut tried = 0;
    for spec in catalog::all().filter(|spec| spec.rule.wildcard) {
        let schema = (spec.input)().unwrap();
        let named = spec.addresses.needs_cluster() || spec.addresses == Addresses::Clusters;
        if !named || schema["properties"].get("cluster").is_none() {
            continue;
        }
        tried += 1;
        let mut arguments = json!({});
        for required in schema["required"].as_array().into_iter().flatten() {
            let required = required.as_str().unwrap();
            arguments[required] = if required == "vmid" { 100.into() } else { "pve1".into() };
        }
        let mut seen = Vec::new();
        for cluster in ["alpha", "ALPHA", "gamma", "beta ", "\u{0430}lpha"] {
            arguments["cluster"] = cluster.into();
            let refused = client.call(spec.name(), arguments.clone()).await.unwrap_err();
            assert_eq!(refused["code"], "cluster_unavailable", "{} {cluster}: {refused}", spec.name());
            seen.push(refused["message"].as_str().unwrap().replace(&format!("`{cluster}`"), "`…`"));
        }
        assert_eq!(seen[0], seen[2], "{}", spec.name());
        // Several clusters are configured and one may be used: which one is still to be said.
        if spec.addresses.needs_cluster() {
            arguments.as_object_mut().unwrap().remove("cluster");
            let refused = client.call(spec.name(), arguments).await.unwrap_err();
            assert_eq!(refused["field"], "cluster", "{}", spec.name());
        }
    }
    assert!(tried >= 30, "{tried}");
    assert!(stage.alpha().requests().is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wrong_kind_is_told_inside_the_scope_and_asks_nothing_of_the_guest() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    for (tool, vmid) in
        [("get_vm_config", 200), ("get_vm_ip", 200), ("get_container_config", 100), ("get_container_ip", 100)]
    {
        stage.alpha().clear_requests();
        let refused = reader.call(tool, guest(vmid)).await.unwrap_err();
        assert_eq!(refused["code"], "wrong_guest_kind", "{tool}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(tool) && message.contains(&vmid.to_string()), "{message}");
        assert!(
            stage.alpha().requests().iter().all(|request| request.path == "/cluster/resources"),
            "{tool}"
        );
    }
    let mut arguments = guest(200);
    arguments["node"] = "pve2".into();
    let refused = reader.call("get_container_ip", arguments).await.unwrap_err();
    assert_eq!(refused["code"], "wrong_node");
    server.stop().await;
}

/// A task belongs to a guest by its worker's type: `cephdestroyosd:100` is no guest 100.
#[tokio::test(flavor = "multi_thread")]
async fn gr_15_a_task_belongs_to_its_guest_by_its_workers_type() {
    let mut stage = Stage::new().await;
    stage.token("narrow", NARROW);
    let server = stage.serve().await;
    let (narrow, reader) = (stage.client(server.address, "narrow"), stage.client(server.address, "reader"));
    let upid = |kind: &str, id: &str| format!("UPID:pve1:0000ABCD:00123456:65A00001:{kind}:{id}:root@pam:");
    let rows: Vec<Value> = [
        ("qmstart", "100"),
        ("cephdestroyosd", "100"),
        ("qmstop", "104"),
        ("vzdump", ""),
        ("vzstart", "200"),
    ]
    .iter()
    .map(|(kind, id)| json!({"upid": upid(kind, id), "status": "OK", "endtime": 1_705_000_100}))
    .collect();
    let body = Bytes::from(json!({"data": rows, "total": 4711}).to_string());
    stage.alpha().inject(Fault::always("GET", "/nodes/{node}/tasks", Action::Raw(body)));
    let list = json!({"cluster": "alpha", "node": "pve1"});
    let shown = narrow.call("list_tasks", list.clone()).await.unwrap();
    assert_eq!(numbers(&shown, "vmid"), [100, 200]);
    assert_eq!((shown.get("total"), &shown["has_more"]), (None, &false.into()), "{shown}");
    // Its pages count its own tasks alone.
    let second = json!({"cluster": "alpha", "node": "pve1", "offset": 1, "limit": 1});
    assert_eq!(numbers(&narrow.call("list_tasks", second).await.unwrap(), "vmid"), [200]);
    let all = reader.call("list_tasks", list).await.unwrap();
    assert_eq!((all["items"].as_array().unwrap().len(), &all["total"]), (5, &4711.into()));
    assert_eq!(all["has_more"], true);

    for tool in ["get_task_status", "get_task_log"] {
        let mut seen = Vec::new();
        for (kind, id) in [
            ("cephdestroyosd", "100"),
            ("qmstop", "104"),
            ("qmstop", "998"),
            ("vzdump", ""),
            ("vncshell", ""),
        ] {
            let task = json!({"cluster": "alpha", "upid": upid(kind, id)});
            seen.push(narrow.rpc("tools/call", json!({"name": tool, "arguments": task})).await.body);
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{tool}: {seen:?}");
        assert!(String::from_utf8_lossy(&seen[0]).contains("authorization failed"), "{tool}");
        // Its own task, which this cluster does not know, is told to be unknown.
        let own = json!({"cluster": "alpha", "upid": upid("qmstart", "100")});
        assert_eq!(narrow.call(tool, own).await.unwrap_err()["code"], "not_found", "{tool}");
    }
    server.stop().await;
}

/// What is left of a guest belongs to those whose range holds its number; a tag cannot tell any more.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_backups_of_a_guest_that_is_gone_stay_with_its_number() {
    let mut stage = Stage::with_policy(without_cache()).await;
    stage.token("by-number", Rights { guests: &["vmid:200-209"], ..READER });
    stage.token("by-tag", Rights { guests: &["tag:dev"], ..READER });
    let server = stage.serve().await;
    let backups = json!({"cluster": "alpha", "node": "pve1", "storage": "backup", "vmid": 201});
    let (by_number, by_tag) =
        (stage.client(server.address, "by-number"), stage.client(server.address, "by-tag"));
    for client in [&by_number, &by_tag] {
        assert_eq!(client.call("list_backups", backups.clone()).await.unwrap()["total"], 1);
    }
    stage.alpha().remove(201).unwrap();
    assert_eq!(by_number.call("list_backups", backups.clone()).await.unwrap()["total"], 1);
    assert_eq!(by_tag.call("list_backups", backups).await.unwrap_err()["message"], "authorization failed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ha_rule_shows_only_ones_own_guests_and_is_absent_without_them() {
    let mut stage = Stage::new().await;
    stage.token("narrow", NARROW);
    let server = stage.serve().await;
    let rules = json!({"data": [
        {"rule": "both", "type": "resource-affinity", "affinity": "negative", "resources": "vm:100,vm:104", "comment": "keep 104 away"},
        {"rule": "mine", "type": "node-affinity", "resources": "ct:200", "nodes": "pve1:2,pve2", "strict": 1, "comment": "close"},
        {"rule": "theirs", "type": "node-affinity", "resources": "vm:104", "nodes": "pve2"},
        {"rule": "odd", "type": "node-affinity", "resources": "vm:banana", "nodes": "pve2"},
    ]});
    stage.alpha().inject(Fault::always("GET", "/cluster/ha/rules", Action::Raw(rules.to_string().into())));
    let (narrow, reader) = (stage.client(server.address, "narrow"), stage.client(server.address, "reader"));
    let list = json!({"cluster": "alpha"});
    assert_eq!(reader.call("list_ha_rules", list.clone()).await.unwrap()["total"], 4);
    let shown = narrow.call("list_ha_rules", list).await.unwrap();
    assert_eq!(shown["total"], 2);
    let (both, mine) = (&shown["items"][0], &shown["items"][1]);
    assert_eq!(
        (&both["rule"], &both["resources"], both.get("comment")),
        (&"both".into(), &json!(["vm:100"]), None)
    );
    assert_eq!(
        (&mine["rule"], &mine["comment"], &mine["strict"]),
        (&"mine".into(), &"close".into(), &true.into())
    );
    let mut seen = Vec::new();
    for rule in ["theirs", "odd", "absent"] {
        stage.alpha().clear_requests();
        let call = json!({"name": "get_ha_rule", "arguments": {"cluster": "alpha", "rule": rule}});
        let answer = narrow.rpc("tools/call", call).await.body;
        seen.push((answer, stage.alpha().requests().len()));
    }
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    let one = narrow.call("get_ha_rule", json!({"cluster": "alpha", "rule": "both"})).await.unwrap();
    assert_eq!(&one, both);
    server.stop().await;
}

/// `tools: ["*"]` reaches every one of these reads, and a token without a grant gets nothing through them.
#[tokio::test(flavor = "multi_thread")]
async fn gr_01_without_read_in_its_grant_a_token_reads_no_guest() {
    let mut stage = Stage::new().await;
    stage.token(
        "low",
        Rights { tools: &["*", "start_vm"], guests: &["vmid:100"], actions: &["low"], ..AGENT },
    );
    let server = stage.serve().await;
    let low = stage.client(server.address, "low");
    let listed = low.tools().await;
    for tool in ["get_guest_status", "get_vm_config", "list_snapshots", "get_guest_firewall_rules"] {
        assert!(!listed.contains(&tool.to_owned()), "{tool}");
        // The guest is in scope for another action, so the refusal may explain itself.
        assert_eq!(low.call(tool, guest(100)).await.unwrap_err()["code"], "insufficient_scope", "{tool}");
    }
    for tool in ["get_vms", "get_nodes", "list_ha_rules"] {
        assert_eq!(low.call(tool, json!({"cluster": "alpha"})).await.unwrap()["total"], 0, "{tool}");
    }
    server.stop().await;
}
