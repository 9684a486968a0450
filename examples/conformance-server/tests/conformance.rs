//! The public conformance suite, pinned, against this server: nothing fails and nothing is warned of.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod suite;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use suite::Node;

const NEW: &str = "@modelcontextprotocol/conformance";
const OLD: &str = "conformance-0.1";

/// The server in a process of its own, killed when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-server"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs one set of scenarios and holds it against what it is known to consist of: a suite that ran nothing
/// passes too.
fn passes(package: &str, arguments: &[&str], scenarios: usize, checks: usize) {
    let Some(node) = Node::find() else { return };
    let server = Server::start();
    let report = node.suite(package, &server.url, arguments);
    assert!(report.passed, "{}", report.text);
    assert_eq!(report.of("FAILURE"), [""; 0]);
    assert_eq!(report.of("WARNING"), [""; 0]);
    println!("{} scenarios, {} checks", report.scenarios(), report.count("SUCCESS"));
    assert!(report.scenarios() >= scenarios, "{}", report.text);
    assert!(report.count("SUCCESS") >= checks, "{} checks:\n{}", report.count("SUCCESS"), report.text);
}

#[test]
fn revision_2025_11_25_is_served_in_full() {
    passes(NEW, &["--requirements", "2025-11-25"], 33, 83);
}

#[test]
fn revision_2026_07_28_is_served_in_full() {
    passes(NEW, &["--requirements", "2026-07-28"], 50, 196);
}

#[test]
fn every_scenario_there_is_passes() {
    passes(NEW, &["--suite", "all"], 65, 233);
}

#[test]
fn the_suite_before_passes() {
    passes(OLD, &["--suite", "active"], 30, 39);
    passes(OLD, &["--suite", "all"], 32, 46);
}
