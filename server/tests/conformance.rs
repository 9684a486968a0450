//! The public conformance suite, pinned, against the product: what it has is as the protocol wants it. The suite
//! asks for tools, resources and prompts of its own, which a product does not have; those scenarios are in the
//! files of expected failures beside this test, and one that begins to pass must be taken out of them.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/program.rs"]
mod program;
#[path = "../../examples/conformance-server/tests/suite/mod.rs"]
mod suite;
mod support;

use std::path::Path;

use program::Program;
use suite::Node;
use support::Stage;

async fn holds(revision: &str, scenarios: usize) {
    let Some(node) = Node::find() else { return };
    let stage = Stage::new().await;
    // The suite sends no token, so it sees what an anonymous reader sees.
    let (server, address) = Program::serve(&stage.command_line(&["--allow-no-auth"]));
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conformance/{revision}.yml"));
    let url = format!("http://{address}/mcp");
    let (revision_named, expected) = (revision.to_owned(), expected.display().to_string());
    let run = move || {
        let arguments = ["--requirements", &*revision_named, "--expected-failures", &*expected];
        node.suite("@modelcontextprotocol/conformance", &url, &arguments)
    };
    let report = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(report.passed, "{}", report.text);
    println!("{revision}: {} scenarios, {} checks passed", report.scenarios(), report.count("SUCCESS"));
    assert!(report.scenarios() >= scenarios, "{}", report.text);
    assert_eq!(server.terminate().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_product_keeps_to_revision_2025_11_25() {
    holds("2025-11-25", 33).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_product_keeps_to_revision_2026_07_28() {
    holds("2026-07-28", 50).await;
}
