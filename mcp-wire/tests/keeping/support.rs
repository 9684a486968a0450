//! A server with everything on, and clients for it.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request as HttpRequest, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use mcp_wire::{
    Changes, Completion, Identity, InputRequest, InputRequired, Level, Method, Offers, Prompt, PromptMessage,
    PromptResult, Reply, Request, Resource, ResourceContents, RpcError, ServerInfo, Stateful, ToolDescriptor,
    ToolResult,
    content::Content,
    events::Events,
    http::{BoxBody, Config, HostPolicy, McpHttp, Refusal},
    legacy::SessionLimits,
    state_seal::StateSeal,
    tasks::{MemoryStore, TaskOptions},
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::ServiceExt;

pub(crate) const MODERN: &str = "2026-07-28";

/// The service; everybody may do everything.
#[derive(Clone, Default)]
pub(crate) struct Service {
    pub(crate) holding: Arc<Notify>,
    pub(crate) release: Arc<Notify>,
}

impl tower::Service<Request<String>> for Service {
    type Response = Reply;
    type Error = RpcError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        Box::pin(answer(self.clone(), request))
    }
}

fn form() -> InputRequest {
    InputRequest::form("Name?", json!({"type": "object", "properties": {"name": {"type": "string"}}}))
}

async fn answer(service: Service, request: Request<String>) -> Result<Reply, RpcError> {
    let name = match &request.method {
        Method::ToolsList { .. } => {
            let tool = ToolDescriptor::new("name", "Asks.", json!({"type": "object"})).unwrap();
            return Ok(Reply::Tools(vec![tool]));
        }
        Method::ResourcesList { .. } => {
            let resources = vec![Resource::new("test://a", "a", "text/plain")];
            return Ok(Reply::Resources { resources, next_cursor: None });
        }
        Method::ResourceTemplatesList { .. } => {
            return Ok(Reply::ResourceTemplates { templates: Vec::new(), next_cursor: None });
        }
        Method::ResourcesRead { uri } if uri == "test://a" => {
            return Ok(Reply::Contents(vec![ResourceContents::text(uri, "text/plain", "A")]));
        }
        Method::ResourcesRead { uri } => return Err(RpcError::resource_not_found(request.era, uri)),
        Method::ResourcesSubscribe { uri } if uri.starts_with("test://secret") => {
            return Err(RpcError::resource_not_found(request.era, uri));
        }
        Method::ResourcesSubscribe { .. } => return Ok(Reply::Done),
        Method::PromptsList { .. } => {
            let prompts = vec![Prompt::new("p", "A prompt.").argument("a", "An argument.")];
            return Ok(Reply::Prompts { prompts, next_cursor: None });
        }
        Method::PromptsGet { name, .. } if name == "p" => {
            let message = PromptMessage::user(Content::text("P"));
            return Ok(Reply::Prompt(PromptResult::new(vec![message])));
        }
        Method::PromptsGet { name, .. } => return Err(RpcError::unknown_prompt(name)),
        Method::Complete(asked) => {
            return Ok(Reply::Completion(Completion::of(vec![format!("{}…", asked.value)])));
        }
        Method::Listen(filter) => {
            let mut filter = filter.clone();
            filter.resources.retain(|uri| !uri.starts_with("test://secret"));
            return Ok(Reply::Listening(filter));
        }
        Method::ToolsCall { name, .. } => name.clone(),
        other => return Err(RpcError::method_not_found(other.as_str())),
    };
    tool(service, request, &name).await
}

async fn tool(service: Service, request: Request<String>, name: &str) -> Result<Reply, RpcError> {
    let input = &request.input;
    match name {
        // Asks once, and remembers nothing.
        "name" => Ok(match input.accepted("who").and_then(|fields| fields.get("name")?.as_str()) {
            Some(name) => ToolResult::text(format!("Hello, {name}, says {}", request.caller)).into(),
            None if input.action("who") == Some("decline") => ToolResult::text("nobody").into(),
            None => InputRequired::new().ask("who", form()).into(),
        }),
        // Asks twice, and remembers the first answer.
        "twice" => Ok(match (input.state(), input.accepted("who")) {
            (Some(state), Some(now)) if state["first"].is_string() => {
                ToolResult::text(format!("{} and {}", state["first"], now["name"])).into()
            }
            (Some(_), Some(now)) => {
                InputRequired::new().ask("who", form()).keep(json!({"first": now["name"]})).into()
            }
            _ => InputRequired::new().ask("who", form()).keep(json!({})).into(),
        }),
        "forever" => Ok(InputRequired::new().ask("who", form()).into()),
        "model" => Ok(match input.sampled("said") {
            Some(said) => ToolResult::text(said).into(),
            None => InputRequired::new().ask("said", InputRequest::sampling("Say.", 5)).into(),
        }),
        "log" => {
            for level in [Level::Debug, Level::Info, Level::Error] {
                request.line.log(level, Some("t"), &json!({"at": level}));
            }
            Ok(ToolResult::text("logged").into())
        }
        "pause" => {
            request.line.pause();
            service.release.notified().await;
            Ok(ToolResult::text("after the pause").into())
        }
        "hold" => {
            service.holding.notify_one();
            tokio::select! {
                () = request.cancel.cancelled() => Ok(ToolResult::text("cancelled").into()),
                () = service.release.notified() => Ok(ToolResult::text("released").into()),
            }
        }
        "task" => {
            let needed = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
            let tasks = request.tasks.ok_or_else(|| RpcError::missing_capability(needed))?;
            tasks.start(TaskOptions::default(), move |task| async move {
                task.status("asking");
                let questions = BTreeMap::from([("a".to_owned(), form()), ("b".to_owned(), form())]);
                let answers = task.ask(questions).await?;
                let name =
                    |key| answers.accepted(key).and_then(|fields| fields["name"].as_str()).unwrap_or("?");
                Ok(ToolResult::text(format!("{} and {}", name("a"), name("b"))))
            })
        }
        "task that panics" => {
            let tasks = request.tasks.unwrap();
            tasks.start(TaskOptions::default(), |_| async { panic!("a task that panics, on purpose") })
        }
        other => Err(RpcError::unknown_tool(other)),
    }
}

