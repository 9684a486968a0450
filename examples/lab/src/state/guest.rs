//! One guest: its config file, its snapshots, whether it runs.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::config::{GuestConfig, GuestKind, SnapshotConfig};
use crate::facts;
use crate::state::{digest, now};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) vmid: u32,
    pub(crate) kind: GuestKind,
    pub(crate) node: String,
    pub(crate) running: bool,
    /// Epoch seconds of the last start.
    pub(crate) since: i64,
    pub(crate) ignores_shutdown: bool,
    pub(crate) agent_runs: bool,
    /// Suspended to RAM.
    pub(crate) paused: bool,
    pub(crate) config: BTreeMap<String, String>,
    /// What the running machine has, where it differs from `config` until the next start.
    pub(crate) active: BTreeMap<String, String>,
    pub(crate) snapshots: Vec<SnapshotConfig>,
    /// Counts recreations; names the guest's folder, so that a recreated container is an empty one.
    pub(crate) generation: u32,
}

impl Guest {
    pub(crate) fn new(config: &GuestConfig) -> Guest {
        Guest {
            vmid: config.vmid,
            kind: config.kind,
            node: config.node.clone(),
            running: config.running,
            since: now(),
            ignores_shutdown: config.ignores_shutdown,
            agent_runs: config.agent_runs,
            paused: false,
            config: config.config.clone(),
            active: config.config.clone(),
            snapshots: config.snapshots.clone(),
            generation: 0,
        }
    }

    /// A stopped guest with these options.
    pub(crate) fn of(
        vmid: u32,
        kind: GuestKind,
        node: &str,
        config: BTreeMap<String, String>,
        generation: u32,
    ) -> Guest {
        Guest {
            vmid,
            kind,
            node: node.to_owned(),
            running: false,
            since: now(),
            ignores_shutdown: false,
            agent_runs: true,
            paused: false,
            active: config.clone(),
            config,
            snapshots: Vec::new(),
            generation,
        }
    }

