//! Nothing changes without a record before it, and how it ended is recorded whoever still waits for the answer.

mod support;

use std::io::Write;

use lab::{Action, Fault};
use serde_json::json;
use support::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn au_02_a_change_whose_caller_left_is_recorded_before_the_server_stops() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    stage.alpha().stop(100).unwrap();
    let start = "/nodes/{node}/qemu/{vmid}/status/start";
    let mut held = stage.alpha().inject(Fault::once("POST", start, Action::HoldAfter));
    let agent = stage.client(server.address, "agent");
    let calling =
        tokio::spawn(
            async move { agent.try_call("start_vm", json!({"cluster": "alpha", "vmid": 100})).await },
        );
    held.struck().await;
    calling.abort();
    assert!(calling.await.unwrap_err().is_cancelled());
    let stopping = tokio::spawn(server.stop());
    held.release();
    stopping.await.unwrap();

    let records = stage.audit();
    let outcome =
        records.iter().position(|r| r["event"] == "tool.outcome" && r["tool"] == "start_vm").unwrap();
    assert!(records[outcome]["upid"].as_str().is_some_and(|upid| upid.starts_with("UPID:")), "{records:#?}");
    assert_eq!(records.iter().position(|r| r["event"] == "stop"), Some(records.len() - 1));
    assert!(outcome < records.len() - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn au_01_an_approval_that_cannot_be_recorded_is_not_made() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let arguments = json!({"cluster": "alpha", "vmid": 201, "op": "destroy_guest"});
    let plan = stage.client(server.address, "agent").call("plan_proxmox_destroy", arguments).await.unwrap();
    // Somebody else writes to the trail, so that nothing more is written to it.
    let trail = std::fs::OpenOptions::new().append(true).open(stage.path("state/audit.jsonl"));
    trail.unwrap().write_all(b"?").unwrap();
    let approver = stage.client(server.address, "approver");
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": 201});
    let refused = approver.call("approve_proxmox_change_set", approval).await.unwrap_err();
    assert_eq!(refused["code"], "audit_unavailable", "{refused}");
    let set = json!({"change_set_id": plan["change_set_id"]});
    assert_eq!(approver.call("get_proxmox_change_set", set).await.unwrap()["state"], "planned");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_27_a_change_in_doubt_is_sent_once_and_its_caller_is_told_to_look() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    stage.alpha().stop(100).unwrap();
    let start = "/nodes/{node}/qemu/{vmid}/status/start";
    // The node asked lost the other one after it had passed the request on.
    let lost = Action::Status { code: 596, reason: "Broken pipe".to_owned(), body: String::new() };
    let struck = stage.alpha().inject(Fault::always("POST", start, lost));
    let agent = stage.client(server.address, "agent");
    let refused = agent.call("start_vm", json!({"cluster": "alpha", "vmid": 100})).await.unwrap_err();
    assert_eq!((&refused["code"], &refused["effect"]), (&"outcome_unknown".into(), &"unknown".into()));
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("may have taken effect") && !message.contains("try again"), "{message}");
    assert_eq!(struck.strikes(), 1);
    server.stop().await;
    assert!(stage.audit().iter().any(|r| r["event"] == "tool.outcome" && r["outcome"] == "outcome_unknown"));
}
