//! JSON schemas as every client accepts them.
//!
//! Real clients drop a whole tool list over one schema they cannot read: a `$ref`, a type that is an array, a root that is
//! not a plain object. So schemas are generated from the argument types and then flattened to the common ground.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of `T` with everything inlined: no `$` keyword, one type per node, an object at the root.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut value = settings.into_generator().into_root_schema_for::<T>().to_value();
    flatten(&mut value);
    if let Value::Object(root) = &mut value {
        root.entry("type").or_insert_with(|| Value::from("object"));
        root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    value
}

fn flatten(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !key.starts_with('$') && key != "title" && key != "format");
            // `Option<T>`: absence is what "optional" means here, null is not an answer.
            if let Some(Value::Array(types)) = map.get("type") {
                let real: Vec<&Value> = types.iter().filter(|t| t.as_str() != Some("null")).collect();
                if let [one] = real.as_slice() {
                    let one = (*one).clone();
                    map.insert("type".to_owned(), one);
                }
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            unwrap_nullable(map);
            for child in map.values_mut() {
                flatten(child);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(flatten),
        _ => {}
    }
}

/// `anyOf: [X, null]` is how an optional enum or object is generated; X alone says the same here.
fn unwrap_nullable(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.get("anyOf") else { return };
    let real: Vec<Value> =
        choices.iter().filter(|c| c.get("type").and_then(Value::as_str) != Some("null")).cloned().collect();
    if let [Value::Object(only)] = real.as_slice() {
        let only = only.clone();
        map.remove("anyOf");
        for (key, value) in only {
            map.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Inner {
        name: String,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Outer {
        count: Option<u32>,
        inner: Option<Inner>,
        many: Vec<Inner>,
    }

    #[test]
    fn schemas_hold_nothing_a_client_has_choked_on() {
        let schema = schema_of::<Outer>();
        let text = schema.to_string();
        assert!(!text.contains('$'), "{text}");
        assert!(!text.contains("\"type\":["), "{text}");
        assert!(!text.contains("anyOf"), "{text}");
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["count"]["type"], "integer");
        assert_eq!(schema["properties"]["inner"]["type"], "object");
        assert_eq!(schema["properties"]["many"]["items"]["properties"]["name"]["type"], "string");
    }
}
