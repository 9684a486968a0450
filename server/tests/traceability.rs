//! Every row of the threat model that is due has a test that carries its id, and the tests that pages name are there.
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

/// The last cell of a table's row names tests in backticks: those of a file after the file's path, others by name alone.
#[test]
fn every_test_that_a_page_of_promises_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut names = BTreeSet::new();
    test_names(root, &mut names);
    let mut found = 0;
    let mut missing = Vec::new();
    for page in ["docs/transfers-tests.md", "docs/governed-tests.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
            let mut file: Option<String> = None;
            // What stands between backticks is every second piece.
            for word in cell.split('`').skip(1).step_by(2) {
                if word.ends_with(".rs") {
                    let path = root.join(word);
                    file = Some(
                        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{page}: {word}: {e}")),
                    );
                    continue;
                }
                let there = match &file {
                    Some(source) => source.contains(&format!("fn {word}(")),
                    None => names.contains(word),
                };
                if there {
                    found += 1;
                } else {
                    missing.push(format!("{page}: {word}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no such test: {missing:#?}");
    assert!(found >= 200, "{found}: the pages only grow");
}

/// What an operator may find in the trail is on the page about it.
#[test]
fn the_page_of_the_audit_names_every_event() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/audit.md")).unwrap();
    for event in proxward::audit::Event::ALL {
        assert!(page.contains(&format!("`{}`", event.name())), "docs/audit.md lacks {}", event.name());
    }
}
