//! What an approver reads, made from live facts. Structural fields come from ids; whatever a guest's owner can write is quoted.

use std::collections::BTreeMap;

use authz::Permit;
use changeset::Preview;
use proxmox_api::{Field, GuestConfig};

use super::fingerprint::disks;
use super::plan::Prepared;
use crate::config::Cluster;
use crate::resolve::Guest;

/// Gathers lines and the same facts by name.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<String>,
    facts: BTreeMap<String, String>,
}

impl Lines {
    /// One line; a name that comes again is numbered.
    pub(super) fn say(&mut self, name: &str, label: &str, value: impl Into<String>) {
        let value = value.into();
        self.lines.push(format!("{label:<20}{value}"));
        let mut key = name.to_owned();
        let mut n = 1;
        while self.facts.contains_key(&key) {
            n += 1;
            key = format!("{name}.{n}");
        }
        self.facts.insert(key, value);
    }

    /// The preview, with facts that no line shows.
    pub(super) fn finish(mut self, hidden: BTreeMap<String, String>) -> Preview {
        self.facts.extend(hidden);
        Preview::new(self.lines.join("\n"), self.facts)
    }
}

/// The preview of an operation on one guest.
pub(super) fn guest(
    cluster: &Cluster,
    guest: &Guest,
    config: &GuestConfig,
    permit: &Permit,
    lab_mode: bool,
    prepared: &Prepared,
) -> Preview {
    let mut lines = Lines::default();
    lines.say("operation", "Operation", prepared.operation.clone());
    lines.say("cluster", "Cluster", cluster.name.clone());
    lines.say("vmid", "VMID", guest.vmid().to_string());
    let name = guest.facts.name.as_deref().map_or_else(|| "(none)".to_owned(), Preview::quote);
    lines.say("name", "Name", name);
    lines.say("node", "Node", guest.node().to_owned());
    lines.say("status", "Status", guest.status.clone());
    lines.say("tags", "Tags", tags(config));
    lines.say("pool", "Pool", pool(guest));
    lines.say("disks", "Disks", or_none(Preview::quote(&disks(config)).trim_matches('"').to_owned()));
    for (name, label, value) in &prepared.lines {
        lines.say(name, label, value.clone());
    }
    if prepared.steps.len() > 1 {
        for (number, step) in (1..).zip(&prepared.steps) {
            lines.say("step", &format!("Step {number}"), step.summary.clone());
        }
    }
    match permit.lift() {
        Some(lift) => {
            lines.say(
                "protection",
                "Protection",
                format!("PROTECTED, lifted: {}", Preview::quote(&lift.to_string())),
            );
        }
        None => lines.say("protection", "Protection", "not protected"),
    }
    lab(&mut lines, lab_mode);
    lines.finish(prepared.hidden.clone())
}

/// The line that stamps a preview made under lab mode.
pub(super) fn lab(lines: &mut Lines, lab_mode: bool) {
    if lab_mode {
        lines.say(
            "lab_mode",
            "Lab mode",
            "on: a protected guest's plan needs no second person on this server",
        );
    }
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
