//! Rows of the threat model about change sets, where the server adds something to what the `changeset` crate proves itself.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/changes.rs"]
mod changes;
mod support;

use std::collections::BTreeSet;

use changes::{DELETE, MACHINE, Set, VMID, approval, code, named};
use http::Method;
use lab::{Action, Fault, TaskExit};
use proxward::cli::token::ActorType;
use serde_json::json;
use support::{AGENT, APPROVER, Rights, Stage, request, send};

#[tokio::test(flavor = "multi_thread")]
async fn cs_02_duplicate_keys_are_refused_before_anything_is_typed() {
    let set = Set::new().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plan_proxmox_destroy",
        "arguments":{"cluster":"alpha","op":"destroy_guest","vmid":201,"vmid":202}}}"#;
    let mut post = request(set.server.address, Method::POST, "/mcp", body);
    let bearer = format!("Bearer {}", set.stage.bearer("agent"));
    post.headers_mut().insert("authorization", bearer.parse().unwrap());
    post.headers_mut().insert("content-type", "application/json".parse().unwrap());
    let answer = send(set.server.address, post).await.unwrap();
    assert_eq!(answer.json()["error"]["code"], -32600, "{:?}", answer.body);
    assert!(set.stage.alpha().requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_07_an_approval_must_carry_the_digest_that_was_seen() {
    let set = Set::new().await;
    let (plan, other) = (set.plan().await, set.plan_of(202).await.err());
    assert!(other.is_some(), "202 runs, so it cannot be planned");
    for digest in ["0".repeat(64), plan["digest"].as_str().unwrap()[..8].to_owned(), String::new()] {
        let wrong = json!({"change_set_id": plan["change_set_id"], "digest": digest, "confirm_vmid": VMID});
        let refused = code(set.approver.call("approve_proxmox_change_set", wrong).await);
        assert!(["digest_changed", "invalid_argument"].contains(&refused.as_str()), "{digest}: {refused}");
    }
    for confirm in [json!(null), json!(202)] {
        let mut wrong = approval(&plan);
        wrong["confirm_vmid"] = confirm;
        if wrong["confirm_vmid"].is_null() {
            wrong.as_object_mut().unwrap().remove("confirm_vmid");
        }
        assert_eq!(
            code(set.approver.call("approve_proxmox_change_set", wrong).await),
            "confirmation_missing"
        );
    }
    let seen = set.agent.call("get_proxmox_change_set", named(&plan)).await.unwrap();
    assert_eq!(seen["state"], "planned");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_08_and_09_only_another_human_approves() {
    let mut stage = Stage::new().await;
    let tools = &["approve_proxmox_change_set", "get_proxmox_change_set"];
    let approver = Rights { tools, ..APPROVER };
    stage.token("same-person", Rights { person: Some("ROBIN"), ..approver });
    stage.token("machine", Rights { kind: Some(ActorType::Agent), person: None, ..approver });
    stage.token("nobody", Rights { kind: None, person: None, ..approver });
    let set = Set::of(stage).await;
    let plan = set.plan().await;
    for (token, why) in [
        ("same-person", "approver_is_planner"),
        ("machine", "approver_not_human"),
        ("nobody", "approver_not_human"),
    ] {
        let client = set.stage.client(set.server.address, token);
        assert_eq!(code(client.call("approve_proxmox_change_set", approval(&plan)).await), why, "{token}");
    }
    // Agents do not even see the tool.
    assert!(!set.stage.client(set.server.address, "machine").tools().await.contains(&tools[0].to_owned()));
    assert!(set.approver.tools().await.contains(&tools[0].to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_11_and_40_a_set_outside_the_scope_does_not_exist() {
    let mut stage = Stage::new().await;
    stage.token("elsewhere", Rights { guests: &["vmid:100-199"], ..APPROVER });
    stage.token("other-cluster", Rights { clusters: &["beta"], ..APPROVER });
    let set = Set::of(stage).await;
    let plan = set.plan().await;
    let unknown = json!({"change_set_id": "cs_aaaaaaaaaaaaaaaaaaaaaaaaaa"});
    let missing = set.approver.call("get_proxmox_change_set", unknown).await.unwrap_err();
    for token in ["elsewhere", "other-cluster"] {
        let client = set.stage.client(set.server.address, token);
        assert_eq!(
            client.call("get_proxmox_change_set", named(&plan)).await.unwrap_err(),
            missing,
            "{token}"
        );
        assert_eq!(
            client.call("approve_proxmox_change_set", approval(&plan)).await.unwrap_err(),
            missing,
            "{token}"
        );
    }
    let altered = json!({"change_set_id": plan["change_set_id"].as_str().unwrap().to_uppercase()});
    assert_eq!(set.agent.call("get_proxmox_change_set", altered).await.unwrap_err(), missing);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_12_an_approval_stands_only_while_its_giver_does() {
    let set = Set::new().await;
    let plan = set.approved().await;
    set.edit_tokens(|tokens| {
        tokens.as_object_mut().unwrap().remove("approver").unwrap();
    })
    .await;
    assert_eq!(code(set.apply(&plan).await), "approver_invalid");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_13_nothing_but_an_approved_set_is_applied() {
    let set = Set::new().await;
    let plan = set.plan().await;
    assert_eq!(code(set.apply(&plan).await), "not_approved");
    set.approver.call("approve_proxmox_change_set", approval(&plan)).await.unwrap();
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    assert_eq!(code(set.apply(&plan).await), "not_approved");
    assert_eq!(set.deletes(), 1);
}

// E17: two attempts at one operation at once never run it twice.
#[tokio::test(flavor = "multi_thread")]
async fn cs_16_sixty_four_applies_at_once_send_one_request() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let (agent, plan) = (set.agent.clone(), named(&plan));
            tokio::spawn(async move { agent.call("apply_proxmox_change_set", plan).await })
        })
        .collect();
    let mut seen = BTreeSet::new();
    let mut applied = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(result) => {
                assert_eq!(result["state"], "applied");
                applied += 1;
            }
            Err(refused) => {
                seen.insert(refused["code"].as_str().unwrap().to_owned());
            }
        }
    }
    assert_eq!((applied, set.deletes()), (1, 1), "{seen:?}");
    let allowed = BTreeSet::from(["already_applying".to_owned(), "not_approved".to_owned()]);
    assert!(seen.is_subset(&allowed), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_18_and_19_one_pending_set_a_guest_and_keys_that_mean_one_thing() {
    let set = Set::new().await;
    let with_key = |purge: bool| json!({"cluster": "alpha", "vmid": VMID, "op": "destroy_guest", "purge": purge, "idempotency_key": "k1"});
    let first = set.agent.call("plan_proxmox_destroy", with_key(false)).await.unwrap();
    let same = set.agent.call("plan_proxmox_destroy", with_key(false)).await.unwrap();
    assert_eq!(first["change_set_id"], same["change_set_id"]);
    assert_eq!(code(set.agent.call("plan_proxmox_destroy", with_key(true)).await), "idempotency_key_reused");
    let second = set.plan_of(VMID).await.unwrap_err();
    assert_eq!(second["code"], "already_pending");
    assert!(
        second["message"].as_str().unwrap().contains(first["change_set_id"].as_str().unwrap()),
        "{second}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_20_what_moved_since_the_plan_refuses_and_is_named() {
    for (key, value, field) in
        [("memory", "4096", "config_digest"), ("hostname", "renamed", "name"), ("tags", "dev;more", "tags")]
    {
        let set = Set::new().await;
        let plan = set.approved().await;
        set.stage.alpha().set_option(VMID, key, Some(value)).unwrap();
        let refused = set.apply(&plan).await.unwrap_err();
        assert_eq!(refused["code"], "fingerprint_moved", "{key}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains(field), "{key}: {refused}");
        assert_eq!(set.deletes(), 0, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_20_a_guest_that_only_changed_its_node_is_found_there() {
    let set = Set::new().await;
    let plan = set.approved().await;
    set.stage.alpha().migrate(VMID, "pve2").unwrap();
    let applied = set.apply(&plan).await.unwrap();
    assert_eq!(applied["state"], "applied", "{applied}");
    assert!(applied["steps"][0]["upid"].as_str().unwrap().starts_with("UPID:pve2:"), "{applied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_21_a_guest_made_anew_under_the_same_number_is_not_the_one_approved() {
    let set = Set::new().await;
    let plan = set.approved().await;
    set.stage.alpha().recreate(VMID).unwrap();
    let refused = set.apply(&plan).await.unwrap_err();
    assert_eq!(refused["code"], "fingerprint_moved", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("last_life_task") && message.contains("hardware"), "{message}");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_25_and_27_a_lost_answer_is_looked_up_and_never_sent_again() {
    let lost = |body: &str| Action::Raw(bytes::Bytes::from(body.to_owned()));
    for (name, action, state) in [
        ("answer cut off", Action::DropAfter, "applied"),
        ("cut in the middle", Action::Truncate, "applied"),
        ("no data", lost(r#"{"data":null}"#), "applied"),
        ("no task id", lost(r#"{"data":"OK"}"#), "applied"),
        ("no JSON", lost("<html>"), "applied"),
        ("request cut off", Action::DropBefore, "unknown"),
        (
            "proxy gave up",
            Action::Status { code: 596, reason: "Connection timed out".into(), body: String::new() },
            "unknown",
        ),
    ] {
        let set = Set::new().await;
        let plan = set.approved().await;
        set.stage.alpha().inject(Fault::once("DELETE", DELETE, action));
        let end = set.apply(&plan).await.unwrap();
        assert_eq!(end["state"], state, "{name}: {end}");
        assert_eq!(set.deletes(), 1, "{name}");
        assert_eq!(set.stage.alpha().guest_exists(VMID), state == "unknown", "{name}");
        assert_eq!(code(set.apply(&plan).await), "not_approved", "{name}");
        assert_eq!(set.deletes(), 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_27_a_plain_refusal_is_a_failure_and_nothing_more_is_sent() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let refusal = Action::Status {
        code: 500,
        reason: "CT is locked (backup)".into(),
        body: r#"{"data":null,"message":"CT is locked (backup)\n"}"#.into(),
    };
    set.stage.alpha().inject(Fault::once("DELETE", DELETE, refusal));
    let end = set.apply(&plan).await.unwrap();
    assert_eq!(end["state"], "failed", "{end}");
    assert!(end["ended"]["note"].as_str().unwrap().contains("CT is locked (backup)"), "{end}");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_30_warnings_are_success_and_shown_anything_else_is_failure() {
    for (exit, state, shown) in [
        (TaskExit::Warnings(2), "applied", "WARNINGS: 2"),
        (TaskExit::Failed("storage is gone".into()), "failed", "failed: storage is gone"),
    ] {
        let set = Set::new().await;
        let plan = set.approved().await;
        set.stage.alpha().next_task_exit(exit);
        let end = set.apply(&plan).await.unwrap();
        assert_eq!((&end["state"], &end["steps"][0]["outcome"]), (&state.into(), &shown.into()), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_41_what_could_never_be_applied_is_not_planned() {
    let mut stage = Stage::new().await;
    let without =
        |tool: &str| -> Vec<&'static str> { AGENT.tools.iter().copied().filter(|t| *t != tool).collect() };
    stage.token("no-scope", Rights { tools: &without("delete_container"), ..AGENT });
    stage.token("no-tier", Rights { actions: &["read", "low"], ..AGENT });
    stage.token("elsewhere", Rights { guests: &["vmid:100-199"], ..AGENT });
    let set = Set::of(stage).await;
    for (vmid, expected) in
        [(202, "plan_impossible"), (204, "protected"), (203, "protected"), (999, "authorization_failed")]
    {
        assert_eq!(code(set.plan_of(vmid).await), expected, "{vmid}");
    }
    let arguments = json!({"cluster": "alpha", "vmid": VMID, "op": "destroy_guest"});
    for (token, expected) in [
        ("no-scope", "insufficient_scope"),
        ("no-tier", "insufficient_scope"),
        ("elsewhere", "authorization_failed"),
    ] {
        let client = set.stage.client(set.server.address, token);
        assert_eq!(code(client.call("plan_proxmox_destroy", arguments.clone()).await), expected, "{token}");
    }
    for (key, value) in [("lock", "backup"), ("protection", "1")] {
        set.stage.alpha().set_option(VMID, key, Some(value)).unwrap();
        let refused = code(set.plan_of(VMID).await);
        assert!(["plan_impossible", "protected"].contains(&refused.as_str()), "{key}: {refused}");
        set.stage.alpha().set_option(VMID, key, None).unwrap();
    }
    assert_eq!(set.stage.alpha().mutations(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_10_absent_and_not_yours_are_the_same_bytes() {
    let mut stage = Stage::new().await;
    stage.token("narrow", Rights { guests: &["vmid:100-199"], ..AGENT });
    let set = Set::of(stage).await;
    let client = set.stage.client(set.server.address, "narrow");
    for tool in ["get_guest_status", "start_vm", "stop_vm", "plan_proxmox_destroy", "proxmox_upload_link"] {
        let mut bodies = BTreeSet::new();
        for vmid in [201, 999] {
            let mut arguments = json!({"cluster": "alpha", "vmid": vmid});
            if tool == "plan_proxmox_destroy" {
                arguments["op"] = "destroy_guest".into();
            }
            if tool == "proxmox_upload_link" {
                arguments["dest"] = "/root/x".into();
            }
            let answer = client.rpc("tools/call", json!({"name": tool, "arguments": arguments})).await;
            bodies.insert((answer.status, answer.body));
        }
        assert_eq!(bodies.len(), 1, "{tool}: {bodies:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_02_a_guest_that_became_protected_since_the_approval_is_not_destroyed() {
    let set = Set::new().await;
    let plan = set.approved().await;
    set.stage.alpha().set_tags(VMID, &["dev", "Protected"]).unwrap();
    assert_eq!(code(set.apply(&plan).await), "denied");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_37_and_38_pending_plans_and_destructive_applies_are_bounded_by_policy() {
    let mut policy = support::roomy();
    policy["limits"]["destructive_applies_per_hour"] = 1.into();
    policy["limits"]["pending_changes_per_planner"] = 1.into();
    let set = Set::of(Stage::with_policy(policy).await).await;
    let plan = set.approved().await;
    assert_eq!(code(set.plan_of(104).await), "too_many_pending");
    // What is refused before anything is sent costs no turn.
    set.stage.alpha().set_tags(VMID, &["dev", "protected"]).unwrap();
    assert_eq!(code(set.apply(&plan).await), "denied");
    set.stage.alpha().set_tags(VMID, &["dev"]).unwrap();
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    let second = set.plan_of(104).await.unwrap();
    let approval =
        json!({"change_set_id": second["change_set_id"], "digest": second["digest"], "confirm_vmid": 104});
    set.approver.call("approve_proxmox_change_set", approval).await.unwrap();
    let refused = set.apply(&second).await.unwrap_err();
    assert_eq!(refused["code"], "rate_limited", "{refused}");
    assert_eq!(set.deletes(), 1);
    let still = set.agent.call("get_proxmox_change_set", named(&second)).await.unwrap();
    assert_eq!(still["state"], "approved", "nothing was spent");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_05_a_preview_that_was_changed_in_the_state_file_is_refused_and_recorded() {
    let set = Set::new().await;
    let plan = set.approved().await;
    let other = set.plan_of(MACHINE).await.unwrap();
    let file = rusqlite::Connection::open(set.stage.path("state/state.db")).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let changed = file
        .execute(
            "UPDATE change_set SET body = replace(body, 'destroy LXC container 201', 'destroy LXC container 299'), version = version + 1 \
             WHERE body LIKE '%destroy LXC container 201%'",
            [],
        )
        .unwrap();
    assert_eq!(changed, 1, "the preview says what is destroyed");
    for refused in [
        set.apply(&plan).await.unwrap_err(),
        set.approve(&plan).await.unwrap_err(),
        set.agent.call("get_proxmox_change_set", named(&plan)).await.unwrap_err(),
    ] {
        assert_eq!(refused["code"], "preview_mismatch", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("does not match its digest"), "{refused}");
    }
    assert_eq!(set.deletes(), 0);
    let alerts = set.records("change.preview_mismatch", &plan);
    assert_eq!(alerts.len(), 3, "{alerts:?}");
    // Other sets are as they were.
    assert_eq!(set.show(&other).await["state"], "planned");
}
