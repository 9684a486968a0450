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
    json_response, listen,
    session::{self, InSession},
    sse,
};
use crate::{
    Era, Identity, Message, Reply, Request, Revision, RpcError, Stateful,
    builtin::{self, Call, Routed},
    call::{CancelHandle, Note, Running, settled},
    jsonrpc::{Incoming, Limits},
    ladder,
    legacy::Session,
    reply,
    stateful::{Backing, Means},
};

/// The MCP endpoint as a `tower::Service` over HTTP requests with any body type.
///
/// `S` is the embedder's `tower::Service<Request<C>, Response = Reply, Error = RpcError>`; `A` its
/// authenticator, `Fn(&http::request::Parts) -> impl Future<Output = Result<C, Refusal>>`; `X` what is kept between
/// requests, by default nothing (see [`McpHttp::keeping`]). Every call runs in a task of its own: when a modern client goes
/// away its [`CancelSignal`](crate::CancelSignal) fires and the task runs to its end, so half-done work is never dropped
/// midway. Must be called inside a tokio runtime with time.
pub struct McpHttp<S, A, X = ()> {
    service: S,
    endpoint: Arc<Endpoint<A, X>>,
}

struct Endpoint<A, X> {
    authenticator: A,
    config: Config,
    identity: Arc<Identity>,
    backing: X,
}

impl<S, A> McpHttp<S, A> {
    /// An endpoint that lets `authenticator` say who calls and gives calls to a clone of `service`.
    pub fn new(service: S, authenticator: A, config: Config) -> Self {
        let identity = Arc::new(config.identity.clone());
        Self { service, endpoint: Arc::new(Endpoint { authenticator, config, identity, backing: () }) }
    }
}

impl<S, A, C> McpHttp<S, A, Stateful<C>> {
    /// The same as [`McpHttp::new`], keeping between requests what `stateful` says.
    pub fn keeping(service: S, authenticator: A, config: Config, stateful: Stateful<C>) -> Self {
        let identity = Arc::new(stateful.declared(config.identity.clone()));
        Self { service, endpoint: Arc::new(Endpoint { authenticator, config, identity, backing: stateful }) }
    }
}

impl<S: Clone, A, X> Clone for McpHttp<S, A, X> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), endpoint: Arc::clone(&self.endpoint) }
    }
}

impl<S, A, X> fmt::Debug for McpHttp<S, A, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttp").field("config", &self.endpoint.config).finish_non_exhaustive()
    }
}

impl<S, A, X, F, C, B> tower_service::Service<http::Request<B>> for McpHttp<S, A, X>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    A: Fn(&Parts) -> F + Send + Sync + 'static,
    X: Backing<C>,
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

