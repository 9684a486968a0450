//! Many clients, one link: exactly one of them uploads, and the others cannot tell why they did not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::json;
use support::{Answer, Stage, path_of, request, send};
use tokio::sync::Barrier;

const CLIENTS: usize = 64;

// C04: one winner, one file, one redemption on record.
#[tokio::test(flavor = "multi_thread")]
async fn ul_10_concurrent_puts_have_one_winner() {
    let rounds: usize =
        std::env::var("PROXWARD_RACE_ROUNDS").ok().map_or(1_000, |text| text.parse().unwrap());
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let agent = stage.client(server.address, "agent");
    let mut canonical: Option<Answer> = None;
    for round in 0..rounds {
        let dest = format!("/root/race-{round}");
        let mint = json!({"cluster": "alpha", "vmid": 200, "dest": dest});
        let minted = agent.call("proxmox_upload_link", mint).await.unwrap();
        let path: Arc<str> = path_of(&minted).into();
        let gate = Arc::new(Barrier::new(CLIENTS));
        let puts: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (path, gate, address) = (path.clone(), gate.clone(), server.address);
                tokio::spawn(async move {
                    let put = request(address, Method::PUT, &path, format!("from client {client}"));
                    gate.wait().await;
                    send(address, put).await.unwrap()
                })
            })
            .collect();
        let mut winners = 0;
        for put in puts {
            let answer = put.await.unwrap();
            if answer.status == StatusCode::OK {
                winners += 1;
                continue;
            }
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "round {round}: {answer:?}");
            // Every loser of every round gets the same status, headers and bytes.
            assert_eq!(canonical.get_or_insert_with(|| answer.clone()), &answer, "round {round}");
        }
        assert_eq!(winners, 1, "round {round}");
        let landed = std::fs::read(stage.alpha().guest_root(200).join(dest.trim_start_matches('/'))).unwrap();
        assert!(landed.starts_with(b"from client "), "round {round}");
    }
    server.stop().await;
    let audit = stage.audit();
    let won = audit.iter().filter(|r| r["event"] == "transfer.upload" && r["outcome"] == "ok").count();
    assert_eq!(won, rounds);
    let left = std::fs::read_dir(stage.alpha().guest_root(200).join("root")).unwrap().count();
    let races = std::fs::read_dir(stage.alpha().guest_root(200).join("root"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("race-"))
        .count();
    assert_eq!(races, rounds, "of {left} files");
}
