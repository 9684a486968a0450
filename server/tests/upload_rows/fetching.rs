//! Rows FU of the threat model, through the tool: a web server of the test on loopback, allowed by its exact address.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::program::{Program, command};
use crate::support::{Stage, roomy};
use crate::uploads::{Uploads, VMID};

/// Answers by path; counts what was asked.
struct Web {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Web {
    async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (asked.clone(), Arc::new(answer));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (count, answer) = (count.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    let mut buffer = [0; 4096];
                    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                        match stream.read(&mut buffer).await {
                            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
                            _ => return,
                        }
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    let _gone = stream.write_all(&answer(path)).await;
                    let _gone = stream.shutdown().await;
                });
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

async fn stage(web: &Web, more: Value) -> Uploads {
    let mut policy = roomy();
    policy["fetch"] = json!({"allow": [web.address.to_string()]});
    for (key, value) in more.as_object().unwrap() {
        policy[key] = value.clone();
    }
    Uploads::of(Stage::with_policy(policy).await).await
}

async fn fetch(up: &Uploads, url: &str, more: Value) -> Result<Value, Value> {
    let mut arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/fetched", "url": url});
    for (key, value) in more.as_object().unwrap() {
        arguments[key] = value.clone();
    }
    up.agent.call("proxmox_fetch_url", arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fu_16_a_url_lands_in_the_guest_verified_and_the_result_tells_no_more_than_it_must() {
    let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let body = data.clone();
    let web = Web::start(move |path| match path {
        "/start?token=SECRET" => {
            b"HTTP/1.1 302 Found\r\nLocation: /d/app.bin\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
        _ => ok(&body),
    })
    .await;
    let up = stage(&web, json!({})).await;
    let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(&data));
    let done = fetch(&up, &web.url("/start?token=SECRET"), json!({"checksum": sha256})).await.unwrap();
    assert_eq!((&done["bytes"], &done["sha256"]), (&json!(data.len()), &json!(sha256)), "{done}");
    assert_eq!((&done["host"], &done["name"]), (&json!("127.0.0.1"), &json!("app.bin")));
    assert_eq!((&done["checksum_verified"], &done["verified_at"]), (&json!(true), &json!("guest")));
    assert_eq!(std::fs::read(up.stage.alpha().guest_root(VMID).join("root/fetched")).unwrap(), data);
    let records = up.records("transfer.fetch").await;
    assert_eq!(records.len(), 1);
    let text = records[0].to_string();
    assert!(text.contains("/start?[removed]") && !text.contains("SECRET"), "{text}");
    up.no_residue().await;
}

/// D13: a proxy of the environment would look names up itself, and every check of addresses with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_in_the_environment_is_not_asked() {
    let web = Web::start(|_| ok(b"x")).await;
    let proxy = Web::start(|_| ok(b"from the proxy")).await;
    let mut policy = roomy();
    policy["fetch"] = json!({"allow": [web.address.to_string()]});
    let stage = Stage::with_policy(policy).await;
    let mut program = command(&stage.command_line(&[]));
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        program.env(name, proxy.url(""));
    }
    let program = Program::spawn(program.stdin(Stdio::null()).stdout(Stdio::null()));
    let agent = stage.client(program.ready().unwrap(), "agent");
    let arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/d13", "url": web.url("/x")});
    let done = agent.call("proxmox_fetch_url", arguments).await.unwrap();
    assert_eq!((&done["bytes"], web.asked(), proxy.asked()), (&json!(1), 1, 0), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fu_18_a_target_that_cannot_take_the_file_is_refused_before_anything_is_asked() {
    let web = Web::start(|_| ok(b"x")).await;
    let up = stage(&web, json!({})).await;
    std::fs::write(up.stage.alpha().guest_root(VMID).join("root/old"), "old").unwrap();
    for (more, code) in [
        (json!({"vmid": 987_654}), ""),
        (json!({"dest": "/root/old"}), "dest_exists"),
        (json!({"dest": "/root"}), "dest_is_directory"),
        (json!({"dest": "/none/x"}), "no_parent"),
        (json!({"dest": "relative"}), "invalid_argument"),
        (json!({"mode": "9"}), "invalid_argument"),
    ] {
        let refused = fetch(&up, &web.url("/"), more.clone()).await.unwrap_err();
        assert!(code.is_empty() || refused["code"] == code, "{more}: {refused}");
    }
    up.stage.alpha().set_tags(VMID, &["protected"]).unwrap();
    assert_eq!(fetch(&up, &web.url("/"), json!({})).await.unwrap_err()["code"], "protected");
    assert_eq!(web.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fu_11_fu_19_what_is_too_large_too_short_or_another_file_leaves_nothing() {
    let web = Web::start(|path| match path {
        "/large" => b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n".to_vec(),
        "/endless" => {
            let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
            answer.extend(vec![b'x'; 3_000_000]);
            answer
        }
        "/short" => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec(),
        "/gzip" => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec(),
        "/none" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsecret".to_vec(),
        _ => ok(b"hello"),
    })
    .await;
    let up = stage(&web, json!({"transfers": {"max_mb": 1}})).await;
    let other = "0".repeat(64);
    for (path, more, code) in [
        ("/large", json!({}), "too_large"),
        ("/endless", json!({}), "source"),
        ("/short", json!({}), "source"),
        ("/gzip", json!({}), "fetch_encoded"),
        ("/none", json!({}), "fetch_status"),
        ("/", json!({"checksum": other}), "unexpected_hash"),
    ] {
        let refused = fetch(&up, &web.url(path), more).await.unwrap_err();
        assert_eq!(refused["code"], code, "{path}: {refused}");
        let text = refused.to_string();
        assert!(!text.contains("secret") && !text.contains("127.0.0.1"), "{text}");
        if code == "unexpected_hash" {
            let real = data_encoding::HEXLOWER.encode(&Sha256::digest("hello"));
            assert!(text.contains(&other) && text.contains(&real), "both are shown: {text}");
        }
    }
    assert!(!up.stage.alpha().guest_root(VMID).join("root/fetched").exists());
    up.no_residue().await;
    fetch(&up, &web.url("/"), json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fu_10_fu_20_private_addresses_the_server_itself_and_its_clusters_are_refused_alike() {
    let web = Web::start(|_| ok(b"x")).await;
    let up = stage(&web, json!({})).await;
    let api = up.stage.alpha().address();
    let ssh = up.stage.alpha().node("pve1").unwrap().ssh_port();
    // Allowed by the operator's own hand, and refused all the same.
    let own = [up.address.to_string(), api.to_string(), format!("127.0.0.1:{ssh}")];
    up.stage.edit_clusters(|file| {
        file["policy"]["fetch"]["allow"] =
            json!([web.address.to_string(), own[0], own[1], own[2], "169.254.169.254:80"]);
    });
    let app = &up.server.app;
    let sources = proxward::config::Sources::of(&up.stage.args(&[]));
    proxward::config::Reloader::new(sources, app.live.clone(), Some(app.audit.clone()))
        .reload()
        .await
        .unwrap();
    let mut texts = std::collections::BTreeSet::new();
    for url in [
        format!("http://{}/metrics", own[0]),
        format!("https://{}/", own[1]),
        format!("http://{}/", own[2]),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "http://127.0.0.1:1/".to_owned(),
        "http://localhost/".to_owned(),
        "http://[::1]/".to_owned(),
        "http://198.41.0.4:22/".to_owned(),
    ] {
        let refused = fetch(&up, &url, json!({})).await.unwrap_err();
        assert_eq!(refused["code"], "fetch_policy", "{url}: {refused}");
        texts.insert(refused.to_string());
    }
    // FU-17: nothing tells one from another.
    assert_eq!(texts.len(), 1, "{texts:?}");
    fetch(&up, &web.url("/"), json!({})).await.unwrap();
}
