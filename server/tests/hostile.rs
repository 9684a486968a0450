//! Ways around the rules that a hostile reading found, each closed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;
use serde_json::json;
use support::{AGENT, APPROVER, Rights, Stage};

/// Has the server read its files again.
async fn reload(stage: &Stage, server: &proxward::serve::Running) {
    let sources = proxward::config::Sources::of(&stage.args(&[]));
    let reloader = proxward::config::Reloader::new(sources, server.app.live.clone(), None);
    reloader.reload().await.unwrap();
}

async fn approved(stage: &Stage, server: &proxward::serve::Running, planner: &str) -> serde_json::Value {
    let agent = stage.client(server.address, planner);
    let plan = agent
        .call("plan_proxmox_destroy", json!({"cluster": "alpha", "vmid": 201, "op": "destroy_guest"}))
        .await
        .unwrap();
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": 201});
    stage.client(server.address, "approver").call("approve_proxmox_change_set", approval).await.unwrap();
    json!({"change_set_id": plan["change_set_id"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_06_a_waiver_of_the_applier_does_not_serve_another_planner() {
    let mut stage = Stage::new().await;
    stage.token("holder", AGENT);
    let server = stage.serve().await;
    let set = approved(&stage, &server, "agent").await;
    stage.edit_clusters(|f| f["devices"]["alpha"]["protected_vmids"] = json!([201]));
    let waivers = json!({"version": 1, "waivers": [{"cluster": "alpha", "vmid": 201, "ops": ["destroy_guest"], "principal": "holder",
        "until": "2026-12-20T00:00:00Z", "reason": "test"}]});
    std::fs::write(stage.path("waivers.json"), waivers.to_string()).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(stage.path("waivers.json"), std::fs::Permissions::from_mode(0o600)).unwrap();
    reload(&stage, &server).await;
    let refused = stage.client(server.address, "holder").call("apply_proxmox_change_set", set).await;
    assert!(refused.is_err(), "{refused:?}");
    assert!(stage.alpha().guest_exists(201));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planner_who_lost_the_guest_is_no_planner_any_more() {
    let mut stage = Stage::new().await;
    stage.token("holder", AGENT);
    let server = stage.serve().await;
    let set = approved(&stage, &server, "agent").await;
    let text = std::fs::read_to_string(stage.path("tokens.json")).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    file["tokens"]["agent"]["grant"]["guests"] = json!(["vmid:100"]);
    std::fs::write(stage.path("tokens.json"), file.to_string()).unwrap();
    reload(&stage, &server).await;
    let refused = stage.client(server.address, "holder").call("apply_proxmox_change_set", set).await;
    assert!(refused.is_err(), "{refused:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_protected_after_the_approval_is_not_what_was_approved() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let set = approved(&stage, &server, "agent").await;
    stage.edit_clusters(|f| f["devices"]["alpha"]["protected_vmids"] = json!([201]));
    let waivers = json!({"version": 1, "waivers": [{"cluster": "alpha", "vmid": 201, "ops": ["destroy_guest"], "principal": "agent",
        "until": "2026-12-20T00:00:00Z", "reason": "test"}]});
    std::fs::write(stage.path("waivers.json"), waivers.to_string()).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(stage.path("waivers.json"), std::fs::Permissions::from_mode(0o600)).unwrap();
    reload(&stage, &server).await;
    let refused = stage.client(server.address, "agent").call("apply_proxmox_change_set", set).await;
    assert!(refused.is_err(), "{refused:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_needs_the_tier_and_no_read() {
    let mut stage = Stage::new().await;
    stage.token("strict", Rights { actions: &["low", "destructive"], person: Some("carol"), ..APPROVER });
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let plan = agent
        .call("plan_proxmox_destroy", json!({"cluster": "alpha", "vmid": 201, "op": "destroy_guest"}))
        .await
        .unwrap();
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": 201});
    let a = stage.client(server.address, "strict").call("approve_proxmox_change_set", approval).await;
    assert!(a.is_ok(), "{a:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_caps_on_pending_sets_hold() {
    let stage = Stage::with_policy(json!({"limits": {"pending_changes_per_planner": 1}})).await;
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let mut planned = 0;
    let mut last = json!(null);
    for vmid in [100, 101, 102, 103, 110, 120, 200, 201, 202, 203] {
        let _ = stage.alpha().stop(vmid);
        match agent
            .call("plan_proxmox_destroy", json!({"cluster": "alpha", "vmid": vmid, "op": "destroy_guest"}))
            .await
        {
            Ok(_) => planned += 1,
            Err(e) => last = e,
        }
    }
    assert_eq!(planned, 1, "{last}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_link_cannot_flood_the_audit() {
    let stage = Stage::with_policy(json!({"limits": {"transfer_wrong_tokens_per_minute": 5}})).await;
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let minted = agent
        .call("proxmox_upload_link", json!({"cluster": "alpha", "vmid": 200, "dest": "/root/h"}))
        .await
        .unwrap();
    for _ in 0..60 {
        let put = support::request(server.address, http::Method::PUT, &support::path_of(&minted), "hello");
        let _ = support::send(server.address, put).await;
    }
    server.stop().await;
    let n = stage.audit().iter().filter(|r| r["event"] == "transfer.link_reuse").count();
    assert!((1..=10).contains(&n), "{n}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_container_with_the_same_address_is_another_guest() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let net0 = stage.alpha().guest_option(200, "net0");
    let agent = stage.client(server.address, "agent");
    let minted = agent
        .call(
            "proxmox_upload_link",
            json!({"cluster": "alpha", "vmid": 200, "dest": "/root/h", "mkdir": true}),
        )
        .await
        .unwrap();
    stage.alpha().recreate(200).unwrap();
    stage.alpha().set_option(200, "net0", net0.as_deref()).unwrap();
    let _ = stage.alpha().start(200);
    let put = support::request(server.address, http::Method::PUT, &support::path_of(&minted), "hello");
    let a = support::send(server.address, put).await.unwrap();
    assert_eq!(a.status, 409, "{a:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn do_01_one_address_cannot_take_every_connection() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let mut open = Vec::new();
    for _ in 0..1100 {
        open.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    other
        .write_all(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).as_bytes())
        .await
        .unwrap();
    let mut buffer = [0; 15];
    other.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 200 OK");
    drop(open);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tk_08_a_token_taken_back_while_its_call_is_decided_dispatches_nothing() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let hold = lab::Fault::once("GET", "/nodes/{node}/qemu/{vmid}/config", lab::Action::HoldBefore);
    let mut held = stage.alpha().inject(hold);
    let call = tokio::spawn({
        let agent = agent.clone();
        async move { agent.call("start_vm", json!({"cluster": "alpha", "vmid": 104})).await }
    });
    held.struck().await;
    let path = stage.path("tokens.json");
    let mut file: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    file["tokens"].as_object_mut().unwrap().remove("agent").unwrap();
    std::fs::write(&path, file.to_string()).unwrap();
    reload(&stage, &server).await;
    held.release();
    let refused = call.await.unwrap().unwrap_err();
    assert_eq!(refused["code"], "configuration_changed", "{refused}");
    assert_eq!(stage.alpha().mutations(), 0);
}
