//! Asking a server over HTTP, as an MCP client with a person's token.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::uri::{Scheme, Uri};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Failure;
use crate::config::Problem;
use crate::files::{self, Privacy};

/// The revision of MCP that is spoken.
const REVISION: &str = "2026-07-28";
/// Largest answer read, in bytes; the server's own results stay below 512 KiB.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// How long connecting, and answering, may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const ANSWER_DEADLINE: Duration = Duration::from_secs(90);

/// A server somewhere else.
pub(super) struct Remote {
    host: String,
    port: u16,
    authority: String,
    path: String,
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Remote {
    /// For `url`: the server's address, with or without its `/mcp`.
    pub(super) fn new(url: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let problem = |text: String| Failure::Configuration(vec![Problem::flag(text)]);
        let expected = || problem(format!("--url {url}: expected http:// or https://, a host and a port"));
        let uri: Uri = url.parse().map_err(|_| expected())?;
        let authority = uri.authority().ok_or_else(expected)?.clone();
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(expected());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(expected()),
        };
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !secure && !loopback {
            return Err(problem(format!(
                "--url {url}: the token would cross the network in clear; use https://, or run this on the server's host"
            )));
        }
        let tls = if secure { Some(Arc::new(tls_config(ca_file)?)) } else { None };
        let path = match uri.path() {
            "" | "/" => "/mcp".to_owned(),
            path => path.to_owned(),
        };
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Self { host, port, authority: authority.to_string(), path, tls })
    }

    /// Calls one tool.
    pub(super) async fn call(
        &self,
        token: &str,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Failure> {
        let request = self.request(token, tool, arguments)?;
        let (status, body) = tokio::time::timeout(ANSWER_DEADLINE, self.send(request))
            .await
            .unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
            .map_err(|why| {
                Failure::Unreachable(format!("the server at {} could not be asked: {why}", self.authority))
            })?;
        result_of(status, &body)
    }

    fn request(
        &self,
        token: &str,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Request<Full<bytes::Bytes>>, Failure> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": REVISION,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "proxward change", "version": env!("CARGO_PKG_VERSION")},
            },
        }});
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            Failure::Configuration(vec![Problem::flag("the token holds characters that no token has")])
        })?;
        bearer.set_sensitive(true);
        Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(Full::new(body.to_string().into()))
            .map_err(|error| Failure::Configuration(vec![Problem::flag(format!("--url: {error}"))]))
    }

    async fn send(&self, request: Request<Full<bytes::Bytes>>) -> Result<(u16, Vec<u8>), String> {
        let connecting = async {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((self.host.as_str(), self.port))
                .await
                .map_err(|error| error.to_string())?
                .collect();
            let tcp = TcpStream::connect(addresses.as_slice()).await.map_err(|error| error.to_string())?;
            let Some(tls) = &self.tls else { return Ok::<_, String>(Stream::Plain(tcp)) };
            let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
            let stream = TlsConnector::from(tls.clone())
                .connect(name, tcp)
                .await
                .map_err(|error| error.to_string())?;
            Ok(Stream::Tls(Box::new(stream)))
        };
        let stream = tokio::time::timeout(CONNECT_DEADLINE, connecting)
            .await
            .map_err(|_| "connecting took too long".to_owned())??;
        match stream {
            Stream::Plain(stream) => exchange(stream, request).await,
            Stream::Tls(stream) => exchange(*stream, request).await,
        }
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

async fn exchange<S>(stream: S, request: Request<Full<bytes::Bytes>>) -> Result<(u16, Vec<u8>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| error.to_string())?
        .to_bytes()
        .to_vec();
    driver.abort();
    Ok((status, body))
}

fn tls_config(ca_file: Option<&Path>) -> Result<rustls::ClientConfig, Failure> {
    let problem = |text: String| Failure::Configuration(vec![Problem::flag(text)]);
    let mut roots = rustls::RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let pem = files::read(path, Privacy::Public, 1024 * 1024)
                .map_err(|error| problem(error.to_string()))?;
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let expected = || problem(format!("--ca-file {}: expected certificates in PEM", path.display()));
            for certificate in certificates.map_err(|_| expected())? {
                roots.add(certificate).map_err(|_| expected())?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(problem("no certificate authority to trust: name one with --ca-file".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(format!("the TLS versions cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads an answer: one JSON-RPC response, alone or as the last message of an event stream.
fn result_of(status: u16, body: &[u8]) -> Result<Value, Failure> {
    let text = String::from_utf8_lossy(body);
    let message: Option<Value> = serde_json::from_str(&text).ok().or_else(|| {
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok())
            .rfind(|message: &Value| message["id"] == 1)
    });
    let nonsense = || Failure::Unreachable(format!("the server's answer (HTTP {status}) is not MCP's"));
    let message = message.ok_or_else(nonsense)?;
    let refused = |code: &Value, message: &Value| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Err(Failure::Refused { code: text(code), message: text(message) })
    };
    if let Some(code) = message["error"].as_str() {
        return refused(&code.into(), &message["message"]);
    }
    if message["error"].is_object() {
        return refused(&message["error"]["code"], &message["error"]["message"]);
    }
    let result = &message["result"];
    if result["isError"] == true {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let problem: Value =
            serde_json::from_str(text).unwrap_or_else(|_| json!({"code": "failed", "message": text}));
        return refused(&problem["code"], &problem["message"]);
    }
    match &result["structuredContent"] {
        Value::Object(_) => Ok(result["structuredContent"].clone()),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_sent_in_clear_across_a_network() {
        for url in [
            "http://gate.example:30030",
            "http://192.0.2.7",
            "ftp://localhost",
            "localhost:30030",
            "https://a:b@h",
        ] {
            assert!(Remote::new(url, None).is_err(), "{url}");
        }
        for url in ["http://127.0.0.1:30030", "http://localhost:1/mcp", "http://[::1]:30030/"] {
            let remote = Remote::new(url, None).map_err(|_| url).unwrap();
            assert_eq!(remote.path, "/mcp");
        }
    }

    #[test]
    fn refusals_keep_their_code_whatever_their_form() {
        for (status, body, code) in [
            (401, r#"{"error":"invalid_token","message":"m"}"#, "invalid_token"),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"text":"{\"code\":\"expired\",\"message\":\"m\"}"}]}}"#,
                "expired",
            ),
            (200, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}"#, "-32602"),
        ] {
            match result_of(status, body.as_bytes()) {
                Err(Failure::Refused { code: found, message }) => {
                    assert_eq!((found.as_str(), message.as_str()), (code, "m"))
                }
                other => panic!("{body}: {other:?}"),
            }
        }
        let streamed = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"structuredContent\":{\"a\":1}}}\n\n";
        assert_eq!(result_of(200, streamed.as_bytes()).unwrap(), json!({"a": 1}));
        assert!(matches!(result_of(502, b"<html>"), Err(Failure::Unreachable(_))));
    }
}
