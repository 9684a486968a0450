//! The real program over HTTP from start to stop: signals, reloads, locks, ports, health.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/program.rs"]
mod program;
mod support;

use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use program::{PATIENCE, Program};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{AGENT, Answer, Rights, Stage, path_of, request, send};
use tokio::net::TcpStream;

/// A connection that is kept, to see that the server keeps it too.
struct Kept {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

impl Kept {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { address, sender }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// `get_nodes` of alpha as the holder of this token.
    async fn get_nodes(&mut self, bearer: &str) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "get_nodes", "arguments": {"cluster": "alpha"}}});
        let mut request = request(self.address, Method::POST, "/mcp", body.to_string());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        request.headers_mut().insert("authorization", format!("Bearer {bearer}").parse().unwrap());
        self.send(request).await
    }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = send(address, request(address, Method::GET, path, "")).await.unwrap();
    (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).unwrap())
}

/// Tells the server to read its files again, and waits until it says how that went.
fn reload(server: &Program, outcome: &str) {
    server.signal(Signal::HUP);
    server.log.until(outcome);
}
const TAKEN: &str = "the configuration was read again";
const KEPT: &str = "the one in force stays";

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut file);
    std::fs::write(path, file.to_string()).unwrap();
}

/// Runs `proxward audit verify` on a stage's trail.
fn verify(stage: &Stage) {
    let state = stage.path("state").display().to_string();
    let output = program::command(&["audit".into(), "verify".into(), "--state-dir".into(), state]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An approved plan to destroy container 201, by its name.
async fn approved(stage: &Stage, address: SocketAddr) -> Value {
    let arguments = json!({"cluster": "alpha", "vmid": 201, "op": "destroy_guest"});
    let plan = stage.client(address, "agent").call("plan_proxmox_destroy", arguments).await.unwrap();
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": 201});
    stage.client(address, "approver").call("approve_proxmox_change_set", approval).await.unwrap();
    json!({"change_set_id": plan["change_set_id"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_and_sigint_stop_in_order_and_the_trail_verifies() {
    let stage = Stage::new().await;
    for signal in [Signal::TERM, Signal::INT] {
        let (server, address) = Program::serve(&stage.command_line(&[]));
        // Neither a connection at rest nor one that never asked anything holds up the stop.
        let mut kept = Kept::open(address).await;
        assert_eq!(kept.get_nodes(stage.bearer("agent")).await.status, 200);
        let silent = TcpStream::connect(address).await.unwrap();
        assert_eq!(get(address, "/healthz").await.0, 200);
        let started = std::time::Instant::now();
        server.signal(signal);
        let exit = server.exit();
        assert_eq!(exit.code, Some(0), "{}", exit.log);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        drop(silent);
        verify(&stage);
        let events: Vec<_> = stage.audit().iter().map(|record| record["event"].clone()).collect();
        assert_eq!(events.last().unwrap(), "stop", "{events:?}");
        assert!(events.contains(&"start".into()) && events.contains(&"tool.call".into()), "{events:?}");
        TcpStream::connect(address).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_a_running_apply_finish_and_answers_its_caller() {
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    let set = approved(&stage, address).await;

    let mut held =
        stage.alpha().inject(lab::Fault::once("DELETE", "/nodes/{node}/lxc/{vmid}", lab::Action::HoldAfter));
    let applying = tokio::spawn(async move { agent.call("apply_proxmox_change_set", set).await });
    held.struck().await;
    server.signal(Signal::TERM);
    // It takes no new callers from here on, and still does not leave the one it has.
    let refusing = async { while TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refusing).await.unwrap();
    held.release();
    let applied = applying.await.unwrap().unwrap();
    assert_eq!(applied["state"], "applied", "{applied}");
    assert_eq!(server.exit().code, Some(0));
    assert!(!stage.alpha().guest_exists(201));
    assert_eq!(stage.alpha().mutations(), 1);
    verify(&stage);
    assert_eq!(stage.audit().last().unwrap()["event"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_32_an_apply_that_outlasts_the_stop_is_taken_up_by_the_next_start() {
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    let set = approved(&stage, address).await;

    stage.alpha().hold_tasks(true);
    let (asked, caller) = (set.clone(), agent.clone());
    let applying = tokio::spawn(async move { caller.try_call("apply_proxmox_change_set", asked).await });
    stage.alpha().wait_for(|alpha| alpha.mutations() == 1).await;
    let began = std::time::Instant::now();
    server.signal(Signal::TERM);
    let exit = server.exit();
    assert_eq!(exit.code, Some(0));
    let took = began.elapsed().as_secs();
    assert!((25..60).contains(&took), "it waits 30 s and no longer: {took} s");
    assert!(
        !matches!(applying.await.unwrap(), Some(Ok(ref set)) if set["state"] == "applied"),
        "nobody is told that it was applied"
    );

    let (server, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    let read = async || agent.call("get_proxmox_change_set", set.clone()).await.unwrap()["state"].clone();
    assert_eq!(read().await, "applying", "the task is followed, not started again");
    stage.alpha().hold_tasks(false);
    let settled = async {
        while read().await != "applied" {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
    assert_eq!(stage.alpha().mutations(), 1);
    assert_eq!(server.terminate().code, Some(0));
    verify(&stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn tk_08_a_reload_brings_a_token_and_takes_one_on_the_same_connection() {
    let mut stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let mut kept = Kept::open(address).await;
    let agent = stage.bearer("agent").to_owned();
    assert_eq!(kept.get_nodes(&agent).await.status, 200);

    stage.token("late", Rights { person: None, ..AGENT });
    let late = stage.bearer("late").to_owned();
    assert_eq!(kept.get_nodes(&late).await.status, 401);
    reload(&server, TAKEN);
    let answer = kept.get_nodes(&late).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["result"]["structuredContent"]["total"], 3);

    // A link of the one that goes is no longer worth anything.
    let arguments = json!({"cluster": "alpha", "vmid": 200, "dest": "/root/too-late.bin"});
    let minted = stage.client(address, "agent").call("proxmox_upload_link", arguments).await.unwrap();
    edit(&stage.path("tokens.json"), |file| {
        file["tokens"].as_object_mut().unwrap().remove("agent").unwrap();
    });
    assert_eq!(kept.get_nodes(&agent).await.status, 200, "nothing changes before the reload");
    reload(&server, TAKEN);
    let answer = kept.get_nodes(&agent).await;
    assert_eq!(answer.status, 401);
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert_eq!(challenge, "Bearer realm=\"proxward\", error=\"invalid_token\"");
    assert_eq!(kept.get_nodes(&late).await.status, 200);
    let put = send(address, request(address, Method::PUT, &path_of(&minted), "x")).await.unwrap();
    assert_eq!(put.status, 404, "{:?}", put.body);
    assert!(!stage.alpha().guest_root(200).join("root/too-late.bin").exists());
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_keeps_what_was_and_says_degraded_until_one_succeeds() {
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()));
    let good = std::fs::read(stage.path("clusters.json")).unwrap();
    for (name, broken, said) in [
        ("tokens.json", "{".to_owned(), "tokens.json:1:"),
        (
            "clusters.json",
            String::from_utf8(good.clone()).unwrap().replace("\"alpha\"", "\"alpha\\u0000\""),
            "clusters.json:1:",
        ),
        ("waivers.json", r#"{"waivers": [{}]}"#.to_owned(), "waivers.json:1:"),
    ] {
        let before = std::fs::read(stage.path(name)).ok();
        std::fs::write(stage.path(name), broken).unwrap();
        std::fs::set_permissions(stage.path(name), Permissions::from_mode(0o600)).unwrap();
        server.signal(Signal::HUP);
        server.log.until(said);
        server.log.until(KEPT);
        assert_eq!(get(address, "/readyz").await, (200, "degraded\n".to_owned()), "{name}");
        assert_eq!(get(address, "/healthz").await.0, 200);
        assert_eq!(agent.call("get_nodes", json!({"cluster": "alpha"})).await.unwrap()["total"], 3);
        match before {
            Some(bytes) => std::fs::write(stage.path(name), bytes).unwrap(),
            None => std::fs::remove_file(stage.path(name)).unwrap(),
        }
        reload(&server, TAKEN);
        assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()), "{name}");
    }
    assert_eq!(server.terminate().code, Some(0));
    let reloads: Vec<_> = stage
        .audit()
        .into_iter()
        .filter(|record| record["event"] == "config.reload")
        .map(|record| record["outcome"].clone())
        .collect();
    assert_eq!(reloads, ["failed", "ok", "failed", "ok", "failed", "ok"]);
    verify(&stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_35_a_second_server_on_the_same_state_names_the_first() {
    let stage = Stage::new().await;
    let (first, address) = Program::serve(&stage.command_line(&[]));
    let second = Program::start(&stage.command_line(&[])).exit();
    assert_eq!(second.code, Some(75), "{}", second.log);
    assert!(second.log.contains(&format!("process {}", first.pid())), "{}", second.log);
    assert!(second.log.contains("--state-dir"), "{}", second.log);
    assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()));
    // A server that was killed leaves no lock behind.
    first.signal(Signal::KILL);
    assert_eq!(first.exit().code, None);
    let (third, _) = Program::serve(&stage.command_line(&[]));
    assert_eq!(third.terminate().code, Some(0));
    verify(&stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_said_before_anything_is_written() {
    let stage = Stage::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut line = stage.command_line(&[]);
    let at = line.iter().position(|word| word == "-p").unwrap();
    line[at + 1].clone_from(&port);
    let exit = Program::start(&line).exit();
    assert_eq!(exit.code, Some(75), "{}", exit.log);
    assert!(exit.log.contains(&format!("127.0.0.1:{port}")), "{}", exit.log);
    assert!(exit.log.contains("choose another port"), "{}", exit.log);
    assert!(!stage.path("state").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn mc_10_health_needs_no_token_and_names_nothing() {
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    for path in ["/healthz", "/readyz"] {
        let answer = send(address, request(address, Method::GET, path, "")).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"ok\n"[..]), "{path}");
        assert_eq!(answer.headers["cache-control"], "no-store");
        let head = send(address, request(address, Method::HEAD, path, "")).await.unwrap();
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0), "{path}");
        let post = send(address, request(address, Method::POST, path, "{}")).await.unwrap();
        assert_eq!(post.status, 404, "{path}");
        // Host and origin are looked at before everything, so no page of another site learns even this.
        let mut rebound = request(address, Method::GET, path, "");
        rebound.headers_mut().insert("host", "attacker.example".parse().unwrap());
        assert_eq!(send(address, rebound).await.unwrap().status, 421, "{path}");
        let mut page = request(address, Method::GET, path, "");
        page.headers_mut().insert("origin", "https://attacker.example".parse().unwrap());
        assert_eq!(send(address, page).await.unwrap().status, 403, "{path}");
    }
    assert_eq!(get(address, "/metrics").await.0, 404);
    assert_eq!(server.terminate().code, Some(0));
}
