//! The checks between a parsed message and its method: which era it speaks, and whether its headers and its
//! body agree. Pure; both transports climb it.
//!
//! The order is the protocol's: `_meta` (-32602), then headers against body (-32020), then the revision
//! (-32022). Authorization never looks at the headers; they exist for routers in front of the server.

use serde_json::{Map, Value, json};

use crate::{
    Era, Revision, RpcError, era,
    jsonrpc::{self, quoted},
    log::Level,
};

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// A routing header as it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Field<'a> {
    /// Not sent.
    #[default]
    Absent,
    /// Sent once, in visible ASCII.
    One(&'a str),
    /// Sent more than once.
    Repeated,
    /// Sent with bytes that are not visible ASCII.
    Unreadable,
}

/// The headers of an HTTP request that repeat facts of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutingHeaders<'a> {
    /// `MCP-Protocol-Version`
    pub protocol_version: Field<'a>,
    /// `Mcp-Method`
    pub method: Field<'a>,
    /// `Mcp-Name`
    pub name: Field<'a>,
}

/// A request's `_meta`: what it says about itself and its client. Never an identity; that is the caller's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta(Map<String, Value>);

impl Meta {
    pub(crate) fn take(params: &mut Map<String, Value>) -> Self {
        match params.remove("_meta") {
            Some(Value::Object(map)) => Self(map),
            _ => Self::default(),
        }
    }

    /// All of it.
    #[must_use]
    pub fn raw(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The client's name and version, if it gave them. Claims, fit for logs only.
    #[must_use]
    pub fn client(&self) -> Option<(&str, &str)> {
        let info = self.0.get(CLIENT_INFO)?;
        Some((info.get("name")?.as_str()?, info.get("version").and_then(Value::as_str).unwrap_or("")))
    }

    /// What the client can do; `None` in the legacy era, where it was said in another request.
    #[must_use]
    pub fn client_capabilities(&self) -> Option<&Map<String, Value>> {
        self.0.get(CLIENT_CAPABILITIES)?.as_object()
    }

    /// The level from which on the client wants log messages during this request, if it wants any.
    #[must_use]
    pub fn log_level(&self) -> Option<Level> {
        Level::parse(self.0.get(LOG_LEVEL)?.as_str()?)
    }

    /// The token under which the client wants progress: a string or an integer.
    #[must_use]
    pub fn progress_token(&self) -> Option<&Value> {
        self.0.get("progressToken").filter(|token| token.is_string() || token.is_i64() || token.is_u64())
    }

    /// The W3C trace context of the call, unchecked.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.0.get("traceparent")?.as_str()
    }
}

/// Climbs the ladder for one request. `headers` is `None` on transports that have none.
///
/// # Errors
/// The error to answer; its HTTP status comes from [`http_status`] with [`Era::Modern`].
pub fn check(
    method: &str,
    params: &Map<String, Value>,
    headers: Option<&RoutingHeaders<'_>>,
) -> Result<Era, RpcError> {
    if let Some(headers) = headers {
        for (field, header) in headers.named() {
            if field == Field::Repeated {
                return Err(mismatch(format!("header `{header}` is sent more than once")));
            }
        }
    }
    match choose(method, params, headers) {
        Some(legacy) => Ok(Era::Legacy(legacy)),
        None => modern(method, params, headers).map(|()| Era::Modern),
    }
}

/// The HTTP status that carries `error`. In the legacy era errors of methods ride on 200.
#[must_use]
pub fn http_status(era: Era, error: &RpcError) -> u16 {
    match (era, error.code) {
        (Era::Legacy(_), _) => 200,
        (Era::Modern, jsonrpc::METHOD_NOT_FOUND) => 404,
        (
            Era::Modern,
            jsonrpc::PARSE_ERROR
            | jsonrpc::INVALID_REQUEST
            | jsonrpc::INVALID_PARAMS
            | jsonrpc::HEADER_MISMATCH
            | jsonrpc::MISSING_CLIENT_CAPABILITY
            | jsonrpc::UNSUPPORTED_PROTOCOL_VERSION,
        ) => 400,
        (Era::Modern, _) => 200,
    }
}

impl<'a> RoutingHeaders<'a> {
    fn named(&self) -> [(Field<'a>, &'static str); 3] {
        [
            (self.protocol_version, "MCP-Protocol-Version"),
            (self.method, "Mcp-Method"),
            (self.name, "Mcp-Name"),
        ]
    }
}

