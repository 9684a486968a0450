//! What makes a guest the one that was approved.

use std::sync::Arc;

use changeset::{Fingerprint, Step};
use proxmox_api::{Error, Field, GuestConfig, GuestKind, NodeName, ResourceKind, TaskFilter, Vmid, Volid};

use super::{facts, guest_config, op, wall};
use crate::config::Cluster;
use crate::resolve::{Freshness, Guest, Resolver};

/// Worker types that end one guest of a number or begin another.
const LIFE_TASKS: &[&str] =
    &["qmcreate", "qmrestore", "qmclone", "qmdestroy", "vzcreate", "vzrestore", "vzclone", "vzdestroy"];

/// Field name of the newest task that made or destroyed a guest of this number.
pub const LAST_LIFE_TASK: &str = "last_life_task";

/// What tells a guest from one made anew under its number. QEMU has `vmgenid`, the SMBIOS uuid and a creation time; LXC has
/// nothing but its network cards' addresses and its volumes (PVE keeps no creation time for containers).
fn hardware_identity(kind: GuestKind, config: &GuestConfig) -> String {
    let value = |key: &str| config.raw.get(key).cloned().unwrap_or_default();
    match kind {
        GuestKind::Qemu => {
            format!("vmgenid={} smbios1={} meta={}", value("vmgenid"), value("smbios1"), value("meta"))
        }
        GuestKind::Lxc => {
            let nets: Vec<String> = config
                .raw
                .iter()
                .filter(|(key, _)| key.starts_with("net"))
                .map(|(key, net)| {
                    format!("{key}={}", net.split(',').find(|part| part.starts_with("hwaddr=")).unwrap_or(""))
                })
                .collect();
            format!("{} rootfs={}", nets.join(" "), value("rootfs"))
        }
    }
}

/// What ties an upload link to this guest and to no later one of its number: its hardware, and the newest task that made a
/// guest of that number, for a container made anew can have the very addresses and volumes of the old one.
///
/// # Errors
/// A node's task list could not be read.
pub async fn identity(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    guest: &Guest,
    config: &GuestConfig,
) -> Result<String, Error> {
    let last = last_life_task(resolver, cluster, guest).await?;
    Ok(format!("{} {LAST_LIFE_TASK}={last}", hardware_identity(guest.at.kind, config)))
}

/// The guest's facts, each in one spelling. The node is not among them: a guest that moved is still the same guest.
///
/// # Errors
/// A node's task list could not be read.
pub async fn of(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    guest: &Guest,
    config: &GuestConfig,
) -> Result<Fingerprint, Error> {
    let tags = match config.tags() {
        Field::Absent => String::new(),
        Field::Value(tags) => tags.iter().collect::<Vec<_>>().join(";"),
        Field::Unreadable => "(unreadable)".to_owned(),
    };
    let pool = match &guest.facts.pool {
        authz::Known::Known(pool) => pool.clone().unwrap_or_default(),
        authz::Known::Unreadable => "(unreadable)".to_owned(),
    };
    let digest = config.digest.as_ref().map(ToString::to_string).unwrap_or_default();
    let last = last_life_task(resolver, cluster, guest).await?;
    Ok(Fingerprint::new([
        ("cluster".to_owned(), cluster.name.clone()),
        ("vmid".to_owned(), guest.vmid().to_string()),
        ("name".to_owned(), guest.facts.name.clone().unwrap_or_default()),
        ("kind".to_owned(), guest.facts.kind.as_str().to_owned()),
        ("status".to_owned(), guest.status.clone()),
        ("tags".to_owned(), tags),
        ("pool".to_owned(), pool),
        ("config_digest".to_owned(), digest),
        ("config".to_owned(), guest_config::digest(config)),
        ("disks".to_owned(), disks(config)),
        ("hardware".to_owned(), hardware_identity(guest.at.kind, config)),
        (LAST_LIFE_TASK.to_owned(), last),
    ]))
}

/// Fields that say how the guest is, not which one it is. An operation that does not touch the guest itself does not mind them.
const CONDITION: &[&str] = &["status", "config_digest", "config", "disks"];

