//! Changes of HA rules: where guests under HA may run. A step holds the whole rule; PVE's digest of all rules binds it.

use std::collections::BTreeMap;

use changeset::{Preview, SendResult, Step};
use proxmox_api::{Digest, HaAffinity, HaRule, HaSid, NewHaRule, NodeName, RuleName};

use crate::config::Cluster;

/// A change, as its planner says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaChange {
    /// `ha_rule_create`, `ha_rule_update` or `ha_rule_delete`.
    pub op: &'static str,
    /// The rule's name.
    pub rule: String,
    /// What it is to say: `type`, `resources`, `nodes`, `strict`, `affinity`, `disable`, `comment`.
    pub fields: BTreeMap<String, String>,
}

/// Makes a rule.
pub const CREATE: &str = "ha_rule_create";
/// Changes a rule.
pub const UPDATE: &str = "ha_rule_update";
/// Deletes a rule.
pub const DELETE: &str = "ha_rule_delete";

/// Whether an operation is about an HA rule.
pub(super) fn is_ha(op: &str) -> bool {
    op.starts_with("ha_rule_")
}

/// The rule as text by field.
fn texts(rule: &HaRule) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            out.insert(key.to_owned(), value);
        }
    };
    put("type", rule.kind.clone());
    put("resources", Some(rule.resources.join(",")));
    put("nodes", Some(rule.nodes.join(",")));
    put("strict", rule.strict.value().map(|on| u8::from(*on).to_string()));
    put("affinity", rule.affinity.clone());
    put("disable", rule.disable.value().map(|on| u8::from(*on).to_string()));
    put("comment", rule.comment.clone());
    out
}

/// All rules as one text, and PVE's digest of them.
async fn listed(
    cluster: &Cluster,
) -> Result<(BTreeMap<String, BTreeMap<String, String>>, Option<Digest>), String> {
    let rules = cluster.client.ha_rules().await.map_err(|error| error.to_string())?;
    if rules.skipped > 0 {
        return Err("one of the HA rules cannot be read".to_owned());
    }
    let digest = rules.items.iter().find_map(|rule| rule.digest.clone());
    Ok((rules.items.iter().map(|rule| (rule.rule.to_string(), texts(rule))).collect(), digest))
}

/// The fields of a fingerprint.
pub(super) async fn fingerprint(cluster: &Cluster) -> Result<Vec<(String, String)>, String> {
    let (rules, digest) = listed(cluster).await?;
    Ok(vec![
        ("ha_rules".to_owned(), format!("{rules:?}")),
        ("ha_digest".to_owned(), digest.map(|digest| digest.to_string()).unwrap_or_default()),
    ])
}

/// What a change amounts to.
#[derive(Debug)]
pub(super) struct Looked {
    pub step: Step,
    pub before: Option<String>,
    pub after: Option<String>,
    /// The guests the rule is or will be about.
    pub guests: Vec<u32>,
}

