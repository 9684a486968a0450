//! Getting a file from the web on a caller's behalf: one look-up, a vetted address, every redirect vetted anew.
//!
//! This is a client of its own, apart from the one that talks to clusters: it shares no pool, knows no credentials, follows no
//! proxy variables, keeps no cookies, and has no switch that skips a check.

mod connect;
mod slots;

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, LOCATION};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::timeout;
use transfers::policy::{self, AddressRefusal, Host, Parts, Rules, Scheme, UrlRefusal};
use url::Url;

pub use slots::{Busy, FetchLimits, FetchSlot, FetchSlots};

/// Longest wait for a name.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(5);
/// Most addresses of a name that are looked at.
const MAX_ADDRESSES: usize = 16;

/// How names become addresses.
pub trait Lookup: Send + Sync {
    /// Every address of a name, by one question.
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a>;
}

/// A look-up in flight.
pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// The system's own resolver.
#[derive(Debug, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Why nothing was fetched. The texts are coarse on purpose and name neither URL nor answer: they reach whoever asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The URL itself.
    #[error("{0}")]
    Url(UrlRefusal),
    /// The address behind it.
    #[error("{0}")]
    Address(AddressRefusal),
    /// No such name, or no answer.
    #[error("the host's name could not be looked up")]
    Lookup,
    /// No connection.
    #[error("no connection to the host")]
    Connect,
    /// The certificate is not one that the system trusts for this name, or there is no TLS.
    #[error("the host's TLS certificate is not valid for it, or it speaks no TLS")]
    Tls,
    /// Not HTTP, or none within the limits.
    #[error("the host's answer is not HTTP within this server's limits")]
    Protocol,
    /// Another answer than 200.
    #[error("the host answered with status {0}")]
    Status(u16),
    /// A content encoding nobody asked for.
    #[error("the host sent encoded content although the file itself was asked for")]
    Encoded,
    /// Declared larger than the cap.
    #[error("the file has {0} bytes, more than the {1} that may be fetched")]
    TooLarge(u64, u64),
    /// No answer in time.
    #[error("the host did not answer in time")]
    Timeout,
}

impl FetchError {
    /// A stable word.
    pub fn code(&self) -> &'static str {
        match self {
            // One word for both: whether a name means this machine or an address is private is nobody's business.
            Self::Url(UrlRefusal::LocalName) | Self::Address(_) => "fetch_policy",
            Self::Url(_) => "fetch_url_refused",
            Self::Lookup => "fetch_lookup_failed",
            Self::Connect => "fetch_connect_failed",
            Self::Tls => "fetch_tls_failed",
            Self::Protocol => "fetch_protocol",
            Self::Status(_) => "fetch_status",
            Self::Encoded => "fetch_encoded",
            Self::TooLarge(..) => "too_large",
            Self::Timeout => "fetch_timeout",
        }
    }

    /// What only the operator's log may know.
    pub fn detail(&self) -> &'static str {
        match self {
            Self::Url(refusal) => refusal.code(),
            Self::Address(refusal) => refusal.code(),
            other => other.code(),
        }
    }
}

impl From<UrlRefusal> for FetchError {
    fn from(refusal: UrlRefusal) -> Self {
        Self::Url(refusal)
    }
}

/// A file that is being fetched: its head has come, its bytes follow.
#[derive(Debug)]
pub struct Fetched {
    /// The bytes.
    pub body: Incoming,
    /// Their number, where it was declared.
    pub length: Option<u64>,
    /// The host that sent them, after redirects.
    pub host: String,
    /// The last part of the path, as a name for a file.
    pub name: Option<String>,
    /// The entity tag, where there is a plain one.
    pub etag: Option<String>,
}

/// What the server may not be made to reach, besides what the policy says.
#[derive(Debug, Clone, Default)]
pub struct Never {
    /// Exact addresses and ports.
    pub addresses: Vec<SocketAddr>,
    /// Names and ports; names are compared, and looked up to be compared by address.
    pub names: BTreeSet<(String, u16)>,
    /// Ports of this server's own listeners, refused on every address of this machine.
    pub own_ports: Vec<u16>,
}

/// Fetches.
#[derive(Clone)]
pub struct Fetcher {
    lookup: Arc<dyn Lookup>,
    tls: Arc<rustls::ClientConfig>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

/// A URL that passed, and the addresses that were vetted for it.
struct Vetted {
    url: Url,
    scheme: Scheme,
    addresses: Vec<SocketAddr>,
}

impl Fetcher {
    /// With the system's resolver and the system's trusted roots.
    ///
    /// # Errors
    /// The TLS library's, which would be a fault of its build.
    pub fn system() -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        let loaded = rustls_native_certs::load_native_certs();
        let (_added, _ignored) = roots.add_parsable_certificates(loaded.certs);
        Self::new(Arc::new(SystemLookup), roots)
    }

