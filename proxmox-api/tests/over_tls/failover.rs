//! Several endpoints of one cluster.

use std::time::Duration;

use proxmox_api::{Client, Effect, Endpoint, ErrorKind, Trust};
use tokio::net::TcpListener;

use crate::support::{Answer, Authority, Server, UPID, VERSION, data, guest, http, short};

/// An endpoint nothing listens at.
async fn dead() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Endpoint::parse(&format!("https://{address}")).unwrap()
}

async fn live(authority: &Authority) -> Server {
    Server::start(authority.issue(&["127.0.0.1"]).server(), |_, seen| match seen.line.starts_with("GET") {
        true => data(VERSION),
        false => data(&format!("\"{UPID}\"")),
    })
    .await
}

fn client(first: Endpoint, second: &Server, authority: &Authority) -> Client {
    let token = proxmox_api::ApiToken::new(crate::support::TOKEN_ID, crate::support::SECRET.into()).unwrap();
    let builder = Client::builder().endpoint(first).endpoint(second.endpoint()).token(token);
    builder.trust(Trust::Ca(authority.pem.clone())).timeouts(short()).build().unwrap()
}

#[tokio::test]
async fn the_next_endpoint_stands_in_while_one_cannot_be_connected_to() {
    let authority = Authority::new();
    let live = live(&authority).await;
    let client = client(dead().await, &live, &authority);
    client.version().await.unwrap();
    client.start(&guest()).await.unwrap();
    assert_eq!(live.seen().len(), 2);
}

#[tokio::test]
async fn an_endpoint_that_fails_the_handshake_gets_nothing_and_is_remembered() {
    let authority = Authority::new();
    let wrong = live(&Authority::new()).await;
    let live = live(&authority).await;
    let client = client(wrong.endpoint(), &live, &authority);
    client.start(&guest()).await.unwrap();
    client.version().await.unwrap();
    client.start(&guest()).await.unwrap();
    assert_eq!(live.seen().len(), 3);
    assert_eq!(wrong.seen().len(), 0);
    assert_eq!(wrong.connections(), 1, "the endpoint that answered is asked first");
}

#[tokio::test]
async fn an_endpoint_that_never_finishes_the_handshake_gets_nothing() {
    let authority = Authority::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&format!("https://{}", silent.local_addr().unwrap())).unwrap();
    let live = live(&authority).await;
    let mut timeouts = short();
    timeouts.write *= 20;
    let token = proxmox_api::ApiToken::new(crate::support::TOKEN_ID, crate::support::SECRET.into()).unwrap();
    let client = Client::builder()
        .endpoint(endpoint)
        .endpoint(live.endpoint())
        .token(token)
        .trust(Trust::Ca(authority.pem.clone()))
        .timeouts(timeouts)
        .build()
        .unwrap();
    client.start(&guest()).await.unwrap();
    assert_eq!(live.seen().len(), 1);
}

#[tokio::test]
async fn px_05_a_mutation_that_was_written_does_not_move_on() {
    let authority = Authority::new();
    let tls = authority.issue(&["127.0.0.1"]).server();
    let cutting = Server::start(tls, |_, _| Answer::Cut(Vec::new())).await;
    let live = live(&authority).await;
    let client = client(cutting.endpoint(), &live, &authority);
    let error = client.start(&guest()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Disconnected, Effect::Unknown), "{error}");
    assert_eq!((cutting.seen().len(), live.connections()), (1, 0));
}

#[tokio::test]
async fn when_no_endpoint_takes_a_connection_the_error_names_each() {
    let authority = Authority::new();
    let wrong = live(&Authority::new()).await;
    let dead = dead().await;
    let client = client(dead.clone(), &wrong, &authority);
    for error in [client.version().await.unwrap_err(), client.start(&guest()).await.unwrap_err()] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Tls, Effect::NotSent), "{error}");
        assert!(error.message().contains(&dead.to_string()), "{error}");
        assert!(error.message().contains(&wrong.endpoint().to_string()), "{error}");
    }
    assert!(wrong.seen().is_empty());
}

