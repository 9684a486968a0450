//! The facts about PVE's API that the lab checks requests against: methods, parameters, types, bounds, formats
//! and permissions of each endpoint it has.
//!
//! They are a committed file, projected from PVE's own API description by [`project`] (`cargo run -p lab
//! --example api_facts -- <pve-api.json>` writes it again). A test compares the two.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

mod endpoints;
mod project;

pub use endpoints::endpoints;
pub use project::{project, render};

/// The committed facts, as text.
pub const COMMITTED: &str = include_str!("../../data/api-facts.json");

/// One endpoint.
#[derive(Debug, Deserialize)]
pub(crate) struct Endpoint {
    #[serde(default)]
    pub(crate) permissions: Value,
    #[serde(default)]
    pub(crate) proxyto: Option<String>,
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, Schema>,
    /// The parameter whose value tells which of the variants holds.
    #[serde(default)]
    pub(crate) variant: Option<String>,
    /// The parameters that only calls of one variant have.
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, BTreeMap<String, Schema>>,
}

/// The schema of one parameter or of one key of a property string.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Schema {
    #[serde(default, rename = "type")]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) optional: u8,
    #[serde(default, rename = "enum")]
    pub(crate) choices: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) minimum: Option<f64>,
    #[serde(default)]
    pub(crate) maximum: Option<f64>,
    #[serde(default)]
    pub(crate) min_length: Option<usize>,
    #[serde(default)]
    pub(crate) max_length: Option<usize>,
    #[serde(default)]
    pub(crate) pattern: Option<String>,
    #[serde(default)]
    pub(crate) format: Option<Format>,
    #[serde(default)]
    pub(crate) requires: Option<String>,
    #[serde(default, rename = "default_key")]
    pub(crate) default_key: u8,
    #[serde(default)]
    pub(crate) alias: Option<String>,
    #[serde(default)]
    pub(crate) key_alias: Option<String>,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
}

/// A named format, or the keys of a property string.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Format {
    Named(String),
    Properties(BTreeMap<String, Schema>),
}

impl Schema {
    /// Whether the value matches the pattern of the schema; true when it has none.
    pub(crate) fn matches_pattern(&self, value: &str) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        self.compiled.get_or_init(|| compile(pattern)).as_ref().is_none_or(|regex| regex.is_match(value))
    }
}

/// Perl's `(?^:…)` is a group with default flags; everything else in these patterns means the same here.
fn compile(pattern: &str) -> Option<Regex> {
    let translated = pattern.replace("(?^:", "(?:").replace("{,", "{0,").replace("\\0", "\\x00");
    Regex::new(&format!("^(?:{translated})$")).ok()
}

#[derive(Debug, Deserialize)]
struct Facts {
    paths: BTreeMap<String, BTreeMap<String, Endpoint>>,
}

static FACTS: LazyLock<Facts> =
    LazyLock::new(|| serde_json::from_str(COMMITTED).unwrap_or(Facts { paths: BTreeMap::new() }));

/// The path templates with their methods.
pub(crate) fn paths() -> &'static BTreeMap<String, BTreeMap<String, Endpoint>> {
    &FACTS.paths
}

/// Whether the lab has an endpoint that a method and a path (not a template) name.
pub fn has_endpoint(method: &str, path: &str) -> bool {
    crate::api::route::find(method, path).is_some()
}

/// How the parameter checker judges a call, before anything is known about the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is no such endpoint: 501.
    NotImplemented,
    /// 400 with a text per parameter.
    Refused(BTreeMap<String, String>),
    /// The schema has nothing against it.
    Accepted,
}

/// Checks the parameters of a call (a method, a path below `/api2/json`, a JSON object) as a request is checked.
pub fn judge(method: &str, path: &str, parameters: &serde_json::Map<String, Value>) -> Verdict {
    let Some(route) = crate::api::route::find(method, path) else { return Verdict::NotImplemented };
    let Some(endpoint) = endpoint(method, route.template) else { return Verdict::NotImplemented };
    let parameters = crate::api::request::of_json(parameters);
    let checked = crate::api::check::merge(parameters, &route.captured)
        .and_then(|parameters| crate::api::check::parameters(endpoint, &parameters));
    match checked {
        Err(crate::api::reply::Refusal::Parameters(errors)) => Verdict::Refused(errors),
        _ => Verdict::Accepted,
    }
}

/// One endpoint's facts.
pub(crate) fn endpoint(method: &str, template: &str) -> Option<&'static Endpoint> {
    FACTS.paths.get(template)?.get(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_schemas(of: &'static BTreeMap<String, Schema>, into: &mut Vec<&'static Schema>) {
        for schema in of.values() {
            into.push(schema);
            if let Some(Format::Properties(nested)) = &schema.format {
                all_schemas(nested, into);
            }
        }
    }

    #[test]
    fn the_committed_facts_parse_and_cover_every_endpoint() {
        serde_json::from_str::<Facts>(COMMITTED).unwrap();
        for (method, path) in endpoints() {
            assert!(endpoint(method, &path).is_some(), "{method} {path} has no facts");
        }
    }

    #[test]
    fn every_pattern_compiles() {
        let mut schemas = Vec::new();
        for endpoint in paths().values().flat_map(BTreeMap::values) {
            all_schemas(&endpoint.parameters, &mut schemas);
            for variant in endpoint.variants.values() {
                all_schemas(variant, &mut schemas);
            }
        }
        for pattern in schemas.iter().filter_map(|schema| schema.pattern.as_ref()) {
            assert!(compile(pattern).is_some(), "{pattern}");
        }
    }
}
