//! One operation: what keeps it from ever working, its steps, and what the approver must read about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use changeset::{ChangeSetId, Preview, Step};
use proxmox_api::{
    DiskSource, GuestConfig, GuestKind, NodeName, Snapshot, StorageId, StorageItem, Vmid, Volid,
};

use super::{GuestOp, PlanRefusal, impossible, moved_by_snapshot, safety_snapshot};
use crate::app::App;
use crate::changes::guest_config::Change;
use crate::changes::wall::{self, WallChange};
use crate::changes::{facts, fingerprint, op};
use crate::config::Cluster;
use crate::resolve::Guest;

/// An operation that could be applied as things stand.
#[derive(Debug, Default)]
pub(in crate::changes) struct Prepared {
    /// The operation in words.
    pub operation: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Lines of the preview: name, label, value.
    pub lines: Vec<(&'static str, &'static str, String)>,
    /// Facts that no line shows: what a reverse needs.
    pub hidden: BTreeMap<String, String>,
}

impl Prepared {
    fn say(&mut self, name: &'static str, label: &'static str, value: impl Into<String>) {
        self.lines.push((name, label, value.into()));
    }
}

struct On<'a> {
    app: &'a App,
    cluster: &'a Arc<Cluster>,
    guest: &'a Guest,
    config: &'a GuestConfig,
    id: ChangeSetId,
}

