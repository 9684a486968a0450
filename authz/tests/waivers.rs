//! The waiver file, and when a waiver counts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use authz::{FileProblem, WaiverSet, Warning};
use common::{at, now, vmid};
use jiff::Timestamp;
use serde_json::{Value, json};

fn known_op(op: &str) -> bool {
    ["destroy_guest", "stop_vm", "rollback_snapshot"].contains(&op)
}

fn parse(text: &str) -> Result<(WaiverSet, Vec<Warning>), Vec<FileProblem>> {
    WaiverSet::parse(text.as_bytes(), known_op, now())
}

/// A file with one complete waiver, changed by `fields`; `null` takes a field out.
fn file(fields: Value) -> String {
    let mut waiver = json!({"cluster": "pve3", "vmid": 905, "until": "2026-06-30T00:00:00Z", "reason": "decommission",
                            "ops": ["destroy_guest"]});
    for (key, value) in fields.as_object().unwrap() {
        match value {
            Value::Null => waiver.as_object_mut().unwrap().remove(key),
            value => waiver.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    json!({"version": 1, "waivers": [waiver]}).to_string()
}

fn finds(set: &WaiverSet, op: &str, planner: &str, now: Timestamp) -> bool {
    set.find("pve3", vmid(905), op, planner, now).is_some()
}

#[test]
fn the_reference_example_loads_and_matches() {
    let text = r#"{
      "version": 1,
      "waivers": [
        {"cluster": "pve3", "vmid": 905, "until": "2026-06-30T23:59:59Z", "reason": "decommission per CHG-1234",
         "ticket": "CHG-1234", "ops": ["destroy_guest"], "principal": "ops-token"}
      ]
    }"#;
    let (set, warnings) = parse(text).unwrap();
    assert_eq!(warnings, []);
    let waiver = set.find("pve3", vmid(905), "destroy_guest", "ops-token", now()).unwrap();
    assert_eq!(
        (waiver.cluster(), waiver.vmid(), waiver.until()),
        ("pve3", vmid(905), at("2026-06-30T23:59:59Z"))
    );
    assert_eq!((waiver.reason(), waiver.ticket()), ("decommission per CHG-1234", Some("CHG-1234")));
    assert_eq!(
        (waiver.ops().collect::<Vec<_>>(), waiver.principal()),
        (vec!["destroy_guest"], Some("ops-token"))
    );
    assert_eq!(set.iter().count(), 1);
    for (cluster, number, op, planner) in [
        ("pve4", 905, "destroy_guest", "ops-token"),
        ("PVE3", 905, "destroy_guest", "ops-token"),
        ("pve3", 906, "destroy_guest", "ops-token"),
        ("pve3", 905, "destroy_gues", "ops-token"),
        ("pve3", 905, "stop_vm", "ops-token"),
        ("pve3", 905, "destroy_guest", "other-token"),
        ("pve3", 905, "destroy_guest", "OPS-TOKEN"),
        ("pve3", 905, "destroy_guest", ""),
    ] {
        assert!(
            set.find(cluster, vmid(number), op, planner, now()).is_none(),
            "{cluster} {number} {op} {planner}"
        );
    }
    assert_eq!(WaiverSet::empty().find("pve3", vmid(905), "destroy_guest", "ops-token", now()), None);
}

#[test]
fn pw_04_ops_must_name_something_and_a_misspelt_one_matches_nothing() {
    for (fields, path) in [
        (json!({"ops": null}), "$.waivers[0]"),
        (json!({"ops": []}), "$.waivers[0].ops"),
        (json!({"ops": "destroy_guest"}), "$.waivers[0].ops"),
        (json!({"ops": [1]}), "$.waivers[0].ops[0]"),
    ] {
        let problems = parse(&file(fields.clone())).unwrap_err();
        assert_eq!((problems.len(), problems[0].path.as_str()), (1, path), "{fields}");
    }
    let (set, warnings) = parse(&file(json!({"ops": ["destory_guest", "stop_vm"]}))).unwrap();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].path, "$.waivers[0].ops[0]");
    assert_eq!(warnings[0].message, "`destory_guest` is no operation of this server: it matches nothing");
    assert!(!finds(&set, "destroy_guest", "x", now()) && finds(&set, "stop_vm", "x", now()));
}