#[tokio::test]
async fn px_12_each_clusters_calls_go_to_it_with_its_own_token() {
    // Two clients never share a connection or a header.
    let (a, b) = (Authority::new(), Authority::new());
    let (server_a, server_b) = (live(&a).await, live(&b).await);
    let client_a = server_a.builder().trust(Trust::Ca(a.pem)).build().unwrap();
    let token = proxmox_api::ApiToken::new("other@pve!b1", "99999999-8888".into()).unwrap();
    let client_b = server_b.builder().token(token).trust(Trust::Ca(b.pem)).build().unwrap();
    for _ in 0..3 {
        let (one, two) = tokio::join!(client_a.version(), client_b.version());
        one.unwrap();
        two.unwrap();
    }
    let tokens = |server: &Server| -> Vec<String> {
        server.seen().iter().map(|seen| seen.header("authorization").unwrap().to_owned()).collect()
    };
    assert!(tokens(&server_a).iter().all(|token| token.contains("root@pam!full=11111111")));
    assert!(tokens(&server_b).iter().all(|token| token.contains("other@pve!b1=99999999")));
    assert_eq!((client_a.token_id(), client_b.token_id()), ("root@pam!full", "other@pve!b1"));
}

/// Two endpoints, the first of which does `answer` to everything, and a client that asks it first.
async fn useless_first(answer: Answer) -> (Server, Server, Client) {
    let authority = Authority::new();
    let tls = authority.issue(&["127.0.0.1"]).server();
    let useless = Server::start(tls, move |_, _| answer.clone()).await;
    let live = live(&authority).await;
    let token = proxmox_api::ApiToken::new(crate::support::TOKEN_ID, crate::support::SECRET.into()).unwrap();
    let builder = Client::builder().endpoint(useless.endpoint()).endpoint(live.endpoint()).token(token);
    // One silence has room in a read's deadline, not the read in the silence.
    let timeouts = proxmox_api::Timeouts { read: Duration::from_secs(20), ..short() };
    let client = builder.trust(Trust::Ca(authority.pem)).timeouts(timeouts).build().unwrap();
    (useless, live, client)
}

#[tokio::test]
async fn px_05_a_read_moves_on_from_an_endpoint_that_is_of_no_use_and_a_mutation_does_not() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"data\":".to_vec();
    for (answer, attempts, kind) in [
        (Answer::Hang(Vec::new()), 1, ErrorKind::Timeout),
        (Answer::Hang(half.clone()), 1, ErrorKind::Timeout),
        (Answer::Close(http("502 Bad Gateway", "")), 1, ErrorKind::Server),
        (Answer::Close(http("503 Service Unavailable", "")), 1, ErrorKind::Server),
        (Answer::Close(http("504 Gateway Timeout", "")), 1, ErrorKind::Server),
        // A broken connection may be a stale one, so the same endpoint is asked once more.
        (Answer::Cut(Vec::new()), 2, ErrorKind::Disconnected),
        (Answer::Cut(half), 2, ErrorKind::Disconnected),
    ] {
        let (useless, live, client) = useless_first(answer.clone()).await;
        let error = client.start(&guest()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (kind, Effect::Unknown), "{answer:?}: {error}");
        assert_eq!((useless.seen().len(), live.connections()), (1, 0), "{answer:?}");
        client.version().await.unwrap_or_else(|error| panic!("{answer:?}: {error}"));
        assert_eq!(useless.seen().len(), 1 + attempts, "{answer:?}");
        client.version().await.unwrap();
        assert_eq!(live.seen().len(), 2, "{answer:?}: the endpoint that answered is asked first");
    }
}

#[tokio::test]
async fn what_an_endpoint_answers_itself_is_not_asked_again_elsewhere() {
    for status in [
        "400 Parameter verification failed.",
        "401 No ticket",
        "403 Permission check failed",
        "500 no",
        "595 x",
    ] {
        let (first, live, client) = useless_first(Answer::Close(http(status, ""))).await;
        let error = client.version().await.unwrap_err();
        assert_eq!(error.status().unwrap().to_string(), status[..3]);
        assert_eq!((first.seen().len(), live.connections()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn when_every_endpoint_fails_a_read_the_error_names_each_and_its_cause() {
    let authority = Authority::new();
    let tls = authority.issue(&["127.0.0.1"]).server();
    let cutting = Server::start(tls, |_, _| Answer::Cut(Vec::new())).await;
    let dead = dead().await;
    let error = client(dead.clone(), &cutting, &authority).version().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Disconnected, Effect::Refused), "{error}");
    assert!(error.message().contains(&dead.to_string()), "{error}");
    assert!(error.message().contains(&cutting.endpoint().to_string()), "{error}");
}
