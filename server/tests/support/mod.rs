//! A server on a lab, for the end-to-end tests: in this process or as the real program, with tokens for everyone.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "shared by several test programs, none of which uses all of it; a test stops at the first surprise"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use lab::{Lab, LabCluster, LabConfig};
use proxward::cli::token::{ActorType, AddArgs, HashKind, add};
use proxward::cli::{Cli, ServeArgs};
use proxward::serve::{Options, Running, start_http};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A lab with a server's configuration beside it.
pub struct Stage {
    pub lab: Lab,
    pub dir: TempDir,
    tokens: HashMap<String, String>,
}

/// What a token may do.
#[derive(Clone, Copy)]
pub struct Rights<'a> {
    pub tools: &'a [&'a str],
    pub guests: &'a [&'a str],
    pub actions: &'a [&'a str],
    pub clusters: &'a [&'a str],
    pub person: Option<&'a str>,
    pub kind: Option<ActorType>,
}

pub const AGENT_TOOLS: &[&str] = &[
    "get_nodes",
    "get_vms",
    "get_containers",
    "get_guest_status",
    "get_vm_config",
    "get_task_status",
    "start_vm",
    "stop_vm",
    "proxmox_upload_link",
    "get_transfer",
    "list_transfers",
    "cancel_transfer",
    "proxmox_download_link",
    "proxmox_fetch_url",
    "proxmox_upload_file",
    "read_guest_file",
    "write_guest_file",
    "upload_to_storage_link",
    "plan_proxmox_destroy",
    "get_proxmox_change_set",
    "list_change_sets",
    "cancel_change_set",
    "apply_proxmox_change_set",
    "delete_vm",
    "delete_container",
];
/// Tools that are there only where an HTTP listener serves links.
pub const LINK_TOOLS: &[&str] = &[
    "proxmox_upload_link",
    "proxmox_download_link",
    "upload_to_storage_link",
    "get_transfer",
    "list_transfers",
    "cancel_transfer",
];
pub const ALL_ACTIONS: &[&str] = &["read", "low", "destructive"];
pub const AGENT: Rights<'static> = Rights {
    tools: AGENT_TOOLS,
    guests: &["*"],
    actions: ALL_ACTIONS,
    clusters: &["*"],
    person: Some("robin"),
    kind: Some(ActorType::Agent),
};
pub const READER: Rights<'static> = Rights {
    tools: &["*"],
    guests: &["*"],
    actions: &["read"],
    clusters: &["*"],
    person: None,
    kind: Some(ActorType::Agent),
};
pub const APPROVER: Rights<'static> = Rights {
    tools: &["get_proxmox_change_set", "list_change_sets", "approve_proxmox_change_set", "reject_change_set"],
    guests: &["*"],
    actions: ALL_ACTIONS,
    clusters: &["*"],
    person: Some("alice"),
    kind: Some(ActorType::Human),
};

/// A policy under which no limit is in the way of a test that is about something else.
pub fn roomy() -> Value {
    json!({"limits": {
        "transfer_wrong_tokens_per_minute": 1_000_000, "calls_per_second": 100_000, "call_burst": 1_000_000,
        "calls_in_flight": 10_000, "bearer_failures_per_minute": 1_000_000, "destructive_applies_per_hour": 1_000_000,
        "pending_links": 10_000, "pending_links_per_owner": 10_000, "uploads_per_node": 16, "recovery_settle_ms": 300,
        "pending_changes_per_planner": 10_000, "pending_changes": 10_000,
    }})
}

impl Stage {
    /// The two clusters out of the box, tokens `agent`, `reader` and `approver`, and `policy.limits` raised so that no test is
    /// held up by a limit it does not test.
    pub async fn new() -> Self {
        Self::with_policy(roomy()).await
    }

    /// The same with this `policy`.
    pub async fn with_policy(policy: Value) -> Self {
        Self::on(LabConfig::two_clusters().unwrap(), policy).await
    }

    /// On a lab of the test's own making, which has a cluster `alpha`.
    pub async fn on(config: LabConfig, policy: Value) -> Self {
        let lab = Lab::start(config).await.unwrap();
        let dir = TempDir::new().unwrap();
        lab.write_config(dir.path()).unwrap();
        let mut stage = Self { lab, dir, tokens: HashMap::new() };
        stage.edit_clusters(|file| file["policy"] = policy);
        stage.token("agent", AGENT);
        stage.token("reader", READER);
        stage.token("approver", APPROVER);
        stage
    }

