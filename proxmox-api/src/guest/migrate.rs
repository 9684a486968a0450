use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, StorageId, Upid, Volid},
    wire::{Field, Form, JsonMap, Record},
};

/// What PVE says about moving a guest. What it does not say is empty; the whole answer is in `json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratePreconditions {
    /// Whether the guest runs.
    pub running: Field<bool>,
    /// The nodes it can go to.
    pub allowed_nodes: Vec<NodeName>,
    /// The nodes it cannot go to, with PVE's reasons.
    pub not_allowed_nodes: JsonMap,
    /// Disks on storage that the other nodes do not share.
    pub local_disks: Vec<LocalDisk>,
    /// Devices of the node it uses, which hold it there.
    pub local_resources: Vec<String>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

/// A disk that a migration has to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDisk {
    /// The volume.
    pub volid: Volid,
    /// Size, bytes.
    pub size: Option<u64>,
    /// The key it is attached as.
    pub drivename: Option<String>,
    /// Whether it is an ISO image in a drive, which stays behind.
    pub cdrom: Field<bool>,
}

impl LocalDisk {
    fn read(row: &Record<'_>) -> Option<Self> {
        Some(Self {
            volid: row.id("volid")?,
            size: row.integer("size"),
            drivename: row.filled("drivename"),
            cdrom: row.flag("cdrom"),
        })
    }
}

/// Where the disks of a migrated guest go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetStorage {
    /// All onto this storage.
    One(StorageId),
    /// Each storage's disks onto another one.
    Map(Vec<(StorageId, StorageId)>),
    /// Each onto the storage of the same name.
    Same,
}

impl TargetStorage {
    fn text(&self) -> Option<String> {
        match self {
            Self::One(storage) => Some(storage.to_string()),
            Self::Same => Some("1".to_owned()),
            Self::Map(pairs) if pairs.is_empty() => None,
            Self::Map(pairs) => {
                Some(pairs.iter().map(|(from, to)| format!("{from}:{to}")).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// How to migrate a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrateOptions {
    /// Lets a running virtual machine run on. Without it PVE refuses a running one.
    pub online: bool,
    /// Stops a running container, moves it and starts it again. Without it PVE refuses a running one.
    pub restart: bool,
    /// How many seconds the container's shutdown may take; PVE's default is 180.
    pub timeout: Option<u32>,
    /// Also copies local disks of a running virtual machine.
    pub with_local_disks: bool,
    /// Where the disks go.
    pub target_storage: Option<TargetStorage>,
    /// KiB/s at most.
    pub bwlimit: Option<u32>,
}

impl Client {
    /// What stands in the way of moving the guest, to one node or to any (`GET …/migrate`; needs `VM.Migrate`; virtual
    /// machines PVE 7 to 9, containers 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn migrate_preconditions(
        &self,
        guest: &GuestRef,
        target: Option<&NodeName>,
    ) -> Result<MigratePreconditions, Error> {
        let reply = self.read(guest.path().word("migrate"), Form::new().put_some("target", target)).await?;
        reply.record(|data| {
            let disks = data.listing("local_disks", LocalDisk::read);
            // What stands in the way must not be lost.
            let disks = disks.filter(|disks| disks.skipped == 0);
            let local_disks = disks.ok_or_else(|| reply.malformed("a local disk cannot be read"))?.items;
            let not_allowed = data.record("not_allowed_nodes").or_else(|| data.record("not-allowed-nodes"));
            let mut allowed = data.texts("allowed_nodes");
            allowed.extend(data.texts("allowed-nodes"));
            Ok(MigratePreconditions {
                running: data.flag("running"),
                allowed_nodes: allowed.iter().filter_map(|node| node.parse().ok()).collect(),
                not_allowed_nodes: not_allowed.map(|nodes| nodes.json()).unwrap_or_default(),
                local_disks,
                local_resources: data.texts("local_resources"),
                json: data.json(),
            })
        })
    }

    /// Moves the guest to another node (`POST …/migrate`; needs `VM.Migrate`; PVE 7 to 9). A guest under HA gives a
    /// `hamigrate` task, which ends OK when the request is queued.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be moving. Options of the other kind of
    /// guest are refused before anything is sent.
    pub async fn migrate(
        &self,
        guest: &GuestRef,
        target: &NodeName,
        options: &MigrateOptions,
    ) -> Result<Upid, Error> {
        if *target == guest.node {
            return Err(Error::argument(
                "target",
                format!("the guest is on {target} already; name another node"),
            ));
        }
        let storage = options.target_storage.as_ref().and_then(TargetStorage::text);
        let form = Form::new().put("target", target).put_some("bwlimit", options.bwlimit);
        let form = match guest.kind {
            GuestKind::Qemu => {
                if options.restart || options.timeout.is_some() {
                    return Err(Error::argument("restart", "only containers are restarted; use `online`"));
                }
                form.put_if("online", options.online)
                    .put_if("with-local-disks", options.with_local_disks)
                    .put_some("targetstorage", storage)
            }
            GuestKind::Lxc => {
                if options.online || options.with_local_disks {
                    return Err(Error::argument(
                        "online",
                        "a container cannot move while it runs; use `restart`",
                    ));
                }
                form.put_if("restart", options.restart)
                    .put_some("timeout", options.timeout)
                    .put_some("target-storage", storage)
            }
        };
        self.post(guest.path().word("migrate"), form).await?.upid()
    }
}
