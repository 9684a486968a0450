//! What goes over the wire, and what a broken exchange means.

use std::time::Duration;

use proxmox_api::{ContentFilter, DestroyOptions, Effect, ErrorKind, TaskFilter, Timeouts};

use crate::support::{Answer, SECRET, TOKEN_ID, UPID, VERSION, data, guest, http, pair, pair_with, short};

#[tokio::test]
async fn a_read_is_a_bare_get_with_the_token() {
    let (server, client) = pair(|_, _| data(VERSION)).await;
    client.version().await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.line, "GET /api2/json/version HTTP/1.1");
    assert_eq!(seen.header("authorization"), Some(&*format!("PVEAPIToken={TOKEN_ID}={SECRET}")));
    assert_eq!(seen.header("accept"), Some("application/json"));
    // px-11: nothing that would make PVE compress, and no body on a GET.
    for name in ["accept-encoding", "content-length", "content-type", "transfer-encoding", "cookie"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_post_without_parameters_has_a_length_of_0() {
    let (server, client) = pair(|_, _| data(&format!("\"{UPID}\""))).await;
    assert_eq!(client.start(&guest()).await.unwrap().as_str(), UPID);
    assert_eq!(client.stop(&guest()).await.unwrap().as_str(), UPID);
    let seen = server.seen();
    assert_eq!(seen[0].line, "POST /api2/json/nodes/pve1/qemu/102/status/start HTTP/1.1");
    assert_eq!(seen[1].line, "POST /api2/json/nodes/pve1/qemu/102/status/stop HTTP/1.1");
    for seen in seen {
        assert_eq!(seen.header("content-length"), Some("0"));
        assert_eq!(seen.header("transfer-encoding"), None);
    }
}

#[tokio::test]
async fn a_delete_has_its_parameters_in_the_query_and_states_both_options() {
    let (server, client) = pair(|_, _| data(&format!("\"{UPID}\""))).await;
    client.destroy(&guest(), DestroyOptions::default()).await.unwrap();
    let all = DestroyOptions { purge: true, destroy_unreferenced_disks: true };
    client.destroy(&guest(), all).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        seen[0].line,
        "DELETE /api2/json/nodes/pve1/qemu/102?purge=0&destroy-unreferenced-disks=0 HTTP/1.1"
    );
    assert_eq!(
        seen[1].line,
        "DELETE /api2/json/nodes/pve1/qemu/102?purge=1&destroy-unreferenced-disks=1 HTTP/1.1"
    );
    assert!(seen.iter().all(|seen| seen.body.is_empty() && seen.header("transfer-encoding").is_none()));
    assert_ne!(seen[0].connection, seen[1].connection, "a mutation has a connection of its own");
}

#[tokio::test]
async fn a_task_list_states_its_filter() {
    let (server, client) = pair(|_, _| data("[]")).await;
    let node = "pve1".parse().unwrap();
    client.tasks(&node, &TaskFilter::default()).await.unwrap();
    let filter = TaskFilter {
        vmid: Some("102".parse().unwrap()),
        typefilter: Some("qmstart".to_owned()),
        since: Some(1_796_005_991),
        limit: 7,
        ..TaskFilter::default()
    };
    client.tasks(&node, &filter).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].line, "GET /api2/json/nodes/pve1/tasks?source=all&start=0&limit=500 HTTP/1.1");
    assert_eq!(
        seen[1].line,
        "GET /api2/json/nodes/pve1/tasks?source=all&vmid=102&typefilter=qmstart&since=1796005991&start=0&limit=7 HTTP/1.1"
    );
}

