//! `docs/dependencies.md` says of every third-party dependency what the manifests say.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspaces: the main one, and the fuzz targets' own.
const MANIFESTS: &[&str] = &["Cargo.toml", "fuzz/Cargo.toml"];

/// A row of the page: version and users, each as they are written.
type Row = (String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn packages() -> Vec<Value> {
    let read = |manifest: &&str| {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"])
            .arg(root().join(manifest))
            .output()
            .unwrap();
        assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        metadata["packages"].as_array().unwrap().clone()
    };
    MANIFESTS.iter().flat_map(read).collect()
}

/// What the manifests say, in the page's spelling.
fn rows_of_manifests() -> BTreeMap<String, Row> {
    let packages = packages();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut users: BTreeMap<String, BTreeMap<String, u8>> = BTreeMap::new();
    for package in &packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = text(&dependency["name"]);
            if own.contains(&name) {
                continue;
            }
            // A crate that is used in more than one way is listed for the strongest.
            let weakness = match (dependency["kind"].as_str(), dependency["optional"] == true) {
                (Some("dev"), _) => 2,
                (_, true) => 1,
                (_, false) => 0,
            };
            versions
                .entry(name.clone())
                .or_default()
                .insert(text(&dependency["req"]).trim_start_matches('^').to_owned());
            let of_crate = users.entry(name).or_default().entry(text(&package["name"])).or_insert(weakness);
            *of_crate = weakness.min(*of_crate);
        }
    }
    let cell = |users: &BTreeMap<String, u8>| {
        let user = |(name, weakness): (&String, &u8)| match weakness {
            0 => name.clone(),
            1 => format!("{name} (optional)"),
            _ => format!("{name} (dev)"),
        };
        users.iter().map(user).collect::<Vec<_>>().join(", ")
    };
    let version = |name: &String| versions[name].iter().cloned().collect::<Vec<_>>().join(" and ");
    users.iter().map(|(name, users)| (name.clone(), (version(name), cell(users)))).collect()
}

/// The rows of the page: the lines of its tables that have four cells and begin with a name in backquotes.
fn rows_of_page() -> BTreeMap<String, Row> {
    let page = std::fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, version, users, why] = cells.as_slice() else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        assert!(!why.is_empty(), "{name} has no reason");
        let row = ((*version).to_owned(), (*users).to_owned());
        assert!(rows.insert(name.to_owned(), row).is_none(), "{name} has two rows");
    }
    rows
}

#[test]
fn every_dependency_has_a_true_row_and_every_row_a_dependency() {
    let (manifests, page) = (rows_of_manifests(), rows_of_page());
    let mut problems = Vec::new();
    for (name, (version, users)) in &manifests {
        match page.get(name) {
            None => problems.push(format!("no row: | `{name}` | {version} | {users} | why |")),
            Some(row) if (&row.0, &row.1) != (version, users) => {
                problems.push(format!("other facts: | `{name}` | {version} | {users} | …"));
            }
            Some(_) => {}
        }
    }
    problems.extend(
        page.keys()
            .filter(|name| !manifests.contains_key(*name))
            .map(|name| format!("`{name}` has a row and no crate names it")),
    );
    assert!(problems.is_empty(), "docs/dependencies.md:\n{}", problems.join("\n"));
}
