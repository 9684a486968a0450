//! `Mcp-Param-*`: headers that repeat arguments of a call, for routers in front of the server. A tool's schema
//! asks for them with `x-mcp-header` on a property (2026-07-28).

use std::collections::HashMap;

use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use super::headers::field;
use crate::{
    RpcError, ToolDescriptor,
    ladder::{self, Field},
};

/// Deepest property that may be repeated.
const MAX_DEPTH: usize = 8;

/// Which arguments of which tools are repeated in headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    tools: HashMap<String, Vec<Rule>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    path: Vec<String>,
    header: HeaderName,
    shown: String,
}

/// A schema whose `x-mcp-header` cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool `{tool}`, property `{property}`: {problem}")]
pub struct ParamHeaderError {
    tool: String,
    property: String,
    problem: &'static str,
}

impl ParamHeaders {
    /// What the input schemas of `tools` ask for.
    ///
    /// # Errors
    /// When a name is no header name, is used twice in one tool, or belongs to a property that is not a single
    /// string, integer, number or boolean.
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a ToolDescriptor>) -> Result<Self, ParamHeaderError> {
        let mut found = HashMap::new();
        for tool in tools {
            let mut rules = Vec::new();
            collect(tool, &tool.input_schema, &mut Vec::new(), &mut rules)?;
            if !rules.is_empty() {
                found.insert(tool.name.clone(), rules);
            }
        }
        Ok(Self { tools: found })
    }

    /// Checks the headers of a call of `tool` against its arguments.
    pub(super) fn check(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        headers: &HeaderMap,
    ) -> Result<(), RpcError> {
        let Some(rules) = self.tools.get(tool) else { return Ok(()) };
        rules.iter().try_for_each(|rule| rule.check(arguments, headers))
    }
}

fn collect(
    tool: &ToolDescriptor,
    schema: &Value,
    path: &mut Vec<String>,
    rules: &mut Vec<Rule>,
) -> Result<(), ParamHeaderError> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name.clone());
        let refused =
            |problem| ParamHeaderError { tool: tool.name.clone(), property: path.join("."), problem };
        if let Some(asked) = property.get("x-mcp-header") {
            let asked = asked.as_str().filter(|name| !name.is_empty());
            let asked = asked.ok_or_else(|| refused("`x-mcp-header` must be a name"))?;
            let shown = format!("Mcp-Param-{asked}");
            let header = HeaderName::try_from(shown.as_str())
                .map_err(|_| refused("`x-mcp-header` must be made of the characters of a header name"))?;
            if rules.iter().any(|rule| rule.header == header) {
                return Err(refused("another property has the same `x-mcp-header`"));
            }
            let kind = property.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("string" | "integer" | "number" | "boolean")) {
                return Err(refused("only a string, an integer, a number or a boolean fits into a header"));
            }
            rules.push(Rule { path: path.clone(), header, shown });
        }
        if path.len() < MAX_DEPTH {
            collect(tool, property, path, rules)?;
        }
        path.pop();
    }
    Ok(())
}

impl Rule {
    fn check(&self, arguments: &Map<String, Value>, headers: &HeaderMap) -> Result<(), RpcError> {
        let (first, rest) = self.path.split_first().unwrap_or((&self.shown, &[]));
        let value = rest.iter().try_fold(arguments.get(first), |value, key| match value {
            Some(Value::Object(map)) => Some(map.get(key)),
            _ => None,
        });
        let sent = field(headers, &self.header);
        let value = value.flatten().filter(|value| !value.is_null());
        let Some(value) = value else {
            return match sent {
                Field::Absent => Ok(()),
                _ => Err(ladder::mismatch(format!(
                    "header `{}` is sent, and the argument it repeats is not",
                    self.shown
                ))),
            };
        };
        match (value, sent) {
            (Value::String(text), sent) => ladder::agree(&self.shown, sent, text),
            (Value::Number(number), Field::One(text))
                if same_number(number, text.trim_matches([' ', '\t'])) =>
            {
                Ok(())
            }
            // Also every absent, repeated or unreadable header: none of them agrees with JSON text.
            (other, sent) => ladder::agree(&self.shown, sent, &other.to_string()),
        }
    }
}

