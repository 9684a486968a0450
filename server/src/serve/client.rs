//! Whom a request comes from: the address that connected, or the one that proxies of ours say it was.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

/// What proxies add the address to that connected to them.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Most hops that are looked at.
const MAX_HOPS: usize = 16;

/// The client of a request that came from `peer`. Only who `trusts` names is believed, and only about who connected to it: the
/// list is read from its end, and the first address that is none of ours is the client. What stands before it anybody could
/// have written.
pub(super) fn client_of(
    peer: SocketAddr,
    headers: &HeaderMap,
    trusts: impl Fn(IpAddr) -> bool,
) -> SocketAddr {
    let mut client = peer.ip().to_canonical();
    if !trusts(client) {
        return peer;
    }
    let lines: Vec<&str> =
        headers.get_all(FORWARDED_FOR).iter().map(|line| line.to_str().unwrap_or_default()).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
    for hop in hops.take(MAX_HOPS) {
        if !trusts(client) {
            break;
        }
        // What a trusted proxy says and nobody can read: the proxy itself is all that is known.
        let Some(address) = address(hop) else { break };
        client = address;
    }
    // The port is the proxy's and says nothing about the client.
    if client == peer.ip().to_canonical() { peer } else { SocketAddr::new(client, 0) }
}

/// An address with or without a port, IPv6 with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let plain = || text.parse::<IpAddr>().ok();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    plain().or_else(bracketed).or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let ours = ["10.0.0.1", "10.0.0.2", "::1"];
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        let trusts = |ip: IpAddr| ours.iter().any(|known| known.parse::<IpAddr>() == Ok(ip));
        client_of(peer, &headers, trusts).ip().to_string()
    }

    /// F21: believed from listed proxies only, and of those the right-most hop that is none of them.
    #[test]
    fn only_our_proxies_are_believed_and_only_about_who_connected_to_them() {
        for (peer, lines, expected) in [
            ("203.0.113.9", &["198.51.100.7"][..], "203.0.113.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4", "198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.7 , 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["10.0.0.2, 10.0.0.2"], "10.0.0.2"),
            ("::1", &["2001:db8::7"], "2001:db8::7"),
            ("::1", &["[2001:db8::7]:443"], "2001:db8::7"),
            ("::1", &["[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &["198.51.100.7:8080"], "198.51.100.7"),
            ("10.0.0.1", &["::ffff:198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            // Junk is no address, and what stands before it is nobody's word.
            ("10.0.0.1", &["198.51.100.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7,"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, junk, 10.0.0.2"], "10.0.0.2"),
        ] {
            assert_eq!(client(peer, lines), expected, "{peer} {lines:?}");
        }
        let long = vec!["10.0.0.2"; 10_000].join(",");
        assert_eq!(client("10.0.0.1", &[&long]), "10.0.0.2");
    }
}
