//! Arguments from all over what the client's types allow.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::select};
use proxmox_api::{
    AliasName, Cidr, Digest, DiskSize, DiskSlot, DnsName, FirewallScope, GuestKind, GuestRef, HaSid,
    IpSetMember, IpSetName, NodeName, PoolId, RuleName, SecurityGroup, SnapName, StorageId, Tags, Upid, Vmid,
    Volid,
};

/// One of each thing a method can ask for. Which optional ones are given is decided by `flags`.
#[derive(Debug, Clone)]
pub(crate) struct Args {
    pub(crate) node: NodeName,
    /// Another node.
    pub(crate) target: NodeName,
    pub(crate) vmid: Vmid,
    pub(crate) vmids: Vec<Vmid>,
    pub(crate) storage: StorageId,
    pub(crate) other_storage: StorageId,
    pub(crate) volid: Volid,
    pub(crate) snap: SnapName,
    /// Any text PVE takes for a description or comment.
    pub(crate) text: String,
    pub(crate) name: DnsName,
    pub(crate) pool: PoolId,
    pub(crate) group: SecurityGroup,
    pub(crate) ipset: IpSetName,
    pub(crate) alias: AliasName,
    pub(crate) cidr: Cidr,
    pub(crate) member: IpSetMember,
    pub(crate) rule: RuleName,
    pub(crate) digest: Digest,
    pub(crate) upid: Upid,
    pub(crate) size: DiskSize,
    pub(crate) qemu_slot: DiskSlot,
    pub(crate) lxc_slot: DiskSlot,
    pub(crate) tags: Tags,
    pub(crate) bytes: Vec<u8>,
    pub(crate) words: Vec<String>,
    pub(crate) number: u32,
    pub(crate) flags: [bool; 12],
}

impl Args {
    /// The value when flag `n` is set.
    pub(crate) fn some<T>(&self, n: usize, value: T) -> Option<T> {
        self.flags[n].then_some(value)
    }

    pub(crate) fn kind(&self) -> GuestKind {
        if self.flags[11] { GuestKind::Qemu } else { GuestKind::Lxc }
    }

    pub(crate) fn guest(&self) -> GuestRef {
        self.of(self.kind())
    }

    pub(crate) fn of(&self, kind: GuestKind) -> GuestRef {
        GuestRef { node: self.node.clone(), kind, vmid: self.vmid }
    }

    pub(crate) fn qemu(&self) -> GuestRef {
        self.of(GuestKind::Qemu)
    }

    pub(crate) fn lxc(&self) -> GuestRef {
        self.of(GuestKind::Lxc)
    }

    /// A firewall that has aliases and IP sets.
    pub(crate) fn object_scope(&self) -> FirewallScope {
        if self.flags[10] { FirewallScope::Cluster } else { FirewallScope::Guest(self.guest()) }
    }

    /// Any firewall with options.
    pub(crate) fn option_scope(&self) -> FirewallScope {
        if self.flags[9] { FirewallScope::Node(self.node.clone()) } else { self.object_scope() }
    }

    /// Any firewall.
    pub(crate) fn rule_scope(&self) -> FirewallScope {
        if self.flags[8] { FirewallScope::Group(self.group.clone()) } else { self.option_scope() }
    }

    pub(crate) fn sid(&self) -> HaSid {
        HaSid { kind: self.kind(), vmid: self.vmid }
    }

    /// At least two.
    pub(crate) fn sids(&self) -> Vec<HaSid> {
        let more = self.vmids.iter().map(|vmid| HaSid { kind: GuestKind::Lxc, vmid: *vmid });
        std::iter::once(self.sid()).chain(more).collect()
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        self.some(0, self.text.as_str())
    }

    pub(crate) fn options(&self, pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        if !self.flags[1] {
            return BTreeMap::new();
        }
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }
}

/// Texts that match a pattern, parsed. What the pattern gives and the parser refuses is not asked for.
fn parsed<T: std::str::FromStr + std::fmt::Debug>(pattern: &'static str) -> impl Strategy<Value = T> {
    pattern.prop_filter_map("not one", |text| text.parse().ok())
}

fn vmid() -> impl Strategy<Value = Vmid> {
    prop_oneof![Just(100), Just(999_999_999), 100..=999_999_999_u32].prop_map(|n| Vmid::new(n).unwrap())
}

fn cidr() -> impl Strategy<Value = Cidr> {
    // Without bits below the prefix.
    prop_oneof![
        (any::<[u8; 4]>(), 0..=32_u32).prop_map(|(octets, length)| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            format!("{}/{length}", std::net::Ipv4Addr::from(u32::from_be_bytes(octets) & mask))
        }),
        any::<[u8; 4]>().prop_map(|octets| std::net::Ipv4Addr::from(octets).to_string()),
        any::<[u8; 16]>().prop_map(|octets| std::net::Ipv6Addr::from(octets).to_string()),
        any::<[u8; 6]>()
            .prop_map(|[a, b, c, d, e, f]| format!("2001:{a:x}{b:02x}:{c:x}{d:02x}:{e:x}{f:02x}::/64")),
    ]
    .prop_map(|text| text.parse().unwrap())
}

