//! The lab judges recorded parameters as PVE did: the same ones are accepted, and the refused ones are refused with
//! the same words for the same parameters.
//!
//! What differs is listed with its reason in `tests/data/verdict-differences.json`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use lab::facts::{self, Verdict};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Recorded {
    method: String,
    path: String,
    params: Map<String, Value>,
    ok: bool,
    status: u16,
    errors: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Known {
    request: String,
    why: String,
}

/// Endpoints that the verdicts are about and the lab does not have, with the reason.
const ABSENT: &[(&str, &str)] = &[
    ("/access/acl", "rights come from the lab's file"),
    ("/access/users", "users and tokens come from the lab's file"),
    ("/cluster/backup", "backup jobs are no part of what the lab simulates"),
    ("/nodes/pve1/qemu/100/agent/set-user-password", "no client of the lab sets passwords"),
];

#[test]
fn recorded_parameters_get_the_same_verdicts() {
    let Some(verdicts) = common::shared("pve-9.2-parameter-verdicts.jsonl") else { return };
    let mut found = BTreeMap::new();
    let (mut compared, mut absent) = (0, 0);
    for line in verdicts.lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        if ABSENT.iter().any(|(path, _)| recorded.path.starts_with(path)) {
            absent += 1;
            continue;
        }
        compared += 1;
        if let Some(difference) = difference(&recorded) {
            found.insert(name(&recorded), difference);
        }
    }
    println!("compared {compared} verdicts, {} differ, {absent} concern no endpoint of the lab", found.len());
    assert!(compared >= 590, "only {compared} verdicts concern the lab");
    let known: Vec<Known> = serde_json::from_str(include_str!("data/verdict-differences.json")).unwrap();
    assert!(known.iter().all(|known| !known.why.is_empty()));
    let known: BTreeSet<String> = known.into_iter().map(|known| known.request).collect();
    let new: Vec<_> = found.iter().filter(|(request, _)| !known.contains(*request)).collect();
    let gone: Vec<_> = known.iter().filter(|request| !found.contains_key(*request)).collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}\nlisted and gone: {gone:#?}");
}

/// A line that names a recorded call, with long values cut.
fn name(recorded: &Recorded) -> String {
    let pairs = recorded.params.iter().map(|(key, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key}={}", text.chars().take(80).collect::<String>())
    });
    format!("{} {} {}", recorded.method, recorded.path, pairs.collect::<Vec<_>>().join("&"))
}

/// How the lab's verdict differs, if it does.
fn difference(recorded: &Recorded) -> Option<String> {
    let expected = match (recorded.status, &recorded.errors) {
        (501, _) => Verdict::NotImplemented,
        (_, Some(errors)) if !recorded.ok => Verdict::Refused(errors.clone()),
        _ => Verdict::Accepted,
    };
    let got = facts::judge(&recorded.method, &recorded.path, &recorded.params);
    (got != expected).then(|| format!("{got:?} and not {expected:?}"))
}

/// One call, and the names of the parameters that PVE refuses in it; none of them when there is no such endpoint.
#[derive(Deserialize)]
struct Own {
    call: (String, String, Map<String, Value>),
    refuses: Option<BTreeSet<String>>,
}

/// A smaller set that is always here.
#[test]
fn calls_of_the_own_list_are_judged_as_by_pve() {
    let own: Vec<Own> = serde_json::from_str(include_str!("data/verdicts.json")).unwrap();
    assert!(own.len() > 50);
    for Own { call: (method, path, parameters), refuses } in own {
        let refused = match facts::judge(&method, &path, &parameters) {
            Verdict::NotImplemented => None,
            Verdict::Accepted => Some(BTreeSet::new()),
            Verdict::Refused(errors) => Some(errors.into_keys().collect()),
        };
        assert_eq!(refused, refuses, "{method} {path} {parameters:?}");
    }
}
