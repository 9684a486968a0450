//! Streamable HTTP: one path. Without more, `POST` only, each request complete in itself; with a
//! [`Stateful`](crate::Stateful) also the sessions of the older revisions.
//!
//! [`McpHttp`] is a `tower::Service` over any body type; it opens no socket and knows no HTTP server. Mount it
//! where `/mcp` is routed. On the listener set `TCP_NODELAY`, or streamed replies wait for delayed ACKs.
//!
//! ```
//! use http::request::Parts;
//! use mcp_wire::http::{Config, HostPolicy, McpHttp, Refusal};
//! use mcp_wire::{Identity, Method, Reply, Request, RpcError, ServerInfo, ToolResult};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // The service: here one tool that greets its caller.
//! let tools = tower::service_fn(|request: Request<String>| async move {
//!     match request.method {
//!         Method::ToolsCall { name, .. } if name == "greet" => {
//!             Ok(Reply::Tool(ToolResult::text(format!("hello, {}", request.caller))))
//!         }
//!         Method::ToolsCall { name, .. } => Err(RpcError::unknown_tool(&name)),
//!         other => Err(RpcError::method_not_found(other.as_str())),
//!     }
//! });
//! // The authenticator: what it returns is the request's caller.
//! let authenticate = |parts: &Parts| {
//!     let known = parts.headers.get("authorization").is_some_and(|sent| sent == "Bearer s3cret");
//!     std::future::ready(known.then(|| "alice".to_owned()).ok_or_else(|| {
//!         Refusal::unauthorized("demo", "send `Authorization: Bearer …` with a token of this server")
//!     }))
//! };
//! let identity = Identity::new(ServerInfo::new("demo", "1.0.0"));
//! let endpoint = McpHttp::new(tools, authenticate, Config::new(identity).hosts(HostPolicy::loopback()));
//!
//! let request = http::Request::post("/mcp")
//!     .header("host", "localhost")
//!     .header("authorization", "Bearer s3cret")
//!     .header("content-type", "application/json")
//!     .body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet"}}"#.to_owned())
//!     .unwrap();
//! let response = endpoint.oneshot(request).await.unwrap();
//! assert_eq!(response.status(), 200);
//! # }
//! ```

mod headers;
mod hosts;
mod listen;
mod params;
pub(crate) mod replay;
mod service;
mod session;
mod sse;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::Identity;

pub use hosts::{HostPolicy, HostPolicyError};
pub use params::{ParamHeaderError, ParamHeaders};
pub use service::McpHttp;

/// The body of every response.
pub type BoxBody = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

/// How the endpoint behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What the server says about itself.
    pub identity: Identity,
    /// Largest request body, in bytes; beyond it 413. Default 4 MiB.
    pub body_limit: usize,
    /// Which `Host` and `Origin` are answered; `None` leaves that to a layer in front. Default `None`.
    pub hosts: Option<HostPolicy>,
    /// How long a client may take to send its body; beyond it 408. Default 30 s.
    pub deadline: Duration,
    /// How long a call may be silent before the reply becomes a stream, so that proxies do not give up.
    /// Default 10 s.
    pub silence: Duration,
    /// How often a silent stream sends a comment. Default 15 s.
    pub keep_alive: Duration,
    /// Which arguments must be repeated in headers. Default none.
    pub param_headers: ParamHeaders,
}

impl Config {
    /// The defaults for `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            body_limit: 4 * 1024 * 1024,
            hosts: None,
            deadline: Duration::from_secs(30),
            silence: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            param_headers: ParamHeaders::default(),
        }
    }

    /// The same, checking headers against arguments.
    #[must_use]
    pub fn param_headers(mut self, headers: ParamHeaders) -> Self {
        self.param_headers = headers;
        self
    }

    /// The same with `policy` checked before anything else.
    #[must_use]
    pub fn hosts(mut self, policy: HostPolicy) -> Self {
        self.hosts = Some(policy);
        self
    }
}

/// A request refused before JSON-RPC: what to answer instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The status, for example 401.
    pub status: StatusCode,
    /// The challenge of a 401 or 403.
    pub www_authenticate: Option<HeaderValue>,
    /// Seconds of `Retry-After`, for 429 and 503.
    pub retry_after: Option<u64>,
    /// The JSON body. Clients show it to people, so let it say what to do.
    pub body: Value,
}

impl Refusal {
    /// `status` with the body `{"error": code, "message": message}`.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, message: &str) -> Self {
        let body = json!({"error": code, "message": message});
        Self { status, www_authenticate: None, retry_after: None, body }
    }

    /// 401 with `WWW-Authenticate: Bearer realm="…"`. Characters of `realm` that a quoted string cannot hold
    /// are left out.
    #[must_use]
    pub fn unauthorized(realm: &str, message: &str) -> Self {
        let safe: String = realm
            .chars()
            .filter(|c| (*c == ' ' || c.is_ascii_graphic()) && !matches!(c, '"' | '\\'))
            .collect();
        let challenge = HeaderValue::try_from(format!("Bearer realm=\"{safe}\"")).ok();
        Self { www_authenticate: challenge, ..Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message) }
    }

    /// The same as [`Refusal::unauthorized`] for a token that was sent and is wrong: the challenge also says
    /// `error="invalid_token"` (RFC 6750, section 3.1), which tells a client not to try it again.
    #[must_use]
    pub fn invalid_token(realm: &str, message: &str) -> Self {
        let plain = Self::unauthorized(realm, message);
        let challenge = plain.www_authenticate.as_ref().and_then(|value| value.to_str().ok());
        let challenge = challenge.map(|text| format!("{text}, error=\"invalid_token\""));
        Self { www_authenticate: challenge.and_then(|text| HeaderValue::try_from(text).ok()), ..plain }
    }

    /// The response to send.
    #[must_use]
    pub fn into_response(self) -> Response<BoxBody> {
        let mut response = json_response(self.status, self.body.to_string().into_bytes());
        if let Some(challenge) = self.www_authenticate {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

fn json_response(status: StatusCode, body: Vec<u8>) -> Response<BoxBody> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty_response(status: StatusCode) -> Response<BoxBody> {
    let mut response = Response::new(http_body_util::Empty::new().boxed());
    *response.status_mut() = status;
    response
}
