//! Keys that make a new volume, `storage:GiB` with options. Nothing else may stand there: not a volume that exists, not a path,
//! not an import.

use std::collections::BTreeMap;

use proxmox_api::{NewDisk, StorageId, Volid};

use super::wrong;
use crate::stack::ToolFailure;

/// Options of a machine's disk that say nothing about the host.
const DISK_OPTIONS: &[&str] = &["backup", "cache", "discard", "format", "iothread", "replicate", "ssd"];
/// The same of a container's mount point.
const MOUNT_OPTIONS: &[&str] = &["acl", "backup", "mp", "quota", "replicate", "ro"];

/// A machine's disk or drive.
///
/// # Errors
/// Anything but a new volume, an ISO image or a cloud-init drive.
pub(super) fn disk(key: &str, text: &str) -> Result<NewDisk, ToolFailure> {
    if let Some(image) = text.strip_suffix(",media=cdrom") {
        return iso(key, image).map(NewDisk::Cdrom);
    }
    if let Some(storage) = text.strip_suffix(":cloudinit") {
        return Ok(NewDisk::CloudInit(storage.parse().map_err(|error| wrong(key, error))?));
    }
    let (storage, gib, options) = volume(key, text, DISK_OPTIONS)?;
    Ok(NewDisk::Volume { storage, gib, options })
}

/// A container's mount point, as the text to send.
///
/// # Errors
/// Anything but a new volume with a place in the container.
pub(super) fn mount_point(key: &str, text: &str) -> Result<String, ToolFailure> {
    let (storage, gib, options) = volume(key, text, MOUNT_OPTIONS)?;
    let place = options.get("mp").map(String::as_str).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    if !place.starts_with('/')
        || place.len() < 2
        || !place.chars().all(plain)
        || place.split('/').any(|part| part == "..")
    {
        return Err(wrong(key, "expected `mp=/a/path/in/the/container` among its options"));
    }
    let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(format!("{storage}:{gib},{}", options.join(",")))
}

/// An ISO image.
///
/// # Errors
/// Another kind of volume.
pub(super) fn iso(field: &str, text: &str) -> Result<Volid, ToolFailure> {
    of_kind(field, text, "iso/", "an ISO image as list_isos names it, `storage:iso/name.iso`")
}

/// A container template.
///
/// # Errors
/// Another kind of volume; a backup above all, which PVE would restore.
pub(super) fn template(field: &str, text: &str) -> Result<Volid, ToolFailure> {
    of_kind(field, text, "vztmpl/", "a template as list_templates names it, `storage:vztmpl/name.tar.zst`")
}

fn of_kind(field: &str, text: &str, prefix: &str, expected: &str) -> Result<Volid, ToolFailure> {
    let volid: Volid = text.parse().map_err(|error| wrong(field, error))?;
    let fits =
        volid.volume().strip_prefix(prefix).is_some_and(|name| !name.is_empty() && !name.contains('/'));
    if fits { Ok(volid) } else { Err(wrong(field, format!("expected {expected}"))) }
}

fn volume(
    key: &str,
    text: &str,
    allowed: &[&str],
) -> Result<(StorageId, u32, BTreeMap<String, String>), ToolFailure> {
    let mut parts = text.split(',');
    let (storage, size) = parts
        .next()
        .and_then(|first| first.split_once(':'))
        .filter(|(_, size)| !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()))
        .ok_or_else(|| {
            wrong(
                key,
                "expected a new volume, `storage:GiB`; volumes that exist, paths and imports cannot be given",
            )
        })?;
    let storage = storage.parse().map_err(|error| wrong(key, error))?;
    let gib = gib(key, size.parse().map_err(|_| wrong(key, "its size is out of range"))?)?;
    let mut options = BTreeMap::new();
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if !allowed.contains(&name) {
            return Err(wrong(
                key,
                format!(
                    "the option `{}` cannot be given; possible are {}",
                    name.escape_debug(),
                    allowed.join(", ")
                ),
            ));
        }
        let plain = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || (name == "mp" && matches!(c, '/' | '.'))
        };
        if value.is_empty() || !value.chars().all(plain) {
            return Err(wrong(key, format!("the option `{name}` has no value that could be given here")));
        }
        if options.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(key, format!("the option `{name}` is given twice")));
        }
    }
    Ok((storage, gib, options))
}

/// A size in GiB.
///
/// # Errors
/// None, or more than any storage has.
pub(super) fn gib(field: &str, gib: u32) -> Result<u32, ToolFailure> {
    match gib {
        1..=131_072 => Ok(gib),
        _ => Err(wrong(field, "expected a size of 1 to 131072 GiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn px_08_only_new_volumes_images_and_cloud_init_drives_pass() {
        for good in [
            "local-lvm:8",
            "local-lvm:8,discard=on,ssd=1",
            "local:iso/a.iso,media=cdrom",
            "local-lvm:cloudinit",
        ] {
            assert!(disk("scsi0", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "8",
            "local-lvm:0",
            "local-lvm:vm-100-disk-0",
            "local-lvm:vm-100-disk-0,size=8G",
            "local-lvm:0,import-from=local:import/a.qcow2",
            "local-lvm:8,import-from=/etc/shadow",
            "local-lvm:8,file=/etc/shadow",
            "/dev/sda",
            "/dev/sda,size=8G",
            "none,media=cdrom",
            "local:backup/x.vma,media=cdrom",
            "local:iso/../x,media=cdrom",
            "local-lvm:8,discard=on,discard=on",
            "local-lvm:8,cache=a=b",
            "local-lvm:99999999",
            "local-lvm:4294967297",
        ] {
            assert!(disk("scsi0", bad).is_err(), "{bad}");
        }
        assert_eq!(mount_point("mp0", "local-lvm:8,mp=/srv").unwrap(), "local-lvm:8,mp=/srv");
        for bad in [
            "/srv,mp=/srv",
            "local-lvm:8",
            "local-lvm:8,mp=srv",
            "local-lvm:8,mp=/a/../b",
            "local-lvm:8,mp=/",
            "local-lvm:8,mp=/a,shared=1",
        ] {
            assert!(mount_point("mp0", bad).is_err(), "{bad}");
        }
        assert!(template("ostemplate", "local:vztmpl/debian-12.tar.zst").is_ok());
        assert!(template("ostemplate", "local:backup/vzdump-lxc-100.tar.zst").is_err());
    }
}
