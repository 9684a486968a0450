//! The formats of firewall rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Checks a value of one of these formats; `None` for another format.
pub(super) fn named(format: &str, value: &str) -> Option<Result<(), String>> {
    Some(match format {
        "pve-fw-addr-spec" => addresses(value),
        "pve-fw-dport-spec" | "pve-fw-sport-spec" => ports(value),
        "pve-fw-protocol-spec" => protocol(value),
        "pve-fw-icmp-type-spec" => icmp_type(value),
        "pve-iface" => interface(value),
        "IPorCIDR" => network(value),
        "IPorCIDRorAlias" if is_alias(value) => Ok(()),
        "IPorCIDRorAlias" => network(value),
        _ => return None,
    })
}

/// `name`, `dc/name` or `guest/name`, where a name has two characters at least.
fn is_alias(value: &str) -> bool {
    let name = value.split_once('/').map_or(value, |(scope, name)| match scope {
        "dc" | "guest" => name,
        _ => "",
    });
    name.len() >= 2
        && name.starts_with(|char: char| char.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// A reference to a set or an alias, or a list of addresses, networks and ranges of one family.
fn addresses(value: &str) -> Result<(), String> {
    if value.starts_with('+') && !value.contains(char::is_whitespace) || is_alias(value) || value.is_empty() {
        return Ok(());
    }
    let elements: Vec<&str> = value.split(',').collect();
    if elements.iter().any(|element| element.is_empty()) {
        return Err("extraneous commas in list".to_owned());
    }
    let mut family = None;
    for element in &elements {
        let found = address(element).map_err(|problem| format!("invalid IP address: {problem}"))?;
        if family.is_some_and(|family| family != found) {
            return Err(format!("detected mixed ipv4/ipv6 addresses in address list '{value}'"));
        }
        family = Some(found);
    }
    if elements.len() > 1 && elements.iter().any(|element| element.contains('-')) {
        return Err("you can't use a range in a list".to_owned());
    }
    Ok(())
}

/// The family of an address, a network or a range, or what Perl's Net::IP finds wrong with it.
fn address(text: &str) -> Result<u8, String> {
    if let Some((begin, end)) = text.split_once('-') {
        let (begin, end) = (begin.trim(), end.trim());
        return match (parse(begin)?, parse(end)?) {
            (IpAddr::V4(low), IpAddr::V4(high)) if low <= high => Ok(4),
            (IpAddr::V6(low), IpAddr::V6(high)) if low <= high => Ok(6),
            _ => Err(format!("Begin address is greater than End address {begin} - {end}")),
        };
    }
    let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
    let (family, bits) = match parse(ip)? {
        IpAddr::V4(_) => (4, 32),
        IpAddr::V6(_) => (6, 128),
    };
    match prefix.map(str::parse::<u32>) {
        Some(Err(_)) => Err(format!("Invalid prefix {}", prefix.unwrap_or_default())),
        Some(Ok(length)) if length > bits => {
            Err(format!("Prefix length {length} is longer than IP address ({bits})"))
        }
        _ => Ok(family),
    }
}

fn parse(ip: &str) -> Result<IpAddr, String> {
    if ip.contains(':') {
        return ip.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| format!("Invalid address {ip}"));
    }
    if ip.is_empty() || !ip.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("Invalid chars in IP {ip}"));
    }
    match ip.split('.').find(|quad| quad.parse::<u8>().is_err()) {
        Some(quad) => Err(format!("Invalid quad in IP address {ip} - {quad}")),
        None => ip.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| format!("Invalid IP address {ip}")),
    }
}

/// One address or network.
fn network(value: &str) -> Result<(), String> {
    let ip = value.split('/').next().unwrap_or_default();
    let digits = |(_, prefix): (&str, &str)| prefix.bytes().all(|byte| byte.is_ascii_digit());
    if ip.parse::<IpAddr>().is_err() || !value.split_once('/').is_none_or(digits) {
        return Err("value does not look like a valid IP address or CIDR network".to_owned());
    }
    address(value).map(|_| ())
}

