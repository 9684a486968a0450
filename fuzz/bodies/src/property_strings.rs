//! `proxmox-api`: disks and interfaces out of any property string, none of its parts lost or made up.

use std::collections::{BTreeMap, BTreeSet};

use proxmox_api::{DiskSource, GuestConfig, GuestKind};

/// The first byte picks the kind of guest and the key, the rest is the value.
pub fn property_strings(data: &[u8]) {
    let Some((choice, value)) = data.split_first() else { return };
    let value = String::from_utf8_lossy(value).into_owned();
    let (kind, disk, net) = match choice % 4 {
        0 => (GuestKind::Qemu, "scsi0", "net0"),
        1 => (GuestKind::Qemu, "virtio15", "net31"),
        2 => (GuestKind::Lxc, "rootfs", "net0"),
        _ => (GuestKind::Lxc, "mp255", "net9"),
    };
    let raw: BTreeMap<String, String> = [disk, net, "scsi", "net", "net01", "mp-1", "scsi0 "]
        .map(|key| (key.to_owned(), value.clone()))
        .into();
    let config =
        GuestConfig { kind, digest: None, raw, unreadable: BTreeSet::new(), json: serde_json::Map::new() };
    let parts: Vec<(Option<&str>, &str)> = value
        .split(',')
        .filter(|part| !part.is_empty())
        .map(|part| part.find('=').map_or((None, part), |at| (Some(&part[..at]), &part[at + 1..])))
        .collect();
    let keys: BTreeSet<&str> = parts.iter().filter_map(|(key, _)| *key).collect();

    let [read] = config.disks().try_into().unwrap_or_else(|disks| panic!("one key is a slot: {disks:?}"));
    assert_eq!(read.slot, disk);
    for (key, option) in &read.options {
        assert!(parts.contains(&(Some(key), option)), "{key}={option} was made up of {value:?}");
    }
    for key in &keys {
        assert!(
            read.options.contains_key(*key) || matches!(*key, "file" | "volume"),
            "{key} of {value:?} was lost"
        );
    }
    match &read.source {
        DiskSource::Volume(volid) => {
            let text = volid.to_string();
            assert!(!text.starts_with('/') && parts.iter().any(|(_, part)| *part == text), "{value:?}");
        }
        DiskSource::Path(path) => assert!(path.starts_with('/') && value.contains(path.as_str())),
        DiskSource::Other(text) => assert!(!text.starts_with('/') && value.contains(text.as_str())),
    }
    assert_eq!(read.is_cdrom(), read.options.get("media").is_some_and(|media| media == "cdrom"));

    let [read] = config.nets().try_into().unwrap_or_else(|nets| panic!("one key is a slot: {nets:?}"));
    assert_eq!(read.slot, net);
    let last = |name: &str| parts.iter().rev().find(|(key, _)| *key == Some(name)).map(|(_, value)| *value);
    assert_eq!(read.bridge.as_deref(), last("bridge"), "{value:?}");
    for (key, option) in &read.options {
        assert!(parts.contains(&(Some(key), option)), "{key}={option} was made up of {value:?}");
    }
    if let Some(mac) = &read.mac {
        assert!(parts.iter().any(|(key, part)| key.is_some() && part == mac), "{value:?}");
    }
}
