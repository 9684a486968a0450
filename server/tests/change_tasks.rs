//! Rows of the threat model about what happens between an apply and its cluster: what moved, what was sent, what became of it.

#[path = "support/changes.rs"]
mod changes;
mod support;

use changes::{DELETE, MACHINE, Set, VMID, code};
use lab::{Action, Fault};
use serde_json::Value;
use support::Stage;

const TASK: &str = "/nodes/{node}/tasks/{upid}/status";
const TASKS: &str = "/nodes/{node}/tasks";

fn status(code: u16, reason: &str) -> Action {
    Action::Status { code, reason: reason.into(), body: String::new() }
}

fn raw(body: &str) -> Action {
    Action::Raw(bytes::Bytes::from(body.to_owned()))
}

/// A set whose server gives up on what it cannot read after so many milliseconds.
async fn patient_for(millis: u64) -> Set {
    let mut policy = support::roomy();
    policy["limits"]["recovery_give_up_ms"] = millis.into();
    Set::of(Stage::with_policy(policy).await).await
}

fn note(set: &Value) -> &str {
    set["ended"]["note"].as_str().unwrap_or_default()
}

// === what moved since the plan ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_20_a_guest_that_was_started_or_got_a_snapshot_is_not_the_one_approved() {
    let set = Set::new().await;
    let plan = set.approved().await;
    set.stage.alpha().start(VMID).unwrap();
    let refused = set.apply(&plan).await.unwrap_err();
    assert_eq!(refused["code"], "fingerprint_moved", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("status"), "{refused}");
    set.stage.alpha().stop(VMID).unwrap();
    // A snapshot becomes the parent of the guest's configuration, whose digest covers it.
    set.stage.alpha().set_option(VMID, "parent", Some("before-cleanup")).unwrap();
    let refused = set.apply(&plan).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("config_digest"), "{refused}");
    set.stage.alpha().set_option(VMID, "parent", None).unwrap();
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied", "it is as it was approved again");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_21_a_machine_made_anew_under_the_same_number_is_not_the_one_approved() {
    let set = Set::new().await;
    let plan = set.plan_of(MACHINE).await.unwrap();
    set.approve(&plan).await.unwrap();
    set.stage.alpha().recreate(MACHINE).unwrap();
    let refused = set.apply(&plan).await.unwrap_err();
    assert_eq!(refused["code"], "fingerprint_moved", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("hardware") && message.contains("last_life_task"), "{message}");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_21_a_container_made_anew_byte_for_byte_is_known_by_the_task_that_made_it() {
    let set = Set::new().await;
    let net = set.stage.alpha().guest_option(VMID, "net0").unwrap();
    let plan = set.approved().await;
    set.stage.alpha().recreate(VMID).unwrap();
    set.stage.alpha().set_option(VMID, "net0", Some(&net)).unwrap();
    let refused = set.apply(&plan).await.unwrap_err();
    assert_eq!(refused["code"], "fingerprint_moved", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("plan (last_life_task)"), "{refused}");
    assert_eq!(set.deletes(), 0);
}

// === what was sent ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_41_the_one_request_is_what_was_approved_and_never_forced() {
    let set = Set::new().await;
    assert_eq!(code(set.plan_of(100).await), "plan_impossible", "a running machine");
    let mut arguments = changes::destroy(VMID);
    arguments["purge"] = true.into();
    let plan = set.agent.call("plan_proxmox_destroy", arguments).await.unwrap();
    set.approve(&plan).await.unwrap();
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    let requests = set.stage.alpha().requests();
    let sent: Vec<_> = requests.iter().filter(|r| r.is_mutation()).collect();
    assert_eq!((sent.len(), sent[0].path.as_str()), (1, "/nodes/pve1/lxc/201"));
    let params: Vec<_> = sent[0].params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert!(params.contains(&("purge", "1")), "{params:?}");
    assert!(params.iter().all(|(key, _)| !["force", "skiplock"].contains(key)), "{params:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn au_02_the_attempt_is_on_record_before_the_request_and_the_outcome_once_after() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let mut held = set.stage.alpha().inject(Fault::once("DELETE", DELETE, Action::HoldBefore));
    let applying = tokio::spawn({
        let (agent, named) = (set.agent.clone(), changes::named(&plan));
        async move { agent.call("apply_proxmox_change_set", named).await }
    });
    held.struck().await;
    let attempts = set.records("change.attempt", &plan);
    assert_eq!(
        (attempts.len(), &attempts[0]["details"]["approver"]),
        (1, &"approver".into()),
        "{attempts:?}"
    );
    assert!(set.records("change.outcome", &plan).is_empty());
    held.release();
    assert_eq!(applying.await.unwrap().unwrap()["state"], "applied");
    let outcomes = set.records("change.outcome", &plan);
    assert_eq!((outcomes.len(), &outcomes[0]["outcome"]), (1, &"applied".into()), "{outcomes:?}");
    assert_eq!(set.records("change.attempt", &plan).len(), 1);
    assert_eq!((set.records("change.plan", &plan).len(), set.records("change.approve", &plan).len()), (1, 1));
}

