//! Edits of a token file: the entry changes, every other byte stays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use authz::token::edit::{EditError, Rotation, ScopeChange, Widening, revoke, rotate, set_scopes, widenings};
use authz::{Grant, Lookup, Selector, StoredAs, Tier, TierSet, TokenTable, mint_token, sha256_entry};
use common::{at, bearer, grant, now, principal};
use serde_json::{Value, json};

/// A file in the operator's own hand: comments in fields, odd spacing, both spellings of a hash.
fn file() -> String {
    let (a, b, c) = (sha256_entry(&bearer(1)), sha256_entry(&bearer(2)), sha256_entry(&bearer(3)));
    format!(
        r#"{{ "version":1,
  "tokens" : {{
	"alpha": {{"hash": "{a}", "id":"aaaaaaaaaa", "tools":[ "*" ],
	   "devices":["*"], "comment": "keep  me"}},
    "beta" : {{
      "digest": "{b}",
      "tools": ["*", "start_vm"], "devices": ["pve3"],
      "grant": {{"guests": ["vmid:600-699"], "actions": ["read"]}},
      "expires_at": "2026-01-01T00:00:00Z", "id": null
    }},
    "gamma": {{"hash": "{c}", "tools": ["get_vms"], "devices": ["pve3"], "provenance": {{"x": [1, 2]}}}}
  }}
}}
"#
    )
}

/// The same entries as an array on one line.
fn array() -> String {
    let file: Value = serde_json::from_str(&file()).unwrap();
    let entries: Vec<Value> = file["tokens"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, entry)| {
            let mut entry = entry.clone();
            entry["name"] = json!(name);
            entry
        })
        .collect();
    json!({"version": 1, "tokens": entries}).to_string()
}

fn table(text: &str) -> TokenTable {
    TokenTable::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
}

/// Everybody but `name` is who they were.
fn others_are_unchanged(before: &str, after: &str, name: &str) {
    let (before, after) = (table(before), table(after));
    for principal in before.principals().filter(|principal| principal.name() != name) {
        assert_eq!(after.principal(principal.name()).as_deref(), Some(&**principal));
        assert_eq!(after.stored(principal.name()), before.stored(principal.name()));
    }
}

