//! The older revisions over HTTP, and what an HTTP client meets before it speaks MCP.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use support::{Answer, Stage, request, send};

const OLDER: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

fn post(address: SocketAddr, bearer: Option<&str>, body: &Value) -> Request<Full<Bytes>> {
    let mut request = request(address, Method::POST, "/mcp", body.to_string());
    let headers = request.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("accept", "application/json, text/event-stream".parse().unwrap());
    if let Some(bearer) = bearer {
        headers.insert("authorization", format!("Bearer {bearer}").parse().unwrap());
    }
    request
}

/// One message of an older revision, with the version header where one is given.
async fn say(stage: &Stage, address: SocketAddr, version: Option<&str>, body: Value) -> Answer {
    let mut request = post(address, Some(stage.bearer("agent")), &body);
    if let Some(version) = version {
        request.headers_mut().insert("mcp-protocol-version", version.parse().unwrap());
    }
    send(address, request).await.unwrap()
}

fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn initialize(version: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    message("initialize", json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client}))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_older_revision_shakes_hands_and_calls_with_and_without_a_version_header() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    for version in OLDER {
        for header in [None, Some(version)] {
            let hello = say(&stage, server.address, None, initialize(version)).await;
            assert_eq!(hello.status, 200);
            assert!(!hello.headers.contains_key("mcp-session-id"), "no session is kept");
            let hello = hello.json();
            assert_eq!(hello["result"]["protocolVersion"], version);
            assert_eq!(hello["result"]["serverInfo"]["name"], "proxward");
            // The lists never change unannounced, and nothing is advertised that is not there.
            assert_eq!(hello["result"]["capabilities"], json!({"tools": {}, "resources": {}, "prompts": {}}));
            let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let ready = say(&stage, server.address, header, ready).await;
            assert_eq!((ready.status.as_u16(), ready.body.len()), (202, 0));

            let ping = say(&stage, server.address, header, message("ping", json!({}))).await.json();
            assert_eq!(ping["result"], json!({}), "{version}");
            for (method, key) in [
                ("resources/list", "resources"),
                ("resources/templates/list", "resourceTemplates"),
                ("prompts/list", "prompts"),
            ] {
                let list = say(&stage, server.address, header, message(method, json!({}))).await.json();
                assert_eq!(list["result"], json!({key: []}), "{version}");
            }
            let tools = say(&stage, server.address, header, message("tools/list", json!({}))).await.json();
            let tools = tools["result"]["tools"].as_array().unwrap().clone();
            assert_eq!(tools.len(), support::AGENT_TOOLS.len() - 2, "{version}");
            for tool in &tools {
                assert_eq!(
                    (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
                    (&"object".into(), &"object".into())
                );
            }

            let call = message("tools/call", json!({"name": "get_nodes", "arguments": {"cluster": "alpha"}}));
            let nodes = say(&stage, server.address, header, call).await;
            assert_eq!(nodes.headers["content-type"], "application/json");
            let nodes = nodes.json();
            assert_eq!(nodes["result"]["structuredContent"]["total"], 3, "{version}");
            assert_eq!(nodes["result"]["isError"], false, "{version}");
            assert!(nodes["result"].get("resultType").is_none(), "{version}: {nodes}");
            let call = message(
                "tools/call",
                json!({"name": "get_guest_status", "arguments": {"cluster": "alpha", "vmid": 999}}),
            );
            let refused = say(&stage, server.address, header, call).await.json();
            assert_eq!(refused["result"]["isError"], true, "{version}");
            // Errors of JSON-RPC ride on 200 here.
            let unknown =
                say(&stage, server.address, header, message("tools/call", json!({"name": "nothing"}))).await;
            assert_eq!((unknown.status.as_u16(), &unknown.json()["error"]["code"]), (200, &(-32602).into()));
            let unknown = say(&stage, server.address, header, message("server/nothing", json!({}))).await;
            assert_eq!((unknown.status.as_u16(), &unknown.json()["error"]["code"]), (200, &(-32601).into()));
        }
    }
    // Versions nobody speaks are answered with the newest handshake, and refused as a header.
    for version in ["2026-07-28", "1999-01-01", ""] {
        let hello = say(&stage, server.address, None, initialize(version)).await.json();
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{version}");
    }
    let stray = say(&stage, server.address, Some("1999-01-01"), message("ping", json!({}))).await;
    assert_eq!(stray.status, 400);
    // A session that another server gave is no obstacle.
    let mut request = post(server.address, Some(stage.bearer("agent")), &message("ping", json!({})));
    request.headers_mut().insert("mcp-session-id", "0123".parse().unwrap());
    assert_eq!(send(server.address, request).await.unwrap().status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn get_and_delete_are_refused_with_what_is_allowed() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    for method in [Method::GET, Method::DELETE, Method::PUT, Method::OPTIONS, Method::HEAD] {
        let mut request = request(server.address, method.clone(), "/mcp", "");
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        let answer = send(server.address, request.clone()).await.unwrap();
        assert_eq!(answer.status, 401, "{method} without a token");
        let bearer = format!("Bearer {}", stage.bearer("agent")).parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let answer = send(server.address, request).await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["allow"]),
            (405, &"POST".parse().unwrap()),
            "{method}"
        );
        if method != Method::HEAD {
            assert_eq!(answer.json()["error"], "method_not_allowed");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_token_is_challenged_with_a_sentence_that_helps() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let ping = message("ping", json!({}));
    let answer = send(server.address, post(server.address, None, &ping)).await.unwrap();
    assert_eq!(answer.status, 401);
    // No OAuth is offered, so no metadata is named.
    assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"proxward\"");
    assert_eq!(answer.headers["content-type"], "application/json");
    let text = answer.json()["message"].as_str().unwrap().to_owned();
    for word in ["Authorization: Bearer", "proxward token add"] {
        assert!(text.contains(word), "{text}");
    }
    let near = {
        let mut text = stage.bearer("agent").to_owned();
        let last = if text.pop() == Some('0') { '1' } else { '0' };
        text.push(last);
        text
    };
    let mut answers = Vec::new();
    for wrong in ["wrong", "eyJhbGciOiJIUzI1NiJ9.e30.x", &near] {
        let answer = send(server.address, post(server.address, Some(wrong), &ping)).await.unwrap();
        assert_eq!(answer.status, 401);
        let challenge = &answer.headers["www-authenticate"];
        assert_eq!(challenge, "Bearer realm=\"proxward\", error=\"invalid_token\"");
        answers.push(answer);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "what was wrong is not told");
    // Other ways of sending one are never looked at.
    let bearer = stage.bearer("agent");
    let mut elsewhere = post(server.address, None, &ping);
    *elsewhere.uri_mut() = format!("/mcp?access_token={bearer}").parse().unwrap();
    elsewhere.headers_mut().insert("cookie", format!("token={bearer}").parse().unwrap());
    assert_eq!(send(server.address, elsewhere).await.unwrap().status, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mc_11_unknown_paths_and_oauth_discovery_are_404_in_json() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let mut answers = Vec::new();
    for (method, path) in [
        (Method::GET, "/.well-known/oauth-protected-resource/mcp"),
        (Method::GET, "/.well-known/oauth-protected-resource"),
        (Method::GET, "/.well-known/oauth-authorization-server"),
        (Method::GET, "/.well-known/oauth-authorization-server/mcp"),
        (Method::GET, "/.well-known/openid-configuration"),
        (Method::POST, "/register"),
        (Method::GET, "/"),
        (Method::POST, "/mcp/"),
        (Method::POST, "/MCP"),
        (Method::GET, "/sse"),
        (Method::POST, "/transfers"),
    ] {
        let answer = send(server.address, request(server.address, method, path, "")).await.unwrap();
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.headers["content-type"], "application/json", "{path}");
        assert!(!answer.headers.contains_key("www-authenticate"), "{path}");
        assert_eq!(answer.json()["error"]["code"], "not_found", "{path}");
        answers.push(answer);
    }
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    server.stop().await;
}
