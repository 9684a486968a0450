//! From mint to outcome: who may mint, what changes in between, and who reads what became of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body, Frame};
use proxward::config::{Reloader, Sources};
use proxward::serve::{Options, start_http};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificates::Authority;
use crate::raw::{head, once};
use crate::support::{AGENT, Rights, Stage, roomy};
use crate::uploads::{Link, Uploads, VMID};

fn edit_tokens(stage: &Stage, edit: impl FnOnce(&mut Value)) {
    let path = stage.path("tokens.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(&mut file["tokens"]);
    std::fs::write(&path, file.to_string()).unwrap();
}

async fn reload(up: &Uploads) {
    let sources = Sources::of(&up.stage.args(&[]));
    let app = &up.server.app;
    Reloader::new(sources, app.live.clone(), Some(app.audit.clone())).reload().await.unwrap();
}

/// Asks with `Expect: 100-continue`, so that an answer says whether the body was wanted.
async fn present(up: &Uploads, link: &Link) -> crate::raw::Reply {
    let lines = ["Content-Length: 5", "Expect: 100-continue"];
    once(up.address, head(up.address, "PUT", &link.path, &lines)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_28_only_the_minter_reads_an_outcome_and_only_for_an_hour() {
    let mut stage = Stage::new().await;
    stage.token("other", AGENT);
    stage.token("beta-only", Rights { clusters: &["beta"], ..AGENT });
    let up = Uploads::of(stage).await;
    let link = up.link().await;
    let unknown = json!({"link_id": "a".repeat(link.id.len())});
    let mine = json!({"link_id": link.id});
    for finished in [false, true] {
        if finished {
            up.assert_unspent(&link).await;
        }
        for name in ["other", "beta-only"] {
            let client = up.stage.client(up.address, name);
            for tool in ["get_transfer", "proxmox_upload_link"] {
                let not_mine = client.call(tool, mine.clone()).await.unwrap_err();
                assert_eq!(not_mine, client.call(tool, unknown.clone()).await.unwrap_err(), "{name} {tool}");
            }
        }
        let state = if finished { "ok" } else { "pending" };
        for tool in ["get_transfer", "proxmox_upload_link"] {
            assert_eq!(up.agent.call(tool, mine.clone()).await.unwrap()["state"], state, "{tool}");
        }
    }
    let links = &up.server.app.transfers.as_ref().unwrap().links;
    links.sweep(up.server.app.clock.monotonic() + Duration::from_secs(3601));
    let retired = up.agent.call("get_transfer", mine).await.unwrap_err();
    assert_eq!(retired, up.agent.call("get_transfer", unknown).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_29_a_minter_who_may_no_longer_mint_leaves_links_that_are_none() {
    let narrowings: [fn(&mut Value); 6] = [
        |tokens| drop(tokens.as_object_mut().unwrap().remove("agent").unwrap()),
        |tokens| tokens["agent"]["tools"] = json!(["get_nodes"]),
        |tokens| tokens["agent"]["devices"] = json!(["beta"]),
        |tokens| tokens["agent"]["grant"]["guests"] = json!(["vmid:202"]),
        |tokens| tokens["agent"]["grant"]["actions"] = json!(["read"]),
        |tokens| tokens["agent"]["expires"] = json!("2020-01-01T00:00:00Z"),
    ];
    for (case, narrow) in narrowings.into_iter().enumerate() {
        let up = Uploads::new().await;
        let link = up.link().await;
        edit_tokens(&up.stage, narrow);
        reload(&up).await;
        assert_eq!(present(&up, &link).await, up.not_found().await, "{case}");
        assert!(!link.file.exists());
        let voids = up.records("transfer.link_void").await;
        assert_eq!(voids.len(), 1, "{case}: {:?}", up.stage.audit());
        assert_eq!((&voids[0]["link"], &voids[0]["principal"]), (&link.id.clone().into(), &"agent".into()));
        assert_eq!(up.records("transfer.upload").await[0]["outcome"], "voided");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_30_a_guest_that_is_another_or_protected_refuses_and_one_that_moved_is_found() {
    let up = Uploads::new().await;
    let alpha = up.stage.alpha();
    let change_back: [(&str, fn(&lab::LabCluster), fn(&lab::LabCluster)); 4] = [
        ("made anew", |alpha| alpha.recreate(VMID).unwrap(), |_| {}),
        (
            "protected",
            |alpha| alpha.set_protection(VMID, true).unwrap(),
            |alpha| alpha.set_protection(VMID, false).unwrap(),
        ),
        (
            "protected",
            |alpha| alpha.set_tags(VMID, &["prod", "protected"]).unwrap(),
            |alpha| alpha.set_tags(VMID, &["prod"]).unwrap(),
        ),
        ("not there", |alpha| alpha.remove(VMID).unwrap(), |_| {}),
    ];
    for (said, change, back) in change_back {
        // The file system of a guest made anew is another folder.
        let link = up.link().await;
        change(&alpha);
        let reply = present(&up, &link).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "guest_changed"), "{said}: {reply:?}");
        assert!(reply.text().contains(said), "{reply:?}");
        back(&alpha);
        up.assert_spent(&link).await;
        assert_eq!(up.outcome(&link).await["state"], "voided");
    }
    assert_eq!(up.records("transfer.link_void").await.len(), 4);

    let up = Uploads::new().await;
    let alpha = up.stage.alpha();
    let link = up.link().await;
    alpha.migrate(VMID, "pve2").unwrap();
    up.assert_unspent(&link).await;
    let pushed = alpha.node("pve2").unwrap().faults().commands();
    assert!(pushed.iter().any(|words| words[..2] == ["pct", "exec"]), "{pushed:?}");
    let link = up.link().await;
    alpha.stop(VMID).unwrap();
    let reply = present(&up, &link).await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "guest_not_running"), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_31_a_restart_voids_links_and_the_next_contact_sweeps_the_node() {
    let up = Uploads::by_node().await;
    up.assert_unspent(&up.link().await).await;
    let link = up.link().await;
    let staging = up.stage.alpha().node_root("pve1").join("var/tmp/proxward");
    let (old, young) = (staging.join(format!("pxw-{:032x}", 1)), staging.join(format!("pxw-{:032x}", 2)));
    let Uploads { stage, server, .. } = up;
    server.stop().await;
    for (path, age) in [(&old, 7), (&young, 1)] {
        let file = std::fs::File::create(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age * 3600)).unwrap();
    }
    let up = Uploads::of(stage).await;
    assert_eq!(up.put(&link.path, "x").await, up.not_found().await);
    let gone = up.agent.call("get_transfer", json!({"link_id": link.id})).await.unwrap_err();
    assert_eq!(gone["code"], "unknown_link");
    assert!(old.exists(), "nothing is swept before a contact");
    up.link_with(json!({"dest": "/root/after.bin"})).await;
    assert!(!old.exists());
    assert!(young.exists(), "it may belong to an upload under way");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_36_what_could_not_be_redeemed_is_refused_at_the_mint() {
    let mut stage = Stage::new().await;
    stage.token("narrow", Rights { guests: &["vmid:202"], ..AGENT });
    stage.token("reading", Rights { actions: &["read"], ..AGENT });
    let up = Uploads::of(stage).await;
    let mint = |name: &str, arguments: Value| {
        let client = up.stage.client(up.address, name);
        let mut whole = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/x"});
        for (key, value) in arguments.as_object().unwrap() {
            whole[key] = value.clone();
        }
        async move { client.call("proxmox_upload_link", whole).await.unwrap_err() }
    };
    let out_of_grant = mint("narrow", json!({})).await;
    assert_eq!(
        out_of_grant,
        mint("narrow", json!({"vmid": 999})).await,
        "absent and not yours are one answer"
    );
    assert_eq!(out_of_grant["message"], "authorization failed");
    for (name, arguments, code) in [
        ("agent", json!({"vmid": 999}), "authorization_failed"),
        ("agent", json!({"cluster": "gamma"}), "cluster_unavailable"),
        ("reading", json!({}), "insufficient_scope"),
        ("reader", json!({}), "insufficient_scope"),
        ("agent", json!({"vmid": 204}), "protected"),
        ("agent", json!({"vmid": 201}), "guest_not_running"),
        ("agent", json!({"dest": "relative"}), "invalid_argument"),
        ("agent", json!({"dest": "/root/../etc/shadow"}), "invalid_argument"),
        ("agent", json!({"dest": "/root/"}), "invalid_argument"),
        ("agent", json!({"dest": "/root/a\nb"}), "invalid_argument"),
        ("agent", json!({"dest": format!("/{}", "n".repeat(256))}), "invalid_argument"),
        ("agent", json!({"mode": "9"}), "invalid_argument"),
        ("agent", json!({"checksum": "abc"}), "invalid_argument"),
        ("agent", json!({"size": 1_u64 << 50}), "invalid_argument"),
    ] {
        let refused = mint(name, arguments.clone()).await;
        assert_eq!(refused["code"], code, "{name} {arguments}: {refused}");
    }
    let node = up.stage.alpha().node("pve1").unwrap().clone();
    node.faults().refuse_connections(true);
    assert_eq!(mint("agent", json!({})).await["code"], "node_unreachable");
    assert_eq!(up.server.app.transfers.as_ref().unwrap().links.counts().pending, 0);
    assert!(!up.stage.audit().iter().any(|record| record["event"] == "transfer.mint"));
}

/// B35: there is no other way into a container, and the refusal says which one is missing and where it is configured.
#[tokio::test(flavor = "multi_thread")]
async fn without_ssh_a_container_takes_no_file_and_the_refusal_says_what_is_needed() {
    let stage = Stage::new().await;
    stage.edit_clusters(|file| {
        let cluster = &mut file["devices"]["alpha"];
        assert!(cluster.as_object_mut().unwrap().remove("ssh").is_some());
    });
    let up = Uploads::of(stage).await;
    let arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/x"});
    let refused = up.agent.call("proxmox_upload_link", arguments).await.unwrap_err();
    let message = refused["message"].as_str().unwrap();
    for part in ["SSH access to node", "`ssh` of cluster alpha", "clusters.json"] {
        assert!(message.contains(part), "{refused}");
    }
}

/// Mints over plain HTTP or TLS with spoofed headers and returns the tool's answer.
async fn mint_with<S>(stream: &mut S, stage: &Stage, host: &str) -> Value
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "proxmox_upload_link",
        "arguments": {"cluster": "alpha", "vmid": VMID, "dest": "/root/spoofed.bin"}}})
        .to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         X-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 203.0.113.9\r\n\
         X-Original-URL: https://evil.example/\r\nForwarded: host=evil.example;proto=https\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        stage.bearer("agent"),
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // How a TLS server ends the connection is not what this is about.
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).unwrap();
    assert!(!text.contains("evil.example"), "{text}");
    let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_37_the_url_is_the_operators_and_never_the_requests() {
    let up = Uploads::new().await;
    let port = up.address.port();
    for host in ["localhost:1", "127.0.0.1", "[::1]:443"] {
        let minted = mint_with(&mut TcpStream::connect(up.address).await.unwrap(), &up.stage, host).await;
        let url = minted["url"].as_str().unwrap_or_else(|| panic!("{minted}"));
        assert!(url.starts_with(&format!("http://127.0.0.1:{port}/transfers/upload/")), "{host}: {url}");
    }
    up.stage.edit_clusters(|file| file["policy"]["public_url"] = "https://gate.example/px".into());
    reload(&up).await;
    let minted = mint_with(&mut TcpStream::connect(up.address).await.unwrap(), &up.stage, "localhost").await;
    let url = minted["url"].as_str().unwrap();
    assert!(url.starts_with("https://gate.example/px/transfers/upload/"), "{url}");

    // Beyond loopback no URL is guessed.
    let stage = Stage::new().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let flags = ["-H", "0.0.0.0", "--tls-cert", &cert, "--tls-key", &key];
    let names = ["--allowed-host", "localhost", "--allowed-origin", "https://localhost"];
    let args = stage.args(&[&flags[..], &names[..]].concat());
    let server = start_http(&args, Options::default()).await.unwrap();
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), server.address.port());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let refused = mint_with(&mut tls, &stage, "localhost").await;
    assert_eq!(refused["code"], "no_public_url", "{refused}");
    server.stop().await;
}

