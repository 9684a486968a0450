//! What surrounds an upload link: lists, cancelling, digests, limits that follow a reload.

use std::time::Instant;

use proxward::config::{Reloader, Sources};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::raw::{PATIENCE, head, once};
use crate::support::{AGENT, Stage};
use crate::uploads::{Uploads, VMID};

fn digest(text: &str) -> String {
    format!("sha-256=:{}:", data_encoding::BASE64.encode(&Sha256::digest(text)))
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_that_the_sender_declares_are_compared_before_the_file_gets_its_name() {
    let up = Uploads::new().await;
    let body = "the very bytes";
    let length = format!("Content-Length: {}", body.len());
    let send = async |link: &crate::uploads::Link, lines: &[&str]| {
        let mut raw = up.open().await;
        let mut all = vec![length.as_str()];
        all.extend(lines);
        raw.write(head(up.address, "PUT", &link.path, &all)).await;
        raw.try_write(body).await;
        raw.reply().await
    };
    for name in ["Content-Digest", "Repr-Digest"] {
        let link = up.link().await;
        let reply = send(&link, &[&format!("{name}: {}", digest(body))]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let link = up.link().await;
        let reply = send(&link, &[&format!("{name}: {}", digest("others"))]).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "unexpected_hash"), "{reply:?}");
        up.assert_spent(&link).await;
        let link = up.link().await;
        let reply = send(&link, &[&format!("{name}: sha-256=:AAAA:")]).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "digest"), "{reply:?}");
        up.assert_spent(&link).await;
    }
    // What was promised at the mint and what is declared now must be the same.
    let minted = data_encoding::HEXLOWER.encode(&Sha256::digest("promised"));
    let link = up.link_with(json!({"checksum": minted})).await;
    let reply = send(&link, &[&format!("Content-Digest: {}", digest(body))]).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "digest"), "{reply:?}");
}

