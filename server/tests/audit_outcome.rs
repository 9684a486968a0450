//! How a change ended is in the audit trail, whoever still waits for the answer.

mod support;

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
