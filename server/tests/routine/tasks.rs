use serde_json::{Value, json};

use super::support::{self, Rights, Stage};
use super::{Shop, WORKER, code, message};

async fn held(shop: &Shop, tool: &str, vmid: u32) -> String {
    shop.stage.alpha().hold_tasks(true);
    let mut arguments = json!({"vmid": vmid});
    if tool == "create_backup" {
        arguments["storage"] = "local".into();
    }
    let started = shop.call(tool, arguments).await.unwrap();
    started["upid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_task_is_stopped_once() {
    let shop = Shop::new().await;
    let upid = held(&shop, "create_backup", 201).await;
    let told = shop.call("stop_task", json!({"upid": upid, "dry_run": true})).await.unwrap();
    assert_eq!(told["request"]["method"], "DELETE", "{told}");
    let done = shop.call("stop_task", json!({"upid": upid})).await.unwrap();
    assert_eq!((&done["stopped"], &done["vmid"]), (&json!(upid), &json!(201)), "{done}");
    shop.stage.alpha().hold_tasks(false);
    shop.stage.alpha().idle().await;
    shop.stage.alpha().clear_requests();
    let refused = shop.call("stop_task", json!({"upid": upid})).await.unwrap_err();
    assert_eq!(code(&refused), "task_ended", "{refused}");
    let refused = shop.call("stop_task", json!({"upid": "UPID:pve1:nonsense"})).await.unwrap_err();
    assert_eq!(refused["field"], "upid", "{refused}");
    assert_eq!(shop.sent(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_protected_and_granted_as_its_guest_is() {
    let shop = Shop::with(|stage| {
        stage.token("narrow", Rights { guests: &["vmid:100-199"], ..WORKER });
    })
    .await;
    let upid = held(&shop, "create_backup", 201).await;
    let arguments = json!({"cluster": "alpha", "upid": upid});
    shop.stage.alpha().clear_requests();
    let foreign = shop.client("narrow").call("stop_task", arguments.clone()).await.unwrap_err();
    assert_eq!(message(&foreign), "authorization failed");
    let absent = upid.replace(":201:", ":299:");
    let unknown = shop
        .client("narrow")
        .call("stop_task", json!({"cluster": "alpha", "upid": absent}))
        .await
        .unwrap_err();
    assert_eq!(foreign, unknown, "a guest that is not there and one that is not theirs are alike");
    shop.stage.alpha().set_protection(201, true).unwrap();
    let refused = shop.client("worker").call("stop_task", arguments).await.unwrap_err();
    assert_eq!(code(&refused), "protected", "{refused}");
    assert_eq!(shop.sent(), Vec::<String>::new());
    shop.stage.alpha().hold_tasks(false);
}

/// A policy under which the lab's own addresses may be fetched from.
fn open_policy() -> Value {
    let mut policy = support::roomy();
    policy["fetch"] = json!({"allow": ["127.0.0.1:8088"], "ports": [8088]});
    policy
}

async fn image_shop() -> Shop {
    let mut stage = Stage::with_policy(open_policy()).await;
    stage.token("worker", WORKER);
    stage.token("narrow", Rights { guests: &["vmid:100-199"], ..WORKER });
    let server = stage.serve().await;
    Shop { stage, server }
}

fn image(name: &str) -> Value {
    json!({"node": "pve1", "storage": "local", "url": "http://127.0.0.1:8088/images/a.iso", "filename": name})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_downloaded_by_the_node_under_the_operators_policy() {
    let shop = image_shop().await;
    let hash = "0f".repeat(32);
    shop.stage.alpha().publish("http://127.0.0.1:8088/images/a.iso", 4096, &hash);
    let mut arguments = image("fresh.iso");
    arguments["checksum"] = hash.into();
    arguments["wait"] = 60.into();
    let done = shop.call("download_iso", arguments.clone()).await.unwrap();
    assert_eq!((&done["status"], &done["volid"]), (&json!("ok"), &json!("local:iso/fresh.iso")), "{done}");
    let attempt = shop.stage.audit().into_iter().rfind(|record| record["event"] == "tool.attempt").unwrap();
    assert_eq!(attempt["arguments"]["url"], "http://127.0.0.1:8088/images/a.iso", "{attempt}");
    shop.stage.alpha().clear_requests();
    assert_eq!(code(&shop.call("download_iso", arguments).await.unwrap_err()), "dest_exists");
    for (url, expected) in [
        ("http://127.0.0.1:9999/a.iso", "fetch_policy"),
        ("http://169.254.169.254/latest/meta-data", "fetch_policy"),
        ("http://[::1]:8088/a.iso", "fetch_policy"),
        ("http://user:pass@127.0.0.1:8088/a.iso", "fetch_url_refused"),
        ("file:///etc/shadow", "fetch_url_refused"),
        ("not a url", "fetch_url_refused"),
    ] {
        let mut arguments = image("other.iso");
        arguments["url"] = url.into();
        let refused = shop.call("download_iso", arguments).await.unwrap_err();
        assert_eq!(code(&refused), expected, "{url}: {refused}");
    }
    for (key, value) in [
        ("filename", "no-extension"),
        ("filename", "../x.iso"),
        ("content", "backup"),
        ("checksum", "beef"),
        ("checksum_algorithm", "sha256"),
    ] {
        let mut arguments = image("other.iso");
        arguments[key] = value.into();
        let refused = shop.call("download_iso", arguments).await.unwrap_err();
        assert!(["invalid_argument", "pve_parameter"].contains(&code(&refused)), "{key}={value}: {refused}");
    }
    assert_eq!(shop.sent(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_no_guest_is_stopped_only_by_who_sees_every_guest() {
    let shop = image_shop().await;
    shop.stage.alpha().publish("http://127.0.0.1:8088/images/a.iso", 4096, &"0f".repeat(32));
    shop.stage.alpha().hold_tasks(true);
    let started = shop.call("download_iso", image("slow.iso")).await.unwrap();
    let arguments = json!({"cluster": "alpha", "upid": started["upid"]});
    let refused = shop.client("narrow").call("stop_task", arguments.clone()).await.unwrap_err();
    assert_eq!(message(&refused), "authorization failed", "{refused}");
    shop.client("worker").call("stop_task", arguments).await.unwrap();
    shop.stage.alpha().hold_tasks(false);
    shop.stage.alpha().idle().await;
}
