//! Schemas that every client reads: references inlined, one type per node, standard formats only.

use serde_json::{Map, Value};

/// Deepest schema taken. Deeper is a mistake, and a bound keeps the walk's stack small.
const MAX_DEPTH: usize = 32;

/// Formats of JSON Schema 2020-12; generators add others (`uint32`, `double`) that strict clients refuse.
const STANDARD_FORMATS: [&str; 19] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uuid",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

/// Why a schema cannot be made plain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It refers to itself, or nests deeper than 32.
    #[error("the schema nests deeper than 32 or refers to itself; flatten it")]
    Deep,
    /// A `$ref` that is not `#/$defs/…` or `#/definitions/…`, or whose definition is missing.
    #[error("`$ref` must name a definition in the schema's own `$defs`")]
    Reference,
    /// More than one non-null type, or more than one non-null alternative to choose from.
    #[error("`type` must be a single type; use optional fields instead of alternatives")]
    Types,
}

/// Rewrites a generated schema (schemars') into the subset that deployed clients understand: `$ref` inlined,
/// `$schema` and `$defs` dropped, `["x", "null"]` and `anyOf: [x, null]` reduced to `x`, a `oneOf` of constants (an
/// enum with documented variants) to `enum`, non-standard `format` dropped. Bounds such as `minimum: 0` stay.
///
/// # Errors
/// [`SchemaError`] when there is no such rewriting.
pub fn plain_schema(schema: Value) -> Result<Value, SchemaError> {
    let definitions: Map<String, Value> = ["$defs", "definitions"]
        .iter()
        .filter_map(|key| schema.get(key).and_then(Value::as_object))
        .flat_map(|map| map.clone())
        .collect();
    node(schema, &definitions, MAX_DEPTH)
}

/// The values and the one type of alternatives that are all constants.
fn constants(choices: &Value) -> Option<(Vec<Value>, Value)> {
    let choices = choices.as_array()?;
    let of_type = choices.first()?.get("type")?.clone();
    let value =
        |choice: &Value| (choice.get("type") == Some(&of_type)).then(|| choice.get("const").cloned())?;
    Some((choices.iter().map(value).collect::<Option<_>>()?, of_type))
}

fn node(schema: Value, definitions: &Map<String, Value>, depth: usize) -> Result<Value, SchemaError> {
    let depth = depth.checked_sub(1).ok_or(SchemaError::Deep)?;
    let Value::Object(mut map) = schema else { return Ok(schema) };
    if let Some(reference) = map.remove("$ref") {
        let name = reference
            .as_str()
            .and_then(|r| r.strip_prefix("#/$defs/").or_else(|| r.strip_prefix("#/definitions/")));
        let target = name.and_then(|name| definitions.get(name)).ok_or(SchemaError::Reference)?;
        let Value::Object(mut merged) = node(target.clone(), definitions, depth)? else {
            return Err(SchemaError::Reference);
        };
        // What stands beside the reference is more specific: a field's own description wins.
        merged.append(&mut map);
        return node(Value::Object(merged), definitions, depth);
    }
    map.retain(|key, _| !key.starts_with('$') && key != "definitions");
    if let Some(Value::Array(types)) = map.get("type") {
        let mut named = types.iter().filter(|t| t.as_str() != Some("null"));
        let (Some(only), None) = (named.next().cloned(), named.next()) else {
            return Err(SchemaError::Types);
        };
        map.insert("type".into(), only);
    }
    if let Some(Value::Array(choices)) = map.remove("anyOf") {
        let null = serde_json::json!({"type": "null"});
        let mut real = choices.into_iter().filter(|choice| *choice != null);
        let (Some(Value::Object(mut only)), None) = (real.next(), real.next()) else {
            return Err(SchemaError::Types);
        };
        only.append(&mut map);
        return node(Value::Object(only), definitions, depth);
    }
    if let Some(choices) = map.remove("oneOf") {
        let (values, of_type) = constants(&choices).ok_or(SchemaError::Types)?;
        map.insert("type".into(), of_type);
        map.insert("enum".into(), Value::Array(values));
    }
    let standard = |format: &Value| format.as_str().is_some_and(|f| STANDARD_FORMATS.contains(&f));
    if map.get("format").is_some_and(|format| !standard(format)) {
        map.remove("format");
    }
    // A default of null says no more than that the field may be left out, and contradicts its single type.
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.remove(key) {
            map.insert(key.into(), node(inner, definitions, depth)?);
        }
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let plain = properties.into_iter().map(|(name, inner)| Ok((name, node(inner, definitions, depth)?)));
        map.insert("properties".into(), Value::Object(plain.collect::<Result<_, SchemaError>>()?));
    }
    Ok(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn e08_non_standard_formats_go_and_bounds_stay() {
        let schema = json!({"$schema": "x", "type": "object", "properties": {
            "vmid": {"type": "integer", "format": "uint32", "minimum": 0},
            "when": {"type": ["string", "null"], "format": "date-time", "default": null},
            "disk": {"anyOf": [{"$ref": "#/$defs/Disk"}, {"type": "null"}], "description": "here"},
            "$ref": {"type": "string"},
        }, "$defs": {"Disk": {"type": "object", "description": "there", "properties": {"gb": {"type": "number", "format": "double"}}}}});
        assert_eq!(
            plain_schema(schema).unwrap(),
            json!({"type": "object", "properties": {
                "vmid": {"type": "integer", "minimum": 0},
                "when": {"type": "string", "format": "date-time"},
                "disk": {"type": "object", "description": "here", "properties": {"gb": {"type": "number"}}},
                "$ref": {"type": "string"},
            }})
        );
    }

    #[test]
    fn an_enum_with_documented_variants_becomes_a_list_of_values() {
        let schema = json!({"oneOf": [
            {"const": "a", "type": "string", "description": "the first"},
            {"const": "b", "type": "string"},
        ], "description": "which"});
        let plain = json!({"type": "string", "enum": ["a", "b"], "description": "which"});
        assert_eq!(plain_schema(schema), Ok(plain));
        let mixed = json!({"oneOf": [{"const": "a", "type": "string"}, {"type": "integer"}]});
        assert_eq!(plain_schema(mixed), Err(SchemaError::Types));
    }

    #[test]
    fn schemas_without_a_plain_form_are_refused() {
        let recursive =
            json!({"$ref": "#/$defs/N", "$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}}}});
        assert_eq!(plain_schema(recursive), Err(SchemaError::Deep));
        assert_eq!(plain_schema(json!({"$ref": "https://x.test/s"})), Err(SchemaError::Reference));
        assert_eq!(plain_schema(json!({"type": ["string", "integer"]})), Err(SchemaError::Types));
        assert_eq!(
            plain_schema(json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})),
            Err(SchemaError::Types)
        );
    }
}
