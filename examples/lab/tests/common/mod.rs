//! A plain HTTPS client for the tests: one request, what came back.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod exchange;
pub(crate) mod replay;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use lab::LabCluster;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio_rustls::TlsConnector;

/// What a request came back with.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) text: String,
    pub(crate) closes: bool,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub(crate) fn data(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["data"].clone()
    }
}

pub(crate) async fn connect<B>(cluster: &LabCluster) -> SendRequest<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cluster.ca_pem().as_bytes()).unwrap()).unwrap();
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(cluster.address()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender
}

pub(crate) async fn read(response: http::Response<Incoming>) -> Result<Got, hyper::Error> {
    let status = response.status();
    let reason = match response.extensions().get::<ReasonPhrase>() {
        Some(phrase) => String::from_utf8(phrase.as_bytes().to_vec()).unwrap(),
        None => status.canonical_reason().unwrap_or_default().to_owned(),
    };
    let closes = response.headers().get("connection").is_some_and(|value| value == "close");
    let text = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Got { status: status.as_u16(), reason, text, closes })
}

/// One request on a connection of its own. The body is sent as a form unless it starts with a brace.
pub(crate) async fn send(
    cluster: &LabCluster,
    authorization: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Got, hyper::Error> {
    let mut sender = connect(cluster).await;
    let mut request = http::Request::builder().method(method).uri(format!("/api2/json{path}"));
    request = request.header("host", cluster.address().to_string());
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    if !body.is_empty() {
        let json = body.starts_with('{');
        let kind = if json { "application/json" } else { "application/x-www-form-urlencoded" };
        request = request.header("content-type", kind);
    }
    let body = Full::new(Bytes::from(body.to_owned()));
    read(sender.send_request(request.body(body).unwrap()).await?).await
}

pub(crate) fn authorization(cluster: &LabCluster, token: &str) -> String {
    format!("PVEAPIToken={token}={}", cluster.secret_of(token).unwrap())
}

/// As the token with all rights.
pub(crate) async fn call(cluster: &LabCluster, method: &str, path: &str, body: &str) -> Got {
    call_as(cluster, cluster.token_id(), method, path, body).await
}

pub(crate) async fn call_as(cluster: &LabCluster, token: &str, method: &str, path: &str, body: &str) -> Got {
    send(cluster, Some(&authorization(cluster, token)), method, path, body).await.unwrap()
}

/// Follows a task to its end and returns its exit status.
pub(crate) async fn exit_of(cluster: &LabCluster, upid: &str) -> String {
    cluster.idle().await;
    let node = upid.split(':').nth(1).unwrap();
    let got = call(cluster, "GET", &format!("/nodes/{node}/tasks/{upid}/status"), "").await;
    got.data()["exitstatus"].as_str().unwrap().to_owned()
}

/// A file of the shared recordings, or `None` where they are absent.
pub(crate) fn shared(name: &str) -> Option<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(_) => {
            println!("not applicable: the recordings ({name}) are not here");
            None
        }
    }
}
