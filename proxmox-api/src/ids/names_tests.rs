//! Tests of the names of firewalls, HA, pools, guests and disks.

use proptest::prelude::*;

use super::*;
use crate::guest::GuestKind;

/// Texts that must not reach a request line, whatever name they are taken for.
const HOSTILE: [&str; 16] = [
    "",
    " ",
    "../x",
    "..",
    "a%2fb",
    "a?b",
    "a#b",
    "ab\r\nHost: evil",
    "ab\n",
    "ab\0",
    "\u{ff41}\u{ff42}",
    "a b",
    "a;b",
    "a,b",
    "a=b",
    "a\\b",
];

#[test]
fn px_07_no_hostile_text_is_a_name() {
    for text in HOSTILE {
        assert!(text.parse::<SecurityGroup>().is_err(), "group {text:?}");
        assert!(text.parse::<IpSetName>().is_err(), "set {text:?}");
        assert!(text.parse::<AliasName>().is_err(), "alias {text:?}");
        assert!(text.parse::<Cidr>().is_err(), "network {text:?}");
        assert!(text.parse::<IpSetMember>().is_err(), "member {text:?}");
        assert!(text.parse::<HaSid>().is_err(), "resource {text:?}");
        assert!(text.parse::<RuleName>().is_err(), "rule {text:?}");
        assert!(text.parse::<DnsName>().is_err(), "guest {text:?}");
        assert!(text.parse::<DiskSlot>().is_err(), "disk {text:?}");
        assert!(text.parse::<DiskSize>().is_err(), "size {text:?}");
        // Pools are never part of a path, and PVE has ones with dots.
        if !text.starts_with("..") {
            assert!(text.parse::<PoolId>().is_err(), "pool {text:?}");
        }
    }
}

#[test]
fn names_of_the_firewall_have_their_lengths() {
    for (name, group, set) in [
        ("web", true, true),
        ("We-b_1", true, true),
        ("w", false, false),
        ("1w", false, false),
        (&"g".repeat(18), true, true),
        (&"g".repeat(19), false, true),
        (&"g".repeat(64), false, true),
        (&"g".repeat(65), false, false),
    ] {
        assert_eq!(name.parse::<SecurityGroup>().is_ok(), group, "{name}");
        assert_eq!(name.parse::<IpSetName>().is_ok(), set, "{name}");
        assert_eq!(name.parse::<AliasName>().is_ok(), set, "{name}");
    }
}

#[test]
fn networks_and_members_of_sets() {
    for good in ["10.0.0.1", "10.0.0.0/24", "0.0.0.0/0", "fe80::/64", "::1", "2001:db8::/32", "10.0.0.1/32"] {
        assert_eq!(good.parse::<Cidr>().unwrap().as_str(), good);
        assert!(matches!(good.parse().unwrap(), IpSetMember::Cidr(cidr) if cidr.as_str() == good));
    }
    for bad in [
        "10.0.0.0/33",
        "10.0.0/24",
        "::/129",
        "10.0.0.0/024",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0.1-10.0.0.9",
    ] {
        assert!(bad.parse::<Cidr>().is_err() && bad.parse::<IpSetMember>().is_err(), "{bad}");
    }
    for (text, scope) in
        [("lan", None), ("dc/lan", Some(AliasScope::Dc)), ("guest/lan", Some(AliasScope::Guest))]
    {
        let member: IpSetMember = text.parse().unwrap();
        assert_eq!(member.to_string(), text);
        assert_eq!(member, IpSetMember::Alias { scope, name: "lan".parse().unwrap() });
    }
    for bad in ["other/lan", "dc/", "dc/x", "/lan", "dc/lan/x", "+lan"] {
        assert!(bad.parse::<IpSetMember>().is_err(), "{bad}");
    }
}

