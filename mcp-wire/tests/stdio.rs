//! The stdio transport over in-memory pipes.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

mod common;

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use common::{Stage, Tools, call, identity, legacy, modern};
use mcp_wire::stdio::{Config, serve};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines},
    task::JoinHandle,
};

struct Client {
    stage: Arc<Stage>,
    stdin: Option<DuplexStream>,
    stdout: Lines<BufReader<DuplexStream>>,
    server: JoinHandle<io::Result<()>>,
}

impl Client {
    fn new() -> Self {
        Self::with(Config::new(identity()))
    }

    fn with(config: Config) -> Self {
        let stage = Arc::<Stage>::default();
        let (stdin, server_in) = tokio::io::duplex(1 << 16);
        let (server_out, stdout) = tokio::io::duplex(1 << 16);
        let server =
            tokio::spawn(serve(Tools(Arc::clone(&stage)), "local".to_owned(), server_in, server_out, config));
        Self { stage, stdin: Some(stdin), stdout: BufReader::new(stdout).lines(), server }
    }

    async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stdin.as_mut().unwrap().write_all(bytes.as_ref()).await.unwrap();
    }

    async fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n")).await;
    }

    /// The next frame; every line must be one JSON-RPC message.
    async fn frame(&mut self) -> Option<Value> {
        let line = self.stdout.next_line().await.unwrap()?;
        assert!(!line.ends_with('\r'));
        let frame: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(frame["jsonrpc"], "2.0");
        Some(frame)
    }

    /// Closes stdin and returns the remaining frames once the server ended well.
    async fn end(mut self) -> Vec<Value> {
        self.stdin = None;
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        self.server.await.unwrap().unwrap();
        frames
    }
}

fn ids(frames: &[Value]) -> Vec<&Value> {
    let mut ids: Vec<_> = frames.iter().map(|frame| &frame["id"]).collect();
    ids.sort_by_key(|id| id.to_string());
    ids
}

#[tokio::test]
async fn e05_line_ends_empty_lines_bom_and_a_last_line_without_end_are_handled() {
    let mut client = Client::new();
    let ping = |id: i64| legacy(json!(id), "ping", json!({}));
    client.write(format!("\u{feff}{}\r\n\r\n\n  \n{}\r\n{}", ping(1), ping(2), ping(3))).await;
    assert_eq!(ids(&client.end().await), [1, 2, 3]);
}

