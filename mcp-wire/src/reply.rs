//! Results on their way out. One encoder for both eras: the modern one adds what revision 2026-07-28 requires,
//! the legacy one leaves out what older clients choke on.

use serde::{Serialize, Serializer, ser::SerializeSeq};
use serde_json::{Map, Value, json};

#[cfg(any(feature = "http", feature = "stdio"))]
use crate::tasks::TaskRecord;
use crate::{
    Completion, Content, Era, Filter, Identity, InputRequired, Prompt, PromptResult, RequestId, Resource,
    ResourceContents, ResourceTemplate, RpcError, ServerInfo, ToolDescriptor, ToolResult,
    builtin::SERVER_INFO,
};

/// What the embedder's service answers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// To `tools/call`.
    Tool(ToolResult),
    /// To `tools/list`: all tools the caller may use, in a stable order.
    Tools(Vec<ToolDescriptor>),
    /// To `tools/list`, by a server that pages.
    ToolsPage {
        /// This page.
        tools: Vec<ToolDescriptor>,
        /// Where to go on; `None` on the last page.
        next_cursor: Option<String>,
    },
    /// To `resources/list`.
    Resources {
        /// This page.
        resources: Vec<Resource>,
        /// Where to go on; `None` on the last page.
        next_cursor: Option<String>,
    },
    /// To `resources/templates/list`.
    ResourceTemplates {
        /// This page.
        templates: Vec<ResourceTemplate>,
        /// Where to go on; `None` on the last page.
        next_cursor: Option<String>,
    },
    /// To `resources/read`.
    Contents(Vec<ResourceContents>),
    /// To `prompts/list`.
    Prompts {
        /// This page.
        prompts: Vec<Prompt>,
        /// Where to go on; `None` on the last page.
        next_cursor: Option<String>,
    },
    /// To `prompts/get`.
    Prompt(PromptResult),
    /// To `completion/complete`.
    Completion(Completion),
    /// To `subscriptions/listen`: what the caller may hear of what it asked for.
    Listening(Filter),
    /// To `tools/call`, `prompts/get` and `resources/read`: what must be known first.
    InputRequired(InputRequired),
    /// To `tools/call`: the call goes on as a task. From [`Tasks::start`](crate::tasks::Tasks::start).
    #[cfg(any(feature = "http", feature = "stdio"))]
    Task(TaskRecord),
    /// To `tasks/get`.
    #[cfg(any(feature = "http", feature = "stdio"))]
    TaskState(TaskRecord),
    /// Done, and there is nothing to say about it.
    Done,
}

impl From<InputRequired> for Reply {
    fn from(required: InputRequired) -> Self {
        Self::InputRequired(required)
    }
}

impl From<ToolResult> for Reply {
    fn from(result: ToolResult) -> Self {
        Self::Tool(result)
    }
}

/// The response to a request as JSON text on one line.
#[must_use]
pub fn encode(identity: &Identity, era: Era, id: &RequestId, outcome: &Result<Reply, RpcError>) -> Vec<u8> {
    match outcome {
        Ok(reply) => match unspeakable(era, reply) {
            None => response(id, &View { identity, era, reply }),
            Some(error) => encode_error(Some(id), &error),
        },
        Err(error) => encode_error(Some(id), &error.clone().spoken_in(era)),
    }
}

/// The error in place of a reply that clients of that era cannot be given.
fn unspeakable(era: Era, reply: &Reply) -> Option<RpcError> {
    match reply {
        Reply::InputRequired(required) if era.is_modern() => {
            let unsealed = required.state.is_some() && required.sealed.is_none();
            unsealed.then(|| RpcError::internal("the server keeps a state that it has no key to seal with"))
        }
        Reply::InputRequired(required) => {
            let methods: Vec<_> = required.requests.values().map(crate::InputRequest::method).collect();
            let message = format!(
                "this call must ask the client ({}), which this connection cannot carry; use a client and a \
                 connection that declare it",
                methods.join(", ")
            );
            Some(RpcError::invalid_params(message))
        }
        #[cfg(any(feature = "http", feature = "stdio"))]
        Reply::Task(_) | Reply::TaskState(_) if !era.is_modern() => {
            Some(RpcError::internal("the server answered with a task, which this revision does not have"))
        }
        _ => None,
    }
}

/// A response whose result is ready made.
#[must_use]
pub fn encode_value(id: &RequestId, outcome: &Result<Value, RpcError>) -> Vec<u8> {
    match outcome {
        Ok(result) => response(id, result),
        Err(error) => encode_error(Some(id), error),
    }
}

/// An error response; without an id where none could be read.
#[must_use]
pub fn encode_error(id: Option<&RequestId>, error: &RpcError) -> Vec<u8> {
    #[derive(Serialize)]
    struct Wire<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RequestId>,
        error: &'a RpcError,
    }
    text(&Wire { jsonrpc: "2.0", id, error })
}

#[cfg(any(feature = "http", feature = "stdio"))]
pub(crate) fn notification(method: &'static str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Wire<'a, P> {
        jsonrpc: &'static str,
        method: &'static str,
        params: &'a P,
    }
    text(&Wire { jsonrpc: "2.0", method, params })
}