/// One chunk, and then a fault of ours.
struct Panics(bool);

impl Body for Panics {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        assert!(!self.0, "a fault injected in the middle of a push");
        self.0 = true;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"begun")))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_38_a_panic_in_a_push_is_a_500_that_leaves_nothing() {
    let mut policy = roomy();
    policy["limits"]["uploads_per_node"] = 1.into();
    let up = Uploads::of(Stage::with_policy(policy).await).await;
    let link = up.link().await;
    let request = Request::builder().method(Method::PUT).uri(&link.path).body(Panics(false)).unwrap();
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let reply = proxward::transfer_http::handle(up.server.app.clone(), peer, request).await;
    assert_eq!(reply.status(), 500);
    up.no_residue().await;
    let outcome = up.outcome(&link).await;
    assert_eq!((&outcome["state"], &outcome["code"]), (&"failed".into(), &"internal".into()), "{outcome}");
    let records = up.records("transfer.upload").await;
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(
        (&records[0]["outcome"], &records[0]["details"]["code"]),
        (&"failed".into(), &"internal".into())
    );
    up.assert_spent(&link).await;
    // The one slot of the node is free again.
    up.assert_unspent(&up.link().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_40_a_full_node_or_guest_is_507_and_the_next_upload_works() {
    for by_node in [true, false] {
        let up = if by_node { Uploads::by_node().await } else { Uploads::new().await };
        let faults = up.stage.alpha().node("pve1").unwrap().faults().clone();
        let fill = |bytes| if by_node { faults.space(bytes) } else { faults.guest_space(bytes) };
        // One that is known to be too large beforehand, one that shows while it comes.
        for (declared, size) in [(true, 2_000_000), (false, 2_000_000)] {
            let link = up.link().await;
            fill(Some(1_500_000));
            let body = "x".repeat(size);
            let reply = if declared {
                up.put(&link.path, &body).await
            } else {
                let mut raw = up.open().await;
                raw.write(head(up.address, "PUT", &link.path, &["Transfer-Encoding: chunked"])).await;
                raw.try_write(format!("{size:x}\r\n{body}\r\n0\r\n\r\n")).await;
                raw.reply().await
            };
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (507, "no_space"),
                "{by_node} {declared}: {reply:?}"
            );
            fill(None);
            up.assert_spent(&link).await;
        }
        up.assert_unspent(&up.link().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_39_a_staging_directory_that_others_control_is_refused_by_name() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let up = Uploads::by_node().await;
    up.assert_unspent(&up.link().await).await;
    let staging = up.stage.alpha().node_root("pve1").join("var/tmp/proxward");
    let moved = staging.with_file_name("elsewhere");
    let check = async |what: &str| {
        // Minted before, presented after; and not minted at all any more.
        let refused = up
            .agent
            .call("proxmox_upload_link", json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/x"}));
        let refused = refused.await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("/var/tmp/proxward"), "{what}: {refused}");
    };
    let link = up.link().await;
    std::fs::rename(&staging, &moved).unwrap();
    symlink(&moved, &staging).unwrap();
    let reply = up.put(&link.path, "x").await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "staging"), "{reply:?}");
    assert!(reply.text().contains("/var/tmp/proxward"), "{reply:?}");
    check("a symlink").await;
    std::fs::remove_file(&staging).unwrap();
    std::fs::rename(&moved, &staging).unwrap();
    std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o777)).unwrap();
    check("open to others").await;
    std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o700)).unwrap();
    up.assert_spent(&link).await;
    up.assert_unspent(&up.link().await).await;
}