#[tokio::test]
async fn e18_frames_are_lines_without_headers() {
    let mut client = Client::new();
    client.write("Content-Length: 10\r\n\r\n").await;
    let frame = client.frame().await.unwrap();
    assert_eq!((&frame["id"], &frame["error"]["code"]), (&Value::Null, &json!(-32700)));
    client.send(&legacy(json!(1), "ping", json!({}))).await;
    assert_eq!(client.frame().await.unwrap(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
}

#[tokio::test]
async fn the_era_is_chosen_per_message() {
    let mut client = Client::new();
    client.send(&modern(json!("probe"), "server/discover", json!({}))).await;
    assert_eq!(client.frame().await.unwrap()["result"]["supportedVersions"][0], "2026-07-28");
    client.send(&legacy(json!(0), "initialize", json!({"protocolVersion": "2025-11-25"}))).await;
    assert_eq!(client.frame().await.unwrap()["result"]["protocolVersion"], "2025-11-25");
    client.send(&modern(json!(1), "tools/call", call("echo"))).await;
    assert_eq!(client.frame().await.unwrap()["result"]["resultType"], "complete");
    client.send(&legacy(json!(2), "tools/call", call("echo"))).await;
    let result = client.frame().await.unwrap()["result"].clone();
    assert_eq!(result["structuredContent"]["caller"], "local");
    assert!(result.get("resultType").is_none());
}

#[tokio::test]
async fn e04_a_panic_in_a_tool_leaves_only_frames_on_stdout() {
    let mut client = Client::new();
    client.send(&legacy(json!(1), "tools/call", call("panic"))).await;
    assert_eq!(client.frame().await.unwrap()["error"]["code"], -32603);
    client.send(&legacy(json!(2), "ping", json!({}))).await;
    assert_eq!(ids(&client.end().await), [2]);
}

#[tokio::test]
async fn mc_03_what_is_not_one_message_is_answered_and_runs_nothing() {
    let mut client = Client::new();
    let call = legacy(json!(1), "tools/call", call("echo"));
    for line in
        [format!("[{call}]"), format!("{call}{call}"), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}".into()]
    {
        client.write(format!("{line}\n")).await;
        assert_eq!(client.frame().await.unwrap()["id"], Value::Null);
    }
    assert_eq!(client.stage.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn mc_04_lines_over_the_limit_are_skipped() {
    let mut config = Config::new(identity());
    config.line_limit = 64;
    let mut client = Client::with(config);
    let of = |length: usize| format!("{:<length$}", legacy(json!(1), "ping", json!({})).to_string());
    for (length, fits) in [(63, true), (64, true), (65, false), (66, false), (20_000, false)] {
        for end in ["\n", "\r\n"] {
            client.write(format!("{}{end}", of(length))).await;
            let frame = client.frame().await.unwrap();
            assert_eq!(frame.get("result").is_some(), fits, "{length}: {frame}");
        }
    }
}

#[tokio::test]
async fn calls_run_at_once_and_cancelled_ones_say_nothing_more() {
    let mut client = Client::new();
    client.send(&legacy(json!("a"), "tools/call", call("hold"))).await;
    client.stage.holding.notified().await;
    client.send(&legacy(json!(1), "ping", json!({}))).await;
    assert_eq!(client.frame().await.unwrap()["id"], 1);
    let cancel = |id: Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    // Unknown and malformed cancels are ignored; ids of another type are other ids.
    for id in [json!("unknown"), json!(null), json!({}), json!(1)] {
        client.send(&cancel(id)).await;
    }
    client.send(&cancel(json!("a"))).await;
    client.stage.ended.notified().await;
    assert_eq!(client.stage.cancelled.load(Ordering::SeqCst), 1);
    // The id may be used again.
    client.send(&legacy(json!("a"), "tools/call", call("echo"))).await;
    let frames = client.end().await;
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0]["result"]["structuredContent"]["caller"], "local");
}

#[tokio::test]
async fn an_id_in_use_is_refused_and_the_first_call_goes_on() {
    let mut client = Client::new();
    client.send(&legacy(json!(1), "tools/call", call("hold"))).await;
    client.stage.holding.notified().await;
    client.send(&legacy(json!(1), "tools/call", call("echo"))).await;
    let frame = client.frame().await.unwrap();
    assert_eq!((&frame["id"], &frame["error"]["code"]), (&Value::Null, &json!(-32600)));
    client.stage.release.notify_one();
    assert_eq!(client.frame().await.unwrap()["result"]["structuredContent"], json!({"held": true}));
}

#[tokio::test]
async fn calls_beyond_the_cap_are_refused() {
    let mut config = Config::new(identity());
    config.max_in_flight = 1;
    let mut client = Client::with(config);
    client.send(&legacy(json!(1), "tools/call", call("hold"))).await;
    client.stage.holding.notified().await;
    client.send(&legacy(json!(2), "tools/call", call("echo"))).await;
    let frame = client.frame().await.unwrap();
    assert_eq!((&frame["id"], &frame["error"]["code"]), (&json!(2), &json!(-32603)));
    client.stage.release.notify_one();
    assert_eq!(client.frame().await.unwrap()["id"], 1);
    client.send(&legacy(json!(3), "tools/call", call("echo"))).await;
    assert_eq!(client.frame().await.unwrap()["id"], 3);
}

#[tokio::test]
async fn at_the_end_of_input_calls_are_drained() {
    let mut client = Client::new();
    client.send(&legacy(json!(1), "tools/call", call("hold"))).await;
    client.stage.holding.notified().await;
    client.stage.release.notify_one();
    assert_eq!(ids(&client.end().await), [1]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_outlive_the_drain_are_cancelled() {
    let mut client = Client::new();
    client.send(&legacy(json!(1), "tools/call", call("hold"))).await;
    client.stage.holding.notified().await;
    let stage = Arc::clone(&client.stage);
    let started = tokio::time::Instant::now();
    assert_eq!(client.end().await, Vec::<Value>::new());
    assert_eq!(started.elapsed(), Duration::from_secs(10));
    stage.ended.notified().await;
    assert_eq!(stage.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_that_stops_reading_cancels_its_calls() {
    let mut client = Client::new();
    client.send(&legacy(json!(1), "tools/call", call("hold"))).await;
    client.stage.holding.notified().await;
    client.send(&legacy(json!(2), "ping", json!({}))).await;
    let Client { stage, stdin, stdout, server } = client;
    drop(stdout);
    let mut stdin = stdin.unwrap();
    stdin.write_all(format!("{}\n", legacy(json!(3), "ping", json!({}))).as_bytes()).await.unwrap();
    assert_eq!(server.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    stage.ended.notified().await;
    assert_eq!(stage.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn e10_progress_comes_before_the_answer_and_only_when_asked_for() {
    let mut client = Client::new();
    let mut params = call("progress");
    params["_meta"] = json!({"progressToken": 9});
    client.send(&legacy(json!(1), "tools/call", params)).await;
    for done in [0, 50, 100] {
        let frame = client.frame().await.unwrap();
        assert_eq!(
            (&frame["method"], &frame["params"]["progress"]),
            (&json!("notifications/progress"), &json!(done))
        );
        assert_eq!(frame["params"]["progressToken"], 9);
    }
    assert_eq!(client.frame().await.unwrap()["id"], 1);
    client.send(&legacy(json!(2), "tools/call", call("progress"))).await;
    assert_eq!(client.frame().await.unwrap()["result"]["structuredContent"], json!({"asked": false}));
}