/// Numbers agree by value, not by spelling.
fn same_number(number: &serde_json::Number, text: &str) -> bool {
    match text.parse::<i64>() {
        Ok(sent) if number.as_i64().is_some() || number.as_u64().is_some() => number.as_i64() == Some(sent),
        _ => match (text.parse::<f64>(), number.as_f64()) {
            #[expect(clippy::float_cmp, reason = "the two must be the same number, not a similar one")]
            (Ok(sent), Some(number)) => sent.is_finite() && sent == number,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(properties: Value) -> ToolDescriptor {
        ToolDescriptor::new("t", "d", json!({"type": "object", "properties": properties})).unwrap()
    }

    fn checked(properties: Value, arguments: Value, headers: &[(&'static str, &str)]) -> Result<(), i32> {
        let rules = ParamHeaders::of([&tool(properties)]).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        rules.check("t", arguments.as_object().unwrap(), &map).map_err(|error| error.code)
    }

    #[test]
    fn mc_02_parameter_headers_must_agree_with_the_arguments() {
        let text = || json!({"value": {"type": "string", "x-mcp-header": "Value"}});
        let ask = |arguments, headers: &[(&'static str, &str)]| checked(text(), arguments, headers);
        assert_eq!(ask(json!({"value": "Hello"}), &[("mcp-param-value", "Hello")]), Ok(()));
        assert_eq!(ask(json!({"value": "Hello"}), &[("mcp-param-value", "=?base64?SGVsbG8=?=")]), Ok(()));
        assert_eq!(ask(json!({}), &[]), Ok(()));
        assert_eq!(ask(json!({"value": null}), &[]), Ok(()));
        for (arguments, headers) in [
            (json!({"value": "Hello"}), vec![("mcp-param-value", "hello")]),
            (json!({"value": "Hello"}), vec![("mcp-param-value", "=?base64?SGVsbG8?=")]),
            (json!({"value": "Hello"}), vec![("mcp-param-value", "=?base64?SGVs!!!bG8=?=")]),
            (json!({"value": "Hello"}), vec![]),
            (json!({"value": "Hello"}), vec![("mcp-param-value", "Hello"), ("mcp-param-value", "Hello")]),
            (json!({}), vec![("mcp-param-value", "Hello")]),
            (json!({"value": null}), vec![("mcp-param-value", "null")]),
            (json!({"value": ["Hello"]}), vec![("mcp-param-value", "Hello")]),
        ] {
            assert_eq!(ask(arguments.clone(), &headers), Err(-32020), "{arguments} {headers:?}");
        }
    }

    #[test]
    fn mc_02_numbers_agree_by_value_and_nested_arguments_count() {
        let number = || json!({"n": {"type": "integer", "x-mcp-header": "N"}});
        for (value, text, agrees) in [
            (json!(42), "42", true),
            (json!(42), "42.0", true),
            (json!(42), "43", false),
            (json!(-0.5), "-5e-1", true),
            (json!(u64::MAX), "18446744073709551615", true),
            (json!(true), "true", true),
            (json!(true), "True", false),
        ] {
            let seen = checked(number(), json!({"n": value}), &[("mcp-param-n", text)]);
            assert_eq!(seen.is_ok(), agrees, "{value} {text}");
        }
        let nested =
            || json!({"a": {"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}}});
        assert_eq!(checked(nested(), json!({"a": {"b": "x"}}), &[("mcp-param-b", "x")]), Ok(()));
        assert_eq!(checked(nested(), json!({"a": {"b": "x"}}), &[]), Err(-32020));
        assert_eq!(checked(nested(), json!({"a": {}}), &[]), Ok(()));
    }

    #[test]
    fn schemas_that_cannot_be_served_are_refused() {
        for properties in [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": "A B"}}),
            json!({"a": {"type": "string", "x-mcp-header": 1}}),
            json!({"a": {"type": "array", "x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
        ] {
            assert!(ParamHeaders::of([&tool(properties.clone())]).is_err(), "{properties}");
        }
    }
}
