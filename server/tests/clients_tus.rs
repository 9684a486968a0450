//! A tus client of the protocol's own authors against the real program: a large file, broken off and taken up again.

#[path = "support/program.rs"]
mod program;
#[path = "../../examples/conformance-server/tests/suite/mod.rs"]
mod suite;
mod support;

use std::fs::File;
use std::path::Path;

use program::Program;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use suite::Node;
use support::Stage;

const VMID: u32 = 200;
const PIECE: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn tus_js_client_uploads_is_interrupted_and_resumes() {
    let Some(node) = Node::find() else { return };
    if !node.folder().join("node_modules/tus-js-client").exists() {
        println!("skipped: tus-js-client is missing; run scripts/setup-node");
        return;
    }
    let stage = Stage::new().await;
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let agent = stage.client(address, "agent");
    let data: Vec<u8> =
        (0..2_500_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let file = stage.path("source.bin");
    std::fs::write(&file, &data).unwrap();
    let sum = data_encoding::HEXLOWER.encode(&Sha256::digest(&data));
    let arguments = json!({"cluster": "alpha", "vmid": VMID, "dest": "/root/resumed.bin", "checksum": sum});
    let minted = agent.call("proxmox_upload_link", arguments).await.unwrap();

    let interrupt = 3 * PIECE + PIECE / 2;
    let job = json!({
        "url": minted["url"], "file": file, "size": data.len(), "chunk": PIECE, "interrupt": interrupt,
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/tus.mjs");
    let mut command = node.command();
    command.args(["--input-type=module", "-", &job.to_string()]).stdin(File::open(script).unwrap());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    // Not the link, whose token is spent: a place of its own on the same server.
    let place = seen["where"].as_str().unwrap();
    assert!(place.starts_with(&format!("http://{address}/transfers/tus/")), "{seen}");
    let asked = seen["asked"].as_array().unwrap();
    // It asks how far the upload had come (again while the broken piece is being concluded), and goes on from there.
    let resumed = asked.iter().find(|asked| asked[0] == "HEAD" && asked[1] == 200).unwrap();
    let had = resumed[2].as_u64().unwrap();
    assert!((3 * PIECE..data.len() as u64).contains(&had), "{seen}");
    let pieces: Vec<u64> =
        asked.iter().filter(|asked| asked[0] == "PATCH").map(|asked| asked[2].as_u64().unwrap()).collect();
    assert!(pieces.is_sorted() && pieces[0] > had, "{seen}");
    assert_eq!(pieces.last(), Some(&(data.len() as u64)), "{seen}");

    let landed = stage.alpha().guest_root(VMID).join("root/resumed.bin");
    assert!(std::fs::read(landed).unwrap() == data);
    let outcome = agent.call("get_transfer", json!({"link_id": minted["link_id"]})).await.unwrap();
    assert_eq!((&outcome["state"], &outcome["sha256"]), (&json!("ok"), &json!(sum)), "{outcome}");
    assert_eq!(outcome["checksum_verified"], true, "{outcome}");
    assert_eq!(server.terminate().code, Some(0));
}