    /// With these.
    ///
    /// # Errors
    /// As [`system`](Self::system).
    pub fn new(lookup: Arc<dyn Lookup>, roots: rustls::RootCertStore) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { lookup, tls: Arc::new(tls) })
    }

    /// Asks for a file and follows redirects. `cap`: most bytes it may declare.
    ///
    /// # Errors
    /// [`FetchError`]; nothing was connected to that the rules refuse.
    pub async fn fetch(
        &self,
        text: &str,
        rules: &Rules,
        never: &Never,
        cap: u64,
    ) -> Result<Fetched, FetchError> {
        policy::check_text(text)?;
        let mut url = Url::parse(text).map_err(|_| UrlRefusal::Malformed)?;
        let mut seen = BTreeSet::new();
        let mut from = None;
        for hop in 0.. {
            let vetted = self.vet(url, rules, never).await?;
            if let Some(from) = from {
                policy::check_redirect(hop, from, vetted.scheme)?;
            }
            if !seen.insert(vetted.url.as_str().to_owned()) {
                return Err(UrlRefusal::Circle.into());
            }
            from = Some(vetted.scheme);
            let response = connect::get(&vetted.url, vetted.scheme, &vetted.addresses, &self.tls).await?;
            match redirect(&vetted.url, &response)? {
                Some(next) => url = next,
                None => return accept(&vetted.url, response, cap),
            }
        }
        Err(UrlRefusal::TooManyRedirects.into())
    }

    /// Judges a URL that somebody else is going to fetch, as if it were fetched here. It says nothing about where a redirect
    /// leads, nor about another answer that the other's resolver may get.
    ///
    /// # Errors
    /// [`FetchError`] of the URL, its name or its addresses; nothing is connected to.
    pub async fn judge(&self, text: &str, rules: &Rules, never: &Never) -> Result<(), FetchError> {
        policy::check_text(text)?;
        let url = Url::parse(text).map_err(|_| UrlRefusal::Malformed)?;
        self.vet(url, rules, never).await.map(drop)
    }

    /// Judges a URL and looks its name up, once. Every address must pass: one bad answer spoils them all.
    async fn vet(&self, url: Url, rules: &Rules, never: &Never) -> Result<Vetted, FetchError> {
        let host = match url.host() {
            Some(url::Host::Domain(name)) => Some(Host::Name(name)),
            Some(url::Host::Ipv4(address)) => Some(Host::Address(address.into())),
            Some(url::Host::Ipv6(address)) => Some(Host::Address(address.into())),
            None => None,
        };
        let has_userinfo = !url.username().is_empty() || url.password().is_some();
        let scheme = policy::check_parts(&Parts { scheme: url.scheme(), has_userinfo, host })?;
        let port = url.port_or_known_default().unwrap_or(0);
        let addresses = match host {
            Some(Host::Address(ip)) => vec![ip],
            Some(Host::Name(name)) => {
                let bare = name.strip_suffix('.').unwrap_or(name);
                if never.names.contains(&(bare.to_owned(), port)) {
                    return Err(FetchError::Address(AddressRefusal::Own));
                }
                self.addresses(name).await?
            }
            None => return Err(UrlRefusal::NoHost.into()),
        };
        let mut rules = rules.clone();
        rules.never.extend(&never.addresses);
        rules.never.extend(self.named(never, port).await);
        let mut vetted = Vec::new();
        for ip in addresses.into_iter().take(MAX_ADDRESSES) {
            let target = SocketAddr::new(ip.to_canonical(), port);
            rules.judge(target).map_err(FetchError::Address)?;
            if never.own_ports.contains(&port) && is_of_this_machine(target.ip()) {
                return Err(FetchError::Address(AddressRefusal::Own));
            }
            vetted.push(target);
        }
        if vetted.is_empty() {
            return Err(FetchError::Lookup);
        }
        Ok(Vetted { url, scheme, addresses: vetted })
    }

    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, FetchError> {
        match timeout(LOOKUP_DEADLINE, self.lookup.lookup(name)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) => Err(FetchError::Lookup),
            Err(_) => Err(FetchError::Timeout),
        }
    }

    /// The addresses of configured machines that are known by name, where this port is theirs.
    async fn named(&self, never: &Never, port: u16) -> Vec<SocketAddr> {
        let mut found = Vec::new();
        for (name, _) in never.names.iter().filter(|(_, of)| *of == port) {
            if let Ok(addresses) = self.addresses(name).await {
                found.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)));
            }
        }
        found
    }
}

/// Whether an address is one of this machine's own: only those can be bound to.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// Where an answer redirects to, if it does.
fn redirect(from: &Url, response: &Response<Incoming>) -> Result<Option<Url>, FetchError> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    if !redirects {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).ok_or(FetchError::Protocol)?;
    let text = location.to_str().map_err(|_| UrlRefusal::Malformed)?;
    policy::check_text(text)?;
    Ok(Some(from.join(text).map_err(|_| UrlRefusal::Malformed)?))
}

/// Looks at the head of the last answer.
fn accept(url: &Url, response: Response<Incoming>, cap: u64) -> Result<Fetched, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let headers = response.headers();
    let encoded =
        headers.get_all(CONTENT_ENCODING).iter().any(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(FetchError::Encoded);
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length
        && length > cap
    {
        return Err(FetchError::TooLarge(length, cap));
    }
    let plain = |text: &str| text.len() <= 200 && text.chars().all(|c| c.is_ascii_graphic());
    let etag = headers.get(ETAG).and_then(|value| value.to_str().ok()).filter(|text| plain(text));
    let name = url.path_segments().and_then(|mut parts| parts.next_back()).filter(|name| !name.is_empty());
    Ok(Fetched {
        length,
        host: url.host_str().unwrap_or_default().to_owned(),
        name: name.filter(|name| plain(name)).map(str::to_owned),
        etag: etag.map(str::to_owned),
        body: response.into_body(),
    })
}

/// A URL as the audit keeps it: host and path readable, nothing that may be a credential.
pub fn for_audit(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) => {
            let had_query = url.query().is_some();
            url.set_query(None);
            url.set_fragment(None);
            // Fails for URLs that can have neither.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            format!("{url}{}", if had_query { "?[removed]" } else { "" })
        }
        Err(_) => "[not a URL]".to_owned(),
    }
}

#[cfg(test)]
mod tests;
