//! Argument validation whose errors a model can act on.

use std::{collections::BTreeMap, fmt};

use jsonschema::{ValidationError, error::ValidationErrorKind, paths::LocationSegment};
use serde_json::{Map, Value};

use crate::{ToolResult, jsonrpc::quoted};

/// A tool's input schema, compiled. Build one per tool at start-up and keep it.
///
/// Models write numbers and booleans as strings now and then, so a canonical decimal (`"100"`, not `"0100"` or
/// `"1e2"`) is taken for an integer and `"true"` / `"false"` for a boolean. Nothing else is bent. Arguments that
/// the schema does not name are refused unless its root sets `additionalProperties` to true or a schema.
/// Patterns run on an engine without backtracking.
pub struct Validator {
    compiled: jsonschema::Validator,
    schema: Value,
    shape: Option<Shape>,
    closed: bool,
}

/// The schema is not one that can be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the input schema cannot be compiled: {0}")]
pub struct CompileError(String);

/// The first argument that does not fit: its name, what was expected and the JSON type that came. Never its
/// value, which may be a secret or a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentProblem {
    /// Where: `vmid`, `disks[0].size`.
    pub field: String,
    /// What fits there, or which names there are when the field itself is unknown.
    pub expected: String,
    /// The JSON type received; `nothing` for a missing argument.
    pub got_type: &'static str,
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, expected, got_type } = self;
        write!(f, "argument {}: expected {expected}, got {got_type}", quoted(field))
    }
}

impl std::error::Error for ArgumentProblem {}

impl From<ArgumentProblem> for ToolResult {
    /// The problem as a result with `isError`, which models read; a protocol error would stop at the client.
    fn from(problem: ArgumentProblem) -> Self {
        Self::error(format!("{problem}; correct it and call again"))
    }
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validator").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Validator {
    /// Compiles `schema`, an object schema as in `tools/list`. References to other documents are not fetched.
    ///
    /// # Errors
    /// When it is no valid JSON Schema, refers to another document, or has a pattern that needs backtracking.
    pub fn new(schema: &Value) -> Result<Self, CompileError> {
        let compiled = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(schema)
            .map_err(|error| CompileError(error.to_string()))?;
        let closed = matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
        Ok(Self { compiled, shape: Shape::of(schema), schema: schema.clone(), closed })
    }

    /// Checks `arguments` and returns them with strings turned into the integers and booleans they spell.
    ///
    /// # Errors
    /// The first problem, in a stable order: unknown names, then the schema's own order.
    pub fn validate(&self, arguments: Map<String, Value>) -> Result<Map<String, Value>, ArgumentProblem> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        if self.closed
            && let Some((name, value)) =
                arguments.iter().find(|(name, _)| !properties.is_some_and(|p| p.contains_key(*name)))
        {
            return Err(unknown(shortened(name), value, &self.schema));
        }
        let mut arguments = arguments;
        if let Some(shape) = &self.shape {
            shape.members(&mut arguments);
        }
        let value = Value::Object(arguments);
        // The yes or no costs half of what the search for the first problem does.
        if !self.compiled.is_valid(&value)
            && let Err(error) = self.compiled.validate(&value)
        {
            return Err(self.problem(&error));
        }
        match value {
            Value::Object(map) => Ok(map),
            _ => Ok(Map::new()),
        }
    }

    fn problem(&self, error: &ValidationError<'_>) -> ArgumentProblem {
        let mut field = String::new();
        let mut node = Some(&self.schema);
        for segment in error.instance_path() {
            match segment {
                LocationSegment::Property(name) => {
                    node = node.and_then(|n| {
                        n.get("properties")?.get(&*name).or_else(|| n.get("additionalProperties"))
                    });
                    if !field.is_empty() {
                        field.push('.');
                    }
                    field.push_str(&shortened(&name));
                }
                LocationSegment::Index(index) => {
                    node = node.and_then(|n| n.get("items"));
                    field.push_str(&format!("[{index}]"));
                }
            }
        }
        let below = |name: &str| match field.is_empty() {
            true => shortened(name),
            false => format!("{field}.{}", shortened(name)),
        };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let expected = described(node.and_then(|n| n.get("properties")?.get(name)));
                ArgumentProblem { field: below(name), expected, got_type: "nothing" }
            }
            ValidationErrorKind::AdditionalProperties { unexpected } if !unexpected.is_empty() => {
                let name = unexpected.iter().min().map_or("", String::as_str);
                let value = error.instance().get(name).unwrap_or(&Value::Null);
                unknown(below(name), value, node.unwrap_or(&Value::Null))
            }
            _ => {
                let field = if field.is_empty() { "arguments".to_owned() } else { field };
                ArgumentProblem { field, expected: described(node), got_type: json_type(error.instance()) }
            }
        }
    }
}

/// What a schema says about strings that spell something else, and where in it: nothing but the nodes on the way to one.
#[derive(Debug, Default)]
struct Shape {
    wants: Option<Wants>,
    properties: Vec<(String, Shape)>,
    items: Option<Box<Shape>>,
}

