//! The token file and what a bearer leads to.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use authz::token::edit::{EditError, NewEntry, add_entry};
use authz::{
    ActorKind, Channel, DenialKind, FileProblem, Grant, Lookup, Tier, TierSet, TokenRefusal, TokenTable,
    admit, argon2id_entry, mint_token, sha256_entry,
};
use common::{at, bearer, grant, now, principal, token_file, tool};
use jiff::Timestamp;
use serde_json::json;

fn problems(text: &str) -> Vec<FileProblem> {
    TokenTable::parse(text.as_bytes()).unwrap_err()
}

/// Every problem as `line:column path message`.
fn rendered(text: &str) -> Vec<String> {
    problems(text).iter().map(|p| format!("{}:{} {} {}", p.line, p.column, p.path, p.message)).collect()
}

fn refusal(table: &TokenTable, text: &str, now: Timestamp) -> TokenRefusal {
    match table.lookup(text, now) {
        Lookup::Refused(refusal) => refusal,
        other => panic!("{text}: {other:?}"),
    }
}

fn name_of(found: Lookup) -> String {
    match found {
        Lookup::Principal(principal) => principal.name().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_as_a_map_or_an_array_under_hash_or_digest_reads_alike() {
    let hash = sha256_entry(&bearer(0));
    let map = format!(
        r#"{{"version":1,"tokens":{{"a":{{"hash":"{hash}","tools":["*"],"devices":["pve3"],"comment":"x"}}}}}}"#
    );
    let array = format!(
        r#"{{"version":1,"tokens":[{{"name":"a","digest":"{hash}","tools":["*"],"devices":["pve3"],"provenance":{{"by":[1]}}}}]}}"#
    );
    for text in [map, array] {
        let table = TokenTable::parse(text.as_bytes()).unwrap();
        let principal = table.principal("a").unwrap();
        assert_eq!((principal.name(), principal.person(), principal.actor()), ("a", "a", None));
        assert_eq!(principal.channel(), Channel::Bearer);
        assert_eq!(principal.clusters().to_list(), ["pve3"]);
        assert_eq!(name_of(table.lookup(&bearer(0), now())), "a");
        assert_eq!((table.len(), table.is_empty(), table.principals().count()), (1, false, 1));
        assert_eq!(format!("{table:?}"), r#"TokenTable { names: ["a"], .. }"#);
        assert!(table.principal("A").is_none());
    }
}

#[test]
fn fields_of_the_reference_and_its_family_load() {
    let table = TokenTable::parse(
        token_file(&[
            ("a", json!({"created_at": "2026-01-01T00:00:00Z", "provider": "local", "provider_tier": "private",
                         "on_behalf_of": "dev@example.org", "actor_type": "agent", "person": "dev"})),
            ("b", json!({"expires_at": "2027-01-01T00:00:00Z", "actor_type": "unknown", "grant": null, "id": null})),
            ("c", json!({"expires": "2027-01-01T02:00:00+02:00", "actor_type": "human"})),
        ])
        .as_bytes(),
    )
    .unwrap();
    let of = |name: &str| table.principal(name).unwrap();
    assert_eq!((of("a").actor(), of("a").person()), (Some(ActorKind::Agent), "dev"));
    assert_eq!((of("b").actor(), of("b").expires()), (None, Some(at("2027-01-01T00:00:00Z"))));
    assert_eq!(
        (of("c").actor(), of("c").expires()),
        (Some(ActorKind::Human), Some(at("2027-01-01T00:00:00Z")))
    );
    assert!(of("b").grant().is_none());
    let refused = problems(&token_file(&[("a", json!({"provider": "local", "actor_type": "human"}))]));
    assert!(refused[0].message.contains("cannot have a model `provider`"), "{refused:?}");
    // A binding this server could not honour must not be dropped silently.
    assert!(problems(&token_file(&[("a", json!({"oidc_subject": {}}))]))[0].message.contains("unknown"));
}

#[test]
fn tk_07_every_problem_of_a_file_is_reported_with_its_place() {
    let good = sha256_entry(&bearer(1));
    let text = format!(
        r#"{{
  "version": 2,
  "surprise": true,
  "tokens": {{
    "a": {{"hash": "{good}", "tools": [], "devices": ["*"], "tols": ["*"]}},
    "b\nc": {{"hash": "{good}", "tools": ["*"], "devices": [7], "id": "short"}},
    "d": {{"tools": ["*vm*"], "devices": "*", "grant": {{"guests": ["vmid:9", "tag:a b"], "actions": ["write"]}}}},
    "d": 1,
    "e": {{"hash": "md5:x", "tools": ["*"], "expires": "2027-01-01", "actor_type": "robot", "person": "x\u0007"}}
  }}
}}"#
    );
    assert_eq!(
        rendered(&text),
        [
            "2:14 $.version this server reads version 1".to_owned(),
            "3:15 $.surprise the field `surprise` is unknown; expected one of `version`, `tokens`".to_owned(),
            "5:82 $.tokens.a.tools must name something: a token that reaches nothing is a mistake".to_owned(),
            "5:112 $.tokens.a.tols the field `tols` is unknown; expected one of `hash`, `digest`, `id`, `grant`, \
             `tools`, `devices`, `person`, `actor_type`, `expires`, `expires_at`, `comment`, `created_at`, \
             `provenance`, `provider`, `provider_tier`, `on_behalf_of`"
                .to_owned(),
            r#"6:13 $.tokens["b\u{a}c"] a token's name must not hold control characters"#.to_owned(),
            r#"6:22 $.tokens["b\u{a}c"].hash the entry at $.tokens.a.hash has the same hash; each needs its own"#.to_owned(),
            r#"6:104 $.tokens["b\u{a}c"].devices[0] expected a string, found a number"#.to_owned(),
            r#"6:114 $.tokens["b\u{a}c"].id expected the token's id: 10 characters of a-z and 2-7"#.to_owned(),
            "7:10 $.tokens.d the field `hash` (or `digest`) is missing".to_owned(),
            "7:21 $.tokens.d.tools[0] expected a name (letters, digits, `_`, `-`, `.`) or `*`; patterns are not \
             supported, `*` stands alone"
                .to_owned(),
            "7:41 $.tokens.d.devices expected an array, found a string".to_owned(),
            "7:67 $.tokens.d.grant.guests[0] `vmid:9` is not understood: `vmid:` takes guest numbers from 100 to \
             999999999 in plain digits, `vmid:600` or `vmid:600-699`"
                .to_owned(),
            "7:77 $.tokens.d.grant.guests[1] `tag:a b` is not understood: `tag:` takes one PVE tag (letters, \
             digits, `_`, then also `.`, `+`, `-`)"
                .to_owned(),
            "7:101 $.tokens.d.grant.actions[0] `write` is not understood: expected `read`, `low` or `destructive`"
                .to_owned(),
            "8:5 $.tokens.d the key `d` stands here twice; keep one".to_owned(),
            "9:10 $.tokens.e the field `devices` is missing".to_owned(),
            "9:19 $.tokens.e.hash expected `$argon2id$v=19$m=..,t=..,p=..$salt$hash` or `sha256:` and 43 characters \
             of base64url"
                .to_owned(),
            "9:55 $.tokens.e.expires expected an RFC 3339 time with a zone, as `2026-12-31T23:59:59Z` or with \
             `+02:00`"
                .to_owned(),
            "9:83 $.tokens.e.actor_type expected `human`, `agent` or `unknown`".to_owned(),
            "9:102 $.tokens.e.person a person's name must not hold control characters".to_owned(),
        ]
    );
}

#[test]
fn tk_07_no_entry_has_the_name_of_callers_without_a_token() {
    for name in ["anonymous", "stdio", "Anonymous", "STDIO"] {
        let found = problems(&token_file(&[(name, json!({}))]));
        assert_eq!((found.len(), found[0].path.clone()), (1, format!("$.tokens.{name}")));
        assert!(found[0].message.contains("callers without a token"), "{found:?}");
        let hash = sha256_entry(&bearer(0));
        let array =
            json!({"version": 1, "tokens": [{"name": name, "hash": hash, "tools": ["*"], "devices": ["*"]}]});
        assert_eq!(problems(&array.to_string()).len(), 1, "{name}");
    }
    assert!(TokenTable::parse(token_file(&[("stdio-ops", json!({}))]).as_bytes()).is_ok());
}

#[test]
fn where_a_token_comes_from_is_kept_for_the_audit_and_cannot_mislead() {
    let fields =
        json!({"provider": "local", "provider_tier": "private\u{1b}[2J", "on_behalf_of": "dev@example.org"});
    let provenance = principal("a", fields).provenance().clone();
    assert_eq!(provenance.provider.as_deref(), Some("local"));
    assert_eq!(provenance.provider_tier.as_deref(), Some("private\\u{1b}[2J"));
    assert_eq!(provenance.on_behalf_of.as_deref(), Some("dev@example.org"));
    assert!(!provenance.is_empty() && principal("a", json!({})).provenance().is_empty());
    for (field, value) in [
        ("provider", json!(1)),
        ("provider", json!("ü".repeat(201))),
        ("on_behalf_of", json!(["x"])),
        ("provider_tier", json!({})),
        ("comment", json!(1)),
        ("created_at", json!([])),
    ] {
        let found = problems(&token_file(&[("a", json!({field: value}))]));
        assert_eq!(found[0].path, format!("$.tokens.a.{field}"), "{value}");
    }
    assert!(TokenTable::parse(token_file(&[("a", json!({"provider": "ü".repeat(200)}))]).as_bytes()).is_ok());
}

#[test]
fn tk_07_what_must_be_unique_is() {
    let (one, two) = (sha256_entry(&bearer(1)), sha256_entry(&bearer(2)));
    let entry = |name: &str, hash: &str, id: &str| json!({"name": name, "hash": hash, "id": id, "tools": ["*"], "devices": ["*"]});
    let file = |a, b| json!({"version": 1, "tokens": [a, b]}).to_string();
    for (second, path) in [
        (entry("a", &two, "bbbbbbbbbb"), "$.tokens[1]"),
        (entry("b", &one, "bbbbbbbbbb"), "$.tokens[1].hash"),
        (entry("b", &two, "aaaaaaaaaa"), "$.tokens[1].id"),
    ] {
        let found = problems(&file(entry("a", &one, "aaaaaaaaaa"), second));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].path, path);
        assert!(found[0].message.contains("has the same"), "{found:?}");
    }
    // Two spellings of one field are two fields too many.
    let both = token_file(&[("a", json!({"digest": two}))]);
    assert_eq!(problems(&both)[0].path, "$.tokens.a.digest");
    let both = token_file(&[(
        "a",
        json!({"expires": "2027-01-01T00:00:00Z", "expires_at": "2028-01-01T00:00:00Z"}),
    )]);
    assert_eq!(problems(&both)[0].path, "$.tokens.a.expires_at");
}

