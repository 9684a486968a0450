//! The methods whose answer depends on no tool: discovery, the handshake, `ping`, and the empty lists.
//! Everything else becomes a [`Call`] for the embedder's service.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    Era, Meta, RequestId, Revision, RpcError, era,
    jsonrpc::{self, quoted},
    ladder,
};

/// The key of a modern result's `_meta` that says which server answered.
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Who the server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerInfo {
    /// A short name, for programs.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl ServerInfo {
    /// A name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), title: None }
    }
}

/// What the server says about itself to every client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Who answers.
    pub server_info: ServerInfo,
    /// How to use the server, for models: at most 2 KiB, key facts first.
    pub instructions: Option<String>,
    /// How long a modern client may keep a list or the discovery answer. Default 60 s.
    pub list_ttl: Duration,
}

impl Identity {
    /// An identity without instructions.
    #[must_use]
    pub fn new(server_info: ServerInfo) -> Self {
        Self { server_info, instructions: None, list_ttl: Duration::from_secs(60) }
    }

    /// The same with instructions.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        u64::try_from(self.list_ttl.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a call asks of the embedder's service.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Method {
    /// `tools/call`
    ToolsCall {
        /// The tool's name, as sent: unknown names arrive here too.
        name: String,
        /// The arguments; empty when the client left them out.
        arguments: Map<String, Value>,
    },
    /// `tools/list`
    ToolsList {
        /// Where to go on, for servers that page.
        cursor: Option<String>,
    },
}

impl Method {
    /// The method's name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ToolsCall { .. } => "tools/call",
            Self::ToolsList { .. } => "tools/list",
        }
    }
}

/// A request that the embedder's service answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// How it was spoken.
    pub era: Era,
    /// Its id.
    pub id: RequestId,
    /// What it asks.
    pub method: Method,
    /// Its `_meta`.
    pub meta: Meta,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Routed {
    /// Answered here. The result is complete, `_meta` and `resultType` included.
    Answered(Era, RequestId, Result<Value, RpcError>),
    /// For the embedder's service.
    Call(Call),
}

/// Climbs the ladder with a request and finds who answers it.
///
/// # Errors
/// The ladder's refusal; it is answered as a modern error, whose HTTP status is never 200.
pub fn route(
    identity: &Identity,
    id: &RequestId,
    method: &str,
    mut params: Map<String, Value>,
    headers: Option<&ladder::RoutingHeaders<'_>>,
) -> Result<Routed, RpcError> {
    let era = ladder::check(method, &params, headers)?;
    let meta = Meta::take(&mut params);
    let answer = match method {
        "tools/call" => match tools_call(params) {
            Ok(method) => return Ok(Routed::Call(Call { era, id: id.clone(), method, meta })),
            Err(error) => Err(error),
        },
        "tools/list" => match cursor(&params) {
            Ok(cursor) => {
                let method = Method::ToolsList { cursor };
                return Ok(Routed::Call(Call { era, id: id.clone(), method, meta }));
            }
            Err(error) => Err(error),
        },
        "resources/list" => empty_list(&params, "resources"),
        "resources/templates/list" => empty_list(&params, "resourceTemplates"),
        "prompts/list" => empty_list(&params, "prompts"),
        "resources/read" => Err(resource_not_found(era, &params)),
        "prompts/get" => Err(prompt_not_found(&params)),
        "initialize" if !era.is_modern() => initialize(identity, &params),
        "ping" if !era.is_modern() => Ok(json!({})),
        "server/discover" if era.is_modern() => Ok(discover(identity)),
        _ => Err(RpcError::method_not_found(method)),
    };
    let answer = answer.map(|result| if era.is_modern() { modernised(identity, result) } else { result });
    Ok(Routed::Answered(era, id.clone(), answer))
}

fn tools_call(mut params: Map<String, Value>) -> Result<Method, RpcError> {
    let Some(Value::String(name)) = params.remove("name") else {
        return Err(RpcError::invalid_params("`params.name` must be the name of a tool"));
    };
    match params.remove("arguments") {
        None | Some(Value::Null) => Ok(Method::ToolsCall { name, arguments: Map::new() }),
        Some(Value::Object(arguments)) => Ok(Method::ToolsCall { name, arguments }),
        Some(_) => Err(RpcError::invalid_params("`params.arguments` must be an object")),
    }
}

fn cursor(params: &Map<String, Value>) -> Result<Option<String>, RpcError> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor.clone())),
        Some(_) => Err(RpcError::invalid_params("`params.cursor` must be a string")),
    }
}

fn empty_list(params: &Map<String, Value>, key: &str) -> Result<Value, RpcError> {
    match cursor(params)? {
        None => Ok(json!({key: []})),
        Some(_) => Err(RpcError::invalid_params("`params.cursor` is not one this server gave; leave it out")),
    }
}

fn resource_not_found(era: Era, params: &Map<String, Value>) -> RpcError {
    let Some(uri) = params.get("uri").and_then(Value::as_str) else {
        return RpcError::invalid_params("`params.uri` must be a string");
    };
    let code = if era.is_modern() { jsonrpc::INVALID_PARAMS } else { jsonrpc::LEGACY_RESOURCE_NOT_FOUND };
    RpcError::new(code, "there is no such resource; this server has none").with_data(json!({"uri": uri}))
}

fn prompt_not_found(params: &Map<String, Value>) -> RpcError {
    match params.get("name").and_then(Value::as_str) {
        Some(name) => {
            RpcError::invalid_params(format!("there is no prompt {}; this server has none", quoted(name)))
        }
        None => RpcError::invalid_params("`params.name` must be a string"),
    }
}

fn capabilities() -> Value {
    // Declared iff the methods work; without list-changed, since these lists never change unannounced.
    json!({"tools": {}, "resources": {}, "prompts": {}})
}

fn initialize(identity: &Identity, params: &Map<String, Value>) -> Result<Value, RpcError> {
    let Some(requested) = params.get("protocolVersion").and_then(Value::as_str) else {
        return Err(RpcError::invalid_params("`params.protocolVersion` must be a string"));
    };
    let mut result = json!({
        "protocolVersion": Revision::negotiate(requested).as_str(),
        "capabilities": capabilities(),
        "serverInfo": identity.server_info,
    });
    if let Some(text) = &identity.instructions {
        result["instructions"] = json!(text);
    }
    Ok(result)
}

fn discover(identity: &Identity) -> Value {
    let mut result = json!({
        "supportedVersions": era::SUPPORTED,
        "capabilities": capabilities(),
        // The one answer that is the same for every caller.
        "cacheScope": "public",
    });
    if let Some(text) = &identity.instructions {
        result["instructions"] = json!(text);
    }
    result
}

/// Adds what a modern result must carry. All built-in modern results are cacheable ones.
fn modernised(identity: &Identity, mut result: Value) -> Value {
    if let Value::Object(map) = &mut result {
        map.insert("resultType".into(), json!("complete"));
        map.insert("ttlMs".into(), json!(identity.ttl_ms()));
        map.entry("cacheScope").or_insert_with(|| json!("private"));
        map.insert("_meta".into(), json!({SERVER_INFO: identity.server_info}));
    }
    result
}