/// A request to the client, for the legacy era.
#[cfg(any(feature = "http", feature = "stdio"))]
pub(crate) fn request(id: i64, method: &'static str, params: &Value) -> Vec<u8> {
    #[derive(Serialize)]
    struct Wire<'a> {
        jsonrpc: &'static str,
        id: i64,
        method: &'static str,
        params: &'a Value,
    }
    text(&Wire { jsonrpc: "2.0", id, method, params })
}

fn response(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Wire<'a, R> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        result: &'a R,
    }
    text(&Wire { jsonrpc: "2.0", id, result })
}

fn text(message: &impl Serialize) -> Vec<u8> {
    // Keys are strings and no serializer here fails, so this is the fallback of an impossible case; it keeps
    // the promise that every frame is JSON-RPC.
    serde_json::to_vec(message).unwrap_or_else(|_| {
        br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the reply could not be encoded"}}"#.to_vec()
    })
}

struct View<'a> {
    identity: &'a Identity,
    era: Era,
    reply: &'a Reply,
}

#[derive(Serialize)]
struct ServerMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: &'a ServerInfo,
}

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let modern = self.era.is_modern();
        let meta = modern.then_some(ServerMeta { server_info: &self.identity.server_info });
        let result_type = modern.then_some("complete");
        let (tools, next_cursor) = match self.reply {
            Reply::Tool(result) => {
                let structured = result.structured.as_ref().filter(|data| modern || data.is_object());
                let content = &result.content;
                return CallResult { result_type, content, structured, is_error: result.is_error, meta }
                    .serialize(serializer);
            }
            Reply::Tools(tools) => (tools, None),
            Reply::ToolsPage { tools, next_cursor } => (tools, next_cursor.as_deref()),
            other => return Value::Object(self.other(other)).serialize(serializer),
        };
        ListResult {
            result_type,
            tools: Tools(tools),
            next_cursor,
            ttl_ms: modern.then(|| self.identity.ttl_ms()),
            // What is listed depends on the token.
            cache_scope: modern.then_some("private"),
            meta,
        }
        .serialize(serializer)
    }
}

impl View<'_> {
    /// The replies that are rare enough to go through a [`Value`].
    fn other(&self, reply: &Reply) -> Map<String, Value> {
        let page = |key: &str, items: Value, next: &Option<String>| {
            let mut page = json!({key: items});
            if let Some(next) = next {
                page["nextCursor"] = json!(next);
            }
            page
        };
        let (mut result, cacheable) = match reply {
            Reply::Resources { resources, next_cursor } => {
                (page("resources", json!(resources), next_cursor), true)
            }
            Reply::ResourceTemplates { templates, next_cursor } => {
                (page("resourceTemplates", json!(templates), next_cursor), true)
            }
            Reply::Contents(contents) => (json!({"contents": contents}), true),
            Reply::Prompts { prompts, next_cursor } => (page("prompts", json!(prompts), next_cursor), true),
            Reply::Prompt(prompt) => (json!(prompt), false),
            Reply::Completion(completion) => (json!({"completion": completion}), false),
            Reply::InputRequired(required) => (asking(required), false),
            #[cfg(any(feature = "http", feature = "stdio"))]
            Reply::Task(task) => (task.created_view(), false),
            #[cfg(any(feature = "http", feature = "stdio"))]
            Reply::TaskState(task) => (task.view(self.identity), false),
            // Tools were answered before; the rest says nothing.
            _ => (json!({}), false),
        };
        if let (Value::Object(result), true) = (&mut result, self.era.is_modern()) {
            result.entry("resultType").or_insert_with(|| json!("complete"));
            if cacheable {
                result.insert("ttlMs".into(), json!(self.identity.ttl_ms()));
                result.insert("cacheScope".into(), json!("private"));
            }
            result.insert("_meta".into(), json!({SERVER_INFO: self.identity.server_info}));
        }
        match result {
            Value::Object(result) => result,
            _ => Map::new(),
        }
    }
}

fn asking(required: &InputRequired) -> Value {
    let requests: Map<_, _> =
        required.requests.iter().map(|(key, request)| (key.clone(), request.to_value())).collect();
    let mut result = json!({"resultType": "input_required"});
    if !requests.is_empty() {
        result["inputRequests"] = json!(requests);
    }
    if let Some(sealed) = &required.sealed {
        result["requestState"] = json!(sealed);
    }
    result
}

/// A tool's result as it stands inside another message.
#[cfg(any(feature = "http", feature = "stdio"))]
pub(crate) fn tool_result(identity: &Identity, era: Era, result: &ToolResult) -> Value {
    let reply = Reply::Tool(result.clone());
    serde_json::to_value(View { identity, era, reply: &reply }).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    content: &'a [Content],
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    structured: Option<&'a Value>,
    is_error: bool,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<ServerMeta<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    tools: Tools<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_scope: Option<&'static str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<ServerMeta<'a>>,
}

struct Tools<'a>(&'a [ToolDescriptor]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for tool in self.0 {
            list.serialize_element(tool)?;
        }
        list.end()
    }
}
