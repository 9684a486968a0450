//! What people do about change sets: the tools that list, cancel and reject, and `proxward change` in all its ways.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/program.rs"]
mod program;
mod support;

use std::io::Write;
use std::process::{Output, Stdio};

use changes::{MACHINE, Set, VMID, code, named};
use lab::{Action, Fault};
use proxward::cli::token::ActorType;
use serde_json::{Value, json};
use support::{APPROVER, Rights, Stage, roomy};

/// `proxward change` with a token in the environment and answers on standard input.
async fn change(stage: &Stage, token: &str, line: &[&str], answers: &str) -> Output {
    let mut all = vec!["change".to_owned()];
    all.extend(line.iter().map(|s| (*s).to_owned()));
    for (flag, name) in [
        ("--state-dir", "state"),
        ("--clusters-file", "clusters.json"),
        ("--tokens-file", "tokens.json"),
        ("--waivers-file", "waivers.json"),
    ] {
        all.extend([flag.to_owned(), stage.path(name).display().to_string()]);
    }
    let mut command = program::command(&all);
    command.env("PROXWARD_TOKEN", stage.bearer(token));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let answers = answers.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        // The program may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
        child.wait_with_output().unwrap()
    })
    .await
    .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn id(plan: &Value) -> &str {
    plan["change_set_id"].as_str().unwrap()
}

fn code_of(plan: &Value) -> &str {
    &plan["digest"].as_str().unwrap()[..8]
}

