//! Faults that servers of this kind have really had; the id before each test is the report's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use authz::{
    ApprovalFacts, DenialKind, GuestFacts, Known, Lookup, Overrides, Protection, Selector, Tier,
    TokenRefusal, TokenTable, WaiverSet, admit, argon2id_entry, decide, decide_approval, mint_token,
    sha256_entry,
};
use common::{at, bearer, grant, guest, now, principal, token_file, tool};
use serde_json::json;

/// F03: an approval, and a permit, is for one guest and one operation. A permit cannot be copied, so it cannot serve twice:
///
/// ```compile_fail
/// fn twice(permit: authz::Permit) -> (authz::Permit, authz::Permit) { (permit.clone(), permit) }
/// ```
#[test]
fn f03_a_permit_is_for_the_guest_and_the_tool_it_was_decided_for() {
    let caller = principal("ops", json!({"tools": ["start_vm"], "grant": grant(&["vmid:101"], &["low"])}));
    let none = WaiverSet::empty();
    let overrides = Overrides { waivers: &none, lab_mode: false };
    let ask = |number: u32| {
        let admitted = admit(&caller, &tool("start_vm"), Some("pve3"), now()).unwrap();
        decide(admitted, &guest(number), "start_vm", "ops", &Protection::default(), &overrides, now())
    };
    let permit = ask(101).unwrap();
    assert_eq!((permit.facts().unwrap().vmid.value(), permit.rule().name), (101, "start_vm"));
    assert_eq!(ask(102).unwrap_err().kind(), DenialKind::GuestOutOfScope);
}

/// F04: whoever plans cannot approve with what it was given: approving takes another person's own token.
#[test]
fn f04_nothing_an_agent_holds_approves() {
    let facts = guest(101);
    let plan = ApprovalFacts {
        planner_name: "agent",
        planner_person: "robin",
        tier: Tier::Destructive,
        facts: &facts,
    };
    let rights = grant(&["*"], &["destructive"]);
    for (name, fields, kind) in [
        ("agent", json!({"grant": rights, "actor_type": "agent"}), DenialKind::ApproverNotHuman),
        (
            "second",
            json!({"grant": rights, "actor_type": "agent", "person": "eve"}),
            DenialKind::ApproverNotHuman,
        ),
        (
            "agent",
            json!({"grant": rights, "actor_type": "human", "person": "eve"}),
            DenialKind::ApproverIsPlanner,
        ),
    ] {
        let denial = decide_approval(&principal(name, fields), &plan, now()).unwrap_err();
        assert_eq!(denial.kind(), kind, "{name}");
    }
}

