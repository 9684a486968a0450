//! The methods whose answer depends on no tool: discovery, the handshake, `ping`, and the lists of what is not
//! offered. Everything else becomes a [`Call`] for the embedder's service.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    Era, Meta, Offers, RequestId, Revision, RpcError, era,
    jsonrpc::{self, quoted},
    ladder,
    method::{self, Retry},
};

pub use crate::method::Method;

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
    /// What is offered beyond tools. Default nothing.
    pub offers: Offers,
}

impl Identity {
    /// An identity without instructions.
    #[must_use]
    pub fn new(server_info: ServerInfo) -> Self {
        let (instructions, list_ttl) = (None, Duration::from_secs(60));
        Self { server_info, instructions, list_ttl, offers: Offers::new() }
    }

    /// The same with instructions.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// The same, offering more than tools.
    #[must_use]
    pub fn offers(mut self, offers: Offers) -> Self {
        self.offers = offers;
        self
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        u64::try_from(self.list_ttl.as_millis()).unwrap_or(u64::MAX)
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
    /// What it brings back from a round before, in the modern era.
    pub retry: Retry,
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
    let offers = identity.offers;
    if offers.tasks && era.is_modern() && matches!(method, "tasks/get" | "tasks/update" | "tasks/cancel") {
        ladder::agree_on_name(&params, "taskId", headers)?;
    }
    let mut retry = Retry::default();
    if offers.asks && era.is_modern() && matches!(method, "tools/call" | "prompts/get" | "resources/read") {
        match Retry::take(&mut params) {
            Ok(brought) => retry = brought,
            Err(error) => return Ok(Routed::Answered(era, id.clone(), Err(error))),
        }
    }
    let params = match method::read(offers, era, method, params) {
        Ok(Ok(method)) => return Ok(Routed::Call(Call { era, id: id.clone(), method, meta, retry })),
        Ok(Err(error)) => return Ok(Routed::Answered(era, id.clone(), Err(error))),
        Err(params) => params,
    };
    let answer = match method {
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

fn empty_list(params: &Map<String, Value>, key: &str) -> Result<Value, RpcError> {
    match method::cursor(params)? {
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

fn initialize(identity: &Identity, params: &Map<String, Value>) -> Result<Value, RpcError> {
    let Some(requested) = params.get("protocolVersion").and_then(Value::as_str) else {
        return Err(RpcError::invalid_params("`params.protocolVersion` must be a string"));
    };
    let revision = Revision::negotiate(requested);
    let mut result = json!({
        "protocolVersion": revision.as_str(),
        "capabilities": identity.offers.capabilities(Era::Legacy(revision)),
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
        "capabilities": identity.offers.capabilities(Era::Modern),
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
