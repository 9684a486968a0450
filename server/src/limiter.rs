//! A bound on failures by peer address: guessing costs more and more time, and never anybody else's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Peers remembered at once; beyond that the one quiet for longest is forgotten.
const MAX_PEERS: usize = 4096;
const MINUTE: f64 = 60.0;

/// One bucket of failures a peer: `per_minute` at once, refilled evenly over a minute. In IPv6 a peer is a /64: whoever has
/// one address of it has them all, and could otherwise spend a bucket an address and push everybody else's out.
#[derive(Debug, Default)]
pub struct PeerLimiter {
    peers: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    spent: f64,
    at: Duration,
}

impl PeerLimiter {
    /// Counts one failure of `peer` at monotonic time `now`. `false`: it has had its share, answer 429.
    pub fn failure(&self, peer: IpAddr, per_minute: u32, now: Duration) -> bool {
        let peer = network(peer);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            let quietest = peers.iter().min_by_key(|(_, bucket)| bucket.at).map(|(peer, _)| *peer);
            quietest.and_then(|peer| peers.remove(&peer));
        }
        let bucket = peers.entry(peer).or_insert(Bucket { spent: 0.0, at: now });
        bucket.drain(per_minute, now);
        if bucket.spent + 1.0 > f64::from(per_minute) {
            return false;
        }
        bucket.spent += 1.0;
        true
    }

    /// Whether `peer` has used up its share at `now`, without counting anything.
    pub fn exhausted(&self, peer: IpAddr, per_minute: u32, now: Duration) -> bool {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.get_mut(&network(peer)).is_some_and(|bucket| {
            bucket.drain(per_minute, now);
            bucket.spent + 1.0 > f64::from(per_minute)
        })
    }
}

/// What counts as one peer: an IPv4 address, also one that a dual-stack socket shows inside IPv6, or an IPv6 /64.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Bucket {
    fn drain(&mut self, per_minute: u32, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.spent = (self.spent - passed * f64::from(per_minute) / MINUTE).max(0.0);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn a_peer_has_its_share_a_minute_and_others_keep_theirs() {
        let limiter = PeerLimiter::default();
        let mut now = Duration::from_secs(1);
        assert!((0..60).all(|_| limiter.failure(PEER, 60, now)));
        assert!(!limiter.failure(PEER, 60, now));
        assert!(limiter.exhausted(PEER, 60, now));
        assert!(limiter.failure(IpAddr::from([192, 0, 2, 2]), 60, now));
        now += Duration::from_secs(1);
        assert!(limiter.failure(PEER, 60, now));
        assert!(!limiter.failure(PEER, 60, now));
    }

    #[test]
    fn tk_01_the_addresses_of_one_ipv6_network_share_a_bucket() {
        let (limiter, now) = (PeerLimiter::default(), Duration::from_secs(1));
        let in_network = |host: u128| IpAddr::from((0x2001_0db8_u128 << 96 | host).to_be_bytes());
        assert!((0..60).all(|host| limiter.failure(in_network(host), 60, now)));
        assert!(!limiter.failure(in_network(60), 60, now));
        assert!(limiter.exhausted(in_network(61), 60, now));
        // Another /64 has its own, and so has every IPv4 address, however it is written.
        assert!(limiter.failure(in_network(1 << 64), 60, now));
        let mapped = |last: u16| IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0xc000, last]);
        assert!((0..60).all(|_| limiter.failure(mapped(0x0201), 60, now)));
        assert!(limiter.exhausted(PEER, 60, now));
        assert!(limiter.failure(mapped(0x0202), 60, now));
    }

    #[test]
    fn many_peers_do_not_grow_memory() {
        let limiter = PeerLimiter::default();
        for n in 0..(MAX_PEERS as u32 * 2) {
            limiter.failure(IpAddr::from(n.to_be_bytes()), 60, Duration::from_millis(n.into()));
        }
        assert_eq!(limiter.peers.lock().unwrap().len(), MAX_PEERS);
    }
}
