//! The HTTP endpoint, called as a service without sockets.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

mod common;

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use common::{Stage, Tools, call, identity, legacy, modern};
use http::{Request, Response, StatusCode, request::Parts};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use mcp_wire::http::{BoxBody, Config, HostPolicy, McpHttp, Refusal};
use serde_json::{Value, json};
use tower::{Service, ServiceExt};

const BOTH: &str = "application/json, text/event-stream";

fn authenticate(parts: &Parts) -> std::future::Ready<Result<String, Refusal>> {
    let known = parts.headers.get("authorization").is_some_and(|value| value == "Bearer s3cret");
    std::future::ready(
        known.then(|| "alice".to_owned()).ok_or_else(|| Refusal::unauthorized("te\"st", "send a token")),
    )
}

type Endpoint = McpHttp<Tools, fn(&Parts) -> std::future::Ready<Result<String, Refusal>>>;

fn endpoint(stage: &Arc<Stage>) -> Endpoint {
    with_config(stage, Config::new(identity()).hosts(HostPolicy::loopback()))
}

fn with_config(stage: &Arc<Stage>, config: Config) -> Endpoint {
    McpHttp::new(Tools(Arc::clone(stage)), authenticate, config)
}

fn post() -> http::request::Builder {
    Request::post("/mcp")
        .header("host", "localhost")
        .header("authorization", "Bearer s3cret")
        .header("content-type", "application/json")
        .header("accept", BOTH)
}

/// A request with the headers that its message calls for.
fn request(message: &Value) -> Request<Full<Bytes>> {
    let mut builder = post();
    if message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string() {
        builder = builder
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", message["method"].as_str().unwrap());
        if let Some(name) = message["params"]["name"].as_str().or(message["params"]["uri"].as_str()) {
            builder = builder.header("mcp-name", name);
        }
    }
    builder.body(Full::from(message.to_string())).unwrap()
}

async fn send<B>(endpoint: &Endpoint, request: Request<B>) -> Response<BoxBody>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    endpoint.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response<BoxBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn answer(endpoint: &Endpoint, request: Request<Full<Bytes>>) -> (u16, Value) {
    let response = send(endpoint, request).await;
    let status = response.status().as_u16();
    let text = text(response).await;
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The messages of a stream, and whether it held anything but messages and comments.
fn events(text: &str) -> Vec<Value> {
    text.split("\n\n")
        .filter(|event| !event.is_empty() && *event != ":")
        .map(|event| serde_json::from_str(event.strip_prefix("event: message\ndata: ").unwrap()).unwrap())
        .collect()
}

#[tokio::test]
async fn a_call_answers_in_the_shape_of_its_era() {
    let endpoint = endpoint(&Arc::default());
    let data = json!({"caller": "alice", "arguments": {}});
    let content = json!([{"type": "text", "text": data.to_string()}]);
    let (status, body) = answer(&endpoint, request(&legacy(json!("a"), "tools/call", call("echo")))).await;
    assert_eq!(status, 200);
    let plain = json!({"content": content, "structuredContent": data, "isError": false});
    assert_eq!(body, json!({"jsonrpc": "2.0", "id": "a", "result": plain}));
    let (status, body) = answer(&endpoint, request(&modern(json!(7), "tools/call", call("echo")))).await;
    assert_eq!(status, 200);
    let meta = json!({"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1.2.3"}});
    let mut full = plain.clone();
    full["resultType"] = json!("complete");
    full["_meta"] = meta.clone();
    assert_eq!(body, json!({"jsonrpc": "2.0", "id": 7, "result": full}));

    let (_, body) = answer(&endpoint, request(&legacy(json!(1), "tools/list", json!({})))).await;
    assert_eq!(body["result"].as_object().unwrap().keys().collect::<Vec<_>>(), ["tools"]);
    let (_, body) = answer(&endpoint, request(&modern(json!(1), "tools/list", json!({})))).await;
    let result = &body["result"];
    assert_eq!(
        (&result["cacheScope"], &result["ttlMs"], &result["_meta"]),
        (&json!("private"), &json!(60_000), &meta)
    );
}

#[tokio::test]
async fn e07_legacy_results_hold_only_objects() {
    let endpoint = endpoint(&Arc::default());
    let (_, body) = answer(&endpoint, request(&legacy(json!(1), "tools/call", call("scalar")))).await;
    assert_eq!(body["result"], json!({"content": [{"type": "text", "text": "[1,2]"}], "isError": false}));
    let (_, body) = answer(&endpoint, request(&modern(json!(1), "tools/call", call("scalar")))).await;
    assert_eq!(body["result"]["structuredContent"], json!([1, 2]));
}

