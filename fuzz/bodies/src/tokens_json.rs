//! `authz`: a token file loads as what it says, or not at all.

use authz::token::edit::{EditError, NewEntry, Rotation, ScopeChange, add_entry, revoke, rotate, set_scopes};
use authz::{
    ActorKind, FileProblem, Grant, Lookup, Principal, Selector, Tier, TierSet, TokenTable, sha256_entry,
};
use jiff::Timestamp;

use crate::json::Json;

/// A token whose entries the corpus holds, so that look-ups also succeed.
pub const KNOWN_TOKEN: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE";

/// Any bytes as `tokens.json`.
pub fn tokens_json(data: &[u8]) {
    let table = match TokenTable::parse(data) {
        Ok(table) => table,
        Err(problems) => return check_problems(&problems),
    };
    let file = Json::parse(data).expect("a file that loads is JSON");
    assert!(!file.repeats_a_key(), "a key stands twice and the file loads");
    let entries = entries(&file);
    assert_eq!(table.len(), entries.len(), "one principal for each entry");
    for (name, entry) in &entries {
        check_entry(&table.principal(name).expect("an entry has its principal"), name, entry);
    }
    check_lookups(&table, &file, &entries);
    if let Ok(text) = std::str::from_utf8(data) {
        check_edit(&table, text);
    }
}

pub(crate) fn check_problems(problems: &[FileProblem]) {
    assert!(!problems.is_empty() && problems.len() <= authz::json::MAX_FINDINGS + 1);
    for problem in problems {
        assert!(problem.line > 0 && problem.column > 0 && problem.path.starts_with('$'), "{problem:?}");
        assert!(!problem.message.is_empty());
        assert!(!problem.to_string().chars().any(char::is_control), "{problem:?} can move the cursor");
    }
}

/// `tokens` as an object of entries under their names, or as an array of entries with `name`.
fn entries(file: &Json) -> Vec<(String, &Json)> {
    match file.get("tokens") {
        Some(Json::Object(members)) => members.iter().map(|(name, entry)| (name.clone(), entry)).collect(),
        Some(Json::Array(items)) => items
            .iter()
            .map(|entry| (entry.get("name").and_then(Json::text).expect("a name").to_owned(), entry))
            .collect(),
        other => panic!("a file without tokens loads: {other:?}"),
    }
}

fn check_entry(principal: &Principal, name: &str, entry: &Json) {
    assert_eq!(principal.name(), name);
    assert_eq!(principal.person(), entry.get("person").map_or(name, |person| person.text().unwrap()));
    let actor = match entry.get("actor_type").map(|actor| actor.text().unwrap()) {
        Some("human") => Some(ActorKind::Human),
        Some("agent") => Some(ActorKind::Agent),
        Some("unknown") | None => None,
        Some(other) => panic!("{other} is no kind of actor"),
    };
    assert_eq!(principal.actor(), actor);
    assert_eq!(principal.expires(), expires(entry));
    for (scope, list) in [(principal.tools(), "tools"), (principal.clusters(), "devices")] {
        let words = entry.texts(list).expect("a scope is a list of texts");
        assert!(!words.is_empty(), "an empty {list} loads");
        assert_eq!(scope.is_any(), words.contains(&"*"));
        assert!(words.iter().all(|word| *word == "*" || scope.names(word)));
    }
    let grant = entry.get("grant");
    assert_eq!(principal.grant().is_some(), grant.is_some(), "a grant appears or vanishes");
    assert_eq!(principal.unrestricted_guests(), {
        let read = grant.is_some_and(|grant| grant.texts("actions").unwrap().contains(&"read"));
        read && grant.is_some_and(|grant| grant.texts("guests").unwrap().contains(&"*"))
    });
    if let (Some(grant), Some(words)) = (principal.grant(), grant) {
        assert_eq!(grant.guests().len(), words.texts("guests").unwrap().len());
        for tier in authz::Tier::ALL {
            assert_eq!(grant.actions().holds(tier), words.texts("actions").unwrap().contains(&tier.as_str()));
        }
    }
}

fn expires(entry: &Json) -> Option<Timestamp> {
    let text = entry.get("expires").or_else(|| entry.get("expires_at"))?.text().expect("a text");
    Some(text.parse().expect("a time that loads is one"))
}

