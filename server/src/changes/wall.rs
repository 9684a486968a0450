//! Changes of a firewall: rules, options, aliases, IP sets and security groups of the cluster, a node or a guest.
//!
//! A step holds the whole result (a rule with all its fields), so that what was approved does not depend on what is there. Positions
//! are bound by PVE's digest of the list: it is in the fingerprint, and it goes with the request, so that PVE compares it again.

mod lockout;
mod request;

use std::collections::BTreeMap;

use changeset::{Preview, SendResult, Step};
use proxmox_api::{Digest, Error, FirewallScope, GuestKind, GuestRef, JsonMap};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::request::{Object, Verb, WallChange};
use self::request::{Request, request_of};
use crate::config::Cluster;

/// The list that a change is about, as PVE has it now.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed {
    /// PVE's own digest of it.
    pub digest: Option<Digest>,
    /// Its entries; one entry for options.
    pub rows: Vec<JsonMap>,
}

impl Listed {
    /// Tells one state of the list from another.
    pub(super) fn identity(&self) -> String {
        let mut hasher = Sha256::new();
        for row in &self.rows {
            let text = Value::Object(row.clone()).to_string();
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        data_encoding::HEXLOWER.encode(&hasher.finalize())
    }
}

/// Whether an operation is a firewall's.
pub(super) fn is_firewall(op: &str) -> bool {
    op.starts_with("firewall_")
}

/// Whose firewall a step changes; `node` is where its request goes.
pub(super) fn scope_of(step: &Step, node: &str) -> Result<FirewallScope, String> {
    let param = |name: &str| step.params.get(name).map(String::as_str).unwrap_or_default();
    let unusable = |what: &str| format!("the plan's {what} is unusable");
    Ok(match param("scope") {
        "cluster" => FirewallScope::Cluster,
        "group" => FirewallScope::Group(param("group").parse().map_err(|_| unusable("group"))?),
        "node" => FirewallScope::Node(node.parse().map_err(|_| unusable("node"))?),
        "guest" => FirewallScope::Guest(GuestRef {
            node: node.parse().map_err(|_| unusable("node"))?,
            kind: if param("kind") == "qemu" { GuestKind::Qemu } else { GuestKind::Lxc },
            vmid: param("vmid").parse().map_err(|_| unusable("vmid"))?,
        }),
        _ => return Err(unusable("scope")),
    })
}

/// Reads the list that a step is about.
pub(super) async fn listed(cluster: &Cluster, scope: &FirewallScope, step: &Step) -> Result<Listed, Error> {
    let client = &cluster.client;
    let object = step.op.strip_prefix("firewall_").unwrap_or_default();
    let mut out = Listed::default();
    let mut take = |digest: Option<Digest>, mut json: JsonMap| {
        json.remove("digest");
        out.digest = digest.or(out.digest.take());
        out.rows.push(json);
    };
    match object.rsplit_once('_').map(|(object, _)| object).unwrap_or_default() {
        "rule" => {
            for rule in client.firewall_rules(scope).await?.items {
                take(rule.digest, rule.json);
            }
        }
        "options" => {
            let options = client.firewall_options(scope).await?;
            take(options.digest, options.json);
        }
        "alias" => {
            for alias in client.firewall_aliases(scope).await?.items {
                take(alias.digest, alias.json);
            }
        }
        "ipset" => {
            for set in client.ipsets(scope).await?.items {
                take(set.digest, set.json);
            }
        }
        "ipset_entry" => {
            if let Some(Ok(name)) = step.params.get("name").map(|name| name.parse()) {
                for entry in client.ipset_entries(scope, &name).await?.items {
                    take(entry.digest, entry.json);
                }
            }
        }
        _ => {
            for group in client.security_groups().await?.items {
                take(group.digest, group.json);
            }
        }
    }
    Ok(out)
}

/// The fields of a fingerprint that a firewall's step needs.
pub(super) async fn fingerprint(
    cluster: &Cluster,
    step: &Step,
    node: &str,
) -> Result<Vec<(String, String)>, String> {
    let scope = scope_of(step, node)?;
    let listed = listed(cluster, &scope, step).await.map_err(|error| error.to_string())?;
    Ok(vec![
        ("firewall".to_owned(), listed.identity()),
        ("firewall_digest".to_owned(), listed.digest.map(|digest| digest.to_string()).unwrap_or_default()),
    ])
}

/// The fields that a guest's set about its firewall needs; none for other sets.
pub(super) async fn of_guest(
    cluster: &Cluster,
    guest: &crate::resolve::Guest,
    steps: &[Step],
) -> Result<Vec<(String, String)>, String> {
    match super::op::subject(steps) {
        Some(step) if is_firewall(&step.op) => fingerprint(cluster, step, guest.node()).await,
        _ => Ok(Vec::new()),
    }
}

/// What a change amounts to, once everything that keeps it from working was refused.
#[derive(Debug)]
pub(super) struct Looked {
    /// In one line.
    pub operation: String,
    /// Lines of the preview.
    pub lines: Vec<(&'static str, &'static str, String)>,
    /// The step.
    pub step: Step,
}

/// Looks at a change of a firewall. `place` are the parameters that say whose.
pub(super) async fn look(
    cluster: &Cluster,
    change: &WallChange,
    scope: &FirewallScope,
    place: Vec<(&'static str, String)>,
    whose: &str,
) -> Result<Looked, String> {
    let bare = Step::new(change.op(), place.iter().map(|(k, v)| (*k, v.clone())).chain(change.naming()), "");
    let before = listed(cluster, scope, &bare).await.map_err(|error| error.to_string())?;
    let resolved = change.resolved(&before)?;
    let summary = format!("{} of {whose}", change.in_words());
    let params = place.into_iter().map(|(k, v)| (k.to_owned(), v)).chain(resolved.params.clone());
    let step = Step::new(change.op(), params, summary.clone());
    // What cannot be sent must not be approved.
    request_of(&step)?;
    let mut lines = Vec::new();
    if let Some(was) = &resolved.before {
        lines.push(("before", "Before", in_words(was)));
    }
    if let Some(will) = &resolved.after {
        lines.push(("after", "After", in_words(will)));
    }
    if change.object == Object::Rule {
        lines.push(("rules", "Rules now", before.rows.len().to_string()));
    }
    if let Some(warning) = lockout::warning(cluster, change, scope, &before, &resolved).await {
        lines.push(("lockout", "WARNING", warning));
    }
    Ok(Looked { operation: summary, lines, step })
}

fn in_words(row: &BTreeMap<String, String>) -> String {
    if row.is_empty() {
        return "(nothing)".to_owned();
    }
    row.iter().map(|(key, value)| format!("{key}={}", Preview::quote(value))).collect::<Vec<_>>().join(" ")
}

/// A row as text by key.
fn texts(row: &JsonMap) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    row.iter()
        .filter(|(key, _)| !matches!(key.as_str(), "digest" | "pos" | "ipversion" | "errors"))
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Sends a firewall's one request. `digest`: PVE's digest of the list that was approved.
pub(super) async fn send(cluster: &Cluster, step: &Step, node: &str, digest: &str) -> SendResult {
    let request = match request_of(step) {
        Ok(request) => request,
        Err(why) => return SendResult::Refused(why),
    };
    let scope = match scope_of(step, node) {
        Ok(scope) => scope,
        Err(why) => return SendResult::Refused(why),
    };
    let digest: Option<Digest> = digest.parse().ok();
    let Some(needed) = digest.clone().or_else(|| request.needs_no_digest().then(placeholder).flatten())
    else {
        return SendResult::Refused(
            "the cluster gave the list without a digest, so a position in it means nothing".to_owned(),
        );
    };
    let client = &cluster.client;
    let sent = match &request {
        Request::AddRule(rule) => client.add_firewall_rule(&scope, rule, digest.as_ref()).await,
        Request::ReplaceRule(pos, rule) => client.replace_firewall_rule(&scope, *pos, rule, &needed).await,
        Request::MoveRule(pos, before) => client.move_firewall_rule(&scope, *pos, *before, &needed).await,
        Request::DeleteRule(pos) => client.delete_firewall_rule(&scope, *pos, &needed).await,
        Request::Options(update) => client.update_firewall_options(&scope, update, digest.as_ref()).await,
        Request::CreateAlias(name, cidr, comment) => {
            client.create_firewall_alias(&scope, name, cidr, comment.as_deref()).await
        }
        Request::UpdateAlias(name, cidr, comment) => {
            client.update_firewall_alias(&scope, name, cidr, comment.as_deref(), None, &needed).await
        }
        Request::DeleteAlias(name) => client.delete_firewall_alias(&scope, name, digest.as_ref()).await,
        Request::CreateIpSet(name, comment) => client.create_ipset(&scope, name, comment.as_deref()).await,
        Request::DeleteIpSet(name) => client.delete_ipset(&scope, name, false).await,
        Request::AddEntry(name, member, nomatch, comment) => {
            client.add_ipset_entry(&scope, name, member, *nomatch, comment.as_deref()).await
        }
        Request::UpdateEntry(name, member, nomatch, comment) => {
            client
                .update_ipset_entry(&scope, name, member, *nomatch, comment.as_deref(), digest.as_ref())
                .await
        }
        Request::DeleteEntry(name, member) => {
            client.delete_ipset_entry(&scope, name, member, digest.as_ref()).await
        }
        Request::CreateGroup(name, comment) => client.create_security_group(name, comment.as_deref()).await,
        Request::DeleteGroup(name) => client.delete_security_group(name).await,
    };
    match sent {
        Ok(()) => SendResult::Synchronous,
        Err(error) => super::dispatch::failed(&error),
    }
}

/// A digest for requests that send none.
fn placeholder() -> Option<Digest> {
    "0".parse().ok()
}

/// Whether what a step changes is exactly as the step makes it. Of rules, which have no name, nobody can tell.
pub(super) async fn observe(cluster: &Cluster, step: &Step, node: &str) -> Result<bool, String> {
    let scope = scope_of(step, node)?;
    let listed = listed(cluster, &scope, step).await.map_err(|error| error.to_string())?;
    Ok(request::is_done(step, &listed))
}
