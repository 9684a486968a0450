//! Text to [`Message`], refusing whatever two readers could understand differently: duplicate keys, several
//! messages in one, bytes after the end. One pass, no recursion beyond the depth limit.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, error::Category};

use super::{INVALID_PARAMS, Incoming, Message, PARSE_ERROR, RequestId, RpcError, quoted};

/// How much a message may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text. Default 4 MiB.
    pub bytes: usize,
    /// Nested objects and arrays, the message itself being the first. Default 64.
    pub depth: usize,
    /// Keys and values in all. Default 65 536; more is work for us that no tool call needs.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 4 * 1024 * 1024, depth: 64, nodes: 65_536 }
    }
}

/// A message that was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct ParseError {
    /// The id to echo; `None` answers `"id": null`.
    pub id: Option<RequestId>,
    /// The error to answer.
    pub error: RpcError,
}

impl ParseError {
    fn unreadable(code: i32, message: impl Into<String>) -> Self {
        Self { id: None, error: RpcError::new(code, message) }
    }

    fn invalid(id: Option<RequestId>, message: impl Into<String>) -> Self {
        Self { id, error: RpcError::invalid_request(message) }
    }
}

pub(super) fn message(text: &[u8], limits: &Limits) -> Result<Message, ParseError> {
    envelope(object(text, limits)?)
}

pub(super) fn incoming(text: &[u8], limits: &Limits) -> Result<Incoming, ParseError> {
    let map = object(text, limits)?;
    let is_response =
        !map.contains_key("method") && (map.contains_key("result") || map.contains_key("error"));
    if is_response { answer(map) } else { envelope(map).map(Incoming::Message) }
}

/// A response, whose errors are answered without an id: it is not a request of the client's.
fn answer(mut map: Map<String, Value>) -> Result<Incoming, ParseError> {
    if map.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(ParseError::invalid(None, "`jsonrpc` must be \"2.0\""));
    }
    let Some(id) = map.remove("id").as_ref().and_then(RequestId::from_value) else {
        return Err(ParseError::invalid(None, "a response must carry the `id` of the request it answers"));
    };
    match (map.remove("result"), map.remove("error")) {
        (Some(result @ Value::Object(_)), None) => Ok(Incoming::Response { id, outcome: Ok(result) }),
        (None, Some(Value::Object(error))) => {
            let code = error.get("code").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
            let message = error.get("message").and_then(Value::as_str);
            match (code, message) {
                (Some(code), Some(message)) => {
                    Ok(Incoming::Response { id, outcome: Err(RpcError::new(code, message)) })
                }
                _ => Err(ParseError::invalid(None, "`error` must hold `code` and `message`")),
            }
        }
        _ => Err(ParseError::invalid(None, "a response holds either a `result` object or an `error` object")),
    }
}

fn object(text: &[u8], limits: &Limits) -> Result<Map<String, Value>, ParseError> {
    if text.len() > limits.bytes {
        return Err(ParseError::invalid(None, format!("message exceeds {} bytes", limits.bytes)));
    }
    // The visitor would report these two as "expected value"; the cause is worth naming.
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err(ParseError::unreadable(
            PARSE_ERROR,
            "text starts with a byte order mark; send plain UTF-8",
        ));
    }
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(ParseError::unreadable(PARSE_ERROR, "text is not UTF-8"));
    };
    match value(text, limits)? {
        Value::Object(map) => Ok(map),
        Value::Array(_) => {
            Err(ParseError::invalid(None, "batches are not served; send one message at a time"))
        }
        _ => Err(ParseError::invalid(None, "expected a JSON object")),
    }
}

fn envelope(mut map: Map<String, Value>) -> Result<Message, ParseError> {
    let raw_id = map.remove("id");
    let id = raw_id.as_ref().and_then(RequestId::from_value);
    if !map.contains_key("method") && (map.contains_key("result") || map.contains_key("error")) {
        return Err(ParseError::invalid(None, "responses are not accepted; this server sends no requests"));
    }
    if raw_id.is_some() && id.is_none() {
        return Err(ParseError::invalid(None, "`id` must be an integer or a string of at most 256 bytes"));
    }
    if map.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(ParseError::invalid(id, "`jsonrpc` must be \"2.0\""));
    }
    if map.contains_key("result") || map.contains_key("error") {
        return Err(ParseError::invalid(id, "a message is either a request or a response, not both"));
    }
    let Some(Value::String(method)) = map.remove("method") else {
        return Err(ParseError::invalid(id, "`method` must be a string"));
    };
    let params = match map.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => {
            return Err(ParseError {
                id,
                error: RpcError::new(INVALID_PARAMS, "`params` must be an object"),
            });
        }
    };
    match id {
        Some(id) => Ok(Message::Request { id, method, params }),
        None if method.starts_with("notifications/") => Ok(Message::Notification { method, params }),
        // Running it would leave the client without an answer to a call that may have had effects.
        None => Err(ParseError::invalid(None, format!("{} needs an `id`", quoted(&method)))),
    }
}

fn value(text: &str, limits: &Limits) -> Result<Value, ParseError> {
    let nodes = Cell::new(limits.nodes);
    let mut reader = serde_json::Deserializer::from_str(text);
    let strict = Strict { depth_left: limits.depth, limits, nodes: &nodes };
    let read = strict.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| match error.classify() {
        // Our own visitor's refusals: the text is JSON, but not JSON we act on.
        Category::Data => ParseError::invalid(None, error.to_string()),
        Category::Io | Category::Syntax | Category::Eof => {
            ParseError::unreadable(PARSE_ERROR, format!("text is not JSON: {error}"))
        }
    })
}

/// Builds a [`Value`] like serde_json does, but counts depth and nodes and refuses a repeated key, where
/// serde_json would let the last one win.
#[derive(Clone, Copy)]
struct Strict<'a> {
    depth_left: usize,
    limits: &'a Limits,
    nodes: &'a Cell<usize>,
}

impl Strict<'_> {
    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        let left = self.nodes.get().checked_sub(1);
        self.nodes
            .set(left.ok_or_else(|| E::custom(format!("more than {} keys and values", self.limits.nodes)))?);
        Ok(())
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(E::custom(format!("nested deeper than {}", self.limits.depth))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.count().map(|()| Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<Value, E> {
        self.count().map(|()| Value::Bool(v))
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Value, E> {
        self.count().map(|()| v.into())
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Value, E> {
        self.count().map(|()| v.into())
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        self.count()?;
        serde_json::Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Value, E> {
        self.count().map(|()| Value::String(v.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, v: String) -> Result<Value, E> {
        self.count().map(|()| Value::String(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        self.count()?;
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.count()?;
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            self.count()?;
            let value = access.next_value_seed(inner)?;
            match map.entry(key) {
                serde_json::map::Entry::Vacant(slot) => {
                    slot.insert(value);
                }
                serde_json::map::Entry::Occupied(slot) => {
                    return Err(A::Error::custom(format!("key {} appears twice", quoted(slot.key()))));
                }
            }
        }
        Ok(Value::Object(map))
    }
}
