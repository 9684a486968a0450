//! `tokens.json`: who may call, under which name, with which rights.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::format::{Form, TokenRefusal, is_id, parse};
use super::verify::{Argon2Candidate, Argon2Hash, Hash, sha256_of};
use crate::grant::{Grant, Selector, TierSet};
use crate::json::{At, Document, Fields, FileProblem, Findings, Warning};
use crate::names::{escape_untrusted, is_reserved, is_scope_word, name_fault};
use crate::principal::{ActorKind, Channel, Principal, Provenance};
use crate::scope::{Scope, Tier};
use crate::time::parse_rfc3339;

/// The loaded token file.
#[derive(Clone, Default)]
pub struct TokenTable {
    by_name: BTreeMap<String, Arc<Principal>>,
    by_sha256: HashMap<[u8; 32], Arc<Principal>>,
    by_id: HashMap<String, ById>,
    stored: BTreeMap<String, StoredAs>,
    warnings: Vec<Warning>,
    mentions: Vec<Mention>,
}

/// What a public id leads to.
#[derive(Clone)]
enum ById {
    Argon2(Argon2Hash, Arc<Principal>),
    Sha256,
}

/// A word of a scope list, kept so that it can be checked against what the server really has.
#[derive(Clone)]
struct Mention {
    word: String,
    list: &'static str,
    at: Warning,
}

/// How an entry's secret is stored. Neither part is a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredAs {
    /// `argon2id` or `sha256`.
    pub hash: &'static str,
    /// The token's public id, if the entry has one.
    pub id: Option<String>,
}

/// What a bearer leads to.
#[derive(Debug)]
pub enum Lookup {
    /// A valid token.
    Principal(Arc<Principal>),
    /// A token with a known id; whether it is valid takes one slow check.
    Argon2(Argon2Candidate),
    /// No valid token.
    Refused(TokenRefusal),
}

impl TokenTable {
    /// Reads a token file, version 1: `tokens` as an object of entries under their names, or as an array
    /// of entries that carry `name`.
    ///
    /// # Errors
    /// Every problem of the file, in its order.
    pub fn parse(bytes: &[u8]) -> Result<TokenTable, Vec<FileProblem>> {
        let document = Document::parse(bytes).map_err(|problem| vec![problem])?;
        let mut findings = document.findings();
        let table = read_file(&document, &mut findings);
        let (mut table, warnings) = findings.into_result(table)?;
        table.warnings = warnings;
        Ok(table)
    }

    /// What an operator should look at: entries no bearer can match.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Words of `tools` and `devices` lists that name nothing the server has: harmless, and probably
    /// misspelled.
    pub fn unknown_names(
        &self,
        is_known_tool: impl Fn(&str) -> bool,
        is_known_cluster: impl Fn(&str) -> bool,
    ) -> Vec<Warning> {
        self.mentions
            .iter()
            .filter(|mention| match mention.list {
                "tools" => !is_known_tool(&mention.word),
                _ => !is_known_cluster(&mention.word),
            })
            .map(|mention| mention.at.clone())
            .collect()
    }

    /// Looks a bearer up: at most one SHA-256, never a slow hash. A malformed text or a bad checksum costs
    /// neither.
    pub fn lookup(&self, bearer: &str, now: Timestamp) -> Lookup {
        match self.resolve(bearer, now) {
            Ok(found) => found,
            Err(refusal) => Lookup::Refused(refusal),
        }
    }

    fn resolve(&self, bearer: &str, now: Timestamp) -> Result<Lookup, TokenRefusal> {
        let form = parse(bearer)?;
        // The map is keyed by the digest, so no secret is compared byte by byte.
        if let Some(principal) = self.by_sha256.get(&sha256_of(bearer)) {
            return unexpired(principal, now).map(Lookup::Principal);
        }
        // A bare secret has no id, and is never tried against slow hashes one after the other.
        let Form::Full(id) = form else { return Err(TokenRefusal::Unknown) };
        match self.by_id.get(id) {
            None => Err(TokenRefusal::Unknown),
            Some(ById::Sha256) => Err(TokenRefusal::WrongSecret),
            Some(ById::Argon2(hash, principal)) => Ok(Lookup::Argon2(Argon2Candidate {
                id: id.to_owned(),
                hash: hash.clone(),
                principal: unexpired(principal, now)?,
            })),
        }
    }

