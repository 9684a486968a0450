//! Values PVE's own parameter checks refused when they were recorded, where the recordings are at hand: no type of this
//! crate can hold one, and no builder sends one.

use std::{collections::BTreeMap, path::Path, str::FromStr};

use proxmox_api::{
    AliasName, Checksum, ChecksumAlgorithm, Cidr, DiskSize, DiskSlot, DnsName, FileName, HaSid, IpSetMember,
    IpSetName, NodeName, PoolId, RuleName, SecurityGroup, SnapName, StorageId, Upid, Vmid, Volid,
};
use serde_json::Value;

fn is<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

/// All parts of a list separated as PVE does.
fn all<T: FromStr>(text: &str) -> bool {
    !text.is_empty() && text.split([',', ';', ' ']).all(is::<T>)
}

/// Whether the type a value goes through takes it; `None` where it goes through none.
fn takes(method: &str, path: &str, parameter: &str, value: &str) -> Option<bool> {
    let last = path.rsplit('/').next().unwrap_or_default();
    Some(match (parameter, last) {
        ("newid", "clone") | ("vmid", "qemu" | "lxc" | "content") => is::<Vmid>(value),
        ("vms", "pools") | ("vmid", "vzdump") => all::<Vmid>(value),
        ("name", "clone") | ("hostname", "clone") => is::<DnsName>(value),
        ("snapname", _) => is::<SnapName>(value),
        ("target", "migrate" | "clone") => is::<NodeName>(value),
        ("storage", "clone" | "vzdump" | "qemu" | "lxc") => is::<StorageId>(value),
        ("disk", "resize") => {
            let kind = if path.contains("/qemu/") {
                proxmox_api::GuestKind::Qemu
            } else {
                proxmox_api::GuestKind::Lxc
            };
            value.parse::<DiskSlot>().is_ok_and(|slot| slot.kind() == kind)
        }
        // `By` writes the sign.
        ("size", "resize") => is::<DiskSize>(value.strip_prefix('+').unwrap_or(value)),
        ("group", "groups") => is::<SecurityGroup>(value),
        ("name", "ipset") => is::<IpSetName>(value),
        ("name", "aliases") => is::<AliasName>(value),
        ("cidr", "aliases") => is::<Cidr>(value),
        ("cidr", _) if path.contains("/ipset/") => is::<IpSetMember>(value),
        ("poolid", "pools") => is::<PoolId>(value),
        ("sid", "resources") => is::<HaSid>(value),
        ("rule", "rules") if method == "POST" => is::<RuleName>(value),
        ("resources", "rules") => all::<HaSid>(value),
        ("filename", "download-url") => is::<FileName>(value),
        ("checksum", "download-url") => Checksum::new(ChecksumAlgorithm::Sha256, value).is_ok(),
        ("archive" | "ostemplate", _) => is::<Volid>(value),
        ("upid", _) => is::<Upid>(value),
        _ => return None,
    })
}

#[test]
fn no_type_holds_a_value_pve_refuses() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pve-9.2-parameter-verdicts.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("not applicable: no recorded verdicts at {}", file.display());
        return;
    };
    let (mut refused, mut taken, mut narrower) = (0, 0, BTreeMap::new());
    for line in text.lines() {
        let verdict: Value = serde_json::from_str(line).unwrap();
        let (method, path) = (verdict["method"].as_str().unwrap(), verdict["path"].as_str().unwrap());
        for (parameter, value) in verdict["params"].as_object().unwrap() {
            let Some(value) = value.as_str() else { continue };
            let Some(takes) = takes(method, path, parameter, value) else { continue };
            let error = verdict["errors"].as_object().and_then(|errors| {
                // The errors of a rule's own kind are named with it.
                errors
                    .iter()
                    .find(|(name, _)| *name == parameter || name.ends_with(&format!("].{parameter}")))
            });
            let unknown =
                error.is_some_and(|(_, why)| why.as_str().is_some_and(|why| why.contains("not defined")));
            match error {
                Some(_) if unknown => {}
                Some((_, why)) => {
                    assert!(!takes, "{method} {path}: {parameter}={value:?} is taken, and PVE says {why}");
                    refused += 1;
                }
                None if takes => taken += 1,
                // Such as a bare number for a resource of HA, or a size with a fraction.
                None => *narrower.entry(format!("{parameter}={value}")).or_insert(0) += 1,
            }
        }
    }
    println!("{refused} refused, {taken} taken, narrower than PVE: {narrower:#?}");
    assert!(refused > 30 && taken > 60, "{refused} refused, {taken} taken");
}
