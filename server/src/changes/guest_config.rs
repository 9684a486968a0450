//! Changes of a guest's configuration: which keys may be changed at all, what a change amounts to, and what tells two
//! configurations apart.

use std::collections::{BTreeMap, BTreeSet};

use authz::GuestKind;
use changeset::{Preview, Step};
use proxmox_api::{ConfigUpdate, GuestConfig};
use sha2::{Digest as _, Sha256};

/// Keys of a virtual machine that may be changed. Everything that reaches the host (hooks, arguments, passed-through devices,
/// volumes), holds a secret, or decides who may act on the guest (tags, pool) is left out and refused.
const QEMU_KEYS: &[&str] = &[
    "acpi",
    "agent",
    "autostart",
    "balloon",
    "bios",
    "boot",
    "ciupgrade",
    "ciuser",
    "cores",
    "cpu",
    "cpulimit",
    "cpuunits",
    "freeze",
    "hotplug",
    "keyboard",
    "localtime",
    "machine",
    "memory",
    "name",
    "nameserver",
    "numa",
    "onboot",
    "ostype",
    "reboot",
    "scsihw",
    "searchdomain",
    "shares",
    "sockets",
    "sshkeys",
    "startdate",
    "startup",
    "tablet",
    "tdf",
    "vcpus",
    "vga",
    "watchdog",
];
/// The same for a container.
const LXC_KEYS: &[&str] = &[
    "cmode",
    "console",
    "cores",
    "cpulimit",
    "cpuunits",
    "hostname",
    "memory",
    "nameserver",
    "onboot",
    "searchdomain",
    "startup",
    "swap",
    "timezone",
    "tty",
];
/// Numbered keys, without the number.
const QEMU_NUMBERED: &[&str] = &["ipconfig", "net"];
const LXC_NUMBERED: &[&str] = &["net"];
/// Keys that change by themselves or with a snapshot, and say nothing about what the guest is.
const PASSING: &[&str] =
    &["digest", "lock", "parent", "snapstate", "snaptime", "runningcpu", "runningmachine"];
/// Longest value, in bytes.
const MAX_VALUE: usize = 2048;

/// A change that was looked at: what is set, what is unset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// New values by key.
    pub set: BTreeMap<String, String>,
    /// Keys that go back to PVE's default.
    pub delete: BTreeSet<String>,
}

impl Change {
    /// Refuses what may not be changed, and what would change nothing.
    ///
    /// # Errors
    /// In words, naming the key.
    pub fn check(&self, kind: GuestKind, before: &GuestConfig) -> Result<(), String> {
        for key in self.set.keys().chain(&self.delete) {
            allowed(kind, key)?;
        }
        for (key, value) in &self.set {
            if before.unreadable.contains(key) {
                return Err(format!(
                    "`{key}` holds something that cannot be read now, so a change of it cannot be shown"
                ));
            }
            if self.delete.contains(key) {
                return Err(format!("`{key}` is both set and deleted: do one of them"));
            }
            check_value(key, value)?;
        }
        if let Some(key) = self.delete.iter().find(|key| !before.raw.contains_key(*key)) {
            return Err(format!("`{key}` is not set, so there is nothing to delete"));
        }
        if self.delete.is_empty() && self.set.iter().all(|(key, value)| before.raw.get(key) == Some(value)) {
            return Err("the configuration says all of this already".to_owned());
        }
        Ok(())
    }

    /// The parameters of its step.
    pub fn params(&self) -> Vec<(String, String)> {
        let set = self.set.iter().map(|(key, value)| (format!("set.{key}"), value.clone()));
        set.chain(self.delete.iter().map(|key| (format!("delete.{key}"), "1".to_owned()))).collect()
    }

    /// Reads a step's parameters.
    pub fn of_step(step: &Step) -> Self {
        let mut change = Self::default();
        for (name, value) in &step.params {
            if let Some(key) = name.strip_prefix("set.") {
                change.set.insert(key.to_owned(), value.clone());
            } else if let Some(key) = name.strip_prefix("delete.") {
                change.delete.insert(key.to_owned());
            }
        }
        change
    }