/// The legacy revision this request speaks, or `None` for the modern era.
fn choose(
    method: &str,
    params: &Map<String, Value>,
    headers: Option<&RoutingHeaders<'_>>,
) -> Option<Revision> {
    if params.get("_meta").and_then(|meta| meta.get(PROTOCOL_VERSION)).is_some() {
        return None;
    }
    if method == "initialize" {
        let requested = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        return Some(Revision::negotiate(requested));
    }
    match headers {
        // Without a header to say it, the newest: its replies hold nothing an older client stumbles over.
        None => Some(Revision::NEWEST),
        Some(headers) => match headers.protocol_version {
            Field::Absent => Some(Revision::ASSUMED),
            Field::One(text) => Revision::parse(trimmed(text)),
            Field::Repeated | Field::Unreadable => None,
        },
    }
}

fn modern(
    method: &str,
    params: &Map<String, Value>,
    headers: Option<&RoutingHeaders<'_>>,
) -> Result<(), RpcError> {
    let Some(meta) = params.get("_meta").and_then(Value::as_object) else {
        return Err(RpcError::invalid_params(format!(
            "`params._meta` must be an object with `{PROTOCOL_VERSION}` and `{CLIENT_CAPABILITIES}`"
        )));
    };
    let Some(version) = meta.get(PROTOCOL_VERSION).and_then(Value::as_str) else {
        return Err(RpcError::invalid_params(format!("`_meta` must hold `{PROTOCOL_VERSION}`, a string")));
    };
    if !meta.get(CLIENT_CAPABILITIES).is_some_and(Value::is_object) {
        return Err(RpcError::invalid_params(format!(
            "`_meta` must hold `{CLIENT_CAPABILITIES}`, an object"
        )));
    }
    if let Some(headers) = headers {
        agree("MCP-Protocol-Version", headers.protocol_version, version)?;
        agree("Mcp-Method", headers.method, method)?;
        if let Some(key) = named_by(method) {
            agree_on_name(params, key, Some(headers))?;
        }
    }
    if version != era::MODERN {
        let supported: Vec<_> = era::SUPPORTED.into_iter().filter(|known| *known != version).collect();
        let text = if supported.len() == era::SUPPORTED.len() {
            format!("revision {} is not served", quoted(version))
        } else {
            format!(
                "revision `{version}` is served after `initialize`, without `{PROTOCOL_VERSION}` in `_meta`"
            )
        };
        return Err(RpcError::new(jsonrpc::UNSUPPORTED_PROTOCOL_VERSION, text)
            .with_data(json!({"supported": supported, "requested": version})));
    }
    Ok(())
}

/// Checks `Mcp-Name` against the parameter `key`.
pub(crate) fn agree_on_name(
    params: &Map<String, Value>,
    key: &str,
    headers: Option<&RoutingHeaders<'_>>,
) -> Result<(), RpcError> {
    let Some(headers) = headers else { return Ok(()) };
    let Some(name) = params.get(key).and_then(Value::as_str) else {
        return Err(RpcError::invalid_params(format!("`params.{key}` must be a string")));
    };
    agree("Mcp-Name", headers.name, name)
}

/// The parameter that `Mcp-Name` repeats, for the methods that have one.
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

pub(crate) fn agree(header: &str, field: Field<'_>, body: &str) -> Result<(), RpcError> {
    match field {
        Field::One(text) => {
            let value = decoded(trimmed(text)).ok_or_else(|| {
                mismatch(format!(
                    "header `{header}` is not valid base64 of UTF-8 between `=?base64?` and `?=`"
                ))
            })?;
            if value == body {
                Ok(())
            } else {
                Err(mismatch(format!("header `{header}` differs from the body's {}", quoted(body))))
            }
        }
        Field::Absent => Err(mismatch(format!("header `{header}` is missing"))),
        Field::Repeated => Err(mismatch(format!("header `{header}` is sent more than once"))),
        Field::Unreadable => {
            Err(mismatch(format!("header `{header}` holds bytes that are not visible ASCII")))
        }
    }
}

pub(crate) fn mismatch(message: String) -> RpcError {
    RpcError::new(jsonrpc::HEADER_MISMATCH, message)
}

/// Optional white space around a header value is not part of it.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Undoes `=?base64?…?=`; a value that lacks either end of it is literal.
fn decoded(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(text.to_owned());
    };
    String::from_utf8(data_encoding::BASE64.decode(inner.as_bytes()).ok()?).ok()
}
