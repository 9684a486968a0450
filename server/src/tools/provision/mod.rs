//! New guests: made, or cloned from one that is there. What is common to all of them is here: the number must be free, the node
//! must be up, and no argument may reach the host or a volume that exists.

pub mod clone;
pub mod container;
pub mod vm;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use authz::GuestKind;
use proxmox_api::{NewNet, NodeName, PoolId, Tags, Vmid};

use super::args::id;
use crate::catalog;
use crate::changes::guest_config;
use crate::config::Cluster;
use crate::resolve::Freshness;
use crate::stack::{CallContext, ToolFailure};

/// The scope that a token needs besides to put a new guest into a pool, which decides who may act on it.
pub const POOL_SCOPE: &str = "set_guest_pool";
/// The same for tags: the tool that changes them.
pub const TAGS_SCOPE: &str = "update_guest_notes_tags";
/// Most tags of one guest, and longest of them.
const MAX_TAGS: usize = 32;
const MAX_TAG: usize = 64;

pub(super) fn wrong(field: &str, why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{field}`: {why}")).with("field", field.to_owned())
}

/// Refuses a number that a guest has, and a node that is not there or not up, on a listing fetched for this call. PVE restores
/// backups by the same request as it makes guests, so nothing is sent for a number that is taken.
///
/// # Errors
/// Whichever of them it is.
pub(super) async fn free_place(
    ctx: &CallContext,
    cluster: &Arc<Cluster>,
    node: Option<&NodeName>,
    vmid: Vmid,
) -> Result<(), ToolFailure> {
    let inventory = ctx.app.resolver.inventory(cluster, Freshness::Now).await?;
    if inventory.numbered(vmid).next().is_some() {
        return Err(ToolFailure::new(
            "vmid_taken",
            format!(
                "guest {vmid} exists already, and nothing may be made over it; choose a number that is free"
            ),
        ));
    }
    let Some(node) = node else { return Ok(()) };
    let known = inventory.nodes().find(|entry| entry.node().as_deref() == Some(node.as_str()));
    let status = known.map(|entry| entry.status().map(|status| status.into_owned()).unwrap_or_default());
    match status.as_deref() {
        Some("online") => Ok(()),
        None => Err(ToolFailure::new(
            "unknown_node",
            format!("the cluster has no node {node}; get_nodes lists those it has"),
        )
        .with("field", "node")),
        Some(_) => Err(ToolFailure::new(
            "node_unreachable",
            format!("node {node} is not online; choose another, or wait until it is back"),
        )
        .with("field", "node")),
    }
}

/// The pool of a new guest, where the token may choose one.
///
/// # Errors
/// The token lacks [`POOL_SCOPE`], or it is no name of a pool.
pub(super) fn pool(
    ctx: &CallContext,
    cluster: &Cluster,
    pool: Option<&str>,
) -> Result<Option<PoolId>, ToolFailure> {
    let Some(pool) = pool else { return Ok(None) };
    require_scope(ctx, cluster, POOL_SCOPE)?;
    id("pool", pool).map(Some)
}

/// The tags of a new guest, where the token may choose them.
///
/// # Errors
/// The token lacks [`TAGS_SCOPE`], or one is no tag.
pub(super) fn tags(
    ctx: &CallContext,
    cluster: &Cluster,
    tags: Option<Vec<String>>,
) -> Result<Tags, ToolFailure> {
    let Some(tags) = tags.filter(|tags| !tags.is_empty()) else { return Ok(Tags::default()) };
    require_scope(ctx, cluster, TAGS_SCOPE)?;
    checked_tags("tags", tags)
}

/// Tags as PVE takes them.
///
/// # Errors
/// One that PVE would refuse, or split into several.
pub(super) fn checked_tags(field: &str, tags: Vec<String>) -> Result<Tags, ToolFailure> {
    if tags.len() > MAX_TAGS {
        return Err(wrong(field, format!("{} tags; expected at most {MAX_TAGS}", tags.len())));
    }
    for tag in &tags {
        let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let other = |c: char| first(c) || matches!(c, '-' | '+' | '.');
        let mut chars = tag.chars();
        if tag.len() > MAX_TAG || !chars.next().is_some_and(first) || !chars.all(other) {
            return Err(wrong(
                field,
                format!(
                    "`{}` is no tag: expected a letter, digit or `_`, then letters, digits and `_-+.`, at most {MAX_TAG}",
                    tag.escape_debug()
                ),
            ));
        }
    }
    Ok(tags.into_iter().collect())
}

fn require_scope(ctx: &CallContext, cluster: &Cluster, scope: &str) -> Result<(), ToolFailure> {
    let Some(rule) = catalog::rule(scope) else {
        return Err(ToolFailure::new("internal", format!("the scope `{scope}` is not in the catalog")));
    };
    authz::admit(&ctx.caller.principal, rule, Some(&cluster.name), ctx.now()).map(drop)?;
    Ok(())
}

/// The first network interface, where one is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NetWish<'a> {
    pub bridge: Option<&'a str>,
    pub vlan: Option<u16>,
    pub firewall: Option<bool>,
}

impl NetWish<'_> {
    /// # Errors
    /// Settings of an interface without a bridge that it could be on; a bridge that is no name.
    pub(super) fn net(self, options: BTreeMap<String, String>) -> Result<Vec<NewNet>, ToolFailure> {
        let Some(bridge) = self.bridge else {
            if self.vlan.is_some() || self.firewall.is_some() || !options.is_empty() {
                return Err(wrong(
                    "bridge",
                    "it is missing: the network settings given here are of an interface on one",
                ));
            }
            return Ok(Vec::new());
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if bridge.is_empty() || bridge.len() > 64 || !bridge.chars().all(plain) {
            return Err(wrong("bridge", "expected the name of a bridge, such as `vmbr0`"));
        }
        if self.vlan.is_some_and(|vlan| !(1..=4094).contains(&vlan)) {
            return Err(wrong("vlan", "expected 1 to 4094"));
        }
        Ok(vec![NewNet {
            bridge: bridge.to_owned(),
            tag: self.vlan,
            firewall: self.firewall.unwrap_or(true),
            options,
            ..NewNet::default()
        }])
    }
}

/// An address for the first interface: `dhcp`, or an address with its prefix length, and the gateway.
///
/// # Errors
/// Anything else, and a gateway without an address.
pub(super) fn address(
    ip: Option<&str>,
    gateway: Option<&str>,
) -> Result<BTreeMap<String, String>, ToolFailure> {
    let mut options = BTreeMap::new();
    if let Some(ip) = ip {
        let is_cidr = |text: &str| {
            text.split_once('/').is_some_and(|(address, prefix)| {
                let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
                match (address.parse(), prefix.parse::<u8>()) {
                    (Ok(std::net::IpAddr::V4(_)), Ok(prefix)) => digits && prefix <= 32,
                    _ => false,
                }
            })
        };
        if ip != "dhcp" && !is_cidr(ip) {
            return Err(wrong(
                "ip",
                "expected `dhcp` or an IPv4 address with its prefix length, such as `192.0.2.10/24`",
            ));
        }
        options.insert("ip".to_owned(), ip.to_owned());
    }
    if let Some(gateway) = gateway {
        if ip.is_none_or(|ip| ip == "dhcp") {
            return Err(wrong("gateway", "it goes with an address in `ip`"));
        }
        if gateway.parse::<std::net::Ipv4Addr>().is_err() {
            return Err(wrong("gateway", "expected an IPv4 address"));
        }
        options.insert("gw".to_owned(), gateway.to_owned());
    }
    Ok(options)
}

/// Keys as PVE takes them, beside the arguments: the same ones that may be changed later, each with a value that says nothing
/// about the host. `volume` takes those that make new volumes.
///
/// # Errors
/// A key or a value that may not be given.
pub(super) fn plain_keys(
    kind: GuestKind,
    config: BTreeMap<String, String>,
    mut volume: impl FnMut(&str, &str) -> Result<bool, ToolFailure>,
) -> Result<BTreeMap<String, String>, ToolFailure> {
    let mut plain = BTreeMap::new();
    for (key, value) in config {
        if value.chars().any(char::is_control) {
            return Err(wrong(
                "config",
                format!("`{}`: a line break or control character", key.escape_debug()),
            ));
        }
        if volume(&key, &value)? {
            continue;
        }
        guest_config::allowed(kind, &key).map_err(|why| wrong("config", why))?;
        guest_config::check_value(&key, &value).map_err(|why| wrong("config", why))?;
        plain.insert(key, value);
    }
    Ok(plain)
}

/// Public keys for a first login, as `authorized_keys` holds them.
///
/// # Errors
/// A line that is no public key.
pub(super) fn public_keys(keys: Option<String>) -> Result<Option<String>, ToolFailure> {
    let Some(keys) = keys else { return Ok(None) };
    const KINDS: &[&str] = &["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];
    let lines: Vec<&str> = keys.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_key = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next().is_some_and(|word| KINDS.iter().any(|kind| word.starts_with(kind)));
        kind && words.next().is_some_and(|blob| blob.len() > 16)
    };
    if lines.is_empty() || lines.len() > 32 || keys.len() > 16 * 1024 {
        return Err(wrong("ssh_public_keys", "expected 1 to 32 public keys, one to a line"));
    }
    if !lines.iter().all(|line| is_key(line) && !line.chars().any(char::is_control)) {
        return Err(wrong(
            "ssh_public_keys",
            "expected public keys as in `authorized_keys`, one to a line, without options",
        ));
    }
    Ok(Some(lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn px_08_what_reaches_the_host_or_a_volume_is_no_key_of_a_new_guest() {
        let of = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        for kind in [GuestKind::Qemu, GuestKind::Lxc] {
            for (key, value) in [
                ("hookscript", "local:snippets/x.pl"),
                ("args", "-device x"),
                ("hostpci0", "0000:01:00.0"),
                ("usb0", "host=1234:5678"),
                ("dev0", "/dev/kvm"),
                ("serial0", "/dev/ttyS0"),
                ("parallel0", "/dev/parport0"),
                ("lxc.cgroup2.devices.allow", "a"),
                ("Cores", "2"),
                ("CORES", "2"),
                ("cores\u{0}", "2"),
                ("archive", "local:backup/x.vma"),
                ("restore", "1"),
                ("force", "1"),
                ("ostemplate", "local:vztmpl/x.tar.zst"),
                ("delete", "protection"),
                ("protection", "0"),
                ("unprivileged", "0"),
                ("features", "mount=nfs"),
                ("tags", "prod"),
                ("pool", "prod"),
                ("unknown", "1"),
                ("cores", "2\nhookscript: x"),
                ("net0", "virtio,bridge=/etc/shadow"),
                ("cicustom", "user=local:snippets/x"),
            ] {
                let refused = plain_keys(kind, of(key, value), |_, _| Ok(false));
                assert!(refused.is_err(), "{kind:?} {key}={value}");
            }
            assert!(plain_keys(kind, of("cores", "2"), |_, _| Ok(false)).is_ok());
        }
    }

    #[test]
    fn an_address_is_dhcp_or_one_with_a_prefix() {
        let good = address(Some("192.0.2.10/24"), Some("192.0.2.1")).unwrap();
        assert_eq!(good.get("gw").map(String::as_str), Some("192.0.2.1"));
        assert_eq!(address(Some("dhcp"), None).unwrap().len(), 1);
        for (ip, gateway) in [
            (Some("192.0.2.10"), None),
            (Some("192.0.2.10/33"), None),
            (Some("192.0.2.10/+4"), None),
            (Some("dhcp,gw=192.0.2.1"), None),
            (Some("dhcp"), Some("192.0.2.1")),
            (None, Some("192.0.2.1")),
            (Some("192.0.2.10/24"), Some("x")),
        ] {
            assert!(address(ip, gateway).is_err(), "{ip:?} {gateway:?}");
        }
    }

    #[test]
    fn tags_and_keys_are_what_pve_takes() {
        let tags = |tags: &[&str]| checked_tags("tags", tags.iter().map(|tag| (*tag).to_owned()).collect());
        assert_eq!(tags(&["web", "prod-1", "_x"]).unwrap().len(), 3);
        for bad in ["", "a;b", "a,b", "a b", "-a", "ä", &"x".repeat(65)] {
            assert!(tags(&[bad]).is_err(), "{bad:?}");
        }
        let keys = |text: &str| public_keys(Some(text.to_owned()));
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@home";
        assert_eq!(keys(&format!("\n {key}\r\n{key}\n")).unwrap().unwrap().lines().count(), 2);
        for bad in ["", "\n", "hello", "command=\"x\" ssh-ed25519 AAAA", "ssh-ed25519 short"] {
            assert!(keys(bad).is_err(), "{bad:?}");
        }
    }
}