#[test]
fn tk_07_names_are_held_to_the_same_rule_in_both_forms() {
    for name in ["", "a b", "a\tb", "a\u{200b}", "\u{202e}a", &"a".repeat(129)] {
        assert!(!problems(&token_file(&[(name, json!({}))])).is_empty(), "{name:?}");
        let array = json!({"version": 1, "tokens": [
            {"name": name, "hash": sha256_entry("x"), "tools": ["*"], "devices": ["*"]}]});
        assert_eq!(problems(&array.to_string())[0].path, "$.tokens[0].name");
        assert!(!problems(&token_file(&[("a", json!({"person": name}))])).is_empty(), "{name:?}");
    }
    assert!(
        TokenTable::parse(token_file(&[("José-2", json!({"person": "José@example.org"}))]).as_bytes())
            .is_ok()
    );
}

#[test]
fn a_grant_carries_both_halves_and_a_missing_scope_is_a_problem() {
    for (fields, path) in [
        (json!({"grant": {"guests": ["*"]}}), "$.tokens.a.grant"),
        (json!({"grant": {"actions": ["read"]}}), "$.tokens.a.grant"),
        (json!({"grant": {"guests": ["*"], "actions": ["read"], "x": 1}}), "$.tokens.a.grant.x"),
        (json!({"grant": ["*"]}), "$.tokens.a.grant"),
        (json!({"tools": null}), "$.tokens.a.tools"),
        (json!({"devices": []}), "$.tokens.a.devices"),
        (json!({"hash": null}), "$.tokens.a.hash"),
        (json!({"tools": ["a b"]}), "$.tokens.a.tools[0]"),
        (json!({"devices": ["pve3 "]}), "$.tokens.a.devices[0]"),
        (json!({"devices": ["*pve"]}), "$.tokens.a.devices[0]"),
        (json!({"comment": 1}), "$.tokens.a.comment"),
    ] {
        let found = problems(&token_file(&[("a", fields.clone())]));
        assert_eq!((found.len(), found[0].path.as_str()), (1, path), "{fields} {found:?}");
    }
    for text in
        ["[]", "1", "{}", r#"{"version":1}"#, r#"{"version":"1","tokens":{}}"#, r#"{"version":1,"tokens":1}"#]
    {
        assert!(!problems(text).is_empty(), "{text}");
    }
    assert!(TokenTable::parse(br#"{"version":1,"tokens":{}}"#).unwrap().is_empty());
}

#[test]
fn tk_05_outlandish_hashes_refuse_the_file() {
    let tail = "c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (head, says) in [
        ("$argon2id$v=19$m=4194304,t=3,p=1", "parameter `m` is 4194304; expected 19456 to 131072"),
        ("$argon2id$v=19$m=19456,t=1000000,p=1", "parameter `t` is 1000000; expected 2 to 10"),
        ("$argon2i$v=19$m=19456,t=2,p=1", "`argon2i` is no hash this server checks"),
        ("$argon2d$v=19$m=19456,t=2,p=1", "`argon2d` is no hash this server checks"),
        ("$argon2id$v=16$m=19456,t=2,p=1", "must say `v=19`"),
        ("$2b$12", "`2b` is no hash this server checks"),
    ] {
        let found = problems(&token_file(&[("a", json!({"hash": format!("{head}${tail}")}))]));
        assert_eq!(found[0].path, "$.tokens.a.hash");
        assert!(found[0].message.contains(says), "{found:?}");
    }
}

#[test]
fn tk_09_a_token_is_refused_from_the_instant_of_its_expiry() {
    let file =
        token_file(&[("a", json!({"expires": "2026-06-01T12:00:00Z", "grant": grant(&["*"], &["read"])}))]);
    let table = TokenTable::parse(file.as_bytes()).unwrap();
    assert_eq!(name_of(table.lookup(&bearer(0), at("2026-06-01T11:59:59Z"))), "a");
    assert_eq!(name_of(table.lookup(&bearer(0), at("2026-06-01T11:59:59.999999999Z"))), "a");
    for late in ["2026-06-01T12:00:00Z", "2026-06-01T12:00:01Z"] {
        assert_eq!(refusal(&table, &bearer(0), at(late)), TokenRefusal::Expired);
    }
    // A principal that was looked up in time and kept is held to the clock all the same.
    let kept = table.principal("a").unwrap();
    assert!(admit(&kept, &tool("get_vms"), None, at("2026-06-01T11:59:59Z")).is_ok());
    let denial = admit(&kept, &tool("get_vms"), None, now()).unwrap_err();
    assert_eq!((denial.kind(), denial.code()), (DenialKind::TokenExpired, "expired"));
    assert!(kept.is_expired(now()) && !kept.is_expired(at("2026-06-01T11:59:59Z")));
}

#[test]
fn tk_03_a_bad_bearer_is_refused_before_any_hash() {
    let table = TokenTable::parse(token_file(&[("a", json!({}))]).as_bytes()).unwrap();
    let good = bearer(0);
    let crc = format!("{}00000000", good.get(..59).unwrap());
    assert_eq!(refusal(&table, &crc, now()), TokenRefusal::BadChecksum);
    for bad in ["", "x", &format!("{good}_x"), &format!("{good}\u{0}"), &"ä".repeat(40), &"a".repeat(65_536)]
    {
        assert_eq!(refusal(&table, bad, now()), TokenRefusal::Malformed, "{bad:?}");
    }
    assert_eq!(refusal(&table, &bearer(9), now()), TokenRefusal::Unknown);
    // One text for all of them; only the audit tells them apart.
    let texts: std::collections::BTreeSet<String> = [
        TokenRefusal::Malformed,
        TokenRefusal::BadChecksum,
        TokenRefusal::Unknown,
        TokenRefusal::WrongSecret,
        TokenRefusal::Expired,
    ]
    .map(|refusal| refusal.to_string())
    .into();
    assert_eq!(texts.len(), 1);
}

#[test]
fn a_bare_secret_matches_a_sha256_entry_and_never_reaches_argon2() {
    let bare = data_encoding::BASE64URL_NOPAD.encode(&[5; 32]);
    let file = token_file(&[("old", json!({"hash": sha256_entry(&bare)}))]);
    let table = TokenTable::parse(file.as_bytes()).unwrap();
    assert_eq!(name_of(table.lookup(&bare, now())), "old");

    let file = token_file(&[("old", json!({"hash": argon2id_entry(&bare, [1; 16]).unwrap()}))]);
    let table = TokenTable::parse(file.as_bytes()).unwrap();
    assert_eq!(refusal(&table, &bare, now()), TokenRefusal::Unknown);
    let warning = &table.warnings()[0];
    assert_eq!(warning.path, "$.tokens.old");
    assert!(warning.message.contains("no `id`") && warning.message.contains("token rotate"), "{warning}");
    // The entry is still a planner's or an approver's name.
    assert!(table.principal("old").is_some());
}

#[test]
fn an_argon2id_entry_is_checked_once_for_its_own_id() {
    let (mine, other) = (mint_token([1; 32], [1; 10]), mint_token([2; 32], [2; 10]));
    let hash = argon2id_entry(&mine.text, [9; 16]).unwrap();
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    let file =
        token_file(&[("slow", json!({"hash": hash, "id": mine.id, "expires": "2026-06-02T00:00:00Z"}))]);
    let table = TokenTable::parse(file.as_bytes()).unwrap();
    assert_eq!(table.warnings(), []);
    let candidate = |text: &str| match table.lookup(text, now()) {
        Lookup::Argon2(candidate) => candidate,
        found => panic!("{found:?}"),
    };
    let found = candidate(&mine.text);
    assert_eq!((found.id(), found.claimed_name()), (mine.id.as_str(), "slow"));
    assert_eq!(
        format!("{found:?}"),
        format!("Argon2Candidate {{ id: {:?}, claimed_name: \"slow\", .. }}", mine.id)
    );
    assert_eq!(found.verify(&mine.text).unwrap().name(), "slow");
    // The right id with another secret costs the one check and fails.
    let forged = mint_token([3; 32], [1; 10]);
    assert_eq!(candidate(&forged.text).verify(&forged.text).unwrap_err(), TokenRefusal::WrongSecret);
    // A candidate is good for its own id only.
    assert_eq!(candidate(&mine.text).verify(&other.text).unwrap_err(), TokenRefusal::WrongSecret);
    assert_eq!(candidate(&mine.text).verify("").unwrap_err(), TokenRefusal::WrongSecret);
    // An unknown id and an expired entry never get as far.
    assert_eq!(refusal(&table, &other.text, now()), TokenRefusal::Unknown);
    assert_eq!(refusal(&table, &mine.text, at("2026-06-02T00:00:00Z")), TokenRefusal::Expired);
}

#[test]
fn the_id_of_a_sha256_entry_tells_a_forgery_from_a_stranger() {
    let mine = mint_token([1; 32], [1; 10]);
    let file = token_file(&[("fast", json!({"hash": sha256_entry(&mine.text), "id": mine.id}))]);
    let table = TokenTable::parse(file.as_bytes()).unwrap();
    assert_eq!(name_of(table.lookup(&mine.text, now())), "fast");
    assert_eq!(refusal(&table, &mint_token([2; 32], [1; 10]).text, now()), TokenRefusal::WrongSecret);
    assert_eq!(refusal(&table, &mint_token([2; 32], [2; 10]).text, now()), TokenRefusal::Unknown);
}

#[test]
fn names_the_server_does_not_have_are_warned_about() {
    let file =
        token_file(&[("a", json!({"tools": ["*", "start_vm", "strat_vm"], "devices": ["pve3", "pve33"]}))]);
    let table = TokenTable::parse(file.as_bytes()).unwrap();
    let found = table.unknown_names(|tool| tool == "start_vm", |cluster| cluster == "pve3");
    let paths: Vec<_> =
        found.iter().map(|warning| (warning.path.as_str(), warning.message.as_str())).collect();
    assert_eq!(
        paths,
        [
            ("$.tokens.a.tools[2]", "`strat_vm` names nothing this server has"),
            ("$.tokens.a.devices[1]", "`pve33` names nothing this server has"),
        ]
    );
}

#[test]
fn the_two_principals_without_a_token_only_read() {
    for (principal, channel) in [
        (authz::Principal::local_reader("stdio"), Channel::Stdio),
        (authz::Principal::anonymous_reader(), Channel::Anonymous),
    ] {
        assert_eq!(principal.channel(), channel);
        for rule in common::registry() {
            assert_eq!(principal.may_use(&rule, now()).is_ok(), rule.tier == Tier::Read, "{}", rule.name);
        }
        assert!(principal.unrestricted_guests() && principal.may_see_cluster("anything"));
        assert!(principal.visible(&common::guest(100)));
    }
    let human = principal("ann", json!({"actor_type": "human", "tools": ["start_vm"]}));
    let local = human.over_stdio();
    assert_eq!((local.channel(), local.actor(), local.name()), (Channel::Stdio, None, "ann"));
    assert_eq!(local.tools(), human.tools());
}

#[test]
fn what_a_principal_may_do_is_described_without_its_hash() {
    let principal = principal(
        "ops",
        json!({"actor_type": "human", "person": "ann", "tools": ["start_vm", "*"], "devices": ["pve3"],
               "expires": "2027-01-01T00:00:00Z", "grant": grant(&["vmid:600-699", "tag:a"], &["low", "read"])}),
    );
    assert_eq!(
        serde_json::to_value(principal.describe()).unwrap(),
        json!({"token": "ops", "person": "ann", "actor_type": "human", "channel": "bearer",
               "expires": "2027-01-01T00:00:00Z", "tools": ["*", "start_vm"], "devices": ["pve3"],
               "grant": {"guests": ["vmid:600-699", "tag:a"], "actions": ["read", "low"]}, "can_approve": true})
    );
    assert!(!principal.over_stdio().describe().can_approve);
}

fn new_entry<'a>(name: &'a str, hash: &'a str, lists: &'a [String]) -> NewEntry<'a> {
    NewEntry {
        name,
        hash,
        id: "abcdefghij",
        grant: None,
        tools: lists,
        devices: lists,
        person: None,
        actor_type: None,
        expires: None,
        provenance: &authz::Provenance::NONE,
    }
}

