//! Real `curl`, the real program, a real OpenSSH server: every way of sending a file, and the ways it goes wrong.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/program.rs"]
mod program;
#[path = "../../guest-push/tests/support/mod.rs"]
mod sshd;
mod support;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use certificates::Authority;
use program::Program;
use serde_json::{Value, json};
use sshd::{Sshd, eventually};
use support::{Client, Stage};

const VMID: u32 = 200;

/// The program in front of the lab's API, with the nodes' SSH served by OpenSSH.
struct Real {
    stage: Stage,
    sshd: Sshd,
    program: Program,
    agent: Client,
}

impl Real {
    /// `None`, saying why, where this machine lacks something.
    async fn start() -> Option<Self> {
        if Command::new("curl").arg("--version").output().is_err() {
            println!("skipped: curl is missing");
            return None;
        }
        let sshd = Sshd::start()?;
        sshd.add_guest(VMID);
        sshd.start_guest(VMID);
        let stage = Stage::new().await;
        let private = |name: &str, text: String| {
            let path = stage.path(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path.display().to_string()
        };
        let key = private("sshd-key", sshd.client_key_pem());
        let known = private("sshd-known-hosts", format!("{}\n", sshd.known_hosts_line()));
        let node = json!({"host": sshd.host(), "port": sshd.port()});
        let ssh = json!({
            "user": sshd.user(), "key_file": key, "known_hosts_file": known,
            "staging_dir": sshd.staging_dir(), "nodes": {"pve1": node, "pve2": node},
        });
        stage.edit_clusters(|file| file["devices"]["alpha"]["ssh"] = ssh);
        let (program, address) = Program::serve(&stage.command_line(&[]));
        let agent = stage.client(address, "agent");
        Some(Self { stage, sshd, program, agent })
    }

    async fn mint(&self, more: Value) -> Value {
        let mut arguments = json!({"cluster": "alpha", "vmid": VMID});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.agent.call("proxmox_upload_link", arguments).await.unwrap()
    }

    async fn outcome(&self, minted: &Value) -> Value {
        self.agent.call("get_transfer", json!({"link_id": minted["link_id"]})).await.unwrap()
    }

    fn landed(&self, path: &str) -> Option<Vec<u8>> {
        std::fs::read(self.sshd.guest_root(VMID).join(path)).ok()
    }
}

/// Runs curl on a URL and gives back the answer's JSON.
fn curl(arguments: &[&str], url: &Value, input: Option<&[u8]>) -> (Output, Value) {
    let mut child = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--max-time", "60"])
        .args(arguments)
        .arg(url.as_str().unwrap())
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(bytes) = input {
        // A server that refuses early closes the pipe, which is no failure of the test.
        let _ = child.stdin.take().unwrap().write_all(bytes);
    }
    let output = child.wait_with_output().unwrap();
    let answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, answer)
}

