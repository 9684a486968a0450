use std::{borrow::Cow, fmt};

use super::{
    Resource, ResourceKind,
    columns::{self, Column},
    read::Row,
};
use crate::{
    guest::{GuestKind, GuestRef},
    ids::{NodeName, StorageId, Tags, Vmid},
    wire::Field,
};

/// An entry of an [`Inventory`](super::Inventory), read where it is asked.
///
/// A guest always has a node and a number, a node and a storage have a node.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    text: &'a str,
    row: &'a Row,
    place: usize,
}

impl<'a> Entry<'a> {
    pub(super) fn new(text: &'a str, row: &'a Row, place: usize) -> Self {
        Self { text, row, place }
    }

    fn json(self, column: Column) -> Option<&'a str> {
        self.row.json(column, self.text)
    }

    fn text(self, column: Column) -> Field<Cow<'a, str>> {
        self.json(column).map_or(Field::Absent, columns::text)
    }

    /// A text that is there and not empty.
    fn filled(self, column: Column) -> Option<Cow<'a, str>> {
        match self.text(column) {
            Field::Value(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn flag(self, column: Column) -> Field<bool> {
        self.json(column).map_or(Field::Absent, columns::boolean)
    }

    fn counter(self, column: Column) -> Option<u64> {
        columns::counter(self.json(column)?)
    }

    fn decimal(self, column: Column) -> Option<f64> {
        columns::decimal(self.json(column)?)
    }

    /// Its place in PVE's order, from 0, where [`Inventory::get`](super::Inventory::get) finds it again.
    #[must_use]
    pub fn place(self) -> usize {
        self.place
    }

    /// What it is.
    #[must_use]
    pub fn kind(self) -> ResourceKind {
        ResourceKind::read(&self.filled(Column::Type).unwrap_or_default())
    }

    /// The kind of guest, if it is one.
    #[must_use]
    pub fn guest_kind(self) -> Option<GuestKind> {
        self.row.vmid()?;
        self.kind().guest()
    }

    /// The guest it is, addressed.
    #[must_use]
    pub fn guest(self) -> Option<GuestRef> {
        Some(GuestRef { kind: self.guest_kind()?, vmid: self.row.vmid()?, node: self.node()?.parse().ok()? })
    }

    /// The guest's number.
    #[must_use]
    pub fn vmid(self) -> Option<Vmid> {
        self.row.vmid()
    }

    /// PVE's id of the entry, `qemu/100`, `storage/pve1/local`.
    #[must_use]
    pub fn id(self) -> Option<Cow<'a, str>> {
        self.filled(Column::Id)
    }

    /// The name of the node it is on, or is.
    #[must_use]
    pub fn node(self) -> Option<Cow<'a, str>> {
        self.filled(Column::Node).filter(|node| NodeName::is_valid(node))
    }

    /// The guest's name; there is none while its node is offline.
    #[must_use]
    pub fn name(self) -> Option<Cow<'a, str>> {
        self.filled(Column::Name)
    }

    /// `running`, `stopped`, `online`, `available`, `unknown` and the like.
    #[must_use]
    pub fn status(self) -> Option<Cow<'a, str>> {
        self.filled(Column::Status)
    }

    /// The guest's tags.
    #[must_use]
    pub fn tags(self) -> Field<Tags> {
        self.text(Column::Tags).and_then(|text| Some(Tags::parse(&text)))
    }

    /// The pool the guest is in, or the pool's own name.
    #[must_use]
    pub fn pool(self) -> Field<Cow<'a, str>> {
        self.text(Column::Pool)
    }

    /// Whether the guest is a template.
    #[must_use]
    pub fn template(self) -> Field<bool> {
        self.flag(Column::Template)
    }

    /// The lock on the guest, such as `backup`.
    #[must_use]
    pub fn lock(self) -> Option<Cow<'a, str>> {
        self.filled(Column::Lock)
    }

    /// The state HA wants the guest in, if HA manages it.
    #[must_use]
    pub fn ha_state(self) -> Option<Cow<'a, str>> {
        self.filled(Column::HaState)
    }

    /// The storage's id.
    #[must_use]
    pub fn storage(self) -> Option<StorageId> {
        self.filled(Column::Storage)?.parse().ok()
    }

    /// The storage's type, `lvmthin`.
    #[must_use]
    pub fn plugin_type(self) -> Option<Cow<'a, str>> {
        self.filled(Column::PluginType)
    }

    /// Whether the storage is shared between nodes.
    #[must_use]
    pub fn shared(self) -> Field<bool> {
        self.flag(Column::Shared)
    }

    /// Share of the processors in use, 0 to 1.
    #[must_use]
    pub fn cpu(self) -> Option<f64> {
        self.decimal(Column::Cpu)
    }

    /// How many processors there are.
    #[must_use]
    pub fn maxcpu(self) -> Option<f64> {
        self.decimal(Column::MaxCpu)
    }

    /// Memory in use, bytes.
    #[must_use]
    pub fn mem(self) -> Option<u64> {
        self.counter(Column::Mem)
    }

    /// Memory, bytes.
    #[must_use]
    pub fn maxmem(self) -> Option<u64> {
        self.counter(Column::MaxMem)
    }

    /// Disk in use, bytes.
    #[must_use]
    pub fn disk(self) -> Option<u64> {
        self.counter(Column::Disk)
    }

    /// Disk size, bytes.
    #[must_use]
    pub fn maxdisk(self) -> Option<u64> {
        self.counter(Column::MaxDisk)
    }

    /// Seconds since the start.
    #[must_use]
    pub fn uptime(self) -> Option<u64> {
        self.counter(Column::Uptime)
    }

    /// All its columns, as values of their own.
    #[must_use]
    pub fn to_resource(self) -> Resource {
        let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
        Resource {
            id: owned(self.id()),
            kind: self.kind(),
            node: self.node().and_then(|node| node.parse().ok()),
            vmid: self.filled(Column::Vmid).and_then(|vmid| vmid.parse().ok()),
            name: owned(self.name()),
            status: owned(self.status()),
            tags: self.tags(),
            pool: self.pool().and_then(|pool| Some(pool.into_owned())),
            template: self.template(),
            lock: owned(self.lock()),
            ha_state: owned(self.ha_state()),
            storage: self.storage(),
            plugin_type: owned(self.plugin_type()),
            shared: self.shared(),
            cpu: self.cpu(),
            maxcpu: self.maxcpu(),
            mem: self.mem(),
            maxmem: self.maxmem(),
            disk: self.disk(),
            maxdisk: self.maxdisk(),
            uptime: self.uptime(),
        }
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id())
            .field("node", &self.node())
            .field("name", &self.name())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
