//! What the governed server promises, through the running program, where no other test holds it.

use std::os::unix::fs::PermissionsExt;

use crate::changes::{Set, VMID, code, destroy, named};
use crate::program::Program;
use crate::support::{AGENT, APPROVER, Client, Rights, Stage};
use rustix::process::Signal;
use serde_json::{Value, json};

const WALL: Rights<'static> = Rights {
    tools: &[
        "*",
        "plan_firewall_change",
        "plan_restore_new_vmid",
        "restore_backup_new_vmid",
        "apply_firewall_change",
        "apply_proxmox_change_set",
    ],
    ..AGENT
};

async fn wall_stage() -> Stage {
    let mut stage = Stage::new().await;
    stage.token("wall", WALL);
    stage.token(
        "wall-approver",
        Rights { tools: &["approve_firewall_change", "get_proxmox_change_set"], ..APPROVER },
    );
    stage
}

/// A rule on the guest, the node or the cluster.
fn rule(scope: &str) -> Value {
    let mut arguments = json!({"cluster": "alpha", "scope": scope, "object": "rule", "op": "create",
        "set": {"type": "in", "action": "ACCEPT", "proto": "tcp", "dport": "443"}});
    match scope {
        "guest" => arguments["vmid"] = VMID.into(),
        "node" => arguments["node"] = "pve1".into(),
        _ => {}
    }
    arguments
}

