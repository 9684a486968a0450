//! Runs the shared decision cases of `tests/cases/*.json`; their format is in `tests/cases/README.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use authz::{
    Denial, GuestFacts, GuestKind, Known, Lift, Overrides, Permit, Protection, ToolRule, Vmid, WaiverSet,
    admit, decide, decide_new_guest,
};
use common::{at, principal};
use serde_json::{Value, json};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn vmid(value: &Value) -> Vmid {
    Vmid::new(u32::try_from(value.as_u64().unwrap()).unwrap()).unwrap()
}

fn known<T>(value: &Value, read: impl FnOnce(&Value) -> T) -> Known<T> {
    if value == "unreadable" { Known::Unreadable } else { Known::Known(read(value)) }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|item| text(item).to_owned()).collect()
}

fn rule(value: &Value) -> ToolRule {
    ToolRule {
        // Cases are few; their rule names may live as long as the test.
        name: Box::leak(text(&value["name"]).to_owned().into_boxed_str()),
        tier: text(&value["tier"]).parse().unwrap(),
        interrupts: value["interrupts"].as_bool().unwrap(),
        writes_guest: value["writes_guest"].as_bool().unwrap(),
        wildcard: value["wildcard"].as_bool().unwrap(),
    }
}

fn guest(value: &Value) -> GuestFacts {
    GuestFacts {
        cluster: text(&value["cluster"]).to_owned(),
        vmid: vmid(&value["vmid"]),
        kind: if value["kind"] == "lxc" { GuestKind::Lxc } else { GuestKind::Qemu },
        name: None,
        tags: known(&value["tags"], strings),
        pool: known(&value["pool"], |pool| pool.as_str().map(str::to_owned)),
        protection: known(&value["protection"], |flag| flag.as_bool().unwrap()),
    }
}

fn run(case: &Value) -> Result<Permit, Denial> {
    let now = at(text(&case["now"]));
    let principal = principal("caller", case["token"].clone());
    let rule = rule(&case["rule"]);
    let protection = Protection::new(
        case["protection"]["vmids"].as_array().unwrap().iter().map(vmid),
        strings(&case["protection"]["tags"]),
    )
    .unwrap();
    let waivers = case.get("waivers").cloned().unwrap_or(json!([]));
    let waivers = json!({"version": 1, "waivers": waivers}).to_string();
    let (waivers, _) = WaiverSet::parse(waivers.as_bytes(), |_| true, now).unwrap();
    let overrides =
        Overrides { waivers: &waivers, lab_mode: case.get("lab_mode").is_some_and(|flag| flag == true) };
    let op = case.get("op").map_or(rule.name, text);
    let planner = case.get("planner").map_or("caller", text);
    let cluster = text(case.get("cluster").unwrap_or(&case["guest"]["cluster"]));
    let admitted = admit(&principal, &rule, Some(cluster), now)?;
    match case.get("guest") {
        Some(facts) => decide(admitted, &guest(facts), op, planner, &protection, &overrides, now),
        None => decide_new_guest(admitted, cluster, vmid(&case["new_vmid"]), &protection, now),
    }
}

fn outcome(result: &Result<Permit, Denial>) -> Value {
    match result {
        Ok(permit) => json!({"allow": true, "lift": match permit.lift() {
            None => Value::Null,
            Some(Lift::Waiver(_)) => json!("waiver"),
            Some(Lift::LabMode) => json!("lab_mode"),
        }}),
        Err(denial) => json!({"deny": denial.kind()}),
    }
}

#[test]
fn every_shared_case_comes_out_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut names = BTreeSet::new();
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "json")) {
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for case in &cases {
            let name = format!("{}: {}", file.file_stem().unwrap().display(), text(&case["name"]));
            assert_eq!(outcome(&run(case)), case["expect"], "{name}");
            assert!(names.insert(name.clone()), "two cases are called {name}");
        }
    }
    assert!(names.len() > 100, "only {} cases were found", names.len());
}
