//! Clusters that fail call after call: what it costs, and whom.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use proxmox_api::{Effect, ErrorKind, Timeouts};

use crate::support::{Answer, UPID, VERSION, data, guest, http, pair, pair_with, short};

#[tokio::test]
async fn px_10_a_storm_of_refusals_costs_one_request_a_call_and_shuts_nobody_out() {
    for status in [
        "400 Parameter verification failed.",
        "403 Permission check failed (/vms/102, VM.Audit)",
        "500 whatever",
        "595 No route to host",
        "596 Connection timed out",
    ] {
        let (server, client) = pair(move |n, _| match n {
            0..40 => Answer::Close(http(status, "")),
            _ => data(VERSION),
        })
        .await;
        for _ in 0..20 {
            let error = client.version().await.unwrap_err();
            assert_eq!(error.status().unwrap().to_string(), status[..3], "{error}");
            assert_eq!(client.start(&guest()).await.unwrap_err().status(), error.status());
        }
        assert_eq!(server.seen().len(), 40, "{status}");
        client.version().await.unwrap();
    }
}

#[tokio::test]
async fn px_10_a_cluster_that_does_not_answer_is_left_alone_and_another_is_not() {
    let healthy = Arc::new(AtomicBool::new(false));
    let now = healthy.clone();
    let (server, client) =
        pair_with(short(), move |_, seen| match (now.load(Ordering::SeqCst), seen.line.as_bytes()) {
            (false, _) => Answer::Cut(Vec::new()),
            (true, [b'G', ..]) => data(VERSION),
            (true, _) => data(&format!("\"{UPID}\"")),
        })
        .await;
    let (_other_server, other) = pair(|_, _| data(VERSION)).await;
    for _ in 0..5 {
        assert_eq!(client.version().await.unwrap_err().effect(), Effect::Refused);
    }
    assert_eq!(server.seen().len(), 10, "each read was tried once more");
    for _ in 0..50 {
        for error in [client.version().await.unwrap_err(), client.start(&guest()).await.unwrap_err()] {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Disconnected, Effect::NotSent), "{error}");
            assert!(error.message().contains("is not asked for"), "{error}");
        }
        other.version().await.unwrap();
    }
    assert_eq!(server.seen().len(), 10);
    healthy.store(true, Ordering::SeqCst);
    let recovered = async {
        while client.version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), recovered).await.unwrap();
    client.start(&guest()).await.unwrap();
    assert_eq!(server.seen().len(), 12, "one call found out");
}

/// PVE holds a worker for 3 s for each of these.
#[tokio::test]
async fn px_10_a_token_that_is_not_accepted_is_not_tried_for_ever() {
    let (server, client) = pair(|_, _| Answer::Close(http("401 Authentication failed!", ""))).await;
    for _ in 0..20 {
        let error = client.start(&guest()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(error.message().contains("Authentication failed!"), "{error}");
    }
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn px_10_many_calls_at_once_are_served_in_turn_and_a_crowd_is_refused() {
    let long = Timeouts { read: Duration::from_secs(120), ..Timeouts::default() };
    let (server, client) = pair_with(long, |_, _| Answer::Hang(Vec::new())).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..400)
        .map(|_| {
            let (client, refused) = (client.clone(), refused.clone());
            tokio::spawn(async move {
                let error = client.version().await.unwrap_err();
                assert_eq!(
                    (error.kind(), error.effect()),
                    (ErrorKind::Overloaded, Effect::NotSent),
                    "{error}"
                );
                refused.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    let settled = async {
        while refused.load(Ordering::SeqCst) < 400 - 64 - 256 || server.seen().len() < 64 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settled).await.unwrap();
    assert_eq!((server.seen().len(), refused.load(Ordering::SeqCst)), (64, 80));
    for call in calls {
        call.abort();
    }
}
