//! `proxward doctor` and `proxward role`: the real program against a lab.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::Stage;

/// Runs the program in a thread that may block: the lab answers from this one.
async fn proxward(args: Vec<String>) -> (Option<i32>, String, String) {
    let run = move || Command::new(env!("CARGO_BIN_EXE_proxward")).args(args).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

async fn doctor(stage: &Stage, more: &[&str]) -> (Option<i32>, String, String) {
    let mut line = stage.stdio_line(more);
    line[0] = "doctor".to_owned();
    proxward(line).await
}

async fn findings(stage: &Stage, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let (code, out, err) = doctor(stage, &[&["--json"], more].concat()).await;
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let findings = report["findings"].as_array().unwrap().clone();
    let healthy = findings.iter().all(|finding| finding["level"] != "problem");
    assert_eq!(report["healthy"], healthy, "{report:#}");
    assert_eq!(code, Some(if healthy { 0 } else { 1 }), "{report:#}");
    (code, findings)
}

fn of<'a>(findings: &'a [Value], cluster: &str, check: &str) -> Vec<&'a Value> {
    findings.iter().filter(|f| f["cluster"] == cluster && f["check"] == check).collect()
}

fn fixes(finding: &Value) -> String {
    finding["fixes"].as_array().unwrap().iter().map(|fix| format!("{}\n", fix.as_str().unwrap())).collect()
}