    /// The entry with this name, whether or not it has expired. Compared byte for byte.
    pub fn principal(&self, name: &str) -> Option<Arc<Principal>> {
        self.by_name.get(name).cloned()
    }

    /// How the secret of the entry with this name is stored.
    pub fn stored(&self, name: &str) -> Option<&StoredAs> {
        self.stored.get(name)
    }

    /// Every entry, by name.
    pub fn principals(&self) -> impl Iterator<Item = &Arc<Principal>> {
        self.by_name.values()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the file holds no entry.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// Hashes stay out of logs, although they are no secrets.
impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTable").field("names", &self.by_name.keys()).finish_non_exhaustive()
    }
}

fn unexpired(principal: &Arc<Principal>, now: Timestamp) -> Result<Arc<Principal>, TokenRefusal> {
    if principal.is_expired(now) { Err(TokenRefusal::Expired) } else { Ok(Arc::clone(principal)) }
}

fn read_file(document: &Document<'_>, findings: &mut Findings<'_>) -> Option<TokenTable> {
    let mut fields = document.root().fields(findings)?;
    crate::json::require_version_1(&mut fields, findings);
    let tokens = fields.required("tokens", findings);
    fields.finish(findings);
    let tokens = tokens?;
    let mut reader = EntryReader::default();
    if tokens.is_array() {
        for at in tokens.items(findings)? {
            reader.read(None, &at, findings);
        }
    } else {
        for (name, at) in tokens.members(findings)? {
            reader.read(Some(name), &at, findings);
        }
    }
    Some(reader.table)
}

#[derive(Default)]
struct EntryReader {
    table: TokenTable,
    // Where each name, id and hash first stood, for the message about the second.
    names: HashMap<String, String>,
    ids: HashMap<String, String>,
    hashes: HashMap<String, String>,
}

impl EntryReader {
    /// Reads one entry and files it. Every field is read, whatever is wrong with another.
    fn read(&mut self, key: Option<&str>, at: &At<'_>, findings: &mut Findings<'_>) {
        let Some(mut fields) = at.fields(findings) else { return };
        let name = self.name(key, at, &mut fields, findings);
        let hash = self.hash(at, &mut fields, findings);
        let id = self.id(&mut fields, findings);
        let grant = fields.optional("grant").map(|at| read_grant(&at, findings));
        let tools = self.scope("tools", &mut fields, findings);
        let devices = self.scope("devices", &mut fields, findings);
        let person = fields.optional("person").map(|at| read_name(&at, "a person's name", findings));
        let actor = fields.optional("actor_type").map(|at| read_actor(&at, findings));
        let expires = read_expires(&mut fields, findings);
        let provenance = read_provenance(&mut fields, actor, findings);
        fields.finish(findings);

        let (Some(name), Some(hash), Some(id), Some(tools), Some(clusters)) =
            (name, hash, id, tools, devices)
        else {
            return;
        };
        // INVARIANT: a field that is there and wrong was reported above, so the table built here without
        // it is never handed out.
        let principal = Arc::new(Principal {
            person: person.flatten().unwrap_or_else(|| name.clone()),
            actor: actor.flatten().flatten(),
            expires: expires.flatten(),
            grant: grant.flatten(),
            clusters,
            tools,
            channel: Channel::Bearer,
            provenance,
            name,
        });
        self.file(principal, hash, id, at, findings);
    }

