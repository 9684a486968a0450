//! Kill -9 while a change set of two steps is applied, a safety snapshot and the rollback behind it: each step's request is sent at
//! most once, the second only behind a first that ended well, and nothing that a caller was told is lost.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "support/crash.rs"]
mod crash;
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crash::{
    Dice, Server, apply, approve, check_trail, number, settled, settled_if_applying, trail_from, verify_audit,
};
use proxward::changes::Point;
use serde_json::{Value, json};
use support::{AGENT, Client, Rights, Stage};

/// A container with a snapshot `fresh`.
const MODEL: u32 = 200;
/// The first of the guests that are rolled back; each round has one of its own.
const FIRST: u32 = 20_000;
const KEEPER: Rights<'static> = Rights {
    tools: &[
        "plan_proxmox_destroy",
        "apply_proxmox_change_set",
        "get_proxmox_change_set",
        "cancel_change_set",
        "rollback_snapshot",
    ],
    ..AGENT
};

async fn stage(guests: u64) -> Stage {
    let mut config = lab::LabConfig::two_clusters().unwrap();
    let alpha = config.clusters.get_mut("alpha").unwrap();
    let model = alpha.guests.iter().find(|guest| guest.vmid == MODEL).unwrap().clone();
    for vmid in (FIRST..).take(usize::try_from(guests).unwrap()) {
        let mut guest = model.clone();
        (guest.vmid, guest.running) = (vmid, false);
        alpha.guests.push(guest);
    }
    let mut stage = Stage::on(config, support::roomy()).await;
    stage.token("keeper", KEEPER);
    stage
}

async fn plan(keeper: &Client, vmid: u32) -> Option<Value> {
    let arguments = json!({"cluster": "alpha", "vmid": vmid, "op": "rollback_snapshot", "snapname": "fresh"});
    let plan = keeper
        .try_call("plan_proxmox_destroy", arguments)
        .await?
        .unwrap_or_else(|refused| panic!("{refused}"));
    Some(plan)
}

/// How often the requests of the two steps arrived.
fn sent(stage: &Stage, vmid: u32) -> (usize, usize) {
    let requests = stage.alpha().requests();
    let count = |ending: String| {
        requests.iter().filter(|request| request.method == "POST" && request.path.ends_with(&ending)).count()
    };
    (count(format!("/lxc/{vmid}/snapshot")), count(format!("/lxc/{vmid}/snapshot/fresh/rollback")))
}

