//! The facts about PVE's API that the lab checks requests against: methods, parameters, types, bounds, formats
//! and permissions of each endpoint it has.
//!
//! They are a committed file, projected from PVE's own API description by [`project`] (`cargo run -p lab
//! --example api_facts -- <pve-api.json>` writes it again). A test compares the two.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The endpoints of the lab, as method and path template.
pub const ENDPOINTS: &[(&str, &str)] = &[
    ("GET", "/version"),
    ("GET", "/cluster/status"),
    ("GET", "/cluster/resources"),
    ("GET", "/cluster/nextid"),
    ("GET", "/cluster/ha/resources"),
    ("GET", "/nodes"),
    ("GET", "/nodes/{node}/status"),
    ("GET", "/nodes/{node}/qemu"),
    ("GET", "/nodes/{node}/qemu/{vmid}/config"),
    ("PUT", "/nodes/{node}/qemu/{vmid}/config"),
    ("GET", "/nodes/{node}/qemu/{vmid}/status/current"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/start"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/stop"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/shutdown"),
    ("GET", "/nodes/{node}/qemu/{vmid}/snapshot"),
    ("DELETE", "/nodes/{node}/qemu/{vmid}"),
    ("GET", "/nodes/{node}/lxc"),
    ("GET", "/nodes/{node}/lxc/{vmid}/config"),
    ("PUT", "/nodes/{node}/lxc/{vmid}/config"),
    ("GET", "/nodes/{node}/lxc/{vmid}/status/current"),
    ("POST", "/nodes/{node}/lxc/{vmid}/status/start"),
    ("POST", "/nodes/{node}/lxc/{vmid}/status/stop"),
    ("POST", "/nodes/{node}/lxc/{vmid}/status/shutdown"),
    ("GET", "/nodes/{node}/lxc/{vmid}/snapshot"),
    ("DELETE", "/nodes/{node}/lxc/{vmid}"),
    ("GET", "/nodes/{node}/tasks"),
    ("GET", "/nodes/{node}/tasks/{upid}/status"),
    ("GET", "/nodes/{node}/tasks/{upid}/log"),
    ("DELETE", "/nodes/{node}/tasks/{upid}"),
    ("GET", "/nodes/{node}/storage"),
    ("GET", "/nodes/{node}/storage/{storage}/content"),
    ("GET", "/pools"),
    ("GET", "/access/permissions"),
];

/// The keys of a parameter's schema that a request is checked against.
const PARAMETER_KEYS: &[&str] = &[
    "type",
    "optional",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "requires",
    "default_key",
    "alias",
    "keyAlias",
];

/// Projects PVE's API description (`{"paths": {path: {method: …}}}`) on what the lab uses. `None` when it lacks
/// one of the endpoints.
pub fn project(api: &Value) -> Option<Value> {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (method, path) in ENDPOINTS {
        let endpoint = &api["paths"][path][method];
        let mut facts = Map::new();
        for key in ["permissions", "protected", "proxyto"] {
            if let Some(value) = endpoint.get(key) {
                facts.insert(key.to_owned(), value.clone());
            }
        }
        let parameters = endpoint.get("parameters")?;
        if let Some(properties) = parameters.get("properties").and_then(Value::as_object) {
            facts.insert("parameters".to_owned(), project_properties(properties));
        }
        paths.entry(path).or_default().insert((*method).to_owned(), Value::Object(facts));
    }
    Some(json!({ "pve": api["meta"]["pve"], "paths": paths }))
}

fn project_properties(properties: &Map<String, Value>) -> Value {
    let projected = properties.iter().map(|(name, schema)| {
        let mut kept = Map::new();
        for key in PARAMETER_KEYS {
            match schema.get(*key) {
                Some(Value::Object(nested)) => kept.insert((*key).to_owned(), project_properties(nested)),
                Some(value) => kept.insert((*key).to_owned(), value.clone()),
                None => None,
            };
        }
        (name.clone(), Value::Object(kept))
    });
    Value::Object(projected.collect())
}

/// Writes facts with one parameter a line, so that a change of PVE's shows as a change of lines.
pub fn render(facts: &Value) -> String {
    let mut out = format!("{{\n\"pve\": {},\n\"paths\": {{\n", facts["pve"]);
    let empty = Map::new();
    let paths = facts["paths"].as_object().unwrap_or(&empty);
    let mut blocks = Vec::new();
    for (path, methods) in paths {
        for (method, endpoint) in methods.as_object().unwrap_or(&empty) {
            let mut lines = Vec::new();
            for (key, value) in endpoint.as_object().unwrap_or(&empty) {
                match value.as_object().filter(|_| key == "parameters") {
                    Some(parameters) => {
                        let rows: Vec<String> = parameters
                            .iter()
                            .map(|(name, schema)| format!("    {}: {schema}", json!(name)))
                            .collect();
                        lines.push(format!("  {}: {{\n{}\n  }}", json!(key), rows.join(",\n")));
                    }
                    None => lines.push(format!("  {}: {value}", json!(key))),
                }
            }
            blocks.push((path, format!("{}: {{\n{}\n}}", json!(method), lines.join(",\n"))));
        }
    }
    let mut rows = Vec::new();
    for path in paths.keys() {
        let methods: Vec<&str> =
            blocks.iter().filter(|(of, _)| *of == path).map(|(_, block)| block.as_str()).collect();
        rows.push(format!("{}: {{\n{}\n}}", json!(path), methods.join(",\n")));
    }
    out.push_str(&rows.join(",\n"));
    out.push_str("\n}\n}\n");
    out
}

/// The committed facts, as text.
pub const COMMITTED: &str = include_str!("../data/api-facts.json");

/// One endpoint.
#[derive(Debug, Deserialize)]
pub(crate) struct Endpoint {
    #[serde(default)]
    pub(crate) permissions: Value,
    #[serde(default)]
    pub(crate) proxyto: Option<String>,
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, Schema>,
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
        for (method, path) in ENDPOINTS {
            assert!(endpoint(method, path).is_some(), "{method} {path} has no facts");
        }
    }

    #[test]
    fn every_pattern_compiles() {
        let mut schemas = Vec::new();
        for endpoint in paths().values().flat_map(BTreeMap::values) {
            all_schemas(&endpoint.parameters, &mut schemas);
        }
        for pattern in schemas.iter().filter_map(|schema| schema.pattern.as_ref()) {
            assert!(compile(pattern).is_some(), "{pattern}");
        }
    }
}