#[test]
fn adding_an_entry_keeps_every_other_byte() {
    let star = ["*".to_owned()];
    let hash = sha256_entry("new");
    let old = sha256_entry("old");
    let entry = new_entry("new", &hash, &star);
    let text = format!(
        "{{ \"version\":1,\r\n\t\"tokens\" : {{\n\t  \"old\": {{\"hash\":\"{old}\", \"tools\":[ \"*\" ],\n\"devices\":[\"*\"]}}\n\t}}\n}}"
    );
    let edited = add_entry(&text, &entry).unwrap();
    let cut = text.find("\n\t}\n}").unwrap();
    assert!(edited.starts_with(&text[..cut]) && edited.ends_with(&text[cut..]), "{edited}");
    assert!(edited.contains(",\n\t  \"new\": {\n\t    \"hash\": "), "{edited}");
    let table = TokenTable::parse(edited.as_bytes()).unwrap();
    assert_eq!((table.len(), table.principal("new").unwrap().grant()), (2, None));

    let array = format!(
        r#"{{"version":1,"tokens":[{{"name":"old","hash":"{old}","tools":["*"],"devices":["*"]}}]}}"#
    );
    let edited = add_entry(&array, &entry).unwrap();
    assert!(edited.starts_with(array.strip_suffix("]}").unwrap()), "{edited}");
    assert_eq!(TokenTable::parse(edited.as_bytes()).unwrap().len(), 2);
}

