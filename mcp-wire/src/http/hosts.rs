//! Which `Host` and which `Origin` a request may name: the guard against DNS rebinding and against web pages
//! that talk to a local server. Also usable alone, in front of routes that are not MCP.

use http::{HeaderMap, StatusCode, header, request::Parts, uri::Authority};

use super::Refusal;

/// An allow-list of hosts and origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPolicy {
    hosts: Vec<Host>,
    origins: Vec<Origin>,
}

/// An entry that is no host or origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostPolicyError {
    /// Not `name` or `name:port`.
    #[error("allowed host `{0}` must be a name or address, optionally with `:port`")]
    Host(String),
    /// Not `scheme://name`, `scheme://name:port` or `scheme://name:*`.
    #[error("allowed origin `{0}` must be like `https://name`, `https://name:port` or `https://name:*`")]
    Origin(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Port {
    Any,
    /// This port; `None` is "not written", which browsers use for a scheme's own port.
    Exactly(Option<u16>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: String,
    port: Port,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: Host,
}

impl HostPolicy {
    /// A policy from allowed hosts (`name`: any port; `name:port`: that one; IPv6 in brackets) and allowed
    /// origins (`scheme://name[:port]` exactly; `:*` for any port). An empty list allows none.
    ///
    /// # Errors
    /// For an entry of another form; there are no wildcards for names.
    pub fn new<H, O>(hosts: H, origins: O) -> Result<Self, HostPolicyError>
    where
        H: IntoIterator<Item: AsRef<str>>,
        O: IntoIterator<Item: AsRef<str>>,
    {
        let host = |entry: &str| match parse_host(entry) {
            Some((name, port)) => Ok(Host { name, port: port.map_or(Port::Any, |p| Port::Exactly(Some(p))) }),
            None => Err(HostPolicyError::Host(entry.to_owned())),
        };
        let origin = |entry: &str| {
            let (scheme, rest) = entry.split_once("://")?;
            let (rest, any) = rest.strip_suffix(":*").map_or((rest, false), |rest| (rest, true));
            let (name, port) = parse_host(rest)?;
            let sound = !scheme.is_empty()
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
            let port = if any && port.is_none() { Port::Any } else { Port::Exactly(port) };
            (sound && !(any && port != Port::Any))
                .then(|| Origin { scheme: scheme.to_ascii_lowercase(), host: Host { name, port } })
        };
        Ok(Self {
            hosts: hosts.into_iter().map(|entry| host(entry.as_ref())).collect::<Result<_, _>>()?,
            origins: origins
                .into_iter()
                .map(|entry| {
                    origin(entry.as_ref()).ok_or_else(|| HostPolicyError::Origin(entry.as_ref().to_owned()))
                })
                .collect::<Result<_, _>>()?,
        })
    }

    /// The policy of a server bound to loopback: its three names, any port, and origins on them.
    #[must_use]
    pub fn loopback() -> Self {
        let names = ["127.0.0.1", "localhost", "[::1]"];
        let host = |name: &str| Host { name: name.to_owned(), port: Port::Any };
        Self {
            hosts: names.into_iter().map(host).collect(),
            origins: ["http", "https"]
                .into_iter()
                .flat_map(|scheme| names.into_iter().map(move |name| (scheme, name)))
                .map(|(scheme, name)| Origin { scheme: scheme.to_owned(), host: host(name) })
                .collect(),
        }
    }

    /// Checks one request. An absent `Origin` is fine: only browsers send it.
    ///
    /// # Errors
    /// 400 without exactly one host, 421 for a foreign host, 403 for a foreign, repeated or `null` origin.
    pub fn check(&self, parts: &Parts) -> Result<(), Refusal> {
        // HTTP/2 and absolute-form requests name the host in the URI; when a header is there too, both count.
        let in_uri = parts.uri.authority().map(Authority::as_str);
        let mut in_header = parts.headers.get_all(header::HOST).iter();
        let host = match (in_header.next().map(|v| v.to_str()), in_header.next()) {
            (None, None) => None,
            (Some(Ok(text)), None) => Some(text),
            _ => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "bad_host",
                    "send exactly one readable Host header",
                ));
            }
        };
        if in_uri.is_none() && host.is_none() {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_host", "the request names no host"));
        }
        if !in_uri.into_iter().chain(host).all(|text| self.knows_host(text)) {
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                "host_not_allowed",
                "this server does not answer to that host name; the operator lists those it answers to",
            ));
        }
        if self.knows_origin(&parts.headers) {
            Ok(())
        } else {
            let message =
                "web pages of that origin may not call this server; the operator lists those that may";
            Err(Refusal::new(StatusCode::FORBIDDEN, "origin_not_allowed", message))
        }
    }

    fn knows_host(&self, text: &str) -> bool {
        parse_host(text).is_some_and(|(name, port)| self.hosts.iter().any(|host| host.matches(&name, port)))
    }

    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        let mut sent = headers.get_all(header::ORIGIN).iter();
        let text = match (sent.next().map(|v| v.to_str()), sent.next()) {
            (None, _) => return true,
            (Some(Ok(text)), None) => text,
            _ => return false,
        };
        let Some((scheme, rest)) = text.split_once("://") else { return false };
        parse_host(rest).is_some_and(|(name, port)| {
            self.origins.iter().any(|o| o.scheme.eq_ignore_ascii_case(scheme) && o.host.matches(&name, port))
        })
    }
}