fn payload() -> Vec<u8> {
    (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

// C07, C09, C11: told to continue once the link is won, refused before that; chunks without a length.
#[tokio::test(flavor = "multi_thread")]
async fn ul_21_and_22_curl_sends_with_length_chunked_and_waiting_to_continue() {
    let Some(real) = Real::start().await else { return };
    let file = real.stage.path("payload");
    std::fs::write(&file, payload()).unwrap();
    let name = file.display().to_string();
    let ways: [(&str, &[&str], bool); 4] = [
        ("length", &["-T", &name], false),
        ("chunked", &["-H", "Transfer-Encoding: chunked", "-T", "-"], true),
        ("expect", &["-H", "Expect: 100-continue", "-T", &name], false),
        (
            "post",
            &[
                "-X",
                "POST",
                "-H",
                "Content-Type: application/octet-stream",
                "--data-binary",
                &format!("@{name}"),
            ],
            false,
        ),
    ];
    for (way, arguments, piped) in ways {
        let minted = real.mint(json!({"dest": format!("/root/{way}.bin")})).await;
        let bytes = payload();
        let (output, answer) = curl(arguments, &minted["url"], piped.then_some(bytes.as_slice()));
        assert!(output.status.success(), "{way}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(answer["checksum_verified"], true, "{way}: {answer}");
        assert_eq!(real.landed(&format!("root/{way}.bin")), Some(bytes), "{way}");
        assert_eq!(real.outcome(&minted).await["state"], "ok", "{way}");
        // The link is spent.
        let (_, again) = curl(&["-T", &name], &minted["url"], None);
        assert_eq!(again["error"]["code"], "not_found", "{way}: {again}");
    }
    assert!(real.sshd.residue().is_empty(), "{:?}", real.sshd.residue());
    // A bad token is refused before curl is told to go on.
    let bad = Value::from(format!("http://{}/transfers/upload/{}", real.agent.address, "A".repeat(43)));
    let (output, answer) = curl(&["-v", "-H", "Expect: 100-continue", "-T", &name], &bad, None);
    assert_eq!(answer["error"]["code"], "not_found");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("100 Continue"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dp_01_a_name_that_a_shell_would_run_is_a_name() {
    let Some(real) = Real::start().await else { return };
    let minted = real.mint(json!({"dest": "/root/$(touch PWNED);x y.bin"})).await;
    let (_, answer) = curl(&["-T", "-"], &minted["url"], Some(b"literal"));
    assert_eq!(answer["bytes"], 7, "{answer}");
    assert_eq!(real.landed("root/$(touch PWNED);x y.bin"), Some(b"literal".to_vec()));
    for place in ["PWNED", "root/PWNED"] {
        assert_eq!(real.landed(place), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_file_is_kept_unless_it_may_be_replaced() {
    let Some(real) = Real::start().await else { return };
    std::fs::write(real.sshd.guest_root(VMID).join("root/here"), "old").unwrap();
    let minted = real.mint(json!({"dest": "/root/here"})).await;
    let (_, answer) = curl(&["-T", "-"], &minted["url"], Some(b"new"));
    assert_eq!(answer["error"]["code"], "dest_exists", "{answer}");
    assert_eq!(real.landed("root/here"), Some(b"old".to_vec()));
    let minted = real.mint(json!({"dest": "/root/here", "overwrite": true, "mode": "0600"})).await;
    let (_, answer) = curl(&["-T", "-"], &minted["url"], Some(b"new"));
    assert_eq!(answer["bytes"], 3, "{answer}");
    assert_eq!(real.landed("root/here"), Some(b"new".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_26_curl_killed_half_way_leaves_nothing() {
    let Some(real) = Real::start().await else { return };
    let minted = real.mint(json!({"dest": "/root/half"})).await;
    let mut child = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "-T", "-"])
        .arg(minted["url"].as_str().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&payload()).unwrap();
    eventually("the upload to have reached the node", || !real.sshd.residue().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the node to be clean", || real.sshd.residue().is_empty());
    let ended = loop {
        let outcome = real.outcome(&minted).await;
        if outcome["state"] != "running" {
            break outcome;
        }
    };
    assert_eq!(ended["state"], "aborted_by_client", "{ended}");
    assert_eq!(real.landed("root/half"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn sh_02_a_node_with_another_host_key_gets_no_link_and_an_alert() {
    let Some(real) = Real::start().await else { return };
    let other = std::fs::read_to_string(real.stage.path("alpha-known-hosts")).unwrap();
    let key = other.lines().next().unwrap().split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let line = format!("[{}]:{} {key}\n", real.sshd.host(), real.sshd.port());
    std::fs::write(real.stage.path("sshd-known-hosts"), line).unwrap();
    let more = real.stage.path("second-state").display().to_string();
    let mut flags = real.stage.command_line(&[]);
    let at = flags.iter().position(|flag| flag.ends_with("/state")).unwrap();
    flags[at] = more.clone();
    let (_program, address) = Program::serve(&flags);
    let agent = real.stage.client(address, "agent");
    let mint = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/x"});
    let refused = agent.call("proxmox_upload_link", mint).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains(&real.sshd.fingerprint()), "{refused}");
    let trail = std::path::Path::new(&more).join("audit.jsonl");
    eventually("the alert", || {
        support::audit_of(&trail).iter().any(|record| record["event"] == "ssh.hostkey_mismatch")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn sh_02_a_host_key_that_changed_after_the_mint_refuses_the_upload() {
    let Some(real) = Real::start().await else { return };
    let minted = real.mint(json!({"dest": "/root/x"})).await;
    let lines = std::fs::read_to_string(real.stage.path("alpha-known-hosts")).unwrap();
    let key = lines.lines().next().unwrap().split_once(' ').unwrap().1;
    let line = format!("[{}]:{} {key}\n", real.sshd.host(), real.sshd.port());
    std::fs::write(real.stage.path("sshd-known-hosts"), line).unwrap();
    real.program.signal(rustix::process::Signal::HUP);
    real.program.log.until("the configuration was read again");
    let (_, answer) = curl(&["-T", "-"], &minted["url"], Some(b"x"));
    assert_eq!(answer["error"]["code"], "host_key", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains(&real.sshd.fingerprint()), "{answer}");
    assert_eq!(real.outcome(&minted).await["code"], "host_key");
    assert_eq!(real.landed("root/x"), None);
    eventually("the alert", || {
        real.stage.audit().iter().any(|record| record["event"] == "ssh.hostkey_mismatch")
    });
}

/// A server that refuses before it has read everything must not drown its answer in a reset connection.
#[tokio::test(flavor = "multi_thread")]
async fn curl_is_told_why_although_it_is_still_sending() {
    let Some(real) = Real::start().await else { return };
    let file = real.stage.path("large");
    std::fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let name = file.display().to_string();
    std::fs::write(real.sshd.guest_root(VMID).join("root/here"), "old").unwrap();
    let ways: [&[&str]; 3] = [
        &["-T", &name],
        &["-H", "Expect:", "-T", &name],
        &["-H", "Expect:", "-H", "Transfer-Encoding: chunked", "-T", &name],
    ];
    for way in ways {
        for turn in 0..5 {
            let minted = real.mint(json!({"dest": "/root/here"})).await;
            let (output, answer) = curl(way, &minted["url"], None);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(answer["error"]["code"], "dest_exists", "{way:?} {turn}: {said} {answer}");
            let (output, answer) = curl(way, &minted["url"], None);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(answer["error"]["code"], "not_found", "{way:?} {turn}: {said} {answer}");
        }
    }
    real.stage.edit_clusters(|file| file["policy"]["transfers"] = json!({"max_mb": 1}));
    real.program.signal(rustix::process::Signal::HUP);
    real.program.log.until("the configuration was read again");
    for way in ways {
        let minted = real.mint(json!({"dest": "/root/new"})).await;
        let (output, answer) = curl(way, &minted["url"], None);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(answer["error"]["code"], "too_large", "{way:?}: {said} {answer}");
    }
    eventually("the node to be clean", || real.sshd.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_mints_and_uploads_over_tls() {
    let Some(real) = Real::start().await else { return };
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(real.stage.dir.path());
    let ca = real.stage.path("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let ca = ca.display().to_string();
    let Real { stage, sshd, program, .. } = real;
    assert_eq!(program.terminate().code, Some(0));
    let (_program, address) = Program::serve(&stage.command_line(&["--tls-cert", &cert, "--tls-key", &key]));
    let call = |tool: &str, arguments: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}});
        let bearer = format!("Authorization: Bearer {}", stage.bearer("agent"));
        let lines =
            ["--cacert", &ca, "-H", &bearer, "-H", "Content-Type: application/json", "--data-binary", "@-"];
        let url = Value::from(format!("https://{address}/mcp"));
        let (output, answer) = curl(&lines, &url, Some(body.to_string().as_bytes()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        answer["result"]["structuredContent"].clone()
    };
    let arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/sealed"});
    let minted = call("proxmox_upload_link", arguments);
    assert!(minted["url"].as_str().unwrap().starts_with(&format!("https://{address}/")), "{minted}");
    // Without trust in the authority curl refuses, and the link is as good as before.
    let (output, _) = curl(&["-T", "-"], &minted["url"], Some(b"x"));
    assert!(!output.status.success());
    let (_, receipt) = curl(&["--cacert", &ca, "-T", "-"], &minted["url"], Some(&payload()));
    assert_eq!(receipt["checksum_verified"], true, "{receipt}");
    assert_eq!(std::fs::read(sshd.guest_root(VMID).join("root/sealed")).unwrap(), payload());
    assert_eq!(call("get_transfer", json!({"link_id": minted["link_id"]}))["state"], "ok");
    // Also to a curl that has much left to send.
    let file = stage.path("large");
    std::fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let name = file.display().to_string();
    for turn in 0..10 {
        let (output, again) = curl(&["--cacert", &ca, "-H", "Expect:", "-T", &name], &minted["url"], None);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(again["error"]["code"], "not_found", "{turn}: {said} {again}");
    }
}

/// Appends every file below a folder.
fn read_all(folder: &std::path::Path, into: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, into);
        } else {
            into.extend(std::fs::read(&path).unwrap());
        }
    }
}

/// Secrets turn up nowhere but in the answer that mints.
#[tokio::test(flavor = "multi_thread")]
async fn ul_32_no_secret_is_in_any_log_answer_or_file() {
    let Some(real) = Real::start().await else { return };
    let mut flags = real.stage.command_line(&[]);
    let at = flags.iter().position(|flag| flag.ends_with("/state")).unwrap();
    let state = real.stage.path("canary-state");
    flags[at] = state.display().to_string();
    let log = real.stage.path("stderr.log");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = flags.iter().position(|flag| flag == "0").unwrap();
    flags[at] = port.port().to_string();
    let mut command = program::command(&flags);
    command.env("RUST_LOG", "trace").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    eventually("the program to listen", || std::net::TcpStream::connect(port).is_ok());
    let agent = real.stage.client(port, "agent");
    let mut seen = Vec::new();
    let mut tokens = Vec::new();
    let dests = [("/root/canary", "200"), ("/root/canary", "409"), ("/nowhere/canary", "409")];
    for (dest, status) in dests {
        let arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": dest});
        let minted = agent.call("proxmox_upload_link", arguments).await.unwrap();
        tokens.push(minted["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned());
        // Redeemed or failed, and then presented again.
        for expected in [status, "404"] {
            let (output, _) = curl(&["-i", "-T", "-"], &minted["url"], Some(b"canary"));
            let answer = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(answer.contains(&format!("HTTP/1.1 {expected} ")), "{dest}: {answer}");
            seen.extend(output.stdout);
        }
        let outcome = agent.call("get_transfer", json!({"link_id": minted["link_id"]})).await.unwrap();
        seen.extend(outcome.to_string().into_bytes());
    }
    for path in ["healthz", "readyz", "metrics"] {
        let (output, _) = curl(&["-i"], &format!("http://{port}/{path}").into(), None);
        seen.extend(output.stdout);
    }
    let _ = rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    );
    child.wait().unwrap();
    let log = std::fs::read(&log).unwrap();
    assert!(String::from_utf8_lossy(&log).contains("TRACE"), "the log is as talkative as it gets");
    seen.extend(log);
    let before = seen.len();
    read_all(&state, &mut seen);
    assert!(seen.len() > before);
    tokens.extend(["agent", "reader", "approver"].map(|name| real.stage.bearer(name).to_owned()));
    tokens.push(real.stage.alpha().token_secret().to_owned());
    tokens.push(real.sshd.client_key_pem().lines().nth(2).unwrap().to_owned());
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("canary"), "what is searched holds what happened");
    for token in tokens {
        assert!(!text.contains(&token), "a secret beginning {:?} turned up", &token[..6]);
    }
    drop(real.program);
}
