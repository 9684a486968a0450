//! Which addresses may be connected to.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The rules of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Exact addresses and ports that may be reached although their range or port is not public.
    pub allow: Vec<SocketAddr>,
    /// Ports that may be reached on public addresses.
    pub ports: Vec<u16>,
    /// Exact addresses and ports that may not be reached whatever is allowed: the server's own listeners, the machines it
    /// manages.
    pub never: Vec<SocketAddr>,
    /// Whether the well-known prefix `64:ff9b::/96` leads to the IPv4 address within.
    pub nat64: bool,
}

/// Why a target is refused. Its text is the same for all of them: a caller must not learn from it what there is to reach.
/// The kind is for the operator's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server's fetch policy does not allow this address or port; the operator can allow exactly it under `policy.fetch.allow`"
)]
#[non_exhaustive]
pub enum AddressRefusal {
    /// Cloud metadata services; never allowable.
    Metadata,
    /// The server's own infrastructure; never allowable.
    Own,
    /// A port that is not among the allowed ones.
    Port,
    /// Not a public address.
    NotPublic,
}

impl AddressRefusal {
    /// A stable word for logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Own => "own",
            Self::Port => "port",
            Self::NotPublic => "not_public",
        }
    }
}

/// The port of Proxmox VE's API: whatever listens there has no files to offer.
const PVE_PORT: u16 = 8006;

impl Rules {
    /// Whether this address and port may be connected to.
    ///
    /// # Errors
    /// [`AddressRefusal`].
    pub fn judge(&self, target: SocketAddr) -> Result<(), AddressRefusal> {
        let ip = canonical(target.ip());
        let port = target.port();
        let effective: Vec<IpAddr> = std::iter::once(ip).chain(embedded(ip).map(IpAddr::V4)).collect();
        if effective.iter().any(|ip| is_metadata(*ip)) {
            return Err(AddressRefusal::Metadata);
        }
        let listed = |list: &[SocketAddr], ip: IpAddr| {
            list.iter().any(|entry| canonical(entry.ip()) == ip && entry.port() == port)
        };
        if port == PVE_PORT || port == 0 || effective.iter().any(|ip| listed(&self.never, *ip)) {
            return Err(AddressRefusal::Own);
        }
        // Exactly this address: an allowed IPv4 address does not allow what it is embedded in.
        if listed(&self.allow, ip) {
            return Ok(());
        }
        if !self.ports.contains(&port) {
            return Err(AddressRefusal::Port);
        }
        let public = match ip {
            IpAddr::V4(v4) => is_public_v4(v4),
            IpAddr::V6(v6) if self.nat64 && in_v6(v6, NAT64, 96) => embedded(ip).is_some_and(is_public_v4),
            IpAddr::V6(v6) => is_public_v6(v6) && embedded(ip).is_none_or(is_public_v4),
        };
        if public { Ok(()) } else { Err(AddressRefusal::NotPublic) }
    }
}

/// An IPv4 address in IPv6 clothing (`::ffff:a.b.c.d`) is that IPv4 address.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// The IPv4 address that a packet to this IPv6 address may end at: NAT64, 6to4, IPv4-compatible, Teredo, ISATAP.
fn embedded(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else { return None };
    let bits = v6.to_bits();
    let v4_of = |bits: u128| Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or_default());
    let low = || v4_of(bits);
    let [first, second, _, _, fifth, sixth, ..] = v6.segments();
    // The well-known prefix, and the ones for local use beside it.
    if first == 0x64 && second == 0xff9b {
        return Some(low());
    }
    if first == 0x2002 {
        return Some(v4_of(bits >> 80));
    }
    if bits >> 32 == 0 {
        return Some(low());
    }
    if first == 0x2001 && second == 0 {
        return Some(Ipv4Addr::from_bits(!low().to_bits()));
    }
    // ISATAP's interface identifiers, with the universal bit and without.
    if (fifth & 0xfdff) == 0 && sixth == 0x5efe {
        return Some(low());
    }
    None
}

/// Services that hand out credentials to whoever can reach them.
fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => {
            matches!(
                v4.octets(),
                // AWS, Azure, Google, OpenStack and most others; AWS's name server, time and task credentials.
                [169, 254, 169, 254 | 253 | 123] | [169, 254, 170, 2 | 23]
                // Alibaba; Oracle; Azure's wire server, which is not in a private range.
                | [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16]
            )
        }
        IpAddr::V6(v6) => {
            matches!(
                v6.segments(),
                // AWS's, with its name server; Google's.
                [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254 | 0x253 | 0x123 | 0x23]
                    | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
            )
        }
    }
}

fn in_v4(ip: Ipv4Addr, network: [u8; 4], prefix: u32) -> bool {
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
    ip.to_bits() & mask == Ipv4Addr::from(network).to_bits() & mask
}

fn in_v6(ip: Ipv6Addr, network: Ipv6Addr, prefix: u32) -> bool {
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
    ip.to_bits() & mask == network.to_bits() & mask
}

