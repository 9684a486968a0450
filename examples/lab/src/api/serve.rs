//! The HTTPS listener and the way of a request through it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::api::reply::{self, Answer, Refusal};
use crate::api::request::{self, Parameters};
use crate::api::upload::Uploaded;
use crate::api::{check, handlers, permission, quorum, route, upload};
use crate::cluster::Cluster;
use crate::facts;
use crate::fault::Action;
use crate::recorded::Recorded;

/// PVE closes a connection that idles this long.
const IDLE: Duration = Duration::from_secs(5);
/// PVE serves at most this many requests on a connection.
const REQUESTS_PER_CONNECTION: u32 = 100;
/// The largest body of a request.
const MAX_BODY: usize = 512 * 1024;
/// The most header lines of a request.
const MAX_HEADERS: usize = 64;

/// Accepts connections until the lab is dropped.
pub(crate) async fn run(
    cluster: Arc<Cluster>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    mut shutdown: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            _ = shutdown.wait_for(|down| *down) => return,
        };
        let (cluster, acceptor, mut shutdown) = (cluster.clone(), acceptor.clone(), shutdown.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(cluster, acceptor, stream) => {}
                _ = shutdown.wait_for(|down| *down) => {}
            }
        });
    }
}

async fn connection(cluster: Arc<Cluster>, acceptor: TlsAcceptor, stream: TcpStream) {
    // Without this every small answer on a kept connection waits for an acknowledgement.
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    match stream.peek(&mut first).await {
        // The first byte of a TLS handshake record.
        Ok(1) if first == [0x16] => {
            if let Ok(stream) = acceptor.accept(stream).await {
                // A request that has arrived is carried out even when its client leaves, as by PVE.
                let spawned = move |request, last| {
                    let handled = tokio::spawn(handle(cluster.clone(), request, last));
                    async move { handled.await.unwrap_or(Err(Cut)) }
                };
                serve(stream, spawned).await;
            }
        }
        Ok(1) => serve(stream, |request, _| std::future::ready(Ok(to_https(&request)))).await,
        _ => {}
    }
}

async fn serve<S, F>(stream: S, handler: impl Fn(Request<Incoming>, bool) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Response<AnswerBody>, Cut>>,
{
    let served = AtomicU32::new(0);
    let service = service_fn(|request| {
        let last = served.fetch_add(1, Ordering::Relaxed) + 1 >= REQUESTS_PER_CONNECTION;
        handler(request, last)
    });
    // Whatever ends a connection (a client that leaves, a fault that cuts it) concerns only the client.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The error that makes hyper cut a connection without an answer.
#[derive(Debug)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut by a fault")
    }
}

impl std::error::Error for Cut {}

type AnswerBody = Either<Full<Bytes>, HalfBody>;

/// Plain HTTP on the port of HTTPS: 301 for a read, 308 for the rest.
fn to_https(request: &Request<Incoming>) -> Response<AnswerBody> {
    let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    let (code, reason) = if request.method() == Method::GET {
        (301, "Moved Permanently")
    } else {
        (308, "Permanent Redirect")
    };
    let mut response = reply::respond(code, reason, String::new());
    if let Ok(location) = HeaderValue::from_str(&format!("https://{host}{}", request.uri())) {
        response.headers_mut().insert("location", location);
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.map(Either::Left)
}

async fn handle(
    cluster: Arc<Cluster>,
    request: Request<Incoming>,
    last: bool,
) -> Result<Response<AnswerBody>, Cut> {
    let (parts, body) = request.into_parts();
    let method = parts.method.as_str().to_owned();
    let Some(path) = request::api_path(parts.uri.path()) else {
        let refusal = Refusal::Bare(404, format!("File '{}' not found", parts.uri.path()));
        return Ok(reply::refuse(&refusal).map(Either::Left));
    };
    let mut uploaded = None;
    let query = request::form(parts.uri.query().unwrap_or_default());
    let parsed = match transport_refusal(&parts) {
        Some(refusal) => Err(refusal),
        None => match upload::boundary(&parts.headers).filter(|_| path.ends_with("/upload")) {
            Some(boundary) => match upload::read(body, &boundary).await {
                Ok(read) => read.map(|(parameters, file)| {
                    uploaded = file;
                    parameters
                }),
                Err(upload::Gone) => return Err(Cut),
            },
            None => read_body(&parts, body).await?,
        }
        .map(|mut parameters| {
            // The query wins over the body.
            parameters.extend(query.clone());
            parameters
        }),
    };
    let token = authenticate(&cluster, &parts.headers);
    cluster.record(Recorded {
        method: method.clone(),
        path: path.clone(),
        params: parsed
            .as_ref()
            .unwrap_or(&query)
            .iter()
            .map(|(name, value)| (name.clone(), value.display()))
            .collect(),
        token: token.as_ref().ok().cloned(),
        at: SystemTime::now(),
    });
    let fault = cluster.faults.strike(&method, &path);
    if let Some(fault) = &fault {
        match fault.action() {
            Action::Delay(pause) => {
                fault.strike();
                tokio::time::sleep(*pause).await;
            }
            Action::Status { code, reason, body } => {
                fault.strike();
                return Ok(reply::respond(*code, reason, body.clone()).map(Either::Left));
            }
            Action::DropBefore => {
                fault.strike();
                return Err(Cut);
            }
            Action::HoldBefore => {
                fault.strike();
                fault.wait_for_release().await;
            }
            Action::DropAfter | Action::Truncate | Action::Raw(_) | Action::HoldAfter => {}
        }
    }
    let outcome = match (token, parsed) {
        (_, Err(refusal)) => Err(refusal),
        (Err(reason), _) => {
            tokio::time::sleep(cluster.auth_delay).await;
            Err(Refusal::Bare(401, reason.to_owned()))
        }
        (Ok(token), Ok(parameters)) => execute(&cluster, &method, &path, &token, parameters, uploaded),
    };
    let mut response = match &outcome {
        Ok((value, total)) => reply::data(value.clone(), *total),
        Err(refusal) => reply::refuse(refusal),
    };
    if last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let Some(fault) = fault else { return Ok(response.map(Either::Left)) };
    match fault.action() {
        Action::DropAfter => {
            fault.strike();
            Err(Cut)
        }
        Action::Raw(bytes) => {
            fault.strike();
            let mut response = reply::respond(200, "OK", String::new());
            *response.body_mut() = Full::new(bytes.clone());
            Ok(response.map(Either::Left))
        }
        Action::Truncate => {
            fault.strike();
            let whole = match response.body_mut().frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                _ => Bytes::new(),
            };
            Ok(response.map(|_| Either::Right(HalfBody::new(whole))))
        }
        Action::HoldAfter => {
            fault.strike();
            fault.wait_for_release().await;
            Ok(response.map(Either::Left))
        }
        Action::Delay(_) | Action::Status { .. } | Action::DropBefore | Action::HoldBefore => {
            Ok(response.map(Either::Left))
        }
    }
}

