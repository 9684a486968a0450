//! `create_vm`.

use std::collections::BTreeMap;

use authz::{GuestKind, Permit};
use proxmox_api::{DiskSlot, NewDisk, NewQemu, StorageId, Vmid};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{NetWish, address, free_place, plain_keys, pool, public_keys, tags, volume, wrong};
use crate::catalog::{HandlerResult, Target};
use crate::stack::{CallContext, ToolFailure};
use crate::tools::args::id;
use crate::tools::cluster_of;
use crate::tools::routine::{How, Routine};

/// Where the disk, the image and the cloud-init drive of the arguments go. Both machine types have these.
const DISK: &str = "scsi0";
const DRIVE: &str = "ide2";
const CLOUD_INIT: &str = "ide0";
/// The controller that PVE's own wizard chooses; the API's default is an emulation of an old one.
const CONTROLLER: (&str, &str) = ("scsihw", "virtio-scsi-single");

/// Arguments of `create_vm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVmArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The node to make it on.
    pub node: String,
    /// Its number, which no guest may have.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Its name, a DNS name.
    pub name: Option<String>,
    /// Cores of each socket.
    #[schemars(range(min = 1, max = 8192))]
    pub cores: Option<u32>,
    /// Sockets.
    #[schemars(range(min = 1, max = 4))]
    pub sockets: Option<u32>,
    /// Memory in MiB.
    #[schemars(range(min = 16, max = 4_194_304))]
    pub memory: Option<u32>,
    /// What runs in it, in PVE's words: `l26` (Linux), `win11`, …
    pub ostype: Option<String>,
    /// The storage of its disk `scsi0` and of its cloud-init drive.
    pub storage: Option<String>,
    /// Size of that disk in GiB.
    pub disk_gib: Option<u32>,
    /// An ISO image for its drive, as list_isos names it.
    pub iso: Option<String>,
    /// The bridge of its network interface, such as `vmbr0`; none, no interface.
    pub bridge: Option<String>,
    /// The interface's VLAN.
    pub vlan: Option<u16>,
    /// Whether PVE's firewall looks at the interface; yes when omitted.
    pub firewall: Option<bool>,
    /// Give it a cloud-init drive; also done where one of the following four is given.
    pub cloud_init: Option<bool>,
    /// Cloud-init: the user.
    pub ciuser: Option<String>,
    /// Cloud-init: public keys of that user, one to a line. Passwords are not taken.
    pub ssh_public_keys: Option<String>,
    /// Cloud-init: `dhcp`, or an IPv4 address with its prefix length.
    pub ip: Option<String>,
    /// Cloud-init: the gateway of that address.
    pub gateway: Option<String>,
    /// Whether a QEMU guest agent runs in it.
    pub agent: Option<bool>,
    /// Whether it starts with its node.
    pub onboot: Option<bool>,
    /// Start it when it is made.
    pub start: Option<bool>,
    /// The pool to put it into; needs the scope `set_guest_pool`.
    pub pool: Option<String>,
    /// Its tags; needs the scope `update_guest_notes_tags`.
    pub tags: Option<Vec<String>>,
    /// A note.
    pub description: Option<String>,
    /// More keys as PVE takes them: those that update_vm_config can set, and new disks (`"scsi1": "local-lvm:32"`).
    pub config: Option<BTreeMap<String, String>>,
}

