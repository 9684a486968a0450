//! `transfers`: which URLs and addresses may be fetched, judged a second time by lists written out in another way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use transfers::policy::{self, AddressRefusal, Host, Parts, Rules, Scheme, UrlRefusal};
use url::Url;

use crate::bytes::Bytes;

/// First byte odd: a URL as text. Even: an address, a port and rules.
pub fn fetch_policy(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    if which % 2 == 0 {
        address(&mut Bytes(rest));
    } else if let Ok(text) = std::str::from_utf8(rest) {
        text_of_url(text);
    }
}

fn text_of_url(text: &str) {
    if policy::check_text(text).is_err() {
        let odd = text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\');
        assert!(odd || text.len() > 2048, "{text:?} is an ordinary text");
        return;
    }
    let Ok(url) = Url::parse(text) else { return };
    let host = url.host().map(|host| match host {
        url::Host::Domain(name) => Host::Name(name),
        url::Host::Ipv4(ip) => Host::Address(ip.into()),
        url::Host::Ipv6(ip) => Host::Address(ip.into()),
    });
    let has_userinfo = !url.username().is_empty() || url.password().is_some();
    let parts = Parts { scheme: url.scheme(), has_userinfo, host };
    match policy::check_parts(&parts) {
        Ok(scheme) => {
            assert_eq!(url.scheme(), if scheme == Scheme::Http { "http" } else { "https" });
            // What other programs make of the text: the authority ends at the first of these and has no user in it.
            let (_, rest) = text.split_once(':').expect("a scheme");
            let authority = rest.trim_start_matches('/').split(['/', '?', '#']).next().unwrap_or_default();
            let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
            assert!(user.trim_matches(':').is_empty(), "a user got through: {text:?}");
            if let Some(Host::Name(name)) = host {
                let labels: Vec<String> = name.to_lowercase().split('.').map(str::to_owned).collect();
                let last = labels.iter().rev().find(|label| !label.is_empty()).expect("a label");
                assert!(!matches!(last.as_str(), "localhost" | "localdomain"), "{name}");
                assert!(name.parse::<Ipv4Addr>().is_err(), "an address went for a name: {name}");
            }
            // Its canonical spelling is judged alike.
            let again = Url::parse(url.as_str()).expect("its own spelling");
            assert_eq!((again.scheme(), again.host_str()), (url.scheme(), url.host_str()));
            let to_plain = policy::check_redirect(1, scheme, Scheme::Http);
            assert_eq!(to_plain.is_err(), scheme == Scheme::Https);
        }
        Err(UrlRefusal::Scheme) => assert!(!matches!(url.scheme(), "http" | "https")),
        Err(UrlRefusal::UserInfo) => assert!(has_userinfo),
        Err(UrlRefusal::NoHost | UrlRefusal::LocalName) => {}
        Err(other) => panic!("{other:?} of {text:?}"),
    }
}

/// Ranges of IPv4 that are not public, first and last.
const SPECIAL: [[[u8; 4]; 2]; 15] = [
    [[0, 0, 0, 0], [0, 255, 255, 255]],
    [[10, 0, 0, 0], [10, 255, 255, 255]],
    [[100, 64, 0, 0], [100, 127, 255, 255]],
    [[127, 0, 0, 0], [127, 255, 255, 255]],
    [[169, 254, 0, 0], [169, 254, 255, 255]],
    [[172, 16, 0, 0], [172, 31, 255, 255]],
    [[192, 0, 0, 0], [192, 0, 0, 255]],
    [[192, 0, 2, 0], [192, 0, 2, 255]],
    [[192, 88, 99, 0], [192, 88, 99, 255]],
    [[192, 168, 0, 0], [192, 168, 255, 255]],
    [[198, 18, 0, 0], [198, 19, 255, 255]],
    [[198, 51, 100, 0], [198, 51, 100, 255]],
    [[203, 0, 113, 0], [203, 0, 113, 255]],
    [[224, 0, 0, 0], [239, 255, 255, 255]],
    [[240, 0, 0, 0], [255, 255, 255, 255]],
];

const METADATA: [&str; 9] = [
    "169.254.169.254",
    "169.254.169.253",
    "169.254.169.123",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "fd00:ec2::254",
];