fn member() -> impl Strategy<Value = IpSetMember> {
    prop_oneof![
        cidr().prop_map(IpSetMember::Cidr),
        parsed::<AliasName>("[A-Za-z][A-Za-z0-9_-]{1,20}")
            .prop_map(|name| IpSetMember::Alias { scope: None, name }),
        parsed("dc/[A-Za-z][A-Za-z0-9_-]{1,20}"),
    ]
}

/// Text with everything that has a meaning in a URL, a form or JSON.
fn text() -> impl Strategy<Value = String> {
    let odd = select("&=;+%#?/\\\"'<>{}[]|,: äß€🦀\u{7f}-".replace('\u{7f}', "").chars().collect::<Vec<_>>());
    vec(prop_oneof![odd, proptest::char::range('!', '~')], 1..40)
        .prop_map(|chars| chars.into_iter().collect())
}

type Names = (DnsName, PoolId, SecurityGroup, IpSetName, AliasName, RuleName, SnapName);

fn names() -> impl Strategy<Value = Names> {
    (
        parsed("[a-zA-Z0-9]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?(\\.[a-z0-9]{1,10}){0,2}"),
        parsed("[A-Za-z0-9._-]{1,12}(/[A-Za-z0-9._-]{1,12}){0,2}"),
        parsed("[A-Za-z][A-Za-z0-9_-]{1,17}"),
        parsed("[A-Za-z][A-Za-z0-9_-]{1,63}"),
        parsed("[A-Za-z][A-Za-z0-9_-]{1,63}"),
        parsed("[A-Za-z][A-Za-z0-9_-]{1,30}"),
        parsed("[A-Za-z][A-Za-z0-9_-]{1,39}"),
    )
}

type Places = (NodeName, NodeName, Vmid, Vec<Vmid>, StorageId, StorageId, Volid, Upid);

fn places() -> impl Strategy<Value = Places> {
    (
        parsed("[a-zA-Z0-9]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?"),
        parsed("[a-zA-Z0-9]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?-t"),
        vmid(),
        vec(vmid(), 1..4),
        parsed("[a-zA-Z][a-zA-Z0-9._-]{0,10}[a-zA-Z0-9]"),
        parsed("[a-zA-Z][a-zA-Z0-9._-]{0,10}[a-zA-Z0-9]"),
        parsed(
            "[a-zA-Z][a-zA-Z0-9._-]{0,8}[a-z0-9]:(iso|backup|vztmpl)/[a-zA-Z0-9+@=&;_-]{1,20}(\\.iso|:[0-9]{2}Z)",
        ),
        parsed(
            "UPID:pve[0-9]{1,2}:[0-9A-F]{8}:[0-9A-F]{8}:[0-9A-F]{8}:(qmstart|vzdump|imgcopy):([1-9][0-9]{2,5}|x\\.iso)?:root@pam(!tok)?:",
        ),
    )
}

type Values = (Cidr, IpSetMember, Digest, DiskSize, DiskSlot, DiskSlot, Tags, Vec<u8>, Vec<String>);

fn values() -> impl Strategy<Value = Values> {
    (
        cidr(),
        member(),
        parsed("[0-9a-f]{40}"),
        parsed("[1-9][0-9]{0,4}[KMGT]?"),
        parsed("(ide[0-3]|sata[0-5]|scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5]))"),
        parsed("(rootfs|mp([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]))"),
        vec("[a-z0-9_][a-z0-9_+.-]{0,12}", 0..4).prop_map(|tags| tags.into_iter().collect()),
        vec(any::<u8>(), 0..600),
        vec(text(), 1..4),
    )
}

pub(crate) fn args() -> impl Strategy<Value = Args> {
    (names(), places(), values(), text(), any::<u32>(), any::<[bool; 12]>()).prop_map(
        |(names, places, values, text, number, flags)| {
            let (name, pool, group, ipset, alias, rule, snap) = names;
            let (node, target, vmid, vmids, storage, other_storage, volid, upid) = places;
            let (cidr, member, digest, size, qemu_slot, lxc_slot, tags, bytes, words) = values;
            Args {
                node,
                target,
                vmid,
                vmids,
                storage,
                other_storage,
                volid,
                snap,
                text,
                name,
                pool,
                group,
                ipset,
                alias,
                cidr,
                member,
                rule,
                digest,
                upid,
                size,
                qemu_slot,
                lxc_slot,
                tags,
                bytes,
                words,
                number,
                flags,
            }
        },
    )
}
