//! The endpoint: from an HTTP request to its response. The order of the checks is the order of the code in
//! [`Endpoint::respond`]; nothing is run before all of them passed.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt, Full};

use super::{
    BoxBody, Config, Refusal, empty_response,
    headers::{self, Accepts},
    json_response, sse,
};
use crate::{
    Era, Identity, Message, Reply, Request, RpcError,
    builtin::{self, Call, Routed},
    call::{CancelHandle, Running, settled},
    jsonrpc::Limits,
    ladder, reply,
};

/// The MCP endpoint as a `tower::Service` over HTTP requests with any body type.
///
/// `S` is the embedder's `tower::Service<Request<C>, Response = Reply, Error = RpcError>`; `A` its
/// authenticator, `Fn(&http::request::Parts) -> impl Future<Output = Result<C, Refusal>>`. Every call runs in a
/// task of its own: when a modern client goes away its [`CancelSignal`](crate::CancelSignal) fires and the task
/// runs to its end, so half-done work is never dropped midway. Must be called inside a tokio runtime with time.
pub struct McpHttp<S, A> {
    service: S,
    endpoint: Arc<Endpoint<A>>,
}

struct Endpoint<A> {
    authenticator: A,
    config: Config,
    identity: Arc<Identity>,
}

impl<S, A> McpHttp<S, A> {
    /// An endpoint that lets `authenticator` say who calls and gives calls to a clone of `service`.
    pub fn new(service: S, authenticator: A, config: Config) -> Self {
        let identity = Arc::new(config.identity.clone());
        Self { service, endpoint: Arc::new(Endpoint { authenticator, config, identity }) }
    }
}

impl<S: Clone, A> Clone for McpHttp<S, A> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), endpoint: Arc::clone(&self.endpoint) }
    }
}

impl<S, A> fmt::Debug for McpHttp<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttp").field("config", &self.endpoint.config).finish_non_exhaustive()
    }
}

impl<S, A, F, C, B> tower_service::Service<http::Request<B>> for McpHttp<S, A>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    A: Fn(&Parts) -> F + Send + Sync + 'static,
    F: Future<Output = Result<C, Refusal>> + Send,
    C: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<BoxBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<BoxBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Whether the inner service is needed is known only after the request was read; its readiness is
        // awaited then, on the very clone that is called.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.service.clone();
        let endpoint = Arc::clone(&self.endpoint);
        let (parts, body) = request.into_parts();
        Box::pin(async move { Ok(endpoint.respond(service, parts, body).await) })
    }
}

impl<A> Endpoint<A> {
    async fn respond<S, F, C, B>(&self, service: S, parts: Parts, body: B) -> Response<BoxBody>
    where
        S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Send + 'static,
        S::Future: Send,
        A: Fn(&Parts) -> F,
        F: Future<Output = Result<C, Refusal>> + Send,
        C: Send + 'static,
        B: Body,
    {
        if let Some(Err(refusal)) = self.config.hosts.as_ref().map(|policy| policy.check(&parts)) {
            return refusal.into_response();
        }
        let caller = match (self.authenticator)(&parts).await {
            Ok(caller) => caller,
            Err(refusal) => return refusal.into_response(),
        };
        let accepts = match form(&parts) {
            Ok(accepts) => accepts,
            Err(refusal) => {
                let wrong_method = refusal.status == StatusCode::METHOD_NOT_ALLOWED;
                let mut response = refusal.into_response();
                if wrong_method {
                    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
                }
                return response;
            }
        };
        let text = match self.read(&parts, body).await {
            Ok(text) => text,
            Err(refusal) => return refusal.into_response(),
        };
        let limits = Limits { bytes: self.config.body_limit, ..Limits::default() };
        let (id, method, params) = match Message::parse(&text, &limits) {
            Ok(Message::Request { id, method, params }) => (id, method, params),
            // A cancel has nothing to reach here: a modern client closes the response instead, and a legacy
            // one has no session to find the call in.
            Ok(Message::Notification { .. }) => return empty_response(StatusCode::ACCEPTED),
            Err(refused) => {
                let body = reply::encode_error(refused.id.as_ref(), &refused.error);
                return json_response(StatusCode::BAD_REQUEST, body);
            }
        };
        let routing = headers::routing(&parts.headers);
        match builtin::route(&self.identity, &id, &method, params, Some(&routing)) {
            Err(error) => json_response(status(Era::Modern, &error), reply::encode_error(Some(&id), &error)),
            Ok(Routed::Answered(era, id, outcome)) => {
                let status = outcome.as_ref().map_or_else(|error| status(era, error), |_| StatusCode::OK);
                one(accepts, status, reply::encode_value(&id, &outcome))
            }
            Ok(Routed::Call(call)) => self.run(service, caller, call, accepts).await,
        }
    }

