//! How calls about change sets end when something goes away: the caller, the process, a fact of the cluster.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/program.rs"]
mod program;
mod support;

use std::time::Duration;

use changes::{DELETE, MACHINE, Set, VMID, code, destroy, named};
use lab::{Action, Fault};
use program::Program;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Stage, audit_of, roomy};
use tokio::io::AsyncWriteExt;

/// Waits until `holds`, for a change that is bound to come.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

/// Calls a tool over a connection of its own that is closed as soon as `leave` says so.
async fn call_and_leave(set: &Set, tool: &str, arguments: Value, leave: impl Future<Output = ()>) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments,
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}});
    let body = body.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: {tool}\r\ncontent-length: {}\r\n\r\n{body}",
        set.server.address,
        set.stage.bearer("agent"),
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(set.server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    leave.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_31_a_caller_who_leaves_before_the_intent_has_changed_nothing() {
    let set = Set::new().await;
    let plan = set.approved().await;
    // Held while the decision is made: the first fact an apply asks for.
    let mut held = set.stage.alpha().inject(Fault::once("GET", "/cluster/resources", Action::HoldBefore));
    call_and_leave(&set, "apply_proxmox_change_set", named(&plan), held.struck()).await;
    until("the leaving is on record", || {
        set.records("tool.outcome", &plan).iter().any(|record| record["outcome"] == "client_gone")
    })
    .await;
    held.release();
    set.server.app.tracker.idle().await;
    assert_eq!(set.deletes(), 0);
    assert_eq!(set.show(&plan).await["state"], "approved");
    assert!(set.records("change.attempt", &plan).is_empty());
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_31_a_caller_who_leaves_after_the_intent_leaves_it_to_run() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let mut held = set.stage.alpha().inject(Fault::once("DELETE", DELETE, Action::HoldBefore));
    call_and_leave(&set, "apply_proxmox_change_set", named(&plan), held.struck()).await;
    until("the leaving is on record", || {
        set.records("tool.outcome", &plan).iter().any(|record| record["outcome"] == "client_gone")
    })
    .await;
    held.release();
    set.server.app.tracker.idle().await;
    assert_eq!(set.show(&plan).await["state"], "applied");
    let outcome = &set.records("change.outcome", &plan)[0];
    assert_eq!((&outcome["outcome"], &outcome["details"]["client_gone"]), (&json!("applied"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_38_the_limit_on_destructive_changes_outlives_a_restart() {
    let mut policy = roomy();
    policy["limits"]["destructive_applies_per_hour"] = 1.into();
    let set = Set::of(Stage::with_policy(policy).await).await;
    let (first, second) = (set.approved().await, set.plan_of(MACHINE).await.unwrap());
    set.approve(&second).await.unwrap();
    assert_eq!(set.apply(&first).await.unwrap()["state"], "applied");
    assert_eq!(code(set.apply(&second).await), "rate_limited");
    let Set { stage, server, .. } = set;
    server.stop().await;
    let server = stage.serve().await;
    let set = Set::with(stage, server);
    assert_eq!(code(set.apply(&second).await), "rate_limited");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_without_a_digest_is_neither_planned_for_nor_applied_to() {
    let set = Set::new().await;
    let body = r#"{"data":{"arch":"amd64","hostname":"disposable","rootfs":"local-lvm:vm-201-disk-0,size=8G","tags":"dev"}}"#;
    let config = "/nodes/{node}/lxc/{vmid}/config";
    set.stage.alpha().inject(Fault::always("GET", config, Action::Raw(body.into())));
    let refused = set.plan_of(VMID).await.unwrap_err();
    assert_eq!(refused["code"], "plan_impossible");
    assert!(refused["message"].as_str().unwrap().contains("digest"), "{refused}");
    set.stage.alpha().clear_faults();
    let plan = set.approved().await;
    set.stage.alpha().inject(Fault::always("GET", config, Action::Raw(body.into())));
    assert_eq!(code(set.apply(&plan).await), "unavailable");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_19_a_repeat_and_a_refusal_put_no_second_plan_on_record() {
    let set = Set::new().await;
    let keyed = || {
        let mut arguments = destroy(VMID);
        arguments["idempotency_key"] = "once".into();
        arguments
    };
    let first = set.agent.call("plan_proxmox_destroy", keyed()).await.unwrap();
    let again = set.agent.call("plan_proxmox_destroy", keyed()).await.unwrap();
    assert_eq!(first["change_set_id"], again["change_set_id"]);
    assert_eq!(code(set.plan_of(VMID).await), "already_pending");
    let plans: Vec<Value> = set.stage.audit().into_iter().filter(|r| r["event"] == "change.plan").collect();
    assert_eq!(plans.len(), 1, "{plans:?}");
    assert_eq!(plans[0]["change_set"], first["change_set_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_cut_off_is_on_record_as_unknown_after_the_restart_and_only_once() {
    let stage = Stage::new().await;
    let mut held = stage.alpha().inject(Fault::once(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/start",
        Action::HoldBefore,
    ));
    let (program, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    let starting = tokio::spawn(async move {
        agent.try_call("start_vm", json!({"cluster": "alpha", "vmid": MACHINE})).await
    });
    held.struck().await;
    program.signal(Signal::KILL);
    program.exit();
    assert!(starting.await.unwrap().is_none());
    held.release();
    let unknown = || -> Vec<Value> {
        audit_of(&stage.path("state/audit.jsonl"))
            .into_iter()
            .filter(|r| r["event"] == "tool.outcome" && r["outcome"] == "unknown")
            .collect()
    };
    assert!(unknown().is_empty());
    for _ in 0..2 {
        stage.serve().await.stop().await;
        let found = unknown();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0]["tool"], &found[0]["vmid"]), (&json!("start_vm"), &json!(MACHINE)));
        assert_eq!(found[0]["principal"], "agent");
    }
}
