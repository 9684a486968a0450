//! Rows of the threat model about tokens, grants, protection and waivers, through a running server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::os::unix::fs::PermissionsExt;

use authz::{DenialKind, Lookup, Tier, TokenTable, admit, mint_token, sha256_entry};
use http::{Method, StatusCode};
use proxward::catalog::{self, Addresses, SCOPES};
use proxward::serve::Running;
use serde_json::{Value, json};
use support::{AGENT, Client, READER, Rights, Stage, request, send};

fn guest(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid})
}

/// Has the server read its files again; whether it took them.
async fn reload(stage: &Stage, server: &Running) -> bool {
    let sources = proxward::config::Sources::of(&stage.args(&[]));
    proxward::config::Reloader::new(sources, server.app.live.clone(), None).reload().await.is_ok()
}

fn write_waivers(stage: &Stage, text: &str) {
    let path = stage.path("waivers.json");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn waiver(until: jiff::Timestamp) -> String {
    json!({"version": 1, "waivers": [{"cluster": "alpha", "vmid": 100, "ops": ["stop_vm"], "until": until.to_string(),
           "reason": "test"}]})
    .to_string()
}

fn in_seconds(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)
}

fn code(answer: Result<Value, Value>) -> String {
    answer.unwrap_err()["code"].as_str().unwrap().to_owned()
}

