use std::collections::{BTreeMap, BTreeSet};

use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, SnapName, Tags, Volid},
    wire::{Field, Form, JsonMap, Path, Scalar, flag, property},
};

/// The configuration of a guest as it will be at the next start: changes that wait for it are included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestConfig {
    /// Virtual machine or container; they spell some keys differently.
    pub kind: GuestKind,
    /// The digest to hand back with a change.
    pub digest: Option<Digest>,
    /// Every key but the digest, values as PVE would write them into the file.
    pub raw: BTreeMap<String, String>,
    /// Keys whose value is no text, number or boolean. Whoever decides by one of them must not take it for absent.
    pub unreadable: BTreeSet<String>,
    /// The whole answer as PVE sent it, digest included.
    pub json: JsonMap,
}

/// A disk, mount point or CD drive of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The key: `scsi0`, `rootfs`, `mp1`, `unused0`, `efidisk0`.
    pub slot: String,
    /// What is behind it.
    pub source: DiskSource,
    /// The rest of the value, by key: `size`, `media`, `mp`.
    pub options: BTreeMap<String, String>,
}

/// What a disk or mount point is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskSource {
    /// A volume of a storage.
    Volume(Volid),
    /// A path of the node: a bind mount or a device. No volume operation applies to it.
    Path(String),
    /// Anything else as it stands, such as `none` or `cdrom` of a drive.
    Other(String),
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Net {
    /// The key, `net0`.
    pub slot: String,
    /// The hardware address, as written.
    pub mac: Option<String>,
    /// The emulated card, `virtio`; virtual machines only.
    pub model: Option<String>,
    /// The bridge it is on.
    pub bridge: Option<String>,
    /// The rest of the value, by key.
    pub options: BTreeMap<String, String>,
}

impl GuestConfig {
    /// The guest's name: `name` of a virtual machine, `hostname` of a container.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let key = match self.kind {
            GuestKind::Qemu => "name",
            GuestKind::Lxc => "hostname",
        };
        self.text(key)
    }

    /// The guest's tags; none when absent.
    #[must_use]
    pub fn tags(&self) -> Field<Tags> {
        self.field("tags").and_then(|text| Some(Tags::parse(text)))
    }

    /// PVE's own protection: off when absent. A value that makes no sense is [`Field::Unreadable`], which a careful
    /// caller takes for "on".
    #[must_use]
    pub fn protection(&self) -> Field<bool> {
        self.flag("protection")
    }

    /// Whether it is a template: not when absent.
    #[must_use]
    pub fn template(&self) -> Field<bool> {
        self.flag("template")
    }

    /// The lock on the configuration, such as `backup`.
    #[must_use]
    pub fn lock(&self) -> Option<&str> {
        self.text("lock").filter(|lock| !lock.is_empty())
    }

    /// Disks, mount points, drives and unused volumes, by slot.
    #[must_use]
    pub fn disks(&self) -> Vec<Disk> {
        let (words, prefixes): (&[&str], &[&str]) = match self.kind {
            GuestKind::Qemu => (&["efidisk0", "tpmstate0"], &["ide", "sata", "scsi", "virtio", "unused"]),
            GuestKind::Lxc => (&["rootfs"], &["mp", "unused"]),
        };
        self.raw
            .iter()
            .filter(|(key, _)| {
                words.contains(&key.as_str())
                    || prefixes.iter().any(|prefix| property::is_indexed(key, prefix))
            })
            .map(|(key, value)| Disk::read(key, value))
            .collect()
    }

    /// Network interfaces, by slot.
    #[must_use]
    pub fn nets(&self) -> Vec<Net> {
        self.raw
            .iter()
            .filter(|(key, _)| property::is_indexed(key, "net"))
            .map(|(key, value)| Net::read(key, value))
            .collect()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.raw.get(key).map(String::as_str)
    }

    fn field(&self, key: &str) -> Field<&str> {
        if self.unreadable.contains(key) {
            return Field::Unreadable;
        }
        self.text(key).map_or(Field::Absent, Field::Value)
    }

    fn flag(&self, key: &str) -> Field<bool> {
        self.field(key).and_then(|text| flag(&Scalar::Text(text.to_owned())))
    }
}