#[tokio::test]
async fn mc_01_foreign_hosts_and_origins_are_refused_before_the_token_is_read() {
    let stage = Arc::<Stage>::default();
    let endpoint = endpoint(&stage);
    let ask = async |host: &str, origin: Option<&str>, token: &str| {
        let mut request = request(&legacy(json!(1), "tools/call", call("echo")));
        request.headers_mut().insert("host", host.parse().unwrap());
        request.headers_mut().insert("authorization", token.parse().unwrap());
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        send(&endpoint, request).await.status().as_u16()
    };
    assert_eq!(ask("rebind.evil.test", None, "Bearer s3cret").await, 421);
    assert_eq!(ask("localhost", Some("https://evil"), "Bearer s3cret").await, 403);
    assert_eq!(ask("localhost", Some("null"), "Bearer s3cret").await, 403);
    assert_eq!(ask("localhost", Some("null"), "Bearer wrong").await, 403);
    assert_eq!(stage.calls.load(Ordering::SeqCst), 0);
    assert_eq!(ask("localhost", None, "Bearer s3cret").await, 200);
    assert_eq!(ask("localhost:1", Some("http://localhost:2"), "Bearer s3cret").await, 200);
    assert_eq!(ask("localhost", None, "Bearer wrong").await, 401);
}

#[tokio::test]
async fn a_missing_token_is_challenged_and_explained() {
    let mut request = request(&legacy(json!(1), "ping", json!({})));
    request.headers_mut().remove("authorization");
    let response = send(&endpoint(&Arc::default()), request).await;
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"test\"");
    assert_eq!(text(response).await, r#"{"error":"unauthorized","message":"send a token"}"#);
    let wrong = Refusal::invalid_token("te\"st", "ask for another").into_response();
    assert_eq!(wrong.status(), 401);
    assert_eq!(wrong.headers()["www-authenticate"], "Bearer realm=\"test\", error=\"invalid_token\"");
}

