//! New guests.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};

use super::{GuestKind, options};
use crate::{
    client::Client,
    error::Error,
    ids::{DiskSlot, DnsName, NodeName, PoolId, StorageId, Tags, Upid, Vmid, Volid},
    wire::{Form, Path, property},
};

/// What is to be behind the key of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewDisk {
    /// A new volume.
    Volume {
        /// On this storage.
        storage: StorageId,
        /// So many GiB.
        gib: u32,
        /// More options of the key, `discard=on`.
        options: BTreeMap<String, String>,
    },
    /// An ISO image in a drive.
    Cdrom(Volid),
    /// A drive on this storage from which cloud-init in the machine reads its settings.
    CloudInit(StorageId),
}

impl NewDisk {
    /// A new volume without further options.
    #[must_use]
    pub fn new(storage: StorageId, gib: u32) -> Self {
        Self::Volume { storage, gib, options: BTreeMap::new() }
    }

    fn text(&self, slot: &str) -> Result<String, Error> {
        match self {
            Self::Volume { gib: 0, .. } => Err(Error::argument(slot, "a size of 0; expected at least 1 GiB")),
            Self::Volume { storage, gib, options } => {
                let parts = options.iter().map(|(key, value)| (key.as_str(), value.clone()));
                property::join(slot, Some(format!("{storage}:{gib}")), parts)
            }
            Self::Cdrom(volid) => {
                property::join(slot, Some(volid.to_string()), [("media", "cdrom".to_owned())].into_iter())
            }
            Self::CloudInit(storage) => {
                property::join(slot, Some(format!("{storage}:cloudinit")), std::iter::empty())
            }
        }
    }
}

/// A network interface of a new guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewNet {
    /// The bridge it is on.
    pub bridge: String,
    /// Of a virtual machine: the emulated card; `virtio` when empty.
    pub model: String,
    /// Of a container: the name within it; `eth` and the number of the interface when empty.
    pub name: String,
    /// The hardware address; PVE makes one up when there is none.
    pub mac: Option<String>,
    /// The VLAN.
    pub tag: Option<u16>,
    /// Whether the firewall looks at it.
    pub firewall: bool,
    /// More options of the key: `rate`, a container's `ip` and `gw`.
    pub options: BTreeMap<String, String>,
}

impl NewNet {
    fn text(&self, kind: GuestKind, index: usize) -> Result<String, Error> {
        let slot = format!("net{index}");
        if self.bridge.is_empty() {
            return Err(Error::argument(&slot, "no bridge; name one, such as `vmbr0`"));
        }
        if self.tag.is_some_and(|tag| !(1..=4094).contains(&tag)) {
            return Err(Error::argument(&slot, "no VLAN of that number; expected 1 to 4094"));
        }
        let own = |text: &str, default: String| if text.is_empty() { default } else { text.to_owned() };
        let mut parts = match kind {
            GuestKind::Qemu => vec![("model", own(&self.model, "virtio".to_owned()))],
            GuestKind::Lxc => vec![("name", own(&self.name, format!("eth{index}")))],
        };
        let mac = match kind {
            GuestKind::Qemu => "macaddr",
            GuestKind::Lxc => "hwaddr",
        };
        parts.extend(self.mac.iter().map(|address| (mac, address.clone())));
        parts.push(("bridge", self.bridge.clone()));
        parts.extend(self.tag.iter().map(|tag| ("tag", tag.to_string())));
        parts.extend(self.firewall.then(|| ("firewall", "1".to_owned())));
        let more = self.options.iter().map(|(key, value)| (key.as_str(), value.clone()));
        property::join(&slot, None, parts.into_iter().chain(more))
    }
}

/// A virtual machine to be made. What is `None`, empty or off is left to PVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQemu {
    /// Its number. One that a guest has is refused by PVE.
    pub vmid: Vmid,
    /// Its name.
    pub name: Option<DnsName>,
    /// Memory, MiB.
    pub memory: Option<u32>,
    /// Cores of each socket.
    pub cores: Option<u32>,
    /// Sockets.
    pub sockets: Option<u32>,
    /// What runs in it: `l26`, `win11`.
    pub ostype: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its tags.
    pub tags: Tags,
    /// The pool to put it into.
    pub pool: Option<PoolId>,
    /// Whether it has a guest agent.
    pub agent: bool,
    /// Whether it is started when its node starts.
    pub onboot: bool,
    /// Whether PVE's protection is on.
    pub protection: bool,
    /// Whether to start it now.
    pub start: bool,
    /// Its disks and drives.
    pub disks: BTreeMap<DiskSlot, NewDisk>,
    /// Its network interfaces, `net0` first.
    pub nets: Vec<NewNet>,
    /// Public keys that cloud-init gives to the user, one to a line.
    pub sshkeys: Option<String>,
    /// Other keys, as PVE takes them. None that a field of this structure sets.
    pub extra: BTreeMap<String, String>,
}