#[test]
fn adding_an_entry_to_nothing_writes_a_whole_file() {
    let lists = ["pve3".to_owned(), "b".to_owned()];
    let hash = sha256_entry("new");
    let rights =
        Grant::new(["vmid:600-699".parse().unwrap()], TierSet::EMPTY.with(Tier::Low).with(Tier::Read));
    let entry = NewEntry {
        grant: Some(&rights),
        person: Some("ann"),
        actor_type: Some(ActorKind::Human),
        expires: Some(at("2027-01-01T00:00:00Z")),
        ..new_entry("new", &hash, &lists)
    };
    let edited = add_entry("", &entry).unwrap();
    let expected = format!(
        r#"{{
  "version": 1,
  "tokens": {{
    "new": {{
      "hash": "{hash}",
      "id": "abcdefghij",
      "grant": {{
        "guests": [
          "vmid:600-699"
        ],
        "actions": [
          "read",
          "low"
        ]
      }},
      "tools": [
        "pve3",
        "b"
      ],
      "devices": [
        "pve3",
        "b"
      ],
      "person": "ann",
      "actor_type": "human",
      "expires": "2027-01-01T00:00:00Z"
    }}
  }}
}}
"#
    );
    assert_eq!(edited, expected);
    let empty_array = add_entry("{\"version\": 1, \"tokens\": []}", &entry).unwrap();
    assert_eq!(TokenTable::parse(empty_array.as_bytes()).unwrap().principal("new").unwrap().person(), "ann");
}

#[test]
fn an_edit_that_would_not_load_changes_nothing() {
    let star = ["*".to_owned()];
    let hash = sha256_entry("new");
    let text = add_entry("", &new_entry("a", &hash, &star)).unwrap();
    assert_eq!(add_entry(&text, &new_entry("a", &hash, &star)), Err(EditError::NameTaken("a".into())));
    let other = sha256_entry("other");
    for entry in [
        new_entry("b", &hash, &star),
        new_entry("b", &other, &star),
        new_entry("b\n", &other, &star),
        new_entry("b", "md5:x", &star),
        NewEntry { id: "klmnopqrst", ..new_entry("b", &other, &[]) },
    ] {
        assert!(matches!(add_entry(&text, &entry), Err(EditError::Entry(_))), "{entry:?}");
    }
    assert!(matches!(add_entry("{", &new_entry("b", &other, &star)), Err(EditError::File(_))));
}