#[tokio::test]
async fn only_post_is_served() {
    let endpoint = endpoint(&Arc::default());
    for method in ["GET", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"] {
        let mut request = request(&legacy(json!(1), "ping", json!({})));
        *request.method_mut() = method.parse().unwrap();
        let response = send(&endpoint, request).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &"POST".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn other_content_types_are_415_and_other_accepts_406() {
    let endpoint = endpoint(&Arc::default());
    for (name, value, status) in [
        ("content-type", "text/plain", 415),
        ("content-type", "application/x-www-form-urlencoded", 415),
        ("content-encoding", "gzip", 415),
        ("accept", "text/html", 406),
        ("accept", "*/*", 200),
        ("accept", "application/json", 200),
    ] {
        let mut request = request(&legacy(json!(1), "ping", json!({})));
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(send(&endpoint, request).await.status().as_u16(), status, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_client_that_takes_only_streams_gets_one_event() {
    let mut request = request(&legacy(json!(1), "ping", json!({})));
    request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let response = send(&endpoint(&Arc::default()), request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(events(&text(response).await), [json!({"jsonrpc": "2.0", "id": 1, "result": {}})]);
}

#[tokio::test]
async fn notifications_are_202_without_a_body() {
    let endpoint = endpoint(&Arc::default());
    for method in ["notifications/initialized", "notifications/cancelled", "notifications/unheard-of"] {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}});
        let mut request = request(&message);
        request.headers_mut().append("mcp-method", "odd".parse().unwrap());
        let (status, body) = answer(&endpoint, request).await;
        assert_eq!((status, body), (202, json!("")), "{method}");
    }
}

#[tokio::test]
async fn mc_03_what_is_not_one_message_is_400_and_runs_nothing() {
    let stage = Arc::<Stage>::default();
    let endpoint = endpoint(&stage);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
    for (body, code) in [
        (format!("[{call},{call}]"), -32600),
        (format!("{call}{call}"), -32700),
        (format!("\u{feff}{call}"), -32700),
        (call.replace("\"id\":1", "\"id\":null"), -32600),
        (call.replace("\"id\":1", "\"id\":1.5"), -32600),
        (call.replace("\"id\":1,", ""), -32600),
        (call.replace("\"name\":\"echo\"", "\"name\":\"echo\",\"name\":\"echo\""), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into(), -32600),
        (String::new(), -32700),
    ] {
        let (status, answer) = answer(&endpoint, post().body(Full::from(body.clone())).unwrap()).await;
        assert_eq!(
            (status, &answer["error"]["code"], &answer["id"]),
            (400, &json!(code), &Value::Null),
            "{body}"
        );
    }
    assert_eq!(stage.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn mc_02_headers_that_contradict_the_body_are_400_and_run_nothing() {
    let stage = Arc::<Stage>::default();
    let endpoint = endpoint(&stage);
    let message = modern(json!(1), "tools/call", call("echo"));
    let edits: [fn(&mut http::HeaderMap); 6] = [
        |h| drop(h.insert("mcp-name", "list_nodes".parse().unwrap())),
        |h| drop(h.remove("mcp-name")),
        |h| assert!(h.append("mcp-name", "echo".parse().unwrap())),
        |h| drop(h.insert("mcp-method", "tools/list".parse().unwrap())),
        |h| assert!(h.append("mcp-protocol-version", "2026-07-28".parse().unwrap())),
        |h| drop(h.insert("mcp-name", http::HeaderValue::from_bytes(b"ech\xf6").unwrap())),
    ];
    for edit in edits {
        let mut request = request(&message);
        edit(request.headers_mut());
        let headers = format!("{:?}", request.headers());
        let (status, body) = answer(&endpoint, request).await;
        assert_eq!(
            (status, &body["error"]["code"], &body["id"]),
            (400, &json!(-32020), &json!(1)),
            "{headers}"
        );
    }
    assert_eq!(stage.calls.load(Ordering::SeqCst), 0);
    let mut request = request(&message);
    request.headers_mut().insert("mcp-name", "=?base64?ZWNobw==?=".parse().unwrap());
    assert_eq!(answer(&endpoint, request).await.0, 200);
}

#[tokio::test]
async fn errors_have_the_status_of_their_era() {
    let endpoint = endpoint(&Arc::default());
    for (message, status, code) in [
        (modern(json!(1), "tools/call", call("nope")), 400, -32602),
        (legacy(json!(1), "tools/call", call("nope")), 200, -32602),
        (modern(json!(1), "ping", json!({})), 404, -32601),
        (legacy(json!(1), "subscriptions/listen", json!({})), 200, -32601),
        (modern(json!(1), "resources/read", json!({"uri": "x:y"})), 400, -32602),
        (modern(json!(1), "tools/call", call("panic")), 200, -32603),
    ] {
        let (got, body) = answer(&endpoint, request(&message)).await;
        assert_eq!(
            (got, &body["error"]["code"], &body["id"]),
            (status, &json!(code), &json!(1)),
            "{message}"
        );
    }
}

#[tokio::test]
async fn mc_05_an_unknown_tool_is_a_protocol_error_that_shows_its_name_safely() {
    let endpoint = endpoint(&Arc::default());
    let (_, body) = answer(&endpoint, request(&legacy(json!(1), "tools/call", call("x\n\u{202e}y")))).await;
    assert_eq!(body["error"]["code"], -32602);
    assert!(body["error"]["message"].as_str().unwrap().contains("`x\\u{a}\\u{202e}y`"));
}

#[tokio::test]
async fn e01_an_old_session_id_is_ignored() {
    let endpoint = endpoint(&Arc::default());
    for message in
        [legacy(json!(1), "tools/call", call("echo")), modern(json!(1), "tools/call", call("echo"))]
    {
        let mut request = request(&message);
        request.headers_mut().insert("mcp-session-id", "from-before-the-restart".parse().unwrap());
        request.headers_mut().insert("last-event-id", "7".parse().unwrap());
        let response = send(&endpoint, request).await;
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("mcp-session-id"));
    }
}

#[tokio::test]
async fn mc_04_bodies_over_the_limit_are_413() {
    let config = || {
        let mut config = Config::new(identity());
        config.body_limit = 64;
        config
    };
    let endpoint = with_config(&Arc::default(), config());
    let of = |length: usize| format!("{:<length$}", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    for (length, status) in [(63, 200), (64, 200), (65, 413)] {
        assert_eq!(
            answer(&endpoint, post().body(Full::from(of(length))).unwrap()).await.0,
            status,
            "{length}"
        );
        // In pieces and without a declared length.
        let body =
            Pieces(of(length).into_bytes().chunks(10).map(|c| Ok(Bytes::copy_from_slice(c))).collect());
        assert_eq!(send(&endpoint, post().body(body).unwrap()).await.status().as_u16(), status, "{length}");
    }
    let declared = post().header("content-length", "1000000").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(answer(&endpoint, declared).await.0, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_408_and_a_broken_one_400() {
    let endpoint = endpoint(&Arc::default());
    let response = send(&endpoint, post().body(Never).unwrap()).await;
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    let broken = Pieces(vec![Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("gone"))]);
    assert_eq!(send(&endpoint, post().body(broken).unwrap()).await.status(), 400);
}

#[tokio::test]
async fn e10_progress_makes_the_reply_a_stream_and_only_when_asked_for() {
    let endpoint = endpoint(&Arc::default());
    for build in [legacy, modern] {
        let mut params = call("progress");
        params["_meta"] = json!({"progressToken": "p"});
        let response = send(&endpoint, request(&build(json!(1), "tools/call", params))).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        let events = events(&text(response).await);
        let params: Vec<_> = events[..3].iter().map(|event| &event["params"]).collect();
        for (params, done) in params.iter().zip([0, 50, 100]) {
            assert_eq!(
                **params,
                json!({"progressToken": "p", "progress": done, "total": 100, "message": "working\nhard"})
            );
        }
        assert_eq!((events.len(), &events[3]["result"]["structuredContent"]), (4, &json!({"asked": true})));

        let response = send(&endpoint, request(&build(json!(1), "tools/call", call("progress")))).await;
        assert_eq!(response.headers()["content-type"], "application/json");
    }
}

#[tokio::test]
async fn progress_is_not_offered_to_a_client_that_takes_json_only() {
    let mut params = call("progress");
    params["_meta"] = json!({"progressToken": 5});
    let mut request = request(&legacy(json!(1), "tools/call", params));
    request.headers_mut().insert("accept", "application/json".parse().unwrap());
    let (status, body) = answer(&endpoint(&Arc::default()), request).await;
    assert_eq!((status, &body["result"]["structuredContent"]), (200, &json!({"asked": false})));
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_becomes_a_stream_that_is_kept_alive() {
    let stage = Arc::<Stage>::default();
    let started = tokio::time::Instant::now();
    let response = send(&endpoint(&stage), request(&modern(json!(1), "tools/call", call("hold")))).await;
    assert_eq!(started.elapsed().as_secs(), 10);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut last = tokio::time::Instant::now();
    for _ in 0..4 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, ":\n\n");
        assert!(last.elapsed() <= Duration::from_secs(15));
        last = tokio::time::Instant::now();
    }
    stage.release.notify_one();
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(
        events(std::str::from_utf8(&rest).unwrap())[0]["result"]["structuredContent"],
        json!({"held": true})
    );
    assert_eq!(stage.cancelled.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_json_only_client_waits_in_silence() {
    let stage = Arc::<Stage>::default();
    let mut request = request(&modern(json!(1), "tools/call", call("hold")));
    request.headers_mut().insert("accept", "application/json".parse().unwrap());
    let mut endpoint = endpoint(&stage);
    let reply = tokio::spawn(async move { endpoint.call(request).await.unwrap() });
    tokio::time::sleep(Duration::from_secs(60)).await;
    stage.release.notify_one();
    assert_eq!(reply.await.unwrap().headers()["content-type"], "application/json");
}

#[tokio::test]
async fn closing_a_modern_reply_cancels_and_closing_a_legacy_one_does_not() {
    for (message, cancelled) in
        [(modern(json!(1), "tools/call", call("hold")), 1), (legacy(json!(1), "tools/call", call("hold")), 0)]
    {
        let stage = Arc::<Stage>::default();
        let mut endpoint = endpoint(&stage);
        let reply = tokio::spawn(async move { endpoint.call(request(&message)).await });
        stage.holding.notified().await;
        reply.abort();
        assert!(reply.await.unwrap_err().is_cancelled());
        stage.release.notify_one();
        // The call runs on to its end either way.
        stage.ended.notified().await;
        assert_eq!(stage.cancelled.load(Ordering::SeqCst), cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn closing_a_modern_stream_cancels_and_closing_a_legacy_one_does_not() {
    for (message, cancelled) in
        [(modern(json!(1), "tools/call", call("hold")), 1), (legacy(json!(1), "tools/call", call("hold")), 0)]
    {
        let stage = Arc::<Stage>::default();
        let response = send(&endpoint(&stage), request(&message)).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        drop(response);
        tokio::task::yield_now().await;
        stage.release.notify_one();
        stage.ended.notified().await;
        assert_eq!(stage.cancelled.load(Ordering::SeqCst), cancelled);
    }
}

/// A body that comes in pieces.
struct Pieces(Vec<Result<Bytes, std::io::Error>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0).map(Frame::data));
        Poll::Ready(next)
    }
}

/// A body that never comes.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}
