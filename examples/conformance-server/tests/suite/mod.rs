//! Runs the pinned conformance suite. Shared with the tests of the product, which include this file.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "shared by two test programs; a test stops at the first surprise"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Node and the suites, as `scripts/setup-node` installs them.
pub struct Node {
    folder: PathBuf,
}

impl Node {
    /// `None` after saying what is missing.
    pub fn find() -> Option<Self> {
        let folder = std::env::var_os("PROXWARD_TEST_NODE").map(PathBuf::from).unwrap_or_else(|| {
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
            // The packages that include this file are one and two folders deep in the workspace.
            let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
            let workspace = manifest.ancestors().find(|folder| folder.join("Cargo.lock").exists()).unwrap();
            workspace.join(target).join("test-node")
        });
        if folder.join("node_modules/.bin/node").exists() {
            return Some(Self { folder });
        }
        println!("skipped: node and the conformance suite are missing; run scripts/setup-node");
        None
    }

    /// Node itself, with the folder where it finds packages as its working directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.folder.join("node_modules/.bin/node"));
        command.current_dir(&self.folder);
        command
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs the suite in `package` against `url`.
    pub fn suite(&self, package: &str, url: &str, arguments: &[&str]) -> Report {
        let out = tempfile::tempdir().unwrap();
        let mut command = self.command();
        command
            .arg(format!("node_modules/{package}/dist/index.js"))
            .args(["server", "--url", url])
            .args(arguments);
        // The old suite writes where it stands.
        command.arg("-o").arg(out.path());
        let output = command.output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let mut checks = Vec::new();
        collect(out.path(), &mut checks);
        Report { passed: output.status.success(), text, checks }
    }
}

/// What a run of the suite found.
pub struct Report {
    /// The suite's own verdict.
    pub passed: bool,
    /// What it printed.
    pub text: String,
    /// Every check it made.
    pub checks: Vec<Value>,
}

impl Report {
    /// Checks that ended in `status`.
    pub fn count(&self, status: &str) -> usize {
        self.checks.iter().filter(|check| check["status"] == status).count()
    }

    /// Checks that ended in `status`, to be read.
    pub fn of(&self, status: &str) -> Vec<String> {
        let of_status = self.checks.iter().filter(|check| check["status"] == status);
        of_status.map(|check| format!("{}: {}", check["id"], check["errorMessage"])).collect()
    }

    /// Scenarios that ran, by the summary's lines.
    pub fn scenarios(&self) -> usize {
        self.text.lines().filter(|line| line.starts_with('✓') || line.starts_with('✗')).count()
    }
}

fn collect(folder: &Path, checks: &mut Vec<Value>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, checks);
        } else if path.file_name().is_some_and(|name| name == "checks.json") {
            let found: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            checks.extend(found);
        }
    }
}