impl Disk {
    fn read(slot: &str, value: &str) -> Self {
        let mut options = BTreeMap::new();
        let mut source = None;
        for (key, value) in property::parts(value) {
            match key {
                // The bare part is the volume; its long spelling differs between the kinds.
                None | Some("file" | "volume") if source.is_none() => source = Some(value.to_owned()),
                Some(key) => {
                    options.insert(key.to_owned(), value.to_owned());
                }
                None => {}
            }
        }
        let source = source.unwrap_or_default();
        let source = match source.parse() {
            Ok(volid) => DiskSource::Volume(volid),
            Err(_) if source.starts_with('/') => DiskSource::Path(source),
            Err(_) => DiskSource::Other(source),
        };
        Self { slot: slot.to_owned(), source, options }
    }

    /// Whether it is a CD drive, a cloud-init drive included.
    #[must_use]
    pub fn is_cdrom(&self) -> bool {
        self.options.get("media").is_some_and(|media| media == "cdrom")
    }

    /// The size as PVE notes it, `32G`.
    #[must_use]
    pub fn size(&self) -> Option<&str> {
        self.options.get("size").map(String::as_str)
    }
}

/// The cards whose name may stand in place of `model`, with the hardware address as value.
const CARDS: [&str; 6] = ["e1000", "e1000e", "rtl8139", "virtio", "vmxnet3", "ne2k_pci"];

impl Net {
    fn read(slot: &str, value: &str) -> Self {
        let mut net =
            Self { slot: slot.to_owned(), mac: None, model: None, bridge: None, options: BTreeMap::new() };
        for (key, value) in property::parts(value) {
            let value = value.to_owned();
            match key {
                Some("bridge") => net.bridge = Some(value),
                Some("macaddr" | "hwaddr") => net.mac = Some(value),
                Some("model") => net.model = Some(value),
                None => net.model = Some(value),
                Some(card) if CARDS.contains(&card) || card.starts_with("e1000-") => {
                    net.model = Some(card.to_owned());
                    net.mac = Some(value);
                }
                Some(key) => {
                    net.options.insert(key.to_owned(), value);
                }
            }
        }
        net
    }
}

impl Client {
    /// Reads the guest's configuration, changes that wait for its next start included (`GET …/config`; needs
    /// `VM.Audit`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. [`Error::is_missing_guest`] tells that it is not on that node.
    pub async fn guest_config(&self, guest: &GuestRef) -> Result<GuestConfig, Error> {
        self.config_at(guest, guest.path().word("config"), Form::new()).await
    }

    /// Reads the configuration the guest runs with now, without the changes that wait (`GET …/config?current=1`;
    /// needs `VM.Audit`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. [`Error::is_missing_guest`] tells that it is not on that node.
    pub async fn guest_config_active(&self, guest: &GuestRef) -> Result<GuestConfig, Error> {
        self.config_at(guest, guest.path().word("config"), Form::new().put_flag("current", true)).await
    }

