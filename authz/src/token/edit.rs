//! Editing `tokens.json` as text: everything the edit is not about keeps its bytes.
//!
//! Each edit takes the text of a file that loads and returns one that loads, or changes nothing and says why.

mod change;
mod widening;

use jiff::Timestamp;
use serde::Serialize;

use super::file::TokenTable;
use crate::grant::Grant;
use crate::json::{Document, FileProblem, Kind, Node};
use crate::principal::{ActorKind, Provenance};

pub use change::{Rotation, ScopeChange, revoke, rotate, set_scopes};
pub use widening::{Widening, widenings};

/// An entry to be added.
#[derive(Debug, Clone)]
pub struct NewEntry<'a> {
    /// The token's name.
    pub name: &'a str,
    /// The text of [`sha256_entry`](super::sha256_entry) or [`argon2id_entry`](super::argon2id_entry).
    pub hash: &'a str,
    /// The id of the minted token.
    pub id: &'a str,
    /// The guests and tiers; `None` allows no guest.
    pub grant: Option<&'a Grant>,
    /// The tool scope, not empty.
    pub tools: &'a [String],
    /// The clusters, not empty.
    pub devices: &'a [String],
    /// The person, when it is not the token's name.
    pub person: Option<&'a str>,
    /// Human, agent, or unattributed.
    pub actor_type: Option<ActorKind>,
    /// When it stops working, if ever.
    pub expires: Option<Timestamp>,
    /// Where it comes from, for the audit.
    pub provenance: &'a Provenance,
}

/// Why a file was not edited. Nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file as it is would not load.
    #[error("the token file has problems; mend them first")]
    File(Vec<FileProblem>),
    /// The file already has an entry of this name.
    #[error("the token file already has an entry named `{0}`; choose another name, or rotate that one")]
    NameTaken(String),
    /// The file has no entry of this name.
    #[error("the token file has no entry named `{0}`; `token list` shows the names it has")]
    NoSuchEntry(String),
    /// The file with the entry would not load; positions are in the text it would have had.
    #[error("the new entry would not load")]
    Entry(Vec<FileProblem>),
}

/// The text of the file with one entry more. An empty text stands for a file that does not exist yet.
///
/// # Errors
/// [`EditError`] when the file or the entry would not load.
pub fn add_entry(text: &str, entry: &NewEntry<'_>) -> Result<String, EditError> {
    let text = if text.trim().is_empty() { "{\n  \"version\": 1,\n  \"tokens\": {}\n}\n" } else { text };
    let before = TokenTable::parse(text.as_bytes()).map_err(EditError::File)?;
    if before.principal(entry.name).is_some() {
        return Err(EditError::NameTaken(crate::names::escape_untrusted(entry.name, 64)));
    }
    let edited = insert(text, entry).map_err(EditError::File)?;
    match TokenTable::parse(edited.as_bytes()) {
        Ok(_) => Ok(edited),
        Err(problems) => Err(EditError::Entry(problems)),
    }
}

fn insert(text: &str, entry: &NewEntry<'_>) -> Result<String, Vec<FileProblem>> {
    let document = Document::parse(text.as_bytes()).map_err(|problem| vec![problem])?;
    let mut findings = document.findings();
    let tokens = document
        .root()
        .members(&mut findings)
        .and_then(|members| members.into_iter().find_map(|(key, at)| (key == "tokens").then_some(at.node)));
    let (tokens, _) = findings.into_result(tokens)?;

    let (body, last) = match &tokens.kind {
        Kind::Array(items) => (render(entry, true), items.last().map(|item| (item.start.offset, item.end))),
        Kind::Object(members) => (
            format!("{}: {}", quoted(entry.name), render(entry, false)),
            members.last().map(|member| (member.start.offset, member.value.end)),
        ),
        // The file was read as a token file before, so `tokens` is one of the two.
        _ => return Ok(text.to_owned()),
    };
    Ok(match last {
        // After the last entry, indented like it.
        Some((start, end)) => {
            let indent = indent_of(text, start);
            splice(text, end, end, &format!(",\n{indent}{}", indented(&body, indent)))
        }
        None => {
            let outer = indent_of(text, tokens.start.offset);
            let inner = format!("{outer}  ");
            let (open, close) = brackets(tokens);
            let body = format!("{open}\n{inner}{}\n{outer}{close}", indented(&body, &inner));
            splice(text, tokens.start.offset, tokens.end, &body)
        }
    })
}

/// The entry in the file's own field order.
fn render(entry: &NewEntry<'_>, with_name: bool) -> String {
    #[derive(Serialize)]
    struct Entry<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        hash: &'a str,
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        grant: Option<GrantText>,
        tools: &'a [String],
        devices: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        person: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        actor_type: Option<ActorKind>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expires: Option<String>,
        #[serde(flatten)]
        provenance: &'a Provenance,
    }
    let entry = Entry {
        name: with_name.then_some(entry.name),
        hash: entry.hash,
        id: entry.id,
        grant: entry.grant.map(GrantText::of),
        tools: entry.tools,
        devices: entry.devices,
        person: entry.person,
        actor_type: entry.actor_type,
        expires: entry.expires.map(|expires| expires.to_string()),
        provenance: entry.provenance,
    };
    pretty(&entry)
}

/// A grant as the file writes it.
#[derive(Serialize)]
struct GrantText {
    guests: Vec<String>,
    actions: Vec<&'static str>,
}

impl GrantText {
    fn of(grant: &Grant) -> GrantText {
        GrantText {
            guests: grant.guests().iter().map(ToString::to_string).collect(),
            actions: grant.actions().iter().map(|tier| tier.as_str()).collect(),
        }
    }
}

/// Strings and lists of them always serialise; should that ever change, the text fails to load and nothing
/// is written.
fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// The white space before `at` on its line; none when something else stands there.
fn indent_of(text: &str, at: usize) -> &str {
    let line = text.get(..at).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    let blank = line.len().saturating_sub(line.trim_start().len());
    line.get(..blank).unwrap_or_default()
}

fn indented(body: &str, indent: &str) -> String {
    body.replace('\n', &format!("\n{indent}"))
}

fn brackets(node: &Node) -> (char, char) {
    match node.kind {
        Kind::Array(_) => ('[', ']'),
        _ => ('{', '}'),
    }
}

fn splice(text: &str, start: usize, end: usize, with: &str) -> String {
    let (before, after) = (text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default());
    [before, with, after].concat()
}
