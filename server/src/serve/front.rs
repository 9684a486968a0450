//! The HTTP side of every request: host and origin, then the route.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use mcp_wire::http::{BoxBody, Config, HostPolicy, McpHttp, Refusal};
use mcp_wire::{Identity, ServerInfo};
use tower::{Service, ServiceExt};

use super::client::client_of;
use super::ready::{Readiness, Ready};
use super::start::StartError;
use crate::app::App;
use crate::cli::ServeArgs;
use crate::config::Problem;
use crate::stack::bearer::Bearer;
use crate::stack::rate::{Limited, PrincipalLimiter};
use crate::stack::{Caller, Rpc, Via};
use crate::transfer_http::{self, reply};

/// What models are told about the server.
const INSTRUCTIONS: &str = "Proxward is a gate to Proxmox VE clusters. You see what your token may see. Routine work happens at once; \
destroying something is planned (plan_proxmox_destroy), approved by a different human, then applied (apply_proxmox_change_set). \
To carry a file into a guest call proxmox_upload_link and upload with the curl line it answers; proxmox_download_link carries one out. Refusals say what to do next.";

/// Who the server is, for both transports.
pub(super) fn identity() -> Identity {
    let mut info = ServerInfo::new("proxward", env!("CARGO_PKG_VERSION"));
    info.title = Some("Proxward".to_owned());
    Identity::new(info).instructions(INSTRUCTIONS)
}

/// What answers `/mcp` on one connection.
pub(super) trait Endpoint:
    Service<Request<Incoming>, Response = Response<BoxBody>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Endpoint for S where
    S: Service<Request<Incoming>, Response = Response<BoxBody>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Answers requests.
#[derive(Clone)]
pub(super) struct Front {
    shared: Arc<Shared>,
}

struct Shared {
    app: Arc<App>,
    hosts: HostPolicy,
    bearer: Bearer,
    rates: PrincipalLimiter,
    ready: Readiness,
    /// Whether `/mcp` is served here, or the transfer routes alone.
    mcp: bool,
    config: Config,
}

impl Front {
    /// For a listener that serves everything.
    pub(super) fn new(app: Arc<App>, args: &ServeArgs, address: SocketAddr) -> Result<Self, StartError> {
        Self::with(app, args, address, true)
    }

    /// For a listener that serves the transfer routes alone, beside stdio.
    pub(super) fn transfers_only(
        app: Arc<App>,
        args: &ServeArgs,
        address: SocketAddr,
    ) -> Result<Self, StartError> {
        Self::with(app, args, address, false)
    }

    fn with(app: Arc<App>, args: &ServeArgs, address: SocketAddr, mcp: bool) -> Result<Self, StartError> {
        let hosts = host_policy(args, address)?;
        let shared = Shared {
            app,
            hosts,
            bearer: Bearer::new(args.allow_no_auth)?,
            rates: PrincipalLimiter::default(),
            ready: Readiness::default(),
            mcp,
            config: Config::new(identity()),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether this address is a proxy that speaks for many clients.
    pub(super) fn trusts_proxy(&self, address: std::net::IpAddr) -> bool {
        self.shared.app.live.load().policy.trusts_proxy(address)
    }

    /// The MCP endpoint of one connection of `peer`, made once and cloned for each of its requests.
    pub(super) fn endpoint(&self, peer: SocketAddr) -> impl Endpoint {
        let shared = self.shared.clone();
        let authenticator = move |parts: &http::request::Parts| {
            let shared = shared.clone();
            // Only what authentication reads is taken along.
            let mut head = Request::new(()).into_parts().0;
            head.headers = parts.headers.clone();
            async move { shared.caller(peer, &head).await }
        };
        McpHttp::new(Rpc::new(self.shared.app.clone()), authenticator, self.shared.config.clone())
    }

    /// Answers one request of `peer`. The request's target is never logged: it may hold a link's token.
    pub(super) async fn answer(
        &self,
        peer: SocketAddr,
        endpoint: impl Endpoint,
        request: Request<Incoming>,
    ) -> Response<BoxBody> {
        let (parts, body) = request.into_parts();
        if let Err(refusal) = self.shared.hosts.check(&parts) {
            return refusal.into_response();
        }
        let request = Request::from_parts(parts, body);
        let path = request.uri().path();
        if transfer_http::is_transfer_path(path) {
            let client = client_of(peer, request.headers(), |address| self.trusts_proxy(address));
            return transfer_http::handle(self.shared.app.clone(), client.ip(), request).await;
        }
        match (path, request.method()) {
            ("/mcp", _) if self.shared.mcp => match endpoint.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            ("/healthz", &Method::GET | &Method::HEAD) => plain(StatusCode::OK, "ok\n"),
            ("/readyz", &Method::GET | &Method::HEAD) => self.readyz().await,
            // JSON for every unknown path, OAuth's discovery paths among them: clients that probe those take it for "no".
            _ => reply::not_found(),
        }
    }

    /// See [`Ready`].
    async fn readyz(&self) -> Response<BoxBody> {
        match self.shared.ready.ready(&self.shared.app).await {
            Ready::Ok => plain(StatusCode::OK, "ok\n"),
            Ready::Degraded => plain(StatusCode::OK, "degraded\n"),
            Ready::No => plain(StatusCode::SERVICE_UNAVAILABLE, "mutations are impossible\n"),
        }
    }
}

impl Shared {
    /// Who calls, with a share of what they may run at once.
    async fn caller(&self, peer: SocketAddr, parts: &http::request::Parts) -> Result<Caller, Refusal> {
        let snapshot = self.app.live.load();
        let peer = client_of(peer, &parts.headers, |address| snapshot.policy.trusts_proxy(address));
        let principal = self.bearer.authenticate(&self.app, &snapshot, parts, peer.ip()).await?;
        let share = self
            .rates
            .take(principal.name(), &snapshot.policy.limits, self.app.clock.monotonic())
            .map_err(too_many)?;
        Ok(Caller {
            principal,
            via: Via::Http(peer),
            snapshot,
            request_id: request_id(),
            share: Some(Arc::new(share)),
        })
    }
}

fn too_many(limited: Limited) -> Refusal {
    let mut refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", &limited.to_string());
    refusal.retry_after = Some(1);
    refusal
}

/// Which `Host` and `Origin` are answered: what the flags name, else loopback's names, else the address itself.
fn host_policy(args: &ServeArgs, address: SocketAddr) -> Result<HostPolicy, StartError> {
    if args.allowed_host.is_empty() && args.allowed_origin.is_empty() && address.ip().is_loopback() {
        return Ok(HostPolicy::loopback());
    }
    let itself = [address.to_string()];
    let hosts: &[String] = if args.allowed_host.is_empty() { &itself } else { &args.allowed_host };
    HostPolicy::new(hosts, &args.allowed_origin)
        .map_err(|error| StartError::Configuration(vec![Problem::flag(error.to_string())]))
}

/// A name for one request, for joining its records. Not a secret; unique is enough.
pub(super) fn request_id() -> String {
    let mut bytes = [0_u8; 10];
    if getrandom::fill(&mut bytes).is_err() {
        return "req_norandom".to_owned();
    }
    format!("req_{}", data_encoding::BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
}

fn plain(status: StatusCode, text: &'static str) -> Response<BoxBody> {
    let mut response = Response::new(http_body_util::Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    response
}
