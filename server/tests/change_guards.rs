//! Rows of the threat model about change sets: who may do what, under which protection, and what the trail says of it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/changes.rs"]
mod changes;
mod support;

use changes::{DELETE, MACHINE, Set, VMID, approval, code, destroy, named};
use lab::{Action, Fault, TaskExit};
use proxward::serve::{Options, start_http};
use serde_json::{Value, json};
use support::{AGENT, APPROVER, READER, Rights, Stage};

const OTHER_AGENT: Rights<'static> = Rights { person: Some("jo"), ..AGENT };

// === approvals ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_07_the_digest_and_the_number_of_another_set_approve_nothing() {
    let set = Set::new().await;
    let (one, two) = (set.plan().await, set.plan_of(MACHINE).await.unwrap());
    assert_ne!(one["digest"], two["digest"]);
    let mut wrong = approval(&one);
    wrong["digest"] = two["digest"].clone();
    assert_eq!(code(set.approver.call("approve_proxmox_change_set", wrong).await), "digest_changed");
    let mut wrong = approval(&one);
    wrong["confirm_vmid"] = MACHINE.into();
    assert_eq!(code(set.approver.call("approve_proxmox_change_set", wrong).await), "confirmation_missing");
    for plan in [&one, &two] {
        assert_eq!(set.show(plan).await["state"], "planned");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_11_an_approver_needs_the_guest_and_the_tier() {
    let mut stage = Stage::new().await;
    stage.token("no-tier", Rights { actions: &["read", "low"], ..APPROVER });
    stage.token("by-tag", Rights { guests: &["tag:dev"], ..APPROVER });
    let set = Set::of(stage).await;
    let plan = set.plan().await;
    let refused = set.client("no-tier").call("approve_proxmox_change_set", approval(&plan)).await;
    assert_eq!(code(refused), "insufficient_scope");
    // Inside the scope when it was planned, outside when it is approved.
    set.stage.alpha().set_tags(VMID, &["prod"]).unwrap();
    let refused = set.client("by-tag").call("approve_proxmox_change_set", approval(&plan)).await;
    assert_eq!(code(refused), "authorization_failed");
    set.stage.alpha().set_tags(VMID, &["dev"]).unwrap();
    set.client("by-tag").call("approve_proxmox_change_set", approval(&plan)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_12_a_change_set_stands_only_while_both_its_people_keep_their_rights() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, &str); 6] = [
        ("planner gone", |t| drop(t.as_object_mut().unwrap().remove("agent")), "planner_invalid"),
        ("planner's guests", |t| t["agent"]["grant"]["guests"] = json!(["vmid:100-199"]), "planner_invalid"),
        ("planner's scope", |t| t["agent"]["tools"] = json!(["plan_proxmox_destroy"]), "planner_invalid"),
        ("approver's guests", |t| t["approver"]["grant"]["guests"] = json!(["tag:prod"]), "approver_invalid"),
        ("approver's kind", |t| t["approver"]["actor_type"] = json!("agent"), "approver_invalid"),
        ("approver's time", |t| t["approver"]["expires"] = json!("2020-01-01T00:00:00Z"), "approver_invalid"),
    ];
    for (name, edit, expected) in cases {
        let mut stage = Stage::new().await;
        stage.token("other", OTHER_AGENT);
        let set = Set::of(stage).await;
        let plan = set.approved().await;
        set.edit_tokens(edit).await;
        let refused = set.client("other").call("apply_proxmox_change_set", named(&plan)).await;
        assert_eq!(code(refused), expected, "{name}");
        assert_eq!(set.deletes(), 0, "{name}");
        let still = set.client("other").call("get_proxmox_change_set", named(&plan)).await.unwrap();
        assert_eq!(still["state"], "approved", "{name}: nothing is spent");
    }
}

