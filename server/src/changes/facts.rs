//! Live facts that a plan is made from and a preview shows. What cannot be read is said to be unreadable, never taken for absent.

use std::sync::Arc;

use changeset::Preview;
use jiff::Timestamp;
use proxmox_api::{
    DiskSource, Error, Field, GuestConfig, GuestKind, NodeName, Snapshot, StorageItem, StorageStatus, Volid,
};

use super::plan::PlanRefusal;
use crate::config::Cluster;
use crate::resolve::{Freshness, Guest, Resolver};

/// Other guests' configurations read to find out who depends on something.
const MAX_CONFIGS: usize = 300;

/// The guest's snapshots, oldest first.
pub(super) async fn snapshots(cluster: &Cluster, guest: &Guest) -> Result<Vec<Snapshot>, PlanRefusal> {
    let listed = cluster.client.snapshots(&guest.at).await?;
    if listed.skipped > 0 {
        return Err(PlanRefusal::Impossible(
            "one of the guest's snapshots cannot be read; an administrator must look at its configuration"
                .to_owned(),
        ));
    }
    let mut snapshots = listed.items;
    snapshots.sort_by_key(|snapshot| snapshot.snaptime);
    Ok(snapshots)
}

/// What tells one snapshot from another of its name.
pub(super) fn snapshot_identity(snapshot: &Snapshot) -> String {
    format!(
        "{} snaptime={:?} parent={:?} vmstate={:?}",
        snapshot.name, snapshot.snaptime, snapshot.parent, snapshot.vmstate
    )
}

/// The guest's HA resource in words; `None` where HA does not manage it.
pub(super) async fn ha(cluster: &Cluster, guest: &Guest) -> Result<Option<String>, Error> {
    let resources = cluster.client.ha_resources().await?.items;
    Ok(resources
        .into_iter()
        .find(|resource| resource.vmid == guest.at.vmid && resource.state.as_deref() != Some("ignored"))
        .map(|resource| {
            format!("{}, {}", resource.sid, resource.state.as_deref().unwrap_or("state unknown"))
        }))
}

/// The guest's backups that are in reach of its node, newest first, and the storages that could not be read.
#[derive(Debug, Default)]
pub(super) struct Backups {
    found: Vec<StorageItem>,
    unread: Vec<String>,
}

/// Looks for the guest's backups on every storage of its node that keeps backups.
pub(super) async fn backups(cluster: &Cluster, guest: &Guest) -> Backups {
    let mut backups = Backups::default();
    let storages = match cluster.client.storages(&guest.at.node).await {
        Ok(storages) if storages.skipped == 0 => storages.items,
        Ok(storages) => {
            backups.unread.push("a storage without a readable name".to_owned());
            storages.items
        }
        Err(error) => {
            backups.unread.push(format!(
                "the storages of {}: {}",
                guest.at.node,
                Preview::quote(&error.to_string())
            ));
            return backups;
        }
    };
    for storage in storages.iter().filter(|storage| storage.content.iter().any(|content| content == "backup"))
    {
        match cluster.client.backups(&guest.at.node, &storage.storage, Some(guest.at.vmid)).await {
            Ok(listing) => {
                if listing.skipped > 0 {
                    backups.unread.push(format!("entries of {}", storage.storage));
                }
                // The list is asked for one guest, but PVE decides what it answers.
                backups
                    .found
                    .extend(listing.items.into_iter().filter(|item| item.vmid == Some(guest.at.vmid)));
            }
            Err(_) => backups.unread.push(storage.storage.to_string()),
        }
    }
    backups.found.sort_by_key(|item| std::cmp::Reverse(item.ctime));
    backups
}

impl Backups {
    /// In words, with the newest one's age at `now`.
    pub(super) fn in_words(&self, now: Timestamp) -> String {
        let mut text = match self.found.first() {
            None if self.unread.is_empty() => return "none found".to_owned(),
            None => String::new(),
            Some(newest) => format!(
                "{}, newest {} {}",
                self.found.len(),
                Preview::quote(&newest.volid.to_string()),
                newest.ctime.map_or_else(|| "of an unknown time".to_owned(), |at| taken(at, now))
            ),
        };
        if !self.unread.is_empty() {
            let gap = if text.is_empty() { "" } else { "; " };
            text.push_str(&format!("{gap}could not be read: {}", self.unread.join(", ")));
        }
        text
    }
}

