use std::{fmt, net::IpAddr, net::SocketAddr};

use http::uri::Authority;

use crate::error::Error;

/// Where a cluster's API is: a node, or a proxy in front of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    authority: Authority,
    connect_to: Option<SocketAddr>,
}

const DEFAULT_PORT: u16 = 8006;

impl Endpoint {
    /// Reads `https://pve1.example:8006`. Scheme, port (8006) and the API path `/api2/json` may be left out.
    ///
    /// # Errors
    /// Fails, naming the part, on `http`, user info, another path, a query, and a host that is neither an address
    /// nor an ASCII DNS name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = |problem: &str| {
            Err(Error::config(format!(
                "{:?} is not an endpoint: {problem}; expected a URL such as https://pve1.example:8006",
                text.chars().take(200).collect::<String>()
            )))
        };
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
            Some(_) => return refused("the scheme is not https"),
            None => text,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#', '@', '\\']) {
            return refused("user name, query and fragment have no place in it");
        }
        if !matches!(path.trim_end_matches('/'), "" | "api2" | "api2/json") {
            return refused("it has a path other than /api2/json");
        }
        let Some((host, port)) = split_port(authority) else {
            return refused("the port is not a number from 1 to 65535");
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match (bracketed, bracketed.unwrap_or(host).parse::<IpAddr>()) {
            (_, Ok(IpAddr::V6(address))) => format!("[{address}]"),
            (None, Ok(IpAddr::V4(address))) => address.to_string(),
            (None, Err(_)) if is_dns_name(host) => host.to_ascii_lowercase(),
            _ => return refused("the host is neither an address nor an ASCII DNS name"),
        };
        match format!("{host}:{port}").parse() {
            Ok(authority) => Ok(Self { authority, connect_to: None }),
            Err(_) => refused("host and port do not form a URL"),
        }
    }

    /// Connects to this address instead of looking the host up. The host stays the name that TLS verifies.
    #[must_use]
    pub fn connect_to(mut self, address: SocketAddr) -> Self {
        self.connect_to = Some(address);
        self
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn fixed_address(&self) -> Option<SocketAddr> {
        self.connect_to
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority)
    }
}

fn split_port(authority: &str) -> Option<(&str, u16)> {
    // A bare IPv6 address has colons that separate no port.
    if authority.parse::<IpAddr>().is_ok() || authority.ends_with(']') {
        return Some((authority, DEFAULT_PORT));
    }
    match authority.rsplit_once(':') {
        None => Some((authority, DEFAULT_PORT)),
        Some((host, port)) => {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            let port = port.parse().ok().filter(|port| digits && *port != 0)?;
            Some((host, port))
        }
    }
}

fn is_dns_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253
        && host.split('.').all(label)
        // A name ending in a number would be taken for an address by other parsers.
        && !host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A19.
    #[test]
    fn every_usual_spelling_is_normalised() {
        for (given, expected) in [
            ("https://h:8006", "https://h:8006"),
            ("https://h:8006/", "https://h:8006"),
            ("https://h:8006/api2/json/", "https://h:8006"),
            ("https://H", "https://h:8006"),
            ("HTTPS://h:443/api2", "https://h:443"),
            ("192.0.2.10", "https://192.0.2.10:8006"),
            ("192.0.2.10:443", "https://192.0.2.10:443"),
            ("pve1.example", "https://pve1.example:8006"),
            ("https://[2001:db8::1]:8006", "https://[2001:db8::1]:8006"),
            ("2001:db8::1", "https://[2001:db8::1]:8006"),
        ] {
            assert_eq!(Endpoint::parse(given).unwrap().to_string(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_reason() {
        for (given, reason) in [
            ("", "host"),
            ("http://h:8006", "https"),
            ("ftp://h", "https"),
            ("https://user:pass@h", "user name"),
            ("https://h/api2/extjs", "path"),
            ("https://h/?x=1", "query"),
            ("https://h:0", "port"),
            ("https://h:+80", "port"),
            ("https://h:99999", "port"),
            ("https://pve é", "host"),
            ("https://bücher.example", "host"),
            ("https://h\n", "host"),
            ("https://1.2.3", "host"),
            ("https://[pve1]:8006", "host"),
            ("https://-h", "host"),
        ] {
            let error = Endpoint::parse(given).unwrap_err();
            assert!(error.message().contains(reason), "{given:?}: {error}");
        }
    }
}