/// F11: a key that stands twice, also in another spelling, is refused and not resolved.
#[test]
fn f11_a_key_that_stands_twice_is_refused() {
    let hash = sha256_entry(&bearer(0));
    for inner in [
        format!(r#""hash":"{hash}","tools":["get_vms"],"tools":["*"],"devices":["*"]"#),
        format!(r#""hash":"{hash}","tools":["get_vms"],"\u0074ools":["*"],"devices":["*"]"#),
        format!(
            r#""hash":"{hash}","tools":["*"],"devices":["*"],"grant":{{"guests":[],"guests":["*"],"actions":[]}}"#
        ),
    ] {
        let text = format!(r#"{{"version":1,"tokens":{{"a":{{{inner}}}}}}}"#);
        let problems = TokenTable::parse(text.as_bytes()).unwrap_err();
        assert!(problems.iter().any(|problem| problem.message.contains("stands here twice")), "{problems:?}");
    }
}

/// F12: the documented table of who may approve, row by row.
#[test]
fn f12_who_may_approve_follows_the_table() {
    let facts = guest(600);
    let rights = grant(&["*"], &["destructive"]);
    for (token, person, actor, planner_token, planner_person, verdict) in [
        ("ann", "ann", "human", "bob", "bob", None),
        ("ann", "ann", "human", "ann", "ann", Some(DenialKind::ApproverIsPlanner)),
        // One person behind two tokens is one person, however the name is spelt.
        ("ann-2", "ann", "human", "ann-1", "ann", Some(DenialKind::ApproverIsPlanner)),
        ("ann-2", "Ann", "human", "ann-1", "aNN", Some(DenialKind::ApproverIsPlanner)),
        // One token is one person, whatever it calls its person.
        ("ann", "eve", "human", "ann", "ann", Some(DenialKind::ApproverIsPlanner)),
        ("ann", "ann", "agent", "bob", "bob", Some(DenialKind::ApproverNotHuman)),
        ("ann", "ann", "unknown", "bob", "bob", Some(DenialKind::ApproverNotHuman)),
        ("ann", "ann", "agent", "ann", "ann", Some(DenialKind::ApproverNotHuman)),
    ] {
        let approver = principal(token, json!({"person": person, "actor_type": actor, "grant": rights}));
        let plan = ApprovalFacts {
            planner_name: planner_token,
            planner_person,
            tier: Tier::Destructive,
            facts: &facts,
        };
        let found = decide_approval(&approver, &plan, now()).err().map(|denial| denial.kind());
        assert_eq!(found, verdict, "{token}/{person}/{actor} for {planner_token}/{planner_person}");
    }
}

/// F14, F16: of fifty slow entries a wrong bearer reaches at most the one whose public id it names; a look-up itself
/// never runs the slow hash (it would take seconds here).
#[test]
fn tk_02_a_wrong_bearer_reaches_at_most_one_slow_check() {
    let slow = argon2id_entry("x", [1; 16]).unwrap();
    let mut entries: Vec<(String, serde_json::Value)> = (0..50_u8)
        .map(|n| {
            let minted = mint_token([n + 100; 32], [n; 10]);
            let salt = slow.replacen("AQEBAQEBAQEBAQEBAQEBAQ", &format!("{n:02}EBAQEBAQEBAQEBAQEBAQ"), 1);
            (format!("t{n}"), json!({"hash": salt, "id": minted.id}))
        })
        .collect();
    entries.push(("fast".into(), json!({"id": "fastfastfa"})));
    // Ids are of five bits a character: only 32 of the seeds differ.
    entries.retain({
        let mut seen = std::collections::HashSet::new();
        move |(_, entry)| seen.insert(entry["id"].to_string())
    });
    let borrowed: Vec<(&str, serde_json::Value)> =
        entries.iter().map(|(name, entry)| (name.as_str(), entry.clone())).collect();
    let table = TokenTable::parse(token_file(&borrowed).as_bytes()).unwrap();
    let started = std::time::Instant::now();
    for seed in 0..200_u8 {
        let wrong = mint_token([seed; 32], [seed; 10]).text;
        match table.lookup(&wrong, now()) {
            Lookup::Refused(refusal) => assert_eq!(refusal, TokenRefusal::Unknown),
            Lookup::Argon2(candidate) => assert_eq!(wrong.get(4..14), Some(candidate.id())),
            Lookup::Principal(principal) => assert_eq!(wrong.as_str(), bearer(32), "{principal:?}"),
        }
        // Without an id no slow entry is tried at all.
        let bare = wrong.get(15..58).unwrap();
        assert!(matches!(table.lookup(bare, now()), Lookup::Refused(TokenRefusal::Unknown)));
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
}

/// F17: parameters that would take gigabytes are refused when the file is read, with the place.
#[test]
fn tk_05_outlandish_parameters_are_refused_with_their_place() {
    let hash = "$argon2id$v=19$m=4194304,t=30,p=64$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let text = token_file(&[("a", json!({"hash": hash}))]);
    let problems = TokenTable::parse(text.as_bytes()).unwrap_err();
    assert_eq!((problems.len(), problems[0].path.as_str()), (1, "$.tokens.a.hash"));
    assert!(problems[0].message.contains("`m` is 4194304; expected 19456 to 131072"), "{problems:?}");
}

/// F19: length and alphabet are judged before anything is hashed.
#[test]
fn tk_03_megabytes_and_odd_alphabets_are_refused_by_their_form() {
    let table = TokenTable::parse(token_file(&[("a", json!({}))]).as_bytes()).unwrap();
    for text in
        ["a".repeat(5_000_000), "ü".repeat(50_000), String::new(), "\u{0}".repeat(67), "é".repeat(33) + "x"]
    {
        let started = std::time::Instant::now();
        assert!(matches!(table.lookup(&text, now()), Lookup::Refused(TokenRefusal::Malformed)));
        assert!(started.elapsed() < std::time::Duration::from_millis(50), "{} bytes", text.len());
    }
}

/// F22, F23: a file with any fault hands out nothing at all; there is no half-loaded table and no default.
#[test]
fn f22_and_f23_a_faulty_file_is_an_error_and_not_an_empty_policy() {
    let good = token_file(&[("a", json!({}))]);
    for text in [
        String::new(),
        "{}".into(),
        "null".into(),
        "[]".into(),
        good.replace("\"version\":1", "\"version\":\"1\""),
        good.replace("\"tools\"", "\"tool\""),
        good.replace("[\"*\"]", "\"*\""),
        good.replace('}', ""),
        good.replace("\"tokens\"", "\"token\""),
    ] {
        assert!(!TokenTable::parse(text.as_bytes()).unwrap_err().is_empty(), "{text}");
    }
    for text in [
        "",
        "{}",
        "null",
        r#"{"version":1}"#,
        r#"{"version":1,"waivers":{}}"#,
        r#"{"version":1,"waivers":null}"#,
    ] {
        assert!(WaiverSet::parse(text.as_bytes(), |_| true, now()).is_err(), "{text}");
    }
}

/// F25: a pattern is refused when the file is read; it is not a word that silently matches nothing.
#[test]
fn f25_patterns_are_refused() {
    for pattern in ["*delete*", "vm.*.destroy", "**", "[a]", "get_*", "?", ""] {
        for list in ["tools", "devices"] {
            let text = token_file(&[("a", json!({list: [pattern]}))]);
            assert!(TokenTable::parse(text.as_bytes()).is_err(), "{list} {pattern}");
        }
    }
    for selector in ["vmid:6*", "tag:*", "pool:dev*", "tag:[a]", "*:*", "**"] {
        assert!(selector.parse::<Selector>().is_err(), "{selector}");
    }
    // Another case is another name.
    let caller = principal("a", json!({"tools": ["VM.delete", "Start_VM"]}));
    assert_eq!(caller.may_use(&tool("start_vm"), now()).unwrap_err().kind(), DenialKind::ToolOutOfScope);
}

/// F27: whole words only, for numbers, tags, pools, clusters and tools.
#[test]
fn f27_no_word_matches_by_its_beginning() {
    let matches = |selector: &str, facts: &GuestFacts| selector.parse::<Selector>().unwrap().matches(facts);
    for number in [100, 101, 1000, 1010] {
        assert_eq!(matches("vmid:101", &guest(number)), number == 101);
    }
    let pooled = |pool: &str| GuestFacts { pool: Known::Known(Some(pool.into())), ..guest(100) };
    for pool in ["dev", "dev-prod", "de", "dev/a"] {
        assert_eq!(matches("pool:dev", &pooled(pool)), pool == "dev");
    }
    let caller = principal("a", json!({"tools": ["start_vm"], "devices": ["n1"]}));
    assert!(caller.may_see_cluster("n1") && !caller.may_see_cluster("n10") && !caller.may_see_cluster("n"));
    assert!(caller.may_use(&tool("start_vm"), now()).is_ok());
    assert!(caller.may_use(&authz::ToolRule { name: "start_vm2", ..tool("start_vm") }, now()).is_err());
}

/// F29: nothing is a token where nothing is configured, and neither is a part of one.
#[test]
fn f29_nothing_equals_nothing_is_no_way_in() {
    let empty = TokenTable::parse(br#"{"version":1,"tokens":{}}"#).unwrap();
    let table = TokenTable::parse(token_file(&[("a", json!({}))]).as_bytes()).unwrap();
    let right = bearer(0);
    for text in ["", "null", "undefined", &right[..66], &right[1..], &right[..43], &format!("{right}\0")] {
        assert!(matches!(empty.lookup(text, now()), Lookup::Refused(_)), "{text:?}");
        assert!(matches!(table.lookup(text, now()), Lookup::Refused(_)), "{text:?}");
    }
    assert!(matches!(empty.lookup(&right, now()), Lookup::Refused(_)));
    assert!(matches!(table.lookup(&right, now()), Lookup::Principal(_)));
}

/// F31: the boundary is exact, without leeway in either direction.
#[test]
fn tk_09_a_token_works_to_the_last_nanosecond_and_not_at_its_end() {
    let text = token_file(&[("a", json!({"expires": "2026-06-01T12:00:00Z"}))]);
    let table = TokenTable::parse(text.as_bytes()).unwrap();
    for (instant, works) in [
        ("2026-06-01T11:59:59Z", true),
        ("2026-06-01T11:59:59.999999999Z", true),
        ("2026-06-01T12:00:00Z", false),
        ("2026-06-01T12:00:01Z", false),
        ("2026-06-01T11:00:00Z", true),
        ("2026-06-01T13:00:00Z", false),
    ] {
        let found = table.lookup(&bearer(0), at(instant));
        assert_eq!(matches!(found, Lookup::Principal(_)), works, "{instant}");
    }
}
