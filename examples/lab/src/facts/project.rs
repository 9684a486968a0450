//! From PVE's API description to the facts, and the facts as text.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::facts::endpoints;

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
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (method, path) in endpoints() {
        let endpoint = &api["paths"][&path][method];
        let mut facts = Map::new();
        for key in ["permissions", "protected", "proxyto"] {
            if let Some(value) = endpoint.get(key) {
                facts.insert(key.to_owned(), value.clone());
            }
        }
        let parameters = endpoint.get("parameters")?;
        let mut properties = Map::new();
        collect(parameters, &mut properties, &mut facts);
        if !properties.is_empty() {
            facts.insert("parameters".to_owned(), Value::Object(properties));
        }
        paths.entry(path).or_default().insert(method.to_owned(), Value::Object(facts));
    }
    Some(json!({ "pve": api["meta"]["pve"], "paths": paths }))
}

/// The properties of a schema: plain ones, those of all parts of an `allOf`, and a `oneOf` as variants by the
/// value of the parameter that tells them apart.
fn collect(schema: &Value, properties: &mut Map<String, Value>, facts: &mut Map<String, Value>) {
    if let Some(plain) = schema.get("properties").and_then(Value::as_object) {
        properties.extend(project_properties(plain));
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        collect(part, properties, facts);
    }
    let Some(variants) = schema.get("oneOf").and_then(Value::as_array) else { return };
    if let Some(name) = schema["type-property"].as_str() {
        properties.insert(name.to_owned(), Value::Object(project_schema(&schema["type-property-schema"])));
        facts.insert("variant".to_owned(), json!(name));
    }
    let variants = variants.iter().filter_map(|variant| {
        let own = variant.get("properties").and_then(Value::as_object)?;
        Some((variant["instance-type"].as_str()?.to_owned(), Value::Object(project_properties(own))))
    });
    facts.insert("variants".to_owned(), Value::Object(variants.collect()));
}

fn project_properties(properties: &Map<String, Value>) -> Map<String, Value> {
    properties.iter().map(|(name, schema)| (name.clone(), Value::Object(project_schema(schema)))).collect()
}

fn project_schema(schema: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    for key in PARAMETER_KEYS {
        let value = match schema.get(*key) {
            Some(Value::Object(nested)) => Value::Object(project_properties(nested)),
            // Perl does not tell numbers from their text; neither do some of its descriptions.
            Some(Value::String(text)) if matches!(*key, "minimum" | "maximum" | "optional") => {
                text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number))
            }
            Some(Value::Null) | None => continue,
            Some(value) => value.clone(),
        };
        kept.insert((*key).to_owned(), value);
    }
    kept
}

/// Writes facts with one parameter a line, so that a change of PVE's shows as a change of lines.
pub fn render(facts: &Value) -> String {
    let mut out = format!("{{\n\"pve\": {},\n\"paths\": {{\n", facts["pve"]);
    let empty = Map::new();
    let paths = facts["paths"].as_object().unwrap_or(&empty);
    let mut rows = Vec::new();
    for (path, methods) in paths {
        let methods: Vec<String> = methods
            .as_object()
            .unwrap_or(&empty)
            .iter()
            .map(|(method, endpoint)| format!("{}: {{\n{}\n}}", json!(method), render_endpoint(endpoint)))
            .collect();
        rows.push(format!("{}: {{\n{}\n}}", json!(path), methods.join(",\n")));
    }
    out.push_str(&rows.join(",\n"));
    out.push_str("\n}\n}\n");
    out
}

fn render_endpoint(endpoint: &Value) -> String {
    let empty = Map::new();
    let lines = endpoint.as_object().unwrap_or(&empty).iter().map(|(key, value)| {
        match value.as_object().filter(|_| key == "parameters") {
            Some(parameters) => {
                let rows: Vec<String> = parameters
                    .iter()
                    .map(|(name, schema)| format!("    {}: {schema}", json!(name)))
                    .collect();
                format!("  {}: {{\n{}\n  }}", json!(key), rows.join(",\n"))
            }
            None => format!("  {}: {value}", json!(key)),
        }
    });
    lines.collect::<Vec<_>>().join(",\n")
}
