//! The configuration that the lab writes for a server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::{Lab, LabConfig};
use serde_json::Value;

fn assert_private(dir: &Path) {
    assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
}

#[tokio::test]
async fn every_written_file_is_private_and_every_named_file_exists() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("etc");
    let lab = Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap();
    let path = lab.write_config(&dir).unwrap();
    assert_eq!(lab.write_config(&dir).unwrap(), path, "a second time replaces the files");
    assert_private(&dir);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let alpha = &written["devices"]["alpha"];
    let cluster = lab.cluster("alpha");
    assert_eq!(alpha["endpoint"], cluster.endpoint());
    let text = |value: &Value| std::fs::read_to_string(value.as_str().unwrap()).unwrap();
    assert_eq!(text(&alpha["token_secret_file"]), cluster.token_secret());
    assert_eq!(text(&alpha["ca_pem_path"]), cluster.ca_pem());
    assert_eq!(text(&alpha["ssh"]["key_file"]), cluster.client_key_pem());
    assert_eq!(text(&alpha["ssh"]["known_hosts_file"]).lines().count(), 2);
    assert!(alpha["ssh"]["nodes"]["pve1"]["port"].is_u64());
    assert!(alpha["ssh"]["nodes"].get("pve3").is_none());
}

#[tokio::test]
async fn no_secret_is_in_any_debug_text() {
    let lab = Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap();
    let text = format!("{lab:?}");
    for cluster in lab.clusters() {
        assert!(!text.contains(cluster.token_secret()));
        assert!(!text.contains("PRIVATE KEY"));
    }
}

#[test]
fn the_program_tells_where_everything_is_and_stops_when_it_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("out");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .arg("--out")
        .arg(&dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if lines.last().unwrap() == "stop with Ctrl-C" {
            break;
        }
    }
    assert!(lines.iter().any(|line| line.starts_with("alpha: https://127.0.0.1:")), "{lines:?}");
    assert_private(&dir);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}