impl NewQemu {
    /// A virtual machine of this number and nothing else.
    #[must_use]
    pub fn new(vmid: Vmid) -> Self {
        Self {
            vmid,
            name: None,
            memory: None,
            cores: None,
            sockets: None,
            ostype: None,
            description: None,
            tags: Tags::default(),
            pool: None,
            agent: false,
            onboot: false,
            protection: false,
            start: false,
            disks: BTreeMap::new(),
            nets: Vec::new(),
            sshkeys: None,
            extra: BTreeMap::new(),
        }
    }

    fn form(&self) -> Result<Form, Error> {
        let mut keys = Keys::new(GuestKind::Qemu);
        keys.some("name", self.name.as_ref())?;
        keys.some("memory", self.memory)?;
        keys.some("cores", self.cores)?;
        keys.some("sockets", self.sockets)?;
        keys.some("ostype", self.ostype.as_ref())?;
        keys.some("description", self.description.as_ref())?;
        keys.some("tags", Some(&self.tags).filter(|tags| !tags.is_empty()))?;
        for (key, on) in [("agent", self.agent), ("onboot", self.onboot), ("protection", self.protection)] {
            keys.some(key, on.then_some(1))?;
        }
        for (slot, disk) in &self.disks {
            if slot.kind() != GuestKind::Qemu {
                return Err(Error::argument(slot.as_str(), "a virtual machine has no such disk"));
            }
            keys.some(slot.as_str(), Some(disk.text(slot.as_str())?))?;
        }
        keys.nets(&self.nets)?;
        keys.some("sshkeys", self.sshkeys.as_deref().map(super::config_write::encoded_keys))?;
        keys.extra(&self.extra)?;
        Ok(keys.form(self.vmid).put_some("pool", self.pool.as_ref()).put_if("start", self.start))
    }
}

/// A container to be made. What is `None`, empty or off is left to PVE.
#[derive(Debug, Clone)]
pub struct NewLxc {
    /// Its number. One that a guest has is refused by PVE.
    pub vmid: Vmid,
    /// The template it is made from.
    pub ostemplate: Volid,
    /// Its root disk: storage and GiB.
    pub rootfs: (StorageId, u32),
    /// Whether root in it is nobody outside. Always sent: the default differs between versions of PVE. Making a
    /// privileged one needs `Sys.Modify` on `/` since PVE 9.
    pub unprivileged: bool,
    /// Whether containers can run in it.
    pub nesting: bool,
    /// Its host name.
    pub hostname: Option<DnsName>,
    /// Memory, MiB.
    pub memory: Option<u32>,
    /// Swap, MiB.
    pub swap: Option<u32>,
    /// Cores.
    pub cores: Option<u32>,
    /// Root's password.
    pub password: Option<SecretString>,
    /// Public keys for root, one to a line.
    pub ssh_public_keys: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its tags.
    pub tags: Tags,
    /// The pool to put it into.
    pub pool: Option<PoolId>,
    /// Whether it is started when its node starts.
    pub onboot: bool,
    /// Whether PVE's protection is on.
    pub protection: bool,
    /// Whether to start it now.
    pub start: bool,
    /// Its network interfaces, `net0` first.
    pub nets: Vec<NewNet>,
    /// Other keys, as PVE takes them. None that a field of this structure sets.
    pub extra: BTreeMap<String, String>,
}

impl NewLxc {
    /// An unprivileged container of this number and nothing else.
    #[must_use]
    pub fn new(vmid: Vmid, ostemplate: Volid, storage: StorageId, gib: u32) -> Self {
        Self {
            vmid,
            ostemplate,
            rootfs: (storage, gib),
            unprivileged: true,
            nesting: false,
            hostname: None,
            memory: None,
            swap: None,
            cores: None,
            password: None,
            ssh_public_keys: None,
            description: None,
            tags: Tags::default(),
            pool: None,
            onboot: false,
            protection: false,
            start: false,
            nets: Vec::new(),
            extra: BTreeMap::new(),
        }
    }