// C18: `curl -d @file` mangles a file, and nothing but the type betrays it.
#[tokio::test(flavor = "multi_thread")]
async fn c18_a_form_body_without_a_digest_draws_a_warning_and_the_given_command_uses_t() {
    let up = Uploads::new().await;
    let link = up.link().await;
    assert!(link.minted["curl"].as_str().unwrap().contains(" -T FILE "));
    let lines = ["Content-Length: 1", "Content-Type: application/x-www-form-urlencoded"];
    let mut raw = up.open().await;
    raw.write(head(up.address, "POST", &link.path, &lines)).await;
    raw.write("x").await;
    let reply = raw.reply().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.text().contains("curl -T FILE"), "{reply:?}");
    let link = up.link_with(json!({"size": 2})).await;
    let mut raw = up.open().await;
    raw.write(head(up.address, "POST", &link.path, &lines)).await;
    raw.try_write("x").await;
    assert_eq!(raw.reply().await.code(), "size_mismatch");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_listed_to_their_minter_alone_and_never_with_a_url() {
    let mut stage = Stage::new().await;
    stage.token("other", AGENT);
    let up = Uploads::of(stage).await;
    let (first, second) = (up.link().await, up.link().await);
    up.assert_unspent(&second).await;
    let listed = up.agent.call("list_transfers", json!({})).await.unwrap();
    assert_eq!((&listed["total"], &listed["has_more"]), (&json!(2), &json!(false)), "{listed}");
    let item = |id: &str| -> Value {
        listed["items"].as_array().unwrap().iter().find(|item| item["link_id"] == id).unwrap().clone()
    };
    let (pending, done) = (item(&first.id), item(&second.id));
    assert_eq!((&pending["state"], &pending["kind"]), (&json!("pending"), &json!("upload")));
    assert_eq!((&done["state"], &done["vmid"]), (&json!("ok"), &json!(VMID)));
    let text = listed.to_string();
    assert!(!text.contains(&first.token) && !text.contains(&second.token));
    let page = up.agent.call("list_transfers", json!({"limit": 1, "offset": 1})).await.unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    let narrow = up.agent.call("list_transfers", json!({"fields": ["link_id", "state"]})).await.unwrap();
    for item in narrow["items"].as_array().unwrap() {
        let columns: Vec<&String> = item.as_object().unwrap().keys().collect();
        assert_eq!(columns, ["link_id", "state"], "{narrow}");
    }
    let others = up.stage.client(up.address, "other").call("list_transfers", json!({})).await.unwrap();
    assert_eq!(others["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_cancelled_by_its_minter_alone_pending_or_running() {
    let mut stage = Stage::new().await;
    stage.token("other", AGENT);
    let up = Uploads::of(stage).await;
    let other = up.stage.client(up.address, "other");
    let link = up.link().await;
    let mine = json!({"link_id": link.id});
    assert_eq!(other.call("cancel_transfer", mine.clone()).await.unwrap_err()["code"], "unknown_link");
    up.agent.call("cancel_transfer", mine.clone()).await.unwrap();
    assert_eq!(up.put(&link.path, "x").await, up.not_found().await);
    assert_eq!(up.status(&link).await["state"], "voided");
    assert_eq!(up.agent.call("cancel_transfer", mine).await.unwrap_err()["code"], "unknown_link");

    let link = up.link().await;
    let mut raw = up.open().await;
    raw.write(head(up.address, "PUT", &link.path, &["Content-Length: 100000"])).await;
    raw.write("x".repeat(50_000)).await;
    up.status_when(&link, |status| status["state"] == "running" && status["bytes"] == 50_000).await;
    up.agent.call("cancel_transfer", json!({"link_id": link.id})).await.unwrap();
    let reply = raw.reply().await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "cancelled"), "{reply:?}");
    assert_eq!(up.outcome(&link).await["code"], "cancelled");
    up.assert_spent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_links_and_places_follow_a_reload() {
    let up = Uploads::limited(json!({"pending_links_per_owner": 1, "uploads_per_node": 1})).await;
    let first = up.link().await;
    let arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/second"});
    let refused = up.agent.call("proxmox_upload_link", arguments.clone()).await.unwrap_err();
    assert_eq!(refused["code"], "too_many_links");
    // One upload holds the only place of the node.
    let mut held = up.open().await;
    held.write(head(up.address, "PUT", &first.path, &["Content-Length: 10"])).await;
    held.write("12345").await;
    up.status_when(&first, |status| status["state"] == "running" && status["stage"] == "receive").await;
    up.stage.edit_clusters(|file| {
        file["policy"]["limits"]["pending_links_per_owner"] = 3.into();
        file["policy"]["limits"]["uploads_per_node"] = 2.into();
    });
    let app = &up.server.app;
    let sources = Sources::of(&up.stage.args(&[]));
    Reloader::new(sources, app.live.clone(), Some(app.audit.clone())).reload().await.unwrap();
    up.agent.call("proxmox_upload_link", arguments).await.unwrap();
    // And there is a second place now.
    let started = Instant::now();
    up.assert_unspent(&up.link().await).await;
    assert!(started.elapsed() < PATIENCE / 4, "it waited for the first");
    held.write("67890").await;
    assert_eq!(held.reply().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn c12_an_upload_over_the_proxys_limit_is_warned_of_at_the_mint() {
    let mut policy = crate::support::roomy();
    policy["transfers"] = json!({"proxy_max_mb": 1});
    let up = Uploads::of(Stage::with_policy(policy).await).await;
    let link = up.link_with(json!({"size": 1 << 20})).await;
    assert!(link.minted.get("warning").is_none());
    let link = up.link_with(json!({"size": (1 << 20) + 1})).await;
    assert!(link.minted["warning"].as_str().unwrap().contains("1048576"), "{}", link.minted);
    // What never reached the server spent nothing.
    let status = up.status(&link).await;
    assert_eq!((&status["state"], &status["bytes"]), (&json!("pending"), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_34_a_flood_of_wrong_tokens_is_limited_and_a_good_one_is_not_held_up() {
    let up = Uploads::limited(json!({"transfer_wrong_tokens_per_minute": 600})).await;
    let link = up.link().await;
    let mut flood = Vec::new();
    for lane in 0..20 {
        let address = up.address;
        flood.push(tokio::spawn(async move {
            let mut statuses = Vec::new();
            for n in 0..50 {
                let token = format!("{:A<43}", format!("{lane:02}x{n:03}"));
                let target = format!("/transfers/upload/{token}");
                statuses
                    .push(once(address, head(address, "PUT", &target, &["Content-Length: 0"])).await.status);
            }
            statuses
        }));
    }
    let started = Instant::now();
    up.assert_unspent(&link).await;
    let took = started.elapsed();
    let mut counts = [0, 0];
    for lane in flood {
        for status in lane.await.unwrap() {
            match status {
                404 => counts[0] += 1,
                429 => counts[1] += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert!(counts[0] >= 600 && counts[1] > 0 && counts[0] + counts[1] == 1000, "{counts:?}");
    assert!(took < PATIENCE / 4, "{took:?}");
}
