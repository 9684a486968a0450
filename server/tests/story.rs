//! The main job, end to end in one process: look, push a file, destroy after another person approved.

mod support;

use http::Method;
use serde_json::json;
use support::{Stage, path_of, request, send};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reads_uploads_and_destroys_only_after_another_person_approved() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let approver = stage.client(server.address, "approver");

    let nodes = agent.call("get_nodes", json!({"cluster": "alpha"})).await.unwrap();
    assert_eq!(nodes["total"], 3, "{nodes}");
    let containers =
        agent.call("get_containers", json!({"cluster": "alpha", "fields": ["vmid", "name"]})).await.unwrap();
    assert!(
        containers["items"].as_array().unwrap().contains(&json!({"vmid": 201, "name": "disposable"})),
        "{containers}"
    );

    // A file goes in, verified inside the guest.
    let minted = agent
        .call("proxmox_upload_link", json!({"cluster": "alpha", "vmid": 200, "dest": "/root/hello.bin"}))
        .await
        .unwrap();
    let put = request(server.address, Method::PUT, &path_of(&minted), "hello from outside");
    let answer = send(server.address, put).await.unwrap();
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let receipt = answer.json();
    assert_eq!((&receipt["checksum_verified"], &receipt["verified_at"]), (&true.into(), &"guest".into()));
    let landed = std::fs::read(stage.alpha().guest_root(200).join("root/hello.bin")).unwrap();
    assert_eq!(landed, b"hello from outside");
    let outcome = agent.call("get_transfer", json!({"link_id": minted["link_id"]})).await.unwrap();
    assert_eq!((&outcome["state"], &outcome["sha256"]), (&"ok".into(), &receipt["sha256"]));

    // Destroying takes two people.
    let arguments = json!({"cluster": "alpha", "vmid": 201, "op": "destroy_guest"});
    let plan = agent.call("plan_proxmox_destroy", arguments).await.unwrap();
    let set = json!({"change_set_id": plan["change_set_id"]});
    let refused = agent.call("apply_proxmox_change_set", set.clone()).await.unwrap_err();
    assert_eq!(refused["code"], "not_approved", "{refused}");
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": 201});
    assert_eq!(
        agent.call("approve_proxmox_change_set", approval.clone()).await.unwrap_err()["code"],
        "insufficient_scope"
    );
    let approved = approver.call("approve_proxmox_change_set", approval).await.unwrap();
    assert_eq!(approved["state"], "approved", "{approved}");
    let applied = agent.call("apply_proxmox_change_set", set.clone()).await.unwrap();
    assert_eq!(applied["state"], "applied", "{applied}");
    assert!(!stage.alpha().guest_exists(201));
    let again = agent.call("apply_proxmox_change_set", set).await.unwrap_err();
    assert_eq!(again["code"], "not_approved", "{again}");

    server.stop().await;
    proxward::audit::verify(&stage.path("state/audit.jsonl")).unwrap();
}
