//! Changes to one entry: a new secret, other scopes, or its end.

use jiff::Timestamp;

use super::{EditError, GrantText, indent_of, indented, pretty, quoted, splice};
use crate::grant::Grant;
use crate::json::{Document, Kind, Member, Node};
use crate::names::escape_untrusted;
use crate::token::file::TokenTable;

/// A new secret for an entry.
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a> {
    /// The text of [`sha256_entry`](crate::sha256_entry) or [`argon2id_entry`](crate::argon2id_entry).
    pub hash: &'a str,
    /// The id of the minted token.
    pub id: &'a str,
    /// When it stops working; `None` keeps what the entry says.
    pub expires: Option<Timestamp>,
}

/// Other scopes for an entry. What is `None` stays as it is; a grant is replaced as a whole.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScopeChange<'a> {
    /// The clusters.
    pub devices: Option<&'a [String]>,
    /// The tools and authorization-only scopes.
    pub tools: Option<&'a [String]>,
    /// Guests and tiers, both halves of it.
    pub grant: Option<&'a Grant>,
}

/// The text of the file with another secret for the entry `name`; the old one no longer works. Its rights
/// stay.
///
/// # Errors
/// [`EditError`] when the file has problems, holds no such entry, or would not load afterwards.
pub fn rotate(text: &str, name: &str, rotation: &Rotation<'_>) -> Result<String, EditError> {
    edit(text, name, |entry| {
        let mut edits = vec![
            entry.set(&["hash", "digest"], &quoted(rotation.hash)),
            entry.set(&["id"], &quoted(rotation.id)),
        ];
        if let Some(expires) = rotation.expires {
            edits.push(entry.set(&["expires", "expires_at"], &quoted(&expires.to_string())));
        }
        edits
    })
}

/// The text of the file with other scopes for the entry `name`. The token's text stays valid.
///
/// # Errors
/// As [`rotate`].
pub fn set_scopes(text: &str, name: &str, change: &ScopeChange<'_>) -> Result<String, EditError> {
    edit(text, name, |entry| {
        let list = |key, list: &[String]| entry.set(&[key], &pretty(&list));
        let mut edits = Vec::new();
        edits.extend(change.devices.map(|devices| list("devices", devices)));
        edits.extend(change.tools.map(|tools| list("tools", tools)));
        edits.extend(change.grant.map(|grant| entry.set(&["grant"], &pretty(&GrantText::of(grant)))));
        edits
    })
}

/// The text of the file without the entry `name`.
///
/// # Errors
/// As [`rotate`].
pub fn revoke(text: &str, name: &str) -> Result<String, EditError> {
    edit(text, name, |entry| vec![entry.take_out()])
}

/// A stretch of the text and what stands there afterwards.
struct Splice {
    start: usize,
    end: usize,
    with: String,
}

/// One entry as the text has it.
struct Entry<'t> {
    text: &'t str,
    members: &'t [Member],
    /// Where the entry begins (with its name, if that is its key) and ends; also of its neighbours.
    place: (usize, usize),
    before: Option<(usize, usize)>,
    after: Option<(usize, usize)>,
}

impl Entry<'_> {
    /// Gives the first of `keys` that the entry has another value, or adds the first of them after the last
    /// member.
    fn set(&self, keys: &[&str], value: &str) -> Splice {
        let mut has = keys.iter().filter_map(|key| self.members.iter().find(|member| member.key == *key));
        // A `null` stands for a field that is not there; take one that says something first.
        let found =
            has.clone().find(|member| !matches!(member.value.kind, Kind::Null)).or_else(|| has.next());
        if let Some(member) = found {
            let indent = indent_of(self.text, member.start.offset);
            let (start, end) = (member.value.start.offset, member.value.end);
            return Splice { start, end, with: indented(value, indent) };
        }
        let key = quoted(keys.first().copied().unwrap_or_default());
        let last = self.members.last().map_or(self.place, |last| (last.start.offset, last.value.end));
        let indent = indent_of(self.text, last.0);
        let with = format!(",\n{indent}{key}: {}", indented(value, indent));
        Splice { start: last.1, end: last.1, with }
    }

    /// Removes the entry and one comma beside it.
    fn take_out(&self) -> Splice {
        let (start, end) = match (self.before, self.after) {
            (Some((_, before_ends)), _) => (before_ends, self.place.1),
            (None, Some((after_starts, _))) => (self.place.0, after_starts),
            (None, None) => self.place,
        };
        Splice { start, end, with: String::new() }
    }
}

fn edit(text: &str, name: &str, change: impl FnOnce(&Entry<'_>) -> Vec<Splice>) -> Result<String, EditError> {
    TokenTable::parse(text.as_bytes()).map_err(EditError::File)?;
    let document = Document::parse(text.as_bytes()).map_err(|problem| EditError::File(vec![problem]))?;
    let tokens = document
        .root()
        .members(&mut document.findings())
        .and_then(|members| members.into_iter().find_map(|(key, at)| (key == "tokens").then_some(at.node)));
    let missing = || EditError::NoSuchEntry(escape_untrusted(name, 64));
    let entry = tokens.and_then(|tokens| find(text, tokens, name)).ok_or_else(missing)?;
    let mut splices = change(&entry);
    splices.sort_by_key(|splice| splice.start);
    // From the end, so that the places of the others stay true.
    let edited =
        splices.iter().rev().fold(text.to_owned(), |text, at| splice(&text, at.start, at.end, &at.with));
    match TokenTable::parse(edited.as_bytes()) {
        Ok(_) => Ok(edited),
        Err(problems) => Err(EditError::Entry(problems)),
    }
}

/// The entry of that name, in either form of the file.
fn find<'t>(text: &'t str, tokens: &'t Node, name: &str) -> Option<Entry<'t>> {
    let all: Vec<(&str, (usize, usize), &Node)> = match &tokens.kind {
        Kind::Object(members) => members
            .iter()
            .map(|member| (member.key.as_str(), (member.start.offset, member.value.end), &member.value))
            .collect(),
        Kind::Array(items) => items
            .iter()
            .map(|item| (name_of(item).unwrap_or_default(), (item.start.offset, item.end), item))
            .collect(),
        _ => return None,
    };
    let index = all.iter().position(|(found, ..)| *found == name)?;
    let place_of = |index: Option<usize>| index.and_then(|index| all.get(index)).map(|(_, place, _)| *place);
    let (_, place, node) = all.get(index)?;
    let Kind::Object(members) = &node.kind else { return None };
    Some(Entry {
        text,
        members,
        place: *place,
        before: place_of(index.checked_sub(1)),
        after: place_of(index.checked_add(1)),
    })
}

fn name_of(item: &Node) -> Option<&str> {
    let Kind::Object(members) = &item.kind else { return None };
    members.iter().find(|member| member.key == "name").and_then(|member| match &member.value.kind {
        Kind::Text(name) => Some(name.as_str()),
        _ => None,
    })
}
