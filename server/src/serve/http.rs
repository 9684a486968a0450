//! The listener: TCP, TLS, HTTP/1.1.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::front::Front;
use super::heads::{self, Heads};
use super::start::StartError;
use crate::cli::ServeArgs;
use crate::config;
use crate::limiter::network;

/// Connections served at once.
const MAX_CONNECTIONS: usize = 1024;
/// Connections of one peer at once, so that no single one can take them all. A proxy of `policy.trusted_proxies` speaks for many.
const MAX_CONNECTIONS_OF_PEER: usize = 256;
/// How long a client may take for its TLS handshake, and again for each request's head.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// Pause after the system refused a connection, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
pub(super) struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Binds what the flags ask for.
    pub(super) async fn bind(args: &ServeArgs) -> Result<Self, StartError> {
        Self::at(args.listen(), args).await
    }

    /// Binds `address`, with TLS where the flags name a certificate.
    pub(super) async fn at(address: SocketAddr, args: &ServeArgs) -> Result<Self, StartError> {
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => {
                let config = config::tls::server_config(cert, key).map_err(StartError::Configuration)?;
                Some(TlsAcceptor::from(Arc::new(config)))
            }
            _ => None,
        };
        let failed = |problem| StartError::Listen { address, problem };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Self { tcp, address, tls })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Accepts until told to stop, then lets open connections finish the request they are at.
    pub(super) async fn serve(self, front: Front, mut stopped: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let peers = Peers::default();
        let (closing, closed) = watch::channel(false);
        loop {
            let stop = async {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let accepted = tokio::select! {
                () = stop => break,
                accepted = self.tcp.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Over the limit the connection is closed at once: queueing it would only hide that the server is full.
            let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
            let Some(place) = peers.enter(peer.ip(), front.trusts_proxy(peer.ip())) else { continue };
            let connection =
                Connection { front: front.clone(), peer, tls: self.tls.clone(), closing: closed.clone() };
            tokio::spawn(async move {
                let (_slot, _place) = (slot, place);
                connection.serve(stream).await;
            });
        }
        drop(self.tcp);
        closing.send_replace(true);
        let all = u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX);
        // Long uploads are cut off by the shutdown itself; a failure here means that the semaphore was closed, which it is not.
        let _ = tokio::time::timeout(super::SHUTDOWN_WAIT, slots.acquire_many(all)).await;
    }
}

/// How many connections each peer has.
#[derive(Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection's place among its peer's.
struct Place {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    /// A place for one more connection; `None` where the peer has its share.
    fn enter(&self, peer: IpAddr, unbounded: bool) -> Option<Place> {
        let peer = network(peer);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(peer).or_default();
        if *count >= MAX_CONNECTIONS_OF_PEER && !unbounded {
            return None;
        }
        *count += 1;
        Some(Place { peers: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

struct Connection {
    front: Front,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    closing: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // A streamed reply must not wait for the peer's delayed acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        match self.tls.clone() {
            None => self.http(stream).await,
            Some(acceptor) => {
                let mut closing = self.closing.clone();
                let handshake = tokio::time::timeout(HEAD_DEADLINE, acceptor.accept(stream));
                let shaken = tokio::select! {
                    shaken = handshake => shaken,
                    // Nothing was asked yet, so there is nothing to finish.
                    _ = closing.wait_for(|closing| *closing) => return,
                };
                match shaken {
                    Ok(Ok(stream)) => self.http(stream).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            }
        }
    }

    async fn http<S>(mut self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (front, peer) = (self.front.clone(), self.peer);
        let endpoint = front.endpoint(peer);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let (front, endpoint) = (front.clone(), endpoint.clone());
            async move {
                let last = heads::is_chunked(request.headers());
                let mut response = front.answer(peer, endpoint, request).await;
                if last {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            // Without a timer the deadline on request heads would not exist.
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_DEADLINE)
            // Answers that must not be told apart must not differ by a second either.
            .auto_date_header(false)
            .max_buf_size(heads::LARGEST_HEAD)
            .serve_connection(TokioIo::new(Heads::new(stream)), service);
        let mut connection = std::pin::pin!(connection);
        let closing = async {
            // The sender outlives every connection; if it did not, the server would be gone as well.
            let _ = self.closing.wait_for(|closing| *closing).await;
        };
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = closing => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            // No request data: hyper's errors name the fault only.
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