// === what became of it ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_27_answers_that_say_nothing_about_the_request_are_looked_up() {
    for (name, action, state) in [
        // The node asked never reached the other one, and says so.
        ("no connection to the node", status(595, "No route to host"), "failed"),
        ("a proxy's answer", status(502, "Bad Gateway"), "unknown"),
        (
            "another guest's task",
            raw(r#"{"data":"UPID:pve1:0000C350:00BC614E:69000000:vzdestroy:202:root@pam!lab:"}"#),
            "applied",
        ),
        (
            "another kind of task",
            raw(r#"{"data":"UPID:pve1:0000C350:00BC614E:69000000:vzstart:201:root@pam!lab:"}"#),
            "applied",
        ),
        (
            "another node's task",
            raw(r#"{"data":"UPID:pve2:0000C350:00BC614E:69000000:vzdestroy:201:root@pam!lab:"}"#),
            "applied",
        ),
    ] {
        let set = Set::new().await;
        let plan = set.approved().await;
        set.stage.alpha().inject(Fault::once("DELETE", DELETE, action));
        let end = set.apply(&plan).await.unwrap();
        assert_eq!((&end["state"], set.deletes()), (&state.into(), 1), "{name}: {end}");
        assert_eq!(set.stage.alpha().guest_exists(VMID), state != "applied", "{name}");
        if state == "applied" {
            // What was adopted is the task that the lab really started.
            let upid = end["steps"][0]["upid"].as_str().unwrap();
            assert!(set.stage.alpha().tasks().iter().any(|(known, _)| known == upid), "{name}: {upid}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_29_a_task_that_cannot_be_read_for_a_while_is_followed_to_its_end() {
    let unreadable = "unable to get last line from task log - No such file or directory";
    let unreadable = format!(r#"{{"data":{{"status":"stopped","exitstatus":"{unreadable}"}}}}"#);
    for (name, action) in [
        ("the node is down", status(595, "No route to host")),
        ("its log is gone", raw(&unreadable)),
        ("no exit status", raw(r#"{"data":{"status":"stopped"}}"#)),
    ] {
        let set = Set::new().await;
        let plan = set.approved().await;
        set.stage.alpha().inject(Fault::once("GET", TASK, action.clone()));
        set.stage.alpha().inject(Fault::once("GET", TASK, action).nth(2));
        let end = set.apply(&plan).await.unwrap();
        assert_eq!((&end["state"], set.deletes()), (&"applied".into(), 1), "{name}: {end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_29_a_task_whose_end_stays_unreadable_is_unknown_never_applied() {
    for (name, action) in [
        ("no answer", status(500, "no such task")),
        ("no exit status", raw(r#"{"data":{"status":"stopped"}}"#)),
        ("no sense", raw(r#"{"data":{"status":"OK"}}"#)),
    ] {
        let set = patient_for(300).await;
        let plan = set.approved().await;
        set.stage.alpha().inject(Fault::always("GET", TASK, action));
        let end = set.apply(&plan).await.unwrap();
        assert_eq!((&end["state"], set.deletes()), (&"unknown".into(), 1), "{name}: {end}");
        assert!(!note(&end).is_empty(), "{name}: {end}");
        set.stage.alpha().clear_faults();
        // It stays so for a person, whatever can be read later.
        assert_eq!(set.show(&plan).await["state"], "unknown", "{name}");
        assert_eq!(code(set.apply(&plan).await), "not_approved", "{name}");
        let outcomes = set.records("change.outcome", &plan);
        assert_eq!((outcomes.len(), &outcomes[0]["details"]["state"]), (1, &"unknown".into()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_25_a_lost_answer_with_an_unreadable_task_list_is_unknown() {
    let set = patient_for(300).await;
    let plan = set.approved().await;
    set.stage.alpha().inject(Fault::once("DELETE", DELETE, Action::DropAfter));
    // The facts of both online nodes and the watermark are read before the request; from then on nothing is listed.
    let unlisted = |n| set.stage.alpha().inject(Fault::once("GET", TASKS, status(500, "not today")).nth(n));
    let failing: Vec<_> = (4..40).map(unlisted).collect();
    let end = set.apply(&plan).await.unwrap();
    assert_eq!((&end["state"], set.deletes()), (&"unknown".into(), 1), "{end}");
    assert!(failing.iter().any(|fault| fault.strikes() > 0), "{end}");
    assert!(note(&end).contains("not today"), "{end}");
    assert_eq!(code(set.apply(&plan).await), "not_approved");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_27_a_cluster_that_cannot_be_read_before_the_request_keeps_the_approval() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let failing = set.stage.alpha().inject(Fault::always("GET", TASKS, status(500, "no tasks today")));
    assert_eq!(code(set.apply(&plan).await), "unavailable");
    assert!(failing.strikes() > 0);
    assert_eq!((set.deletes(), &set.show(&plan).await["state"]), (0, &"approved".into()));
    set.stage.alpha().clear_faults();
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
}