/// Service names that a Debian host knows and that rules commonly name.
const SERVICES: &[&str] = &[
    "domain",
    "ftp",
    "ftp-data",
    "http",
    "http-alt",
    "https",
    "imap2",
    "imaps",
    "kerberos",
    "ldap",
    "ldaps",
    "mysql",
    "nfs",
    "ntp",
    "pop3",
    "pop3s",
    "postgresql",
    "rsync",
    "smtp",
    "snmp",
    "ssh",
    "submission",
    "syslog",
    "telnet",
    "tftp",
    "whois",
    "xmpp-client",
];

fn ports(value: &str) -> Result<(), String> {
    let port = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
    };
    for item in value.split(',').filter(|item| !item.is_empty()) {
        let fits = match item.split_once(':') {
            Some((low, high)) => port(low) && port(high),
            None => port(item) || SERVICES.contains(&item),
        };
        if !fits {
            return Err(format!("invalid port '{item}'"));
        }
    }
    Ok(())
}

/// Protocols by name, as `/etc/protocols` of Debian has them.
const PROTOCOLS: &[&str] = &[
    "ah",
    "ax.25",
    "dccp",
    "egp",
    "eigrp",
    "encap",
    "esp",
    "etherip",
    "fc",
    "ggp",
    "gre",
    "hip",
    "hopopt",
    "icmp",
    "icmpv6",
    "idpr-cmtp",
    "idrp",
    "igmp",
    "igp",
    "ip",
    "ipcomp",
    "ipencap",
    "ipip",
    "ipv6",
    "ipv6-frag",
    "ipv6-icmp",
    "ipv6-nonxt",
    "ipv6-opts",
    "ipv6-route",
    "isis",
    "iso-tp4",
    "l2tp",
    "manet",
    "mobility-header",
    "mpls-in-ip",
    "ospf",
    "pim",
    "pup",
    "rdp",
    "rohc",
    "rspf",
    "rsvp",
    "sctp",
    "shim6",
    "skip",
    "st",
    "tcp",
    "udp",
    "udplite",
    "vmtp",
    "vrrp",
    "wesp",
    "xns-idp",
    "xtp",
];

fn protocol(value: &str) -> Result<(), String> {
    let numbered = || value.parse::<u8>().is_ok_and(|number| number <= 142);
    if PROTOCOLS.contains(&value) || numbered() || value.is_empty() {
        return Ok(());
    }
    Err(format!("unknown protocol '{value}'"))
}

/// ICMP types by name, of both families.
const ICMP: &[&str] = &[
    "address-mask-reply",
    "address-mask-request",
    "address-unreachable",
    "any",
    "bad-header",
    "communication-prohibited",
    "destination-unreachable",
    "echo-reply",
    "echo-request",
    "fragmentation-needed",
    "host-precedence-violation",
    "host-prohibited",
    "host-redirect",
    "host-unknown",
    "host-unreachable",
    "ip-header-bad",
    "neighbor-advertisement",
    "neighbor-solicitation",
    "network-prohibited",
    "network-redirect",
    "network-unknown",
    "network-unreachable",
    "no-route",
    "packet-too-big",
    "parameter-problem",
    "port-unreachable",
    "precedence-cutoff",
    "protocol-unreachable",
    "redirect",
    "required-option-missing",
    "router-advertisement",
    "router-solicitation",
    "source-quench",
    "source-route-failed",
    "time-exceeded",
    "timestamp-reply",
    "timestamp-request",
    "TOS-host-redirect",
    "TOS-host-unreachable",
    "TOS-network-redirect",
    "TOS-network-unreachable",
    "ttl-exceeded",
    "ttl-zero-during-reassembly",
    "ttl-zero-during-transit",
    "unknown-header-type",
    "unknown-option",
];

fn icmp_type(value: &str) -> Result<(), String> {
    let numbered = || value.split('/').all(|part| part.parse::<u8>().is_ok());
    if ICMP.contains(&value) || numbered() || value.is_empty() {
        return Ok(());
    }
    Err(format!("invalid icmp-type value '{value}'"))
}

fn interface(value: &str) -> Result<(), String> {
    let base = value.split([':', '.']).next().unwrap_or_default();
    let fits = (2..=21).contains(&base.len())
        && base.starts_with(|char: char| char.is_ascii_alphabetic())
        && base.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && value[base.len()..].get(1..).is_none_or(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    if fits { Ok(()) } else { Err(format!("invalid network interface name '{value}'")) }
}
