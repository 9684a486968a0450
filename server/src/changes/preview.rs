//! What an approver reads, made from live facts. Structural fields come from ids; whatever a guest's owner can write is quoted.

use std::collections::BTreeMap;

use authz::Permit;
use changeset::Preview;
use proxmox_api::{Field, GuestConfig};

use super::fingerprint::disks;
use crate::config::Cluster;
use crate::resolve::Guest;

/// Facts of a preview that cost requests of their own.
#[derive(Debug, Clone)]
pub(super) struct Extras {
    /// Snapshots, oldest first: name and time of creation.
    pub snapshots: Vec<(String, Option<jiff::Timestamp>)>,
    /// The guest's HA resource, as PVE names it, with its state.
    pub ha: Option<String>,
}

/// Options of destroying a guest that an approver must see.
#[derive(Debug, Clone, Copy)]
pub(super) struct DestroyOptions {
    /// Also remove the guest from backup jobs, replication and HA.
    pub purge: bool,
    /// Also remove disks of this number that the configuration does not name.
    pub destroy_unreferenced_disks: bool,
}

/// The preview of destroying one guest.
pub(super) fn destroy(
    cluster: &Cluster,
    guest: &Guest,
    config: &GuestConfig,
    extras: &Extras,
    options: DestroyOptions,
    permit: &Permit,
    lab_mode: bool,
) -> Preview {
    let kind = match guest.at.kind {
        proxmox_api::GuestKind::Qemu => "QEMU virtual machine",
        proxmox_api::GuestKind::Lxc => "LXC container",
    };
    let mut facts = BTreeMap::new();
    let mut lines = Vec::new();
    let mut say = |name: &str, label: &str, value: String| {
        lines.push(format!("{label:<20}{value}"));
        facts.insert(name.to_owned(), value);
    };
    say(
        "operation",
        "Operation",
        format!("destroy {kind} {} and every disk it names; this cannot be undone", guest.vmid()),
    );
    say("cluster", "Cluster", cluster.name.clone());
    say("vmid", "VMID", guest.vmid().to_string());
    say("name", "Name", guest.facts.name.as_deref().map_or_else(|| "(none)".to_owned(), Preview::quote));
    say("node", "Node", guest.node().to_owned());
    say("status", "Status", guest.status.clone());
    say("tags", "Tags", tags(config));
    say("pool", "Pool", pool(guest));
    say("disks", "Disks", or_none(Preview::quote(&disks(config)).trim_matches('"').to_owned()));
    say("snapshots", "Snapshots", snapshots(&extras.snapshots));
    say("ha", "HA", extras.ha.clone().unwrap_or_else(|| "not managed".to_owned()));
    say(
        "purge",
        "Purge",
        if options.purge { "yes: also leaves backup jobs, replication and HA" } else { "no" }.to_owned(),
    );
    say(
        "unreferenced_disks",
        "Unreferenced disks",
        if options.destroy_unreferenced_disks { "destroyed too" } else { "kept" }.to_owned(),
    );
    say("backups", "Backups", "kept: PVE removes none with the guest".to_owned());
    if let Some(lift) = permit.lift() {
        say("protection", "Protection", format!("PROTECTED, lifted: {}", Preview::quote(&lift.to_string())));
    } else {
        say("protection", "Protection", "not protected".to_owned());
    }
    if lab_mode {
        say(
            "lab_mode",
            "Lab mode",
            "on: a protected guest's plan needs no second person on this server".to_owned(),
        );
    }
    Preview::new(lines.join("\n"), facts)
}

fn or_none(text: String) -> String {
    if text.is_empty() { "(none)".to_owned() } else { text }
}

fn tags(config: &GuestConfig) -> String {
    match config.tags() {
        Field::Absent => "(none)".to_owned(),
        Field::Value(tags) => or_none(tags.iter().map(Preview::quote).collect::<Vec<_>>().join(" ")),
        Field::Unreadable => "(unreadable)".to_owned(),
    }
}

fn pool(guest: &Guest) -> String {
    match &guest.facts.pool {
        authz::Known::Known(Some(pool)) => Preview::quote(pool),
        authz::Known::Known(None) => "(none)".to_owned(),
        authz::Known::Unreadable => "(unreadable)".to_owned(),
    }
}

fn snapshots(snapshots: &[(String, Option<jiff::Timestamp>)]) -> String {
    let Some((newest, at)) = snapshots.last() else { return "(none)".to_owned() };
    let at = at.map_or_else(|| "at an unknown time".to_owned(), |at| at.to_string());
    format!("{}, newest {} of {at}; destroyed with the guest", snapshots.len(), Preview::quote(newest))
}