/// FU-22: what a fetch may reach has a second net where systemd can hold it, and this says whether.
#[tokio::test(flavor = "multi_thread")]
async fn fu_22_it_says_whether_systemd_holds_the_second_net() {
    let (_, found) = findings(&Stage::new().await, &[]).await;
    let egress: Vec<_> = found.iter().filter(|finding| finding["check"] == "egress").collect();
    assert_eq!(egress.len(), 1, "{found:#?}");
    let text = egress[0]["text"].as_str().unwrap();
    assert!(["ENFORCED: ", "NOT: ", "UNKNOWN: "].iter().any(|word| text.starts_with(word)), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_cluster_is_found_sound_and_what_is_away_is_named() {
    let stage = Stage::new().await;
    let (code, found) = findings(&stage, &[]).await;
    assert_eq!(code, Some(0));
    for cluster in ["alpha", "beta"] {
        for check in ["tls", "clock", "version", "privileges"] {
            let about = of(&found, cluster, check);
            assert_eq!(about.len(), 1, "{cluster} {check}: {found:#?}");
            assert_eq!(about[0]["level"], "ok", "{about:#?}");
        }
    }
    let tls = of(&found, "alpha", "tls")[0]["text"].as_str().unwrap();
    assert!(tls.contains("SHA-256 is "), "{tls}");
    let nodes = of(&found, "alpha", "nodes")[0];
    assert_eq!(nodes["level"], "warning");
    assert!(nodes["text"].as_str().unwrap().contains("pve3"), "{nodes}");
    let ssh = of(&found, "alpha", "ssh");
    assert!(
        ssh.iter().any(|f| f["level"] == "ok" && f["text"].as_str().unwrap().starts_with("pve1")),
        "{ssh:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_trusted_is_shown_with_the_line_that_pins_it() {
    let stage = Stage::new().await;
    // The other cluster's authority is a real one, and the wrong one.
    stage.edit_clusters(|file| {
        file["devices"]["alpha"]["ca_pem_path"] = file["devices"]["beta"]["ca_pem_path"].clone();
    });
    let (code, found) = findings(&stage, &["--cluster", "alpha"]).await;
    assert_eq!(code, Some(1));
    let tls = of(&found, "alpha", "tls")[0];
    assert_eq!(tls["level"], "problem");
    let advice = fixes(tls);
    let pin = advice.lines().find_map(|line| line.split_once("\"tls_fingerprint\": \"")).unwrap().1;
    let pin = pin.trim_end_matches('"').to_owned();
    // What it says works when it is done.
    stage.edit_clusters(|file| {
        file["devices"]["alpha"].as_object_mut().unwrap().remove("ca_pem_path");
        file["devices"]["alpha"]["tls_fingerprint"] = json!(pin);
    });
    let (code, found) = findings(&stage, &["--cluster", "alpha"]).await;
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(found.iter().all(|finding| finding["cluster"] != "beta"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_and_an_endpoint_that_is_away_are_told_apart() {
    let stage = Stage::new().await;
    let secret = stage.path("wrong-secret");
    std::fs::write(&secret, "00000000-0000-4000-8000-000000000000").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let nowhere = {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("https://{}", taken.local_addr().unwrap())
    };
    stage.edit_clusters(|file| {
        file["devices"]["alpha"]["token_secret_file"] = json!("wrong-secret");
        let beta = file["devices"]["beta"].as_object_mut().unwrap();
        let first = beta.remove("endpoint").unwrap();
        beta.insert("endpoints".to_owned(), json!([nowhere, first]));
    });
    let (code, found) = findings(&stage, &[]).await;
    assert_eq!(code, Some(1));
    let token = of(&found, "alpha", "token")[0];
    assert_eq!(token["level"], "problem");
    assert!(fixes(token).contains("pveum user token list "), "{token}");
    assert!(!token.to_string().contains("00000000-0000"), "the secret was printed");
    let reach = of(&found, "beta", "reach")[0];
    assert!(reach["text"].as_str().unwrap().contains(&nowhere), "{reach}");
    // The other endpoint answers, so the rest is still looked at.
    assert_eq!(of(&found, "beta", "privileges").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_key_that_is_not_known_is_shown_with_its_fingerprint() {
    let stage = Stage::new().await;
    // The keys of the other cluster's node, for its own address.
    stage.edit_clusters(|file| {
        file["devices"]["alpha"]["ssh"]["known_hosts_file"] =
            file["devices"]["beta"]["ssh"]["known_hosts_file"].clone();
    });
    let (code, found) = findings(&stage, &["--cluster", "alpha"]).await;
    assert_eq!(code, Some(1));
    let shut: Vec<_> = of(&found, "alpha", "ssh").into_iter().filter(|f| f["level"] == "problem").collect();
    assert!(!shut.is_empty(), "{found:#?}");
    assert!(fixes(shut[0]).contains("SHA256:") && fixes(shut[0]).contains("ssh-keyscan -p "), "{shut:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_loaded_is_exit_78_and_a_wrong_name_lists_the_right_ones() {
    let stage = Stage::new().await;
    let (code, _, err) = doctor(&stage, &["--cluster", "gamma"]).await;
    assert_eq!(code, Some(78));
    assert!(err.contains("alpha, beta"), "{err}");
    std::fs::write(stage.path("clusters.json"), "{").unwrap();
    let (code, out, err) = doctor(&stage, &[]).await;
    assert_eq!((code, out.as_str()), (Some(78), ""), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_is_for_the_tools_that_are_named() {
    let role = |more: &[&str]| {
        proxward(std::iter::once("role").chain(more.iter().copied()).map(str::to_owned).collect())
    };
    let (code, all, _) = role(&[]).await;
    assert_eq!(code, Some(0));
    let line = all.lines().find(|line| line.starts_with("pveum role add ")).unwrap();
    assert!(line.contains("VM.Audit") && line.contains("VM.PowerMgmt"), "{line}");
    for expected in ["pveum user add proxward@pve", "pveum acl modify / --users proxward@pve", "--privsep 0"]
    {
        assert!(all.contains(expected), "{all}");
    }
    let (_, one, _) = role(&["--tools", "start_vm", "--name", "Starter", "--token", "bot@pve!x"]).await;
    assert!(one.contains("pveum role add Starter --privs \"VM.PowerMgmt\"\n"), "{one}");
    assert!(one.contains("pveum user token add bot@pve x --privsep 0"), "{one}");
    let (_, table, _) = role(&["--table"]).await;
    assert!(
        table.lines().any(|line| line.starts_with("VM.PowerMgmt ") && line.contains("start_vm")),
        "{table}"
    );
    let (_, text, _) = role(&["--json", "--tools", "read"]).await;
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(value["privileges"].as_array().unwrap().iter().any(|p| p["privilege"] == "VM.Audit"), "{value}");
    let (code, _, err) = role(&["--tools", "no_such_tool"]).await;
    assert_eq!(code, Some(2));
    assert!(err.contains("no_such_tool"), "{err}");
    let (code, _, err) = role(&["--token", "root; rm@pve!x"]).await;
    assert_eq!(code, Some(2), "{err}");
}