    fn file(
        &mut self,
        principal: Arc<Principal>,
        hash: Hash,
        id: Option<String>,
        at: &At<'_>,
        findings: &mut Findings<'_>,
    ) {
        let table = &mut self.table;
        let stored = StoredAs { hash: hash.algorithm(), id: id.clone() };
        table.stored.insert(principal.name.clone(), stored);
        table.by_name.insert(principal.name.clone(), Arc::clone(&principal));
        match (hash, id) {
            (Hash::Sha256(digest), id) => {
                table.by_id.extend(id.map(|id| (id, ById::Sha256)));
                table.by_sha256.insert(digest, principal);
            }
            (Hash::Argon2(hash), Some(id)) => {
                table.by_id.insert(id, ById::Argon2(hash, principal));
            }
            (Hash::Argon2(_), None) => findings.warn(
                at,
                "this argon2id entry has no `id`, so no bearer can match it; give it a new token with `token rotate`",
            ),
        }
    }

    fn name(
        &mut self,
        key: Option<&str>,
        at: &At<'_>,
        fields: &mut Fields<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<String> {
        let name = match key {
            None => read_name(&fields.required("name", findings)?, "a token's name", findings)?,
            Some(key) => {
                if let Some(fault) = name_fault(key) {
                    findings.problem(at, format!("a token's name {fault}"));
                    return None;
                }
                key.to_owned()
            }
        };
        if is_reserved(&name) {
            findings.problem(
                at,
                format!("`{name}` is the name of callers without a token; give this entry another"),
            );
            return None;
        }
        unique(&mut self.names, &name, at, "name", findings)?;
        Some(name)
    }

    fn hash(&mut self, at: &At<'_>, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Hash> {
        let field = match (fields.take("hash"), fields.take("digest")) {
            (Some(field), None) | (None, Some(field)) => field,
            (None, None) => {
                findings.problem(at, "the field `hash` (or `digest`) is missing");
                return None;
            }
            (Some(_), Some(digest)) => {
                findings.problem(&digest, "the entry has both `hash` and `digest`; keep one");
                return None;
            }
        };
        let text = field.text(findings)?;
        match Hash::parse(text) {
            Ok(hash) => unique(&mut self.hashes, text, &field, "hash", findings).map(|()| hash),
            Err(error) => {
                findings.problem(&field, error.to_string());
                None
            }
        }
    }

    /// `None` for a faulty id, `Some(None)` for none.
    fn id(&mut self, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Option<String>> {
        let Some(at) = fields.optional("id") else { return Some(None) };
        let id = at.text(findings)?;
        if !is_id(id) {
            findings.problem(&at, "expected the token's id: 10 characters of a-z and 2-7");
            return None;
        }
        unique(&mut self.ids, id, &at, "id", findings)?;
        Some(Some(id.to_owned()))
    }

    fn scope(
        &mut self,
        list: &'static str,
        fields: &mut Fields<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Scope> {
        let at = fields.required(list, findings)?;
        let items = at.items(findings)?;
        if items.is_empty() {
            findings.problem(&at, "must name something: a token that reaches nothing is a mistake");
            return None;
        }
        let mut words = Vec::with_capacity(items.len());
        for item in &items {
            let Some(word) = item.text(findings) else { continue };
            if word != "*" && !is_scope_word(word) {
                let hint = if word.contains(['*', '?', '[']) {
                    "; patterns are not supported, `*` stands alone"
                } else {
                    ""
                };
                findings
                    .problem(item, format!("expected a name (letters, digits, `_`, `-`, `.`) or `*`{hint}"));
                continue;
            }
            if word != "*" {
                self.table.mentions.push(Mention {
                    word: word.to_owned(),
                    list,
                    at: findings.warning_for(item, format!("`{word}` names nothing this server has")),
                });
            }
            words.push(word);
        }
        Some(Scope::from_names(words))
    }
}

/// Notes where `value` stands, or reports that it stood somewhere before.
fn unique(
    seen: &mut HashMap<String, String>,
    value: &str,
    at: &At<'_>,
    what: &str,
    findings: &mut Findings<'_>,
) -> Option<()> {
    match seen.get(value) {
        Some(first) => {
            findings.problem(at, format!("the entry at {first} has the same {what}; each needs its own"));
            None
        }
        None => {
            seen.insert(value.to_owned(), at.path().to_owned());
            Some(())
        }
    }
}

fn read_name(at: &At<'_>, what: &str, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.text(findings)?;
    match name_fault(text) {
        None => Some(text.to_owned()),
        Some(fault) => {
            findings.problem(at, format!("{what} {fault}"));
            None
        }
    }
}

fn read_grant(at: &At<'_>, findings: &mut Findings<'_>) -> Option<Grant> {
    let mut fields = at.fields(findings)?;
    let guests = fields.required("guests", findings);
    let actions = fields.required("actions", findings);
    fields.finish(findings);
    let guests = guests.and_then(|at| read_words::<Selector>(&at, findings));
    let actions = actions.and_then(|at| read_words::<Tier>(&at, findings));
    Some(Grant::new(guests?, TierSet::from_iter(actions?)))
}

fn read_words<T>(at: &At<'_>, findings: &mut Findings<'_>) -> Option<Vec<T>>
where
    T: std::str::FromStr<Err: fmt::Display>,
{
    let mut words = Vec::new();
    for item in at.items(findings)? {
        let Some(text) = item.text(findings) else { continue };
        match text.parse() {
            Ok(word) => words.push(word),
            Err(error) => {
                findings
                    .problem(&item, format!("`{}` is not understood: {error}", escape_untrusted(text, 64)));
            }
        }
    }
    Some(words)
}

fn read_actor(at: &At<'_>, findings: &mut Findings<'_>) -> Option<Option<ActorKind>> {
    match at.text(findings)? {
        "human" => Some(Some(ActorKind::Human)),
        "agent" => Some(Some(ActorKind::Agent)),
        "unknown" => Some(None),
        _ => {
            findings.problem(at, "expected `human`, `agent` or `unknown`");
            None
        }
    }
}

/// `expires`, or `expires_at` as other servers of the family write it.
fn read_expires(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Option<Timestamp>> {
    let at = match (fields.optional("expires"), fields.optional("expires_at")) {
        (Some(_), Some(second)) => {
            findings.problem(&second, "the entry has both `expires` and `expires_at`; keep one");
            return None;
        }
        (Some(at), None) | (None, Some(at)) => at,
        (None, None) => return None,
    };
    let text = at.text(findings)?;
    match parse_rfc3339(text) {
        Ok(expires) => Some(Some(expires)),
        Err(message) => {
            findings.problem(&at, message);
            None
        }
    }
}

/// Fields that say where a token comes from. They grant nothing.
fn read_provenance(
    fields: &mut Fields<'_>,
    actor: Option<Option<Option<ActorKind>>>,
    findings: &mut Findings<'_>,
) -> Provenance {
    for name in ["comment", "created_at"] {
        if let Some(at) = fields.optional(name) {
            at.text(findings);
        }
    }
    // Whatever shape another server of the family gave it.
    fields.optional("provenance");
    let provider = fields.optional("provider");
    let provenance = Provenance {
        provider: provider.as_ref().and_then(|at| read_origin(at, findings)),
        provider_tier: fields.optional("provider_tier").and_then(|at| read_origin(&at, findings)),
        on_behalf_of: fields.optional("on_behalf_of").and_then(|at| read_origin(&at, findings)),
    };
    if let Some(at) = provider
        && actor == Some(Some(Some(ActorKind::Human)))
    {
        findings.problem(
            &at,
            "a token of `actor_type: human` cannot have a model `provider`; take one of them out",
        );
    }
    provenance
}

/// A text that audit records carry, so one that cannot mislead whoever reads them.
fn read_origin(at: &At<'_>, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.text(findings)?;
    if text.chars().count() > MAX_ORIGIN {
        findings.problem(at, format!("must not be longer than {MAX_ORIGIN} characters"));
    }
    Some(escape_untrusted(text, MAX_ORIGIN))
}

/// The longest `provider`, `provider_tier` or `on_behalf_of` accepted, in characters.
const MAX_ORIGIN: usize = 200;