    /// The update to send.
    pub fn update(&self) -> ConfigUpdate {
        let set = self.set.iter().fold(ConfigUpdate::new(), |update, (key, value)| update.set(key, value));
        self.delete.iter().fold(set, |update, key| update.unset(key))
    }

    /// Whether a configuration is as this change makes it.
    pub fn is_in(&self, config: &GuestConfig) -> bool {
        self.set.iter().all(|(key, value)| config.raw.get(key) == Some(value))
            && self.delete.iter().all(|key| !config.raw.contains_key(key))
    }

    /// What would change, a line a key.
    pub fn diff(&self, before: &GuestConfig) -> Vec<(String, String)> {
        let shown =
            |key: &str| before.raw.get(key).map_or_else(|| "(not set)".to_owned(), |was| Preview::quote(was));
        let set = self
            .set
            .iter()
            .map(|(key, value)| (key.clone(), format!("{} -> {}", shown(key), Preview::quote(value))));
        let unset = self.delete.iter().map(|key| (key.clone(), format!("{} -> (not set)", shown(key))));
        set.chain(unset).collect()
    }

    /// The change that takes this one back, where `before` holds the values of its keys from before it.
    pub fn reverse(&self, before: &BTreeMap<String, String>) -> Self {
        let mut back = Self::default();
        for key in self.set.keys().chain(&self.delete) {
            match before.get(key) {
                Some(was) => back.set.insert(key.clone(), was.clone()).map_or((), drop),
                None => {
                    back.delete.insert(key.clone());
                }
            }
        }
        back
    }
}

/// Refuses a value that could hold more than it shows, or a path on the host.
///
/// # Errors
/// In words, naming the key.
pub(crate) fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || value.len() > MAX_VALUE {
        return Err(format!("`{key}`: expected 1 to {MAX_VALUE} bytes; name it in `delete` to unset it"));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("`{key}`: a line break or control character, which no value here can hold"));
    }
    // `bridge=vmbr0,…` is fine; a path on the host is not.
    if value.split([',', '=', ';']).any(|part| part.trim().starts_with('/')) {
        return Err(format!("`{key}`: a path on the host cannot be given"));
    }
    Ok(())
}

/// Refuses a key that may not be set through this server.
///
/// # Errors
/// In words, naming the key and why.
pub(crate) fn allowed(kind: GuestKind, key: &str) -> Result<(), String> {
    let (plain, numbered) = match kind {
        GuestKind::Qemu => (QEMU_KEYS, QEMU_NUMBERED),
        GuestKind::Lxc => (LXC_KEYS, LXC_NUMBERED),
    };
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &key[stem.len()..];
    let is_numbered = numbered.contains(&stem) && (1..=2).contains(&number.len());
    if plain.contains(&key) || is_numbered {
        return Ok(());
    }
    let why = match stem {
        "tags" | "pool" => "decides who may act on the guest and has a tool of its own",
        "description" => "has a tool of its own",
        "cipassword" => "is a secret, which no plan may hold",
        "protection" => "is PVE's protection, which only an administrator changes",
        _ => "reaches the host or the guest's volumes, or is none of this kind of guest",
    };
    Err(format!("`{}` cannot be changed through this server: it {why}", key.escape_debug()))
}

