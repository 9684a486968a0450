//! Answers made to harm the client, and surroundings that would lead it astray.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use proxmox_api::{Client, Endpoint, Error, ErrorKind, Trust};

use crate::support::{Answer, Authority, SECRET, Server, TOKEN_ID, VERSION, data, http, pair};

#[tokio::test]
async fn px_11_no_cookie_is_kept() {
    let cookie = |size: usize| {
        let head = format!("HTTP/1.1 200 OK\r\nSet-Cookie: PVEAuthCookie={}; Path=/\r\n", "x".repeat(size));
        format!("{head}Content-Length: {}\r\n\r\n{{\"data\":{VERSION}}}", VERSION.len() + 9).into_bytes()
    };
    let (server, client) = pair(move |n, _| match n {
        2 => Answer::Keep(cookie(1 << 20)),
        _ => Answer::Keep(cookie(2000)),
    })
    .await;
    client.version().await.unwrap();
    client.version().await.unwrap();
    // A head larger than 64 KiB is no answer.
    assert_eq!(client.version().await.unwrap_err().kind(), ErrorKind::Malformed);
    client.version().await.unwrap();
    assert_eq!(server.seen().len(), 4);
    assert!(server.seen().iter().all(|seen| seen.header("cookie").is_none()));
}

#[tokio::test]
async fn px_11_nothing_is_unpacked() {
    for coding in ["gzip", "br", "deflate", "identity, gzip", "x"] {
        let (_server, client) = pair(move |_, _| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 4\r\n\r\n");
            Answer::Keep([head.as_bytes(), b"\x1f\x8b\x08\x00"].concat())
        })
        .await;
        let error = client.version().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert!(error.message().contains(coding), "{error}");
    }
}

/// Bodies that cost their sender little: what each is, and how it is sent.
fn bodies() -> Vec<(&'static str, Answer)> {
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n\r\n").into_bytes();
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let kib_64 = vec![b'x'; 64 << 10];
    let full = |start: &str, piece: &str, end: &str| {
        let times = ((15 << 20) - start.len() - end.len()) / piece.len();
        let body = format!("{start}{}{end}", piece.repeat(times));
        Answer::Close(http("200 OK", &body))
    };
    let invalid = {
        let mut body = b"{\"data\":[{\"type\":\"node\",\"node\":\"a\",\"x\":\"".to_vec();
        body.extend(vec![0xff; 15 << 20]);
        body.extend(b"\"}]}");
        let length = format!("Content-Length: {}", body.len());
        Answer::Close([head(&length), body].concat())
    };
    vec![
        ("2 GB, announced", Answer::Flood(head("Content-Length: 2147483648"), kib_64.clone(), 32 << 10)),
        ("2 GB in chunks", Answer::Flood(head("Transfer-Encoding: chunked"), chunk(&kib_64), 32 << 10)),
        ("2 GB until the end of the connection", Answer::Flood(head("Connection: close"), kib_64, 32 << 10)),
        (
            "ten million elements",
            Answer::Flood(head("Transfer-Encoding: chunked"), chunk(&b"0,".repeat(50_000)), 200),
        ),
        ("many numbers", full("{\"data\":[0", ",0", "]}")),
        ("many empty entries", full("{\"data\":[{}", ",{}", "]}")),
        ("many tiny entries", full("{\"data\":[{\"type\":\"x\"}", ",{\"type\":\"x\"}", "]}")),
        (
            "many tiny nodes",
            full(
                "{\"data\":[{\"type\":\"node\",\"node\":\"a\"}",
                ",{\"type\":\"node\",\"node\":\"a\"}",
                "]}",
            ),
        ),
        ("many fields", full("{\"data\":{\"a\":1", ",\"a\":1", "}}")),
        ("many fields of the answer", full("{\"data\":[]", ",\"a\":1", "}")),
        ("many lists", full("{\"data\":[]", ",\"data\":[]", "}")),
        ("a deep list", full("{\"data\":", "[", "")),
        ("a deep object", full("{\"data\":", "{\"a\":", "")),
        ("one long text", full("{\"data\":[{\"type\":\"node\",\"node\":\"a\",\"name\":\"", "x", "\"}]}")),
        (
            "one long text of escapes",
            full("{\"data\":[{\"type\":\"node\",\"node\":\"a\",\"status\":\"", "\\u0041", "\"}]}"),
        ),
        ("one long number", full("{\"data\":[{\"type\":\"node\",\"node\":\"a\",\"mem\":1", "0", "}]}")),
        ("bytes that are no UTF-8", invalid),
    ]
}