/// When something was made, and how long ago that is.
pub(super) fn taken(seconds: u64, now: Timestamp) -> String {
    let at = i64::try_from(seconds).ok().and_then(|at| Timestamp::from_second(at).ok());
    let Some(at) = at else { return "of an unknown time".to_owned() };
    let minutes = now.duration_since(at).as_secs() / 60;
    let age = match minutes {
        i64::MIN..0 => "in the future".to_owned(),
        0..120 => format!("{minutes} min old"),
        120..2880 => format!("{} h old", minutes / 60),
        _ => format!("{} days old", minutes / 1440),
    };
    format!("of {at} ({age})")
}

/// Guests that depend on something, and those of which that could not be found out.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    /// By number.
    pub found: Vec<u32>,
    unread: Vec<String>,
}

impl Dependents {
    /// In words.
    pub(super) fn in_words(&self) -> String {
        let found = self.found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match (self.found.is_empty(), self.unread.is_empty()) {
            (true, true) => "none".to_owned(),
            (false, true) => found,
            (true, false) => format!("could not be read: {}", self.unread.join(", ")),
            (false, false) => format!("{found}; could not be read: {}", self.unread.join(", ")),
        }
    }
}

/// Guests whose disks are linked to this one's. Only a template's disks can be linked to.
pub(super) async fn linked_clones(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    guest: &Guest,
    config: &GuestConfig,
) -> Dependents {
    let has_base = config.raw.values().any(|value| value.contains("base-"));
    if !guest.template && config.template().value() != Some(&true) && !has_base {
        return Dependents::default();
    }
    let base = format!("base-{}-", guest.vmid());
    others_whose_config(resolver, cluster, guest.vmid(), |value| {
        // `storage:base-905-disk-0/vm-906-disk-0`, `storage:905/base-905-disk-0.qcow2/906/vm-906-disk-0.qcow2`.
        value.contains(&base)
    })
    .await
}

/// Guests that have this volume in a drive.
pub(super) async fn users_of(resolver: &Resolver, cluster: &Arc<Cluster>, volid: &Volid) -> Dependents {
    let name = volid.to_string();
    others_whose_config(resolver, cluster, 0, |value| value.split(',').next() == Some(name.as_str())).await
}

async fn others_whose_config(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    but: u32,
    matches: impl Fn(&str) -> bool,
) -> Dependents {
    let mut out = Dependents::default();
    let rows = match resolver.resources(cluster, Freshness::Now).await {
        Ok(rows) => rows,
        Err(error) => {
            out.unread.push(format!("the guests: {}", Preview::quote(&error.to_string())));
            return out;
        }
    };
    let others: Vec<_> =
        rows.iter().filter_map(proxmox_api::Resource::guest).filter(|at| at.vmid.get() != but).collect();
    if others.len() > MAX_CONFIGS {
        out.unread.push(format!("{} guests, more than {MAX_CONFIGS}", others.len()));
        return out;
    }
    for at in others {
        match cluster.client.guest_config(&at).await {
            Ok(config) if config.raw.values().any(|value| matches(value)) => out.found.push(at.vmid.get()),
            Ok(_) => {}
            Err(_) => out.unread.push(format!("guest {}", at.vmid)),
        }
    }
    out.found.sort_unstable();
    out.unread.sort_unstable();
    out
}

/// Whether a snapshot of all the guest's disks can be taken, as far as their storages' types say. `later`: and another, older one be
/// gone back to with it there, which ZFS refuses.
pub(super) fn can_snapshot(
    guest: &Guest,
    config: &GuestConfig,
    storages: &[StorageStatus],
    later: bool,
) -> bool {
    if guest.template {
        return false;
    }
    config.disks().iter().filter(|disk| !disk.is_cdrom() && !disk.slot.starts_with("unused")).all(|disk| {
        let DiskSource::Volume(volid) = &disk.source else {
            return matches!(disk.source, DiskSource::Other(_));
        };
        let storage = storages.iter().find(|storage| storage.storage == *volid.storage());
        match storage.and_then(|storage| storage.kind.as_deref()) {
            Some("lvmthin" | "rbd" | "btrfs") => true,
            Some("zfspool" | "zfs") => !later,
            _ => guest.at.kind == GuestKind::Qemu && volid.volume().ends_with(".qcow2"),
        }
    })
}

