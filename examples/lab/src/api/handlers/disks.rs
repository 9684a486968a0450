//! The disks of guests that are made, copied and resized.

use std::collections::BTreeMap;

use crate::config::{GuestKind, StorageConfig};
use crate::state::State;
use crate::state::guest::{Guest, is_disk_key, parse_size};

/// A size as PVE writes it: the largest unit that divides it.
pub(crate) fn written(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// The bytes that a size of a request means: absolute, or with `+` more than now. Without a unit they are bytes.
pub(crate) fn requested(text: &str, now: u64) -> Option<u64> {
    let (more, text) = text.strip_prefix('+').map_or((0, text), |rest| (now, rest));
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let unit = parse_size(&format!("1{}", &text[digits.len()..]))?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let mut bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if !part.is_empty() {
        let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
        bytes += u64::try_from(u128::from(part.parse::<u64>().ok()?) * u128::from(unit) / u128::from(scale))
            .ok()?;
    }
    bytes.checked_add(more)
}

/// The value of a disk option with another size.
pub(crate) fn with_size(value: &str, bytes: u64) -> String {
    let size = format!("size={}", written(bytes));
    let mut parts: Vec<String> = value.split(',').map(str::to_owned).collect();
    match parts.iter_mut().find(|part| part.starts_with("size=")) {
        Some(part) => *part = size,
        None => parts.push(size),
    }
    parts.join(",")
}

/// The name of a new volume of a guest on a storage, besides those in use.
pub(crate) fn fresh(storage: &str, is_dir: bool, vmid: u32, format: &str, used: &[String]) -> String {
    (0..)
        .map(|index| {
            let name = format!("vm-{vmid}-disk-{index}");
            if is_dir { format!("{storage}:{vmid}/{name}.{format}") } else { format!("{storage}:{name}") }
        })
        .find(|volid| !used.contains(volid))
        .unwrap_or_default()
}

/// Whether volumes of a storage are files.
pub(crate) fn is_dir(storage: Option<&StorageConfig>) -> bool {
    storage.is_some_and(|storage| matches!(storage.kind.as_str(), "dir" | "nfs" | "cifs" | "btrfs"))
}

/// One copied disk: its option, the old volume, the new one, and bytes.
pub(crate) type DiskCopy = (String, String, String, u64);

/// The config of another guest with disks of its own: each on the given storage, else on its own one. Also the
/// copies.
pub(crate) fn copied(
    state: &State,
    kind: GuestKind,
    config: &BTreeMap<String, String>,
    vmid: u32,
    storage: Option<&str>,
) -> (BTreeMap<String, String>, Vec<DiskCopy>) {
    let mut fresh_config = config.clone();
    let mut used: Vec<String> = state
        .guests
        .get(&vmid)
        .map(|guest| guest.disks().iter().map(|(_, volid, _)| (*volid).to_owned()).collect())
        .unwrap_or_default();
    let mut copies = Vec::new();
    for (key, value) in config.iter().filter(|(key, _)| is_disk_key(kind, key)) {
        let (first, rest) = value.split_once(',').map_or((value.as_str(), ""), |(first, rest)| (first, rest));
        let Some((own, _)) = first.split_once(':').filter(|_| !value.contains("media=cdrom")) else {
            continue;
        };
        let target = storage.unwrap_or(own);
        let found = state.storages.iter().find(|known| known.id == target);
        let new = fresh(target, is_dir(found), vmid, "raw", &used);
        let size =
            rest.split(',').find_map(|part| part.strip_prefix("size=")).and_then(parse_size).unwrap_or(0);
        let text = if rest.is_empty() { new.clone() } else { format!("{new},{rest}") };
        fresh_config.insert(key.clone(), text);
        used.push(new.clone());
        copies.push((key.clone(), first.to_owned(), new, size));
    }
    (fresh_config, copies)
}

/// The storages on which a guest's disks are.
pub(crate) fn storages_of(guest: &Guest) -> Vec<String> {
    let mut storages: Vec<String> = guest
        .disks()
        .iter()
        .filter(|(key, _, _)| is_disk_key(guest.kind, key) && !guest.is_cdrom(key))
        .filter_map(|(_, volid, _)| Some(volid.split_once(':')?.0.to_owned()))
        .collect();
    storages.dedup();
    storages
}

/// The line that LVM prints for a new volume.
pub(crate) fn created_line(volid: &str) -> String {
    format!("  Logical volume \"{}\" created.", volid.rsplit(':').next().unwrap_or(volid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_pve_reads_them() {
        assert_eq!(requested("10", 5), Some(10), "bytes");
        assert_eq!(requested("+2G", 8 << 30), Some(10 << 30));
        assert_eq!(requested("+1.5G", 0), Some(3 << 29));
        assert_eq!(requested("1T", 0), Some(1 << 40));
        assert_eq!(requested("99999999999999999999", 0), None);
    }

    #[test]
    fn sizes_are_written_with_the_largest_unit() {
        assert_eq!(written(10 << 30), "10G");
        assert_eq!(written((8 << 30) + (512 << 20)), "8704M");
        assert_eq!(
            with_size("local-lvm:vm-1-disk-0,ssd=1,size=8G", 9 << 30),
            "local-lvm:vm-1-disk-0,ssd=1,size=9G"
        );
    }
}