/// How many methods the child calls for each body.
const METHODS: usize = 2;

/// The part of [`px_04_hostile_bodies_are_read_within_64_mib_and_their_deadline`] whose memory is looked at.
#[tokio::test]
async fn px_04_the_client_of_hostile_bodies() {
    let Some(client) = client_from_environment("PX_04") else {
        println!("not applicable: run by px_04_hostile_bodies_are_read_within_64_mib_and_their_deadline");
        return;
    };
    client.version().await.unwrap();
    let before = peak_kib();
    for what in names() {
        let start = Instant::now();
        let results: [Result<usize, Error>; METHODS] =
            [client.inventory().await.map(|all| all.len()), client.nodes().await.map(|list| list.len())];
        assert!(start.elapsed() < Duration::from_secs(2 * 30), "{what}: {:?}", start.elapsed());
        for result in results {
            if let Err(error) = result {
                assert!(
                    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Malformed),
                    "{what}: {error}"
                );
                assert!(error.message().len() < 5000, "{what}");
            }
        }
    }
    let grown = peak_kib() - before;
    println!("px-04 grew by {grown} KiB");
    assert!(grown < 64 << 10, "{grown} KiB");
}

/// The bodies' names without the bodies, for the process that must not hold them.
fn names() -> Vec<String> {
    std::env::var("PX_04_NAMES").unwrap().split('|').map(str::to_owned).collect()
}

/// The most memory this process has had in use.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn px_04_hostile_bodies_are_read_within_64_mib_and_their_deadline() {
    if !Path::new("/proc/self/status").exists() {
        println!("not applicable: the peak of memory is read from /proc");
        return;
    }
    let (authority, bodies) = (Authority::new(), bodies());
    let names = bodies.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|");
    let requests = 1 + METHODS * bodies.len();
    let server =
        Server::start(authority.issue(&["127.0.0.1"]).server(), move |n, _| match n.checked_sub(1) {
            None => data(VERSION),
            Some(n) => bodies[n / METHODS].1.clone(),
        })
        .await;
    let child = child("hostile::px_04_the_client_of_hostile_bodies", "PX_04", &server, &authority)
        .env("PX_04_NAMES", names)
        .output();
    let output = child.unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("px-04 grew by"), "{text}");
    assert_eq!(server.seen().len(), requests, "{text}");
}

/// The part of [`no_proxy_of_the_environment_is_used`] that runs with one in it.
#[tokio::test]
async fn a_client_beside_a_proxy() {
    let Some(client) = client_from_environment("PROXIED") else {
        println!("not applicable: run by no_proxy_of_the_environment_is_used");
        return;
    };
    client.version().await.unwrap();
    println!("it went straight there");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_of_the_environment_is_used() {
    let authority = Authority::new();
    let server = Server::start(authority.issue(&["127.0.0.1"]).server(), |_, _| data(VERSION)).await;
    let mut child = child("hostile::a_client_beside_a_proxy", "PROXIED", &server, &authority);
    // Nothing listens there.
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, "http://127.0.0.1:1");
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("it went straight there"), "{text}");
    assert_eq!(server.seen().len(), 1);
}

/// One test of this program in a process of its own, told where the server is.
fn child(test: &str, prefix: &str, server: &Server, authority: &Authority) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).stdin(Stdio::null());
    child.env(format!("{prefix}_ENDPOINT"), server.endpoint().to_string());
    child.env(format!("{prefix}_CA"), &authority.pem);
    std::io::stdout().flush().unwrap();
    child
}

/// The client a child was told to be.
fn client_from_environment(prefix: &str) -> Option<Client> {
    let endpoint = std::env::var(format!("{prefix}_ENDPOINT")).ok()?;
    let pem = std::env::var(format!("{prefix}_CA")).unwrap();
    let token = proxmox_api::ApiToken::new(TOKEN_ID, SECRET.into()).unwrap();
    let builder = Client::builder().endpoint(Endpoint::parse(&endpoint).unwrap()).token(token);
    Some(builder.trust(Trust::Ca(pem)).build().unwrap())
}
