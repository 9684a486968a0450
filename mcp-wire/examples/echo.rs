//! An MCP server with two tools. Arguments: `127.0.0.1:8811` serves HTTP to anyone on this machine, a second
//! argument is the bearer token to ask for, `--stdio` serves stdin and stdout instead.

use std::sync::Arc;

use hyper_util::rt::{TokioIo, TokioTimer};
use mcp_wire::{
    Annotations, Identity, Method, Reply, Request, RpcError, ServerInfo, ToolDescriptor, ToolResult,
    http::{Config, HostPolicy, McpHttp, Refusal},
    schema::Validator,
    stdio,
};
use serde_json::{Map, Value, json};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Run = fn(&Map<String, Value>) -> Value;

struct Tool {
    descriptor: ToolDescriptor,
    validator: Validator,
    run: Run,
}

impl Tool {
    fn new(name: &str, about: &str, run: Run, takes: Value, gives: Value) -> Result<Self, Error> {
        let object = |fields: Value| {
            let required: Vec<_> = fields.as_object().into_iter().flat_map(Map::keys).cloned().collect();
            json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
        };
        let validator = Validator::new(&object(takes.clone()))?;
        let descriptor = ToolDescriptor::new(name, about, object(takes))?;
        let descriptor = descriptor.output_schema(object(gives))?.annotations(Annotations::READ);
        Ok(Self { descriptor, validator, run })
    }
}

fn answer(tools: &[Tool], method: Method) -> Result<Reply, RpcError> {
    match method {
        Method::ToolsList { cursor: None } => {
            Ok(Reply::Tools(tools.iter().map(|t| t.descriptor.clone()).collect()))
        }
        Method::ToolsList { .. } => Err(RpcError::invalid_params("there is one page; leave `cursor` out")),
        Method::ToolsCall { name, arguments } => match tools.iter().find(|t| t.descriptor.name() == name) {
            None => Err(RpcError::unknown_tool(&name)),
            Some(tool) => Ok(Reply::Tool(match tool.validator.validate(arguments) {
                Ok(arguments) => ToolResult::structured((tool.run)(&arguments)),
                Err(problem) => problem.into(),
            })),
        },
        other => Err(RpcError::method_not_found(other.as_str())),
    }
}

fn sum(arguments: &Map<String, Value>) -> Value {
    let terms = arguments.values().filter_map(Value::as_i64).map(i128::from);
    json!({"sum": terms.sum::<i128>().to_string()})
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let text = json!({"text": {"type": "string"}});
    let numbers = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    let tools = Arc::new([
        Tool::new("echo", "Answers the text it is given.", |args| json!(args), text.clone(), text)?,
        Tool::new("add", "Adds two integers.", sum, numbers, json!({"sum": {"type": "string"}}))?,
    ]);
    // The caller is a name here, and not looked at; a real server decides by it.
    let answer = move |call: Request<String>| std::future::ready(answer(tools.as_slice(), call.method));
    let service = tower::service_fn(answer);
    let identity = Identity::new(ServerInfo::new("echo", env!("CARGO_PKG_VERSION")));
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8811".into());
    if address == "--stdio" {
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        return Ok(
            stdio::serve(service, "local".to_owned(), stdin, stdout, stdio::Config::new(identity)).await?
        );
    }
    // A real server compares digests.
    let expected = arguments.next().map(|token| format!("Bearer {token}"));
    let authenticate = move |parts: &http::request::Parts| {
        let sent = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        let known = expected.is_none() || sent == expected.as_deref();
        let refused =
            || Refusal::unauthorized("echo", "send the bearer token that the server was started with");
        std::future::ready(known.then(|| "remote".to_owned()).ok_or_else(refused))
    };
    let endpoint = McpHttp::new(service, authenticate, Config::new(identity).hosts(HostPolicy::loopback()));
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
