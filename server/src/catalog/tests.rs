use std::collections::BTreeSet;

use super::*;

#[test]
fn names_are_unique_short_and_plain() {
    let mut seen = BTreeSet::new();
    for name in scope_names() {
        assert!(seen.insert(name), "{name} twice");
        assert!(
            name.len() <= 40
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{name}"
        );
    }
}

#[test]
fn gr_02_no_wildcard_reaches_a_tool_that_mutates() {
    for spec in all() {
        let reads_secrets = spec.needs_transfers;
        assert_eq!(
            spec.rule.wildcard,
            !spec.mutates() && !reads_secrets || ["get_transfer", "list_transfers"].contains(&spec.name()),
            "{}",
            spec.name()
        );
    }
    for scope in SCOPES {
        assert!(!scope.wildcard, "{}", scope.name);
    }
}

#[test]
fn hints_agree_with_tiers() {
    for spec in all() {
        assert_eq!(spec.hints.read_only, !spec.mutates(), "{}", spec.name());
        assert_eq!(
            spec.hints.destructive,
            spec.rule.interrupts || matches!(spec.rule.tier, authz::Tier::Destructive),
            "{}",
            spec.name()
        );
    }
}

#[test]
fn mc_07_schemas_stay_on_the_common_ground_of_real_clients() {
    for spec in all() {
        let input = (spec.input)().unwrap();
        for schema in [&input, &(spec.output)()] {
            let text = schema.to_string();
            assert_eq!(schema["type"], "object", "{}: {text}", spec.name());
            for refused in ["\"$", "\"type\":[", "Of\":["] {
                assert!(!text.contains(refused), "{}: {refused} in {text}", spec.name());
            }
        }
        assert_eq!(input["additionalProperties"], false, "{}", spec.name());
        assert!(spec.description.len() <= 1024, "{}", spec.name());
    }
}

/// A change of a tool's contract shows up in review: the snapshot holds every definition.
#[test]
fn mc_07_tool_definitions_match_the_committed_snapshot() {
    let definition =
        |spec: &ToolSpec| serde_json::to_value(descriptor(spec, (spec.input)().unwrap()).unwrap()).unwrap();
    let definitions: Vec<Value> = all().map(definition).collect();
    insta::assert_json_snapshot!("tool_definitions", definitions);
}

/// What a model pays for the list before it has asked anything: about four characters a token.
#[test]
fn the_whole_list_stays_cheap() {
    let bytes: usize = all()
        .map(|spec| serde_json::to_string(&descriptor(spec, (spec.input)().unwrap()).unwrap()).unwrap().len())
        .sum();
    assert!(bytes / all().count() <= 1750, "{bytes} bytes for {} tools", all().count());
}