fn address(bytes: &mut Bytes<'_>) {
    let switches = bytes.byte();
    let port = match bytes.byte() % 6 {
        0 => 80,
        1 => 443,
        2 => 8006,
        3 => 22,
        4 => 0,
        _ => u16::from_be_bytes(bytes.array()),
    };
    let v4 = Ipv4Addr::from(bytes.array::<4>());
    let [a, b, c, d] = v4.octets().map(u16::from);
    let (high, low) = (a << 8 | b, c << 8 | d);
    let ip: IpAddr = match switches >> 4 {
        0 | 1 => v4.into(),
        2 => v4.to_ipv6_mapped().into(),
        3 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into(),
        4 => Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1).into(),
        5 => Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low).into(),
        6 => Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !high, !low).into(),
        7 => Ipv6Addr::new(0x2a00, 1, 2, 3, 0x200, 0x5efe, high, low).into(),
        8 => METADATA[usize::from(bytes.byte()) % METADATA.len()].parse().expect("an address"),
        _ => Ipv6Addr::from(bytes.array::<16>()).into(),
    };
    let target = SocketAddr::new(ip, port);
    let other = SocketAddr::new(Ipv4Addr::from(bytes.array::<4>()).into(), port);
    let listed = |bit: u8, at: SocketAddr| if switches & bit == 0 { vec![other] } else { vec![at] };
    let rules = Rules {
        allow: listed(1, target),
        ports: vec![80, 443],
        never: listed(2, target),
        nat64: switches & 4 != 0,
    };
    let plain = plain(ip);
    let metadata = |ip: IpAddr| METADATA.iter().any(|m| m.parse() == Ok(ip));
    match rules.judge(target) {
        Ok(()) => {
            assert!(switches & 2 == 0 && port != 8006 && port != 0, "{target} {rules:?}");
            assert!(!metadata(ip.to_canonical()), "{target}");
            if rules.allow == [target] || rules.allow.contains(&SocketAddr::new(ip.to_canonical(), port)) {
                return;
            }
            assert!(matches!(port, 80 | 443), "{target}");
            match plain {
                Plain::V4(v4) => assert!(!special(v4), "{target}"),
                Plain::Within(v4, tunnel) => {
                    assert!(!special(v4), "{target}");
                    assert!(tunnel || rules.nat64, "{target}");
                }
                Plain::V6(v6) => {
                    let [first, second, ..] = v6.segments();
                    assert!((0x2000..=0x3fff).contains(&first), "{target}");
                    assert!(!(first == 0x2001 && (second < 0x200 || second == 0xdb8)), "{target}");
                    assert!(first != 0x2002 && !(first == 0x3fff && second < 0x1000), "{target}");
                }
            }
        }
        Err(AddressRefusal::Metadata) => {
            let within = match plain {
                Plain::V4(v4) | Plain::Within(v4, _) => metadata(v4.into()),
                Plain::V6(v6) => metadata(v6.into()) || v6.segments()[0] & 0xff00 == 0xfd00 || embeds(v6),
            };
            assert!(within, "{target} is no metadata service");
        }
        Err(AddressRefusal::Own) => {
            assert!(
                matches!(port, 0 | 8006) || rules.never.iter().any(|never| *never == target || !ip.is_ipv4())
            );
        }
        Err(AddressRefusal::Port) => assert!(!matches!(port, 80 | 443)),
        Err(AddressRefusal::NotPublic) => {
            if let Plain::V4(v4) = plain {
                assert!(special(v4), "{target} is public");
            }
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// What an address is under its clothing. `Within`: an IPv4 address inside, and whether the outside may be public all the same.
enum Plain {
    V4(Ipv4Addr),
    Within(Ipv4Addr, bool),
    V6(Ipv6Addr),
}

fn plain(ip: IpAddr) -> Plain {
    let v6 = match ip {
        IpAddr::V4(v4) => return Plain::V4(v4),
        IpAddr::V6(v6) => v6,
    };
    let s = v6.segments();
    let low = v4_of(s[6], s[7]);
    match s {
        [0, 0, 0, 0, 0, 0xffff, ..] => Plain::V4(low),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Plain::Within(low, false),
        [_, _, _, _, 0 | 0x200, 0x5efe, ..]
            if (0x2000..0x4000).contains(&s[0]) && s[0] != 0x2001 && s[0] != 0x2002 =>
        {
            Plain::Within(low, true)
        }
        _ => Plain::V6(v6),
    }
}

/// Whether some part of it could be meant as an IPv4 address.
fn embeds(v6: Ipv6Addr) -> bool {
    let s = v6.segments();
    s[0] == 0x2002
        || (s[0] == 0x2001 && s[1] == 0)
        || (s[0] == 0x64 && s[1] == 0xff9b)
        || s[5] == 0x5efe
        || s[..6] == [0; 6]
}

fn v4_of(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

fn special(v4: Ipv4Addr) -> bool {
    SPECIAL.iter().any(|[first, last]| (*first..=*last).contains(&v4.octets()))
}
