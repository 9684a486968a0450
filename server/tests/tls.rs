//! HTTPS in the program itself.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/program.rs"]
mod program;
mod support;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use bytes::Bytes;
use certificates::Authority;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use program::{PATIENCE, Program, StdioClient};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use support::{Stage, path_of, request, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Shakes hands with a server, speaking these versions and trusting this authority.
async fn connect(
    address: SocketAddr,
    name: &str,
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// Sends one request over an established connection.
async fn ask(stream: TlsStream<TcpStream>, request: Request<Full<Bytes>>) -> (u16, Value) {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    driver.abort();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// A `tools/call` of an older revision, which needs the fewest headers.
fn call(stage: &Stage, host: &str, tool: &str, arguments: &Value) -> Request<Full<Bytes>> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}});
    Request::post("/mcp")
        .header("host", host)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {}", stage.bearer("agent")))
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

const ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_and_1_3_carry_calls_and_uploads() {
    let stage = Stage::new().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let (server, address) = Program::serve(&stage.command_line(&["--tls-cert", &cert, "--tls-key", &key]));
    for version in ALL {
        for name in ["127.0.0.1", "localhost"] {
            let stream = connect(address, name, &authority, &[version]).await.unwrap();
            assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
            // Browsers would ask for HTTP/2, which is not offered.
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            let host = format!("{name}:{}", address.port());
            let (status, nodes) =
                ask(stream, call(&stage, &host, "get_nodes", &json!({"cluster": "alpha"}))).await;
            assert_eq!(status, 200);
            assert_eq!(nodes["result"]["structuredContent"]["total"], 3, "{nodes}");
        }
        let dest = format!("/root/tls-{version:?}.bin").replace(' ', "");
        let arguments = json!({"cluster": "alpha", "vmid": 200, "dest": dest});
        let stream = connect(address, "127.0.0.1", &authority, &[version]).await.unwrap();
        let (_, minted) =
            ask(stream, call(&stage, &address.to_string(), "proxmox_upload_link", &arguments)).await;
        let minted = &minted["result"]["structuredContent"];
        assert!(minted["url"].as_str().unwrap().starts_with(&format!("https://{address}/")), "{minted}");
        let stream = connect(address, "127.0.0.1", &authority, &[version]).await.unwrap();
        let put = request(address, Method::PUT, &path_of(minted), "over TLS");
        let (status, receipt) = ask(stream, put).await;
        assert_eq!((status, &receipt["bytes"]), (200, &8.into()), "{receipt}");
        let landed = stage.alpha().guest_root(200).join(dest.trim_start_matches('/'));
        assert_eq!(std::fs::read(landed).unwrap(), b"over TLS");
    }
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_the_tls_port_gets_no_http_and_harms_nobody() {
    let stage = Stage::new().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let (server, address) = Program::serve(&stage.command_line(&["--tls-cert", &cert, "--tls-key", &key]));

    let mut plain = TcpStream::connect(address).await.unwrap();
    let bearer = stage.bearer("agent");
    let text = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {bearer}\r\n\r\n");
    plain.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Closed, perhaps with an alert; how the close is told is the system's affair.
    let _ = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    send(address, request(address, Method::GET, "/healthz", "")).await.unwrap_err();

    // A client that does not know the authority refuses the server, not the other way round.
    let stranger = connect(address, "127.0.0.1", &Authority::new(), &ALL).await.unwrap_err();
    assert!(stranger.to_string().contains("invalid peer certificate"), "{stranger}");
    let misnamed = connect(address, "proxward.example", &authority, &ALL).await.unwrap_err();
    assert!(misnamed.to_string().contains("not valid for name"), "{misnamed}");

    // One that says nothing holds up neither the others nor the end.
    let silent = TcpStream::connect(address).await.unwrap();
    let stream = connect(address, "127.0.0.1", &authority, &ALL).await.unwrap();
    let (status, _) = ask(stream, request(address, Method::GET, "/healthz", "")).await;
    assert_eq!(status, 200);
    let started = std::time::Instant::now();
    let exit = server.terminate();
    assert_eq!(exit.code, Some(0));
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    assert!(!exit.log.contains(bearer));
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_files_that_cannot_be_used_are_refused_with_the_remedy() {
    let stage = Stage::new().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let other = stage.path("other");
    std::fs::create_dir(&other).unwrap();
    let [_, other_key] = Authority::new().write_server_files(&other);
    let open = stage.path("open.key").display().to_string();
    std::fs::copy(&key, &open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let missing = stage.path("missing.pem").display().to_string();
    for (cert, key, said) in [
        (&cert, &open, vec![open.as_str(), "0644", "chmod 0600"]),
        (&cert, &other_key, vec![cert.as_str(), other_key.as_str(), "do not fit"]),
        (&cert, &cert, vec![cert.as_str(), "private key"]),
        (&key, &key, vec![key.as_str(), "certificate"]),
        (&missing, &key, vec![missing.as_str()]),
    ] {
        let exit = Program::start(&stage.command_line(&["--tls-cert", cert, "--tls-key", key])).exit();
        assert_eq!(exit.code, Some(78), "{cert} {key}: {}", exit.log);
        for text in said {
            assert!(exit.log.contains(text), "{text}: {}", exit.log);
        }
    }
    let exit = Program::start(&stage.command_line(&["--tls-cert", &cert])).exit();
    assert_eq!(exit.code, Some(78));
    assert!(exit.log.contains("--tls-cert needs --tls-key"), "{}", exit.log);
    assert!(!stage.path("state").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_it_serves_beyond_loopback_under_the_names_it_is_given() {
    let stage = Stage::new().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let flags = ["-H", "0.0.0.0", "--tls-cert", &cert, "--tls-key", &key];
    let names = ["--allowed-host", "gate.example", "--allowed-origin", "https://gate.example"];
    let (server, bound) = Program::serve(&stage.command_line(&[&flags[..], &names[..]].concat()));
    let address = SocketAddr::new("127.0.0.1".parse().unwrap(), bound.port());
    let arguments = json!({"cluster": "alpha", "vmid": 200, "dest": "/root/beyond.bin"});
    let mint = |host: &'static str| {
        let request = call(&stage, host, "proxmox_upload_link", &arguments);
        let authority = &authority;
        async move { ask(connect(address, "127.0.0.1", authority, &ALL).await.unwrap(), request).await }
    };
    let (status, refused) = mint("other.example").await;
    assert_eq!((status, &refused["error"]), (421, &"host_not_allowed".into()));
    let (_, refused) = mint("gate.example").await;
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("policy.public_url"), "{text}");

    stage.edit_clusters(|file| file["policy"]["public_url"] = "https://gate.example/".into());
    server.signal(rustix::process::Signal::HUP);
    server.log.until("the configuration was read again");
    let (_, minted) = mint("gate.example").await;
    let url = minted["result"]["structuredContent"]["url"].as_str().unwrap();
    assert!(url.starts_with("https://gate.example/transfers/upload/"), "{minted}");
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_beside_stdio_use_the_certificate_too() {
    let stage = Stage::new().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let flags = ["--transfer-listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key];
    let mut client =
        StdioClient::start(&stage.stdio_line(&[&["--stdio-principal", "agent"][..], &flags[..]].concat()));
    let arguments = json!({"cluster": "alpha", "vmid": 200, "dest": "/root/beside.bin"});
    let minted = client.call("proxmox_upload_link", arguments).unwrap();
    let url = minted["url"].as_str().unwrap();
    let address: SocketAddr =
        url.strip_prefix("https://").unwrap().split('/').next().unwrap().parse().unwrap();
    let put = request(address, Method::PUT, &path_of(&minted), "sealed");
    send(address, put.clone()).await.unwrap_err();
    let stream = connect(address, "127.0.0.1", &authority, &ALL).await.unwrap();
    let (status, receipt) = ask(stream, put).await;
    assert_eq!(status, 200, "{receipt}");
    assert_eq!(std::fs::read(stage.alpha().guest_root(200).join("root/beside.bin")).unwrap(), b"sealed");
    assert_eq!(client.end().code, Some(0));
}