    fn form(&self) -> Result<Form, Error> {
        let (storage, gib) = &self.rootfs;
        let mut keys = Keys::new(GuestKind::Lxc);
        keys.some("rootfs", Some(NewDisk::new(storage.clone(), *gib).text("rootfs")?))?;
        keys.some("unprivileged", Some(u8::from(self.unprivileged)))?;
        keys.some("features", self.nesting.then_some("nesting=1"))?;
        keys.some("hostname", self.hostname.as_ref())?;
        keys.some("memory", self.memory)?;
        keys.some("swap", self.swap)?;
        keys.some("cores", self.cores)?;
        keys.some("description", self.description.as_ref())?;
        keys.some("tags", Some(&self.tags).filter(|tags| !tags.is_empty()))?;
        keys.some("ssh-public-keys", self.ssh_public_keys.as_ref())?;
        for (key, on) in [("onboot", self.onboot), ("protection", self.protection)] {
            keys.some(key, on.then_some(1))?;
        }
        keys.nets(&self.nets)?;
        keys.extra(&self.extra)?;
        if self.password.as_ref().is_some_and(|password| password.expose_secret().chars().count() < 5) {
            return Err(Error::argument("password", "PVE takes no password of less than 5 characters"));
        }
        Ok(keys
            .form(self.vmid)
            .put("ostemplate", &self.ostemplate)
            .put_some("password", self.password.as_ref().map(ExposeSecret::expose_secret))
            .put_some("pool", self.pool.as_ref())
            .put_if("start", self.start))
    }
}

/// Keys of a new guest, each at most once.
struct Keys {
    kind: GuestKind,
    set: BTreeMap<String, String>,
}

impl Keys {
    fn new(kind: GuestKind) -> Self {
        Self { kind, set: BTreeMap::new() }
    }

    fn some(&mut self, key: &str, value: Option<impl ToString>) -> Result<(), Error> {
        let Some(value) = value.map(|value| value.to_string()) else { return Ok(()) };
        options::check(self.kind, key, &value)?;
        match self.set.insert(key.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(Error::argument(key, "set twice; a field of its own sets it")),
        }
    }

    fn nets(&mut self, nets: &[NewNet]) -> Result<(), Error> {
        if nets.len() > 32 {
            return Err(Error::argument("net32", "a guest has at most 32 network interfaces"));
        }
        for (index, net) in nets.iter().enumerate() {
            self.some(&format!("net{index}"), Some(net.text(self.kind, index)?))?;
        }
        Ok(())
    }

    fn extra(&mut self, extra: &BTreeMap<String, String>) -> Result<(), Error> {
        for (key, value) in extra {
            if ["password", "pool", "start"].contains(&key.as_str()) {
                return Err(Error::argument(key, "set it by its own field"));
            }
            self.some(key, Some(value))?;
        }
        Ok(())
    }

    fn form(&self, vmid: Vmid) -> Form {
        self.set.iter().fold(Form::new().put("vmid", vmid), |form, (key, value)| form.put(key, value))
    }
}

impl Client {
    /// Makes a virtual machine (`POST /nodes/{node}/qemu`; needs `VM.Allocate` on `/vms/{vmid}` or the pool,
    /// `VM.Config.*` by key, `Datastore.AllocateSpace` on the storages, `SDN.Use` on the bridges; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`Exists`](crate::ErrorKind::Exists) when a guest has the number; with effect
    /// [`Unknown`](crate::Effect::Unknown) it may be being made. What cannot arrive as it is meant is refused before
    /// anything is sent.
    pub async fn create_qemu(&self, node: &NodeName, new: &NewQemu) -> Result<Upid, Error> {
        self.post(Path::node(node).id(&GuestKind::Qemu), new.form()?).await?.upid()
    }

    /// Makes a container from a template (`POST /nodes/{node}/lxc`; privileges as for [`Client::create_qemu`], and
    /// reading the template; PVE 7 to 9).
    ///
    /// # Errors
    /// As for [`Client::create_qemu`].
    pub async fn create_lxc(&self, node: &NodeName, new: &NewLxc) -> Result<Upid, Error> {
        self.post(Path::node(node).id(&GuestKind::Lxc), new.form()?).await?.upid()
    }
}
