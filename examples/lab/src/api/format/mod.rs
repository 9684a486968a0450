//! PVE's named formats. A format that is not listed accepts any text: those are formats of rare options (`smbios1`,
//! `hostpci0`, `cicustom`, …) whose keys PVE's API description does not tell.

mod firewall;
mod qemu;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) use qemu::property;

/// Checks a value; the error is PVE's text with its line feed.
pub(crate) fn named(format: &str, value: &str) -> Result<(), String> {
    if let Some(element) = format.strip_suffix("-list") {
        return split_list(value).try_for_each(|item| named(element, item));
    }
    if let Some(verdict) = firewall::named(format, value) {
        return verdict.map_err(|text| text + "\n");
    }
    let (fits, text) = match format {
        "pve-vmid" => (is_vmid(value), "value does not look like a valid VM ID".to_owned()),
        "pve-node" => (is_label(value), "value does not look like a valid node name".to_owned()),
        "pve-configid" => (is_configid(value), format!("invalid configuration ID '{value}'")),
        "pve-storage-id" => {
            let text = if value.len() < 2 {
                "cannot be shorter than 2 characters"
            } else {
                "contains illegal characters"
            };
            (is_storage_id(value), format!("storage ID '{value}' {text}"))
        }
        "pve-poolid" if value.split('/').count() > 3 => {
            (false, format!("pool name '{value}' nested too deeply (max levels = 3)"))
        }
        "pve-poolid" => (is_poolid(value), format!("pool name '{value}' contains invalid characters")),
        "storage-pair" => {
            let wrong = value.split(':').find_map(|id| named("pve-storage-id", id).err()).unwrap_or_default();
            // A `1` alone means that every storage keeps its name.
            let fits = wrong.is_empty() || value == "1";
            (fits, format!("entry '{value}' contains invalid ID - {wrong}\n"))
        }
        "pve-ha-resource-id" => (
            value.split_once(':').is_some_and(|(kind, id)| !kind.is_empty() && !id.is_empty()),
            "value does not look like a valid ha resource id".to_owned(),
        ),
        "pve-ha-node" => {
            let (node, rank) = value.split_once(':').unwrap_or((value, "0"));
            let is_rank = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
            (is_label(node) && is_rank, "value does not look like a valid ha node".to_owned())
        }
        "prune-backups" => return prune_backups(value),
        "dns-name" => {
            (value.split('.').all(is_label), "value does not look like a valid DNS name".to_owned())
        }
        "pve-bridge-id" => (is_bridge(value), format!("invalid bridge ID '{value}'")),
        "mac-addr" => (is_mac(value), "value does not look like a valid unicast MAC address".to_owned()),
        "pve-tag" => (is_tag(value), "invalid characters in tag".to_owned()),
        "disk-size" => (is_size(value), format!("value does not look like a valid disk size: {value}")),
        "urlencoded" => (is_urlencoded(value), format!("invalid urlencoded string: {value}")),
        "pve-startup-order" => (is_startup(value), "unable to parse startup options".to_owned()),
        "pve-lxc-dev-string" => (value.starts_with("/dev/"), format!("{value} is not a valid device path")),
        "pve-lxc-mp-string" => (!has_dots(value), format!("{value} contains illegal character sequences")),
        "ipv4" => {
            (value.parse::<Ipv4Addr>().is_ok(), "value does not look like a valid IPv4 address".to_owned())
        }
        "ipv6" => {
            (value.parse::<Ipv6Addr>().is_ok(), "value does not look like a valid IPv6 address".to_owned())
        }
        "address" | "lxc-ip-with-ll-iface" => {
            (value.parse::<IpAddr>().is_ok(), "value does not look like a valid IP address".to_owned())
        }
        "CIDR" => (is_cidr(value, true) || is_cidr(value, false), "invalid CIDR".to_owned()),
        "pve-ipv4-config" => (
            matches!(value, "dhcp" | "manual") || is_cidr(value, true),
            "value does not look like a valid ipv4 network configuration".to_owned(),
        ),
        "pve-ipv6-config" => (
            matches!(value, "auto" | "dhcp" | "manual") || is_cidr(value, false),
            "value does not look like a valid ipv6 network configuration".to_owned(),
        ),
        "pve-ct-timezone" => {
            (matches!(value, "host" | "UTC") || value.contains('/'), format!("invalid time zone '{value}'"))
        }
        "pve-task-status-type" => {
            (matches!(value, "ok" | "error" | "warning" | "unknown"), format!("invalid status '{value}'"))
        }
        "pve-storage-content" => (is_content(value), format!("invalid content type '{value}'")),
        _ => return Ok(()),
    };
    if fits { Ok(()) } else { Err(text + "\n") }
}