#[tokio::test]
async fn px_07_hostile_text_stays_inside_its_parameter() {
    let (server, client) = pair(|_, _| data("[]")).await;
    let hostile = "a\r\nHost: evil\r\n\r\n;b&c=d+e f/é";
    let filter = ContentFilter { content: Some(hostile.to_owned()), vmid: None };
    let (node, storage) = ("pve1".parse().unwrap(), "local-lvm".parse().unwrap());
    client.storage_content(&node, &storage, &filter).await.unwrap();
    let upid = UPID.parse().unwrap();
    client.task_log(&upid, 0, 50).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        seen[0].line,
        "GET /api2/json/nodes/pve1/storage/local-lvm/content?content=a%0D%0AHost%3A%20evil%0D%0A%0D%0A%3Bb%26c%3Dd%2Be%20f%2F%C3%A9 HTTP/1.1"
    );
    assert_eq!(seen[0].headers.iter().filter(|line| line.to_lowercase().starts_with("host:")).count(), 1);
    assert_eq!(
        seen[1].line,
        "GET /api2/json/nodes/pve1/tasks/UPID%3Apve1%3A00007CF2%3A00041584%3A6B0CE067%3Aqmstart%3A102%3Aroot%40pam%21full%3A/log?start=0&limit=50 HTTP/1.1"
    );
}

#[tokio::test]
async fn px_13_a_query_too_long_for_pve_is_refused_locally() {
    let (server, client) = pair(|_, _| data("[]")).await;
    let filter = ContentFilter { content: Some("x".repeat(8000)), vmid: None };
    let (node, storage) = ("pve1".parse().unwrap(), "local".parse().unwrap());
    let error = client.storage_content(&node, &storage, &filter).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::TooLarge, Effect::NotSent), "{error}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn px_03_a_redirect_is_never_followed() {
    let (evil, _) = pair(|_, _| data(VERSION)).await;
    let to = evil.address;
    for status in
        ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let (server, client) = pair(move |_, _| {
            let head = format!("HTTP/1.1 {status}\r\nLocation: https://{to}/api2/json/version\r\n");
            Answer::Keep(format!("{head}Content-Length: 0\r\n\r\n").into_bytes())
        })
        .await;
        let error = client.version().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Redirected, "{error}");
        assert!(error.message().contains(&to.to_string()), "{error}");
        let error = client.start(&guest()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Redirected, Effect::Unknown), "{error}");
        assert_eq!(server.seen().len(), 2);
    }
    assert_eq!(evil.connections(), 0);
}

#[tokio::test]
async fn px_05_a_read_survives_a_connection_that_went_stale() {
    // The server says nothing about closing and closes after each answer, as a restarted worker does.
    let (server, client) = pair(|_, _| Answer::Cut(http("200 OK", &format!("{{\"data\":{VERSION}}}")))).await;
    for _ in 0..5 {
        client.version().await.unwrap();
    }
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn px_05_a_broken_read_is_tried_once_more() {
    for broken in [
        Answer::Cut(Vec::new()),
        Answer::Close(Vec::new()),
        Answer::Cut(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()),
        Answer::Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"data\":".to_vec()),
    ] {
        let first = broken.clone();
        let (server, client) = pair(move |n, _| if n == 0 { first.clone() } else { data(VERSION) }).await;
        client.version().await.unwrap();
        assert_eq!(server.seen().len(), 2);

        let (server, client) = pair(move |_, _| broken.clone()).await;
        let error = client.version().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Disconnected, Effect::Refused), "{error}");
        assert_eq!(server.seen().len(), 2, "once more, not for ever");
    }
}

#[tokio::test]
async fn px_05_a_mutation_is_never_retried() {
    let upid = format!("{{\"data\":\"{UPID}\"}}");
    let half = http("200 OK", &upid);
    for (broken, kind) in [
        (Answer::Cut(Vec::new()), ErrorKind::Disconnected),
        (Answer::Close(Vec::new()), ErrorKind::Disconnected),
        (Answer::Cut(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), ErrorKind::Disconnected),
        (Answer::Cut(half[..half.len() - 5].to_vec()), ErrorKind::Disconnected),
        (Answer::Close(half[..half.len() - 5].to_vec()), ErrorKind::Disconnected),
        (Answer::Close(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), ErrorKind::Malformed),
        (Answer::Hang(Vec::new()), ErrorKind::Timeout),
        (Answer::Hang(b"HTTP/1.1 200 OK\r\n".to_vec()), ErrorKind::Timeout),
        (Answer::Hang(half[..half.len() - 5].to_vec()), ErrorKind::Timeout),
        (Answer::Keep(http("200 OK", "{\"data\":null}")), ErrorKind::Malformed),
        (Answer::Keep(http("200 OK", "<html>")), ErrorKind::Malformed),
        (Answer::Keep(http("596 Connection timed out", "")), ErrorKind::NodeUnreachable),
        (Answer::Keep(http("502 Bad Gateway", "")), ErrorKind::Server),
    ] {
        let answer = broken.clone();
        let (server, client) = pair_with(short(), move |_, _| answer.clone()).await;
        let error = client.start(&guest()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (kind, Effect::Unknown), "{broken:?}: {error}");
        assert_eq!(server.seen().len(), 1, "{broken:?}");
    }
}

