//! The shape of the workspace, held to what ARCHITECTURE.md promises.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const LEAVES: &[&str] = &["authz", "changeset", "guest-push", "mcp-wire", "proxmox-api", "transfers"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The workspace's packages by name.
fn packages() -> BTreeMap<String, Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    packages.into_iter().map(|package| (package["name"].as_str().unwrap().to_owned(), package)).collect()
}

/// Names of a package's normal and build dependencies.
fn edges(package: &Value) -> Vec<String> {
    let of_use = |dependency: &&Value| dependency["kind"].as_str() != Some("dev");
    let dependencies = package["dependencies"].as_array().unwrap();
    dependencies
        .iter()
        .filter(of_use)
        .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Every Rust file below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.')
                && !matches!(name.as_str(), "target" | "node_modules" | "corpus" | "artifacts")
            {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn leaf_crates_have_no_edge_between_them() {
    let packages = packages();
    for leaf in LEAVES {
        let edges = edges(&packages[*leaf]);
        let inner: Vec<_> = edges.iter().filter(|name| packages.contains_key(*name)).collect();
        assert!(inner.is_empty(), "{leaf} depends on {inner:?}");
    }
}

#[test]
fn the_lab_shares_no_code_with_what_it_tests() {
    let packages = packages();
    let inner: Vec<_> =
        edges(&packages["lab"]).into_iter().filter(|name| packages.contains_key(name)).collect();
    assert!(inner.is_empty(), "lab depends on {inner:?}");
}

#[test]
fn the_conformance_server_is_made_with_mcp_wire_alone() {
    let packages = packages();
    let inner: Vec<_> = edges(&packages["conformance-server"])
        .into_iter()
        .filter(|name| packages.contains_key(name))
        .collect();
    assert_eq!(inner, ["mcp-wire"]);
}

#[test]
fn the_pure_crates_know_no_runtime_clock_or_socket() {
    let packages = packages();
    let io = [
        "tokio",
        "hyper",
        "hyper-util",
        "mio",
        "tracing",
        "log",
        "getrandom",
        "rand",
        "rustix",
        "tempfile",
        "http",
    ];
    for pure in ["authz", "transfers", "changeset"] {
        let package = &packages[pure];
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let in_use = dependency["kind"].as_str() != Some("dev");
            assert!(!(in_use && io.contains(&name)), "{pure} depends on {name}");
        }
    }
}

#[test]
fn the_pure_crates_read_no_clock_file_or_environment() {
    for pure in ["authz/src", "transfers/src", "changeset/src"] {
        let mut files = Vec::new();
        sources(&root().join(pure), &mut files);
        for file in files {
            let durable =
                file.components().any(|part| part.as_os_str() == "sqlite" || part.as_os_str() == "sqlite.rs");
            let tests =
                file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
            if durable || tests {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let uses = [
                "SystemTime",
                "Instant::now",
                "Timestamp::now",
                "std::fs",
                "std::net",
                "std::env",
                "println!",
            ];
            for (number, line) in code.lines().enumerate() {
                let line = line.trim_start();
                if line.starts_with("//") {
                    continue;
                }
                for forbidden in uses {
                    assert!(!line.contains(forbidden), "{}:{}: {forbidden}", file.display(), number + 1);
                }
            }
        }
    }
}

#[test]
fn sc_07_tls_checks_are_replaced_in_one_file_only() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let words =
        ["dangerous(", "danger_accept_invalid", "set_certificate_verifier", "StrictHostKeyChecking=no"];
    for file in files {
        if file.ends_with("proxmox-api/src/tls/leaf_pin.rs") || file.ends_with("server/tests/workspace.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = !line.trim_start().starts_with("//");
            let found = code.then(|| words.iter().find(|word| line.contains(**word))).flatten();
            assert!(found.is_none(), "{}:{}: {}", file.display(), number + 1, found.unwrap());
        }
    }
}

#[test]
fn every_crate_forbids_unsafe_code_and_no_file_is_long() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text.lines().count();
        assert!(lines <= 900, "{} has {lines} lines", file.display());
        let is_root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
        if is_root && !file.starts_with(root().join("fuzz/fuzz_targets")) {
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{} does not forbid unsafe code",
                file.display()
            );
        }
    }
}

/// Features add; none makes a check weaker or changes what happens by default.
#[test]
fn no_feature_is_on_by_default() {
    for (name, package) in packages() {
        let defaults = package["features"]["default"].as_array().cloned().unwrap_or_default();
        assert!(defaults.is_empty(), "{name} turns on {defaults:?}");
    }
}
