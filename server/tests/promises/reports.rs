//! Faults that users of such software have reported, against a running server. Each test names its report.

use std::net::SocketAddr;

use crate::changes::{Set, VMID, approval, destroy};
use crate::support::Stage;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

/// One connection that many requests are sent over.
struct Line {
    address: SocketAddr,
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

impl Line {
    async fn open(address: SocketAddr) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { address, sender }
    }

    /// Asks for the list of tools; the status is the answer.
    async fn ask(&mut self, bearer: &str, forwarded_for: Option<&str>) -> StatusCode {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }}});
        let mut request: Request<Full<Bytes>> =
            crate::support::request(self.address, Method::POST, "/mcp", body.to_string());
        let headers = request.headers_mut();
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("accept", "application/json, text/event-stream".parse().unwrap());
        headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
        headers.insert("mcp-method", "tools/list".parse().unwrap());
        headers.insert("authorization", format!("Bearer {bearer}").parse().unwrap());
        if let Some(client) = forwarded_for {
            headers.insert("x-forwarded-for", client.parse().unwrap());
        }
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status
    }
}

fn wrong_token(n: u64) -> String {
    let mut entropy = [0; 32];
    entropy[..8].copy_from_slice(&n.to_be_bytes());
    authz::mint_token(entropy, [7; 10]).text.to_string()
}

/// F20: junk from one client behind a proxy locks nobody else out.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_through_a_proxy_is_the_floods_own_and_good_tokens_still_pass() {
    let mut policy = crate::support::roomy();
    policy["trusted_proxies"] = json!(["127.0.0.1/32"]);
    policy["limits"]["bearer_failures_per_minute"] = 5.into();
    let stage = Stage::with_policy(policy).await;
    let server = stage.serve().await;
    let good = stage.bearer("reader").to_owned();
    let mut statuses = Vec::new();
    for n in 0..240 {
        let mut line = Line::open(server.address).await;
        statuses.push(line.ask(&wrong_token(n), Some("203.0.113.9")).await);
    }
    assert_eq!(statuses[0], StatusCode::UNAUTHORIZED);
    assert_eq!(*statuses.last().unwrap(), StatusCode::TOO_MANY_REQUESTS);
    let mut line = Line::open(server.address).await;
    assert_eq!(line.ask(&good, Some("198.51.100.7")).await, StatusCode::OK);
    assert_eq!(
        line.ask(&good, Some("203.0.113.9")).await,
        StatusCode::OK,
        "also from where the flood comes from"
    );
    let mut line = Line::open(server.address).await;
    let other = line.ask(&wrong_token(999), Some("198.51.100.7")).await;
    assert_eq!(other, StatusCode::UNAUTHORIZED, "another client has a share of its own");
    server.stop().await;
    let peers: Vec<Value> =
        stage.audit().into_iter().filter(|record| record["event"] == "auth.failure").collect();
    assert!(peers.iter().any(|record| record["peer"] == "203.0.113.9"), "{peers:?}");
}

/// F21: what anybody writes into the header is believed from nobody but a listed proxy.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_client_address_opens_no_fresh_share() {
    let mut policy = crate::support::roomy();
    policy["limits"]["bearer_failures_per_minute"] = 5.into();
    let stage = Stage::with_policy(policy).await;
    let server = stage.serve().await;
    let mut last = StatusCode::OK;
    for n in 0..40_u64 {
        let mut line = Line::open(server.address).await;
        last = line.ask(&wrong_token(n), Some(&format!("198.51.100.{n}"))).await;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    server.stop().await;
    assert!(
        stage.audit().iter().all(|record| record["peer"].as_str().is_none_or(|peer| peer == "127.0.0.1"))
    );
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// F18: wrong tokens are remembered nowhere, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_spray_of_wrong_tokens_takes_no_memory() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let spray = async |from: u64, to: u64| {
        let mut line = Line::open(server.address).await;
        for n in from..to {
            if line.sender.is_closed() {
                line = Line::open(server.address).await;
            }
            let status = line.ask(&wrong_token(n), None).await;
            assert!([StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS].contains(&status), "{status}");
        }
    };
    spray(0, 2_000).await;
    let before = resident_kib();
    spray(2_000, 12_000).await;
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "10,000 wrong tokens took {grown} KiB");
    let mut line = Line::open(server.address).await;
    assert_eq!(line.ask(stage.bearer("reader"), None).await, StatusCode::OK);
}

/// F06: one form of a target, the same when it is planned, approved and applied; anything else is an error that names the field.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_has_one_form_and_another_is_named() {
    let set = Set::new().await;
    for vmid in [json!("0201"), json!("201 "), json!(201.5), json!(-201), json!([201])] {
        let mut arguments = destroy(VMID);
        arguments["vmid"] = vmid.clone();
        let refused = set.agent.call("plan_proxmox_destroy", arguments).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("vmid"), "{vmid}: {refused}");
    }
    let plan = set.plan().await;
    // Text that holds exactly that number is that number, when it is planned and when it is approved.
    let mut as_text = approval(&plan);
    as_text["confirm_vmid"] = "201".into();
    let mut other = as_text.clone();
    other["confirm_vmid"] = "104".into();
    let refused = set.approver.call("approve_proxmox_change_set", other).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("confirm_vmid"), "{refused}");
    let mut elsewhere = destroy(VMID);
    elsewhere["node"] = "PVE1".into();
    let refused = set.agent.call("plan_proxmox_destroy", elsewhere).await.unwrap_err();
    assert!(refused["code"] == "wrong_node" || refused["code"] == "already_pending", "{refused}");
    let approved = set.approver.call("approve_proxmox_change_set", as_text).await.unwrap();
    assert_eq!(approved["state"], "approved");
}

/// F08: a plan holds no number whose text two programs could write differently.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_have_two_spellings_are_in_no_plan() {
    let set = Set::new().await;
    for number in ["1e-7", "2.01e2", "-0.0", "9007199254740993", "201.0000001"] {
        let arguments: Value =
            serde_json::from_str(&format!(r#"{{"cluster":"alpha","op":"destroy_guest","vmid":{number}}}"#))
                .unwrap();
        let answer = set.agent.call("plan_proxmox_destroy", arguments).await;
        // 2.01e2 is 201 and nothing else: read as that number or refused, never kept as text.
        match answer {
            Ok(plan) => assert_eq!(plan["target"], "guest/201", "{number}: {plan}"),
            Err(refused) => {
                assert!(refused["message"].as_str().unwrap().contains("vmid"), "{number}: {refused}")
            }
        }
    }
}