/// Looks at everything that `what` depends on.
pub(in crate::changes) async fn guest(
    app: &App,
    cluster: &Arc<Cluster>,
    guest: &Guest,
    config: &GuestConfig,
    what: &GuestOp,
    id: ChangeSetId,
) -> Result<Prepared, PlanRefusal> {
    let on = On { app, cluster, guest, config, id };
    let mut prepared = match what {
        GuestOp::Destroy { purge, destroy_unreferenced_disks } => {
            on.destroy(*purge, *destroy_unreferenced_disks).await
        }
        GuestOp::DeleteSnapshot { snapname } => on.delete_snapshot(snapname.as_str()).await,
        GuestOp::Rollback { snapname, start, safety } => {
            on.rollback(snapname.as_str(), *start, *safety).await
        }
        GuestOp::DeleteBackup { volid } => on.delete_backup(volid).await,
        GuestOp::Restore { volid, storage } => on.restore(volid, storage.as_ref()).await,
        GuestOp::RestoreNew { volid, newid, storage } => {
            on.restore_new(volid, *newid, storage.as_ref()).await
        }
        GuestOp::Migrate { target, online, with_local_disks } => {
            on.migrate(target, *online, *with_local_disks).await
        }
        GuestOp::UpdateConfig { change, safety } => on.update_config(change, *safety).await,
        GuestOp::Firewall(change) => on.firewall(change).await,
    }?;
    let backups = facts::backups(cluster, guest).await;
    prepared.say("last_backup", "Backups", backups.in_words(app.clock.now()));
    Ok(prepared)
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

impl On<'_> {
    fn kind(&self) -> &'static str {
        self.guest.facts.kind.as_str()
    }

    fn step<'p>(
        &self,
        op: &str,
        params: impl IntoIterator<Item = (&'p str, String)>,
        summary: String,
    ) -> Step {
        let own = [("kind", self.kind().to_owned()), ("vmid", self.guest.vmid().to_string())];
        Step::new(op, own.into_iter().chain(params), summary)
    }

    fn must_be_stopped(&self, why: &str) -> Result<(), PlanRefusal> {
        // A guest whose node is silent is not known to be stopped.
        if self.guest.status == "stopped" {
            return Ok(());
        }
        Err(impossible(format!(
            "the guest is {}; {why}: stop it first, then plan again",
            if self.guest.running() { "running" } else { "not known to be stopped" }
        )))
    }

    fn must_be_unlocked(&self) -> Result<(), PlanRefusal> {
        match self.config.lock() {
            Some(lock) => {
                Err(impossible(format!("the guest is locked ({lock}); wait for the task that holds it")))
            }
            None => Ok(()),
        }
    }

    fn must_not_be_protected_by_pve(&self, from: &str) -> Result<(), PlanRefusal> {
        if self.config.protection().value() == Some(&true) {
            return Err(impossible(format!(
                "PVE's own protection flag is set on the guest; PVE refuses to {from} it until an administrator clears it"
            )));
        }
        Ok(())
    }

    async fn destroy(&self, purge: bool, unreferenced: bool) -> Result<Prepared, PlanRefusal> {
        self.must_be_stopped("PVE destroys only a stopped guest")?;
        self.must_be_unlocked()?;
        self.must_not_be_protected_by_pve("destroy")?;
        let ha = facts::ha(self.cluster, self.guest).await?;
        if let (Some(ha), false) = (&ha, purge) {
            return Err(impossible(format!(
                "the guest is managed by HA ({ha}); plan with `purge` to take it out of HA as well"
            )));
        }
        let clones = facts::linked_clones(&self.app.resolver, self.cluster, self.guest, self.config).await;
        if !clones.found.is_empty() {
            return Err(impossible(format!(
                "disks of other guests are linked to this one's ({}); PVE refuses to destroy it while they are there",
                clones.in_words()
            )));
        }
        let snapshots = facts::snapshots(self.cluster, self.guest).await?;
        let mut out = Prepared {
            operation: format!(
                "destroy {} {} and every disk it names; this cannot be undone",
                in_words(self.guest.at.kind),
                self.guest.vmid()
            ),
            steps: vec![self.step(
                op::DESTROY_GUEST,
                [
                    ("purge", flag(purge).to_owned()),
                    ("destroy-unreferenced-disks", flag(unreferenced).to_owned()),
                ],
                format!("destroy {} guest {}", self.kind(), self.guest.vmid()),
            )],
            ..Prepared::default()
        };
        out.say("snapshots", "Snapshots", with_fate(&snapshots, "destroyed with the guest"));
        out.say("linked_clones", "Linked clones", clones.in_words());
        out.say("ha", "HA", ha.unwrap_or_else(|| "not managed".to_owned()));
        let purged = if purge { "yes: also leaves backup jobs, replication and HA" } else { "no" };
        out.say("purge", "Purge", purged);
        out.say(
            "unreferenced_disks",
            "Unreferenced disks",
            if unreferenced { "destroyed too" } else { "kept" },
        );
        out.say("backups", "Backups' fate", "kept: PVE removes none with the guest");
        Ok(out)
    }

    async fn known_snapshot(&self, name: &str) -> Result<(Snapshot, Vec<Snapshot>), PlanRefusal> {
        let snapshots = facts::snapshots(self.cluster, self.guest).await?;
        let known = snapshots.iter().find(|snapshot| snapshot.name == name).cloned();
        let known = known.ok_or_else(|| {
            let names: Vec<String> =
                snapshots.iter().map(|snapshot| Preview::quote(&snapshot.name)).collect();
            impossible(format!(
                "the guest has no snapshot of that name; it has {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ))
        })?;
        Ok((known, snapshots))
    }

    async fn delete_snapshot(&self, name: &str) -> Result<Prepared, PlanRefusal> {
        self.must_be_unlocked()?;
        let (snapshot, all) = self.known_snapshot(name).await?;
        let mut out = Prepared {
            operation: format!(
                "delete snapshot {} of {} {}; its state cannot be gone back to any more",
                Preview::quote(name),
                in_words(self.guest.at.kind),
                self.guest.vmid()
            ),
            steps: vec![self.step(
                op::DELETE_SNAPSHOT,
                [("snapname", name.to_owned())],
                format!("delete snapshot {name} of guest {}", self.guest.vmid()),
            )],
            ..Prepared::default()
        };
        self.say_snapshot(&mut out, &snapshot);
        out.say("snapshots", "Snapshots", with_fate(&all, "the others are kept"));
        Ok(out)
    }

    fn say_snapshot(&self, out: &mut Prepared, snapshot: &Snapshot) {
        let at = snapshot
            .snaptime
            .map_or_else(|| "of an unknown time".to_owned(), |at| facts::taken(at, self.app.clock.now()));
        out.say("snapshot", "Snapshot", format!("{} {at}", Preview::quote(&snapshot.name)));
        if let Some(description) = snapshot.description.as_deref().filter(|text| !text.trim().is_empty()) {
            out.say("snapshot_note", "Snapshot's note", Preview::quote(description.trim()));
        }
    }

    async fn rollback(&self, name: &str, start: bool, safety: bool) -> Result<Prepared, PlanRefusal> {
        self.must_be_unlocked()?;
        if self.guest.template {
            return Err(impossible("the guest is a template, which PVE does not roll back"));
        }
        let (snapshot, all) = self.known_snapshot(name).await?;
        let mut out = Prepared {
            operation: format!(
                "put {} {} back to snapshot {}; what was written since is lost",
                in_words(self.guest.at.kind),
                self.guest.vmid(),
                Preview::quote(name)
            ),
            ..Prepared::default()
        };
        self.say_snapshot(&mut out, &snapshot);
        out.say("snapshots", "Snapshots", with_fate(&all, "kept"));
        out.say(
            "run_state",
            "Running state",
            match (&snapshot.vmstate, start) {
                (proxmox_api::Field::Value(true), _) => {
                    "the snapshot holds the memory: the guest is stopped, and RUNS afterwards as it did then"
                }
                (_, true) => "the guest is stopped if it runs, and STARTED afterwards",
                (_, false) => "the guest is stopped if it runs, and stays stopped",
            },
        );
        self.safety(&mut out, safety, true).await?;
        out.steps.push(self.step(
            op::ROLLBACK_SNAPSHOT,
            [("snapname", name.to_owned()), ("start", flag(start).to_owned())],
            format!("roll guest {} back to snapshot {name}", self.guest.vmid()),
        ));
        Ok(out)
    }

    /// Puts a snapshot before the set's own step, where that is wanted and possible, and says which of it.
    async fn safety(&self, out: &mut Prepared, wanted: bool, later: bool) -> Result<(), PlanRefusal> {
        let possible = wanted && {
            let storages = self.cluster.client.storages(&self.guest.at.node).await?.items;
            facts::can_snapshot(self.guest, self.config, &storages, later)
        };
        if !possible {
            let why =
                if wanted { "none: the guest's storage cannot take one" } else { "none: not asked for" };
            out.say("safety_snapshot", "Safety snapshot", why);
            return Ok(());
        }
        let name = safety_snapshot(self.id);
        out.say("safety_snapshot", "Safety snapshot", format!("{name}, taken first; it is kept afterwards"));
        out.hidden.insert("undo.snapshot".to_owned(), name);
        out.steps.push(
            self.step(
                op::CREATE_SNAPSHOT,
                [],
                format!("take a safety snapshot of guest {}", self.guest.vmid()),
            )
            .moving(moved_by_snapshot()),
        );
        Ok(())
    }

    async fn archive(&self, volid: &Volid) -> Result<(NodeName, StorageItem), PlanRefusal> {
        let found = facts::volume(&self.app.resolver, self.cluster, Some(&self.guest.at.node), volid).await?;
        let (node, item) = found.ok_or_else(|| {
            impossible(format!("no storage in reach lists {}", Preview::quote(&volid.to_string())))
        })?;
        if item.content.as_deref() != Some("backup") {
            return Err(impossible("that volume is no backup"));
        }
        if item.vmid != Some(self.guest.at.vmid) {
            return Err(impossible(match item.vmid {
                Some(owner) => format!("that backup is of guest {owner}, not of guest {}", self.guest.vmid()),
                None => "the cluster does not say which guest that backup is of".to_owned(),
            }));
        }
        Ok((node, item))
    }

    fn say_archive(&self, out: &mut Prepared, item: &StorageItem) {
        let at = item
            .ctime
            .map_or_else(|| "of an unknown time".to_owned(), |at| facts::taken(at, self.app.clock.now()));
        let size = item.size.map_or_else(|| "of unknown size".to_owned(), |bytes| format!("{bytes} bytes"));
        out.say("archive", "Archive", format!("{} {at}, {size}", Preview::quote(&item.volid.to_string())));
        if let Some(notes) = item.notes.as_deref().filter(|text| !text.trim().is_empty()) {
            out.say("archive_note", "Archive's note", Preview::quote(notes.trim()));
        }
    }

    async fn delete_backup(&self, volid: &Volid) -> Result<Prepared, PlanRefusal> {
        let (node, item) = self.archive(volid).await?;
        if facts::is_protected(&item) {
            return Err(impossible(
                "the backup is protected in PVE, or PVE does not say that it is not; an administrator must clear that first",
            ));
        }
        let mut out = Prepared {
            operation: format!("delete a backup of guest {}; this cannot be undone", self.guest.vmid()),
            steps: vec![self.step(
                op::DELETE_BACKUP,
                [("node", node.to_string()), ("volid", volid.to_string())],
                format!("delete backup {volid} of guest {}", self.guest.vmid()),
            )],
            ..Prepared::default()
        };
        self.say_archive(&mut out, &item);
        Ok(out)
    }

    /// The archive, which must be of this kind of guest and within reach of its node.
    async fn restorable(
        &self,
        volid: &Volid,
        storage: Option<&StorageId>,
    ) -> Result<StorageItem, PlanRefusal> {
        let (node, item) = self.archive(volid).await?;
        if node != self.guest.at.node {
            return Err(impossible(format!(
                "the backup is on {node}, which the guest's node {} does not reach",
                self.guest.node()
            )));
        }
        if facts::archive_kind(&item) != Some(self.kind()) {
            return Err(impossible(format!("the backup is not of {}", in_words(self.guest.at.kind))));
        }
        if let Some(storage) = storage {
            let wanted = if self.guest.at.kind == GuestKind::Qemu { "images" } else { "rootdir" };
            let storages = self.cluster.client.storages(&self.guest.at.node).await?.items;
            let fits = storages.iter().find(|known| known.storage == *storage).is_some_and(|known| {
                known.active.value() != Some(&false) && known.content.iter().any(|content| content == wanted)
            });
            if !fits {
                return Err(impossible(format!(
                    "storage {storage} does not hold {wanted} on {}",
                    self.guest.node()
                )));
            }
        }
        Ok(item)
    }

    async fn restore(&self, volid: &Volid, storage: Option<&StorageId>) -> Result<Prepared, PlanRefusal> {
        self.must_be_stopped("a restore replaces its disks")?;
        self.must_be_unlocked()?;
        self.must_not_be_protected_by_pve("replace")?;
        let item = self.restorable(volid, storage).await?;
        let snapshots = facts::snapshots(self.cluster, self.guest).await?;
        let mut params = vec![("volid", volid.to_string())];
        params.extend(storage.map(|storage| ("storage", storage.to_string())));
        let mut out = Prepared {
            operation: format!(
                "replace {} {} by one of its backups; its present disks and snapshots are destroyed, which cannot be undone",
                in_words(self.guest.at.kind),
                self.guest.vmid()
            ),
            steps: vec![self.step(
                op::RESTORE_BACKUP,
                params,
                format!("restore guest {} from {volid}, over the present one", self.guest.vmid()),
            )],
            ..Prepared::default()
        };
        self.say_archive(&mut out, &item);
        out.say("snapshots", "Snapshots", with_fate(&snapshots, "destroyed with the present disks"));
        out.say(
            "safety_snapshot",
            "Safety snapshot",
            "none: a restore would destroy it; make a backup first to keep the present state",
        );
        out.say(
            "storage",
            "Disks go to",
            storage.map_or_else(|| "where they were".to_owned(), ToString::to_string),
        );
        Ok(out)
    }

    async fn restore_new(
        &self,
        volid: &Volid,
        newid: Vmid,
        storage: Option<&StorageId>,
    ) -> Result<Prepared, PlanRefusal> {
        let item = self.restorable(volid, storage).await?;
        if fingerprint::is_taken(&self.app.resolver, self.cluster, newid).await? {
            return Err(impossible(format!("number {newid} is in use; name a free one")));
        }
        let mut params = vec![
            ("volid", volid.to_string()),
            ("newid", newid.to_string()),
            ("node", self.guest.node().to_owned()),
        ];
        params.extend(storage.map(|storage| ("storage", storage.to_string())));
        let mut out = Prepared {
            operation: format!(
                "make a new {} {newid} from a backup of guest {}, which stays as it is",
                in_words(self.guest.at.kind),
                self.guest.vmid()
            ),
            steps: vec![self.step(
                op::RESTORE_NEW_VMID,
                params,
                format!("restore {volid} to the new guest {newid}"),
            )],
            ..Prepared::default()
        };
        self.say_archive(&mut out, &item);
        out.say("newid", "New VMID", newid.to_string());
        out.say("addresses", "Network", "new hardware addresses; it is not started");
        out.say(
            "storage",
            "Disks go to",
            storage.map_or_else(|| "where they were".to_owned(), ToString::to_string),
        );
        Ok(out)
    }

    async fn migrate(
        &self,
        target: &NodeName,
        online: bool,
        with_local_disks: bool,
    ) -> Result<Prepared, PlanRefusal> {
        self.must_be_unlocked()?;
        if *target == self.guest.at.node {
            return Err(impossible(format!("the guest is on {target} already")));
        }
        if let Some(ha) = facts::ha(self.cluster, self.guest).await? {
            return Err(impossible(format!(
                "the guest is managed by HA ({ha}), which decides where it runs; change its HA rules instead"
            )));
        }
        if !fingerprint::is_online(&self.app.resolver, self.cluster, target).await? {
            return Err(impossible(format!("there is no node {target} in this cluster that is online")));
        }
        let running = self.guest.status != "stopped";
        match (self.guest.at.kind, running, online) {
            (GuestKind::Lxc, true, _) => self.must_be_stopped("a container cannot move while it runs")?,
            (GuestKind::Lxc, _, true) => {
                return Err(impossible(
                    "`online` is for virtual machines; a container moves while it is stopped",
                ));
            }
            (GuestKind::Qemu, true, false) => {
                return Err(impossible("the guest is running; plan with `online`, or stop it first"));
            }
            _ => {}
        }
        let there = self.cluster.client.storages(target).await?.items;
        let here = self.cluster.client.storages(&self.guest.at.node).await?.items;
        let mut local = Vec::new();
        for disk in self.config.disks() {
            let DiskSource::Volume(volid) = &disk.source else { continue };
            let known = |storages: &[proxmox_api::StorageStatus]| {
                storages.iter().find(|storage| storage.storage == *volid.storage()).cloned()
            };
            if known(&there).is_none_or(|storage| storage.active.value() == Some(&false)) {
                return Err(impossible(format!(
                    "{} is on storage {}, which {target} does not have",
                    disk.slot,
                    volid.storage()
                )));
            }
            if known(&here).is_none_or(|storage| storage.shared.value() != Some(&true)) && !disk.is_cdrom() {
                local.push(disk.slot.clone());
            }
        }
        if running && !local.is_empty() && !with_local_disks {
            return Err(impossible(format!(
                "disks on local storage ({}) move with a running guest only with `with_local_disks`",
                local.join(", ")
            )));
        }
        let mut out = Prepared {
            operation: format!(
                "move {} {} from {} to {target}",
                in_words(self.guest.at.kind),
                self.guest.vmid(),
                self.guest.node()
            ),
            steps: vec![self.step(
                op::MIGRATE,
                [
                    ("target", target.to_string()),
                    ("online", flag(online).to_owned()),
                    ("with-local-disks", flag(with_local_disks).to_owned()),
                ],
                format!("migrate guest {} to {target}", self.guest.vmid()),
            )],
            ..Prepared::default()
        };
        out.hidden.insert("undo.node".to_owned(), self.guest.node().to_owned());
        out.say("target_node", "Target node", target.to_string());
        out.say("online", "While running", if running { "yes: it runs on" } else { "no: it is stopped" });
        out.say(
            "local_disks",
            "Local disks",
            if local.is_empty() {
                "none".to_owned()
            } else {
                format!("{}, copied to {target}", local.join(", "))
            },
        );
        Ok(out)
    }

    async fn firewall(&self, change: &WallChange) -> Result<Prepared, PlanRefusal> {
        let scope = proxmox_api::FirewallScope::Guest(self.guest.at.clone());
        let place = vec![
            ("scope", "guest".to_owned()),
            ("kind", self.kind().to_owned()),
            ("vmid", self.guest.vmid().to_string()),
        ];
        let whose = format!("guest {}", self.guest.vmid());
        let looked = wall::look(self.cluster, change, &scope, place, &whose).await.map_err(impossible)?;
        Ok(Prepared {
            operation: looked.operation,
            steps: vec![looked.step],
            lines: looked.lines,
            ..Prepared::default()
        })
    }

    async fn update_config(&self, change: &Change, safety: bool) -> Result<Prepared, PlanRefusal> {
        self.must_be_unlocked()?;
        change.check(self.guest.facts.kind, self.config).map_err(impossible)?;
        let op = op::update_config(self.guest.facts.kind);
        let diff = change.diff(self.config);
        let mut out = Prepared {
            operation: format!(
                "change the configuration of {} {}: {}",
                in_words(self.guest.at.kind),
                self.guest.vmid(),
                diff.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", ")
            ),
            ..Prepared::default()
        };
        for (key, moved) in diff {
            out.say("diff", "Change", format!("{key}: {moved}"));
        }
        for key in change.set.keys().chain(&change.delete) {
            if let Some(was) = self.config.raw.get(key) {
                out.hidden.insert(format!("was.{key}"), was.clone());
            }
        }
        out.say(
            "takes_effect",
            "Takes effect",
            if self.guest.status == "stopped" {
                "at the next start"
            } else {
                "at once where PVE can; the rest waits for the guest's next start. Nothing is restarted by this"
            },
        );
        self.safety(&mut out, safety, false).await?;
        let params = change.params();
        let params = params.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let summary = format!("change the configuration of guest {}", self.guest.vmid());
        out.steps.push(self.step(op, params, summary));
        Ok(out)
    }
}

pub(in crate::changes) fn in_words(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Qemu => "QEMU virtual machine",
        GuestKind::Lxc => "LXC container",
    }
}

fn with_fate(snapshots: &[Snapshot], fate: &str) -> String {
    let Some(newest) = snapshots.last() else { return "(none)".to_owned() };
    let at = newest
        .snaptime
        .and_then(|at| i64::try_from(at).ok())
        .and_then(|at| jiff::Timestamp::from_second(at).ok());
    let at = at.map_or_else(|| "at an unknown time".to_owned(), |at| at.to_string());
    format!("{}, newest {} of {at}; {fate}", snapshots.len(), Preview::quote(&newest.name))
}
