//! An MCP server with two tools, `echo` and `add`.
//!
//! Over HTTP: `cargo run -p mcp-wire --example echo --all-features -- 127.0.0.1:8811` serves `/mcp` to anyone on
//! this machine; with a second argument it asks for that bearer token. Over stdio: `… --example echo -- --stdio`.

use std::{sync::Arc, task::Poll};

use hyper_util::rt::{TokioIo, TokioTimer};
use mcp_wire::{
    Annotations, Identity, Method, Reply, Request, RpcError, ServerInfo, ToolDescriptor, ToolResult,
    http::{Config, HostPolicy, McpHttp, Refusal},
    schema::Validator,
    stdio,
};
use serde_json::{Map, Value, json};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// One tool: how it is listed, how its arguments are checked, what it does.
struct Tool {
    descriptor: ToolDescriptor,
    validator: Validator,
    run: fn(&Map<String, Value>) -> Value,
}

/// The service behind both transports. The caller is a name here; a real server has a principal.
#[derive(Clone)]
struct Tools(Arc<Vec<Tool>>);

impl tower::Service<Request<String>> for Tools {
    type Response = Reply;
    type Error = RpcError;
    type Future = std::future::Ready<Result<Reply, RpcError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        std::future::ready(match request.method {
            Method::ToolsList { cursor: None } => {
                Ok(Reply::Tools(self.0.iter().map(|tool| tool.descriptor.clone()).collect()))
            }
            Method::ToolsList { cursor: Some(_) } => {
                Err(RpcError::invalid_params("unknown cursor; leave it out"))
            }
            Method::ToolsCall { name, arguments } => {
                match self.0.iter().find(|t| t.descriptor.name() == name) {
                    None => Err(RpcError::unknown_tool(&name)),
                    Some(tool) => Ok(Reply::Tool(match tool.validator.validate(&arguments) {
                        Ok(arguments) => ToolResult::structured((tool.run)(&arguments)),
                        Err(problem) => problem.into(),
                    })),
                }
            }
            other => Err(RpcError::method_not_found(other.as_str())),
        })
    }
}

fn tool(
    name: &str,
    about: &str,
    input: Value,
    output: Value,
    run: fn(&Map<String, Value>) -> Value,
) -> Result<Tool, Error> {
    let validator = Validator::new(&input)?;
    let descriptor =
        ToolDescriptor::new(name, about, input)?.output_schema(output)?.annotations(Annotations::READ);
    Ok(Tool { descriptor, validator, run })
}

fn object(fields: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let text = || json!({"text": {"type": "string"}});
    let numbers = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    let sum = |args: &Map<String, Value>| {
        let term = |name: &str| args.get(name).and_then(Value::as_i64).map_or(0, i128::from);
        json!({"sum": (term("a") + term("b")).to_string()})
    };
    let tools = Tools(Arc::new(vec![
        tool(
            "echo",
            "Answers the text it is given.",
            object(text(), &["text"]),
            object(text(), &["text"]),
            |args| json!(args),
        )?,
        tool(
            "add",
            "Adds two integers.",
            object(numbers, &["a", "b"]),
            object(json!({"sum": {"type": "string"}}), &["sum"]),
            sum,
        )?,
    ]));
    let info = ServerInfo::new("echo", env!("CARGO_PKG_VERSION"));
    let identity = Identity::new(info).instructions("Two harmless tools to try a client with.");
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8811".to_owned());
    if address == "--stdio" {
        return Ok(stdio::serve(
            tools,
            "local".to_owned(),
            tokio::io::stdin(),
            tokio::io::stdout(),
            stdio::Config::new(identity),
        )
        .await?);
    }
    let expected = arguments.next().map(|token| format!("Bearer {token}"));
    // A real server compares digests, in constant time.
    let authenticate = move |parts: &http::request::Parts| {
        let sent = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        let known = expected.is_none() || sent == expected.as_deref();
        std::future::ready(known.then(|| "remote".to_owned()).ok_or_else(|| {
            Refusal::unauthorized("echo", "send the bearer token that the server was started with")
        }))
    };
    let endpoint = McpHttp::new(tools, authenticate, Config::new(identity).hosts(HostPolicy::loopback()));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    eprintln!("serving http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = hyper_util::service::TowerToHyperService::new(endpoint.clone());
        let mut http1 = hyper::server::conn::http1::Builder::new();
        http1.timer(TokioTimer::new());
        tokio::spawn(async move { http1.serve_connection(TokioIo::new(stream), service).await });
    }
}
