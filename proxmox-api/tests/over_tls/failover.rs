//! Several endpoints of one cluster.

use proxmox_api::{Client, Effect, Endpoint, ErrorKind, Trust};
use tokio::net::TcpListener;

use crate::support::{Answer, Authority, Server, UPID, VERSION, data, guest, short};

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
async fn each_clusters_calls_go_to_it_with_its_own_token() {
    // px-12: two clients never share a connection or a header.
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
