//! Whom the client takes for its cluster.

use std::{process::Command, time::Duration};

use proxmox_api::{Effect, ErrorKind, Fingerprint, Trust};
use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::PrivateKeyDer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{Authority, Identity, SECRET, Server, TOKEN_ID, VERSION, data, guest};

async fn server(tls: ServerConfig) -> Server {
    Server::start(tls, |_, _| data(VERSION)).await
}

/// Neither a read nor a write reaches this server, and both errors say why.
async fn refuses(server: &Server, trust: Trust, reason: &str) {
    let client = server.builder().trust(trust).build().unwrap();
    for error in [client.version().await.unwrap_err(), client.start(&guest()).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        assert_eq!(error.effect(), Effect::NotSent, "{error}");
        assert!(error.message().contains(reason), "{reason:?} is not in {error}");
    }
    assert!(server.seen().is_empty(), "something was sent");
}

async fn accepts(server: &Server, trust: Trust) {
    let client = server.builder().trust(trust).build().unwrap();
    assert_eq!(client.version().await.unwrap().numbers(), Some((9, 2)));
}

#[tokio::test]
async fn px_01_another_authority_is_refused() {
    let ours = Authority::named("ours").pem;
    // Taking the same name does not help.
    for (name, reason) in [("theirs", "UnknownIssuer"), ("ours", "BadSignature")] {
        let server = server(Authority::named(name).issue(&["127.0.0.1"]).server()).await;
        refuses(&server, Trust::Ca(ours.clone()), reason).await;
    }
}

#[tokio::test]
async fn px_01_a_self_signed_certificate_is_refused() {
    let server = server(Identity::self_signed(&["127.0.0.1"]).server()).await;
    refuses(&server, Trust::Ca(Authority::new().pem), "UnknownIssuer").await;
}

#[tokio::test]
async fn px_01_an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let server = server(authority.issue_expired().server()).await;
    refuses(&server, Trust::Ca(authority.pem), "expired").await;
}

#[tokio::test]
async fn px_01_an_address_that_is_not_in_the_certificate_is_refused() {
    let authority = Authority::new();
    for names in [&["pve1.test"][..], &["127.0.0.2"], &["localhost"]] {
        let server = server(authority.issue(names).server()).await;
        refuses(&server, Trust::Ca(authority.pem.clone()), "not valid for").await;
    }
}

#[tokio::test]
async fn px_01_the_name_is_verified_where_another_address_is_dialled() {
    let authority = Authority::new();
    let server = server(authority.issue(&["pve1.test"]).server()).await;
    let client = |host: &str| {
        let endpoint = proxmox_api::Endpoint::parse(&format!("https://{host}:8006")).unwrap();
        let token = proxmox_api::ApiToken::new(TOKEN_ID, SECRET.into()).unwrap();
        let builder = proxmox_api::Client::builder().endpoint(endpoint).token(token);
        builder.trust(Trust::Ca(authority.pem.clone())).connect_to(Some(server.address)).build().unwrap()
    };
    assert!(client("pve1.test").version().await.is_ok());
    assert_eq!(server.seen()[0].header("host"), Some("pve1.test:8006"));
    let error = client("pve2.test").version().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
}

#[tokio::test]
async fn px_01_tls_1_1_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut hello = [0; 1024];
            let _ = tcp.read(&mut hello).await;
            // A ServerHello of TLS 1.1: version 3.2, 32 random bytes, no session, a suite of that age.
            let mut body = vec![3, 2];
            body.extend([7; 32]);
            body.extend([0, 0xc0, 0x13, 0]);
            let mut message = vec![2, 0, 0, u8::try_from(body.len()).unwrap()];
            message.append(&mut body);
            let mut record = vec![22, 3, 2, 0, u8::try_from(message.len()).unwrap()];
            record.append(&mut message);
            let _ = tcp.write_all(&record).await;
            let _ = tcp.read(&mut hello).await;
        }
    });
    let endpoint = proxmox_api::Endpoint::parse(&format!("https://{address}")).unwrap();
    let token = proxmox_api::ApiToken::new(TOKEN_ID, SECRET.into()).unwrap();
    let builder = proxmox_api::Client::builder().endpoint(endpoint).token(token);
    let error = builder.trust(Trust::Ca(Authority::new().pem)).build().unwrap().version().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
}

#[tokio::test]
async fn px_01_plain_http_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
        }
    });
    let endpoint = proxmox_api::Endpoint::parse(&format!("https://{address}")).unwrap();
    let token = proxmox_api::ApiToken::new(TOKEN_ID, SECRET.into()).unwrap();
    let builder = proxmox_api::Client::builder().endpoint(endpoint).token(token);
    let client = builder.trust(Trust::Ca(Authority::new().pem)).build().unwrap();
    let error = client.start(&guest()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Tls, Effect::NotSent), "{error}");
}

#[tokio::test]
async fn the_authority_alone_is_enough() {
    let authority = Authority::new();
    let server = server(authority.issue(&["127.0.0.1"]).server()).await;
    accepts(&server, Trust::Ca(authority.pem)).await;
}

