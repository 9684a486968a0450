//! Schemas of arguments, from the types that are deserialized.

use mcp_wire::tool::{SchemaError, plain_schema};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of `T` in the subset that real clients read.
///
/// # Errors
/// `T` cannot be said in that subset, which the catalog's tests would have found.
pub fn schema_of<T: JsonSchema>() -> Result<Value, SchemaError> {
    let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let mut schema = plain_schema(root.to_value())?;
    if let Value::Object(root) = &mut schema {
        // The names of our types mean nothing to a caller, and every word of a schema costs a model's context.
        root.remove("title");
        root.remove("description");
        root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(schema)
}
