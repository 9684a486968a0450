//! What a token's scope lets it know: clusters, guests, tiers. Everything outside is one answer.

mod support;

use std::time::Duration;

use lab::{Action, Fault};
use serde_json::{Value, json};
use support::{AGENT, READER, Rights, Stage};

fn guest(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid})
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_10_a_guest_listed_twice_outside_the_scope_is_no_guest() {
    let mut stage = Stage::new().await;
    stage.token("narrow", Rights { guests: &["vmid:200"], ..READER });
    let server = stage.serve().await;
    let row = |vmid: u32, kind: &str, node: &str| json!({"id": format!("{kind}/{vmid}"), "type": kind, "vmid": vmid, "node": node, "status": "running", "name": "x"});
    let rows = json!({"data": [row(200, "lxc", "pve1"), row(999, "lxc", "pve1"), row(999, "qemu", "pve2")]});
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", Action::Raw(rows.to_string().into())));
    let narrow = stage.client(server.address, "narrow");
    let twice = narrow.call("get_guest_status", guest(999)).await.unwrap_err();
    let absent = narrow.call("get_guest_status", guest(998)).await.unwrap_err();
    assert_eq!(twice, absent);
    // PX-09: inside the scope the contradiction is told, and nothing is done.
    let wide = stage.client(server.address, "agent");
    assert_eq!(wide.call("get_guest_status", guest(999)).await.unwrap_err()["code"], "ambiguous_guest");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_08_low_without_read_acts_and_reads_nothing() {
    let mut stage = Stage::new().await;
    stage.token("hands", Rights { guests: &["vmid:100"], actions: &["low"], ..AGENT });
    let server = stage.serve().await;
    stage.alpha().stop(100).unwrap();
    let hands = stage.client(server.address, "hands");
    let started = hands.call("start_vm", guest(100)).await.unwrap();
    // The refusal may explain itself, because the guest is in scope.
    let status = hands.call("get_guest_status", guest(100)).await.unwrap_err();
    assert_eq!(status["code"], "insufficient_scope", "{status}");
    assert!(status["message"].as_str().unwrap().contains("`read`"), "{status}");
    let task = json!({"cluster": "alpha", "upid": started["upid"]});
    let unknown = hands.call("get_guest_status", guest(998)).await.unwrap_err();
    assert_eq!(hands.call("get_task_status", task).await.unwrap_err(), unknown);
    assert_eq!(hands.call("get_vms", json!({"cluster": "alpha"})).await.unwrap()["total"], 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_10_leaving_the_cluster_out_does_not_tell_its_name() {
    let mut stage = Stage::new().await;
    stage.edit_clusters(|file| {
        file["devices"].as_object_mut().unwrap().remove("beta");
    });
    stage.token("stranger", Rights { clusters: &["elsewhere"], ..READER });
    let server = stage.serve().await;
    let stranger = stage.client(server.address, "stranger");
    let refused = stranger.call("get_vms", json!({})).await.unwrap_err();
    assert!(!refused.to_string().contains("alpha"), "{refused}");
    assert!(stage.client(server.address, "reader").call("get_vms", json!({})).await.is_ok());
    server.stop().await;
}

/// A read that hangs must not hold up the answer to a change.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_answered_while_a_listing_hangs() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    stage.alpha().stop(100).unwrap();
    let mut hung = stage.alpha().inject(Fault::once("GET", "/cluster/resources", Action::HoldBefore));
    let reader = stage.client(server.address, "reader");
    let reading = tokio::spawn(async move { reader.call("get_vms", json!({"cluster": "alpha"})).await });
    hung.struck().await;
    let agent = stage.client(server.address, "agent");
    let started = tokio::time::timeout(Duration::from_secs(10), agent.call("start_vm", guest(100))).await;
    started.unwrap().unwrap();
    hung.release();
    reading.await.unwrap().unwrap();
    server.stop().await;
}
