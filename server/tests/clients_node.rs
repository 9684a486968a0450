//! The official TypeScript SDKs, the current one and the one before, against the real program: over HTTP and stdio, in each way
//! of speaking they know.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/program.rs"]
mod program;
#[path = "../../examples/conformance-server/tests/suite/mod.rs"]
mod suite;
mod support;

use std::fs::File;
use std::path::Path;

use program::Program;
use serde_json::{Value, json};
use suite::Node;
use support::Stage;

/// An SDK, a mode of its client, and the revision it must end up with, where the client tells it.
const MODES: [(u8, &str, Option<&str>); 4] = [
    (1, "", Some("2025-11-25")),
    (2, "legacy", Some("2025-11-25")),
    (2, "auto", Some("2026-07-28")),
    (2, "2026-07-28", Some("2026-07-28")),
];

/// What a client saw.
fn run(node: &Node, job: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sdk.mjs");
    let mut command = node.command();
    command.args(["--input-type=module", "-", &job.to_string()]).stdin(File::open(script).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{job}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Holds what a client saw against what is true.
fn check(job: &Value, revision: Option<&str>, seen: &Value) {
    if !seen["protocol"].is_null() {
        assert_eq!(seen["protocol"].as_str(), revision, "{job}");
    }
    let tools: Vec<&str> = seen["tools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for tool in ["get_nodes", "get_guest_status", "plan_proxmox_destroy", "proxmox_upload_link"] {
        assert!(tools.contains(&tool), "{job}: {tools:?}");
    }
    assert_eq!((&seen["resources"], &seen["prompts"]), (&0.into(), &0.into()), "{job}");
    assert_eq!(seen["nodes"]["total"], 3, "{job}");
    assert_eq!(seen["text"], seen["nodes"], "{job}");
    assert_eq!(
        (&seen["status"]["vmid"], &seen["status"]["status"]),
        (&100.into(), &"running".into()),
        "{job}"
    );
    assert_eq!(seen["refused"], json!({"is_error": true, "message": "authorization failed"}), "{job}");
    assert_eq!(seen["unknown"], -32602, "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_sdks_work_over_http() {
    let Some(node) = Node::find() else { return };
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    for (sdk, mode, revision) in MODES {
        let job = json!({"sdk": sdk, "mode": mode, "url": format!("http://{address}/mcp"), "bearer": stage.bearer("agent")});
        check(&job, revision, &run(&node, &job));
    }
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_sdks_work_over_stdio() {
    let Some(node) = Node::find() else { return };
    let stage = Stage::new().await;
    let flags = ["--stdio-principal", "agent", "--transfer-listen", "127.0.0.1:0"];
    for (sdk, mode, revision) in MODES {
        let line = stage.stdio_line(&flags);
        let job = json!({"sdk": sdk, "mode": mode, "command": env!("CARGO_BIN_EXE_proxward"), "args": line});
        check(&job, revision, &run(&node, &job));
    }
}
