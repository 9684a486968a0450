//! Kill -9 at every named point of an apply, and at random moments: never two requests for one step, never a lost state that a
//! caller was told.
//!
//! The server runs in a child process (this test program again, told by its environment); the lab runs here, survives every kill
//! and counts what it was sent.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::io::{BufRead, BufReader, Read, Seek};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::{Action, Fault};
use proxward::changes::Point;
use proxward::cli::{Cli, Command as Verb};
use proxward::serve::{Options, start_http};
use serde_json::{Value, json};
use support::{Client, Stage};

/// The guest that is destroyed in the named-point tests.
const VMID: u32 = 201;
const DELETE: &str = "/nodes/{node}/lxc/{vmid}";
/// How long anything here may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

// === the child ===

/// Not a test of its own: the server's side of the harness, when this program is started as its child.
#[test]
fn child_process() {
    let Ok(line) = std::env::var("PROXWARD_CRASH_CHILD") else { return };
    let line: Vec<String> = serde_json::from_str(&line).unwrap();
    let fatal = std::env::var("PROXWARD_CRASH_POINT").ok();
    let Some(Verb::Serve(args)) =
        clap::Parser::try_parse_from(std::iter::once("proxward".to_owned()).chain(line))
            .map(|cli: Cli| cli.command)
            .unwrap()
    else {
        panic!("not a serve command")
    };
    let observer = Arc::new(move |point: Point| {
        if fatal.as_deref() == Some(point.name()) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = start_http(&args, Options { observer: Some(observer) }).await.unwrap();
        println!("listening {}", running.address);
        std::future::pending::<()>().await;
    });
}

/// A server in a child process. Killed when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts one on the stage and waits until it serves; it kills itself at `point`.
    fn start(stage: &Stage, point: Option<Point>) -> Self {
        let mut child = Self::spawn(stage, point);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect_line();
            if let Some(at) = line.split("listening ").nth(1) {
                break at.trim().parse().unwrap();
            }
        };
        Self { child, address }
    }

    fn spawn(stage: &Stage, point: Option<Point>) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_process", "--nocapture"])
            .env("PROXWARD_CRASH_CHILD", serde_json::to_string(&stage.command_line(&[])).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        match point {
            Some(point) => command.env("PROXWARD_CRASH_POINT", point.name()),
            None => command.env_remove("PROXWARD_CRASH_POINT"),
        };
        command.spawn().unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for a child that kills itself.
    fn died(mut self) {
        killed(&mut self.child);
    }
}

fn killed(child: &mut Child) {
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing a child that is dead already fails, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

trait ExpectLine {
    fn expect_line(self) -> String;
}

impl ExpectLine for Option<std::io::Result<String>> {
    fn expect_line(self) -> String {
        match self {
            Some(Ok(line)) => line,
            other => panic!("the server did not start: {other:?}"),
        }
    }
}

// === what a caller does ===

async fn plan(agent: &Client, vmid: u32) -> Option<Value> {
    agent
        .try_call("plan_proxmox_destroy", json!({"cluster": "alpha", "vmid": vmid, "op": "destroy_guest"}))
        .await?
        .ok()
}

async fn approve(approver: &Client, plan: &Value, vmid: u32) -> Option<Result<Value, Value>> {
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": vmid});
    approver.try_call("approve_proxmox_change_set", approval).await
}

async fn apply(agent: &Client, plan: &Value) -> Option<Result<Value, Value>> {
    agent.try_call("apply_proxmox_change_set", json!({"change_set_id": plan["change_set_id"]})).await
}

async fn show(agent: &Client, plan: &Value) -> Value {
    agent.call("get_proxmox_change_set", json!({"change_set_id": plan["change_set_id"]})).await.unwrap()
}

/// Reads the set until recovery has nothing more to find out about it.
async fn settled(agent: &Client, plan: &Value) -> Value {
    let started = Instant::now();
    loop {
        let set = show(agent, plan).await;
        if set["state"] != "applying" {
            return set;
        }
        assert!(started.elapsed() < PATIENCE, "still applying: {set}");
        tokio::task::yield_now().await;
    }
}

/// How often the lab received the request that destroys `vmid`.
fn deletes(stage: &Stage, vmid: u32) -> usize {
    let ending = format!("/lxc/{vmid}");
    let requests = stage.alpha().requests();
    requests.iter().filter(|r| r.method == "DELETE" && r.path.ends_with(&ending)).count()
}

fn verify_audit(stage: &Stage) {
    proxward::audit::verify(&stage.path("state/audit.jsonl")).unwrap_or_else(|e| panic!("{e}"));
}

/// AU-02: the trail of `set`, as it stands settled, holds an attempt before it was sent, and how it ended.
fn check_trail(trail: &[Value], set: &Value, context: &str) {
    let of_set = |event: &'static str| {
        trail.iter().filter(move |r| r["event"] == event && r["change_set"] == set["change_set_id"])
    };
    assert_eq!(of_set("change.plan").count(), 1, "{context}: the plan");
    let (attempts, mut outcomes) = (of_set("change.attempt").count(), of_set("change.outcome"));
    match set["state"].as_str().unwrap() {
        "planned" => assert_eq!(attempts, 0, "{context}"),
        // An apply that was killed before its intent has left an attempt and nothing else.
        "approved" => assert_eq!(outcomes.count(), 0, "{context}"),
        state => {
            assert!(attempts >= 1, "{context}: ended without an attempt");
            let last = outcomes.next_back().unwrap_or_else(|| panic!("{context}: no outcome of {set}"));
            assert_eq!(last["details"]["state"], state, "{context}");
        }
    }
}

/// The trail's records from this byte on, so that a long run does not read all of it in every round.
fn trail_from(stage: &Stage, start: u64) -> Vec<Value> {
    let mut file = std::fs::File::open(stage.path("state/audit.jsonl")).unwrap();
    file.seek(std::io::SeekFrom::Start(start)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    // A line is written in one piece but may be read in two: what has no end yet is not there yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sets on this guest for which a request may have been sent: those with an attempt.
fn attempted(trail: &[Value], vmid: u32) -> usize {
    let attempts = trail.iter().filter(|r| r["event"] == "change.attempt" && r["vmid"] == vmid);
    attempts.map(|r| r["change_set"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>().len()
}

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

/// A small generator of the harness's own, so that a seed is all there is to print.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

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
    let kills = number("PROXWARD_CRASH_KILLS", 200);
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
    for round in 0..kills {
        let vmid = FIRST + u32::try_from(round).unwrap();
        stage.alpha().clear_requests();
        let server = Server::start(&stage, None);
        let (agent, approver) =
            (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
        let trail_start = std::fs::metadata(stage.path("state/audit.jsonl")).unwrap().len();
        let alive = tokio::spawn(async move { live(&agent, &approver, vmid).await });
        // The moment is the input: anywhere within the life of one set, every other time before it waits for its task.
        let window = if round % 2 == 0 { window } else { window / 2 };
        tokio::time::sleep(Duration::from_micros(dice.roll(window))).await;
        server.kill();
        let told = alive.await.unwrap();

        let server = Server::start(&stage, None);
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

async fn settled_if_applying(agent: &Client, set: Value) -> Value {
    if set["state"] == "applying" { settled(agent, &set).await } else { set }
}