/// A digest of what the configuration says, snapshots and PVE's own passing marks left out: it stays when a snapshot is taken and
/// moves with every key that means something.
pub fn digest(config: &GuestConfig) -> String {
    let mut hasher = Sha256::new();
    for (key, value) in config.raw.iter().filter(|(key, _)| !PASSING.contains(&key.as_str())) {
        for text in [key, value] {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
    }
    data_encoding::HEXLOWER.encode(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(keys: &[(&str, &str)]) -> GuestConfig {
        let raw = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        GuestConfig {
            kind: proxmox_api::GuestKind::Qemu,
            digest: None,
            raw,
            unreadable: BTreeSet::new(),
            json: serde_json::Map::new(),
        }
    }

    fn set(key: &str, value: &str) -> Change {
        Change { set: [(key.to_owned(), value.to_owned())].into(), delete: BTreeSet::new() }
    }

    #[test]
    fn what_reaches_the_host_a_volume_or_the_guests_rights_cannot_be_changed() {
        let before = config(&[("cores", "2")]);
        for key in [
            "hookscript",
            "args",
            "hostpci0",
            "usb1",
            "serial0",
            "parallel0",
            "dev0",
            "mp0",
            "rootfs",
            "scsi0",
            "virtio3",
            "ide2",
            "efidisk0",
            "tpmstate0",
            "unused0",
            "lxc.cgroup",
            "lxc",
            "features",
            "unprivileged",
            "protection",
            "tags",
            "pool",
            "cipassword",
            "cicustom",
            "vmgenid",
            "smbios1",
            "lock",
            "digest",
            "delete",
            "force",
            "net",
            "net123",
            "net0x",
            "",
        ] {
            for kind in [GuestKind::Qemu, GuestKind::Lxc] {
                assert!(set(key, "1").check(kind, &before).is_err(), "{key}");
            }
        }
        assert!(set("cores", "4").check(GuestKind::Qemu, &before).is_ok());
        assert!(set("net0", "virtio,bridge=vmbr1").check(GuestKind::Qemu, &before).is_ok());
        assert!(set("swap", "512").check(GuestKind::Qemu, &before).is_err(), "a container's key");
        for value in ["", "a\nhookscript: x", "/etc/shadow", "virtio,script=/bin/sh"] {
            assert!(set("net0", value).check(GuestKind::Qemu, &before).is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_change_of_nothing_is_refused() {
        let before = config(&[("cores", "2")]);
        assert!(set("cores", "2").check(GuestKind::Lxc, &before).is_err());
        let both = Change { delete: ["cores".to_owned()].into(), ..set("cores", "4") };
        assert!(both.check(GuestKind::Lxc, &before).is_err());
        let absent = Change { delete: ["swap".to_owned()].into(), ..Change::default() };
        assert!(absent.check(GuestKind::Lxc, &before).is_err());
        assert!(Change::default().check(GuestKind::Lxc, &before).is_err());
    }

    #[test]
    fn a_change_taken_back_is_what_was_there() {
        let before = config(&[("cores", "2"), ("memory", "1024")]);
        let change = Change { delete: ["memory".to_owned()].into(), ..set("cores", "4") };
        let change = Change {
            set: [("swap".to_owned(), "9".to_owned())].into_iter().chain(change.set.clone()).collect(),
            ..change
        };
        let after = config(&[("cores", "4"), ("swap", "9")]);
        assert!(change.is_in(&after) && !change.is_in(&before));
        let back = change.reverse(&before.raw);
        assert!(back.is_in(&before) && !back.is_in(&after), "{back:?}");
        let step = Step::new("update_container_config", change.params(), "");
        assert_eq!(Change::of_step(&step), change);
    }

    #[test]
    fn cs_20_the_digest_moves_with_every_key_but_not_with_a_snapshot() {
        let plain = config(&[("cores", "2"), ("name", "a")]);
        let snapped = config(&[("cores", "2"), ("name", "a"), ("parent", "before"), ("lock", "snapshot")]);
        assert_eq!(digest(&plain), digest(&snapped));
        for other in [
            config(&[("cores", "2"), ("name", "b")]),
            config(&[("cores", "2")]),
            config(&[("cores", "2n"), ("ame", "a")]),
            config(&[("cores", "2"), ("name", "a"), ("net0", "x")]),
        ] {
            assert_ne!(digest(&plain), digest(&other));
        }
    }
}