impl Host {
    fn matches(&self, name: &str, port: Option<u16>) -> bool {
        self.name == name && (self.port == Port::Any || self.port == Port::Exactly(port))
    }
}

/// Splits `name[:port]` into lower case name and port. Strict: no user info, no path, no trailing dot.
fn parse_host(text: &str) -> Option<(String, Option<u16>)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
    };
    let sound = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && !name.ends_with('.')
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        }
    };
    sound.then(|| (name.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(policy: &HostPolicy, host: &str, origin: Option<&str>) -> u16 {
        let mut request = http::Request::post("/mcp").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        policy.check(&parts).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn mc_01_hosts_and_origins_are_allow_listed() {
        let policy = HostPolicy::loopback();
        for host in ["127.0.0.1", "LocalHost:30030", "[::1]:1"] {
            assert_eq!(asked(&policy, host, None), 200, "{host}");
        }
        for host in
            ["evil.test", "127.0.0.1.evil.test", "localhost.", "user@localhost", "localhost:x", "", "::1"]
        {
            assert_eq!(asked(&policy, host, None), 421, "{host}");
        }
        for origin in ["http://localhost:6274", "https://127.0.0.1", "http://[::1]:9"] {
            assert_eq!(asked(&policy, "localhost", Some(origin)), 200, "{origin}");
        }
        for origin in
            ["null", "https://evil.test", "", "file://", "http://localhost.evil.test", "ftp://localhost"]
        {
            assert_eq!(asked(&policy, "localhost", Some(origin)), 403, "{origin}");
        }
    }

    #[test]
    fn mc_01_ports_count_where_they_are_named() {
        let policy = HostPolicy::new(["gate.test:8443"], ["https://app.test", "http://dev.test:*"]).unwrap();
        assert_eq!(asked(&policy, "gate.test:8443", Some("https://app.test")), 200);
        assert_eq!(asked(&policy, "gate.test", None), 421);
        assert_eq!(asked(&policy, "gate.test:8443", Some("https://app.test:444")), 403);
        assert_eq!(asked(&policy, "gate.test:8443", Some("http://dev.test:1234")), 200);
        assert_eq!(asked(&policy, "gate.test:8443", Some("http://app.test")), 403);
    }

    #[test]
    fn mc_01_two_host_headers_or_none_are_refused() {
        let policy = HostPolicy::loopback();
        for hosts in [vec!["localhost", "localhost"], vec![]] {
            let mut request = http::Request::post("/mcp");
            for host in hosts {
                request = request.header("host", host);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(policy.check(&parts).unwrap_err().status, 400);
        }
        // The URI's authority counts beside the header.
        let request = http::Request::post("http://evil.test/mcp").header("host", "localhost");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(policy.check(&parts).unwrap_err().status, 421);
    }

    #[test]
    fn wildcards_and_nonsense_are_refused_as_entries() {
        for host in ["*", "*.test", "a/b", "a:b", ""] {
            assert!(HostPolicy::new([host], [""; 0]).is_err(), "{host}");
        }
        for origin in ["*", "null", "app.test", "https://", "https://a/b", "https://a:1:*"] {
            assert!(HostPolicy::new([""; 0], [origin]).is_err(), "{origin}");
        }
    }
}
