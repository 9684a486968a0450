//! A tool as `tools/list` shows it.
//!
//! One schema that a client cannot read makes several clients drop the whole list, so [`ToolDescriptor::new`]
//! refuses what they are known to refuse.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

mod plain;

pub use plain::{SchemaError, plain_schema};

/// Hints about what a tool does. All four are always sent: the defaults of the specification are pessimistic
/// and clients differ in applying them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "these are the protocol's four independent hints")]
pub struct Annotations {
    /// Changes nothing.
    pub read_only_hint: bool,
    /// May destroy something. Meaningless when read-only.
    pub destructive_hint: bool,
    /// A repeated call with the same arguments adds nothing.
    pub idempotent_hint: bool,
    /// Reaches beyond a closed domain, for example fetches a URL the caller names.
    pub open_world_hint: bool,
}

impl Annotations {
    /// The hints of a plain read.
    pub const READ: Self =
        Self { read_only_hint: true, destructive_hint: false, idempotent_hint: true, open_world_hint: false };
}

/// Why a descriptor was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool `{tool}`: {problem}")]
pub struct DescriptorError {
    tool: String,
    problem: &'static str,
}

/// A tool's entry in `tools/list`. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDescriptor {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) input_schema: Arc<Value>,
    pub(crate) output_schema: Option<Arc<Value>>,
    pub(crate) annotations: Option<Annotations>,
    pub(crate) meta: Option<Arc<Value>>,
}

impl ToolDescriptor {
    /// A descriptor with the parts every tool has.
    ///
    /// # Errors
    /// When the name is not 1 to 64 of `[A-Za-z0-9_-]`, the description is empty, or the schema's root is not
    /// a plain `"type": "object"` (root combinators make model APIs refuse the tool).
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<Arc<Value>>,
    ) -> Result<Self, DescriptorError> {
        let tool = Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: input_schema.into(),
            output_schema: None,
            annotations: None,
            meta: None,
        };
        let name_fits = (1..=64).contains(&tool.name.len())
            && tool.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !name_fits {
            return Err(tool.refused("the name must be 1 to 64 of `[A-Za-z0-9_-]`"));
        }
        if tool.description.trim().is_empty() {
            return Err(tool.refused("the description is empty"));
        }
        check_root(&tool.input_schema).map_err(|problem| tool.refused(problem))?;
        Ok(tool)
    }

    /// A descriptor with an input schema that is sent as it is, of whatever shape JSON Schema 2020-12 allows an
    /// object. Several clients drop the whole list over one such schema: only for clients you know.
    ///
    /// # Errors
    /// For a name or description that [`ToolDescriptor::new`] refuses, or a root that is not `"type": "object"`.
    pub fn verbatim(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<Arc<Value>>,
    ) -> Result<Self, DescriptorError> {
        let tool = Self::new(name, description, serde_json::json!({"type": "object"}))?;
        let input_schema = input_schema.into();
        if input_schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(tool.refused("the schema's root must have `\"type\": \"object\"`"));
        }
        Ok(Self { input_schema, ..tool })
    }

    /// Sets the name people see.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the schema of the structured content.
    ///
    /// # Errors
    /// When its root is not a plain `"type": "object"`.
    pub fn output_schema(mut self, schema: impl Into<Arc<Value>>) -> Result<Self, DescriptorError> {
        let schema = schema.into();
        check_root(&schema).map_err(|problem| self.refused(problem))?;
        self.output_schema = Some(schema);
        Ok(self)
    }

    /// Sets the hints.
    #[must_use]
    pub fn annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Sets the tool's `_meta`, for example `{"anthropic/maxResultSizeChars": 500000}`.
    #[must_use]
    pub fn meta(mut self, meta: impl Into<Arc<Value>>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// The name callers use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn refused(&self, problem: &'static str) -> DescriptorError {
        DescriptorError { tool: self.name.chars().take(80).collect(), problem }
    }
}

impl Serialize for ToolDescriptor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            title: Option<&'a str>,
            description: &'a str,
            input_schema: &'a Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            output_schema: Option<&'a Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            annotations: Option<Annotations>,
            #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
            meta: Option<&'a Value>,
        }
        Wire {
            name: &self.name,
            title: self.title.as_deref(),
            description: &self.description,
            input_schema: &self.input_schema,
            output_schema: self.output_schema.as_deref(),
            annotations: self.annotations,
            meta: self.meta.as_deref(),
        }
        .serialize(serializer)
    }
}

fn check_root(schema: &Value) -> Result<(), &'static str> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("the schema's root must have `\"type\": \"object\"`");
    }
    if ["anyOf", "oneOf", "allOf", "not", "if", "$ref", "enum", "const"]
        .iter()
        .any(|key| schema.get(key).is_some())
    {
        return Err("the schema's root must be a plain object without combinators");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn e07_roots_that_make_clients_drop_the_list_are_refused() {
        let roots = [
            json!({"oneOf": [{"type": "object"}]}),
            json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
            json!({"type": "array", "items": {}}),
            json!({"type": ["object", "null"]}),
            json!({}),
            json!(true),
        ];
        for root in roots {
            assert!(ToolDescriptor::new("t", "d", root.clone()).is_err(), "{root}");
            let fine = ToolDescriptor::new("t", "d", json!({"type": "object"})).unwrap();
            assert!(fine.output_schema(root.clone()).is_err(), "{root}");
        }
    }

    #[test]
    fn names_that_clients_refuse_are_refused() {
        for name in ["", "a.b", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(ToolDescriptor::new(name, "d", json!({"type": "object"})).is_err(), "{name}");
        }
        assert!(ToolDescriptor::new("t", " ", json!({"type": "object"})).is_err());
    }
}