/// Looks at a change, and refuses what could never be.
pub(super) async fn look(cluster: &Cluster, change: &HaChange) -> Result<Looked, String> {
    let _: RuleName = change.rule.parse().map_err(|error| format!("`rule`: {error}"))?;
    let (rules, _) = listed(cluster).await?;
    let before = rules.get(&change.rule);
    match (change.op, before) {
        (CREATE, Some(_)) => return Err(format!("there is an HA rule {} already", change.rule)),
        (UPDATE | DELETE, None) => return Err(format!("there is no HA rule {}", change.rule)),
        _ => {}
    }
    let after = match change.op {
        DELETE => None,
        _ => {
            let mut after = before.cloned().unwrap_or_default();
            after.extend(change.fields.clone());
            after.retain(|_, value| !value.is_empty());
            if Some(&after) == before {
                return Err("the rule says all of this already".to_owned());
            }
            if before.is_some_and(|before| before.get("type") != after.get("type")) {
                return Err("the kind of an HA rule cannot change; delete it and make another".to_owned());
            }
            Some(after)
        }
    };
    let fields = after.iter().flatten().map(|(key, value)| (format!("field.{key}"), value.clone()));
    let params = std::iter::once(("rule".to_owned(), change.rule.clone())).chain(fields);
    let verb = match change.op {
        CREATE => "create",
        UPDATE => "change",
        _ => "delete",
    };
    let step = Step::new(change.op, params, format!("{verb} HA rule {}", change.rule));
    if after.is_some() {
        rule_of(&step)?;
    }
    let guests = before.into_iter().chain(&after).filter_map(|row| row.get("resources"));
    let mut guests: Vec<u32> = guests
        .flat_map(|resources| resources.split(','))
        .filter_map(|sid| sid.split_once(':')?.1.parse().ok())
        .collect();
    guests.sort_unstable();
    guests.dedup();
    let in_words = |row: &BTreeMap<String, String>| {
        row.iter()
            .map(|(key, value)| format!("{key}={}", Preview::quote(value)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    Ok(Looked { step, before: before.map(in_words), after: after.as_ref().map(in_words), guests })
}

fn field<'s>(step: &'s Step, name: &str) -> Option<&'s str> {
    step.params.get(&format!("field.{name}")).map(String::as_str)
}

fn rule_of(step: &Step) -> Result<NewHaRule, String> {
    let sids = || -> Result<Vec<HaSid>, String> {
        let list =
            field(step, "resources").ok_or("`resources` is missing: the guests, as vm:100 or ct:200")?;
        list.split(',').map(|sid| sid.parse().map_err(|error| format!("`resources`: {error}"))).collect()
    };
    let on = |name: &str| match field(step, name) {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(format!("`{name}`: expected 0 or 1")),
    };
    let affinity = match field(step, "type") {
        Some("node-affinity") => {
            let list = field(step, "nodes").ok_or("`nodes` is missing: where the guests may run")?;
            let node = |text: &str| -> Result<(NodeName, Option<u32>), String> {
                let (name, priority) = match text.split_once(':') {
                    Some((name, priority)) => (
                        name,
                        Some(priority.parse().map_err(|_| format!("`nodes`: {priority:?} is no priority"))?),
                    ),
                    None => (text, None),
                };
                Ok((name.parse().map_err(|error| format!("`nodes`: {error}"))?, priority))
            };
            let nodes = list.split(',').map(node).collect::<Result<_, _>>()?;
            HaAffinity::Node { resources: sids()?, nodes, strict: on("strict")? }
        }
        Some("resource-affinity") => match field(step, "affinity") {
            Some("positive") => HaAffinity::Together(sids()?),
            Some("negative") => HaAffinity::Apart(sids()?),
            _ => return Err("`affinity`: expected positive or negative".to_owned()),
        },
        _ => return Err("`type`: expected node-affinity or resource-affinity".to_owned()),
    };
    Ok(NewHaRule { affinity, disable: on("disable")?, comment: field(step, "comment").map(str::to_owned) })
}

/// Sends the one request. `digest`: PVE's digest of the rules that were approved.
pub(super) async fn send(cluster: &Cluster, step: &Step, digest: &str) -> SendResult {
    let name = step.params.get("rule").map(String::as_str).unwrap_or_default();
    let name: RuleName = match name.parse() {
        Ok(name) => name,
        Err(error) => return SendResult::Refused(format!("the plan's rule is unusable: {error}")),
    };
    let client = &cluster.client;
    let sent = match step.op.as_str() {
        DELETE => client.delete_ha_rule(&name).await,
        op => {
            let rule = match rule_of(step) {
                Ok(rule) => rule,
                Err(why) => return SendResult::Refused(why),
            };
            match (op, digest.parse::<Digest>()) {
                (CREATE, _) => client.create_ha_rule(&name, &rule).await,
                (_, Ok(digest)) => client.replace_ha_rule(&name, &rule, &digest).await,
                (_, Err(_)) => {
                    return SendResult::Refused("the cluster gave the HA rules without a digest".to_owned());
                }
            }
        }
    };
    match sent {
        Ok(()) => SendResult::Synchronous,
        Err(error) => super::dispatch::failed(&error),
    }
}

/// Whether the rule is as the step makes it.
pub(super) async fn observe(cluster: &Cluster, step: &Step) -> Result<bool, String> {
    let (rules, _) = listed(cluster).await?;
    let name = step.params.get("rule").map(String::as_str).unwrap_or_default();
    let now = rules.get(name);
    if step.op == DELETE {
        return Ok(now.is_none());
    }
    let wanted: BTreeMap<String, String> = step
        .params
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("field.")?.to_owned(), value.clone())))
        .collect();
    Ok(now.is_some_and(|now| {
        wanted.iter().all(|(key, value)| now.get(key).map_or(value == "0", |is| is == value))
    }))
}
