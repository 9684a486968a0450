//! Kill -9 at every named point of an apply, and at random moments: never two requests for one step, never a lost state that a
//! caller was told.
//!
//! The server runs in a child process (this test program again, told by its environment); the lab runs here, survives every kill
//! and counts what it was sent.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/crash.rs"]
mod crash;
mod support;

use std::time::{Duration, Instant};

use crash::{
    Dice, Server, apply, approve, attempted, check_trail, deletes, killed, number, plan, settled,
    settled_if_applying, show, trail_from, verify_audit,
};
use lab::{Action, Fault};
use proxward::changes::Point;
use serde_json::{Value, json};
use support::{Client, Stage};

/// The guest that is destroyed in the named-point tests.
const VMID: u32 = 201;
const DELETE: &str = "/nodes/{node}/lxc/{vmid}";

// === every named point ===

/// Kills the server at `point` of an apply, starts it again and returns the settled set, with everything checked that holds for
/// every point.
async fn killed_at(stage: &Stage, point: Point) -> (Server, Value, Value) {
    let server = Server::start(stage, Some(point));
    let (agent, approver) = (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
    let plan = plan(&agent, VMID).await.unwrap();
    approve(&approver, &plan, VMID).await.unwrap().unwrap();
    // The answer may come before the last point is passed.
    let _ = apply(&agent, &plan).await;
    server.died();

    let server = Server::start(stage, None);
    let set = settled(&stage.client(server.address, "agent"), &plan).await;
    let sent = deletes(stage, VMID);
    assert!(sent <= 1, "{point:?}: {sent} requests");
    assert!(attempted(&stage.audit(), VMID) >= sent, "{point:?}: a request without an audited attempt");
    // What both callers were told before the kill still holds.
    assert_eq!(set["digest"], plan["digest"], "{point:?}");
    assert_ne!(set["state"], "planned", "{point:?}: the approval is lost");
    check_trail(&stage.audit(), &set, &format!("{point:?}"));
    verify_audit(stage);
    (server, plan, set)
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_23_killed_before_the_intent_nothing_was_sent_and_the_approval_still_stands() {
    for point in [Point::Decided, Point::Watermarked, Point::Attempted] {
        let stage = Stage::new().await;
        let (server, plan, set) = killed_at(&stage, point).await;
        assert_eq!((deletes(&stage, VMID), &set["state"]), (0, &"approved".into()), "{point:?}: {set}");
        let applied = apply(&stage.client(server.address, "agent"), &plan).await.unwrap().unwrap();
        assert_eq!(applied["state"], "applied", "{point:?}: {applied}");
        assert_eq!(deletes(&stage, VMID), 1, "{point:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_24_killed_between_intent_and_request_it_is_unknown_and_never_sent() {
    let stage = Stage::new().await;
    let (server, plan, set) = killed_at(&stage, Point::IntentDurable).await;
    assert_eq!(set["state"], "unknown", "{set}");
    assert!(stage.alpha().guest_exists(VMID));
    let refused = apply(&stage.client(server.address, "agent"), &plan).await.unwrap().unwrap_err();
    assert_eq!(refused["code"], "not_approved", "{refused}");
    assert_eq!(deletes(&stage, VMID), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_25_killed_after_the_answer_the_one_new_task_is_adopted() {
    let stage = Stage::new().await;
    let (_server, _plan, set) = killed_at(&stage, Point::Answered).await;
    assert_eq!((&set["state"], deletes(&stage, VMID)), (&"applied".into(), 1), "{set}");
    assert!(set["steps"][0]["upid"].as_str().unwrap().contains(":vzdestroy:201:"), "{set}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_26_killed_after_the_handle_the_task_is_followed_to_its_end() {
    for point in [Point::HandleDurable, Point::TaskEnded, Point::EndDurable] {
        let stage = Stage::new().await;
        let (_server, _plan, set) = killed_at(&stage, point).await;
        assert_eq!((&set["state"], deletes(&stage, VMID)), (&"applied".into(), 1), "{point:?}: {set}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_25_killed_while_the_request_is_on_its_way() {
    for (action, state, exists) in
        [(Action::HoldBefore, "unknown", true), (Action::HoldAfter, "applied", false)]
    {
        let stage = Stage::new().await;
        let server = Server::start(&stage, None);
        let (agent, approver) =
            (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
        let plan = plan(&agent, VMID).await.unwrap();
        approve(&approver, &plan, VMID).await.unwrap().unwrap();
        let mut held = stage.alpha().inject(Fault::once("DELETE", DELETE, action.clone()));
        let applying = tokio::spawn({
            let (agent, plan) = (agent.clone(), plan.clone());
            async move { apply(&agent, &plan).await }
        });
        held.struck().await;
        server.kill();
        applying.await.unwrap();
        // Restarted while the cluster still holds the request: what is looked up must not race what is held.
        let server = Server::start(&stage, None);
        let set = settled(&stage.client(server.address, "agent"), &plan).await;
        assert_eq!(set["state"], state, "{action:?}: {set}");
        assert_eq!(deletes(&stage, VMID), 1, "{action:?}");
        assert_eq!(stage.alpha().guest_exists(VMID), exists, "{action:?}");
        held.release();
        check_trail(&stage.audit(), &set, &format!("{action:?}"));
        verify_audit(&stage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_25_and_26_killed_again_at_every_point_of_the_recovery() {
    let stage = Stage::new().await;
    let server = Server::start(&stage, Some(Point::Answered));
    let (agent, approver) = (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
    let plan = plan(&agent, VMID).await.unwrap();
    approve(&approver, &plan, VMID).await.unwrap().unwrap();
    assert!(apply(&agent, &plan).await.is_none());
    server.died();
    for point in [Point::HandleDurable, Point::TaskEnded, Point::EndDurable] {
        // May die before it serves.
        killed(&mut Server::spawn(&stage, Some(point)));
    }
    let server = Server::start(&stage, None);
    let set = show(&stage.client(server.address, "agent"), &plan).await;
    assert_eq!((&set["state"], deletes(&stage, VMID)), (&"applied".into(), 1), "{set}");
    check_trail(&stage.audit(), &set, "killed while recovering");
    verify_audit(&stage);
}

// === random moments ===

/// Number of the first disposable guest of the random rounds; each round has one of its own.
const FIRST: u32 = 10_000;

/// The two clusters, with so many stopped containers more.
fn disposable_guests(count: u64) -> lab::LabConfig {
    let mut config = lab::LabConfig::two_clusters().unwrap();
    let alpha = config.clusters.get_mut("alpha").unwrap();
    let model = alpha.guests.iter().find(|guest| guest.vmid == VMID).unwrap().clone();
    for vmid in (FIRST..).take(usize::try_from(count).unwrap()) {
        let mut guest = model.clone();
        guest.vmid = vmid;
        alpha.guests.push(guest);
    }
    config
}

/// What callers have been told of one set.
struct Told {
    plan: Value,
    approved: bool,
    ended: Option<String>,
}

/// Plans, approves and applies; stops at the first call that the killed server no longer answers.
async fn live(agent: &Client, approver: &Client, vmid: u32) -> Option<Told> {
    let plan = plan(agent, vmid).await?;
    let mut told = Told { plan, approved: false, ended: None };
    if let Some(Ok(_)) = approve(approver, &told.plan, vmid).await {
        told.approved = true;
        if let Some(Ok(set)) = apply(agent, &told.plan).await
            && set["state"] != "applying"
        {
            told.ended = Some(set["state"].as_str().unwrap().to_owned());
        }
    }
    Some(told)
}

/// How long a set lives on this machine when nobody is killed: kills are spread over as much.
async fn life_length(stage: &Stage, vmid: u32) -> Duration {
    let server = Server::start(stage, None);
    let (agent, approver) = (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
    let started = Instant::now();
    let told = live(&agent, &approver, vmid).await.unwrap();
    assert_eq!(told.ended.as_deref(), Some("applied"));
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_23_and_24_random_kills_never_send_twice_and_lose_nothing_that_was_told() {
    let kills = number("PROXWARD_CRASH_KILLS", 600);
    let seed = number("PROXWARD_CRASH_SEED", u64::from(std::process::id()));
    println!("{kills} kills, seed {seed}");
    let mut dice = Dice(seed);
    let stage = Stage::on(disposable_guests(kills + 1), support::roomy()).await;
    // Tasks that take a moment leave more moments to be killed in.
    stage.alpha().task_duration(Duration::from_millis(20));
    let window = life_length(&stage, FIRST + u32::try_from(kills).unwrap()).await;
    println!("a life takes {window:?}");
    let window = u64::try_from(window.as_micros()).unwrap();
    let mut states = std::collections::BTreeMap::<String, u64>::new();
    // The server that finds out what became of one set is the one that is killed over the next.
    let mut server = Server::start(&stage, None);
    for round in 0..kills {
        let vmid = FIRST + u32::try_from(round).unwrap();
        stage.alpha().clear_requests();
        let (agent, approver) =
            (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
        let trail_start = std::fs::metadata(stage.path("state/audit.jsonl")).unwrap().len();
        let alive = tokio::spawn(async move { live(&agent, &approver, vmid).await });
        // The moment is the input: anywhere within the life of one set, every other time before it waits for its task.
        let window = if round % 2 == 0 { window } else { window / 2 };
        tokio::time::sleep(Duration::from_micros(dice.roll(window))).await;
        server.kill();
        let told = alive.await.unwrap();

        server = Server::start(&stage, None);
        let agent = stage.client(server.address, "agent");
        let sent = deletes(&stage, vmid);
        assert!(sent <= 1, "round {round}: {sent} requests");
        let never_twice = || {
            let sets = attempted(&trail_from(&stage, trail_start), vmid);
            assert!(deletes(&stage, vmid) <= sets, "round {round}: a second request for one of {sets} sets");
        };
        let Some(told) = told else {
            *states.entry("untold".to_owned()).or_default() += 1;
            finish_pending(&stage, &server, vmid).await;
            never_twice();
            continue;
        };
        let set = settled(&agent, &told.plan).await;
        let state = set["state"].as_str().unwrap().to_owned();
        assert_eq!(set["digest"], told.plan["digest"], "round {round}: the plan is another");
        if told.approved {
            assert_ne!(state, "planned", "round {round}: the approval is lost");
        }
        if let Some(ended) = &told.ended {
            assert_eq!(&state, ended, "round {round}: the end is another");
        }
        if state == "applied" {
            assert_eq!(
                (deletes(&stage, vmid), stage.alpha().guest_exists(vmid)),
                (1, false),
                "round {round}: {set}"
            );
        }
        check_trail(&trail_from(&stage, trail_start), &set, &format!("round {round}"));
        *states.entry(state).or_default() += 1;
        finish_pending(&stage, &server, vmid).await;
        never_twice();
        if round % 20 == 0 {
            verify_audit(&stage);
        }
    }
    verify_audit(&stage);
    println!("ended as {states:?}");
}

/// Applies or abandons what is still open on the guest, so that the next round can plan.
async fn finish_pending(stage: &Stage, server: &Server, vmid: u32) {
    let (agent, approver) = (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
    if !stage.alpha().guest_exists(vmid) {
        return;
    }
    // The same plan again: either a new one, or refused naming the one that is pending.
    let arguments = json!({"cluster": "alpha", "vmid": vmid, "op": "destroy_guest"});
    let plan = match agent.call("plan_proxmox_destroy", arguments).await {
        Ok(plan) => plan,
        Err(refused) => {
            assert_eq!(refused["code"], "already_pending", "{refused}");
            let text = refused["message"].as_str().unwrap();
            let id = text.split_whitespace().find(|word| word.starts_with("cs_")).unwrap();
            agent.call("get_proxmox_change_set", json!({"change_set_id": id})).await.unwrap()
        }
    };
    let plan = settled_if_applying(&agent, plan).await;
    if plan["state"] == "planned" {
        approve(&approver, &plan, vmid).await.unwrap().unwrap();
    }
    if plan["state"] == "planned" || plan["state"] == "approved" {
        let applied = apply(&agent, &plan).await.unwrap();
        assert_eq!(applied.as_ref().map(|set| &set["state"]), Ok(&"applied".into()), "{applied:?}");
    }
}
