//! Firewall rules: an ordered list in which positions move.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::handlers::firewall::{digest, macros, unchanged, version_of};
use crate::api::reply::{Answer, Refusal};
use crate::state::firewall::Scope;

/// One rule by the names of the API.
type Rule = BTreeMap<String, String>;

/// What a rule consists of.
const FIELDS: &[&str] = &[
    "type",
    "action",
    "enable",
    "macro",
    "iface",
    "source",
    "dest",
    "proto",
    "dport",
    "sport",
    "log",
    "icmp-type",
    "comment",
];

/// Which list of rules: that of a scope, or that of a security group.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    scope: Scope,
    group: Option<String>,
}

impl Place {
    pub(crate) fn scope(scope: Scope) -> Place {
        Place { scope, group: None }
    }

    pub(crate) fn group(call: &Call<'_>) -> Place {
        Place { scope: Scope::Cluster, group: Some(call.get("group").unwrap_or_default().to_owned()) }
    }

    /// The rules; a group that does not exist is an error.
    fn rules<'a>(&self, call: &'a Call<'_>) -> Result<&'a [Rule], Refusal> {
        let firewall = call.state.firewalls.of(&self.scope);
        match &self.group {
            None => Ok(&firewall.rules),
            Some(name) => match firewall.group(name) {
                Some(group) => Ok(&group.rules),
                None => Err(Refusal::die(format!("no such security group '{name}'"))),
            },
        }
    }

    fn store(&self, call: &mut Call<'_>, rules: Vec<Rule>) {
        let firewall = call.state.firewalls.of_mut(&self.scope);
        match &self.group {
            None => firewall.rules = rules,
            Some(name) => {
                for group in firewall.groups.iter_mut().filter(|group| group.group == *name) {
                    group.rules.clone_from(&rules);
                }
            }
        }
    }
}

/// A rule as the API shows it, with what is wrong with it.
fn row(call: &Call<'_>, place: &Place, rule: &Rule, digest: &str) -> Map<String, Value> {
    let mut row: Map<String, Value> = rule
        .iter()
        .filter(|(key, _)| *key != "enable")
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let enabled = rule.get("enable").is_some_and(|enable| enable != "0");
    row.insert("enable".to_owned(), json!(u8::from(enabled)));
    row.insert("digest".to_owned(), json!(digest));
    if let Some(version) = version(call, &place.scope, rule) {
        row.insert("ipversion".to_owned(), json!(version));
    }
    let errors = errors(call, place, rule);
    if !errors.is_empty() {
        row.insert("errors".to_owned(), json!(errors));
    }
    row
}

fn version(call: &Call<'_>, scope: &Scope, rule: &Rule) -> Option<u8> {
    ["source", "dest"].iter().filter_map(|key| rule.get(*key)).find_map(|text| {
        let alias = || call.state.firewalls.alias(scope, text).map(|alias| alias.cidr.clone());
        version_of(text).or_else(|| version_of(&alias()?))
    })
}

