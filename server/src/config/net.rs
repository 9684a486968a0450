//! Networks and addresses as they are written in `clusters.json`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A network: `10.0.0.0/8`, `2001:db8::/32`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// The text is not a network, or not an allowed target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// Not an address with an optional prefix length.
    #[error("expected an address or a network such as 10.1.2.3 or 10.1.0.0/16, found {0:?}")]
    Network(String),
    /// Bits are set behind the prefix.
    #[error("{given} has bits set behind its prefix: write {meant}")]
    HostBits {
        /// What was written.
        given: String,
        /// The network it lies in.
        meant: String,
    },
    /// Not one exact address and port.
    #[error("expected one exact address and port such as 10.1.2.3/32:8080 or [fd00::1]:8080, found {0:?}")]
    Target(String),
}

impl Cidr {
    /// Whether the address lies in the network. IPv4 addresses in IPv6 clothing count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (network, width) = bits(self.address);
        let (candidate, other) = bits(address.to_canonical());
        let shift = u32::from(width.saturating_sub(self.prefix));
        width == other && network.checked_shr(shift).unwrap_or(0) == candidate.checked_shr(shift).unwrap_or(0)
    }
}

/// The address as a number, and how many bits wide it is.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

impl FromStr for Cidr {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let wrong = || NetError::Network(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (value, width) = bits(address);
        let prefix = match prefix {
            Some(digits) if digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
            None => width,
        };
        let shift = u32::from(width - prefix);
        let kept = value.checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0);
        if kept != value {
            let address = match address {
                IpAddr::V4(_) => IpAddr::V4(u32::try_from(kept).unwrap_or_default().into()),
                IpAddr::V6(_) => IpAddr::V6(kept.into()),
            };
            return Err(NetError::HostBits {
                given: text.to_owned(),
                meant: Self { address, prefix }.to_string(),
            });
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// One address and port of `fetch.allow`: `10.1.2.3/32:8080`, `10.1.2.3:8080` or `[fd00::1]:8080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedTarget(SocketAddr);

impl AllowedTarget {
    /// Whether the target is exactly this one.
    pub fn matches(&self, target: SocketAddr) -> bool {
        self.0.ip() == target.ip().to_canonical() && self.0.port() == target.port()
    }

    /// The address and port.
    pub fn address(&self) -> SocketAddr {
        self.0
    }
}

impl FromStr for AllowedTarget {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let wrong = || NetError::Target(text.to_owned());
        // A full-length prefix says the same as none; anything wider is not an exact address.
        let plain = text.replacen("/32:", ":", 1).replacen("/128]:", "]:", 1);
        let target: SocketAddr = plain.parse().map_err(|_| wrong())?;
        if target.port() == 0 || (text.contains("/32:") && !target.is_ipv4()) {
            return Err(wrong());
        }
        Ok(Self(SocketAddr::new(target.ip().to_canonical(), target.port())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f21_a_network_holds_exactly_its_addresses() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.1.2.3", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "::1", "1.2.3.4"),
            ("2001:db8::/32", "2001:db8:ffff::", "2001:db9::"),
        ] {
            let cidr: Cidr = network.parse().unwrap();
            assert!(cidr.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!cidr.contains(outside.parse().unwrap()), "{network} {outside}");
        }
        for wrong in
            ["", "10.1", "10.1.2.3/33", "10.1.2.3/-1", "10.1.2.3/", "::/129", "host/8", "10.0.0.0/+8"]
        {
            wrong.parse::<Cidr>().unwrap_err();
        }
        let error = "10.1.2.3/8".parse::<Cidr>().unwrap_err().to_string();
        assert!(error.contains("write 10.0.0.0/8"), "{error}");
    }

    #[test]
    fn fu_20_an_allowed_target_is_one_address_and_one_port() {
        let allowed: AllowedTarget = "10.1.2.3/32:8080".parse().unwrap();
        assert!(allowed.matches("10.1.2.3:8080".parse().unwrap()));
        assert!(allowed.matches("[::ffff:10.1.2.3]:8080".parse().unwrap()));
        assert!(!allowed.matches("10.1.2.3:8081".parse().unwrap()));
        assert!(!allowed.matches("10.1.2.4:8080".parse().unwrap()));
        "[fd00::1]:8080".parse::<AllowedTarget>().unwrap();
        for wrong in
            ["10.1.2.0/24:80", "10.1.2.3", "10.1.2.3:0", "10.1.2.3:65536", "host:80", "[fd00::]/32:80", ""]
        {
            wrong.parse::<AllowedTarget>().unwrap_err();
        }
    }
}
