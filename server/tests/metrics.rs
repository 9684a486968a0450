//! `GET /metrics` on its own listener, against the whole server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "support/raw.rs"]
mod raw;
mod support;
#[path = "support/uploads.rs"]
mod uploads;

use std::net::SocketAddr;

use http::Method;
use proxward::serve::{Options, Running, start_http};
use raw::{once, put};
use serde_json::json;
use support::{Stage, path_of, request, send};

async fn serve(stage: &Stage) -> (Running, SocketAddr) {
    let server =
        start_http(&stage.args(&["--metrics-listen", "127.0.0.1:0"]), Options::default()).await.unwrap();
    let address = server.metrics_address.unwrap();
    (server, address)
}

async fn scrape(address: SocketAddr) -> String {
    let answer = send(address, request(address, Method::GET, "/metrics", "")).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

/// The value of a sample, 0 where nothing was counted yet.
fn sample(text: &str, series: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_transfers_and_wrong_bearers_are_counted() {
    let stage = Stage::new().await;
    let (server, metrics) = serve(&stage).await;
    let agent = stage.client(server.address, "agent");
    assert_eq!(sample(&scrape(metrics).await, "proxward_audit_usable"), 1.0);

    agent.call("get_vms", json!({"cluster": "alpha"})).await.unwrap();
    agent.call("get_vms", json!({"cluster": "alpha"})).await.unwrap();
    stage
        .client(server.address, "reader")
        .call("start_vm", json!({"cluster": "alpha", "vmid": 100}))
        .await
        .unwrap_err();
    let arguments = json!({"cluster": "alpha", "vmid": uploads::VMID, "dest": "/root/counted"});
    let minted = agent.call("proxmox_upload_link", arguments).await.unwrap();
    assert_eq!(sample(&scrape(metrics).await, "proxward_links_pending"), 1.0);
    let path = path_of(&minted);
    assert_eq!(once(server.address, &put(server.address, &path, "twelve bytes")).await.status, 200);
    let mut stranger = agent.clone();
    stranger.bearer = Some("pxw_nobody".to_owned());
    assert_eq!(stranger.rpc("tools/list", json!({})).await.status, 401);

    let text = scrape(metrics).await;
    for (series, value) in [
        ("proxward_tool_calls_total{tool=\"get_vms\",outcome=\"ok\"}", 2.0),
        ("proxward_tool_call_seconds_count{tool=\"get_vms\"}", 2.0),
        ("proxward_tool_calls_total{tool=\"start_vm\",outcome=\"insufficient_scope\"}", 1.0),
        ("proxward_transfers_total{route=\"/transfers/upload/{token}\",outcome=\"ok\"}", 1.0),
        ("proxward_transfer_bytes_total{route=\"/transfers/upload/{token}\"}", 12.0),
        ("proxward_refused_bearers_total", 1.0),
        ("proxward_links_pending", 0.0),
        ("proxward_config_generation", 1.0),
        ("proxward_config_degraded", 0.0),
    ] {
        assert_eq!(sample(&text, series), value, "{series} in\n{text}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mc_10_counters_have_their_own_listener_and_name_nobody() {
    let stage = Stage::new().await;
    let (server, metrics) = serve(&stage).await;
    let agent = stage.client(server.address, "agent");
    agent.call("get_guest_status", json!({"cluster": "alpha", "vmid": 100})).await.unwrap();
    agent.rpc("tools/call", json!({"name": "no_such_tool_canary", "arguments": {}})).await;
    let minted = agent
        .call(
            "proxmox_upload_link",
            json!({"cluster": "alpha", "vmid": uploads::VMID, "dest": "/root/canary"}),
        )
        .await
        .unwrap();
    once(server.address, &put(server.address, &path_of(&minted), "x")).await;
    let text = scrape(metrics).await;
    assert_eq!(
        sample(&text, "proxward_tool_calls_total{tool=\"unknown\",outcome=\"unknown_tool\"}"),
        1.0,
        "{text}"
    );
    let token = path_of(&minted).rsplit('/').next().unwrap().to_owned();
    for name in ["alpha", "agent", "robin", "canary", "pve1", stage.bearer("agent"), token.as_str()] {
        assert!(!text.contains(name), "{name} is in\n{text}");
    }
    // Neither listener serves what is the other's.
    let public = send(server.address, request(server.address, Method::GET, "/metrics", "")).await.unwrap();
    assert_eq!(public.status, 404);
    for path in ["/", "/mcp", "/healthz"] {
        assert_eq!(
            send(metrics, request(metrics, Method::GET, path, "")).await.unwrap().status,
            404,
            "{path}"
        );
    }
    assert_eq!(send(metrics, request(metrics, Method::POST, "/metrics", "x")).await.unwrap().status, 405);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_refused_on_an_address_that_callers_use() {
    let stage = Stage::new().await;
    for (more, reason) in [
        (&["--metrics-listen", "0.0.0.0:9187"][..], "listens on every address"),
        (&["--metrics-listen", "[::]:9187"], "listens on every address"),
        (&["--metrics-listen", "192.0.2.1:9187", "-H", "192.0.2.1"], "is the address that callers use"),
    ] {
        let problems = proxward::cli::start::rules(&stage.args(more));
        assert!(
            problems.iter().any(|problem| problem.to_string().contains(reason)),
            "{more:?}: {problems:?}"
        );
    }
    assert!(proxward::cli::start::rules(&stage.args(&["--metrics-listen", "127.0.0.1:9187"])).is_empty());
}
