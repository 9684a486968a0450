//! The official Python SDK against the real program: over HTTP, HTTPS and stdio, in each way of speaking the SDK knows.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/program.rs"]
mod program;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use certificates::Authority;
use program::Program;
use serde_json::{Value, json};
use support::Stage;

/// A mode of the SDK's client, the revision it must end up with, and a guest that is planned away in it.
const MODES: [(&str, &str, u32); 3] =
    [("auto", "2026-07-28", 104), ("legacy", "2025-11-25", 201), ("2026-07-28", "2026-07-28", 105)];

/// The interpreter with the SDK; `None` after saying what is missing.
fn python() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PROXWARD_TEST_PYTHON") {
        return Some(named.into());
    }
    // Where scripts/setup-python puts it.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let venv = std::env::var_os("PROXWARD_TEST_VENV").map_or_else(|| target.join("test-venv"), PathBuf::from);
    let python = workspace.join(venv).join("bin/python");
    if !python.exists() {
        println!("skipped: python mcp 2.3.0 is missing");
        return None;
    }
    Some(python)
}

/// What a client saw in one mode.
fn run(python: &Path, job: &Value, environment: &[(&str, &Path)]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sdk.py");
    let mut command = Command::new(python);
    command.arg(script).arg(job.to_string()).env_remove("SSL_CERT_FILE");
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {log}", job["mode"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every read, with arguments that it answers.
async fn every_read_of(
    stage: &Stage,
    address: std::net::SocketAddr,
    planned: (&str, u32),
) -> Vec<(&'static str, Value)> {
    let (reader, agent) = (stage.client(address, "reader"), stage.client(address, "agent"));
    support::reads::every_read(&reader, &agent, planned).await
}

/// Makes the guests that `MODES` plans away plannable.
async fn stage() -> Stage {
    let stage = Stage::new().await;
    stage.alpha().stop(105).unwrap();
    stage
}

/// The parts of the job that do not depend on the transport.
fn job(mode: &str, stopped: u32) -> Value {
    json!({"mode": mode, "vmid": 200, "dest": format!("/root/sdk-{mode}.bin"), "stopped": stopped})
}

/// Holds what a client saw against what is true.
fn check(stage: &Stage, mode: &str, revision: &str, stopped: u32, scheme: &str, seen: &Value) {
    assert_eq!(seen["protocol"], revision, "{mode}: {seen}");
    if mode != "2026-07-28" {
        assert_eq!(seen["server"], "proxward", "{mode}");
        assert!(seen["instructions"].as_str().unwrap().contains("Proxmox VE"), "{mode}");
    }
    let tools = seen["tools"].as_object().unwrap();
    let expected: Vec<_> = support::AGENT_TOOLS
        .iter()
        .filter(|name| !["delete_vm", "delete_container"].contains(name))
        .collect();
    assert_eq!(tools.len(), expected.len(), "{mode}: {tools:?}");
    for name in expected {
        let writes = proxward::catalog::all().any(|spec| spec.name() == *name && spec.mutates());
        assert_eq!(tools[*name], !writes, "{mode}: {name}");
    }
    assert_eq!(
        (&seen["more_tools"], &seen["resources"], &seen["prompts"]),
        (&Value::Null, &0.into(), &0.into())
    );

    assert_eq!(seen["nodes"]["total"], 3, "{mode}");
    assert_eq!(
        seen["vms"]["items"],
        json!([{"vmid": 100, "name": "web"}, {"vmid": 101, "name": "db"}]),
        "{mode}"
    );
    assert_eq!(seen["vms"]["has_more"], true, "{mode}");
    assert_eq!(
        (&seen["status"]["vmid"], &seen["status"]["status"]),
        (&100.into(), &"running".into()),
        "{mode}"
    );
    assert_eq!(seen["protected"]["code"], "protected", "{mode}");
    assert_eq!(seen["absent"]["message"], "authorization failed", "{mode}");
    assert_eq!(
        (&seen["misspelt"]["code"], &seen["misspelt"]["field"]),
        (&"invalid_argument".into(), &"nodes".into())
    );
    assert_eq!(seen["unknown_tool"], -32602, "{mode}");

    assert_eq!(seen["scheme"], scheme, "{mode}");
    assert_eq!(seen["receipt"]["sha256"], seen["sent"], "{mode}");
    assert_eq!(seen["receipt"]["verified_at"], "guest", "{mode}");
    assert_eq!(
        (&seen["transfer"]["state"], &seen["transfer"]["sha256"]),
        (&"ok".into(), &seen["sent"]),
        "{mode}"
    );
    let landed = std::fs::read(stage.alpha().guest_root(200).join(format!("root/sdk-{mode}.bin"))).unwrap();
    assert_eq!(landed.len(), 256 * 1024, "{mode}");
    assert_eq!(seen["plan"]["state"], "planned", "{mode}");
    assert!(seen["plan"]["preview"].as_str().unwrap().contains(&stopped.to_string()), "{mode}");
    assert!(stage.alpha().guest_exists(stopped), "{mode}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_works_over_http() {
    let Some(python) = python() else { return };
    let stage = stage().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    // Its own guest: the other ones are planned away by the clients.
    let reads = every_read_of(&stage, address, ("beta", 102)).await;
    for (mode, revision, stopped) in MODES {
        let mut job = job(mode, stopped);
        job["url"] = format!("http://{address}/mcp").into();
        job["bearer"] = stage.bearer("agent").into();
        job["reader"] = stage.bearer("reader").into();
        job["reads"] = serde_json::to_value(&reads).unwrap();
        let seen = run(&python, &job, &[]);
        check(&stage, mode, revision, stopped, "http", &seen);
        let answers = seen["reads"].as_object().unwrap();
        assert_eq!(answers.len(), reads.len(), "{mode}");
        for (tool, answer) in answers {
            assert!(answer.as_object().is_some_and(|answer| !answer.is_empty()), "{mode} {tool}: {answer}");
        }
    }
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_works_over_https_with_an_authority_of_its_own() {
    let Some(python) = python() else { return };
    let stage = stage().await;
    let authority = Authority::new();
    let [cert, key] = authority.write_server_files(stage.dir.path());
    let ca = stage.path("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let flags = ["--tls-cert", &cert, "--tls-key", &key];
    let (server, address) = Program::serve(&stage.command_line(&flags));
    for (mode, revision, stopped) in MODES {
        let mut job = job(mode, stopped);
        job["url"] = format!("https://{address}/mcp").into();
        job["bearer"] = stage.bearer("agent").into();
        let seen = run(&python, &job, &[("SSL_CERT_FILE", &ca)]);
        check(&stage, mode, revision, stopped, "https", &seen);
    }
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_works_over_stdio() {
    let Some(python) = python() else { return };
    let stage = stage().await;
    let flags = ["--stdio-principal", "agent", "--transfer-listen", "127.0.0.1:0"];
    for (mode, revision, stopped) in MODES {
        let mut job = job(mode, stopped);
        job["command"] = env!("CARGO_BIN_EXE_proxward").into();
        job["args"] = stage.stdio_line(&flags).into();
        check(&stage, mode, revision, stopped, "http", &run(&python, &job, &[]));
    }
    proxward::audit::verify(&stage.path("state/audit.jsonl")).unwrap();
}
