//! Several clusters at once, one of which may not answer; and what `/readyz` makes of that.

use std::net::SocketAddr;

use http::Method;
use lab::{Action, Fault};
use serde_json::json;

use crate::support::{READER, Rights, Stage, request, send};

/// A server that cannot reach these clusters.
async fn cut_off(clusters: &[&str]) -> Stage {
    let mut stage = Stage::new().await;
    stage.token("beta-only", Rights { clusters: &["beta"], ..READER });
    stage.edit_clusters(|file| {
        for cluster in clusters {
            // Nothing listens there, and the address is refused at once.
            file["devices"][*cluster]["endpoint"] = "https://127.0.0.1:1".into();
        }
    });
    stage
}

async fn ready(address: SocketAddr) -> (u16, String) {
    let answer = send(address, request(address, Method::GET, "/readyz", "")).await.unwrap();
    (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_answer_costs_nothing_but_its_own_answer() {
    let stage = cut_off(&["beta"]).await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let found = reader.call("find_guests", json!({"name": "WEB"})).await.unwrap();
    assert_eq!((&found["total"], &found["items"][0]["name"]), (&1.into(), &"web".into()));
    let unreachable = &found["unreachable"][0];
    assert_eq!(
        (&unreachable["cluster"], &unreachable["code"]),
        (&"beta".into(), &"cluster_unreachable".into())
    );
    let clusters = reader.call("list_clusters", json!({})).await.unwrap();
    let (alpha, beta) = (&clusters["items"][0], &clusters["items"][1]);
    assert_eq!(
        (&alpha["reachable"], &alpha["nodes"], &alpha["nodes_online"]),
        (&true.into(), &3.into(), &2.into())
    );
    assert!(alpha["version"].as_str().unwrap().starts_with('9'), "{alpha}");
    assert_eq!((&beta["reachable"], &beta["code"]), (&false.into(), &"cluster_unreachable".into()));
    assert_eq!(beta.get("version"), None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_hears_of_its_own_clusters_only() {
    let stage = cut_off(&["alpha"]).await;
    let server = stage.serve().await;
    let client = stage.client(server.address, "beta-only");
    let found = client.call("find_guests", json!({})).await.unwrap();
    assert_eq!((&found["total"], &found["unreachable"]), (&3.into(), &json!([])));
    assert!(found["items"].as_array().unwrap().iter().all(|guest| guest["cluster"] == "beta"), "{found}");
    let clusters = client.call("list_clusters", json!({})).await.unwrap();
    assert_eq!((&clusters["total"], &clusters["items"][0]["cluster"]), (&1.into(), &"beta".into()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_are_found_by_every_property_at_once() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    for (wanted, vmids) in [
        (json!({"cluster": "alpha", "tag": "prod", "node": "pve1"}), vec![100, 101, 200, 204]),
        (json!({"cluster": "alpha", "pool": "production", "status": "running"}), vec![100, 101, 200]),
        (json!({"name": "R", "tag": "dev"}), vec![104, 105, 202]),
        (json!({"tag": "pro"}), vec![]),
        (json!({"status": "unknown"}), vec![130, 230]),
        (json!({"cluster": "beta", "tag": "infra"}), vec![101]),
    ] {
        let found = reader.call("find_guests", wanted.clone()).await.unwrap();
        let seen: Vec<u64> =
            found["items"].as_array().unwrap().iter().map(|guest| guest["vmid"].as_u64().unwrap()).collect();
        assert_eq!(seen, vmids, "{wanted}");
        assert_eq!(found["total"], vmids.len(), "{wanted}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_amber_while_a_cluster_is_away_and_red_when_all_are() {
    for (away, expected) in [
        (&[][..], (200, "ok\n")),
        (&["beta"][..], (200, "degraded\n")),
        (&["alpha", "beta"][..], (503, "mutations are impossible\n")),
    ] {
        let stage = cut_off(away).await;
        let server = stage.serve().await;
        let (status, body) = ready(server.address).await;
        assert_eq!((status, body.as_str()), expected, "{away:?}");
        server.stop().await;
    }
}

/// Anyone may ask, as often as they like; the clusters are asked once in a while.
#[tokio::test(flavor = "multi_thread")]
async fn do_04_readiness_asks_a_cluster_once_however_often_it_is_asked() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    stage.alpha().clear_requests();
    let mut held = stage.alpha().inject(Fault::once("GET", "/version", Action::HoldBefore));
    let asking: Vec<_> = (0..20).map(|_| tokio::spawn(ready(server.address))).collect();
    held.struck().await;
    held.release();
    for answer in asking {
        assert_eq!(answer.await.unwrap(), (200, "ok\n".to_owned()));
    }
    let asked = stage.alpha().requests();
    assert_eq!(asked.iter().filter(|request| request.path == "/version").count(), 1, "{asked:?}");
    server.stop().await;
}

/// A cluster that hangs is one that does not answer, after a bounded time.
#[tokio::test(flavor = "multi_thread")]
async fn do_04_readiness_does_not_wait_for_a_cluster_that_hangs() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let held = stage.alpha().inject(Fault::always("GET", "/version", Action::HoldBefore));
    let begun = std::time::Instant::now();
    assert_eq!(ready(server.address).await, (200, "degraded\n".to_owned()));
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    held.release();
    server.stop().await;
}
