//! Resumable uploads, spoken byte by byte as a tus 1.0 client does.

use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::raw::{Reply, head, once};
use crate::uploads::{Link, Uploads};

const V: &str = "Tus-Resumable: 1.0.0";

async fn ask(up: &Uploads, method: &str, path: &str, lines: &[&str], body: &[u8]) -> Reply {
    let length = format!("Content-Length: {}", body.len());
    let mut all: Vec<&str> = lines.to_vec();
    all.push(&length);
    let mut raw = up.open().await;
    raw.write(head(up.address, method, path, &all)).await;
    raw.try_write(body).await;
    raw.next(method == "HEAD").await.unwrap()
}

async fn create(up: &Uploads, link: &Link, length: usize) -> Reply {
    ask(up, "POST", &link.path, &[V, &format!("Upload-Length: {length}")], b"").await
}

async fn patch(up: &Uploads, at: &str, offset: usize, more: &[&str], body: &[u8]) -> Reply {
    let offset = format!("Upload-Offset: {offset}");
    let mut lines = vec![V, "Content-Type: application/offset+octet-stream", &offset];
    lines.extend(more);
    ask(up, "PATCH", at, &lines, body).await
}

fn location(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{reply:?}");
    assert!(reply.header("upload-expires").unwrap().ends_with("GMT"), "{reply:?}");
    reply.header("location").unwrap().to_owned()
}

async fn offset(up: &Uploads, at: &str) -> Option<String> {
    ask(up, "HEAD", at, &[V], b"").await.header("upload-offset").map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_comes_in_pieces_over_several_connections_and_is_verified_as_a_whole() {
    let up = Uploads::new().await;
    let data: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    let sum = data_encoding::HEXLOWER.encode(&Sha256::digest(&data));
    let link = up.link_with(json!({"checksum": sum})).await;
    let at = location(&create(&up, &link, data.len()).await);
    assert!(at.starts_with("/transfers/tus/") && at.len() == "/transfers/tus/".len() + 43, "{at}");
    // The link is spent.
    assert_eq!(up.put(&link.path, "x").await, up.not_found().await);
    assert_eq!(offset(&up, &at).await.as_deref(), Some("0"));
    let reply = patch(&up, &at, 0, &[], &data[..70_000]).await;
    assert_eq!((reply.status, reply.header("upload-offset")), (204, Some("70000")), "{reply:?}");
    // A connection that breaks in the middle of a piece keeps what came.
    let lines = [
        V,
        "Content-Type: application/offset+octet-stream",
        "Upload-Offset: 70000",
        "Content-Length: 100000",
    ];
    let mut kept = 70_000;
    // A connection may also be gone before the server has taken any of it: then once more.
    for _try in 0..5 {
        let mut raw = up.open().await;
        raw.write(head(up.address, "PATCH", &at, &lines)).await;
        raw.write(&data[70_000..100_000]).await;
        drop(raw);
        let begun = Instant::now();
        while kept == 70_000 && begun.elapsed() < Duration::from_secs(10) {
            let offset = offset(&up, &at).await;
            kept = match offset {
                Some(offset) => offset.parse().unwrap(),
                None => {
                    // A piece is under way, or the upload is gone.
                    let status = up.status(&link).await;
                    assert_eq!(status["state"], "running", "{status}");
                    kept
                }
            };
        }
        if kept != 70_000 {
            break;
        }
    }
    assert!((70_001..=100_000).contains(&kept), "{kept}");
    assert_eq!(up.status(&link).await["state"], "running");
    let reply = patch(&up, &at, kept, &[], &data[kept..]).await;
    assert_eq!((reply.status, reply.header("upload-offset")), (204, Some("200000")), "{reply:?}");
    assert_eq!(std::fs::read(&link.file).unwrap(), data);
    let outcome = up.outcome(&link).await;
    assert_eq!((&outcome["state"], &outcome["sha256"]), (&json!("ok"), &json!(sum)), "{outcome}");
    assert_eq!(ask(&up, "HEAD", &at, &[V], b"").await.status, 404);
    up.no_residue().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_that_do_not_fit_are_refused_and_the_upload_goes_on() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let at = location(&create(&up, &link, 10).await);
    assert_eq!(patch(&up, &at, 1, &[], b"x").await.status, 409);
    assert_eq!(patch(&up, &at, 0, &[], b"01234567890").await.status, 413);
    let untyped = ask(&up, "PATCH", &at, &[V, "Upload-Offset: 0"], b"x").await;
    assert_eq!(untyped.status, 415);
    let old = ask(&up, "PATCH", &at, &["Tus-Resumable: 0.2.2", "Upload-Offset: 0"], b"x").await;
    assert_eq!((old.status, old.header("tus-version")), (412, Some("1.0.0")));
    let wrong = format!("Upload-Checksum: sha256 {}", data_encoding::BASE64.encode(&[0; 32]));
    assert_eq!(patch(&up, &at, 0, &[&wrong], b"01234").await.status, 460);
    assert_eq!(patch(&up, &at, 0, &["Upload-Checksum: md5 AAAA"], b"01234").await.status, 400);
    let right =
        format!("Upload-Checksum: sha256 {}", data_encoding::BASE64.encode(&Sha256::digest(b"abcde")));
    assert_eq!(patch(&up, &at, 0, &[&right], b"abcde").await.status, 204);
    assert_eq!(patch(&up, &at, 5, &[], b"fghij").await.status, 204);
    assert_eq!(std::fs::read(&link.file).unwrap(), b"abcdefghij");
}

#[tokio::test(flavor = "multi_thread")]
async fn creation_is_judged_like_an_upload_and_termination_leaves_nothing() {
    let up = Uploads::limited(json!({})).await;
    for (lines, status) in [
        (&[V, "Upload-Length: 0"][..], 400),
        (&[V, "Upload-Length: -1"], 400),
        (&[V], 400),
        (&[V, "Upload-Defer-Length: 1"], 400),
        (&["Tus-Resumable: 2.0.0", "Upload-Length: 1"], 412),
        (&[V, "Upload-Length: 99999999999999"], 413),
    ] {
        let link = up.link().await;
        assert_eq!(ask(&up, "POST", &link.path, lines, b"").await.status, status, "{lines:?}");
        up.assert_spent(&link).await;
    }
    let link = up.link().await;
    let at = location(&create(&up, &link, 10).await);
    assert_eq!(patch(&up, &at, 0, &[], b"01234").await.status, 204);
    assert_eq!(ask(&up, "DELETE", &at, &[V], b"").await.status, 204);
    assert_eq!(patch(&up, &at, 5, &[], b"56789").await, up.not_found().await);
    assert_eq!(up.outcome(&link).await["code"], "cancelled");
    up.no_residue().await;
    // Any other spelling or method finds nothing, whoever asks.
    for path in ["/transfers/tus/", "/transfers/tus/x", &format!("/transfers/tus/{}", "A".repeat(43))] {
        assert_eq!(ask(&up, "PATCH", path, &[V], b"").await, up.not_found().await);
    }
    let reply =
        once(up.address, head(up.address, "GET", &format!("/transfers/tus/{}", "A".repeat(43)), &[])).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("HEAD, PATCH, DELETE")));
}
