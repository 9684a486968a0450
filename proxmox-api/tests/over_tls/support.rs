//! A TLS server that reads whole requests and answers with bytes as given, and certificates for it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proxmox_api::{ApiToken, Client, ClientBuilder, Endpoint, GuestKind, GuestRef, Timeouts, Trust};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, crypto::ring, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::SecretString;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

pub(crate) const TOKEN_ID: &str = "root@pam!full";
pub(crate) const SECRET: &str = "11111111-2222-3333-4444-555555555555";

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with a key, not necessarily its own.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("cluster")
    }

    /// Authorities of one name and different keys are different authorities.
    pub(crate) fn named(name: &str) -> Self {
        let params = Self::params(name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// The authority of this name that another process made.
    pub(crate) fn from_pem(name: &str, pem: &str, key: &str) -> Self {
        let key = KeyPair::from_pem(key).unwrap();
        Self { pem: pem.to_owned(), issuer: Issuer::new(Self::params(name), key) }
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// A certificate for these names and addresses.
    pub(crate) fn issue(&self, names: &[&str]) -> Identity {
        self.sign(params(names))
    }

    /// A certificate for 127.0.0.1 that ended long ago.
    pub(crate) fn issue_expired(&self) -> Identity {
        let mut params = params(&["127.0.0.1"]);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Identity { certificate, key }
    }
}

impl Identity {
    pub(crate) fn self_signed(names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { certificate: params(names).self_signed(&key).unwrap().der().clone(), key }
    }

    /// A server configuration that shows the certificate and signs with the key, even if they do not belong
    /// together.
    pub(crate) fn server(&self) -> ServerConfig {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        let shown = Arc::new(CertifiedKey::new(vec![self.certificate.clone()], key));
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shown(shown)))
    }
}

#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for Shown {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// `GET /api2/json/version HTTP/1.1`
    pub(crate) line: String,
    /// The header lines, as sent.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Which connection it came over, from 0.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Writes these bytes and waits for the next request.
    Keep(Vec<u8>),
    /// Writes these bytes and closes the connection properly.
    Close(Vec<u8>),
    /// Writes these bytes and cuts the TCP connection without a word of TLS.
    Cut(Vec<u8>),
    /// Writes these bytes and then nothing, while the client stays.
    Hang(Vec<u8>),
    /// Writes the first bytes, then the second so many times or until the client goes away.
    Flood(Vec<u8>, Vec<u8>, usize),
}

/// `HTTP/1.1 {status line}` with a JSON body.
pub(crate) fn http(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// `{"data": …}` with status 200.
pub(crate) fn data(data: &str) -> Answer {
    Answer::Keep(http("200 OK", &format!("{{\"data\":{data}}}")))
}

pub(crate) const VERSION: &str = r#"{"version":"9.2.11","release":"9.2","repoid":"x"}"#;
pub(crate) const UPID: &str = "UPID:pve1:00007CF2:00041584:6B0CE067:qmstart:102:root@pam!full:";

/// A server on a port of its own; stops with the runtime of its test.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers the n-th request, counted from 0, with what `answer` makes of it.
    pub(crate) async fn start(
        tls: ServerConfig,
        answer: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let answer = Arc::new(answer);
        let shared = server.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
                let (acceptor, answer, shared) = (acceptor.clone(), Arc::clone(&answer), shared.clone());
                tokio::spawn(async move { shared.serve(tcp, acceptor, connection, &*answer).await });
            }
        });
        server
    }

    /// The requests read so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The TCP connections taken so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn serve(
        &self,
        tcp: TcpStream,
        acceptor: TlsAcceptor,
        connection: usize,
        answer: &(dyn Fn(usize, &Seen) -> Answer + Send + Sync),
    ) {
        let Ok(mut stream) = acceptor.accept(tcp).await else { return };
        let mut buffer = Vec::new();
        while let Some(request) = read_request(&mut stream, &mut buffer, connection).await {
            let number = {
                let mut seen = self.seen.lock().unwrap();
                seen.push(request.clone());
                seen.len() - 1
            };
            let (bytes, after) = match answer(number, &request) {
                Answer::Keep(bytes) => (bytes, None),
                Answer::Close(bytes) => (bytes, Some(true)),
                Answer::Cut(bytes) => (bytes, Some(false)),
                Answer::Flood(head, piece, times) => {
                    let mut open = stream.write_all(&head).await.is_ok();
                    for _ in 0..times {
                        open = open && stream.write_all(&piece).await.is_ok();
                    }
                    return;
                }
                Answer::Hang(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.flush().await;
                    let _ = stream.read_to_end(&mut buffer).await;
                    return;
                }
            };
            // The client may be gone already; what it made of that is what the test looks at.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
            match after {
                None => {}
                Some(true) => {
                    let _ = stream.shutdown().await;
                    return;
                }
                Some(false) => {
                    let _ = stream.get_mut().0.shutdown().await;
                    return;
                }
            }
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("https://{}", self.address)).unwrap()
    }

    /// A builder for a client of this server, without trust.
    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder()
            .endpoint(self.endpoint())
            .token(ApiToken::new(TOKEN_ID, SecretString::from(SECRET)).unwrap())
    }
}

async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Seen> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..end + 4).collect()).unwrap();
    let mut lines = head.trim_end().split("\r\n").map(str::to_owned);
    let mut seen = Seen { line: lines.next()?, headers: lines.collect(), body: Vec::new(), connection };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = buffer.drain(..length).collect();
    Some(seen)
}

/// A server whose certificate is in order, and a client that trusts its authority.
pub(crate) async fn pair(
    answer: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
) -> (Server, Client) {
    pair_with(Timeouts::default(), answer).await
}

pub(crate) async fn pair_with(
    timeouts: Timeouts,
    answer: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
) -> (Server, Client) {
    let authority = Authority::new();
    let server = Server::start(authority.issue(&["127.0.0.1"]).server(), answer).await;
    let client = server.builder().trust(Trust::Ca(authority.pem)).timeouts(timeouts).build().unwrap();
    (server, client)
}

/// Waits so short that a server which never answers is given up soon.
pub(crate) fn short() -> Timeouts {
    let moment = Duration::from_millis(400);
    Timeouts { connect: moment, handshake: moment, head: moment, idle: moment, read: moment, write: moment }
}

pub(crate) fn guest() -> GuestRef {
    GuestRef { node: "pve1".parse().unwrap(), kind: GuestKind::Qemu, vmid: "102".parse().unwrap() }
}