/// What must not have moved for these steps to be the ones that were approved: the guest, and whatever else they act on.
///
/// # Errors
/// Something could not be read.
pub async fn for_steps(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    guest: &Guest,
    config: &GuestConfig,
    steps: &[Step],
) -> Result<Fingerprint, Error> {
    let mut all = of(resolver, cluster, guest, config).await?;
    let Some(step) = op::subject(steps) else { return Ok(all) };
    if matches!(step.op.as_str(), op::DELETE_BACKUP | op::RESTORE_NEW_VMID) || wall::is_firewall(&step.op) {
        all.fields.retain(|field, _| !CONDITION.contains(&field.as_str()));
    }
    let param = |name: &str| step.params.get(name).map(String::as_str).unwrap_or_default();
    let mut also = |field: &str, value: String| {
        all.fields.insert(field.to_owned(), value);
    };
    match step.op.as_str() {
        op::DELETE_SNAPSHOT | op::ROLLBACK_SNAPSHOT => {
            let snapshots = cluster.client.snapshots(&guest.at).await?.items;
            let found = snapshots.iter().find(|snapshot| snapshot.name == param("snapname"));
            also("snapshot", found.map_or_else(|| "gone".to_owned(), facts::snapshot_identity));
        }
        op::DELETE_BACKUP | op::RESTORE_BACKUP | op::RESTORE_NEW_VMID => {
            let node = param("node").parse().unwrap_or_else(|_| guest.at.node.clone());
            also("archive", volume_now(cluster, &node, param("volid")).await?);
            if let Ok(newid) = param("newid").parse::<Vmid>() {
                let taken = is_taken(resolver, cluster, newid).await?;
                also("newid", if taken { "taken" } else { "free" }.to_owned());
            }
        }
        op::MIGRATE => {
            let online = match param("target").parse() {
                Ok(target) => is_online(resolver, cluster, &target).await?,
                Err(_) => false,
            };
            also("target_node", if online { "online" } else { "not online" }.to_owned());
        }
        _ => {}
    }
    Ok(all)
}

/// A volume as it is now: `gone` where its storage does not list it.
pub(super) async fn volume_now(cluster: &Cluster, node: &NodeName, volid: &str) -> Result<String, Error> {
    let Ok(volid) = volid.parse::<Volid>() else { return Ok("gone".to_owned()) };
    let found = facts::on_node(cluster, node, &volid).await?;
    Ok(found.map_or_else(|| "gone".to_owned(), |item| facts::volume_identity(&item)))
}

/// Whether a guest has this number.
pub(super) async fn is_taken(resolver: &Resolver, cluster: &Arc<Cluster>, vmid: Vmid) -> Result<bool, Error> {
    let rows = resolver.resources(cluster, Freshness::Now).await?;
    Ok(rows.iter().any(|row| row.vmid == Some(vmid)))
}

/// Whether the cluster has this node and it is online.
pub(super) async fn is_online(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    node: &NodeName,
) -> Result<bool, Error> {
    let rows = resolver.resources(cluster, Freshness::Now).await?;
    Ok(rows.iter().any(|row| {
        row.kind == ResourceKind::Node
            && row.node.as_ref() == Some(node)
            && row.status.as_deref() == Some("online")
    }))
}

/// The guest's disks as text, in the order of their keys.
pub fn disks(config: &GuestConfig) -> String {
    let shown = |slot: &String| config.raw.get(slot).map(|value| format!("{slot}={value}"));
    config.disks().iter().filter_map(|disk| shown(&disk.slot)).collect::<Vec<_>>().join(" ")
}

/// The newest task in the cluster that made, restored, cloned or destroyed a guest of this number. A guest recreated with the same
/// configuration shows here even where nothing else tells it from the old one. Offline nodes run no tasks.
async fn last_life_task(resolver: &Resolver, cluster: &Arc<Cluster>, guest: &Guest) -> Result<String, Error> {
    let inventory = resolver.inventory(cluster, Freshness::Now).await?;
    let nodes: Vec<NodeName> = inventory
        .nodes()
        .filter(|node| node.status().is_some_and(|status| status == "online"))
        .filter_map(|node| node.node()?.parse().ok())
        .collect();
    let mut newest: Option<(u64, String)> = None;
    for node in nodes {
        let filter = TaskFilter { vmid: Some(guest.at.vmid), limit: 500, ..TaskFilter::default() };
        for task in cluster.client.tasks(&node, &filter).await?.items {
            if !LIFE_TASKS.contains(&task.upid.kind()) {
                continue;
            }
            let found = (u64::from(task.upid.starttime()), task.upid.to_string());
            if newest.as_ref().is_none_or(|newest| found > *newest) {
                newest = Some(found);
            }
        }
    }
    Ok(newest.map_or_else(|| "none".to_owned(), |(_, upid)| upid))
}