    /// Gives it MAC addresses and a hardware identity of its own.
    pub(crate) fn new_identity(&mut self) {
        let (vmid, moment) = (self.vmid, u32::try_from(now() & 0xffff).unwrap_or(0));
        for (index, (key, old)) in (0_u32..).zip(self.macs()) {
            let seed = vmid.wrapping_mul(2_654_435_761).wrapping_add(moment).wrapping_add(index);
            let [_, a, b, c] = seed.to_be_bytes();
            let mac = format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}");
            if let Some(value) = self.config.get_mut(&key) {
                let parts = value.split(',').map(|part| match part.split_once('=') {
                    Some((name, text)) if text.eq_ignore_ascii_case(&old) => format!("{name}={mac}"),
                    _ => part.to_owned(),
                });
                *value = parts.collect::<Vec<_>>().join(",");
            }
        }
        if self.kind == GuestKind::Qemu && self.config.contains_key("vmgenid") {
            let [a, b, c, d] = vmid.to_be_bytes();
            let [e, f, g, h] = moment.to_be_bytes();
            let seed = [a, b, c, d, e, f, 0x4a, g, 0x8b, h, a, b, c, d, e, f];
            self.config.insert("vmgenid".to_owned(), uuid(seed));
        }
        self.active = self.config.clone();
    }

    pub(crate) fn option(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.option(key).and_then(|value| value.parse().ok())
    }

    /// `name` of a VM, `hostname` of a container.
    pub(crate) fn name(&self) -> String {
        let (key, fallback) = match self.kind {
            GuestKind::Qemu => ("name", "VM"),
            GuestKind::Lxc => ("hostname", "CT"),
        };
        self.option(key).map_or_else(|| format!("{fallback}{}", self.vmid), str::to_owned)
    }

    pub(crate) fn lock(&self) -> Option<&str> {
        self.option("lock")
    }

    /// Whether PVE looks for a guest agent in this VM.
    pub(crate) fn has_agent(&self) -> bool {
        self.option("agent").is_some_and(|agent| {
            agent.split(',').any(|part| {
                matches!(part.strip_prefix("enabled=").unwrap_or(part), "1" | "on" | "yes" | "true")
            })
        })
    }

    /// The MAC addresses of its NICs with their option, in lower case.
    pub(crate) fn macs(&self) -> Vec<(String, String)> {
        let nics = self.config.iter().filter(|(key, _)| key.starts_with("net"));
        nics.filter_map(|(key, value)| {
            let mac = value.split(',').find_map(|part| {
                let (_, text) = part.split_once('=')?;
                (text.len() == 17 && text.matches(':').count() == 5).then(|| text.to_ascii_lowercase())
            })?;
            Some((key.clone(), mac))
        })
        .collect()
    }

    /// The options that hold until the next start: those of a machine that runs or is suspended, else those of the file.
    pub(crate) fn active_config(&self) -> &BTreeMap<String, String> {
        if self.running || self.lock() == Some("suspended") { &self.active } else { &self.config }
    }

    /// Sets an option at once.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.config.insert(key.to_owned(), value.to_owned());
        self.active.insert(key.to_owned(), value.to_owned());
    }

    /// Unsets an option at once.
    pub(crate) fn unset(&mut self, key: &str) {
        self.config.remove(key);
        self.active.remove(key);
    }

    /// Whether a drive is a CD.
    pub(crate) fn is_cdrom(&self, key: &str) -> bool {
        self.option(key).is_some_and(|value| value.contains("media=cdrom") && !value.contains("cloudinit"))
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.option("protection") == Some("1")
    }

    pub(crate) fn is_template(&self) -> bool {
        self.option("template") == Some("1")
    }

    /// `VM is locked (backup)`, as both kinds word it.
    pub(crate) fn lock_error(&self) -> Option<String> {
        self.lock().map(|lock| format!("{} is locked ({lock})", self.kind.word()))
    }

    pub(crate) fn start(&mut self) {
        self.running = true;
        self.paused = false;
        self.since = now();
        self.active = self.config.clone();
    }

    pub(crate) fn uptime(&self) -> i64 {
        if self.running { (now() - self.since).max(1) } else { 0 }
    }

    /// PVE's config digest is the SHA-1 of the config file. This is the first 40 hex digits of its SHA-256:
    /// of the same form, stable, and different whenever anything in the file differs.
    pub(crate) fn digest(&self) -> String {
        digest(&self.file())
    }

    /// The text of the config file.
    fn file(&self) -> String {
        let mut text = section(&self.config);
        for snapshot in &self.snapshots {
            let _ = write!(text, "\n[{}]\n#{}\n", snapshot.name, snapshot.description);
            text.push_str(&section(&snapshot.config));
            let _ = writeln!(text, "snaptime: {}", snapshot.snaptime);
            if let Some(parent) = &snapshot.parent {
                let _ = writeln!(text, "parent: {parent}");
            }
        }
        text
    }

    /// The guest's disks, as (option, volume id, size in bytes).
    pub(crate) fn disks(&self) -> Vec<(&str, &str, u64)> {
        self.config
            .iter()
            .filter(|(key, _)| is_disk_key(self.kind, key) || key.starts_with("unused"))
            .filter_map(|(key, value)| {
                let mut parts = value.split(',');
                let first = parts.next()?;
                let volid = first.split_once('=').map_or(first, |(_, volid)| volid);
                let size =
                    parts.find_map(|part| part.strip_prefix("size=")).and_then(parse_size).unwrap_or(0);
                volid.contains(':').then_some((key.as_str(), volid, size))
            })
            .collect()
    }

    /// Size in bytes of the disk that the lists show: the boot disk of a VM, the root file system of a container.
    pub(crate) fn maxdisk(&self) -> u64 {
        let wanted = match self.kind {
            GuestKind::Lxc => "rootfs".to_owned(),
            GuestKind::Qemu => match self.option("boot").and_then(|boot| boot.strip_prefix("order=")) {
                Some(order) => {
                    order.split(';').find(|key| is_disk_key(GuestKind::Qemu, key)).unwrap_or("").to_owned()
                }
                None => return 0,
            },
        };
        self.disks().iter().find(|(key, _, _)| *key == wanted).map_or(0, |(_, _, size)| *size)
    }

    /// Bytes of RAM.
    pub(crate) fn maxmem(&self) -> u64 {
        let mib = self.active_config().get("memory").map(|memory| memory.trim_start_matches("current="));
        mib.and_then(|memory| memory.split(',').next()?.parse::<u64>().ok()).unwrap_or(512) << 20
    }

    pub(crate) fn maxcpu(&self) -> u64 {
        let number = |key: &str| self.active_config().get(key).and_then(|value| value.parse::<u64>().ok());
        let cores = number("cores");
        match self.kind {
            GuestKind::Qemu => cores.unwrap_or(1) * number("sockets").unwrap_or(1),
            GuestKind::Lxc => cores.unwrap_or(2),
        }
    }

    /// The same name and config, but another machine: new hardware identity, new creation time.
    pub(crate) fn recreate(&mut self, entropy: [u8; 16]) {
        self.generation += 1;
        self.snapshots.clear();
        self.config.remove("parent");
        let mac = format!("BC:24:11:{:02X}:{:02X}:{:02X}", entropy[0], entropy[1], entropy[2]);
        match self.kind {
            GuestKind::Qemu => {
                self.config.insert("vmgenid".to_owned(), uuid(entropy));
                self.config.insert("meta".to_owned(), format!("creation-qemu=10.1.2,ctime={}", now()));
            }
            GuestKind::Lxc => {
                for (_, value) in self.config.iter_mut().filter(|(key, _)| key.starts_with("net")) {
                    *value = value
                        .split(',')
                        .map(|part| {
                            if part.starts_with("hwaddr=") {
                                format!("hwaddr={mac}")
                            } else {
                                part.to_owned()
                            }
                        })
                        .collect::<Vec<_>>()
                        .join(",");
                }
            }
        }
        self.active = self.config.clone();
    }
}

fn section(config: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for line in config.get("description").map_or("", String::as_str).lines() {
        let _ = writeln!(text, "#{line}");
    }
    for (key, value) in config.iter().filter(|(key, _)| *key != "description") {
        let _ = writeln!(text, "{key}: {value}");
    }
    text
}

/// Whether an option is a disk of the guest.
pub(crate) fn is_disk_key(kind: GuestKind, key: &str) -> bool {
    let names: &[&str] = match kind {
        GuestKind::Qemu => &["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"],
        GuestKind::Lxc => &["mp"],
    };
    (kind == GuestKind::Lxc && key == "rootfs")
        || names.iter().any(|name| {
            key.strip_prefix(name)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// `32G` and its like, in bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok().map(|number| number << shift)
}

/// Formats 16 random bytes as a UUID.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Whether PVE's schema types an option as a number, so that it is one on the wire.
pub(crate) fn is_numeric(kind: GuestKind, key: &str) -> bool {
    let template = format!("/nodes/{{node}}/{}/{{vmid}}/config", kind.as_str());
    match key {
        // Not settable through PUT, but typed in the answer.
        "unprivileged" | "snaptime" => true,
        _ => facts::endpoint("PUT", &template)
            .and_then(|endpoint| endpoint.parameters.get(key))
            .and_then(|schema| schema.kind.as_deref())
            .is_some_and(|kind| matches!(kind, "integer" | "boolean" | "number")),
    }
}
