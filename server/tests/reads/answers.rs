//! What each read answers to a token that may read everything.

use std::collections::BTreeSet;

use authz::Tier;
use mcp_wire::schema::Validator;
use proxward::catalog;
use serde_json::{Value, json};

use crate::support::reads::every_read;
use crate::support::{AGENT, Rights, Stage};

fn cluster() -> Value {
    json!({"cluster": "alpha"})
}

fn guest(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid})
}

/// A tool that is added without a row in `every_read` fails here.
#[tokio::test(flavor = "multi_thread")]
async fn mc_07_every_read_answers_what_its_schema_promises() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let (reader, agent) = (stage.client(server.address, "reader"), stage.client(server.address, "agent"));
    let listed = reader.rpc("tools/list", json!({})).await.json();
    let listed = listed["result"]["tools"].as_array().unwrap();
    let mut called = BTreeSet::new();
    for (tool, arguments) in every_read(&reader, &agent, ("alpha", 104)).await {
        let answer = reader.call(tool, arguments).await.unwrap_or_else(|refused| panic!("{tool}: {refused}"));
        let described = listed.iter().find(|described| described["name"] == tool).unwrap();
        assert_eq!(described["annotations"]["readOnlyHint"], true, "{tool}");
        let mut schema = described["outputSchema"].clone();
        if tool == "get_proxmox_change_set" {
            // Its shape is promised and may grow.
            schema["additionalProperties"] = true.into();
        }
        let schema = Validator::new(&schema).unwrap();
        let object = answer.as_object().unwrap();
        let checked =
            schema.validate(object.clone()).unwrap_or_else(|problem| panic!("{tool}: {problem} in {answer}"));
        // Validation bends text into numbers; an answer must not need that.
        assert_eq!(&checked, object, "{tool}");
        assert!(!object.is_empty(), "{tool}");
        if let Some(items) = object.get("items") {
            assert!(
                !items.as_array().unwrap().is_empty() || tool.contains("node_firewall"),
                "{tool}: {answer}"
            );
            assert_eq!(answer["offset"], 0, "{tool}");
            assert!(answer.get("skipped").is_none_or(|skipped| *skipped == 0), "{tool}: {answer}");
        }
        called.insert(tool);
    }
    let reads: BTreeSet<&str> = catalog::all()
        .filter(|spec| spec.rule.tier == Tier::Read && !spec.needs_transfers)
        .map(catalog::ToolSpec::name)
        .collect();
    assert_eq!(called, reads);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_are_shown_with_where_they_are_and_what_they_do() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let vms = reader.call("get_vms", cluster()).await.unwrap();
    assert_eq!((&vms["total"], &vms["items"][0]["vmid"]), (&8.into(), &100.into()));
    assert_eq!(vms["items"][0]["tags"], json!(["prod", "web"]));
    let config = reader.call("get_container_config", guest(200)).await.unwrap();
    assert_eq!((&config["vmid"], &config["node"]), (&200.into(), &"pve1".into()));
    assert_eq!(config["config"]["hostname"], "files");
    assert_eq!(config["digest"].as_str().unwrap().len(), 40);
    let snapshots = reader.call("list_snapshots", guest(100)).await.unwrap();
    let names: Vec<&Value> =
        snapshots["items"].as_array().unwrap().iter().map(|snapshot| &snapshot["name"]).collect();
    // A46: the present state is no snapshot.
    assert_eq!(names, ["clean", "before-update"]);
    assert_eq!((&snapshots["total"], &snapshots["current_parent"]), (&2.into(), &"before-update".into()));
    let none = reader.call("list_snapshots", guest(104)).await.unwrap();
    assert_eq!((&none["total"], none.get("current_parent")), (&0.into(), None));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_come_from_the_agent_or_the_node() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    for (tool, vmid) in [("get_vm_ip", 100), ("get_container_ip", 200)] {
        let found = reader.call(tool, guest(vmid)).await.unwrap();
        let addresses = found["addresses"].as_array().unwrap();
        assert!(!addresses.is_empty(), "{found}");
        for address in addresses {
            let address = address.as_str().unwrap();
            assert!(!address.starts_with("127.") && !address.starts_with("fe80"), "{address}");
        }
        let names: Vec<&Value> =
            found["interfaces"].as_array().unwrap().iter().map(|found| &found["name"]).collect();
        assert!(names.len() >= 2 && names.contains(&&json!("lo")), "{found}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_storages_tell_what_can_be_used() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let status = reader.call("get_cluster_status", cluster()).await.unwrap();
    assert_eq!((&status["quorate"], &status["nodes_online"]), (&true.into(), &2.into()));
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    // A10: what an offline node does not tell is missing, not 0.
    let nodes = reader.call("get_nodes", cluster()).await.unwrap();
    let offline = &nodes["items"][2];
    assert_eq!((&offline["node"], &offline["status"]), (&"pve3".into(), &"offline".into()));
    assert_eq!(offline.get("mem"), None, "{offline}");
    let node = reader.call("get_node_status", json!({"cluster": "alpha", "node": "pve1"})).await.unwrap();
    assert!(node["memory"]["total"].as_u64().unwrap() > 0, "{node}");
    let storages = reader.call("get_storage", json!({"cluster": "alpha", "node": "pve1"})).await.unwrap();
    let names: Vec<&Value> =
        storages["items"].as_array().unwrap().iter().map(|storage| &storage["storage"]).collect();
    assert_eq!(names, ["backup", "local", "local-lvm"]);
    assert!(storages["items"].as_array().unwrap().iter().all(|storage| storage["usable"] == true));
    let isos = json!({"cluster": "alpha", "node": "pve1", "storage": "local"});
    let isos = reader.call("list_isos", isos).await.unwrap();
    let volids: Vec<&str> =
        isos["items"].as_array().unwrap().iter().map(|iso| iso["volid"].as_str().unwrap()).collect();
    assert!(volids.is_sorted() && volids.iter().all(|volid| volid.starts_with("local:iso/")), "{volids:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn firewalls_and_ha_rules_are_told_in_their_order() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let rules = reader.call("get_guest_firewall_rules", guest(100)).await.unwrap();
    let shown: Vec<(u64, &str)> = rules["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (rule["pos"].as_u64().unwrap(), rule["action"].as_str().unwrap()))
        .collect();
    assert_eq!(shown, [(0, "web"), (1, "ACCEPT"), (2, "ACCEPT")]);
    let options = reader.call("get_guest_firewall_options", guest(200)).await.unwrap();
    assert_eq!((&options["enable"], &options["policy_in"]), (&false.into(), &"DROP".into()));
    let options = reader.call("get_cluster_firewall_options", cluster()).await.unwrap();
    assert_eq!(options["enable"], true);
    let entries = json!({"cluster": "alpha", "ipset": "management"});
    let entries = reader.call("get_firewall_ipset_entries", entries).await.unwrap();
    assert_eq!(entries["total"], 3);
    assert!(entries["items"].as_array().unwrap().iter().any(|entry| entry["nomatch"] == true));
    let rule = json!({"cluster": "alpha", "rule": "archive-on-pve2"});
    let rule = reader.call("get_ha_rule", rule).await.unwrap();
    assert_eq!((&rule["resources"], &rule["type"]), (&json!(["ct:203"]), &"node-affinity".into()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoami_tells_what_is_missing_for_which_tool() {
    let mut stage = Stage::new().await;
    let narrow = Rights {
        tools: &["*", "start_vm"],
        guests: &["vmid:100"],
        actions: &["read"],
        clusters: &["beta"],
        ..AGENT
    };
    stage.token("narrow", narrow);
    let server = stage.serve().await;
    let client = stage.client(server.address, "narrow");
    stage.alpha().clear_requests();
    let who = client.call("whoami", json!({})).await.unwrap();
    assert!(stage.alpha().requests().is_empty());
    assert_eq!(
        (&who["token"], &who["person"], &who["actor_type"]),
        (&"narrow".into(), &"robin".into(), &"agent".into())
    );
    assert_eq!(who["clusters"], json!(["beta"]));
    assert_eq!(who["grant"], json!({"guests": ["vmid:100"], "actions": ["read"]}));
    let missing = |name: &str| {
        let missing = who["missing"].as_array().unwrap();
        missing.iter().find(|entry| entry["name"] == name).map(|entry| entry["missing"].clone())
    };
    assert_eq!(missing("get_vms"), None);
    assert_eq!(missing("start_vm"), Some(json!(["the action `low`"])));
    assert_eq!(missing("stop_vm"), Some(json!(["the scope `stop_vm`", "the action `low`"])));
    assert_eq!(missing("get_node_status"), Some(json!(["the guest scope `*` with the action `read`"])));
    assert!(missing("delete_vm").is_some() && missing("approve_proxmox_change_set").is_some());
    // What it says it can call is what is listed, in the same order.
    assert_eq!(who["tools"], json!(client.tools().await));
    assert_eq!(client.tools().await, client.tools().await);
    server.stop().await;
}