#[tokio::test]
async fn px_01_a_pinned_leaf_is_accepted_whatever_its_name_and_date() {
    for identity in [Identity::self_signed(&["elsewhere.test"]), Authority::new().issue_expired()] {
        let server = server(identity.server()).await;
        accepts(&server, Trust::Leaf(Fingerprint::of(&identity.certificate))).await;
    }
}

#[tokio::test]
async fn px_01_any_other_leaf_is_refused_and_its_fingerprint_named() {
    let (pinned, shown) = (Identity::self_signed(&["127.0.0.1"]), Identity::self_signed(&["127.0.0.1"]));
    let server = server(shown.server()).await;
    let reason = Fingerprint::of(&shown.certificate).to_string();
    refuses(&server, Trust::Leaf(Fingerprint::of(&pinned.certificate)), &reason).await;
}

#[tokio::test]
async fn px_01_a_pinned_leaf_without_its_key_is_refused() {
    let pinned = Identity::self_signed(&["127.0.0.1"]);
    let thief = Identity { certificate: pinned.certificate.clone(), ..Identity::self_signed(&["127.0.0.1"]) };
    let trust = || Trust::Leaf(Fingerprint::of(&pinned.certificate));
    let server_13 = server(thief.server()).await;
    refuses(&server_13, trust(), "BadSignature").await;

    let key = PrivateKeyDer::try_from(thief.key.serialize_der()).unwrap();
    let shown = rustls::sign::CertifiedKey::new(
        vec![thief.certificate.clone()],
        ring::sign::any_supported_type(&key).unwrap(),
    );
    let only_12 = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(shown)));
    refuses(&server(only_12).await, trust(), "BadSignature").await;
}

/// The part of [`px_02_a_named_ca_replaces_the_systems_authorities`] that runs with other system authorities.
#[tokio::test]
async fn px_02_with_the_other_authority_in_the_system() {
    let (Ok(file), Ok(_)) = (std::env::var("PX_02_SYSTEM_CA"), std::env::var("SSL_CERT_FILE")) else {
        println!("not applicable: run by px_02_a_named_ca_replaces_the_systems_authorities");
        return;
    };
    let (pem, key) = {
        let text = std::fs::read_to_string(file).unwrap();
        let (pem, key) = text.split_once("=====").unwrap();
        (pem.to_owned(), key.to_owned())
    };
    let public = Authority::from_pem("public", &pem, &key);
    let server = server(public.issue(&["127.0.0.1"]).server()).await;
    accepts(&server, Trust::System).await;
    let before = server.seen().len();
    let client = server.builder().trust(Trust::Ca(Authority::new().pem)).build().unwrap();
    let error = client.version().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    assert_eq!(server.seen().len(), before);
    println!("px-02 ran");
}

#[test]
fn px_02_a_named_ca_replaces_the_systems_authorities() {
    // The system's store is named by an environment variable, which a process sets for a child only.
    let public = Authority::named("public");
    let folder = std::env::temp_dir().join(format!("proxmox-api-px-02-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (store, both) = (folder.join("store.pem"), folder.join("both"));
    std::fs::write(&store, &public.pem).unwrap();
    std::fs::write(&both, format!("{}====={}", public.pem, public.key_pem())).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::px_02_with_the_other_authority_in_the_system", "--nocapture"])
        .env("SSL_CERT_FILE", &store)
        .env("PX_02_SYSTEM_CA", &both)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("px-02 ran"), "{text}");
}

#[test]
fn px_01_checks_can_be_replaced_in_one_file_only() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read_to_string(&path).unwrap().contains(concat!("dangerous", "()")) {
                found.push(path);
            }
        }
    }
    assert!(matches!(found.as_slice(), [file] if file.ends_with("tls/leaf_pin.rs")), "{found:?}");
}

#[tokio::test]
async fn a_look_at_a_server_shows_its_certificate_and_sends_nothing() {
    let identity = Identity::self_signed(&["elsewhere.test"]);
    let server = server(identity.server()).await;
    let endpoint = proxmox_api::Endpoint::parse(&format!("https://{}", server.address)).unwrap();
    let shown = proxmox_api::presented(&endpoint, Duration::from_secs(5)).await.unwrap();
    assert_eq!(shown.fingerprint(), Fingerprint::of(&identity.certificate));
    assert_eq!(shown.certificates().len(), 1);
    // What it says can be pinned, and is what then gets in.
    accepts(&server, Trust::Leaf(shown.fingerprint())).await;
    assert_eq!(server.seen().len(), 1, "the look sent a request");
}

#[tokio::test]
async fn a_look_at_nothing_and_at_plain_http_says_which() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint =
        proxmox_api::Endpoint::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
    let serving = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
    });
    let error = proxmox_api::presented(&endpoint, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Tls, Effect::NotSent), "{error}");
    serving.await.unwrap();
    let error = proxmox_api::presented(&endpoint, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::NotSent), "{error}");
}