/// What holds whenever a server was killed over the set and another one has looked at it.
fn check(stage: &Stage, vmid: u32, set: &Value, context: &str) {
    let (first, second) = sent(stage, vmid);
    assert!(first <= 1 && second <= first, "{context}: {first} and {second} requests; {set}");
    let steps = set["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{context}: {set}");
    match set["state"].as_str().unwrap() {
        "applied" => assert_eq!((first, second), (1, 1), "{context}: {set}"),
        "planned" | "approved" => assert_eq!((first, second), (0, 0), "{context}: {set}"),
        "failed" | "unknown" => {}
        other => panic!("{context}: {other}: {set}"),
    }
    if second == 1 {
        let first = steps[0]["outcome"].as_str().unwrap_or_default();
        assert!(first == "OK", "{context}: the second was sent behind {first:?}: {set}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_23_to_26_killed_at_every_point_of_either_step() {
    let points = [
        Point::Decided,
        Point::Watermarked,
        Point::Attempted,
        Point::IntentDurable,
        Point::Answered,
        Point::HandleDurable,
        Point::TaskEnded,
        Point::EndDurable,
    ];
    let stage = stage(2 * points.len() as u64).await;
    let mut vmid = FIRST;
    for nth in [1, 2] {
        for point in points {
            // Both steps are decided about at once.
            if nth == 2 && point == Point::Decided {
                continue;
            }
            stage.alpha().clear_requests();
            let context = format!("{point:?} of step {nth}");
            let server = Server::start_until(&stage, Some((point, nth)));
            let (keeper, approver) =
                (stage.client(server.address, "keeper"), stage.client(server.address, "approver"));
            let plan = plan(&keeper, vmid).await.unwrap();
            approve(&approver, &plan, vmid).await.unwrap().unwrap();
            let _ = apply(&keeper, &plan).await;
            server.died();
            let server = Server::start(&stage, None);
            let set = settled(&stage.client(server.address, "keeper"), &plan).await;
            assert_eq!(set["digest"], plan["digest"], "{context}");
            check(&stage, vmid, &set, &context);
            let (first, second) = sent(&stage, vmid);
            match (nth, point) {
                (1, Point::Decided | Point::Watermarked | Point::Attempted) => {
                    assert_eq!(set["state"], "approved", "{context}: {set}");
                }
                (1, Point::IntentDurable) => {
                    assert_eq!((set["state"].as_str(), first), (Some("unknown"), 0), "{context}")
                }
                // The first step is found to have ended well, and what is left is not begun by a recovery.
                (1, _) => assert_eq!(
                    (set["state"].as_str(), first, second),
                    (Some("failed"), 1, 0),
                    "{context}: {set}"
                ),
                (_, Point::Watermarked | Point::Attempted) => {
                    assert_eq!(
                        (set["state"].as_str(), first, second),
                        (Some("failed"), 1, 0),
                        "{context}: {set}"
                    );
                }
                (_, Point::IntentDurable) => {
                    assert_eq!(
                        (set["state"].as_str(), first, second),
                        (Some("unknown"), 1, 0),
                        "{context}: {set}"
                    );
                }
                _ => assert_eq!(set["state"], "applied", "{context}: {set}"),
            }
            check_trail(&stage.audit(), &set, &context);
            verify_audit(&stage);
            vmid += 1;
        }
    }
}

/// What callers have been told of one set.
struct Told {
    plan: Value,
    approved: bool,
    ended: Option<String>,
}

async fn live(keeper: &Client, approver: &Client, vmid: u32) -> Option<Told> {
    let plan = plan(keeper, vmid).await?;
    let mut told = Told { plan, approved: false, ended: None };
    if let Some(Ok(_)) = approve(approver, &told.plan, vmid).await {
        told.approved = true;
        if let Some(Ok(set)) = apply(keeper, &told.plan).await
            && set["state"] != "applying"
        {
            told.ended = Some(set["state"].as_str().unwrap().to_owned());
        }
    }
    Some(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_23_to_26_random_kills_between_two_steps_send_neither_twice() {
    let kills = number("PROXWARD_STEP_KILLS", 400);
    let seed = number("PROXWARD_CRASH_SEED", u64::from(std::process::id()));
    println!("{kills} kills, seed {seed}");
    let mut dice = Dice(seed);
    let stage = stage(kills + 1).await;
    stage.alpha().task_duration(Duration::from_millis(20));
    let mut server = Server::start(&stage, None);
    let window = {
        let (keeper, approver) =
            (stage.client(server.address, "keeper"), stage.client(server.address, "approver"));
        let started = Instant::now();
        let told = live(&keeper, &approver, FIRST + u32::try_from(kills).unwrap()).await.unwrap();
        assert_eq!(told.ended.as_deref(), Some("applied"));
        u64::try_from(started.elapsed().as_micros()).unwrap()
    };
    println!("a life takes {window} us");
    let mut states = BTreeMap::<String, u64>::new();
    for round in 0..kills {
        let vmid = FIRST + u32::try_from(round).unwrap();
        stage.alpha().clear_requests();
        let (keeper, approver) =
            (stage.client(server.address, "keeper"), stage.client(server.address, "approver"));
        let trail_start = std::fs::metadata(stage.path("state/audit.jsonl")).unwrap().len();
        let alive = tokio::spawn(async move { live(&keeper, &approver, vmid).await });
        tokio::time::sleep(Duration::from_micros(dice.roll(window))).await;
        server.kill();
        let told = alive.await.unwrap();
        server = Server::start(&stage, None);
        let keeper = stage.client(server.address, "keeper");
        let Some(told) = told else {
            let (first, second) = sent(&stage, vmid);
            assert_eq!((first, second), (0, 0), "round {round}: sent for a plan that nobody was told of");
            *states.entry("untold".to_owned()).or_default() += 1;
            continue;
        };
        let context = format!("round {round}");
        let set = settled(&keeper, &told.plan).await;
        let state = set["state"].as_str().unwrap().to_owned();
        assert_eq!(set["digest"], told.plan["digest"], "{context}: the plan is another");
        assert!(!told.approved || state != "planned", "{context}: the approval is lost");
        if let Some(ended) = &told.ended {
            assert_eq!(&state, ended, "{context}: the end is another");
        }
        check(&stage, vmid, &set, &context);
        check_trail(&trail_from(&stage, trail_start), &set, &context);
        if state == "approved" {
            // It still stands, and does what it was approved for, once.
            let applied = apply(&keeper, &told.plan).await.unwrap().unwrap();
            let applied = settled_if_applying(&keeper, applied).await;
            assert_eq!(applied["state"], "applied", "{context}: {applied}");
            check(&stage, vmid, &applied, &context);
        }
        *states.entry(state).or_default() += 1;
        if round % 20 == 0 {
            verify_audit(&stage);
        }
    }
    verify_audit(&stage);
    println!("ended as {states:?}");
}
