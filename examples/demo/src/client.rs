//! A small MCP client of revision 2026-07-28 over Streamable HTTP.

use std::net::SocketAddr;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

const REVISION: &str = "2026-07-28";

/// One person's or agent's client.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    token: String,
}

/// What a tool answered.
pub(crate) enum Called {
    /// Its structured result.
    Done(Value),
    /// The text of a refusal: a JSON object with `code` and `message`.
    Refused(Value),
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: String) -> Self {
        Self { address, token }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> anyhow::Result<Called> {
        let body = json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": tool,
                "arguments": arguments,
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": REVISION,
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": {"name": "proxward-demo", "version": env!("CARGO_PKG_VERSION")},
                },
            },
        });
        let request = Request::post("/mcp")
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(Full::new(Bytes::from(body.to_string())))?;
        let stream = tokio::net::TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        driver.abort();
        let answer: Value =
            serde_json::from_slice(&text).with_context(|| format!("HTTP {status} without JSON"))?;
        let result = answer.get("result").ok_or_else(|| anyhow!("HTTP {status}: {answer}"))?;
        let said = result["content"][0]["text"].as_str().unwrap_or_default();
        if result["isError"] == true {
            return Ok(Called::Refused(
                serde_json::from_str(said).unwrap_or_else(|_| json!({"message": said})),
            ));
        }
        Ok(Called::Done(result["structuredContent"].clone()))
    }

    /// Calls a tool that must succeed.
    pub(crate) async fn done(&self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        match self.call(tool, arguments).await? {
            Called::Done(result) => Ok(result),
            Called::Refused(why) => Err(anyhow!("{tool} was refused: {why}")),
        }
    }

    /// Calls a tool that must be refused with this code.
    pub(crate) async fn refused(&self, tool: &str, arguments: Value, code: &str) -> anyhow::Result<String> {
        match self.call(tool, arguments).await? {
            Called::Refused(why) if why["code"] == code => {
                Ok(why["message"].as_str().unwrap_or_default().to_owned())
            }
            Called::Refused(why) => Err(anyhow!("{tool} was refused for another reason than {code}: {why}")),
            Called::Done(result) => Err(anyhow!("{tool} was not refused: {result}")),
        }
    }
}
