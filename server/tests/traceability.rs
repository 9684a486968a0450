//! Every row of the threat model that is due has a test that carries its id.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::Path;

/// `ul_10_…` and `ul_10` in a function's name.
fn id_in_name(row: &str) -> String {
    row.to_ascii_lowercase().replace('-', "_")
}

fn test_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !matches!(name.as_str(), "target" | "node_modules" | "corpus") {
                test_names(&path, names);
            }
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines() {
                let Some((_, rest)) = line.split_once("fn ") else { continue };
                names.insert(rest.split(['(', '<']).next().unwrap().trim().to_owned());
            }
        }
    }
}

#[test]
fn every_due_row_has_a_test_that_carries_its_id() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut names = BTreeSet::new();
    test_names(root, &mut names);
    let due = std::fs::read_to_string(root.join("docs/threat-rows.txt")).unwrap();
    let rows: Vec<&str> =
        due.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(rows.len() >= 50, "the list of due rows only grows");
    let missing: Vec<&str> = rows
        .into_iter()
        .filter(|row| {
            let id = id_in_name(row);
            let (area, number) = id.split_once('_').unwrap();
            // `ul_18_and_19_…` carries both ids.
            let carries = |name: &str| {
                name.starts_with(&format!("{id}_"))
                    || *name == id
                    || name.contains(&format!("_{id}_"))
                    || (name.starts_with(&format!("{area}_")) && name.contains(&format!("_and_{number}_")))
            };
            !names.iter().any(|name| carries(name))
        })
        .collect();
    assert!(missing.is_empty(), "no test carries {missing:?}");
}