// === once ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_16_two_sets_on_one_guest_never_run_at_the_same_time() {
    let mut stage = Stage::new().await;
    stage.token("other", OTHER_AGENT);
    let set = Set::of(stage).await;
    let one = set.approved().await;
    let other = set.client("other");
    let two = other.call("plan_proxmox_destroy", destroy(VMID)).await.unwrap();
    set.approve(&two).await.unwrap();
    let mut held = set.stage.alpha().inject(Fault::once("DELETE", DELETE, Action::HoldBefore));
    let first = tokio::spawn({
        let (agent, one) = (set.agent.clone(), named(&one));
        async move { agent.call("apply_proxmox_change_set", one).await }
    });
    held.struck().await;
    // Of its own set the caller would have to believe that it is running.
    let busy = other.call("apply_proxmox_change_set", named(&two)).await.unwrap_err();
    assert_eq!(busy["code"], "target_busy");
    assert!(busy["message"].as_str().unwrap().contains(one["change_set_id"].as_str().unwrap()), "{busy}");
    assert_eq!(code(set.apply(&one).await), "already_applying");
    held.release();
    assert_eq!(first.await.unwrap().unwrap()["state"], "applied");
    assert_eq!(code(other.call("apply_proxmox_change_set", named(&two)).await), "denied");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_18_a_finished_set_is_never_sent_again_and_a_new_plan_starts_from_nothing() {
    let set = Set::new().await;
    let with_key = || {
        let mut arguments = destroy(VMID);
        arguments["idempotency_key"] = "once".into();
        arguments
    };
    let first = set.agent.call("plan_proxmox_destroy", with_key()).await.unwrap();
    set.approve(&first).await.unwrap();
    set.stage.alpha().next_task_exit(TaskExit::Failed("storage is gone".into()));
    assert_eq!(set.apply(&first).await.unwrap()["state"], "failed");
    assert_eq!(code(set.apply(&first).await), "not_approved");
    assert_eq!(code(set.approve(&first).await), "wrong_state");
    // The key means the same request still: it answers how that one ended.
    let again = set.agent.call("plan_proxmox_destroy", with_key()).await.unwrap();
    assert_eq!((&again["change_set_id"], &again["state"]), (&first["change_set_id"], &"failed".into()));

    let second = set.plan().await;
    assert_ne!(second["change_set_id"], first["change_set_id"]);
    assert_ne!(second["digest"], first["digest"]);
    assert_eq!(code(set.apply(&second).await), "not_approved");
    let mut old = approval(&second);
    old["digest"] = first["digest"].clone();
    assert_eq!(code(set.approver.call("approve_proxmox_change_set", old).await), "digest_changed");
    assert_eq!(set.deletes(), 1);
    set.approve(&second).await.unwrap();
    assert_eq!(set.apply(&second).await.unwrap()["state"], "applied");
    assert_eq!(set.deletes(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_38_the_pace_is_each_clusters_own_and_the_refusal_says_how_long() {
    let mut policy = support::roomy();
    policy["limits"]["destructive_applies_per_hour"] = 1.into();
    let set = Set::of(Stage::with_policy(policy).await).await;
    let plan = set.approved().await;
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    let second = set.plan_of(MACHINE).await.unwrap();
    set.approve(&second).await.unwrap();
    let refused = set.apply(&second).await.unwrap_err();
    assert_eq!(refused["code"], "rate_limited", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("60 minutes"), "{refused}");
    // The other cluster has a pace of its own.
    let there = json!({"cluster": "beta", "vmid": 102, "op": "destroy_guest"});
    let there = set.agent.call("plan_proxmox_destroy", there).await.unwrap();
    set.approve(&there).await.unwrap();
    assert_eq!(set.apply(&there).await.unwrap()["state"], "applied");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_37_the_cap_of_all_planners_together_is_the_policys() {
    let mut policy = support::roomy();
    policy["limits"]["pending_changes"] = 1.into();
    let mut stage = Stage::with_policy(policy).await;
    stage.token("other", OTHER_AGENT);
    let set = Set::of(stage).await;
    set.plan().await;
    let refused = set.client("other").call("plan_proxmox_destroy", destroy(MACHINE)).await;
    assert_eq!(code(refused), "too_many_pending");
}

// === protection, waivers, lab mode ===

#[tokio::test(flavor = "multi_thread")]
async fn pw_02_a_guest_protected_between_plan_and_approval_is_not_destroyed() {
    let set = Set::new().await;
    let plan = set.plan().await;
    set.stage.alpha().set_tags(VMID, &["dev", "PROTECTED"]).unwrap();
    set.approve(&plan).await.unwrap();
    let refused = set.apply(&plan).await.unwrap_err();
    assert_eq!(refused["code"], "denied", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("protected"), "{refused}");
    assert_eq!(set.deletes(), 0);
}

/// Writes a waiver for the guest, which has the tag `protected` from now on.
fn waive(stage: &Stage, until: &str) {
    stage.alpha().set_tags(VMID, &["dev", "protected"]).unwrap();
    let file = json!({"version": 1, "waivers": [{
        "cluster": "alpha", "vmid": VMID, "ops": ["destroy_guest"], "until": until, "principal": "agent",
        "reason": "moved to \u{202e}new hardware", "ticket": "OPS-7",
    }]});
    let path = stage.path("waivers.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).unwrap();
}

fn in_an_hour() -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_06_a_waiver_serves_only_the_token_it_names() {
    let mut stage = Stage::new().await;
    stage.token("other", OTHER_AGENT);
    waive(&stage, &in_an_hour());
    let set = Set::of(stage).await;
    let other = set.client("other");
    assert_eq!(code(other.call("plan_proxmox_destroy", destroy(VMID)).await), "protected");
    let plan = set.approved().await;
    assert_eq!(code(other.call("apply_proxmox_change_set", named(&plan)).await), "denied");
    assert_eq!(set.deletes(), 0);
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_07_a_waiver_that_ended_since_the_plan_lifts_nothing() {
    let stage = Stage::new().await;
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(2_500);
    waive(&stage, &until.to_string());
    let set = Set::of(stage).await;
    let plan = set.approved().await;
    // No reload: what is loaded already ends by itself.
    while jiff::Timestamp::now() < until {
        tokio::task::yield_now().await;
    }
    assert_eq!(code(set.apply(&plan).await), "denied");
    // Nor one that an operator took away.
    waive(&set.stage, &in_an_hour());
    set.reload().await;
    std::fs::remove_file(set.stage.path("waivers.json")).unwrap();
    set.reload().await;
    assert_eq!(code(set.apply(&plan).await), "denied");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_08_a_waiver_is_no_second_person_and_its_words_are_in_what_is_approved() {
    let stage = Stage::new().await;
    waive(&stage, &in_an_hour());
    let set = Set::of(stage).await;
    let plan = set.plan().await;
    assert_eq!(plan["state"], "planned", "{plan}");
    let preview = plan["preview"].as_str().unwrap();
    let line = preview.lines().find(|line| line.starts_with("Protection")).unwrap();
    assert!(line.contains("PROTECTED") && line.contains("new hardware") && line.contains("OPS-7"), "{line}");
    assert!(!preview.contains('\u{202e}'), "{preview:?}");
    assert_eq!(code(set.apply(&plan).await), "not_approved");
    set.approve(&plan).await.unwrap();
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_13_lab_mode_approves_protected_guests_alone_and_is_stamped_everywhere() {
    let stage = Stage::new().await;
    stage.alpha().set_tags(VMID, &["protected"]).unwrap();
    let server = start_http(&stage.args(&["--lab-mode"]), Options::default()).await.unwrap();
    let set = Set::with(stage, server);
    let ordinary = set.plan_of(MACHINE).await.unwrap();
    let protected = set.plan().await;
    for plan in [&ordinary, &protected] {
        assert_eq!(plan["lab_mode"], true, "{plan}");
        assert!(plan["preview"].as_str().unwrap().contains("Lab mode"), "{plan}");
    }
    assert_eq!((&ordinary["state"], &protected["state"]), (&"planned".into(), &"approved".into()));
    assert_eq!(code(set.apply(&ordinary).await), "not_approved");
    assert_eq!(set.apply(&protected).await.unwrap()["state"], "applied");
    assert_eq!(set.deletes(), 1);
    set.server.stop().await;
    let records = set.stage.audit();
    let of_sets: Vec<_> = records.iter().filter(|r| r["change_set"].is_string()).collect();
    assert!(of_sets.len() >= 4 && of_sets.iter().all(|r| r["lab_mode"] == true), "{of_sets:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pw_13_an_approval_by_lab_mode_ends_with_lab_mode() {
    let stage = Stage::new().await;
    stage.alpha().set_tags(VMID, &["dev", "protected"]).unwrap();
    let server = start_http(&stage.args(&["--lab-mode"]), Options::default()).await.unwrap();
    let set = Set::with(stage, server);
    let plan = set.plan().await;
    assert_eq!(plan["state"], "approved");
    set.server.stop().await;
    let server = set.stage.serve().await;
    let set = Set::with(set.stage, server);
    assert_eq!(code(set.apply(&plan).await), "denied", "the guest is protected again");
    // Where a waiver lifts that, still nobody has approved.
    waive(&set.stage, &in_an_hour());
    set.reload().await;
    assert_eq!(code(set.apply(&plan).await), "approver_invalid");
    assert_eq!(set.deletes(), 0);
}

// === who sees a set ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_40_a_set_is_shown_to_its_planner_and_to_whoever_holds_its_guest() {
    let mut stage = Stage::new().await;
    stage.token("dev", Rights { guests: &["tag:dev"], person: None, ..READER });
    stage.token("prod", Rights { guests: &["tag:prod"], person: None, ..READER });
    stage.token("no-read", Rights { actions: &["low"], person: None, ..READER });
    let set = Set::of(stage).await;
    let plan = set.approved().await;
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    // The guest is gone; what it was when it was planned still says who may know.
    for (token, sees) in [
        ("agent", true),
        ("approver", true),
        ("reader", true),
        ("dev", true),
        ("prod", false),
        ("no-read", false),
    ] {
        let shown = set.client(token).call("get_proxmox_change_set", named(&plan)).await;
        assert_eq!(shown.is_ok(), sees, "{token}: {shown:?}");
        if let Err(refused) = shown {
            assert_eq!(refused["code"], "unknown_change_set", "{token}");
        }
    }
    set.edit_tokens(|tokens| tokens["agent"]["grant"]["guests"] = json!(["vmid:100"])).await;
    assert_eq!(set.show(&plan).await["state"], "applied", "a planner may always know what became of it");
}
