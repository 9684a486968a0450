//! What a request carries: types, lengths, pace, and how it breaks off. Each presentation spends the link.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::raw::{Raw, Reply, head, once, put};
use crate::support::{Stage, roomy};
use crate::uploads::{Link, Uploads};

const MIB: usize = 1 << 20;

/// A server whose links take one MiB.
async fn small() -> Uploads {
    let mut policy = roomy();
    policy["transfers"] = json!({"max_mb": 1});
    Uploads::of(Stage::with_policy(policy).await).await
}

/// A server that waits this long for bytes.
async fn impatient(idle_ms: u64) -> Uploads {
    Uploads::limited(json!({"upload_idle_ms": idle_ms})).await
}

/// Sends a PUT with these lines and this body to a link, whole.
async fn send(up: &Uploads, link: &Link, lines: &[&str], body: &[u8]) -> Reply {
    let sent = [head(up.address, "PUT", &link.path, lines).as_bytes(), body].concat();
    once(up.address, sent).await
}

/// The link was spent by this answer, and the minter reads the same cause.
async fn refused(up: &Uploads, link: &Link, reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (status, code), "{reply:?}");
    assert_eq!(reply.header("connection"), Some("close"), "{reply:?}");
    up.assert_spent(link).await;
    let outcome = up.outcome(link).await;
    assert_eq!((&outcome["state"], &outcome["code"]), (&"failed".into(), &code.into()), "{outcome}");
}

/// The answer was made before anybody looked at the link.
async fn malformed(up: &Uploads, link: &Link, lines: &[&str], body: &[u8]) {
    let mut raw = up.open().await;
    raw.write([head(up.address, "PUT", &link.path, lines).as_bytes(), body].concat()).await;
    let reply = raw.reply().await;
    assert_eq!(reply.status, 400, "{lines:?}: {reply:?}");
    raw.closed().await;
    assert_eq!(up.status(link).await["state"], "pending", "{lines:?}");
}

// C19: a form's file name goes nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn ul_17_multipart_is_415_and_spends_the_link() {
    let up = Uploads::new().await;
    let types = [
        "multipart/form-data; boundary=x",
        "Multipart/Form-Data;boundary=\"x\"",
        "multipart/mixed",
        "MULTIPART/related",
    ];
    for kind in types {
        let link = up.link().await;
        let reply = send(&up, &link, &[&format!("Content-Type: {kind}"), "Content-Length: 3"], b"--x").await;
        refused(&up, &link, &reply, 415, "unsupported_media_type").await;
    }
    let link = up.link().await;
    malformed(&up, &link, &["Content-Type: text/plain;", " multipart/form-data", "Content-Length: 1"], b"x")
        .await;
    // Other types say nothing about the bytes.
    let reply =
        send(&up, &link, &["Content-Type: application/x-www-form-urlencoded", "Content-Length: 1"], b"x")
            .await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_18_lengths_are_held_to_the_cap_and_to_one_reading() {
    let up = small().await;
    let full = vec![7; MIB];
    let link = up.link().await;
    let reply = send(&up, &link, &[&format!("Content-Length: {MIB}")], &full).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(std::fs::read(&link.file).unwrap(), full);

    // Refused by the head alone: neither the body nor a go-ahead for it is waited for.
    let link = up.link().await;
    let mut raw = up.open().await;
    let lines = [format!("Content-Length: {}", MIB + 1), "Expect: 100-continue".to_owned()];
    raw.write(head(up.address, "PUT", &link.path, &[&lines[0], &lines[1]])).await;
    let reply = raw.reply().await;
    raw.closed().await;
    refused(&up, &link, &reply, 413, "too_large").await;

    let link = up.link().await;
    for lines in [
        &["Content-Length: 18446744073709551616"][..],
        &["Content-Length: -1"],
        &["Content-Length: +1"],
        &["Content-Length: 0x1"],
        &["Content-Length: 1, 1"],
        &["Content-Length:"],
        &["Content-Length: 1", "Content-Length: 2"],
        &["Content-Length: 1", "Transfer-Encoding: chunked"],
        &["Transfer-Encoding: chunked", "Content-Length: 1"],
        &["Transfer-Encoding: gzip, chunked"],
        &["Transfer-Encoding: chunked, identity"],
        &["Transfer-Encoding: xchunked"],
        &["Transfer-Encoding : chunked"],
    ] {
        malformed(&up, &link, lines, b"1\r\nx\r\n0\r\n\r\n").await;
    }
    // A number that fits and no machine holds.
    let reply = send(&up, &link, &["Content-Length: 9223372036854775807"], b"x").await;
    refused(&up, &link, &reply, 413, "too_large").await;
    assert!(up.records("transfer.link_reuse").await.len() <= 2, "malformed requests present nothing");
}

