//! `GET /metrics` on a listener of its own, so that it can never be reached through the public one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::app::App;
use crate::serve::StartError;

/// Scrapers are few.
const MAX_CONNECTIONS: usize = 16;
/// Longest a scraper may take for a request's head, and for the whole of one scrape.
const PATIENCE: Duration = Duration::from_secs(10);
/// The content type of the text format that [`super::Metrics::render`] writes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A bound socket.
pub(crate) struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address`.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, StartError> {
        let failed = |problem| StartError::Listen { address, problem };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Self { tcp, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the handle is aborted.
    pub(crate) fn serve(self, app: Arc<App>) -> AbortHandle {
        tokio::spawn(async move {
            let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            loop {
                let stream = match self.tcp.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection for metrics could not be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
                let app = app.clone();
                tokio::spawn(async move {
                    let _slot = slot;
                    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                        let reply = answer(&app, &request);
                        async move { Ok::<_, Infallible>(reply) }
                    });
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(PATIENCE)
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), service);
                    if let Ok(Err(error)) = tokio::time::timeout(PATIENCE * 2, connection).await {
                        tracing::debug!(%error, "a scrape ended early");
                    }
                });
            }
        })
        .abort_handle()
    }
}

fn answer<B>(app: &App, request: &Request<B>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "only /metrics is served here\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "read it with GET\n");
        reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return reply;
    }
    let mut reply = Response::new(Full::new(Bytes::from(app.metrics.render(app))));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
    reply
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *reply.status_mut() = status;
    reply
}
