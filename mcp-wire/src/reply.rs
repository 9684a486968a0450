//! Results on their way out. One encoder for both eras: the modern one adds what revision 2026-07-28 requires,
//! the legacy one leaves out what older clients choke on.

use serde::{Serialize, Serializer, ser::SerializeSeq};
use serde_json::Value;

use crate::{Content, Era, Identity, RequestId, RpcError, ServerInfo, ToolDescriptor, ToolResult};

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
        Ok(reply) => response(id, &View { identity, era, reply }),
        Err(error) => encode_error(Some(id), error),
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
