//! The tools' functions, by area. Each takes the call's context first, and a mutation its [`authz::Permit`].

pub mod changes;
pub mod guests;
pub mod power;
pub mod transfers;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::catalog::Arguments;
use crate::stack::ToolFailure;

/// Typed arguments. The schema has checked them already, so a failure here is a schema that says less than its type.
pub(crate) fn parsed<T: DeserializeOwned>(arguments: Arguments) -> Result<T, ToolFailure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolFailure::new("invalid_argument", format!("arguments do not fit: {error}")))
}