#[tokio::test]
async fn px_05_a_read_without_an_answer_ends_at_its_deadline() {
    for hang in [Vec::new(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec()] {
        let (server, client) = pair_with(short(), move |_, _| Answer::Hang(hang.clone())).await;
        let error = client.version().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Refused), "{error}");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_mutation_pve_refused_is_not_unknown() {
    for (status, kind) in [
        ("400 Parameter verification failed.", ErrorKind::Parameter),
        ("401 Authentication failed!", ErrorKind::Unauthorized),
        ("403 Permission check failed (/vms/102, VM.PowerMgmt)", ErrorKind::PermissionDenied),
        ("500 CT 210 already running", ErrorKind::Server),
        ("595 Connection refused", ErrorKind::NodeUnreachable),
    ] {
        let (server, client) = pair(move |_, _| Answer::Close(http(status, ""))).await;
        let error = client.start(&guest()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (kind, Effect::Refused), "{error}");
        assert_eq!(error.message(), &status[4..]);
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_reason_outside_ascii_falls_back_to_the_body_and_then_to_the_status() {
    for (body, expected) in [
        ("{\"data\":null,\"message\":\"Gerät fehlt\\n\"}", "Gerät fehlt"),
        ("{\"data\":null}", "Internal Server Error"),
    ] {
        let (_server, client) = pair(move |_, _| Answer::Close(http("500 Gerät fehlt", body))).await;
        assert_eq!(client.version().await.unwrap_err().message(), expected);
    }
}

#[tokio::test]
async fn px_14_the_secret_in_an_answer_does_not_come_back() {
    let echo = |seen: &crate::support::Seen| seen.header("authorization").unwrap_or_default().to_owned();
    let (_server, client) = pair(move |n, seen| match n {
        0 => Answer::Close(http(&format!("500 no: {}", echo(seen)), "")),
        1 => Answer::Close(http(
            "400 no",
            &format!("{{\"message\":\"{0}\",\"errors\":{{\"a\":\"{0}\"}}}}", echo(seen)),
        )),
        2 => Answer::Close(http("200 OK", &format!("{{\"data\":\"{}\"}}", echo(seen)))),
        _ => Answer::Close(
            format!("HTTP/1.1 302 Found\r\nLocation: /{}\r\nContent-Length: 0\r\n\r\n", echo(seen))
                .into_bytes(),
        ),
    })
    .await;
    for _ in 0..4 {
        let error = client.start(&guest()).await.unwrap_err();
        let mut shown = format!("{error} {error:?} {:?}", error.parameter_errors());
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            shown.push_str(&format!(" {inner} {inner:?}"));
            source = inner.source();
        }
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.contains("[redacted]"), "{shown}");
    }
    assert!(!format!("{client:?}").contains(SECRET));
}

#[tokio::test]
async fn an_answer_above_16_mib_is_refused() {
    let timeouts =
        Timeouts { read: Duration::from_secs(60), write: Duration::from_secs(60), ..Timeouts::default() };
    let (_server, client) = pair_with(timeouts, |_, _| {
        Answer::Close(http("200 OK", &format!("{{\"data\":\"{}\"}}", "x".repeat(17 << 20))))
    })
    .await;
    let error = client.version().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::TooLarge, Effect::Refused), "{error}");
    let error = client.start(&guest()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::TooLarge, Effect::Unknown), "{error}");
}