impl<A, X> Endpoint<A, X> {
    async fn respond<S, F, C, B>(&self, service: S, parts: Parts, body: B) -> Response<BoxBody>
    where
        S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Send + 'static,
        S::Future: Send,
        A: Fn(&Parts) -> F,
        X: Backing<C>,
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
        if let Some(response) = self.without_body(&caller, &parts) {
            return response;
        }
        let accepts = match form(&parts) {
            Ok(accepts) => accepts,
            Err(refusal) => {
                let wrong_method = refusal.status == StatusCode::METHOD_NOT_ALLOWED;
                let mut response = refusal.into_response();
                if wrong_method {
                    let allowed = if self.identity.offers.sessions { "POST, GET, DELETE" } else { "POST" };
                    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
                }
                return response;
            }
        };
        let text = match self.read(&parts, body).await {
            Ok(text) => text,
            Err(refusal) => return refusal.into_response(),
        };
        let (id, method, params) = match self.parse(&text) {
            Ok(Incoming::Message(Message::Request { id, method, params })) => (id, method, params),
            Ok(Incoming::Message(Message::Notification { method, params })) => {
                return self.notified(&caller, &parts, &method, &params);
            }
            Ok(Incoming::Response { id, outcome }) => {
                let session = self.with_sessions(|stateful, sessions| {
                    session::needed(sessions, stateful, &caller, &parts.headers)
                });
                return match session.unwrap_or_else(|| Err(session::no_session())) {
                    Ok(session) => session::answered(&session, &id, outcome),
                    Err(refusal) => refusal.into_response(),
                };
            }
            Err(refused) => {
                let body = reply::encode_error(refused.id.as_ref(), &refused.error);
                return json_response(StatusCode::BAD_REQUEST, body);
            }
        };
        // A client that begins anew may still name its old session.
        let begins = method == "initialize";
        let declared = params.get("capabilities").filter(|_| begins).and_then(|c| c.as_object().cloned());
        let routing = headers::routing(&parts.headers);
        let routed = builtin::route(&self.identity, &id, &method, params, Some(&routing));
        let era = match &routed {
            Ok(Routed::Answered(era, ..)) => *era,
            Ok(Routed::Call(call)) => call.era,
            Err(_) => Era::Modern,
        };
        let session = match self.session(&caller, &parts, era, begins) {
            Ok(session) => session,
            Err(refusal) => return refusal.into_response(),
        };
        match routed {
            Err(error) => json_response(status(Era::Modern, &error), reply::encode_error(Some(&id), &error)),
            Ok(Routed::Answered(era, id, outcome)) => {
                let status = outcome.as_ref().map_or_else(|error| status(era, error), |_| StatusCode::OK);
                let response = one(accepts, status, reply::encode_value(&id, &outcome));
                let revision = outcome.ok().filter(|_| begins).and_then(|result| {
                    result.get("protocolVersion").and_then(|date| Revision::parse(date.as_str()?))
                });
                match (self.stateful().and_then(|s| Some((s, s.sessions.as_ref()?))), revision) {
                    (Some((stateful, sessions)), Some(revision)) => {
                        let declared = declared.unwrap_or_default();
                        session::begin(sessions, stateful, &caller, declared, revision, response)
                    }
                    _ => response,
                }
            }
            Ok(Routed::Call(call)) => {
                if let (true, builtin::Method::ToolsCall { name, arguments }) =
                    (era.is_modern(), &call.method)
                    && let Err(error) = self.config.param_headers.check(name, arguments, &parts.headers)
                {
                    return json_response(status(era, &error), reply::encode_error(Some(&id), &error));
                }
                self.run(service, caller, call, accepts, session).await
            }
        }
    }

    fn stateful<C>(&self) -> Option<&Stateful<C>>
    where
        X: Backing<C>,
    {
        self.backing.stateful()
    }

    fn with_sessions<C, T>(&self, f: impl FnOnce(&Stateful<C>, &crate::legacy::Sessions) -> T) -> Option<T>
    where
        X: Backing<C>,
    {
        let stateful = self.stateful()?;
        Some(f(stateful, stateful.sessions.as_ref()?))
    }

    /// The session of a legacy request. Modern requests and those that begin a session have none, whatever they
    /// name; others may have none.
    fn session<C>(
        &self,
        caller: &C,
        parts: &Parts,
        era: Era,
        begins: bool,
    ) -> Result<Option<Arc<Session>>, Refusal>
    where
        X: Backing<C>,
    {
        if era.is_modern() || begins {
            return Ok(None);
        }
        let named = |stateful: &Stateful<C>, sessions: &crate::legacy::Sessions| {
            session::named(sessions, stateful, caller, &parts.headers)
        };
        self.with_sessions(named).unwrap_or(Ok(None))
    }

    /// Answers `GET` and `DELETE`, where there are sessions. The modern era has neither.
    fn without_body<C>(&self, caller: &C, parts: &Parts) -> Option<Response<BoxBody>>
    where
        X: Backing<C>,
    {
        if is_modern(parts) {
            return None;
        }
        self.with_sessions(|stateful, sessions| match parts.method {
            Method::DELETE => Some(session::delete(sessions, stateful, caller, parts)),
            Method::GET => {
                let (identity, keep_alive) = (&self.identity, self.config.keep_alive);
                Some(session::get(sessions, stateful, caller, parts, identity, keep_alive))
            }
            _ => None,
        })?
    }

    fn parse(&self, text: &[u8]) -> Result<Incoming, crate::jsonrpc::ParseError> {
        let limits = Limits { bytes: self.config.body_limit, ..Limits::default() };
        if self.identity.offers.sessions {
            Incoming::parse(text, &limits)
        } else {
            Message::parse(text, &limits).map(Incoming::Message)
        }
    }

    /// Takes a notification. Without a session a cancel has nothing to reach: a modern client closes the response
    /// instead, and a legacy one has no session to find the call in.
    fn notified<C>(
        &self,
        caller: &C,
        parts: &Parts,
        method: &str,
        params: &serde_json::Map<String, serde_json::Value>,
    ) -> Response<BoxBody>
    where
        X: Backing<C>,
    {
        let era = if is_modern(parts) { Era::Modern } else { Era::Legacy(Revision::ASSUMED) };
        match self.session(caller, parts, era, false) {
            Ok(Some(session)) if method == "notifications/cancelled" => {
                if let Some(id) = params.get("requestId").and_then(crate::RequestId::from_value) {
                    session.cancel(&id);
                }
                empty_response(StatusCode::ACCEPTED)
            }
            Ok(_) => empty_response(StatusCode::ACCEPTED),
            Err(refusal) => refusal.into_response(),
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

    async fn run<S, C>(
        &self,
        service: S,
        caller: C,
        mut call: Call,
        accepts: Accepts,
        session: Option<Arc<Session>>,
    ) -> Response<BoxBody>
    where
        S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Send + 'static,
        S::Future: Send,
        X: Backing<C>,
        C: Send + 'static,
    {
        let (era, id) = (call.era, call.id.clone());
        let listens = matches!(call.method, builtin::Method::Listen(_));
        if listens && accepts == Accepts::Json {
            let message = "Accept must allow text/event-stream to listen";
            return Refusal::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message).into_response();
        }
        let stateful = self.stateful();
        let here = stateful.and_then(|stateful| stateful.answer(&caller, &mut call, session.as_deref()));
        let means = match here {
            Some(outcome) => Err(outcome),
            None => {
                let means = Means::of(&self.identity, stateful, &caller, &mut call, session.clone());
                means.map_err(Err)
            }
        };
        let means = match means {
            Ok(means) => means,
            Err(outcome) => return self.answer(accepts, era, &id, &outcome),
        };
        let owner = stateful.filter(|_| listens).map(|stateful| stateful.owner(&caller));
        let watched = match &call.method {
            builtin::Method::ResourcesSubscribe { uri } => session.clone().zip(Some(uri.clone())),
            _ => None,
        };
        let can_stream = accepts != Accepts::Json;
        let mut running = Running::start(service, caller, call, can_stream, means);
        let in_session = session.map(|session| InSession::new(&session, &id, &running));
        let guard = era.is_modern().then(|| CancelOnDrop::new(running.cancel.clone()));
        let first = loop {
            break tokio::select! {
                biased;
                Some(update) = next(&mut running.progress) => Some(Note::Message(running.notification(&update))),
                Some(note) = next(&mut running.notes) => match note {
                    Note::Pause if in_session.is_none() => continue,
                    note => Some(note),
                },
                joined = &mut running.task => {
                    if let Some(guard) = guard {
                        guard.disarm();
                    }
                    let mut outcome = settled(joined);
                    if let (Ok(Reply::Listening(filter)), Some(owner)) = (&outcome, &owner) {
                        return self.listen(&id, owner, filter.clone());
                    }
                    if let (Ok(_), Some((session, uri))) = (&outcome, watched) {
                        outcome = session.watch(uri).map(|()| Reply::Done);
                    }
                    return self.answer(accepts, era, &id, &outcome);
                }
                () = tokio::time::sleep(self.config.silence), if can_stream => None,
            };
        };
        if let Some(in_session) = in_session {
            let identity = Arc::clone(&self.identity);
            return in_session.stream(identity, era, running, first, self.config.keep_alive);
        }
        let first = match first {
            Some(Note::Message(message)) => sse::event(&message),
            // Something must leave at once, or a proxy still sees silence.
            Some(Note::Pause) | None => Bytes::from_static(b":\n\n"),
        };
        sse::response(sse::Stream {
            identity: Arc::clone(&self.identity),
            era,
            id,
            running: Some(running),
            first: Some(first),
            keep_alive: self.config.keep_alive,
            timer: Box::pin(tokio::time::sleep(self.config.keep_alive)),
            guard,
        })
    }

    /// A reply that is complete.
    fn answer(
        &self,
        accepts: Accepts,
        era: Era,
        id: &crate::RequestId,
        outcome: &Result<Reply, RpcError>,
    ) -> Response<BoxBody> {
        let status = outcome.as_ref().map_or_else(|error| status(era, error), |_| StatusCode::OK);
        one(accepts, status, reply::encode(&self.identity, era, id, outcome))
    }

    fn listen<C>(&self, id: &crate::RequestId, owner: &str, filter: crate::Filter) -> Response<BoxBody>
    where
        X: Backing<C>,
    {
        match self.stateful().and_then(|stateful: &Stateful<C>| {
            listen::open(stateful, owner, &self.identity, id, filter, self.config.keep_alive)
        }) {
            Some(response) => response,
            None => {
                let error = RpcError::internal("too many clients listen already; poll instead");
                json_response(StatusCode::OK, reply::encode_error(Some(id), &error))
            }
        }
    }
}

/// Whether a message without `_meta` is of the modern era, by its header.
fn is_modern(parts: &Parts) -> bool {
    headers::routing(&parts.headers).protocol_version == ladder::Field::One(crate::era::MODERN)
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
