//! Change sets about the firewall, HA rules, and the state itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/program.rs"]
mod program;
mod support;

use changes::{MACHINE, Set, VMID, code, named};
use serde_json::{Value, json};
use support::{AGENT, APPROVER, Rights, Stage};

const KEEPER: Rights<'static> = Rights {
    tools: &[
        "plan_firewall_change",
        "plan_ha_rule_change",
        "apply_firewall_change",
        "apply_proxmox_change_set",
        "get_proxmox_change_set",
        "cancel_change_set",
    ],
    ..AGENT
};

async fn set() -> Set {
    let mut stage = Stage::new().await;
    stage.token("keeper", KEEPER);
    stage.token("narrow", Rights { guests: &["vmid:100-299"], ..KEEPER });
    stage.token(
        "wall-approver",
        Rights { tools: &["approve_firewall_change", "get_proxmox_change_set"], ..APPROVER },
    );
    Set::of(stage).await
}

async fn firewall(set: &Set, arguments: Value) -> Result<Value, Value> {
    set.client("keeper").call("plan_firewall_change", arguments).await
}

async fn carry_out(set: &Set, plan: &Value) -> Value {
    let approve = json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"]});
    set.client("wall-approver").call("approve_firewall_change", approve).await.unwrap();
    set.client("keeper").call("apply_firewall_change", named(plan)).await.unwrap()
}

fn preview(plan: &Value) -> &str {
    plan["preview"].as_str().unwrap()
}

