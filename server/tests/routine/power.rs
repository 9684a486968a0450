use std::time::Duration;

use lab::TaskExit;
use serde_json::{Value, json};

use super::support::Rights;
use super::{Shop, WORKER, code, message};

/// Tool, guest (stopped or running as the tool needs it), the last words of the path, whether it interrupts.
const ACTIONS: &[(&str, u32, bool, &str, bool)] = &[
    ("start_vm", 104, false, "qemu/104/status/start", false),
    ("stop_vm", 104, true, "qemu/104/status/stop", true),
    ("shutdown_vm", 104, true, "qemu/104/status/shutdown", true),
    ("reboot_vm", 104, true, "qemu/104/status/reboot", true),
    ("reset_vm", 104, true, "qemu/104/status/reset", true),
    ("suspend_vm", 104, true, "qemu/104/status/suspend", true),
    ("resume_vm", 104, true, "qemu/104/status/resume", false),
    ("start_container", 201, false, "lxc/201/status/start", false),
    ("stop_container", 201, true, "lxc/201/status/stop", true),
    ("shutdown_container", 201, true, "lxc/201/status/shutdown", true),
    ("restart_container", 201, true, "lxc/201/status/reboot", true),
];

fn put(shop: &Shop, vmid: u32, running: bool) {
    let alpha = shop.stage.alpha();
    match (alpha.guest_running(vmid).unwrap(), running) {
        (false, true) => alpha.start(vmid).unwrap(),
        (true, false) => alpha.stop(vmid).unwrap(),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_sends_its_one_request_and_answers_with_its_task() {
    let shop = Shop::new().await;
    for (tool, vmid, running, path, _) in ACTIONS {
        put(&shop, *vmid, *running);
        shop.stage.alpha().clear_requests();
        let done = shop.call(tool, json!({"vmid": vmid})).await.unwrap_or_else(|e| panic!("{tool}: {e}"));
        assert_eq!(done["vmid"], *vmid, "{tool}");
        assert!(done["upid"].as_str().unwrap().starts_with("UPID:"), "{tool}: {done}");
        assert!(done["upid"].as_str().unwrap().contains(done["node"].as_str().unwrap()), "{tool}: {done}");
        let sent = shop.sent();
        assert_eq!(sent.len(), 1, "{tool}: {sent:?}");
        assert!(sent[0].starts_with("POST ") && sent[0].ends_with(path), "{tool}: {sent:?}");
        shop.stage.alpha().idle().await;
    }
    let attempts = shop.stage.audit().into_iter().filter(|record| record["event"] == "tool.attempt").count();
    assert_eq!(attempts, ACTIONS.len(), "each is on record before it is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_guest_is_started_and_never_interrupted() {
    let shop = Shop::new().await;
    for vmid in [104, 201] {
        shop.stage.alpha().set_tags(vmid, &["protected"]).unwrap();
    }
    for (tool, vmid, running, _, interrupts) in ACTIONS {
        put(&shop, *vmid, *running);
        shop.stage.alpha().clear_requests();
        let answer = shop.call(tool, json!({"vmid": vmid})).await;
        if *interrupts {
            assert_eq!(code(&answer.unwrap_err()), "protected", "{tool}");
            assert_eq!(shop.sent(), Vec::<String>::new(), "{tool}");
        } else {
            answer.unwrap_or_else(|refused| panic!("{tool}: {refused}"));
        }
        shop.stage.alpha().idle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be_sent_and_sends_nothing() {
    let shop = Shop::new().await;
    put(&shop, 104, true);
    shop.stage.alpha().clear_requests();
    let arguments = json!({"vmid": 104, "timeout": 90, "force_stop": true, "dry_run": true, "wait": 5});
    let told = shop.call("shutdown_vm", arguments).await.unwrap();
    assert_eq!(
        told,
        json!({
            "vmid": 104, "node": "pve2", "dry_run": true,
            "request": {
                "method": "POST", "path": "/nodes/pve2/qemu/104/status/shutdown",
                "parameters": {"timeout": "90", "forceStop": "1"},
            },
        })
    );
    assert_eq!(shop.sent(), Vec::<String>::new());
    assert_eq!(shop.stage.alpha().guest_running(104), Some(true));
    // It is decided about like the real thing.
    shop.stage.alpha().set_protection(104, true).unwrap();
    let refused = shop.call("shutdown_vm", json!({"vmid": 104, "dry_run": true})).await.unwrap_err();
    assert_eq!(code(&refused), "protected");
    let record = shop.stage.audit().into_iter().find(|record| record["event"] == "tool.attempt").unwrap();
    assert_eq!(record["arguments"]["dry_run"], true, "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_task_or_with_its_time() {
    let shop = Shop::new().await;
    put(&shop, 104, false);
    let done = shop.call("start_vm", json!({"vmid": 104, "wait": 30})).await.unwrap();
    assert_eq!(done["status"], "ok", "{done}");
    assert_eq!(shop.stage.alpha().guest_running(104), Some(true));

    shop.stage.alpha().next_task_exit(TaskExit::Warnings(2));
    let warned = shop.call("reset_vm", json!({"vmid": 104, "wait": 30})).await.unwrap();
    assert_eq!((&warned["status"], &warned["warnings"]), (&json!("warnings"), &json!(2)), "{warned}");

    shop.stage.alpha().hold_tasks(true);
    let running = shop.call("stop_vm", json!({"vmid": 104, "wait": 1})).await.unwrap();
    assert_eq!(running["status"], "running", "{running}");
    assert!(running["upid"].as_str().unwrap().contains(":qmstop:104:"), "{running}");
    shop.stage.alpha().hold_tasks(false);
    shop.stage.alpha().idle().await;

    let refused = shop.call("stop_vm", json!({"vmid": 104, "wait": 301})).await.unwrap_err();
    assert!(message(&refused).contains("at most 300"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_is_an_error_with_the_end_of_its_log() {
    let shop = Shop::new().await;
    put(&shop, 104, true);
    let refused = shop.call("start_vm", json!({"vmid": 104, "wait": 30})).await.unwrap_err();
    assert_eq!(code(&refused), "task_failed");
    assert!(message(&refused).contains("VM 104 already running"), "{refused}");
    assert!(refused["upid"].as_str().unwrap().contains(":qmstart:104:"), "{refused}");
    let log = refused["log"].as_array().unwrap();
    assert!(log.last().unwrap().as_str().unwrap().starts_with("TASK ERROR: "), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_under_ha_is_followed_by_its_state_and_not_by_the_task_that_ends_at_once() {
    let shop = Shop::with(|stage| stage.alpha().set_protection(203, false).unwrap()).await;
    shop.stage.alpha().task_duration(Duration::from_millis(700));
    put(&shop, 203, false);
    let told = shop.call("start_container", json!({"vmid": 203})).await.unwrap();
    assert_eq!(told["ha_managed"], true, "{told}");
    assert!(told["upid"].as_str().unwrap().contains(":hastart:203:"), "{told}");
    shop.stage.alpha().wait_for(|alpha| alpha.guest_running(203) == Some(true)).await;
    shop.stage.alpha().idle().await;
    let done = shop.call("stop_container", json!({"vmid": 203, "wait": 60})).await.unwrap();
    assert_eq!((&done["status"], &done["guest_status"]), (&json!("ok"), &json!("stopped")), "{done}");
    assert_eq!(shop.stage.alpha().guest_running(203), Some(false), "it is down when that is said");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_kind_of_guest_and_foreign_arguments_are_refused_by_name() {
    let shop = Shop::new().await;
    let refused = shop.call("reset_vm", json!({"vmid": 200})).await.unwrap_err();
    assert_eq!(code(&refused), "wrong_guest_kind", "{refused}");
    let refused = shop.call("stop_container", json!({"vmid": 100})).await.unwrap_err();
    assert_eq!(code(&refused), "wrong_guest_kind", "{refused}");
    let refused = shop.call("stop_vm", json!({"vmid": 100, "force": true})).await.unwrap_err();
    assert!(message(&refused).contains("force"), "{refused}");
    let refused = shop.call("suspend_vm", json!({"vmid": 100, "storage": "local-lvm"})).await.unwrap_err();
    assert!(message(&refused).contains("todisk"), "{refused}");
    assert_eq!(shop.sent(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_02_a_wildcard_reaches_none_of_them_and_a_tier_is_needed() {
    let shop = Shop::with(|stage| {
        stage.token("wild", Rights { tools: &["*"], ..WORKER });
        stage.token("tierless", Rights { actions: &["read"], ..WORKER });
    })
    .await;
    let listed = shop.client("wild").tools().await;
    let listed_for_worker = shop.client("worker").tools().await;
    for (tool, vmid, ..) in ACTIONS {
        assert!(!listed.contains(&(*tool).to_owned()), "{tool}");
        assert!(listed_for_worker.contains(&(*tool).to_owned()), "{tool}");
        let arguments = json!({"cluster": "alpha", "vmid": vmid});
        let refused = shop.client("wild").call(tool, arguments.clone()).await.unwrap_err();
        assert_eq!(code(&refused), "insufficient_scope", "{tool}");
        let refused: Value = shop.client("tierless").call(tool, arguments).await.unwrap_err();
        assert!(message(&refused).contains("low"), "{tool}: {refused}");
    }
    assert_eq!(shop.sent(), Vec::<String>::new());
}
