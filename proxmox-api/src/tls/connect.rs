//! Making a connection: where to dial, how long to try.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Authority};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::error::BoxError;

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Dials TCP, at a fixed address for the authorities that have one. The name in the URL is what TLS verifies either
/// way, because the rewrite happens below the TLS layer.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    tcp: HttpConnector,
    fixed: Arc<[(Authority, SocketAddr)]>,
}

impl Dial {
    pub(crate) fn new(timeout: Duration, fixed: Vec<(Authority, SocketAddr)>) -> Self {
        let mut tcp = HttpConnector::new();
        // The URLs are https, which this connector would refuse; TLS comes on top of it.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_connect_timeout(Some(timeout));
        Self { tcp, fixed: fixed.into() }
    }

    fn target(&self, uri: Uri) -> Result<Uri, http::Error> {
        let fixed = self.fixed.iter().find(|(authority, _)| uri.authority() == Some(authority));
        match fixed {
            Some((_, address)) => {
                Uri::builder().scheme("https").authority(address.to_string()).path_and_query("/").build()
            }
            None => Ok(uri),
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self.target(uri) {
            Ok(uri) => {
                let connecting = self.tcp.call(uri);
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }
            Err(error) => Box::pin(async move { Err(error.into()) }),
        }
    }
}

/// TCP and TLS under one deadline. What fails in here failed before a byte of the request was written, which is
/// what lets a mutation go on to the next endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<Dial>,
    deadline: Duration,
}

impl Connector {
    pub(crate) fn new(config: ClientConfig, dial: Dial, deadline: Duration) -> Self {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .wrap_connector(dial);
        Self { https, deadline }
    }
}

impl Service<Uri> for Connector {
    type Response = <HttpsConnector<Dial> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.https.call(uri);
        let deadline = self.deadline;
        Box::pin(async move {
            tokio::time::timeout(deadline, connecting).await.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no TLS session within {deadline:?}"))
                    .into())
            })
        })
    }
}