/// What the HTTP server refuses before anybody looks at the request.
fn transport_refusal(parts: &http::request::Parts) -> Option<Refusal> {
    let bare = |text: String| Some(Refusal::Bare(501, text));
    let method = parts.method.as_str();
    if !matches!(method, "GET" | "POST" | "PUT" | "DELETE") {
        return bare(format!("method '{method}' not available"));
    }
    if let Some(encoding) = parts.headers.get(TRANSFER_ENCODING) {
        return match encoding.to_str() {
            Ok(chunked) if chunked.eq_ignore_ascii_case("chunked") => {
                bare("chunked transfer encoding not supported".to_owned())
            }
            other => bare(format!("Unknown transfer encoding '{}'", other.unwrap_or_default())),
        };
    }
    let length =
        parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match length.unwrap_or(0) {
        0 => None,
        _ if matches!(method, "GET" | "DELETE") => bare(format!("Unexpected content for method '{method}'")),
        too_long if too_long > MAX_BODY && upload::boundary(&parts.headers).is_none() => {
            bare("for data too large".to_owned())
        }
        _ => None,
    }
}

async fn read_body(parts: &http::request::Parts, body: Incoming) -> Result<Result<Parameters, Refusal>, Cut> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(request::body(&parts.headers, &collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => {
            Ok(Err(Refusal::Bare(501, "for data too large".to_owned())))
        }
        // The client left before its body was whole: there is no request.
        Err(_) => Err(Cut),
    }
}

/// The token of a request, or the reason phrase of the 401.
fn authenticate(cluster: &Cluster, headers: &http::HeaderMap) -> Result<String, &'static str> {
    let Some((id, secret)) = request::token(headers) else { return Err("No ticket") };
    let known = cluster.state().acl.authenticate(&id, &secret);
    if known { Ok(id) } else { Err("Authentication failed!") }
}

/// Everything from the route to the effect, in PVE's order: route, path parameters, permission, node, schema,
/// endpoint.
fn execute(
    cluster: &Arc<Cluster>,
    method: &str,
    path: &str,
    token: &str,
    parameters: Parameters,
    upload: Option<Uploaded>,
) -> Result<(serde_json::Value, Option<usize>), Refusal> {
    let unknown = || Refusal::NotImplemented(format!("Method '{method} {path}' not implemented"));
    let route = route::find(method, path).ok_or_else(unknown)?;
    let endpoint = facts::endpoint(method, route.template).ok_or_else(unknown)?;
    let parameters = check::merge(parameters, &route.captured)?;
    let mut state = cluster.state();
    permission::check(&state, token, &endpoint.permissions, &parameters)?;
    if endpoint.proxyto.as_deref() == Some("node")
        && let Some(node) = route.captured.get("node")
        && crate::api::format::named("pve-node", node).is_ok()
    {
        let Some(known) = state.node(node) else {
            let cause = format!("failed to get address info for: {node}: Name or service not known");
            return Err(Refusal::die(format!("hostname lookup '{node}' failed - {cause}")));
        };
        if !known.online {
            return Err(Refusal::Bare(595, known.offline_reason.clone()));
        }
    }
    let checked = check::parameters(endpoint, &parameters)?;
    let mut call = handlers::Call { state: &mut state, token, parameters: &checked, cluster, upload };
    if method != "GET"
        && !call.state.is_quorate()
        && let Some(refusal) = quorum::refusal(route.template, &checked)
    {
        return Err(refusal);
    }
    match handlers::dispatch(method, route.template, &mut call).ok_or_else(unknown)?? {
        Answer::Data(value) => Ok((value, None)),
        Answer::List(value, total) => Ok((value, Some(total))),
        Answer::Changed => {
            cluster.took_effect(method, path);
            Ok((serde_json::Value::Null, None))
        }
        Answer::ChangedTo(value) => {
            cluster.took_effect(method, path);
            Ok((value, None))
        }
        Answer::Worker(spawn) => {
            cluster.took_effect(method, path);
            Ok((cluster.spawn(&mut state, spawn).into(), None))
        }
    }
}

/// A body that promises all its bytes, sends half of them and fails.
#[derive(Debug)]
pub(crate) struct HalfBody {
    first: Option<Bytes>,
    promised: u64,
}

impl HalfBody {
    fn new(whole: Bytes) -> HalfBody {
        let half = whole.slice(..whole.len() / 2);
        // At least one byte is promised and never sent.
        HalfBody { first: Some(half), promised: (whole.len() as u64).max(1) }
    }
}

impl Body for HalfBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.first.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.promised)
    }
}