pub(crate) fn identity() -> Identity {
    let offers = Offers::new().resources().prompts().completions();
    Identity::new(ServerInfo::new("test", "1")).offers(offers)
}

pub(crate) fn stateful(events: &Events, limits: SessionLimits) -> Stateful<String> {
    Stateful::new(String::clone)
        .sessions(limits)
        .seal(StateSeal::new([7; 32]))
        .tasks(Arc::new(MemoryStore::default()))
        .events(events.clone(), Changes::ALL)
        .logging()
}

type Endpoint = McpHttp<Service, fn(&Parts) -> std::future::Ready<Result<String, Refusal>>, Stateful<String>>;

/// The endpoint and what drives it.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) service: Service,
    pub(crate) events: Events,
}

/// Whoever the header `who` names.
fn authenticate(parts: &Parts) -> std::future::Ready<Result<String, Refusal>> {
    let who = parts.headers.get("who").and_then(|who| who.to_str().ok()).unwrap_or("alice");
    std::future::ready(Ok(who.to_owned()))
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(SessionLimits::default())
    }

    pub(crate) fn with(limits: SessionLimits) -> Self {
        let (service, events) = (Service::default(), Events::new());
        let config = Config::new(identity()).hosts(HostPolicy::loopback());
        let stateful = stateful(&events, limits);
        let endpoint = McpHttp::keeping(service.clone(), authenticate as fn(&Parts) -> _, config, stateful);
        Self { endpoint, service, events }
    }

    /// Sends one request with more headers.
    pub(crate) async fn send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Response<BoxBody> {
        let mut request = HttpRequest::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost")
            .header("accept", "application/json, text/event-stream");
        if !body.is_null() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.body(Full::<Bytes>::from(text)).unwrap();
        self.endpoint.clone().oneshot(request).await.unwrap()
    }

    /// Sends a modern request, with the headers it calls for.
    pub(crate) async fn modern(&self, who: &str, message: &Value) -> Response<BoxBody> {
        let params = &message["params"];
        let name = params["name"].as_str().or(params["uri"].as_str()).or(params["taskId"].as_str());
        let method = message["method"].as_str().unwrap();
        let mut headers = vec![("who", who), ("mcp-protocol-version", MODERN), ("mcp-method", method)];
        headers.extend(name.map(|name| ("mcp-name", name)));
        self.send("POST", &headers, message).await
    }

    /// The answer to a modern request that is answered at once.
    pub(crate) async fn ask(&self, who: &str, capabilities: Value, method: &str, params: Value) -> Value {
        let response = self.modern(who, &modern(method, params, capabilities)).await;
        body(response).await
    }

    /// Begins a session and gives its id.
    pub(crate) async fn begin(&self, who: &str, revision: &str, capabilities: Value) -> String {
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "0"}});
        let response = self.send("POST", &[("who", who)], &legacy(0, "initialize", params)).await;
        assert_eq!(response.status(), 200);
        response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// Sends a message in a session.
    pub(crate) async fn within(&self, who: &str, session: &str, message: &Value) -> Response<BoxBody> {
        self.send("POST", &[("who", who), ("mcp-session-id", session)], message).await
    }
}

/// A modern request with id 1.
pub(crate) fn modern(method: &str, mut params: Value, capabilities: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

pub(crate) fn legacy(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn call(name: &str) -> Value {
    json!({"name": name, "arguments": {}})
}

/// The text of a tool's answer.
pub(crate) fn said(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// A whole JSON body.
pub(crate) async fn body(response: Response<BoxBody>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&bytes)))
}

/// One event of a stream: its id and its message, which is null where there is none.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) message: Value,
}

/// A stream, read event by event.
pub(crate) struct Stream {
    response: Response<BoxBody>,
    text: String,
}

impl Stream {
    pub(crate) fn of(response: Response<BoxBody>) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event == ":" {
                    continue;
                }
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let data = field("data: ").unwrap_or_default();
                let message = if data.is_empty() { Value::Null } else { serde_json::from_str(data).unwrap() };
                return Some(Event { id: field("id: ").map(str::to_owned), message });
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.response.body_mut().frame());
            match frame.await.expect("the stream says nothing") {
                Some(frame) => {
                    let data = frame.unwrap().into_data().unwrap();
                    self.text.push_str(std::str::from_utf8(&data).unwrap());
                }
                None => return None,
            }
        }
    }

    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("the stream ended").message
    }
}