async fn readyz(server: &Running) -> String {
    let answer = send(server.address, request(server.address, Method::GET, "/readyz", "")).await.unwrap();
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tk_10_no_token_is_in_the_trail_or_in_an_answer_its_name_is() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let wrong = mint_token([9; 32], [9; 10]).text.to_string();
    let mut said = String::new();
    for bearer in [stage.bearer("agent"), stage.bearer("reader"), &wrong, "pxw_damaged"] {
        let client = Client { address: server.address, bearer: Some(bearer.to_owned()) };
        for (tool, vmid) in [("get_guest_status", 100), ("get_guest_status", 999), ("stop_vm", 999)] {
            let answer = client.rpc("tools/call", json!({"name": tool, "arguments": guest(vmid)})).await;
            said.push_str(&format!("{:?} {}", answer.headers, String::from_utf8_lossy(&answer.body)));
        }
    }
    server.stop().await;
    let trail = std::fs::read_to_string(stage.path("state/audit.jsonl")).unwrap();
    for bearer in [stage.bearer("agent"), stage.bearer("reader"), &wrong] {
        for part in [bearer, bearer.get(15..58).unwrap()] {
            assert!(!trail.contains(part) && !said.contains(part), "{part}");
        }
    }
    let names: Vec<_> =
        stage.audit().iter().filter_map(|record| record["principal"].as_str().map(str::to_owned)).collect();
    assert!(names.contains(&"agent".to_owned()) && names.contains(&"reader".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tk_14_what_is_no_token_of_ours_is_401_and_reaches_no_cluster() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let before = stage.alpha().requests().len();
    for foreign in [
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "mcp-automation@pve!mcp=2f0d9a40-7f33-4b42-9f0e-0d6f4b6a8a11",
        &"A".repeat(43),
    ] {
        let client = Client { address: server.address, bearer: Some(foreign.to_owned()) };
        let answer =
            client.rpc("tools/call", json!({"name": "get_guest_status", "arguments": guest(100)})).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{foreign}");
        assert!(!String::from_utf8_lossy(&answer.body).contains(foreign));
    }
    assert_eq!(stage.alpha().requests().len(), before);
    server.stop().await;
}

/// Over the catalog itself, so that a tool added later cannot be forgotten.
#[test]
fn gr_02_no_wildcard_reaches_a_tool_that_changes_something_or_a_scope_that_only_authorizes() {
    let text = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE";
    let file = json!({"version": 1, "tokens": {"wild": {"hash": sha256_entry(text), "tools": ["*"], "devices": ["*"],
                      "grant": {"guests": ["*"], "actions": ["read", "low", "destructive"]}}}});
    let now = jiff::Timestamp::now();
    let table = TokenTable::parse(file.to_string().as_bytes()).unwrap();
    let Lookup::Principal(wild) = table.lookup(text, now) else { panic!("the token is in the file") };
    let (mut open, mut closed) = (0, 0);
    for rule in catalog::all().map(|spec| &spec.rule).chain(SCOPES.iter()) {
        let scope = SCOPES.iter().any(|scope| scope.name == rule.name);
        match admit(&wild, rule, None, now) {
            Ok(_) => {
                assert!(
                    rule.tier == Tier::Read && !scope && !rule.interrupts && !rule.writes_guest,
                    "{}",
                    rule.name
                );
                open += 1;
            }
            Err(denial) => {
                assert_eq!(
                    (denial.kind(), denial.code()),
                    (DenialKind::ToolOutOfScope, "insufficient_scope")
                );
                assert!(denial.public_message().contains("`wild`"), "{denial}");
                assert!(denial.public_message().contains(&format!("`{}`", rule.name)), "{denial}");
                closed += 1;
            }
        }
    }
    assert!(open >= 6 && closed >= 8, "{open} open, {closed} closed");
}

/// A row without tier, hazards or what it addresses does not compile; one that contradicts itself fails here.
#[test]
fn gr_03_every_tool_says_what_authorization_needs_to_know() {
    for spec in catalog::all() {
        let rule = &spec.rule;
        if rule.interrupts || rule.writes_guest {
            assert_ne!(rule.tier, Tier::Read, "{} takes a guest down and calls itself a read", rule.name);
            assert!(!rule.wildcard, "{}", rule.name);
        }
        if spec.hints.read_only {
            assert!(!rule.interrupts && !rule.writes_guest, "{}", rule.name);
        }
        if rule.tier != Tier::Read {
            assert!(!rule.wildcard && !spec.hints.read_only, "{}", rule.name);
        }
        if matches!(spec.addresses, Addresses::Guest(_)) {
            let schema = (spec.input)().unwrap();
            assert!(schema["properties"]["vmid"].is_object(), "{} names no guest", rule.name);
        }
    }
    for scope in SCOPES {
        assert!(!scope.wildcard, "{}", scope.name);
    }
}

/// A caller that may write tags or pools could give itself guests: each such tool has a scope of its own that must be named.
#[test]
fn gr_06_what_writes_tags_or_pools_is_reached_by_its_own_name_alone() {
    let own = ["update_guest_notes_tags", "update_vm_config", "update_container_config"];
    // These make a guest whose number the grant must hold already.
    let makes = ["create_", "clone_", "restore_", "plan_"];
    for spec in catalog::all().filter(|spec| spec.mutates()) {
        let schema = (spec.input)().unwrap();
        if ["tags", "pool"].iter().any(|key| schema["properties"][key].is_object()) {
            assert!(!spec.rule.wildcard_reaches(), "{}", spec.name());
            let named =
                own.contains(&spec.name()) || makes.iter().any(|start| spec.name().starts_with(start));
            assert!(named, "{} writes facts that grants select by: give it a scope of its own", spec.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_07_a_change_is_decided_on_facts_of_now_although_a_read_may_remember() {
    let mut stage = Stage::new().await;
    stage.edit_clusters(|file| file["policy"]["resource_cache_ttl_secs"] = json!(60));
    stage.token("by-tag", Rights { guests: &["tag:mine"], ..AGENT });
    stage.alpha().set_tags(100, &["mine"]).unwrap();
    stage.alpha().stop(100).unwrap();
    let server = stage.serve().await;
    let by_tag = stage.client(server.address, "by-tag");
    by_tag.call("get_guest_status", guest(100)).await.unwrap();
    stage.alpha().set_tags(100, &["yours"]).unwrap();
    assert_eq!(code(by_tag.call("start_vm", guest(100)).await), "authorization_failed");
    stage.alpha().set_tags(100, &["mine"]).unwrap();
    by_tag.call("start_vm", guest(100)).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_12_a_guest_that_moved_is_found_and_a_callers_node_is_never_followed() {
    let stage = Stage::new().await;
    stage.alpha().stop(100).unwrap();
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let status = agent.call("get_guest_status", guest(100)).await.unwrap();
    let old = status["node"].as_str().unwrap().to_owned();
    let new = if old == "pve1" { "pve2" } else { "pve1" };
    stage.alpha().migrate(100, new).unwrap();
    let mutations = stage.alpha().mutations();
    let mut named = guest(100);
    named["node"] = old.into();
    assert_eq!(code(agent.call("start_vm", named).await), "wrong_node");
    assert_eq!(stage.alpha().mutations(), mutations);
    assert_eq!(agent.call("start_vm", guest(100)).await.unwrap()["node"], new);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_14_lists_show_and_count_what_the_token_may_read() {
    let mut stage = Stage::new().await;
    stage.token("one", Rights { guests: &["vmid:100"], ..READER });
    stage.token("none", Rights { guests: &["vmid:999"], ..READER });
    let server = stage.serve().await;
    let count = async |token: &str| {
        let client = stage.client(server.address, token);
        let list = client.call("get_vms", json!({"cluster": "alpha"})).await.unwrap();
        assert_eq!(
            list["items"].as_array().unwrap().len(),
            usize::try_from(list["total"].as_u64().unwrap()).unwrap()
        );
        list["total"].as_u64().unwrap()
    };
    assert_eq!((count("one").await, count("none").await), (1, 0));
    assert!(count("reader").await > 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_09_no_argument_and_no_tool_overrides_anything() {
    let stage = Stage::new().await;
    stage.alpha().set_tags(100, &["protected"]).unwrap();
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let mutations = stage.alpha().mutations();
    for argument in ["force", "override", "lab_mode", "waiver", "skiplock", "confirm", "grant_waiver"] {
        for tool in ["stop_vm", "plan_proxmox_destroy"] {
            let mut arguments = guest(100);
            arguments[argument] = true.into();
            if tool == "plan_proxmox_destroy" {
                arguments["op"] = "destroy_guest".into();
            }
            let refused = agent.call(tool, arguments).await.unwrap_err();
            assert_eq!(refused["code"], "invalid_argument", "{tool} {argument}: {refused}");
            assert!(refused["message"].as_str().unwrap().contains(argument), "{refused}");
        }
    }
    for tool in ["grant_waiver", "add_waiver", "set_lab_mode", "unprotect_guest"] {
        let answer = agent.rpc("tools/call", json!({"name": tool, "arguments": {}})).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{tool}: {answer}");
    }
    assert_eq!(code(agent.call("stop_vm", guest(100)).await), "protected");
    assert_eq!(stage.alpha().mutations(), mutations);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_10_a_waiver_file_that_was_deleted_lifts_nothing_after_the_reload() {
    let stage = Stage::new().await;
    stage.alpha().set_tags(100, &["protected"]).unwrap();
    write_waivers(&stage, &waiver(in_seconds(3600)));
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    agent.call("stop_vm", guest(100)).await.unwrap();
    stage.alpha().start(100).unwrap();
    std::fs::remove_file(stage.path("waivers.json")).unwrap();
    assert!(reload(&stage, &server).await);
    assert_eq!(code(agent.call("stop_vm", guest(100)).await), "protected");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_11_a_broken_waiver_file_keeps_the_old_one_whose_end_still_counts() {
    let stage = Stage::new().await;
    stage.alpha().set_tags(100, &["protected"]).unwrap();
    let end = in_seconds(4);
    write_waivers(&stage, &waiver(end));
    let server = stage.serve().await;
    assert_eq!(readyz(&server).await.trim(), "ok");
    write_waivers(&stage, r#"{"version": 1, "waivers": [{"cluster": "alpha"}]}"#);
    assert!(!reload(&stage, &server).await);
    assert_eq!(readyz(&server).await.trim(), "degraded");
    let agent = stage.client(server.address, "agent");
    if jiff::Timestamp::now() < end - jiff::SignedDuration::from_secs(1) {
        agent.call("stop_vm", guest(100)).await.unwrap();
        stage.alpha().start(100).unwrap();
    }
    while jiff::Timestamp::now() < end {
        tokio::task::yield_now().await;
    }
    assert_eq!(code(agent.call("stop_vm", guest(100)).await), "protected");
    server.stop().await;
}

/// What allowed a change is on record with every step, and what the token's entry says of its origin.
#[tokio::test(flavor = "multi_thread")]
async fn the_trail_tells_why_a_change_was_allowed() {
    let stage = Stage::new().await;
    stage.alpha().stop(100).unwrap();
    let path = stage.path("tokens.json");
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    file["tokens"]["agent"]["on_behalf_of"] = json!("team-a");
    std::fs::write(&path, file.to_string()).unwrap();
    let server = stage.serve().await;
    stage.client(server.address, "agent").call("start_vm", guest(100)).await.unwrap();
    server.stop().await;
    let record = stage.audit().into_iter().find(|record| record["event"] == "tool.outcome").unwrap();
    let reasons = record["details"]["reasons"].as_str().unwrap();
    for step in ["the token names the tool", "cluster `alpha`", "selector `*`", "the grant holds `low`"] {
        assert!(reasons.contains(step), "{reasons}");
    }
    assert_eq!(record["details"]["token_on_behalf_of"], "team-a");
}