/// `create_vm`.
pub async fn create(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: CreateVmArgs,
    how: How,
) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let node = id("node", &args.node)?;
    let vmid = Vmid::new(args.vmid).map_err(|error| wrong("vmid", error))?;
    let mut new = NewQemu::new(vmid);
    new.name = args.name.as_deref().map(|name| id("name", name)).transpose()?;
    (new.cores, new.sockets, new.memory) = (args.cores, args.sockets, args.memory);
    new.agent = args.agent.unwrap_or(false);
    new.onboot = args.onboot.unwrap_or(false);
    new.start = args.start.unwrap_or(false);
    new.pool = pool(ctx, cluster, args.pool.as_deref())?;
    new.tags = tags(ctx, cluster, args.tags)?;
    new.description = args.description.filter(|text| !text.is_empty());
    let storage: Option<StorageId> =
        args.storage.as_deref().map(|storage| id("storage", storage)).transpose()?;
    let keys = public_keys(args.ssh_public_keys)?;
    let addresses = address(args.ip.as_deref(), args.gateway.as_deref())?;
    let wants_cloud_init =
        args.cloud_init.unwrap_or(false) || args.ciuser.is_some() || keys.is_some() || !addresses.is_empty();
    let slot = |name: &str| name.parse::<DiskSlot>().map_err(|error| wrong("config", error));
    match (&storage, args.disk_gib) {
        (Some(storage), Some(gib)) => {
            let disk = NewDisk::new(storage.clone(), volume::gib("disk_gib", gib)?);
            new.disks.insert(slot(DISK)?, disk);
        }
        (None, Some(_)) => return Err(wrong("storage", "it is missing: where is the disk to be?")),
        (Some(_), None) if !wants_cloud_init => {
            return Err(wrong("disk_gib", "it is missing: how large is the disk on `storage` to be?"));
        }
        _ => {}
    }
    if let Some(image) = &args.iso {
        new.disks.insert(slot(DRIVE)?, NewDisk::Cdrom(volume::iso("iso", image)?));
    }
    if wants_cloud_init {
        let Some(storage) = storage else {
            return Err(wrong("storage", "it is missing: where is the cloud-init drive to be?"));
        };
        new.disks.insert(slot(CLOUD_INIT)?, NewDisk::CloudInit(storage));
    }
    new.sshkeys = keys;
    let wish = NetWish { bridge: args.bridge.as_deref(), vlan: args.vlan, firewall: args.firewall };
    new.nets = wish.net(BTreeMap::new())?;
    let mut given = args.config.unwrap_or_default();
    for (field, key, value) in [("ostype", "ostype", args.ostype), ("ciuser", "ciuser", args.ciuser)] {
        beside(&mut given, field, key, value)?;
    }
    if !addresses.is_empty() {
        let text: Vec<String> = addresses.iter().map(|(name, value)| format!("{name}={value}")).collect();
        beside(&mut given, "ip", "ipconfig0", Some(text.join(",")))?;
    }
    new.extra = plain_keys(GuestKind::Qemu, given, |key, value| {
        let Ok(slot) = key.parse::<DiskSlot>() else { return Ok(false) };
        if slot.kind() != proxmox_api::GuestKind::Qemu || key.starts_with("efi") || key.starts_with("tpm") {
            return Ok(false);
        }
        if new.disks.insert(slot, volume::disk(key, value)?).is_some() {
            return Err(wrong("config", format!("`{key}` is set by an argument already")));
        }
        Ok(true)
    })?;
    if new.disks.keys().any(|slot| slot.as_str().starts_with("scsi")) {
        new.extra.entry(CONTROLLER.0.to_owned()).or_insert_with(|| CONTROLLER.1.to_owned());
    }
    free_place(ctx, cluster, Some(&node), vmid).await?;
    let routine = Routine::at(ctx, cluster, Some(args.vmid), node.as_str(), how);
    let sent = routine.client().create_qemu(&node, &new).await;
    routine.end(sent).await
}

/// Puts an argument beside the raw keys, unless one of them says something else already.
pub(super) fn beside(
    config: &mut BTreeMap<String, String>,
    field: &str,
    key: &str,
    value: Option<String>,
) -> Result<(), ToolFailure> {
    match value {
        None => Ok(()),
        Some(_) if config.contains_key(key) => {
            Err(wrong(field, format!("`config` sets `{key}` too: give it once")))
        }
        Some(value) => {
            config.insert(key.to_owned(), value);
            Ok(())
        }
    }
}
