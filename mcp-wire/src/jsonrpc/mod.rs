//! JSON-RPC 2.0 as MCP uses it: one request or one notification per message, parameters are an object,
//! ids are strings or integers. [`Message::parse`] is the only way in.

mod parse;

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use parse::{Limits, ParseError};

/// Longest string id accepted, in bytes. Ids are echoed, so an unbounded one would be an amplifier.
pub const MAX_ID_BYTES: usize = 256;

/// The text is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The JSON is not one request or notification.
pub const INVALID_REQUEST: i32 = -32600;
/// The method does not exist, or not in this revision.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters do not fit the method: missing `_meta`, unknown tool, bad cursor.
pub const INVALID_PARAMS: i32 = -32602;
/// The server failed.
pub const INTERNAL_ERROR: i32 = -32603;
/// A routing header is missing, malformed, repeated or differs from the body (2026-07-28).
pub const HEADER_MISMATCH: i32 = -32020;
/// The request needs a client capability that it did not declare (2026-07-28).
pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
/// The request names a revision that is not served (2026-07-28).
pub const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;
/// Resource not found, in the revisions before 2026-07-28.
pub const LEGACY_RESOURCE_NOT_FOUND: i32 = -32002;

/// A request id: a string or an integer, kept as it came and echoed unchanged. `1` and `"1"` differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer between `i64::MIN` and `u64::MAX`.
    Integer(serde_json::Number),
    /// A string of at most [`MAX_ID_BYTES`] bytes.
    String(String),
}

impl RequestId {
    /// Reads an id from a JSON value; `None` for null, fractions, exponents and over-long strings.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(s) if s.len() <= MAX_ID_BYTES => Some(Self::String(s.clone())),
            Value::Number(n) if n.is_i64() || n.is_u64() => Some(Self::Integer(n.clone())),
            _ => None,
        }
    }
}

impl From<i64> for RequestId {
    fn from(value: i64) -> Self {
        Self::Integer(value.into())
    }
}

impl From<&str> for RequestId {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(n) => n.serialize(serializer),
            Self::String(s) => serializer.serialize_str(s),
        }
    }
}

impl fmt::Display for RequestId {
    /// The id as JSON text, control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => write!(f, "{n}"),
            Self::String(s) => write!(f, "{}", Value::String(s.clone())),
        }
    }
}

/// What a client may send to a server that also sends requests: in a legacy session, and there alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A request or notification.
    Message(Message),
    /// The answer to one of the server's requests.
    Response {
        /// The id of the server's request.
        id: RequestId,
        /// A result, which is an object, or the client's error.
        outcome: Result<Value, RpcError>,
    },
}

impl Incoming {
    /// Parses one message under `limits`, as strictly as [`Message::parse`].
    ///
    /// # Errors
    /// As [`Message::parse`].
    pub fn parse(text: &[u8], limits: &Limits) -> Result<Self, ParseError> {
        parse::incoming(text, limits)
    }
}

/// One message from a client. Responses are not in it: a server that sends no requests is due none (see
/// [`Incoming`] for one that does).
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Wants a reply.
    Request {
        /// Echoed in the reply.
        id: RequestId,
        /// For example `tools/call`.
        method: String,
        /// The parameters, `_meta` included; empty when absent.
        params: Map<String, Value>,
    },
    /// Wants none. The method starts with `notifications/`.
    Notification {
        /// For example `notifications/cancelled`.
        method: String,
        /// The parameters; empty when absent.
        params: Map<String, Value>,
    },
}

impl Message {
    /// Parses one message under `limits`. Nothing is returned unless all of the text was understood.
    ///
    /// # Errors
    /// [`ParseError`] holds the JSON-RPC error to answer and, where it could be read, the id to echo.
    pub fn parse(text: &[u8], limits: &Limits) -> Result<Self, ParseError> {
        parse::message(text, limits)
    }

