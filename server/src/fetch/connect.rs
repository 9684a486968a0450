//! One request on one connection to one vetted address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use transfers::policy::Scheme;
use url::Url;

use super::FetchError;

/// Longest wait for a TCP connection to one address.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait for the TLS handshake.
const TLS_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait from the request to the end of the answer's head, interim answers included.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// Largest head, in bytes, and most header lines.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;

/// Asks one of these addresses for the URL. The host's name is what TLS verifies and what `Host` says; the address is what is
/// dialled.
pub(super) async fn get(
    url: &Url,
    scheme: Scheme,
    addresses: &[SocketAddr],
    tls: &Arc<rustls::ClientConfig>,
) -> Result<Response<Incoming>, FetchError> {
    let tcp = dial(addresses).await?;
    match scheme {
        Scheme::Http => request(url, tcp).await,
        Scheme::Https => {
            let host = url.host_str().ok_or(FetchError::Tls)?;
            let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
            let name = ServerName::try_from(host.to_owned()).map_err(|_| FetchError::Tls)?;
            let shaking = TlsConnector::from(tls.clone()).connect(name, tcp);
            let stream = timeout(TLS_DEADLINE, shaking)
                .await
                .map_err(|_| FetchError::Timeout)?
                .map_err(|_| FetchError::Tls)?;
            request(url, stream).await
        }
    }
}

async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, FetchError> {
    let mut outcome = FetchError::Connect;
    for address in addresses {
        match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(_)) => outcome = FetchError::Connect,
            Err(_) => outcome = FetchError::Timeout,
        }
    }
    Err(outcome)
}

async fn request<S>(url: &Url, stream: S) -> Result<Response<Incoming>, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS).http09_responses(false);
    let handshake = builder.handshake::<_, Empty<Bytes>>(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|_| FetchError::Protocol)?;
    // Ends with the body, or when the body is dropped.
    tokio::spawn(async move {
        // Whatever went wrong shows at the body.
        let _ended = connection.await;
    });
    let request = head(url).ok_or(FetchError::Url(transfers::policy::UrlRefusal::Malformed))?;
    let response = timeout(HEAD_DEADLINE, sender.send_request(request))
        .await
        .map_err(|_| FetchError::Timeout)?
        .map_err(|_| FetchError::Protocol)?;
    // An upgrade was not asked for.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(FetchError::Protocol);
    }
    Ok(response)
}

fn head(url: &Url) -> Option<Request<Empty<Bytes>>> {
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str()?),
        None => url.host_str()?.to_owned(),
    };
    let mut request = Request::builder().uri(target).body(Empty::new()).ok()?;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&host).ok()?);
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("proxward/", env!("CARGO_PKG_VERSION"))));
    Some(request)
}