// C10, C11: what is counted is what comes.
#[tokio::test(flavor = "multi_thread")]
async fn ul_19_a_chunked_body_is_cut_off_at_the_byte_over_the_cap() {
    let up = small().await;
    let link = up.link().await;
    let mut raw = up.open().await;
    raw.write(head(up.address, "PUT", &link.path, &["Transfer-Encoding: chunked"])).await;
    raw.write(format!("{MIB:x}\r\n")).await;
    raw.write(vec![7; MIB]).await;
    raw.write("\r\n1\r\nx").await;
    // Nothing else is sent, and nothing else is waited for.
    let reply = raw.reply().await;
    refused(&up, &link, &reply, 413, "too_large").await;

    let link = up.link().await;
    let chunks = [format!("{MIB:x}\r\n").as_bytes(), &vec![7; MIB], b"\r\n0\r\n\r\n"].concat();
    let reply = send(&up, &link, &["Transfer-Encoding: chunked"], &chunks).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_20_chunks_of_odd_shape_are_taken_or_refused_and_written_once() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let single: String = (0..2000).map(|_| "1\r\ny\r\n").collect::<String>() + "0\r\n\r\n";
    let reply = send(&up, &link, &["Transfer-Encoding: chunked"], single.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(std::fs::read(&link.file).unwrap(), vec![b'y'; 2000]);
    assert_eq!(reply.header("connection"), Some("close"), "nothing is looked for behind chunks");

    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(20 * 1024));
    let trailers = format!("1\r\nx\r\n0\r\nX-A: {}\r\n\r\n", "t".repeat(20 * 1024));
    for chunks in [extension, trailers, "z\r\nx\r\n0\r\n\r\n".to_owned(), "ffffffffffffffff1\r\nx".to_owned()]
    {
        let link = up.link().await;
        let reply = send(&up, &link, &["Transfer-Encoding: chunked"], chunks.as_bytes()).await;
        // hyper bounds extensions and trailers by what one read holds: within it they are ignored, beyond it refused.
        match reply.status {
            200 => assert_eq!(std::fs::read(&link.file).unwrap(), b"x"),
            400 => assert!(!link.file.exists()),
            _ => panic!("{reply:?}"),
        }
        up.assert_spent(&link).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_21_a_bad_token_is_not_told_to_continue() {
    let up = Uploads::new().await;
    let link = up.link().await;
    up.assert_unspent(&link).await;
    let not_found = up.not_found().await;
    for path in [&link.path, &format!("/transfers/upload/{}", "A".repeat(43)), "/transfers/upload/", "/x"] {
        let mut raw = up.open().await;
        let lines = ["Content-Length: 5", "Expect: 100-continue"];
        raw.write(head(up.address, "PUT", path, &lines)).await;
        assert_eq!(raw.reply().await, not_found, "{path}");
        raw.closed().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_22_who_may_continue_and_sends_nothing_gets_408() {
    let up = impatient(300).await;
    let link = up.link().await;
    let mut raw = up.open().await;
    raw.write(head(up.address, "PUT", &link.path, &["Content-Length: 5", "Expect: 100-continue"])).await;
    assert_eq!(raw.reply().await.status, 100);
    let reply = raw.reply().await;
    raw.closed().await;
    refused(&up, &link, &reply, 408, "too_slow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_23_an_empty_body_is_400_and_no_guest_hears_of_it() {
    let up = Uploads::new().await;
    let node = up.stage.alpha().node("pve1").unwrap().clone();
    for (lines, body) in
        [(&["Content-Length: 0"][..], ""), (&["Transfer-Encoding: chunked"], "0\r\n\r\n"), (&[], "")]
    {
        let link = up.link().await;
        let heard = node.faults().commands().len();
        let reply = send(&up, &link, lines, body.as_bytes()).await;
        assert_eq!(node.faults().commands().len(), heard, "{lines:?}");
        refused(&up, &link, &reply, 400, "empty_body").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_24_encoded_bodies_are_415() {
    let up = Uploads::new().await;
    for encoding in ["gzip", "GZIP", "br", "identity, gzip", "deflate"] {
        let link = up.link().await;
        let lines = [&format!("Content-Encoding: {encoding}"), "Content-Length: 2"];
        let reply = send(&up, &link, &lines, b"\x1f\x8b").await;
        refused(&up, &link, &reply, 415, "unsupported_media_type").await;
    }
    let link = up.link().await;
    let lines = ["Content-Encoding: identity", "Content-Type: application/gzip", "Content-Length: 2"];
    assert_eq!(send(&up, &link, &lines, b"\x1f\x8b").await.status, 200);
    assert_eq!(std::fs::read(&link.file).unwrap(), b"\x1f\x8b", "a compressed file is bytes like any other");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_25_a_body_that_stalls_is_408() {
    let up = impatient(300).await;
    let link = up.link().await;
    let mut raw = up.open().await;
    raw.write(head(up.address, "PUT", &link.path, &["Content-Length: 1000000"])).await;
    raw.write(vec![7; 10 * 1024]).await;
    let reply = raw.reply().await;
    raw.closed().await;
    refused(&up, &link, &reply, 408, "too_slow").await;
    // The bytes before the stall do not count as a file anywhere.
    assert_eq!(up.outcome(&link).await["bytes"], json!(null));
}

// D16: an idle limit alone would let it go on.
#[tokio::test(flavor = "multi_thread")]
async fn ul_25_a_body_that_drips_is_408_although_it_is_never_silent() {
    let up = impatient(500).await;
    let link = up.link().await;
    let started = Instant::now();
    let mut raw = up.open().await;
    raw.write(head(up.address, "PUT", &link.path, &["Content-Length: 1000000"])).await;
    // A byte every 20 ms is far below 1 KiB a second. The pace is the point here, nothing is waited for with it.
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let reply = loop {
        tokio::select! {
            reply = raw.next(false) => break reply.unwrap(),
            _ = pace.tick() => {}
        }
        raw.try_write("x").await;
    };
    assert!(started.elapsed() >= Duration::from_millis(500));
    refused(&up, &link, &reply, 408, "too_slow").await;
}

/// Begins an upload of a million bytes and waits until the first ten thousand are under way to the node.
async fn half_way(up: &Uploads, link: &Link, chunked: bool) -> Raw {
    let mut raw = up.open().await;
    if chunked {
        raw.write(head(up.address, "PUT", &link.path, &["Transfer-Encoding: chunked"])).await;
        raw.write("f4240\r\n").await;
    } else {
        raw.write(head(up.address, "PUT", &link.path, &["Content-Length: 1000000"])).await;
    }
    raw.write(vec![7; 10_000]).await;
    let status = up.status_when(link, |status| status["bytes"] == 10_000).await;
    assert_eq!(status["state"], "running", "{status}");
    raw
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_26_a_client_that_leaves_mid_body_leaves_nothing() {
    let up = Uploads::new().await;
    for chunked in [false, true] {
        for reset in [false, true] {
            let link = up.link().await;
            let raw = half_way(&up, &link, chunked).await;
            if reset {
                raw.stream.set_zero_linger().unwrap();
            }
            let left = Instant::now();
            drop(raw);
            up.no_residue().await;
            let outcome = up.outcome(&link).await;
            assert!(left.elapsed() < Duration::from_secs(5), "{:?}", left.elapsed());
            assert_eq!(
                (&outcome["state"], &outcome["bytes"]),
                (&"aborted_by_client".into(), &10_000.into()),
                "{outcome}"
            );
            up.assert_spent(&link).await;
        }
    }
    let outcomes = up.records("transfer.upload").await;
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes.iter().all(|record| record["outcome"] == "aborted_by_client"), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_27_who_sent_everything_and_left_has_uploaded() {
    let up = Uploads::new().await;
    let node = up.stage.alpha().node("pve1").unwrap().clone();
    let link = up.link().await;
    let whole = put(up.address, &link.path, "everything");
    let (most, last) = whole.split_at(whole.len() - 1);
    let mut raw = up.open().await;
    raw.write(most).await;
    up.status_when(&link, |status| status["bytes"] == 9).await;
    // From here the guest takes no more commands, so the push waits with all its bytes.
    node.faults().hang_exec(true);
    raw.write(last).await;
    up.status_when(&link, |status| status["bytes"] == 10).await;
    drop(raw);
    node.faults().hang_exec(false);
    let outcome = up.outcome(&link).await;
    assert_eq!((&outcome["state"], &outcome["bytes"]), (&"ok".into(), &10.into()), "{outcome}");
    assert_eq!(std::fs::read(&link.file).unwrap(), b"everything");
    up.no_residue().await;
}
