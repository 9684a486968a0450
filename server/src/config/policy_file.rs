//! Reading the `policy` of `clusters.json`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use authz::json::{At, Fields, Findings};

use super::policy::{FetchPolicy, Limits, Policy, TransferPolicy};

/// Reads `policy`; what is wrong goes to `findings` and leaves the default in place.
pub(super) fn read(at: &At<'_>, findings: &mut Findings<'_>) -> Policy {
    let mut policy = Policy::default();
    let Some(mut fields) = at.fields(findings) else { return policy };
    if let Some(seconds) = bounded(&mut fields, "resource_cache_ttl_secs", 0..=3600, findings) {
        policy.resource_cache_ttl = Duration::from_secs(seconds);
    }
    if let Some(at) = fields.optional("public_url")
        && let Some(text) = at.text(findings)
    {
        match public_url(text) {
            Ok(url) => policy.public_url = Some(url),
            Err(problem) => findings.problem(&at, problem),
        }
    }
    if let Some(at) = fields.optional("transfers") {
        policy.transfers = transfers(&at, findings);
    }
    if let Some(at) = fields.optional("fetch") {
        policy.fetch = fetch(&at, findings);
    }
    if let Some(at) = fields.optional("limits") {
        policy.limits = limits(&at, findings);
    }
    if let Some(at) = fields.optional("trusted_proxies") {
        policy.trusted_proxies = parsed_list(&at, findings);
    }
    fields.finish(findings);
    policy
}

fn transfers(at: &At<'_>, findings: &mut Findings<'_>) -> TransferPolicy {
    let mut transfers = TransferPolicy::default();
    let Some(mut fields) = at.fields(findings) else { return transfers };
    // 16 TiB: more than PVE lets a guest's disk file be on most storages, far from overflow.
    if let Some(mib) = bounded(&mut fields, "max_mb", 1..=16 << 20, findings) {
        transfers.max_bytes = mib << 20;
    }
    if let Some(mib) = bounded(&mut fields, "agent_max_mb", 1..=4096, findings) {
        transfers.agent_max_bytes = mib << 20;
    }
    if let Some(at) = fields.optional("dir")
        && let Some(text) = at.text(findings)
    {
        let path = PathBuf::from(text);
        if path.is_absolute() {
            transfers.dir = Some(path);
        } else {
            findings.problem(&at, "expected the absolute path of a directory");
        }
    }
    if let Some(at) = fields.optional("lxc_route")
        && let Some(text) = at.text(findings)
    {
        match text.parse() {
            Ok(route) => transfers.lxc_route = route,
            Err(_) => findings.problem(&at, "expected stream or sftp+pct_push"),
        }
    }
    if let Some(mib) = bounded(&mut fields, "proxy_max_mb", 1..=16 << 20, findings) {
        transfers.proxy_max_bytes = Some(mib << 20);
    }
    fields.finish(findings);
    transfers
}

fn fetch(at: &At<'_>, findings: &mut Findings<'_>) -> FetchPolicy {
    let mut fetch = FetchPolicy::default();
    let Some(mut fields) = at.fields(findings) else { return fetch };
    if let Some(at) = fields.optional("allow") {
        fetch.allow = parsed_list(&at, findings);
    }
    if let Some(at) = fields.optional("ports")
        && let Some(items) = at.items(findings)
    {
        fetch.ports.clear();
        for item in items {
            match item.number(findings).map(u16::try_from) {
                Some(Ok(port)) if port != 0 => fetch.ports.push(port),
                Some(_) => findings.problem(&item, "expected a port from 1 to 65535"),
                None => {}
            }
        }
    }
    if let Some(at) = fields.optional("nat64")
        && let Some(on) = at.bool(findings)
    {
        fetch.nat64 = on;
    }
    fields.finish(findings);
    fetch
}

fn limits(at: &At<'_>, findings: &mut Findings<'_>) -> Limits {
    let mut limits = Limits::default();
    let Some(mut fields) = at.fields(findings) else { return limits };
    for (name, range, value) in limits.fields() {
        if let Some(number) = bounded(&mut fields, name, range, findings) {
            *value = number;
        }
    }
    fields.finish(findings);
    limits
}

fn bounded(
    fields: &mut Fields<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    findings: &mut Findings<'_>,
) -> Option<u64> {
    let at = fields.optional(name)?;
    let number = at.number(findings)?;
    if range.contains(&number) {
        return Some(number);
    }
    findings.problem(&at, format!("expected a number from {} to {}", range.start(), range.end()));
    None
}

fn parsed_list<T: FromStr<Err: std::fmt::Display>>(at: &At<'_>, findings: &mut Findings<'_>) -> Vec<T> {
    let mut values = Vec::new();
    for item in at.items(findings).unwrap_or_default() {
        if let Some(text) = item.text(findings) {
            match text.parse::<T>() {
                Ok(value) => values.push(value),
                Err(error) => findings.problem(&item, error.to_string()),
            }
        }
    }
    values
}

/// Checks the base of minted URLs: `https`, or `http` on a loopback name; a path is kept, a trailing slash is not.
fn public_url(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{what}: expected a URL such as https://proxward.example.org"));
    let Ok(uri) = text.parse::<http::Uri>() else { return wrong("not a URL") };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return wrong("scheme or host is missing");
    };
    if authority.as_str().contains('@') || uri.query().is_some() || text.contains('#') {
        return wrong("user name, query and fragment have no place in it");
    }
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let loopback =
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => {}
        "http" if loopback => {}
        _ => return wrong("links carry a secret, so only https will do (http on a loopback address)"),
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::public_url;

    #[test]
    fn ul_37_the_public_url_is_https_and_bare() {
        assert_eq!(public_url("https://h.example/").unwrap(), "https://h.example");
        assert_eq!(public_url("https://h.example:8443/gate/").unwrap(), "https://h.example:8443/gate");
        assert_eq!(public_url("http://127.0.0.1:30030").unwrap(), "http://127.0.0.1:30030");
        assert_eq!(public_url("http://[::1]:1").unwrap(), "http://[::1]:1");
        for wrong in [
            "",
            "h.example",
            "/x",
            "ftp://h",
            "http://h.example",
            "https://u@h",
            "https://u:p@h",
            "https://h/?q",
            "https://h/#f",
            "http://127.0.0.1.example",
        ] {
            assert!(public_url(wrong).is_err(), "{wrong}");
        }
    }
}