    pub fn alpha(&self) -> LabCluster {
        self.lab.cluster("alpha")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn edit_clusters(&self, edit: impl FnOnce(&mut Value)) {
        let path = self.path("clusters.json");
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        edit(&mut file);
        // Keeps the file's mode: it is written in place.
        std::fs::write(&path, file.to_string()).unwrap();
    }

    /// Adds a token; sha256, because a slow hash is not what these tests are about.
    pub fn token(&mut self, name: &str, rights: Rights<'_>) {
        let text = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let args = AddArgs {
            name: name.to_owned(),
            tokens_file: self.path("tokens.json"),
            tools: text(rights.tools),
            devices: text(rights.clusters),
            guests: rights.guests.iter().map(|s| s.parse().unwrap()).collect(),
            actions: rights.actions.iter().map(|s| s.parse().unwrap()).collect(),
            person: rights.person.map(str::to_owned),
            actor_type: rights.kind,
            provider: None,
            provider_tier: None,
            on_behalf_of: None,
            expires: None,
            hash: HashKind::Sha256,
        };
        let token = add(&args, jiff::Timestamp::now()).unwrap();
        self.tokens.insert(name.to_owned(), token.as_str().to_owned());
    }

    pub fn bearer(&self, name: &str) -> &str {
        &self.tokens[name]
    }

    /// The command line of a server over HTTP on this stage, with `more` flags.
    pub fn command_line(&self, more: &[&str]) -> Vec<String> {
        self.line(&["serve", "-t", "streamable-http", "-p", "0"], more)
    }

    /// The command line of a server over stdio on this stage, with `more` flags.
    pub fn stdio_line(&self, more: &[&str]) -> Vec<String> {
        self.line(&["serve"], more)
    }

    fn line(&self, verb: &[&str], more: &[&str]) -> Vec<String> {
        let files = [
            ("--clusters-file", "clusters.json"),
            ("--tokens-file", "tokens.json"),
            ("--waivers-file", "waivers.json"),
            ("--state-dir", "state"),
        ];
        let files = files
            .into_iter()
            .flat_map(|(flag, name)| [flag.to_owned(), self.path(name).display().to_string()]);
        let verb = verb.iter().map(|s| (*s).to_owned());
        verb.chain(files).chain(more.iter().map(|s| (*s).to_owned())).collect()
    }

    pub fn args(&self, more: &[&str]) -> ServeArgs {
        let line = std::iter::once("proxward".to_owned()).chain(self.command_line(more));
        match Cli::try_parse_from(line).unwrap().command {
            Some(proxward::cli::Command::Serve(args)) => *args,
            other => panic!("not a serve command: {other:?}"),
        }
    }

    /// A server in this process.
    pub async fn serve(&self) -> Running {
        start_http(&self.args(&[]), Options::default()).await.unwrap()
    }

    /// The audit trail, a record a line.
    pub fn audit(&self) -> Vec<Value> {
        audit_of(&self.path("state/audit.jsonl"))
    }

    pub fn client(&self, address: SocketAddr, token: &str) -> Client {
        Client { address, bearer: Some(self.bearer(token).to_owned()) }
    }
}

pub fn audit_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    // A line is written in one piece but may be read in two: what has no end yet is not there yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// An answer with its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body, or the last message of a stream: what an answer becomes that takes its time.
    pub fn json(&self) -> Value {
        let streamed = self.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let text = std::str::from_utf8(&self.body).unwrap();
        let message = match streamed {
            true => {
                text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or_default()
            }
            false => text,
        };
        serde_json::from_str(message).unwrap_or_else(|e| panic!("{e}: {text:?}"))
    }
}

/// Nobody answered, or not to the end.
pub type SendError = Box<dyn std::error::Error + Send + Sync>;

/// Sends one request over a connection of its own.
pub async fn send<B>(address: SocketAddr, request: Request<B>) -> Result<Answer, SendError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    driver.abort();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

/// A request with the right Host.
pub fn request(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", address.to_string())
        .body(Full::new(body.into()))
        .unwrap()
}

/// Calls tools over Streamable HTTP, as one token.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub bearer: Option<String>,
}

impl Client {
    /// One JSON-RPC request of revision 2026-07-28.
    pub async fn try_rpc(&self, method: &str, params: Value) -> Result<Answer, SendError> {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut request = request(self.address, Method::POST, "/mcp", body.to_string());
        let headers = request.headers_mut();
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("accept", "application/json, text/event-stream".parse().unwrap());
        headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
        headers.insert("mcp-method", method.parse().unwrap());
        if let Some(name) = params.get("name").and_then(Value::as_str) {
            headers.insert("mcp-name", name.parse().unwrap());
        }
        if let Some(bearer) = &self.bearer {
            headers.insert("authorization", format!("Bearer {bearer}").parse().unwrap());
        }
        send(self.address, request).await
    }

    /// The same against a server that must answer.
    pub async fn rpc(&self, method: &str, params: Value) -> Answer {
        self.try_rpc(method, params).await.unwrap()
    }

    /// Calls a tool: `Ok` with its structured result, `Err` with the JSON of an `isError` result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        called(tool, &self.rpc("tools/call", json!({"name": tool, "arguments": arguments})).await)
    }

    /// The same, `None` when the server does not answer: it was killed.
    pub async fn try_call(&self, tool: &str, arguments: Value) -> Option<Result<Value, Value>> {
        let answer = self.try_rpc("tools/call", json!({"name": tool, "arguments": arguments})).await.ok()?;
        Some(called(tool, &answer))
    }

    /// Names that `tools/list` shows.
    pub async fn tools(&self) -> Vec<String> {
        let body = self.rpc("tools/list", json!({})).await.json();
        let tools = body["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Reads the answer to a `tools/call`.
fn called(tool: &str, answer: &Answer) -> Result<Value, Value> {
    let body = answer.json();
    let result = &body["result"];
    assert!(result.is_object(), "{tool}: {body}");
    let text = result["content"][0]["text"].as_str().unwrap();
    if result["isError"] == true {
        return Err(serde_json::from_str(text).unwrap_or_else(|_| json!({"message": text})));
    }
    let structured = result["structuredContent"].clone();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), structured, "text and structured copies differ");
    Ok(structured)
}

/// The path of a minted URL: its token included.
pub fn path_of(minted: &Value) -> String {
    let url = minted["url"].as_str().unwrap();
    url.splitn(4, '/').nth(3).map(|rest| format!("/{rest}")).unwrap()
}

pub mod reads;