fn waive(stage: &Stage, vmid: u32, ops: &[&str]) {
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let file = json!({"version": 1, "waivers": [{
        "cluster": "alpha", "vmid": vmid, "ops": ops, "until": until, "reason": "planned work", "ticket": "OPS-9"}]});
    let path = stage.path("waivers.json");
    std::fs::write(&path, file.to_string()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_of_a_call_carries_cluster_guest_tier_and_protection_and_one_id_joins_them() {
    let stage = Stage::new().await;
    stage.alpha().set_tags(104, &["protected"]).unwrap();
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    agent.call("start_vm", json!({"cluster": "alpha", "vmid": 104})).await.unwrap();
    agent.call("stop_vm", json!({"cluster": "alpha", "vmid": 104})).await.unwrap_err();
    // A refusal is answered without waiting for its record: a stop waits for all of them.
    server.stop().await;
    let trail = stage.audit();
    let of = |event: &str, tool: &str| {
        trail.iter().find(|record| record["event"] == event && record["tool"] == tool).cloned().unwrap()
    };
    let (attempt, outcome) = (of("tool.attempt", "start_vm"), of("tool.outcome", "start_vm"));
    for record in [&attempt, &outcome] {
        assert_eq!(
            (&record["cluster"], &record["vmid"], &record["tier"]),
            (&json!("alpha"), &json!(104), &json!("low")),
            "{record}"
        );
        assert!(record["details"]["protection"].is_string(), "{record}");
    }
    assert!(attempt["request_id"].is_string());
    assert_eq!(attempt["request_id"], outcome["request_id"]);
    let refused = of("tool.outcome", "stop_vm");
    assert_eq!(
        (&refused["decision"], &refused["details"]["protection"]),
        (&json!("deny"), &json!("protected")),
        "{refused}"
    );
    assert_ne!(refused["request_id"], outcome["request_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firewall_change_that_nobody_approved_is_not_applied() {
    let set = Set::of(wall_stage().await).await;
    for scope in ["guest", "node", "cluster"] {
        let plan = set.client("wall").call("plan_firewall_change", rule(scope)).await.unwrap();
        assert_eq!(plan["state"], "planned", "{scope}");
        let refused = set.client("wall").call("apply_firewall_change", named(&plan)).await;
        assert_eq!(code(refused), "not_approved", "{scope}");
    }
    assert_eq!(set.stage.alpha().mutations(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lab_mode_says_so_at_its_start_and_approves_protected_guests_alone_also_for_firewalls() {
    let stage = wall_stage().await;
    stage.alpha().set_tags(VMID, &["protected"]).unwrap();
    let server = Program::start(&stage.command_line(&["--lab-mode"]));
    let said = server.log.until("LAB MODE");
    assert!(said.contains("protected"), "{said}");
    let ready = server.log.until("serving MCP at /mcp");
    let address = ready.split_once("address=").unwrap().1.trim().parse().unwrap();
    let wall = stage.client(address, "wall");
    let plan = wall.call("plan_firewall_change", rule("guest")).await.unwrap();
    assert_eq!((&plan["state"], &plan["lab_mode"]), (&json!("approved"), &json!(true)), "{plan}");
    for scope in ["node", "cluster"] {
        let plan = wall.call("plan_firewall_change", rule(scope)).await.unwrap();
        assert_eq!(plan["state"], "planned", "{scope} waits for its second person: {plan}");
    }
    stage.alpha().set_tags(104, &[]).unwrap();
    let mut ordinary = rule("guest");
    ordinary["vmid"] = 104.into();
    let plan = wall.call("plan_firewall_change", ordinary).await.unwrap();
    assert_eq!(plan["state"], "planned", "an ordinary guest waits, too: {plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiver_names_the_operation_also_for_firewalls_and_restores_to_a_new_number() {
    let restore = json!({"cluster": "alpha", "vmid": 100, "newid": 991,
        "volid": "backup:backup/vzdump-qemu-100-2026_11_20-02_00_05.vma.zst"});
    let stage = wall_stage().await;
    stage.alpha().set_tags(VMID, &["protected"]).unwrap();
    stage.alpha().set_tags(100, &["protected"]).unwrap();
    waive(&stage, VMID, &["firewall_rule_delete"]);
    let set = Set::of(stage).await;
    let wall = set.client("wall");
    assert_eq!(
        code(wall.call("plan_firewall_change", rule("guest")).await),
        "protected",
        "another operation is waived"
    );
    waive(&set.stage, VMID, &["firewall_rule_create"]);
    set.reload().await;
    let plan = wall.call("plan_firewall_change", rule("guest")).await.unwrap();
    assert_eq!(plan["state"], "planned", "a waiver is no second person");
    assert!(plan["preview"].as_str().unwrap().contains("OPS-9"), "{plan}");
    assert_eq!(code(wall.call("plan_restore_new_vmid", restore.clone()).await), "protected");
    waive(&set.stage, 100, &["restore_new_vmid"]);
    set.reload().await;
    wall.call("plan_restore_new_vmid", restore).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_cluster_protects_is_not_protected_in_another() {
    let stage = Stage::new().await;
    stage.edit_clusters(|file| {
        file["devices"]["alpha"]["protected_vmids"] = json!([100]);
        file["devices"]["alpha"]["protected_tags"] = json!(["infra"]);
    });
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let stop = async |cluster: &str| agent.call("stop_vm", json!({"cluster": cluster, "vmid": 100})).await;
    assert_eq!(code(stop("alpha").await), "protected");
    stop("beta").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_that_is_no_tool_cannot_be_called() {
    let set = Set::new().await;
    for scope in ["delete_vm", "delete_container", "set_guest_pool"] {
        let answer =
            set.agent.rpc("tools/call", json!({"name": scope, "arguments": {"vmid": VMID}})).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{scope}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_reads_are_answered_and_nothing_is_changed() {
    let stage = Stage::new().await;
    let (_server, address) = Program::serve(&stage.command_line(&["--allow-no-auth"]));
    let nobody = Client { address, bearer: None };
    assert_eq!(
        nobody.call("get_vms", json!({"cluster": "alpha"})).await.unwrap()["items"].as_array().unwrap().len(),
        8
    );
    for (tool, arguments) in
        [("stop_vm", json!({"cluster": "alpha", "vmid": 100})), ("plan_proxmox_destroy", destroy(VMID))]
    {
        let refused = nobody.call(tool, arguments).await.unwrap_err();
        assert_eq!(refused["code"], "insufficient_scope", "{tool}: {refused}");
    }
    assert_eq!(stage.alpha().mutations(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_missing_open_to_others_or_hold_a_secret_keep_the_server_from_starting() {
    let stage = Stage::new().await;
    let fails = |why: &[&str]| {
        let exit = Program::start(&stage.command_line(&[])).exit();
        assert_eq!(exit.code, Some(78), "{}", exit.log);
        for part in why {
            assert!(exit.log.contains(part), "{part:?} in {}", exit.log);
        }
    };
    waive(&stage, VMID, &["destroy_guest"]);
    std::fs::set_permissions(stage.path("waivers.json"), std::fs::Permissions::from_mode(0o644)).unwrap();
    fails(&["waivers.json"]);
    std::fs::remove_file(stage.path("waivers.json")).unwrap();

    let clusters = std::fs::read(stage.path("clusters.json")).unwrap();
    stage.edit_clusters(|file| file["devices"]["alpha"]["token_secret"] = "11111111-2222-3333".into());
    fails(&["clusters.json", "token_secret"]);
    std::fs::write(stage.path("clusters.json"), clusters).unwrap();

    std::fs::remove_file(stage.path("tokens.json")).unwrap();
    fails(&["tokens.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_trail_is_continued_in_a_new_file_by_a_reload() {
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let reader = stage.client(address, "reader");
    reader.call("get_nodes", json!({"cluster": "alpha"})).await.unwrap();
    let (file, rotated) = (stage.path("state/audit.jsonl"), stage.path("state/audit.jsonl.1"));
    std::fs::rename(&file, &rotated).unwrap();
    server.signal(Signal::HUP);
    server.log.until("the configuration was read again");
    reader.call("get_nodes", json!({"cluster": "alpha"})).await.unwrap();
    assert_eq!(server.terminate().code, Some(0));
    let summary = proxward::audit::verify_files(&[&rotated, &file], None).unwrap();
    assert!(summary.from_genesis);
    assert_eq!(stage.audit()[0]["event"], "continue", "the chain goes on in the new file");
}
