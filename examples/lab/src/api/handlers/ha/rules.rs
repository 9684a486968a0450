//! HA rules: which nodes resources prefer, and which resources belong together or apart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::handlers::ha::{rules_digest, unchanged};
use crate::api::reply::{Answer, Refusal};
use crate::config::HaRuleConfig;

/// What a rule has besides its name and type.
const OPTIONS: &[&str] = &["resources", "nodes", "strict", "affinity", "comment", "disable"];

fn row(call: &Call<'_>, order: usize, rule: &HaRuleConfig) -> Value {
    let mut row = json!({
        "rule": rule.rule, "type": rule.kind, "order": order + 1, "digest": rules_digest(call),
    });
    for (key, value) in &rule.options {
        row[key] = match value.parse::<i64>() {
            Ok(number) if matches!(key.as_str(), "strict" | "disable") => json!(number),
            _ => json!(value),
        };
    }
    row
}

pub(crate) fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let concerns = |rule: &HaRuleConfig, sid: &str| {
        rule.options.get("resources").is_some_and(|list| split_list(list).any(|member| member == sid))
    };
    let rows = call
        .state
        .ha_rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| call.get("type").is_none_or(|kind| kind == rule.kind))
        .filter(|(_, rule)| call.get("resource").is_none_or(|sid| concerns(rule, sid)))
        .map(|(order, rule)| row(call, order, rule));
    Ok(Answer::Data(rows.collect()))
}

pub(crate) fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let name = call.get("rule").unwrap_or_default();
    match call.state.ha_rules.iter().enumerate().find(|(_, rule)| rule.rule == name) {
        Some((order, rule)) => Ok(Answer::Data(row(call, order, rule))),
        None => Err(Refusal::die(format!("no such ha rule '{name}'"))),
    }
}

fn set_options(call: &Call<'_>, rule: &mut HaRuleConfig) {
    for key in OPTIONS {
        if let Some(value) = call.get(key) {
            let normal = match *key {
                "resources" | "nodes" => split_list(value).collect::<Vec<_>>().join(","),
                _ => value.to_owned(),
            };
            rule.options.insert((*key).to_owned(), normal);
        }
    }
}

pub(crate) fn create(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let name = call.get("rule").unwrap_or_default().to_owned();
    let failed = |text: String| Refusal::die(format!("create ha rule failed: {text}"));
    if call.state.ha_rules.iter().any(|rule| rule.rule == name) {
        return Err(failed(format!("HA rule '{name}' already defined")));
    }
    let kind = call.get("type").unwrap_or_default().to_owned();
    let mut rule = HaRuleConfig { rule: name, kind, options: BTreeMap::new() };
    set_options(call, &mut rule);
    check(call, &rule).map_err(failed)?;
    call.state.ha_rules.push(rule);
    Ok(Answer::Changed)
}

pub(crate) fn update(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let name = call.get("rule").unwrap_or_default().to_owned();
    let failed = |text: String| Refusal::die(format!("update HA rules failed: {text}"));
    let Some(at) = call.state.ha_rules.iter().position(|rule| rule.rule == name) else {
        return Err(failed(format!("HA rule '{name}' does not exist")));
    };
    unchanged(call, &rules_digest(call))?;
    let mut rule = call.state.ha_rules[at].clone();
    if call.get("type").is_some_and(|kind| kind != rule.kind) {
        let text = format!("HA rule '{name}' is of type '{}', cannot change its type", rule.kind);
        return Err(failed(text));
    }
    for key in call.get("delete").into_iter().flat_map(split_list) {
        if !OPTIONS.contains(&key) {
            return Err(failed(format!("unknown option '{key}'")));
        }
        if matches!(key, "resources" | "nodes" | "affinity") {
            return Err(failed(format!("unable to delete required option '{key}'")));
        }
        rule.options.remove(key);
    }
    set_options(call, &mut rule);
    check(call, &rule).map_err(failed)?;
    call.state.ha_rules[at] = rule;
    Ok(Answer::Changed)
}

/// Deleting a rule that does not exist is no error.
pub(crate) fn delete(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let name = call.get("rule").unwrap_or_default().to_owned();
    call.state.ha_rules.retain(|rule| rule.rule != name);
    Ok(Answer::Changed)
}

fn list_of<'a>(rule: &'a HaRuleConfig, key: &str) -> Vec<&'a str> {
    rule.options.get(key).map(|list| split_list(list).collect()).unwrap_or_default()
}

/// PVE's look at whether a rule can hold beside the others.
fn check(call: &Call<'_>, rule: &HaRuleConfig) -> Result<(), String> {
    let resources = list_of(rule, "resources");
    let managed = |sid: &&str| call.state.ha.iter().any(|resource| resource.sid == **sid);
    let unmanaged: Vec<&str> = resources.iter().filter(|sid| !managed(sid)).copied().collect();
    if !unmanaged.is_empty() {
        return Err(format!("cannot use unmanaged resource(s) {}.", unmanaged.join(", ")));
    }
    for node in list_of(rule, "nodes") {
        let name = node.split(':').next().unwrap_or_default();
        if call.state.node(name).is_none() {
            return Err(format!("cannot use non-existing node '{name}'."));
        }
    }
    let problems = if rule.kind == "resource-affinity" {
        resource_affinity(call, rule, &resources)
    } else {
        node_affinity(call, rule, &resources)
    };
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("400 Rule '{}' is invalid.\nresources: {}\n", rule.rule, problems.join(", ")))
}

/// The other rules that are in force.
fn others<'a>(call: &'a Call<'_>, rule: &HaRuleConfig, kind: &str) -> Vec<&'a HaRuleConfig> {
    let disabled = |other: &HaRuleConfig| other.options.get("disable").is_some_and(|flag| flag == "1");
    let rules = call.state.ha_rules.iter();
    rules.filter(|other| other.rule != rule.rule && other.kind == kind && !disabled(other)).collect()
}

fn node_affinity(call: &Call<'_>, rule: &HaRuleConfig, resources: &[&str]) -> Vec<String> {
    let taken = others(call, rule, "node-affinity")
        .iter()
        .any(|other| list_of(other, "resources").iter().any(|sid| resources.contains(sid)));
    if taken {
        vec!["resources are already used in another node affinity rule".to_owned()]
    } else {
        Vec::new()
    }
}

fn resource_affinity(call: &Call<'_>, rule: &HaRuleConfig, resources: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    if resources.len() < 2 {
        problems.push("rule is ineffective as there are less than two resources".to_owned());
    }
    let by_nodes = others(call, rule, "node-affinity");
    let affected: Vec<_> = by_nodes
        .iter()
        .filter(|other| list_of(other, "resources").iter().any(|sid| resources.contains(sid)))
        .collect();
    let has_priorities = affected.iter().any(|other| {
        let priorities: BTreeSet<&str> = list_of(other, "nodes")
            .iter()
            .map(|node| node.split_once(':').map_or("0", |(_, rank)| rank))
            .collect();
        priorities.len() > 1
    });
    if has_priorities {
        problems.push("resources are in node affinity rules with multiple priorities".to_owned());
    }
    if rule.options.get("affinity").is_some_and(|affinity| affinity == "negative") {
        let online = call.state.nodes.iter().filter(|node| node.online).count();
        if resources.len() > online {
            problems.push("rule defines more resources than available nodes".to_owned());
        }
    }
    problems
}
