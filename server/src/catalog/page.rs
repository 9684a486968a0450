//! `docs/tools.md`, made from the catalog and compared with the committed page.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::spec::{Addresses, GuestKinds, Place, ToolSpec};
use super::{AREAS, SCOPES};

const HEAD: &str = "# Tools

Every tool, as `tools/list` describes it. This page is made from the catalog in `server/src/catalog`; a test compares the two and
says how to write it anew.

A token reaches a tool by naming it in `tools`; `*` reaches those marked so. *Sees* says what a token gets that may not read every
guest (its grant lacks `*` or the action `read`): whatever is outside its scope is not there, and not counted. *PVE* names the
privileges that the cluster's own API token needs.

Every list takes `offset`, `limit` (1 to 700) and `fields` (columns to keep), and answers `items`, `total`, `offset`, `limit`,
`has_more`. Its order is stable. A page ends early, with `has_more`, where the answer would exceed 512 KiB. Pages are not a
snapshot: each call reads anew, of guests a listing at most `resource_cache_ttl_secs` old. Columns that PVE does not tell are missing, never 0.
";

/// The whole page.
fn page() -> String {
    let mut out = HEAD.to_owned();
    for (area, tools) in AREAS {
        let _ = write!(out, "\n## {area}\n\n| tool | tier | `*` | sees | PVE |\n|---|---|---|---|---|\n");
        for tool in *tools {
            let link = format!("[`{0}`](#{0})", tool.name());
            let wildcard = if tool.rule.wildcard { "yes" } else { "" };
            let privileges = tool.privileges.join(", ");
            let tier = tool.rule.tier;
            let _ = writeln!(out, "| {link} | {tier} | {wildcard} | {} | {privileges} |", sees(tool));
        }
        for tool in *tools {
            describe(&mut out, tool);
        }
    }
    let _ = write!(
        out,
        "\n## Scopes that are no tools\n\nA token holds them to plan and apply the operation of that name in a change set.\n\n"
    );
    for scope in SCOPES {
        let _ = writeln!(out, "- `{}` ({})", scope.name, scope.tier);
    }
    out
}

/// What a token sees that may not read every guest.
fn sees(tool: &ToolSpec) -> &'static str {
    match tool.addresses {
        Addresses::Nothing => "itself",
        Addresses::Clusters | Addresses::Cluster | Addresses::Node | Addresses::Storage => {
            "what is its guests'"
        }
        Addresses::Whole(Place::Cluster | Place::Node | Place::Storage) => "nothing: refused",
        Addresses::Task => "its guests' tasks",
        Addresses::Guest(GuestKinds::Any) => "its guests",
        Addresses::Guest(GuestKinds::Qemu) => "its QEMU guests",
        Addresses::Guest(GuestKinds::Lxc) => "its LXC guests",
        Addresses::ChangeSet => "its guests' change sets",
        Addresses::Transfer => "its own links",
        Addresses::NewGuest => "a number that no guest has",
    }
}

fn describe(out: &mut String, tool: &ToolSpec) {
    let _ = write!(out, "\n### {}\n\n{}\n", tool.name(), tool.description);
    let input = (tool.input)().unwrap();
    let required: Vec<&str> =
        input["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let arguments = input["properties"].as_object().unwrap();
    if !arguments.is_empty() {
        out.push_str("\n| argument | type | |\n|---|---|---|\n");
    }
    for (name, schema) in arguments {
        let name = if required.contains(&name.as_str()) {
            format!("`{name}`, required")
        } else {
            format!("`{name}`")
        };
        let _ = writeln!(out, "| {name} | {} | {} |", kind(schema), cell(&schema["description"]));
    }
    let output = (tool.output)();
    let properties = output["properties"].as_object().unwrap();
    let items = properties.get("items").and_then(|items| items["items"]["properties"].as_object());
    let of = if items.is_some() { "Each item" } else { "The answer" };
    let _ = write!(out, "\n{of} has:\n\n");
    for (name, schema) in items.unwrap_or(properties) {
        field(out, name, schema);
    }
    const FRAME: &[&str] = &["items", "total", "offset", "limit", "has_more", "skipped"];
    let beside: Vec<_> =
        properties.iter().filter(|(name, _)| items.is_some() && !FRAME.contains(&name.as_str())).collect();
    if !beside.is_empty() {
        out.push_str("\nThe answer also has:\n\n");
    }
    for (name, schema) in beside {
        field(out, name, schema);
    }
}

fn field(out: &mut String, name: &str, schema: &Value) {
    let what = schema["description"].as_str().unwrap_or_default();
    let what = if what.is_empty() { String::new() } else { format!(": {what}") };
    let _ = writeln!(out, "- `{name}` ({}){what}", kind(schema));
}

fn kind(schema: &Value) -> String {
    match schema["type"].as_str().unwrap_or("any") {
        "array" => format!("list of {}", kind(&schema["items"])),
        other => other.to_owned(),
    }
}

fn cell(text: &Value) -> String {
    text.as_str().unwrap_or_default().replace('|', "\\|").replace('\n', " ")
}

#[test]
fn the_page_of_tools_is_the_catalog() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tools.md");
    let page = page();
    if std::env::var_os("PROXWARD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/tools.md is not what the catalog says; write it anew with\n  PROXWARD_WRITE_DOCS=1 cargo test -p proxward --lib \
         the_page_of_tools\nand look at the difference"
    );
}