    /// The method name.
    #[must_use]
    pub fn method(&self) -> &str {
        match self {
            Self::Request { method, .. } | Self::Notification { method, .. } => method,
        }
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &Map<String, Value> {
        match self {
            Self::Request { params, .. } | Self::Notification { params, .. } => params,
        }
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Wire<'a> {
            jsonrpc: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a RequestId>,
            method: &'a str,
            params: &'a Map<String, Value>,
        }
        let (id, method, params) = match self {
            Self::Request { id, method, params } => (Some(id), method, params),
            Self::Notification { method, params } => (None, method, params),
        };
        Wire { jsonrpc: "2.0", id, method, params }.serialize(serializer)
    }
}

/// A JSON-RPC error: what the caller of a method gets when there is no result.
///
/// An error a model can act on is not one of these but a tool result with `isError`
/// (see [`ToolResult::error`](crate::ToolResult::error)).
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// One of the codes of this module, or one of the embedder's outside -32768..=-32000.
    pub code: i32,
    /// What was wrong, what was expected, what to do next.
    pub message: String,
    /// Structured detail that clients may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without `data`.
    #[must_use]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error carrying `data`.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// -32600: the message is not one request or notification.
    #[must_use]
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message)
    }

    /// -32601 for `method`.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("method {} is not served", quoted(method)))
    }

    /// -32602: the parameters do not fit the method.
    #[must_use]
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// -32602 for a tool that does not exist, or not for this caller; the two must read the same.
    #[must_use]
    pub fn unknown_tool(name: &str) -> Self {
        Self::invalid_params(format!(
            "there is no tool {} for this token; `tools/list` names those there are",
            quoted(name)
        ))
    }

    /// -32602 for a prompt that does not exist.
    #[must_use]
    pub fn unknown_prompt(name: &str) -> Self {
        Self::invalid_params(format!(
            "there is no prompt {}; `prompts/list` names those there are",
            quoted(name)
        ))
    }

    /// For a resource that does not exist, or not for this caller: -32602 in the modern era, -32002 before.
    #[must_use]
    pub fn resource_not_found(era: crate::Era, uri: &str) -> Self {
        let code = if era.is_modern() { INVALID_PARAMS } else { LEGACY_RESOURCE_NOT_FOUND };
        Self::new(
            code,
            format!("there is no resource {}; `resources/list` names those there are", quoted(uri)),
        )
        .with_data(serde_json::json!({"uri": uri}))
    }

    /// -32021: the request needs these capabilities, an object as clients declare it, and did not declare them.
    /// In the older revisions, which know no such error, it is sent as -32602.
    #[must_use]
    pub fn missing_capability(required: Value) -> Self {
        Self::new(MISSING_CLIENT_CAPABILITY, "this call needs client capabilities that it did not declare")
            .with_data(serde_json::json!({"requiredCapabilities": required}))
    }

    /// The same as clients of that era know it.
    pub(crate) fn spoken_in(self, era: crate::Era) -> Self {
        match (era, self.code) {
            (crate::Era::Legacy(_), MISSING_CLIENT_CAPABILITY) => Self { code: INVALID_PARAMS, ..self },
            _ => self,
        }
    }

    /// -32603: the server failed. Do not put the cause in `message` if it may hold a secret.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }
}

/// A name from outside, fit for a message: in backticks, control and direction characters escaped, cut at 80.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("`");
    for (n, c) in text.chars().enumerate() {
        if n == 80 {
            out.push('…');
            break;
        }
        let unsafe_to_show = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '`');
        if unsafe_to_show {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_messages_cannot_break_out() {
        assert_eq!(quoted("a`\n\u{202e}b"), "`a\\u{60}\\u{a}\\u{202e}b`");
        assert_eq!(quoted(&"x".repeat(100)).chars().count(), 83);
    }

    #[test]
    fn string_and_integer_ids_stay_apart() {
        assert_ne!(RequestId::from(1), RequestId::from("1"));
        assert_eq!(RequestId::from("a\"b").to_string(), r#""a\"b""#);
    }
}