/// The known token finds exactly the entry that holds its hash; no other text of the file is a token.
fn check_lookups(table: &TokenTable, file: &Json, entries: &[(String, &Json)]) {
    let now: Timestamp = "2026-11-30T00:00:00Z".parse().expect("a time");
    let hash = sha256_entry(KNOWN_TOKEN);
    let holder = entries.iter().find(|(_, entry)| {
        let field = entry.get("hash").or_else(|| entry.get("digest"));
        field.and_then(Json::text) == Some(&*hash)
    });
    match (table.lookup(KNOWN_TOKEN, now), holder) {
        (Lookup::Principal(principal), Some((name, entry))) => {
            assert_eq!(principal.name(), name);
            assert!(expires(entry).is_none_or(|expires| now < expires), "an expired token works");
        }
        (Lookup::Refused(_), Some((_, entry))) => {
            assert!(expires(entry).is_some_and(|expires| expires <= now), "a valid token is refused");
        }
        (Lookup::Refused(_), None) => {}
        (found, holder) => panic!("{found:?} for {holder:?}"),
    }
    let mut texts = Vec::new();
    file.all_texts(&mut texts);
    for text in texts.iter().filter(|text| **text != KNOWN_TOKEN).take(50) {
        assert!(!matches!(table.lookup(text, now), Lookup::Principal(_)), "a text of the file is a bearer");
    }
}

/// An added entry changes no other.
fn check_edit(table: &TokenTable, text: &str) {
    let list = |word: &str| vec![word.to_owned()];
    let (tools, devices) = (list("proxmox_list_vms"), list("alpha"));
    let hash = sha256_entry("pxw_added");
    let entry = NewEntry {
        name: "added-by-the-fuzzer",
        hash: &hash,
        id: "zzzzzzz777",
        grant: None,
        tools: &tools,
        devices: &devices,
        person: None,
        actor_type: None,
        expires: None,
        provenance: &authz::Provenance::NONE,
    };
    match add_entry(text, &entry) {
        Ok(edited) => {
            let after = TokenTable::parse(edited.as_bytes()).expect("the edited file loads");
            assert_eq!(after.len(), table.len() + 1);
            for before in table.principals() {
                let after = after.principal(before.name()).expect("still there");
                assert_eq!(before.describe(), after.describe());
            }
            assert!(after.principal(entry.name).is_some_and(|added| added.grant().is_none()));
        }
        Err(EditError::NameTaken(_)) => assert!(table.principal(entry.name).is_some()),
        // Its id or its hash is in the file already.
        Err(EditError::Entry(_)) => assert!(text.contains(entry.id) || text.contains(&hash), "{text}"),
        Err(EditError::File(problems)) => panic!("the file loaded before: {problems:?}"),
        Err(EditError::NoSuchEntry(name)) => panic!("{name} was to be added"),
    }
    assert_eq!(revoke(text, entry.name).is_ok(), table.principal(entry.name).is_some());
    for principal in table.principals().take(4) {
        check_edits_of(table, text, principal);
    }
}

/// Whatever is done to one entry, every other stays who it was, and the file loads.
fn check_edits_of(table: &TokenTable, text: &str, principal: &Principal) {
    let name = principal.name();
    let words = ["a".to_owned(), "*".to_owned()];
    let grant = Grant::new([Selector::Any], TierSet::EMPTY.with(Tier::Read));
    let hash = sha256_entry("pxw_rotated");
    let rotation = Rotation { hash: &hash, id: "zzzzzzz777", expires: Some(Timestamp::UNIX_EPOCH) };
    let change = ScopeChange { devices: Some(&words), tools: Some(&words), grant: Some(&grant) };
    let edits: [(&str, Result<String, EditError>); 3] = [
        ("revoke", revoke(text, name)),
        ("rotate", rotate(text, name, &rotation)),
        ("set-scopes", set_scopes(text, name, &change)),
    ];
    for (what, edited) in edits {
        let edited = match edited {
            Ok(edited) => edited,
            // The id or the hash is in the file already.
            Err(EditError::Entry(_)) if text.contains("zzzzzzz777") || text.contains(&hash) => continue,
            Err(error) => panic!("{what}: {error:?}"),
        };
        let after = TokenTable::parse(edited.as_bytes()).expect("the edited file loads");
        for other in table.principals().filter(|other| other.name() != name) {
            assert_eq!(after.principal(other.name()).as_ref(), Some(other), "{what}");
            assert_eq!(after.stored(other.name()), table.stored(other.name()), "{what}");
        }
        let is = after.principal(name);
        match what {
            "revoke" => assert!(is.is_none() && after.len() + 1 == table.len()),
            "rotate" => {
                let is = is.expect("still there");
                assert_eq!(
                    (is.tools(), is.clusters(), is.grant()),
                    (principal.tools(), principal.clusters(), principal.grant())
                );
                assert_eq!(is.expires(), Some(Timestamp::UNIX_EPOCH));
                assert_eq!(after.stored(name).map(|stored| stored.hash), Some("sha256"));
            }
            _ => {
                let is = is.expect("still there");
                assert_eq!(
                    (is.grant(), is.tools().to_list()),
                    (Some(&grant), vec!["*".to_owned(), "a".to_owned()])
                );
                assert_eq!((is.expires(), is.actor()), (principal.expires(), principal.actor()));
                assert_eq!(after.stored(name), table.stored(name));
            }
        }
    }
}
