//! The endpoint behind hyper on a real socket: what only a connection can show.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

mod common;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use common::{Stage, Tools, call, identity, legacy, modern};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use mcp_wire::http::{Config, McpHttp, Refusal};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn server() -> (SocketAddr, Arc<Stage>) {
    let stage = Arc::<Stage>::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let anyone = |_: &http::request::Parts| std::future::ready(Ok::<_, Refusal>("anyone".to_owned()));
    let endpoint = McpHttp::new(Tools(Arc::clone(&stage)), anyone, Config::new(identity()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(endpoint.clone());
            tokio::spawn(async move {
                let mut http1 = hyper::server::conn::http1::Builder::new();
                http1.timer(TokioTimer::new());
                http1.serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    (address, stage)
}

fn raw(message: &Value, extra: &str) -> String {
    let body = message.to_string();
    let mut head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                    Accept: application/json, text/event-stream\r\n"
        .to_owned();
    if message["params"]["_meta"].is_object() {
        head.push_str("MCP-Protocol-Version: 2026-07-28\r\n");
        head.push_str(&format!("Mcp-Method: {}\r\n", message["method"].as_str().unwrap()));
        head.push_str(&format!("Mcp-Name: {}\r\n", message["params"]["name"].as_str().unwrap()));
    }
    format!("{head}{extra}Content-Length: {}\r\n\r\n{body}", body.len())
}

async fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is the server closing on what it did not read.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_modern_client_that_hangs_up_cancels_and_a_legacy_one_does_not() {
    for (message, cancelled) in
        [(modern(json!(1), "tools/call", call("hold")), 1), (legacy(json!(1), "tools/call", call("hold")), 0)]
    {
        let (address, stage) = server().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(raw(&message, "").as_bytes()).await.unwrap();
        stage.holding.notified().await;
        drop(stream);
        if cancelled == 0 {
            // A second connection is served after the first was closed, so by then hyper had its chance.
            let ping = raw(&legacy(json!(2), "ping", json!({})), "Connection: close\r\n");
            assert!(exchange(address, ping).await.starts_with("HTTP/1.1 200"));
            stage.release.notify_one();
        }
        stage.ended.notified().await;
        assert_eq!(stage.cancelled.load(Ordering::SeqCst), cancelled);
    }
}

#[tokio::test]
async fn mc_09_requests_with_two_readings_are_refused_and_run_nothing() {
    let (address, stage) = server().await;
    let body = legacy(json!(1), "tools/call", call("echo")).to_string();
    let length = body.len();
    let chunk = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let corpus = [
        ("two lengths", format!("{head}Content-Length: {length}\r\nContent-Length: 1\r\n\r\n{body}")),
        ("a length list", format!("{head}Content-Length: {length}, {length}\r\n\r\n{body}")),
        ("a signed length", format!("{head}Content-Length: +{length}\r\n\r\n{body}")),
        ("an unknown coding", format!("{head}Transfer-Encoding: xchunked\r\n\r\n{chunk}")),
        ("chunked not last", format!("{head}Transfer-Encoding: chunked, gzip\r\n\r\n{chunk}")),
        ("space before the colon", format!("{head}Content-Length : {length}\r\n\r\n{body}")),
        ("a folded line", format!("{head}X-A: b\r\n c\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("nul in a name", format!("{head}X\0A: b\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("nul in a value", format!("{head}X-A: b\0\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("a bare carriage return", format!("{head}X-A: b\rc\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("a bad chunk size", format!("{head}Transfer-Encoding: chunked\r\n\r\nz\r\n{body}\r\n0\r\n\r\n")),
    ];
    for (what, bytes) in corpus {
        let answer = exchange(address, bytes).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{what}: {answer}");
    }
    assert_eq!(stage.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn mc_09_a_length_beside_a_coding_is_read_in_one_way_and_the_connection_closed() {
    // hyper drops the length before anyone sees it, reads the chunks and closes, as RFC 9112 §6.3 allows. What
    // either reading leaves over must not become a second request.
    let (address, stage) = server().await;
    let smuggled = raw(&legacy(json!(2), "tools/call", call("echo")), "");
    let body = legacy(json!(1), "ping", json!({})).to_string();
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n{smuggled}", body.len());
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for framing in
        ["Content-Length: 6\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 6"]
    {
        let answer = exchange(address, format!("{head}{framing}\r\n\r\n{chunks}")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    assert_eq!(stage.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_over_a_socket_answers() {
    let (address, stage) = server().await;
    let message = modern(json!(1), "tools/call", call("echo"));
    let answer = exchange(address, raw(&message, "Connection: close\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(stage.calls.load(Ordering::SeqCst), 1);
}