    /// Reads the configuration a snapshot was taken of (`GET …/snapshot/{snapname}/config`; needs `VM.Audit` or
    /// `VM.Snapshot`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn snapshot_config(&self, guest: &GuestRef, name: &SnapName) -> Result<GuestConfig, Error> {
        self.config_at(guest, guest.path().word("snapshot").id(name).word("config"), Form::new()).await
    }

    async fn config_at(&self, guest: &GuestRef, path: Path, query: Form) -> Result<GuestConfig, Error> {
        self.read(path, query).await?.record(|config| {
            let mut raw = BTreeMap::new();
            let mut unreadable = BTreeSet::new();
            for key in config.keys().filter(|key| *key != "digest") {
                match config.text(key) {
                    Field::Value(text) => {
                        raw.insert(key.to_owned(), text);
                    }
                    Field::Absent | Field::Unreadable => {
                        unreadable.insert(key.to_owned());
                    }
                }
            }
            Ok(GuestConfig {
                kind: guest.kind,
                digest: config.id("digest"),
                raw,
                unreadable,
                json: config.json(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: GuestKind, pairs: &[(&str, &str)]) -> GuestConfig {
        let raw = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        GuestConfig { kind, digest: None, raw, unreadable: BTreeSet::new(), json: JsonMap::new() }
    }

    #[test]
    fn disks_of_a_virtual_machine() {
        let disks = config(
            GuestKind::Qemu,
            &[
                ("scsi0", "local-lvm:vm-100-disk-0,size=32G"),
                ("ide2", "none,media=cdrom"),
                ("virtio1", "file=shared:100/vm-100-disk-1.qcow2,cache=none,size=8G"),
                ("unused0", "local-lvm:vm-100-disk-3"),
                ("efidisk0", "local-lvm:vm-100-disk-4,efitype=4m,size=4M"),
                ("scsihw", "virtio-scsi-single"),
                ("scsi01", "no slot"),
                ("mp0", "not a key of a virtual machine"),
            ],
        )
        .disks();
        let slots: Vec<&str> = disks.iter().map(|disk| disk.slot.as_str()).collect();
        assert_eq!(slots, ["efidisk0", "ide2", "scsi0", "unused0", "virtio1"]);
        assert_eq!(disks[1].source, DiskSource::Other("none".to_owned()));
        assert!(disks[1].is_cdrom() && !disks[2].is_cdrom());
        assert_eq!(disks[2].size(), Some("32G"));
        assert_eq!(disks[4].source, DiskSource::Volume("shared:100/vm-100-disk-1.qcow2".parse().unwrap()));
    }

    /// A40.
    #[test]
    fn a_bind_mount_is_no_volume() {
        let disks = config(
            GuestKind::Lxc,
            &[
                ("mp0", "/tank/media,mp=/media"),
                ("mp1", "/dev/sdb1,mp=/d"),
                ("rootfs", "local-zfs:subvol-101-disk-0,size=8G"),
            ],
        )
        .disks();
        assert_eq!(disks[0].source, DiskSource::Path("/tank/media".to_owned()));
        assert_eq!(disks[1].source, DiskSource::Path("/dev/sdb1".to_owned()));
        assert_eq!(disks[2].source, DiskSource::Volume("local-zfs:subvol-101-disk-0".parse().unwrap()));
    }

    #[test]
    fn interfaces_of_both_kinds() {
        let nets = config(
            GuestKind::Qemu,
            &[
                ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=10"),
                ("net1", "model=e1000,macaddr=BC:24:11:00:00:02,bridge=vmbr1"),
                ("net2", "rtl8139"),
            ],
        )
        .nets();
        assert_eq!(nets[0].mac.as_deref(), Some("BC:24:11:00:00:01"));
        assert_eq!(nets[0].model.as_deref(), Some("virtio"));
        assert_eq!(nets[0].options.get("tag").map(String::as_str), Some("10"));
        assert_eq!(nets[1].model.as_deref(), Some("e1000"));
        assert_eq!(nets[1].bridge.as_deref(), Some("vmbr1"));
        assert_eq!((nets[2].model.as_deref(), nets[2].mac.as_deref()), (Some("rtl8139"), None));

        let value = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:03,ip=dhcp,type=veth";
        let nets = config(GuestKind::Lxc, &[("net0", value)]).nets();
        assert_eq!(nets[0].mac.as_deref(), Some("BC:24:11:00:00:03"));
        assert_eq!(nets[0].model, None);
    }

    #[test]
    fn px_06_protection_that_makes_no_sense_is_not_off() {
        let read = |value: &str| config(GuestKind::Qemu, &[("protection", value)]).protection();
        assert_eq!(read("1"), Field::Value(true));
        assert_eq!(read("0"), Field::Value(false));
        assert_eq!(read("maybe"), Field::Unreadable);
        let mut odd = config(GuestKind::Qemu, &[]);
        assert_eq!(odd.protection(), Field::Absent);
        odd.unreadable.insert("protection".to_owned());
        assert_eq!(odd.protection(), Field::Unreadable);
    }
}