async fn ids(client: &support::Client, arguments: Value) -> Vec<String> {
    let page = client.call("list_change_sets", arguments).await.unwrap();
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["change_set_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_plan_makes_room_for_another() {
    let set = Set::new().await;
    let plan = set.plan().await;
    let refused = set.plan_of(VMID).await.unwrap_err();
    assert_eq!(refused["code"], "already_pending");
    assert!(refused["message"].as_str().unwrap().contains(id(&plan)), "{refused}");
    let mut cancel = named(&plan);
    cancel["note"] = "wrong\nguest".into();
    let cancelled = set.agent.call("cancel_change_set", cancel).await.unwrap();
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(cancelled["ended"]["note"], r#"cancelled by its planner: "wrong\nguest""#);
    let record = &set.records("change.cancel", &plan)[0];
    assert_eq!((&record["principal"], &record["vmid"]), (&json!("agent"), &json!(VMID)));
    let next = set.plan_of(VMID).await.unwrap();
    assert_ne!(next["change_set_id"], plan["change_set_id"]);
    assert_eq!(code(set.apply(&plan).await), "not_approved");
    assert_eq!(set.deletes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_13_what_was_cancelled_or_rejected_is_neither_approved_nor_applied() {
    let mut stage = Stage::new().await;
    stage.token("bystander", Rights { tools: &["cancel_change_set", "reject_change_set"], ..support::AGENT });
    let set = Set::of(stage).await;
    for (approved, tool) in [
        (false, "cancel_change_set"),
        (true, "cancel_change_set"),
        (false, "reject_change_set"),
        (true, "reject_change_set"),
    ] {
        let plan = if approved { set.approved().await } else { set.plan().await };
        let client = if tool == "cancel_change_set" { &set.agent } else { &set.approver };
        client.call(tool, named(&plan)).await.unwrap();
        assert_eq!(code(client.call(tool, named(&plan)).await), "wrong_state");
        assert_eq!(code(set.approve(&plan).await), "wrong_state");
        assert_eq!(code(set.apply(&plan).await), "not_approved");
    }
    assert_eq!(set.deletes(), 0);
    // The planner cancels, a human rejects, and nobody the other way round. Agents do not see what they cannot do.
    let plan = set.plan().await;
    assert_eq!(
        code(set.client("bystander").call("reject_change_set", named(&plan)).await),
        "approver_not_human"
    );
    assert!(!set.client("bystander").tools().await.contains(&"reject_change_set".to_owned()));
    set.client("bystander").call("cancel_change_set", named(&plan)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_planners_person_cancels() {
    let mut stage = Stage::new().await;
    let tools = &["cancel_change_set"];
    stage.token("mallory", Rights { tools, person: Some("mallory"), ..support::AGENT });
    let set = Set::of(stage).await;
    let plan = set.plan().await;
    assert_eq!(code(set.client("mallory").call("cancel_change_set", named(&plan)).await), "not_the_planner");
    assert_eq!(set.show(&plan).await["state"], "planned");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_39_a_list_holds_only_what_the_token_may_see() {
    let mut stage = Stage::new().await;
    let tools = &["list_change_sets"];
    stage.token("elsewhere", Rights { tools, guests: &["vmid:100-199"], ..APPROVER });
    stage.token("other-cluster", Rights { tools, clusters: &["beta"], ..APPROVER });
    let set = Set::of(stage).await;
    let (container, machine) = (set.plan().await, set.plan_of(MACHINE).await.unwrap());
    let (container, machine) = (id(&container).to_owned(), id(&machine).to_owned());
    assert_eq!(ids(&set.approver, json!({})).await, [machine.clone(), container.clone()]);
    assert_eq!(ids(&set.agent, json!({"cluster": "beta"})).await, Vec::<String>::new());
    assert_eq!(ids(&set.client("elsewhere"), json!({})).await, std::slice::from_ref(&machine));
    assert_eq!(ids(&set.client("other-cluster"), json!({})).await, Vec::<String>::new());
    set.agent.call("cancel_change_set", json!({"change_set_id": container})).await.unwrap();
    assert_eq!(ids(&set.agent, json!({})).await, std::slice::from_ref(&machine));
    assert_eq!(ids(&set.agent, json!({"state": "cancelled"})).await, std::slice::from_ref(&container));
    assert_eq!(ids(&set.agent, json!({"all": true})).await, [machine, container]);
    assert_eq!(
        code(set.agent.call("list_change_sets", json!({"all": true, "state": "planned"})).await),
        "invalid_argument"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_42_plans_of_one_target_are_one_row_and_a_planner_has_ten() {
    let mut policy = roomy();
    policy["limits"]["pending_changes_per_planner"] = 1.into();
    let mut stage = Stage::with_policy(policy).await;
    stage.token("second", Rights { person: Some("second"), ..support::AGENT });
    let set = Set::of(stage).await;
    let first = set.plan().await;
    let newest = set.client("second").call("plan_proxmox_destroy", changes::destroy(VMID)).await.unwrap();
    let page = set.approver.call("list_change_sets", json!({})).await.unwrap();
    assert_eq!(page["total"], 1, "{page}");
    assert_eq!(page["items"][0]["change_set_id"], newest["change_set_id"]);
    assert_eq!(page["items"][0]["older"], json!([id(&first)]));
    assert_eq!(code(set.plan_of(MACHINE).await), "too_many_pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_43_people_on_the_host_approve_beside_the_agents_listener() {
    let set = Set::new().await;
    let plan = set.plan().await;
    let refused = set.apply(&plan).await.unwrap_err();
    let line = refused["approve_with"].as_str().unwrap();
    let state = set.stage.path("state");
    assert_eq!(line, format!("proxward change approve {} --state-dir {}", id(&plan), state.display()));
    assert!(refused["message"].as_str().unwrap().contains(line), "{refused}");

    let listed = change(&set.stage, "approver", &["list"], "").await;
    assert_eq!(listed.status.code(), Some(0), "{}", err(&listed));
    assert!(out(&listed).contains(id(&plan)), "{}", out(&listed));
    let shown = change(&set.stage, "approver", &["show", id(&plan)], "").await;
    for part in [plan["preview"].as_str().unwrap(), plan["digest"].as_str().unwrap()] {
        assert!(out(&shown).contains(part), "{part} in {}", out(&shown));
    }
    for answers in ["", "202\n", "201\nyes\n"] {
        let not_done = change(&set.stage, "approver", &["approve", id(&plan)], answers).await;
        assert_eq!(not_done.status.code(), Some(5), "{}", err(&not_done));
    }
    assert_eq!(set.show(&plan).await["state"], "planned");
    let answers = format!("{VMID}\n{}\n", code_of(&plan));
    let approved = change(&set.stage, "approver", &["approve", id(&plan), "--json"], &answers).await;
    assert_eq!(approved.status.code(), Some(0), "{}", err(&approved));
    assert!(err(&approved).contains(plan["preview"].as_str().unwrap()), "the person must see it first");
    let json: Value = serde_json::from_str(&out(&approved)).unwrap();
    assert_eq!((&json["state"], &json["approved_by"]), (&json!("approved"), &json!("approver")));
    assert_eq!(set.records("change.approve", &plan)[0]["details"]["via"], "host");
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "applied");
    assert_eq!(set.deletes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_gives_nobody_more_rights_than_their_token() {
    let mut stage = Stage::new().await;
    stage.token("machine", Rights { kind: Some(ActorType::Agent), ..APPROVER });
    let set = Set::of(stage).await;
    let plan = set.plan().await;
    let vmid = VMID.to_string();
    let approve = ["approve", id(&plan), "--confirm-vmid", &vmid, "--confirm-code", code_of(&plan)];
    let refused = change(&set.stage, "machine", &approve, "").await;
    assert_eq!(refused.status.code(), Some(3));
    assert!(err(&refused).contains("approver_not_human"), "{}", err(&refused));
    let unknown = change(&set.stage, "approver", &["show", "cs_aaaaaaaaaaaaaaaaaaaaaaaaaa"], "").await;
    assert_eq!(unknown.status.code(), Some(4));
    let foreign = change(&set.stage, "reader", &["cancel", id(&plan)], "").await;
    assert_eq!(foreign.status.code(), Some(3));
    assert!(err(&foreign).contains("insufficient_scope"), "{}", err(&foreign));
    assert_eq!(change(&set.stage, "approver", &["frobnicate"], "").await.status.code(), Some(2));
    assert_eq!(set.show(&plan).await["state"], "planned");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_verbs_work_over_http_but_resolving_does_not() {
    let set = Set::new().await;
    let plan = set.plan().await;
    let url = format!("http://{}", set.server.address);
    let vmid = VMID.to_string();
    let approve =
        ["approve", id(&plan), "--url", &url, "--confirm-vmid", &vmid, "--confirm-code", code_of(&plan)];
    let approved = change(&set.stage, "approver", &approve, "").await;
    assert_eq!(approved.status.code(), Some(0), "{}", err(&approved));
    assert!(out(&approved).contains("is approved"), "{}", out(&approved));
    let rejected =
        change(&set.stage, "approver", &["reject", id(&plan), "--url", &url, "--note", "no"], "").await;
    assert_eq!(rejected.status.code(), Some(0), "{}", err(&rejected));
    assert_eq!(set.show(&plan).await["state"], "rejected");
    let resolve = ["resolve", id(&plan), "--found", "failed", "--note", "x", "--url", &url];
    let refused = change(&set.stage, "approver", &resolve, "").await;
    assert_eq!(refused.status.code(), Some(78));
    assert_eq!(
        code(set.approver.call("get_proxmox_change_set", json!({"change_set_id": "x"})).await),
        "unknown_change_set"
    );
    let listed = change(&set.stage, "approver", &["list", "--all", "--json", "--url", &url], "").await;
    let rows: Value = serde_json::from_str(&out(&listed)).unwrap();
    assert_eq!(rows[0]["state"], "rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_the_state_is_opened_and_left_in_order() {
    let set = Set::new().await;
    let plan = set.plan().await;
    let Set { stage, server, .. } = set;
    server.stop().await;
    assert!(!stage.path("state/control.sock").exists());
    let vmid = VMID.to_string();
    let approve = ["approve", id(&plan), "--confirm-vmid", &vmid, "--confirm-code", code_of(&plan)];
    let approved = change(&stage, "approver", &approve, "").await;
    assert_eq!(approved.status.code(), Some(0), "{}", err(&approved));
    // A dead process's socket is in nobody's way.
    drop(std::os::unix::net::UnixListener::bind(stage.path("state/control.sock")).unwrap());
    let cancelled = change(&stage, "agent", &["cancel", id(&plan)], "").await;
    assert_eq!(cancelled.status.code(), Some(0), "{}", err(&cancelled));
    let server = stage.serve().await;
    let set = Set::with(stage, server);
    assert_eq!(set.show(&plan).await["state"], "cancelled");
    assert_eq!(set.records("change.approve", &plan).len(), 1);
    let verified = proxward::audit::verify(&set.stage.path("state/audit.jsonl"));
    assert!(verified.is_ok(), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_25_a_set_that_nobody_knows_about_is_settled_by_a_person_on_the_host() {
    let mut stage = Stage::new().await;
    stage.token(
        "operator",
        Rights {
            tools: &["approve_proxmox_change_set", "list_change_sets"],
            person: Some("olga"),
            ..APPROVER
        },
    );
    stage.token("nosy", Rights { guests: &["vmid:100-199"], ..APPROVER });
    let set = Set::of(stage).await;
    let plan = set.approved().await;
    // The request is lost on its way, and no task shows up.
    set.stage.alpha().inject(Fault::once("DELETE", changes::DELETE, Action::DropBefore));
    assert_eq!(set.apply(&plan).await.unwrap()["state"], "unknown");
    let resolve = |token: &'static str, found: &'static str, note: &'static str| {
        let line = [
            "resolve".to_owned(),
            id(&plan).to_owned(),
            "--found".to_owned(),
            found.to_owned(),
            "--note".to_owned(),
            note.to_owned(),
        ];
        let stage = &set.stage;
        async move { change(stage, token, &line.iter().map(String::as_str).collect::<Vec<_>>(), "").await }
    };
    assert_eq!(resolve("agent", "applied", "it is gone, trust me").await.status.code(), Some(3));
    assert_eq!(resolve("nosy", "failed", "guess").await.status.code(), Some(4));
    assert_eq!(resolve("operator", "failed", " ").await.status.code(), Some(3));
    assert_eq!(set.show(&plan).await["state"], "unknown");
    let done = resolve("operator", "failed", "pct list on pve1 shows 201").await;
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let after = set.show(&plan).await;
    assert_eq!(after["state"], "failed");
    assert_eq!(after["ended"]["note"], r#"resolved to failed: "pct list on pve1 shows 201""#);
    let record = &set.records("change.resolve", &plan)[0];
    assert_eq!((&record["principal"], &record["person"]), (&json!("operator"), &json!("olga")));
    assert_eq!(resolve("operator", "applied", "second thoughts").await.status.code(), Some(3));
}