#[test]
fn resources_and_rules_of_ha() {
    let sid: HaSid = "vm:100".parse().unwrap();
    assert_eq!((sid.kind, sid.vmid.get(), sid.to_string()), (GuestKind::Qemu, 100, "vm:100".to_owned()));
    assert_eq!("ct:200".parse::<HaSid>().unwrap().kind, GuestKind::Lxc);
    for bad in ["100", "vm:", "vm:99", "vm:0100", "VM:100", "foo:100", "vm:100:1"] {
        assert!(bad.parse::<HaSid>().is_err(), "{bad}");
    }
    assert!("r1".parse::<RuleName>().is_ok() && "r".parse::<RuleName>().is_err());
}

#[test]
fn pools_have_three_levels_at_most() {
    for good in ["p", "-p", "p_1.x", "a/b", "a/b/c"] {
        assert!(good.parse::<PoolId>().is_ok(), "{good}");
    }
    for bad in ["a/b/c/d", "/a", "a/", "a//b", "p 1"] {
        assert!(bad.parse::<PoolId>().is_err(), "{bad}");
    }
}

#[test]
fn guests_have_names_of_the_dns() {
    for good in ["web", "web1.example", "A-1", "1a", &"a".repeat(63)] {
        assert!(good.parse::<DnsName>().is_ok(), "{good}");
    }
    for bad in ["a_b", "-a", "a-", "a..b", ".a", "a.", "\u{fc}ber", &"a".repeat(64)] {
        assert!(bad.parse::<DnsName>().is_err(), "{bad}");
    }
}

#[test]
fn disks_belong_to_a_kind_of_guest() {
    for (slot, kind) in [
        ("ide0", GuestKind::Qemu),
        ("ide3", GuestKind::Qemu),
        ("sata5", GuestKind::Qemu),
        ("scsi30", GuestKind::Qemu),
        ("virtio15", GuestKind::Qemu),
        ("efidisk0", GuestKind::Qemu),
        ("tpmstate0", GuestKind::Qemu),
        ("rootfs", GuestKind::Lxc),
        ("mp0", GuestKind::Lxc),
        ("mp255", GuestKind::Lxc),
    ] {
        assert_eq!(slot.parse::<DiskSlot>().unwrap().kind(), kind, "{slot}");
    }
    for bad in [
        "ide4", "sata6", "scsi31", "virtio16", "mp256", "mp", "scsi", "scsi01", "scsi+1", "scsihw", "unused0",
    ] {
        assert!(bad.parse::<DiskSlot>().is_err(), "{bad}");
    }
}

#[test]
fn sizes_say_how_many_bytes_they_are() {
    for (text, bytes) in [("10", 10), ("1K", 1024), ("32G", 32 << 30), ("512M", 512 << 20), ("2T", 2 << 40)] {
        let size: DiskSize = text.parse().unwrap();
        assert_eq!((size.bytes(), size.to_string().as_str()), (Some(bytes), text));
    }
    for bad in [
        "0",
        "0G",
        "+1G",
        "-1G",
        "10g",
        "10GB",
        "10 G",
        "1.5G",
        "G",
        "01G",
        "99999999999T",
        "18446744073709551616",
    ] {
        assert!(bad.parse::<DiskSize>().is_err(), "{bad}");
    }
    assert_eq!(DiskSize::gib(4).to_string(), "4G");
}

proptest! {
    #[test]
    fn what_parses_prints_as_it_came(text in "\\PC{0,24}|[a-z0-9:./-]{0,24}\n?|(vm|ct|scsi|mp|dc/)[a-z0-9:]{0,9}") {
        macro_rules! same {
            ($($id:ty),*) => {$(
                if let Ok(id) = text.parse::<$id>() {
                    prop_assert_eq!(id.to_string(), text.clone());
                    prop_assert!(!text.contains(|c: char| c.is_control() || c.is_whitespace()));
                }
            )*};
        }
        same!(SecurityGroup, IpSetName, AliasName, Cidr, IpSetMember, HaSid, RuleName, PoolId, DnsName, DiskSlot, DiskSize);
    }
}