/// IANA's special-purpose registry of IPv4: what is not globally reachable, and multicast.
const NOT_PUBLIC_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    ([255, 255, 255, 255], 32),
];

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !NOT_PUBLIC_V4.iter().any(|(network, prefix)| in_v4(ip, *network, *prefix))
}

/// Only `2000::/3` is handed out for public use; within it, what is special is not.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 4] = [
    // Protocol assignments: Teredo, benchmarking, ORCHID and more.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    // Documentation.
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_public_v6(ip: Ipv6Addr) -> bool {
    in_v6(ip, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        && !NOT_PUBLIC_V6.iter().any(|(network, prefix)| in_v6(ip, *network, *prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> Rules {
        Rules { ports: vec![80, 443], ..Rules::default() }
    }

    #[expect(clippy::unwrap_in_result, reason = "the table of a test")]
    fn judge(ip: &str) -> Result<(), AddressRefusal> {
        rules().judge(SocketAddr::new(ip.parse().unwrap(), 443))
    }

    #[test]
    fn fu_02_every_special_range_of_ipv4_is_refused_to_its_last_address_and_no_further() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "239.255.255.255"),
            ("240.0.0.0", "255.255.255.255"),
        ] {
            for inside in [first, last] {
                assert!(judge(inside).is_err(), "{inside}");
                // D04, D07: the same in IPv6 clothing.
                assert!(judge(&format!("::ffff:{inside}")).is_err(), "{inside}");
            }
            let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().unwrap(), last.parse().unwrap());
            for outside in
                [first.to_bits().checked_sub(1), last.to_bits().checked_add(1)].into_iter().flatten()
            {
                let outside = Ipv4Addr::from_bits(outside);
                // The two multicast and reserved ranges meet.
                if outside.octets()[0] < 224 {
                    assert_eq!(judge(&outside.to_string()), Ok(()), "{outside}");
                }
            }
        }
    }

    // D02: the addresses that fetch tools have really been led to.
    #[test]
    fn d02_fu_03_special_and_embedded_ipv6_is_refused() {
        for refused in [
            "::",
            "::1",
            "::ffff:7f00:1",
            "::ffff:a9fe:a9fe",
            "::127.0.0.1",
            "::8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
            "2002:808:808::",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fc00::1",
            "fd00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "2a00:1450::5efe:10.0.0.1",
            "2a00:1450::200:5efe:127.0.0.1",
        ] {
            assert!(judge(refused).is_err(), "{refused}");
        }
        for allowed in [
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::5efe:8.8.8.8",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(judge(allowed), Ok(()), "{allowed}");
        }
    }

    #[test]
    fn d08_nat64_leads_to_public_addresses_where_the_operator_says_that_there_is_one() {
        let rules = Rules { nat64: true, ..rules() };
        let judge = |ip: &str| rules.judge(SocketAddr::new(ip.parse().unwrap(), 80));
        assert_eq!(judge("64:ff9b::808:808"), Ok(()));
        assert_eq!(judge("64:ff9b::a00:1"), Err(AddressRefusal::NotPublic));
        assert_eq!(judge("64:ff9b::a9fe:a9fe"), Err(AddressRefusal::Metadata));
        assert_eq!(judge("64:ff9b:1::808:808"), Err(AddressRefusal::NotPublic));
    }

    #[test]
    fn fu_10_ports_are_a_list_and_the_api_port_is_never_one() {
        let public = IpAddr::from([198, 41, 0, 4]);
        for port in [22, 25, 6379, 81, 8080] {
            assert_eq!(rules().judge(SocketAddr::new(public, port)), Err(AddressRefusal::Port), "{port}");
        }
        let open = Rules { ports: vec![0, 8006, 22], allow: vec![SocketAddr::new(public, 8006)], ..rules() };
        for port in [0, 8006] {
            assert_eq!(open.judge(SocketAddr::new(public, port)), Err(AddressRefusal::Own), "{port}");
        }
        assert_eq!(open.judge(SocketAddr::new(public, 22)), Ok(()));
        let node = Rules { never: vec![SocketAddr::new(public, 22)], ..open };
        assert_eq!(node.judge(SocketAddr::new(public, 22)), Err(AddressRefusal::Own));
    }

    #[test]
    fn fu_20_an_allowed_target_is_exactly_that_one_and_metadata_and_own_never_are() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let rules = Rules {
            allow: vec![
                at("10.1.2.3:8080"),
                at("127.0.0.1:80"),
                at("169.254.169.254:80"),
                at("[fd00:ec2::254]:80"),
                at("10.0.0.9:22"),
            ],
            never: vec![at("10.0.0.9:22")],
            ..rules()
        };
        for good in ["10.1.2.3:8080", "127.0.0.1:80", "[::ffff:10.1.2.3]:8080"] {
            assert_eq!(rules.judge(at(good)), Ok(()), "{good}");
        }
        for bad in [
            "10.1.2.3:80",
            "10.1.2.4:8080",
            "127.0.0.1:443",
            "[64:ff9b::a01:203]:8080",
            "[2002:a01:203::]:8080",
        ] {
            assert!(rules.judge(at(bad)).is_err(), "{bad}");
        }
        for never in
            ["169.254.169.254:80", "[fd00:ec2::254]:80", "[::ffff:169.254.169.254]:80", "168.63.129.16:80"]
        {
            assert_eq!(rules.judge(at(never)), Err(AddressRefusal::Metadata), "{never}");
        }
        assert_eq!(rules.judge(at("10.0.0.9:22")), Err(AddressRefusal::Own));
    }

    /// What is never reachable is recognised in any clothing, and not only refused for the clothing.
    #[test]
    fn fu_03_fu_20_metadata_and_own_machines_are_known_in_any_clothing() {
        let clothed = |v4: [u8; 4]| {
            let bits = u32::from_be_bytes(v4);
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            [
                IpAddr::from(v4),
                Ipv4Addr::from(v4).to_ipv6_mapped().into(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into(),
                Ipv6Addr::new(0x64, 0xff9b, 1, 2, 3, 4, high, low).into(),
                Ipv6Addr::new(0x2002, high, low, 1, 2, 3, 4, 5).into(),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low).into(),
                Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !high, !low).into(),
                Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0x5efe, high, low).into(),
                Ipv6Addr::new(0x2a00, 1, 2, 3, 0x200, 0x5efe, high, low).into(),
            ]
        };
        let own = Ipv4Addr::new(9, 8, 7, 6);
        let rules = Rules { never: vec![SocketAddr::new(own.into(), 443)], ..rules() };
        let services = [
            [169, 254, 169, 254],
            [169, 254, 169, 253],
            [169, 254, 169, 123],
            [169, 254, 170, 2],
            [169, 254, 170, 23],
            [100, 100, 100, 200],
            [192, 0, 0, 192],
            [168, 63, 129, 16],
        ];
        for ip in services.into_iter().flat_map(clothed) {
            assert_eq!(rules.judge(SocketAddr::new(ip, 443)), Err(AddressRefusal::Metadata), "{ip}");
        }
        for ip in clothed(own.octets()) {
            assert_eq!(rules.judge(SocketAddr::new(ip, 443)), Err(AddressRefusal::Own), "{ip}");
            assert_ne!(rules.judge(SocketAddr::new(ip, 80)), Err(AddressRefusal::Own), "{ip}");
        }
        // A listener on every address has two spellings.
        let every =
            Rules { never: vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 443)], ..rules.clone() };
        let judged = every.judge(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 443));
        assert_eq!(judged, Err(AddressRefusal::Own));
        // Alike, and something else: one half of a prefix, a country's own block, an interface identifier of another kind.
        for other in [
            "64:1::a9fe:a9fe",
            "2a00:ff9b::a9fe:a9fe",
            "2001:1::a901:5601",
            "2a00:1:2:3:100:5efe:a9fe:a9fe",
            "2a00:1:2:3:0:5eff:a9fe:a9fe",
        ] {
            let judged = rules.judge(SocketAddr::new(other.parse().unwrap(), 443));
            assert_ne!(judged, Err(AddressRefusal::Metadata), "{other}");
        }
        for six in ["fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::123", "fd00:ec2::23", "fd20:ce::254"] {
            let judged = rules.judge(SocketAddr::new(six.parse().unwrap(), 443));
            assert_eq!(judged, Err(AddressRefusal::Metadata), "{six}");
        }
    }

    #[test]
    fn every_refusal_has_a_word_of_its_own_for_logs() {
        let all = [
            (AddressRefusal::Metadata, "metadata"),
            (AddressRefusal::Own, "own"),
            (AddressRefusal::Port, "port"),
            (AddressRefusal::NotPublic, "not_public"),
        ];
        for (refusal, word) in all {
            assert_eq!(refusal.code(), word);
        }
    }

    #[test]
    fn fu_17_every_refusal_reads_the_same() {
        let texts =
            [AddressRefusal::Metadata, AddressRefusal::Own, AddressRefusal::Port, AddressRefusal::NotPublic]
                .map(|refusal| refusal.to_string());
        assert!(texts.iter().all(|text| *text == texts[0]));
    }

    proptest! {
        /// Whatever the clothing, an IPv4 address that is not public is not reachable through it.
        #[test]
        fn fu_03_no_clothing_lets_a_private_address_through(octets in any::<[u8; 4]>(), nat64 in any::<bool>()) {
            let v4 = Ipv4Addr::from(octets);
            let rules = Rules { nat64, ..rules() };
            let plain = rules.judge(SocketAddr::new(v4.into(), 443)).is_ok();
            let (high, low) = ((v4.to_bits() >> 16) as u16, v4.to_bits() as u16);
            for dressed in [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !high, !low),
                Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0x5efe, high, low),
            ] {
                let reachable = rules.judge(SocketAddr::new(dressed.into(), 443)).is_ok();
                prop_assert!(plain || !reachable, "{} in {}", v4, dressed);
            }
        }
    }
}