/// PVE's lists are separated by commas, semicolons, white space and NUL.
pub(crate) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| matches!(char, ',' | ';' | '\0') || char.is_whitespace())
        .filter(|item| !item.is_empty())
}

/// How many backups to keep, by age; or all.
fn prune_backups(value: &str) -> Result<(), String> {
    let unknown = "property is not defined in schema and the schema does not allow additional properties";
    let mut errors = String::new();
    let keys: Vec<&str> = value.split(',').filter_map(|part| Some(part.split_once('=')?.0)).collect();
    for part in value.split(',').filter(|part| !part.is_empty()) {
        let Some((key, number)) = part.split_once('=') else {
            return Err("value without key, but schema does not define a default key\n".to_owned());
        };
        let counts = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty();
        match key {
            "keep-all" if matches!(number, "0" | "1") => {}
            "keep-last" | "keep-hourly" | "keep-daily" | "keep-weekly" | "keep-monthly" | "keep-yearly" => {
                if !counts {
                    errors +=
                        &format!("prune-backups.{key}: type check ('integer') failed - got '{number}'\n");
                }
            }
            "keep-all" => {
                errors += &format!("prune-backups.{key}: type check ('boolean') failed - got '{number}'\n")
            }
            _ => errors += &format!("prune-backups.{key}: {unknown}\n"),
        }
    }
    if !errors.is_empty() {
        return Err(format!("format error\n{errors}"));
    }
    if keys.contains(&"keep-all") && keys.len() > 1 {
        return Err("keep-all cannot be set together with other options.\n".to_owned());
    }
    Ok(())
}

fn is_vmid(value: &str) -> bool {
    (3..=9).contains(&value.len())
        && !value.starts_with('0')
        && value.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_label(value: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    edge(value.bytes().next())
        && edge(value.bytes().last())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_configid(value: &str) -> bool {
    value.len() >= 2
        && value.starts_with(|char: char| char.is_ascii_alphabetic())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn is_storage_id(value: &str) -> bool {
    value.len() >= 2
        && value.starts_with(|char: char| char.is_ascii_alphabetic())
        && value.ends_with(|char: char| char.is_ascii_alphanumeric())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn is_poolid(value: &str) -> bool {
    let segments: Vec<&str> = value.split('/').collect();
    let legal = |segment: &&str| {
        !segment.is_empty()
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    segments.len() <= 3 && segments.iter().all(legal)
}

fn is_bridge(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|char| char.is_alphanumeric() || matches!(char, '-' | '_' | '.'))
}

fn is_mac(value: &str) -> bool {
    let pairs: Vec<&str> = value.split(':').collect();
    let hex = |pair: &&str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The lowest bit of the first byte tells multicast.
    let unicast =
        pairs.first().and_then(|pair| u8::from_str_radix(pair, 16).ok()).is_some_and(|byte| byte & 1 == 0);
    pairs.len() == 6 && pairs.iter().all(hex) && unicast
}

fn is_tag(value: &str) -> bool {
    value.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '_')
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'.'))
}

fn is_size(value: &str) -> bool {
    let number = value.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(value);
    let mut pieces = number.splitn(2, '.');
    pieces.all(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_urlencoded(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-%_.!~*'()".contains(&byte))
}

fn is_startup(value: &str) -> bool {
    value.split(',').all(|part| {
        let (key, number) = part.split_once('=').unwrap_or(("order", part));
        matches!(key, "order" | "up" | "down")
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

fn has_dots(value: &str) -> bool {
    value.split('/').any(|part| matches!(part, "." | ".."))
}

fn is_cidr(value: &str, v4: bool) -> bool {
    let Some((address, prefix)) = value.split_once('/') else { return false };
    let Ok(prefix) = prefix.parse::<u8>() else { return false };
    if v4 {
        prefix <= 32 && address.parse::<Ipv4Addr>().is_ok()
    } else {
        prefix <= 128 && address.parse::<Ipv6Addr>().is_ok()
    }
}

fn is_content(value: &str) -> bool {
    matches!(value, "images" | "rootdir" | "vztmpl" | "iso" | "backup" | "snippets" | "import" | "none")
}