#[derive(Debug, Clone, Copy)]
enum Wants {
    Integer,
    Boolean,
}

impl Shape {
    /// `None` where nothing below can need a change.
    fn of(schema: &Value) -> Option<Self> {
        let wants = match schema.get("type").and_then(Value::as_str) {
            Some("integer") => Some(Wants::Integer),
            Some("boolean") => Some(Wants::Boolean),
            _ => None,
        };
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let shape = Self {
            wants,
            properties: properties.filter_map(|(name, at)| Some((name.clone(), Self::of(at)?))).collect(),
            items: schema.get("items").and_then(Self::of).map(Box::new),
        };
        let says_something = wants.is_some() || !shape.properties.is_empty() || shape.items.is_some();
        says_something.then_some(shape)
    }

    /// Turns canonical strings into what the schema wants, where it wants only that.
    fn straighten(&self, value: &mut Value) {
        match (&mut *value, self.wants) {
            (Value::String(text), Some(Wants::Integer)) => {
                if let Some(number) = canonical_integer(text) {
                    *value = number;
                }
            }
            // A whole double is an integer to JSON Schema, but not to a Rust type behind it.
            (Value::Number(number), Some(Wants::Integer)) => {
                let whole = number
                    .as_f64()
                    .filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < 9_007_199_254_740_992.0);
                if let Some(number) = whole.and_then(|n| canonical_integer(&format!("{n:.0}"))) {
                    *value = number;
                }
            }
            (Value::String(text), Some(Wants::Boolean)) => match text.as_str() {
                "true" => *value = Value::Bool(true),
                "false" => *value = Value::Bool(false),
                _ => {}
            },
            (Value::Object(map), _) => self.members(map),
            (Value::Array(values), _) => {
                if let Some(items) = &self.items {
                    values.iter_mut().for_each(|value| items.straighten(value));
                }
            }
            _ => {}
        }
    }

    fn members(&self, map: &mut Map<String, Value>) {
        for (name, shape) in &self.properties {
            if let Some(value) = map.get_mut(name) {
                shape.straighten(value);
            }
        }
    }
}

/// The integer that `text` is the one way to write.
fn canonical_integer(text: &str) -> Option<Value> {
    let value = match text.parse::<i64>() {
        Ok(n) => Value::from(n),
        Err(_) => Value::from(text.parse::<u64>().ok()?),
    };
    let canonical = value.to_string();
    (canonical == text).then_some(value)
}

fn unknown(field: String, value: &Value, schema: &Value) -> ArgumentProblem {
    let names: Vec<_> = schema.get("properties").and_then(Value::as_object).into_iter().flatten().collect();
    let expected = if names.is_empty() {
        "no arguments".to_owned()
    } else {
        let names: BTreeMap<_, _> = names.into_iter().collect();
        let list: Vec<_> = names.keys().map(|name| format!("`{name}`")).collect();
        format!("only the arguments {}", list.join(", "))
    };
    ArgumentProblem { field, expected, got_type: json_type(value) }
}

/// A schema node in words.
fn described(node: Option<&Value>) -> String {
    let Some(node) = node else { return "a value that fits the schema".to_owned() };
    let text = |key: &str| node.get(key).filter(|v| v.is_number() || v.is_string()).map(plain);
    if let Some(options) = node.get("enum").and_then(Value::as_array) {
        let list: Vec<_> = options.iter().map(|option| format!("`{}`", plain(option))).collect();
        return format!("one of {}", list.join(", "));
    }
    if let Some(only) = node.get("const") {
        return format!("`{}`", plain(only));
    }
    let kind = node.get("type").and_then(Value::as_str).unwrap_or("a value that fits the schema");
    let mut out = kind.to_owned();
    let (low, high, unit) = match kind {
        "string" => (text("minLength"), text("maxLength"), " characters"),
        "array" => (text("minItems"), text("maxItems"), " items"),
        _ => (text("minimum"), text("maximum"), ""),
    };
    match (low, high) {
        (Some(low), Some(high)) => out.push_str(&format!(" of {low} to {high}{unit}")),
        (Some(low), None) => out.push_str(&format!(" of at least {low}{unit}")),
        (None, Some(high)) => out.push_str(&format!(" of at most {high}{unit}")),
        (None, None) => {}
    }
    if let Some(low) = text("exclusiveMinimum") {
        out.push_str(&format!(" above {low}"));
    }
    if let Some(high) = text("exclusiveMaximum") {
        out.push_str(&format!(" below {high}"));
    }
    if let Some(step) = text("multipleOf") {
        out.push_str(&format!(" divisible by {step}"));
    }
    if let Some(pattern) = text("pattern") {
        out.push_str(&format!(" matching `{pattern}`"));
    }
    out
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A name from outside, bounded.
fn shortened(name: &str) -> String {
    name.chars().take(80).collect()
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