#[test]
fn pw_05_a_waiver_counts_until_the_very_instant_and_its_end_carries_a_zone() {
    let (set, warnings) = parse(&file(json!({"until": "2026-06-01T14:00:01+02:00"}))).unwrap();
    assert_eq!(warnings, []);
    for (now, counts) in [
        ("2026-06-01T12:00:00Z", true),
        ("2026-06-01T12:00:00.999999999Z", true),
        ("2026-06-01T12:00:01Z", false),
        ("2026-06-01T12:00:02Z", false),
    ] {
        assert_eq!(finds(&set, "destroy_guest", "x", at(now)), counts, "{now}");
    }
    for until in
        ["2026-06-30T00:00:00", "2026-02-30T00:00:00Z", "2026-06-30", "tomorrow", "9999-12-31T23:59:59Z", ""]
    {
        let problems = parse(&file(json!({"until": until}))).unwrap_err();
        assert_eq!(problems[0].path, "$.waivers[0].until", "{until}");
    }
    assert!(parse(&file(json!({"until": 1_780_000_000}))).is_err());
    // Exactly 90 days is fine; a second more, and an end that has passed, are worth a word.
    for (until, warning) in [
        ("2026-08-30T12:00:00Z", None),
        ("2026-08-30T12:00:01Z", Some("more than 90 days")),
        ("9999-12-30T00:00:00Z", Some("more than 90 days")),
        ("2026-06-01T12:00:00Z", Some("has expired")),
        ("2026-06-01T12:00:01Z", None),
    ] {
        let (_, warnings) = parse(&file(json!({"until": until}))).unwrap();
        assert_eq!(warnings.len(), usize::from(warning.is_some()), "{until}");
        assert!(warning.is_none_or(|text| warnings[0].message.contains(text)), "{until} {warnings:?}");
    }
}

#[test]
fn pw_12_a_reason_is_capped_and_escaped_when_it_is_loaded() {
    let (set, _) = parse(&file(json!({"reason": "a\nb\u{1b}[31m \u{202e}x", "ticket": "T\r1"}))).unwrap();
    let waiver = set.iter().next().unwrap();
    assert_eq!((waiver.reason(), waiver.ticket()), ("a\\u{a}b\\u{1b}[31m \\u{202e}x", Some("T\\u{d}1")));
    assert!(parse(&file(json!({"reason": "ü".repeat(500)}))).is_ok());
    for reason in ["ü".repeat(501), "x".repeat(64 * 1024), String::new(), " \n".into()] {
        assert_eq!(parse(&file(json!({"reason": reason}))).unwrap_err()[0].path, "$.waivers[0].reason");
    }
    assert!(parse(&file(json!({"ticket": "x".repeat(501)}))).is_err());
}

#[test]
fn every_problem_of_a_file_is_reported_and_a_faulty_field_never_widens_a_waiver() {
    let text = r#"{"version": 1, "waivers": [
  {"cluster": "pve 3", "vmid": "905", "until": "x", "reason": 1, "ticket": [], "ops": [], "principal": "a b", "z": 0},
  {"vmid": 99, "vmid": 905},
  7
], "waivers": []}"#;
    let problems = parse(text).unwrap_err();
    let places: Vec<_> = problems.iter().map(|p| format!("{}:{} {}", p.line, p.column, p.path)).collect();
    assert_eq!(
        places,
        [
            "2:15 $.waivers[0].cluster",
            "2:32 $.waivers[0].vmid",
            "2:48 $.waivers[0].until",
            "2:63 $.waivers[0].reason",
            "2:76 $.waivers[0].ticket",
            "2:87 $.waivers[0].ops",
            "2:104 $.waivers[0].principal",
            "2:116 $.waivers[0].z",
            "3:3 $.waivers[1]",
            "3:3 $.waivers[1]",
            "3:3 $.waivers[1]",
            "3:3 $.waivers[1]",
            "3:12 $.waivers[1].vmid",
            "3:16 $.waivers[1].vmid",
            "4:3 $.waivers[2]",
            "5:4 $.waivers",
        ]
    );
    for (fields, path) in [
        (json!({"principal": 1}), "$.waivers[0].principal"),
        (json!({"principal": ""}), "$.waivers[0].principal"),
        (json!({"vmid": 905.5}), "$.waivers[0].vmid"),
        (json!({"vmid": 9_050_000_000_u64}), "$.waivers[0].vmid"),
        (json!({"cluster": "*"}), "$.waivers[0].cluster"),
        (json!({"reason": null}), "$.waivers[0]"),
    ] {
        assert_eq!(parse(&file(fields.clone())).unwrap_err()[0].path, path, "{fields}");
    }
    for text in
        ["", "[]", "{}", r#"{"version":1}"#, r#"{"version":2,"waivers":[]}"#, r#"{"version":1,"waivers":{}}"#]
    {
        assert!(parse(text).is_err(), "{text}");
    }
    assert_eq!(parse(r#"{"version":1,"waivers":[]}"#).unwrap().0, WaiverSet::empty());
}

#[test]
fn gr_17_which_of_two_waivers_is_used_does_not_depend_on_their_order() {
    let waiver = |until: &str, reason: &str| json!({"cluster": "pve3", "vmid": 905, "until": until, "reason": reason, "ops": ["stop_vm"]});
    let (early, late) = (waiver("2026-06-10T00:00:00Z", "early"), waiver("2026-06-20T00:00:00Z", "late"));
    for waivers in [json!([early, late]), json!([late, early]), json!([late, early, late])] {
        let (set, _) = parse(&json!({"version": 1, "waivers": waivers}).to_string()).unwrap();
        let reason =
            |now: &str| set.find("pve3", vmid(905), "stop_vm", "x", at(now)).map(|w| w.reason().to_owned());
        assert_eq!(reason("2026-06-05T00:00:00Z").as_deref(), Some("late"));
        assert_eq!(reason("2026-06-15T00:00:00Z").as_deref(), Some("late"));
        assert_eq!(reason("2026-06-25T00:00:00Z"), None);
    }
}