fn sent(set: &Set) -> Vec<String> {
    let requests = set.stage.alpha().requests();
    requests.iter().filter(|r| r.is_mutation()).map(|r| format!("{} {}", r.method, r.path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_would_lock_administrators_out_says_so_and_is_bound_to_its_list() {
    let set = set().await;
    let delete = json!({"cluster": "alpha", "scope": "cluster", "object": "rule", "op": "delete", "pos": 1});
    let plan = firewall(&set, delete.clone()).await.unwrap();
    for part in ["WARNING", "lock administrators out", "dport=\"8006\"", "delete rule 1"] {
        assert!(preview(&plan).contains(part), "{part} in {}", preview(&plan));
    }
    assert_eq!((&plan["target"], &plan["destructive"]), (&json!("firewall/cluster"), &json!(false)));
    assert_eq!(code(firewall(&set, delete).await), "already_pending");
    assert_eq!(carry_out(&set, &plan).await["state"], "applied");
    assert_eq!(sent(&set), ["DELETE /cluster/firewall/rules/1"]);
    let digest = |r: &lab::Recorded| r.params.get("digest").map_or(0, String::len);
    let request = set.stage.alpha().requests().into_iter().find(lab::Recorded::is_mutation).unwrap();
    assert!(digest(&request) >= 32, "the position is bound by PVE's digest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_moved_since_the_plan_refuses_the_apply() {
    let set = set().await;
    let rule = json!({"type": "in", "action": "ACCEPT", "proto": "tcp", "dport": "443"});
    let create =
        json!({"cluster": "alpha", "scope": "cluster", "object": "rule", "op": "create", "set": rule});
    let first = firewall(&set, create).await.unwrap();
    assert!(!preview(&first).contains("WARNING"), "{}", preview(&first));
    let mut stage_token = set.client("wall-approver");
    let approve = json!({"change_set_id": first["change_set_id"], "digest": first["digest"]});
    stage_token.call("approve_firewall_change", approve).await.unwrap();
    stage_token.bearer = None;
    // Somebody else adds a rule meanwhile.
    let cluster = set.server.app.live.load().cluster(Some("alpha")).unwrap().clone();
    let new = proxmox_api::NewRule::new(proxmox_api::RuleAction::Out(proxmox_api::Policy::Drop));
    cluster.client.add_firewall_rule(&proxmox_api::FirewallScope::Cluster, &new, None).await.unwrap();
    let moved = set.client("keeper").call("apply_firewall_change", named(&first)).await.unwrap_err();
    assert_eq!(moved["code"], "fingerprint_moved", "{moved}");
    assert_eq!(sent(&set).len(), 1, "only somebody else's");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_aliases_sets_and_groups_change_at_their_scopes() {
    let set = set().await;
    for (arguments, request) in [
        (
            json!({"scope": "cluster", "object": "options", "op": "update", "set": {"policy_out": "DROP"}}),
            "PUT /cluster/firewall/options",
        ),
        (
            json!({"scope": "cluster", "object": "alias", "op": "create", "name": "vpn", "cidr": "10.9.0.0/24"}),
            "POST /cluster/firewall/aliases",
        ),
        (
            json!({"scope": "cluster", "object": "ipset", "op": "create", "name": "ops"}),
            "POST /cluster/firewall/ipset",
        ),
        (
            json!({"scope": "cluster", "object": "ipset_entry", "op": "create", "name": "blocklist", "cidr": "198.51.100.0/24"}),
            "POST /cluster/firewall/ipset/blocklist",
        ),
        (
            json!({"scope": "cluster", "object": "group", "op": "delete", "name": "empty"}),
            "DELETE /cluster/firewall/groups/empty",
        ),
        (
            json!({"scope": "node", "node": "pve1", "object": "rule", "op": "delete", "pos": 0}),
            "DELETE /nodes/pve1/firewall/rules/0",
        ),
        (
            json!({"scope": "guest", "vmid": 100, "object": "rule", "op": "update", "pos": 2, "set": {"dport": "9200"}}),
            "PUT /nodes/pve1/qemu/100/firewall/rules/2",
        ),
    ] {
        let mut arguments = arguments;
        arguments["cluster"] = "alpha".into();
        set.stage.alpha().clear_requests();
        let plan = firewall(&set, arguments.clone())
            .await
            .unwrap_or_else(|refused| panic!("{arguments}: {refused}"));
        let done = carry_out(&set, &plan).await;
        assert_eq!(done["state"], "applied", "{arguments}: {done}");
        assert_eq!(sent(&set), [request], "{arguments}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firewall_change_that_could_never_be_is_refused_and_a_narrow_token_reaches_its_guests_only() {
    let set = set().await;
    for arguments in [
        json!({"scope": "cluster", "object": "rule", "op": "delete", "pos": 99}),
        json!({"scope": "cluster", "object": "alias", "op": "create", "name": "office", "cidr": "10.0.0.1"}),
        json!({"scope": "cluster", "object": "alias", "op": "delete", "name": "nope"}),
        json!({"scope": "cluster", "object": "rule", "op": "create", "set": {"type": "in", "action": "PERHAPS"}}),
        json!({"scope": "cluster", "object": "rule", "op": "create", "set": {"type": "in", "action": "DROP", "dport": "1"}}),
        json!({"scope": "cluster", "object": "options", "op": "update", "set": {"policy_in": "DROP"}}),
    ] {
        let mut arguments = arguments;
        arguments["cluster"] = "alpha".into();
        assert_eq!(code(firewall(&set, arguments.clone()).await), "plan_impossible", "{arguments}");
    }
    let cluster_wide =
        json!({"cluster": "alpha", "scope": "cluster", "object": "ipset", "op": "create", "name": "ops"});
    assert_eq!(
        code(set.client("narrow").call("plan_firewall_change", cluster_wide).await),
        "authorization_failed"
    );
    let guest = |vmid: u32| json!({"cluster": "alpha", "scope": "guest", "vmid": vmid, "object": "ipset", "op": "create", "name": "ops"});
    assert_eq!(code(set.client("narrow").call("plan_firewall_change", guest(101)).await), "protected");
    set.client("narrow").call("plan_firewall_change", guest(MACHINE)).await.unwrap();
    assert!(sent(&set).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ha_rule_shows_both_its_states_and_minds_protected_guests() {
    let set = set().await;
    let plan_ha = |arguments: Value| {
        let client = set.client("keeper");
        async move { client.call("plan_ha_rule_change", arguments).await }
    };
    let create = json!({"cluster": "alpha", "op": "ha_rule_create", "rule": "archive-home", "type": "node-affinity",
        "resources": ["ct:203"], "nodes": ["pve2"]});
    // 203 carries PVE's protection flag.
    assert_eq!(code(plan_ha(create.clone()).await), "plan_impossible");
    set.stage.alpha().set_protection(203, false).unwrap();
    // A guest can be in one rule about nodes only, so the one that is there goes first.
    let old = json!({"cluster": "alpha", "op": "ha_rule_delete", "rule": "archive-on-pve2"});
    let gone = carry_out(&set, &plan_ha(old).await.unwrap()).await;
    assert_eq!(gone["state"], "applied", "{gone}");
    let plan = plan_ha(create).await.unwrap();
    for part in ["(no such rule)", "nodes=\"pve2\"", "Guests              203"] {
        assert!(preview(&plan).contains(part), "{part} in {}", preview(&plan));
    }
    let done = carry_out(&set, &plan).await;
    assert_eq!(done["state"], "applied", "{done}");
    assert_eq!(sent(&set).last().map(String::as_str), Some("POST /cluster/ha/rules"));
    assert_eq!(sent(&set).len(), 2);
    assert_eq!(
        code(plan_ha(json!({"cluster": "alpha", "op": "ha_rule_delete", "rule": "nope"})).await),
        "plan_impossible"
    );
}

// === the state ===

fn state(stage: &Stage, line: &[&str]) -> (Option<i32>, String) {
    let mut all = vec!["state".to_owned()];
    all.extend(line.iter().map(|s| (*s).to_owned()));
    all.extend(["--state-dir".to_owned(), stage.path("state").display().to_string()]);
    let output = program::command(&all).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_34_the_state_can_be_checked_and_exported_beside_a_server() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let (status, text) = state(&set.stage, &["check"]);
    assert_eq!((status, text.contains("1 approved")), (Some(0), true), "{text}");
    let (status, text) = state(&set.stage, &["export"]);
    let line: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((status, &line["change_set_id"]), (Some(0), &plan["change_set_id"]));
    assert_eq!(line["plan"]["steps"][0]["params"]["vmid"], VMID.to_string());
    let (status, text) = state(&set.stage, &["acknowledge-rollback", "--note", "x"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("in use"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_36_an_older_copy_of_the_state_changes_nothing_until_a_person_accepts_it() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let Set { stage, server, .. } = set;
    server.stop().await;
    let files = ["state/state.db", "state/state.db-wal", "state/state.db-shm"];
    let copy = files.map(|name| std::fs::read(stage.path(name)).ok());
    let set = Set::with_server(stage).await;
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    let Set { stage, server, .. } = set;
    server.stop().await;
    for (name, copy) in files.iter().zip(copy) {
        match copy {
            Some(bytes) => std::fs::write(stage.path(name), bytes).unwrap(),
            None => drop(std::fs::remove_file(stage.path(name))),
        }
    }
    // The approval that was used looks unused in it.
    let set = Set::with_server(stage).await;
    let refused = set.apply(&plan).await.unwrap_err();
    assert_eq!(refused["code"], "store_failed", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("acknowledge-rollback"), "{refused}");
    assert_eq!(code(set.plan_of(MACHINE).await), "state_store");
    assert_eq!(set.deletes(), 1);
    let ready = support::send(
        set.server.address,
        support::request(set.server.address, http::Method::GET, "/readyz", ""),
    )
    .await;
    assert_eq!(ready.unwrap().status, 503);
    let Set { stage, server, .. } = set;
    server.stop().await;
    assert_eq!(state(&stage, &["check"]).0, Some(1));
    let (status, text) = state(&stage, &["acknowledge-rollback", "--note", "disk was replaced"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("1 open change sets were cancelled"), "{text}");
    assert_eq!(state(&stage, &["check"]).0, Some(0));
    let set = Set::with_server(stage).await;
    assert_eq!(set.show(&plan).await["state"], "cancelled");
    set.plan_of(MACHINE).await.unwrap();
    assert_eq!(set.deletes(), 1);
}