/// What PVE finds wrong with a rule besides its schema.
fn errors(call: &Call<'_>, place: &Place, rule: &Rule) -> BTreeMap<&'static str, String> {
    let mut errors = BTreeMap::new();
    if rule.get("type").is_some_and(|kind| kind == "group") {
        return errors;
    }
    if let Some(action) = rule.get("action").filter(|action| !is_action(action)) {
        errors.insert("action", format!("unknown action '{action}'"));
    }
    let name = rule.get("macro");
    if let Some(name) = name.filter(|name| !macros::is_known(name)) {
        errors.insert("macro", format!("unknown macro '{name}'"));
    }
    for port in ["dport", "sport"] {
        if rule.contains_key(port) && !rule.contains_key("proto") && name.is_none() {
            errors.insert("proto", format!("missing property - '{port}' requires this property"));
        }
    }
    for (key, text) in ["source", "dest"].into_iter().filter_map(|key| Some((key, rule.get(key)?))) {
        for item in split_list(text) {
            let firewalls = &call.state.firewalls;
            if let Some(set) = item.strip_prefix('+') {
                if firewalls.ipset(&place.scope, set).is_none() {
                    errors.insert(key, format!("no such ipset '{set}'"));
                }
            } else if is_name(item) && firewalls.alias(&place.scope, item).is_none() {
                errors.insert(key, format!("no such alias '{item}'"));
            }
        }
    }
    errors
}

fn is_action(text: &str) -> bool {
    matches!(text, "ACCEPT" | "DROP" | "REJECT")
}

/// Whether a text is the name of an alias and no address.
fn is_name(text: &str) -> bool {
    let name = text.split_once('/').map_or(
        text,
        |(scope, name)| {
            if matches!(scope, "dc" | "guest") { name } else { scope }
        },
    );
    name.starts_with(|char: char| char.is_ascii_alphabetic()) && version_of(name).is_none()
}

pub(crate) fn list(call: &Call<'_>, place: &Place) -> Result<Answer, Refusal> {
    let rules = place.rules(call)?;
    let digest = digest(&rules);
    let rows = rules.iter().enumerate().map(|(pos, rule)| {
        let mut row = row(call, place, rule, &digest);
        row.insert("pos".to_owned(), json!(pos));
        Value::Object(row)
    });
    Ok(Answer::Data(rows.collect()))
}

/// The rule of a call: its position, if there is one there.
fn position(call: &Call<'_>, rules: &[Rule]) -> Result<usize, Refusal> {
    let text = call.get("pos").unwrap_or_default();
    match text.parse::<usize>() {
        Ok(pos) if pos < rules.len() => Ok(pos),
        _ => Err(Refusal::die(format!("no rule at position {text}"))),
    }
}

pub(crate) fn one(call: &Call<'_>, place: &Place) -> Result<Answer, Refusal> {
    let rules = place.rules(call)?;
    let pos = position(call, rules)?;
    let mut row = row(call, place, &rules[pos], &digest(&rules));
    // The position is the text of the path here.
    row.insert("pos".to_owned(), json!(pos.to_string()));
    Ok(Answer::Data(Value::Object(row)))
}

/// The fields that a call sets; an empty text is no value.
fn given(call: &Call<'_>) -> Rule {
    let fields = FIELDS.iter().filter_map(|key| Some(((*key).to_owned(), call.get(key)?.to_owned())));
    fields.filter(|(_, value)| !value.is_empty()).collect()
}

fn accept(call: &Call<'_>, place: &Place, rule: &Rule) -> Result<(), Refusal> {
    if rule.get("type").is_some_and(|kind| kind == "group") && place.group.is_some() {
        return Err(Refusal::parameter("type", "security groups not allowed"));
    }
    let errors = errors(call, place, rule);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::Parameters(errors.into_iter().map(|(key, text)| (key.to_owned(), text)).collect()))
}

/// A new rule is the first one, whatever `pos` says, and off unless told.
pub(crate) fn create(call: &mut Call<'_>, place: &Place) -> Result<Answer, Refusal> {
    let mut rules = place.rules(call)?.to_vec();
    unchanged(call, &digest(&rules.as_slice()))?;
    let mut rule = given(call);
    rule.entry("enable".to_owned()).or_insert_with(|| "0".to_owned());
    accept(call, place, &rule)?;
    rules.insert(0, rule);
    place.store(call, rules);
    Ok(Answer::Changed)
}

/// Changes the given fields; `moveto` moves the rule before that position of the old list and ignores the rest.
pub(crate) fn update(call: &mut Call<'_>, place: &Place) -> Result<Answer, Refusal> {
    let mut rules = place.rules(call)?.to_vec();
    unchanged(call, &digest(&rules.as_slice()))?;
    let pos = position(call, &rules)?;
    let target = call.get("moveto").and_then(|text| text.parse::<usize>().ok());
    if let Some(target) = target.filter(|target| *target != pos) {
        let rule = rules.remove(pos);
        // The target counts in the old list, in which the rule was still there.
        let at = if target > pos { target - 1 } else { target };
        rules.insert(at.min(rules.len()), rule);
        place.store(call, rules);
        return Ok(Answer::Changed);
    }
    let mut rule = rules[pos].clone();
    for key in call.get("delete").into_iter().flat_map(split_list) {
        let problem = match key {
            "type" | "action" => format!("unable to delete required property '{key}'"),
            _ if FIELDS.contains(&key) => {
                rule.remove(key);
                continue;
            }
            _ => format!("no such property - '{key}'"),
        };
        return Err(Refusal::parameter("delete", problem));
    }
    rule.extend(given(call));
    accept(call, place, &rule)?;
    rules[pos] = rule;
    place.store(call, rules);
    Ok(Answer::Changed)
}

pub(crate) fn delete(call: &mut Call<'_>, place: &Place) -> Result<Answer, Refusal> {
    let mut rules = place.rules(call)?.to_vec();
    unchanged(call, &digest(&rules.as_slice()))?;
    let pos = position(call, &rules)?;
    rules.remove(pos);
    place.store(call, rules);
    Ok(Answer::Changed)
}