#[test]
fn a_rotated_token_has_another_secret_and_the_same_rights() {
    let minted = mint_token([9; 32], [9; 10]);
    let hash = sha256_entry(&minted.text);
    for text in [file(), array()] {
        for name in ["alpha", "beta", "gamma"] {
            let rotation =
                Rotation { hash: &hash, id: &minted.id, expires: Some(at("2027-01-01T00:00:00Z")) };
            let edited = rotate(&text, name, &rotation).unwrap();
            others_are_unchanged(&text, &edited, name);
            let (before, after) = (table(&text), table(&edited));
            let Lookup::Principal(found) = after.lookup(&minted.text, now()) else { panic!("{edited}") };
            assert_eq!(found.name(), name);
            assert_eq!(found.expires(), Some(at("2027-01-01T00:00:00Z")));
            let was = before.principal(name).unwrap();
            assert_eq!(
                (found.tools(), found.clusters(), found.grant()),
                (was.tools(), was.clusters(), was.grant())
            );
            for old in 1..4 {
                let gone = !matches!(after.lookup(&bearer(old), now()), Lookup::Principal(_));
                let was_expired = matches!(before.lookup(&bearer(old), now()), Lookup::Refused(_));
                assert_eq!(gone, was_expired || ["alpha", "beta", "gamma"][usize::from(old) - 1] == name);
            }
            let stored = StoredAs { hash: "sha256", id: Some(minted.id.clone()) };
            assert_eq!(after.stored(name), Some(&stored));
        }
    }
    // Only the two values change, when the entry has them.
    let edited = rotate(&file(), "alpha", &Rotation { hash: &hash, id: &minted.id, expires: None }).unwrap();
    let expected = file().replace(&sha256_entry(&bearer(1)), &hash).replace("aaaaaaaaaa", &minted.id);
    assert_eq!(edited, expected);
    // A null is filled in where it stands, and an entry keeps its spelling of `expires`.
    let rotation = Rotation { hash: &hash, id: &minted.id, expires: Some(at("2027-01-01T00:00:00Z")) };
    let edited = rotate(&file(), "beta", &rotation).unwrap();
    let line = format!(r#"      "expires_at": "2027-01-01T00:00:00Z", "id": "{}""#, minted.id);
    assert!(edited.contains(&line), "{edited}");
    // Of two spellings the one that says something.
    let both = file().replace(r#""expires_at""#, r#""expires": null, "expires_at""#);
    let edited = rotate(&both, "beta", &rotation).unwrap();
    assert!(edited.contains(r#""expires": null, "expires_at": "2027-01-01T00:00:00Z""#), "{edited}");
}

#[test]
fn a_revoked_entry_is_gone_and_the_rest_keeps_its_bytes() {
    let text = file();
    for (name, from, to) in [
        ("alpha", "\"alpha\": {", "\"beta\" :"),
        ("beta", ",\n    \"beta\" :", ",\n    \"gamma\""),
        ("gamma", ",\n    \"gamma\"", "\n  }\n}\n"),
    ] {
        let edited = revoke(&text, name).unwrap();
        others_are_unchanged(&text, &edited, name);
        assert_eq!((table(&edited).len(), table(&edited).principal(name)), (2, None));
        let (from, to) = (text.find(from).unwrap(), text.find(to).unwrap());
        assert_eq!(edited, format!("{}{}", &text[..from], &text[to..]), "{name}");
    }
    // The last one leaves a file without entries.
    for text in [file(), array()] {
        let mut text = text;
        for name in ["beta", "alpha", "gamma"] {
            text = revoke(&text, name).unwrap();
            assert_eq!(table(&text).principal(name), None);
        }
        assert!(table(&text).is_empty());
    }
}

#[test]
fn scopes_change_in_place_and_a_grant_as_a_whole() {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (tools, devices) = (words(&["get_vms"]), words(&["*", "pve4"]));
    let rights = Grant::new([Selector::Any, "tag:a".parse().unwrap()], TierSet::EMPTY.with(Tier::Low));
    for text in [file(), array()] {
        for name in ["alpha", "beta", "gamma"] {
            let change = ScopeChange { devices: Some(&devices), tools: Some(&tools), grant: Some(&rights) };
            let edited = set_scopes(&text, name, &change).unwrap();
            others_are_unchanged(&text, &edited, name);
            let (was, is) = (table(&text).principal(name).unwrap(), table(&edited).principal(name).unwrap());
            assert_eq!(is.tools().to_list(), ["get_vms"]);
            assert_eq!(is.clusters().to_list(), ["*", "pve4"]);
            assert_eq!(is.grant(), Some(&rights));
            assert_eq!((is.expires(), is.person(), is.actor()), (was.expires(), was.person(), was.actor()));
            assert_eq!(table(&edited).stored(name), table(&text).stored(name), "the secret stays");

            let tools_only =
                set_scopes(&text, name, &ScopeChange { tools: Some(&tools), ..Default::default() });
            let is = table(&tools_only.unwrap()).principal(name).unwrap();
            assert_eq!((is.clusters(), is.grant()), (was.clusters(), was.grant()), "omitted is unchanged");
            assert_eq!(set_scopes(&text, name, &ScopeChange::default()).unwrap(), text);
        }
    }
    let edited =
        set_scopes(&file(), "gamma", &ScopeChange { grant: Some(&rights), ..Default::default() }).unwrap();
    assert!(
        edited.contains("\"provenance\": {\"x\": [1, 2]},\n    \"grant\": {\n      \"guests\": [\n"),
        "{edited}"
    );
}

#[test]
fn an_edit_that_cannot_be_made_changes_nothing_and_says_why() {
    let hash = sha256_entry(&bearer(2));
    let rotation = Rotation { hash: &hash, id: "bbbbbbbbbb", expires: None };
    for name in ["Alpha", "", "nobody", "version"] {
        assert_eq!(revoke(&file(), name), Err(EditError::NoSuchEntry(name.into())));
        assert_eq!(rotate(&file(), name, &rotation), Err(EditError::NoSuchEntry(name.into())));
    }
    let error = revoke(&file(), "a\u{1b}b").unwrap_err().to_string();
    assert!(error.contains("a\\u{1b}b") && error.contains("token list"), "{error}");
    for text in ["", "{}", "{\"version\": 2, \"tokens\": {}}"] {
        assert!(matches!(revoke(text, "alpha"), Err(EditError::File(_))), "{text}");
    }
    // Another entry has this hash.
    assert!(matches!(rotate(&file(), "alpha", &rotation), Err(EditError::Entry(_))));
    // An empty list reaches nothing and does not load.
    let change = ScopeChange { tools: Some(&[]), ..Default::default() };
    assert!(matches!(set_scopes(&file(), "alpha", &change), Err(EditError::Entry(_))));
}

fn wider(before: Value, after: Value) -> Vec<String> {
    let reaches = |name: &str| name.starts_with("get_");
    let found = widenings(&principal("a", before), &principal("a", after), reaches);
    found.iter().map(Widening::to_string).collect()
}

#[test]
fn tk_11_only_what_adds_a_right_is_a_widening() {
    let scopes = |tools: Value, devices: Value| json!({"tools": tools, "devices": devices});
    for (before, after, added) in [
        (
            scopes(json!(["*", "start_vm"]), json!(["*"])),
            scopes(json!(["get_vms"]), json!(["pve3"])),
            &[][..],
        ),
        (
            scopes(json!(["get_vms"]), json!(["pve3"])),
            scopes(json!(["*"]), json!(["*"])),
            &["tool `*`", "cluster `*`"],
        ),
        // A wildcard never reached what changes something, so naming it is new.
        (
            scopes(json!(["*"]), json!(["*"])),
            scopes(json!(["*", "start_vm", "get_vms"]), json!(["*"])),
            &["tool `start_vm`"],
        ),
        (
            scopes(json!(["a"]), json!(["pve3"])),
            scopes(json!(["a"]), json!(["pve3", "pve4"])),
            &["cluster `pve4`"],
        ),
        (scopes(json!(["a", "b"]), json!(["pve3", "*"])), scopes(json!(["b"]), json!(["pve3", "pve4"])), &[]),
    ] {
        assert_eq!(wider(before.clone(), after.clone()), added, "{before} {after}");
    }
    let of = |guests: &[&str], actions: &[&str]| json!({"grant": grant(guests, actions)});
    for (before, after, added) in [
        (of(&["vmid:600-699"], &["read", "low"]), of(&["vmid:600", "vmid:650-699"], &["read"]), &[][..]),
        (of(&["vmid:600-699"], &["read"]), of(&["vmid:600-700"], &["read"]), &["guests `vmid:600-700`"]),
        (of(&["vmid:600-699"], &["read"]), of(&["vmid:599-600"], &["read"]), &["guests `vmid:599-600`"]),
        (of(&["vmid:650-699", "vmid:600-649"], &["read"]), of(&["vmid:610-690"], &["read"]), &[]),
        (
            of(&["vmid:600-640", "vmid:650-699"], &["read"]),
            of(&["vmid:610-690"], &["read"]),
            &["guests `vmid:610-690`"],
        ),
        (of(&["vmid:600-699", "vmid:620-630"], &["read"]), of(&["vmid:625-690"], &["read"]), &[]),
        (of(&["*"], &["read"]), of(&["vmid:1000", "tag:x", "pool:y"], &["read"]), &[]),
        (of(&["vmid:100-999999999"], &["read"]), of(&["*"], &["read"]), &["guests `*`"]),
        (of(&["tag:a"], &["read"]), of(&["tag:a", "tag:A"], &["low"]), &["guests `tag:A`", "action `low`"]),
        (of(&["*"], &["destructive"]), of(&["*"], &["read"]), &["action `read`"]),
        (of(&["*"], &["read"]), of(&[], &["read", "low"]), &[]),
        (of(&["*"], &["read"]), of(&["*"], &[]), &[]),
        (of(&[], &["read"]), of(&["tag:a"], &["read"]), &["guests `tag:a`", "action `read`"]),
        (json!({"grant": null}), of(&["tag:a"], &["read"]), &["guests `tag:a`", "action `read`"]),
        (of(&["*"], &["read"]), json!({"grant": null}), &[]),
    ] {
        assert_eq!(wider(before.clone(), after.clone()), added, "{before} {after}");
    }
}