/// A volume as its storage lists it, and the node it was asked through: the guest's, where there is one, else the first that reaches it.
pub(super) async fn volume(
    resolver: &Resolver,
    cluster: &Arc<Cluster>,
    preferred: Option<&NodeName>,
    volid: &Volid,
) -> Result<Option<(NodeName, StorageItem)>, Error> {
    let rows = resolver.resources(cluster, Freshness::Now).await?;
    let online = rows
        .iter()
        .filter(|row| row.kind == proxmox_api::ResourceKind::Node && row.status.as_deref() == Some("online"));
    let others = online.filter_map(|row| row.node.clone());
    let nodes: Vec<NodeName> =
        preferred.cloned().into_iter().chain(others.filter(|node| Some(node) != preferred)).collect();
    let mut problem = None;
    for node in nodes {
        match on_node(cluster, &node, volid).await {
            Ok(Some(item)) => return Ok(Some((node, item))),
            Ok(None) => {}
            Err(error) => problem = Some(error),
        }
    }
    problem.map_or(Ok(None), Err)
}

/// The volume as this node's view of its storage lists it.
pub(super) async fn on_node(
    cluster: &Cluster,
    node: &NodeName,
    volid: &Volid,
) -> Result<Option<StorageItem>, Error> {
    let storages = cluster.client.storages(node).await?.items;
    let reached =
        storages.iter().find(|storage| storage.storage == *volid.storage()).is_some_and(|storage| {
            storage.active.value() != Some(&false) && storage.enabled.value() != Some(&false)
        });
    if !reached {
        return Ok(None);
    }
    let listing =
        cluster.client.storage_content(node, volid.storage(), &proxmox_api::ContentFilter::default()).await?;
    Ok(listing.items.into_iter().find(|item| item.volid == *volid))
}

/// What tells one archive from another that came to have its name.
pub(super) fn volume_identity(item: &StorageItem) -> String {
    format!(
        "{} size={:?} ctime={:?} vmid={:?}",
        item.volid,
        item.size,
        item.ctime,
        item.vmid.map(proxmox_api::Vmid::get)
    )
}

/// Which kind of guest an archive holds, by what PVE says about it, else by its name.
pub(super) fn archive_kind(item: &StorageItem) -> Option<&'static str> {
    if let Some(kind) = item.subtype.as_deref() {
        return ["qemu", "lxc"].into_iter().find(|known| *known == kind);
    }
    let name = item.volid.volume();
    if name.contains("vzdump-qemu-") || name.starts_with("backup/vm/") {
        Some("qemu")
    } else if name.contains("vzdump-lxc-") || name.starts_with("backup/ct/") {
        Some("lxc")
    } else {
        None
    }
}

/// Whether a volume is known not to be protected from removal.
pub(super) fn is_protected(item: &StorageItem) -> bool {
    !matches!(item.protected, Field::Absent | Field::Value(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_a_unit_that_people_compare() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| taken(u64::try_from(now.as_second() - seconds).unwrap(), now);
        assert!(ago(90).ends_with("(1 min old)"));
        assert!(ago(3 * 3600).ends_with("(3 h old)"));
        assert!(ago(40 * 86_400).ends_with("(40 days old)"));
        assert!(ago(-3600).ends_with("(in the future)"));
        assert_eq!(taken(u64::MAX, now), "of an unknown time");
    }

    #[test]
    fn what_could_not_be_read_is_never_none() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(Backups::default().in_words(now), "none found");
        let unread = Backups { found: Vec::new(), unread: vec!["nas".to_owned()] };
        assert_eq!(unread.in_words(now), "could not be read: nas");
        assert_eq!(Dependents::default().in_words(), "none");
        let one = Dependents { found: vec![104], unread: vec!["guest 130".to_owned()] };
        assert_eq!(one.in_words(), "104; could not be read: guest 130");
    }
}