    async fn read<B: Body>(&self, parts: &Parts, body: B) -> Result<Bytes, Refusal> {
        let limit = self.config.body_limit;
        let too_large = || {
            let message = format!("the body exceeds {limit} bytes; send less in one call");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message)
        };
        let declared =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let collect = async {
            let mut body = std::pin::pin!(body);
            let mut text = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let broken = |_| Refusal::new(StatusCode::BAD_REQUEST, "incomplete", "the body ended early");
                let Ok(mut data) = frame.map_err(broken)?.into_data() else { continue };
                if data.remaining() > limit - text.len() {
                    return Err(too_large());
                }
                while data.has_remaining() {
                    let chunk = data.chunk();
                    text.extend_from_slice(chunk);
                    let taken = chunk.len();
                    data.advance(taken);
                }
            }
            Ok(text.freeze())
        };
        match tokio::time::timeout(self.config.deadline, collect).await {
            Ok(read) => read,
            Err(_) => {
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not arrive in time"))
            }
        }
    }

    async fn run<S, C>(&self, service: S, caller: C, call: Call, accepts: Accepts) -> Response<BoxBody>
    where
        S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Send + 'static,
        S::Future: Send,
        C: Send + 'static,
    {
        let (era, id) = (call.era, call.id.clone());
        let can_stream = accepts != Accepts::Json;
        let mut running = Running::start(service, caller, call, can_stream);
        let guard = era.is_modern().then(|| CancelOnDrop::new(running.cancel.clone()));
        let first = tokio::select! {
            biased;
            Some(update) = next(&mut running.progress) => Some(sse::event(&running.notification(&update))),
            joined = &mut running.task => {
                if let Some(guard) = guard {
                    guard.disarm();
                }
                let outcome = settled(joined);
                let status = outcome.as_ref().map_or_else(|error| status(era, error), |_| StatusCode::OK);
                return one(accepts, status, reply::encode(&self.identity, era, &id, &outcome));
            }
            () = tokio::time::sleep(self.config.silence), if can_stream => None,
        };
        sse::response(sse::Stream {
            identity: Arc::clone(&self.identity),
            era,
            id,
            running: Some(running),
            // Something must leave at once, or a proxy still sees silence.
            first: Some(first.unwrap_or_else(|| Bytes::from_static(b":\n\n"))),
            keep_alive: self.config.keep_alive,
            timer: Box::pin(tokio::time::sleep(self.config.keep_alive)),
            guard,
        })
    }
}

/// Checks method, `Content-Type` and `Accept`.
fn form(parts: &Parts) -> Result<Accepts, Refusal> {
    if parts.method != Method::POST {
        let message = "send JSON-RPC by POST; this server keeps no sessions and no event streams";
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message));
    }
    if !headers::is_json(&parts.headers) {
        let message = "Content-Type must be application/json, in UTF-8 and uncompressed";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    headers::accepts(&parts.headers).ok_or_else(|| {
        let message = "Accept must allow application/json or text/event-stream";
        Refusal::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message)
    })
}

/// A reply that is complete: JSON, or one event for a client that takes nothing else. Other statuses than 200
/// are always JSON, since a stream has begun well by definition.
fn one(accepts: Accepts, status: StatusCode, body: Vec<u8>) -> Response<BoxBody> {
    if accepts == Accepts::Sse && status == StatusCode::OK {
        sse::response(Full::new(sse::event(&body)))
    } else {
        json_response(status, body)
    }
}

fn status(era: Era, error: &RpcError) -> StatusCode {
    StatusCode::from_u16(ladder::http_status(era, error)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

async fn next<T>(receiver: &mut Option<tokio::sync::mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => None,
    }
}

/// Fires a call's cancel signal unless disarmed: closing a modern response is how its client cancels.
pub(super) struct CancelOnDrop(Option<CancelHandle>);

impl CancelOnDrop {
    fn new(handle: CancelHandle) -> Self {
        Self(Some(handle))
    }

    /// The response is complete; nothing is left to cancel.
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.cancel();
        }
    }
}
