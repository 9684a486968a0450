//! `create_container`.

use std::collections::BTreeMap;

use authz::{GuestKind, Permit};
use proxmox_api::{DiskSlot, NewLxc, StorageId, Vmid};
use schemars::JsonSchema;
use serde::Deserialize;

use super::vm::beside;
use super::{NetWish, address, free_place, plain_keys, pool, public_keys, tags, volume, wrong};
use crate::catalog::{HandlerResult, Target};
use crate::stack::CallContext;
use crate::tools::args::id;
use crate::tools::cluster_of;
use crate::tools::routine::{How, Routine};

/// Arguments of `create_container`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateContainerArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The node to make it on.
    pub node: String,
    /// Its number, which no guest may have.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// The template to make it from, as list_templates names it.
    pub ostemplate: String,
    /// The storage of its root disk.
    pub storage: String,
    /// Size of the root disk in GiB.
    pub disk_gib: u32,
    /// Its host name, a DNS name.
    pub hostname: Option<String>,
    /// Cores.
    #[schemars(range(min = 1, max = 8192))]
    pub cores: Option<u32>,
    /// Memory in MiB.
    #[schemars(range(min = 16))]
    pub memory: Option<u32>,
    /// Swap in MiB.
    pub swap: Option<u32>,
    /// The bridge of its network interface, such as `vmbr0`; none, no interface.
    pub bridge: Option<String>,
    /// The interface's VLAN.
    pub vlan: Option<u16>,
    /// Whether PVE's firewall looks at the interface; yes when omitted.
    pub firewall: Option<bool>,
    /// The interface's address: `dhcp`, or an IPv4 address with its prefix length.
    pub ip: Option<String>,
    /// The gateway of that address.
    pub gateway: Option<String>,
    /// Public keys for root, one to a line. Passwords are not taken.
    pub ssh_public_keys: Option<String>,
    /// Whether containers can run in it.
    pub nesting: Option<bool>,
    /// Always true: a container whose root is the node's root is refused.
    pub unprivileged: Option<bool>,
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
    /// More keys as PVE takes them: those that update_container_config can set, and new volumes (`"mp0": "local-lvm:8,mp=/srv"`).
    pub config: Option<BTreeMap<String, String>>,
}

/// `create_container`.
pub async fn create(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: CreateContainerArgs,
    how: How,
) -> HandlerResult {
    let cluster = cluster_of(target)?;
    if args.unprivileged == Some(false) {
        return Err(wrong(
            "unprivileged",
            "a privileged container's root is the node's root, so this server makes none; an administrator can",
        ));
    }
    let node = id("node", &args.node)?;
    let vmid = Vmid::new(args.vmid).map_err(|error| wrong("vmid", error))?;
    let storage: StorageId = id("storage", &args.storage)?;
    let template = volume::template("ostemplate", &args.ostemplate)?;
    let mut new = NewLxc::new(vmid, template, storage, volume::gib("disk_gib", args.disk_gib)?);
    new.hostname = args.hostname.as_deref().map(|name| id("hostname", name)).transpose()?;
    (new.cores, new.memory, new.swap) = (args.cores, args.memory, args.swap);
    new.nesting = args.nesting.unwrap_or(false);
    new.onboot = args.onboot.unwrap_or(false);
    new.start = args.start.unwrap_or(false);
    new.pool = pool(ctx, cluster, args.pool.as_deref())?;
    new.tags = tags(ctx, cluster, args.tags)?;
    new.description = args.description.filter(|text| !text.is_empty());
    new.ssh_public_keys = public_keys(args.ssh_public_keys)?;
    let wish = NetWish { bridge: args.bridge.as_deref(), vlan: args.vlan, firewall: args.firewall };
    new.nets = wish.net(address(args.ip.as_deref(), args.gateway.as_deref())?)?;
    let mut mounts = BTreeMap::new();
    let given = args.config.unwrap_or_default();
    let mut extra = plain_keys(GuestKind::Lxc, given, |key, value| match key.parse::<DiskSlot>() {
        Ok(slot) if key.starts_with("mp") => {
            mounts.insert(slot.as_str().to_owned(), volume::mount_point(key, value)?);
            Ok(true)
        }
        _ => Ok(false),
    })?;
    for (key, value) in mounts {
        beside(&mut extra, "config", &key, Some(value))?;
    }
    new.extra = extra;
    free_place(ctx, cluster, Some(&node), vmid).await?;
    let routine = Routine::at(ctx, cluster, Some(args.vmid), node.as_str(), how);
    let sent = routine.client().create_lxc(&node, &new).await;
    routine.end(sent).await
}
