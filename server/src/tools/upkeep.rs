//! Routine work on a guest that is there: larger disks, snapshots, backups, a container's resources, notes and tags.

use authz::Permit;
use proxmox_api::{
    BackupMode, BackupOptions, Compression, ConfigUpdate, Digest, DiskSize, DiskSlot, NewSnapshot, Resize,
    SnapName, StorageId, Tags,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::id;
use super::power::guest_of;
use super::provision::checked_tags;
use super::routine::{How, Routine};
use crate::catalog::{HandlerResult, Target};
use crate::resolve::Guest;
use crate::stack::{CallContext, ToolFailure};

/// Longest note of a guest, bytes: PVE's own limit.
const MAX_NOTE: usize = 8192;

fn wrong(field: &'static str, why: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{field}`: {why}")).with("field", field)
}

/// The digest of the configuration as it was when the call was decided: PVE refuses the change if it is another one by now.
fn digest_of(guest: &Guest) -> Result<Digest, ToolFailure> {
    guest.config.as_ref().and_then(|config| config.digest.clone()).ok_or_else(|| {
        ToolFailure::new(
            "config_unreadable",
            "the guest's configuration cannot be read, so nothing was changed; an administrator must look at it",
        )
    })
}

/// Arguments of `resize_disk`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// The disk's key in the configuration, such as `scsi0` or `rootfs`.
    pub disk: String,
    /// By how much: `+10G`; a whole number with K, M, G or T. Disks cannot be made smaller.
    pub size: String,
}

/// `+N` and a unit. Without a unit PVE would take bytes, which nobody means.
fn growth(text: &str) -> Result<DiskSize, ToolFailure> {
    let expected = "expected by how much it grows: `+` and a whole number with K, M, G or T, such as `+10G`; disks cannot be made smaller";
    text.strip_prefix('+')
        .filter(|rest| rest.ends_with(['K', 'M', 'G', 'T']))
        .and_then(|rest| rest.parse().ok())
        .ok_or_else(|| wrong("size", expected))
}

/// `resize_disk`.
pub async fn resize(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: ResizeArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let disk: DiskSlot = id("disk", &args.disk)?;
    let by = growth(&args.size)?;
    let digest = digest_of(guest)?;
    if guest.config.as_ref().is_some_and(|config| !config.raw.contains_key(disk.as_str())) {
        return Err(wrong("disk", format!("guest {} has no disk {disk}", guest.vmid())));
    }
    let routine = Routine::on(ctx, cluster, guest, how);
    // Relative, and bound to the configuration's digest: sent again it finds another digest and grows nothing.
    let sent = routine.client().resize(&guest.at, &disk, Resize::By(by), Some(&digest)).await;
    routine.end(sent).await
}

/// Arguments of `create_snapshot`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// Its name: a letter, then letters, digits, `_` and `-`, 2 to 40 in all.
    pub snapname: String,
    /// What it is for.
    pub description: Option<String>,
    /// Also the memory of a running virtual machine.
    pub vmstate: Option<bool>,
}

/// `create_snapshot`.
pub async fn snapshot(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: SnapshotArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let name: SnapName = id("snapname", &args.snapname)?;
    let listed = cluster.client.snapshots(&guest.at).await?;
    if listed.items.iter().any(|snapshot| snapshot.name == name.as_str()) {
        return Err(ToolFailure::new(
            "snapshot_exists",
            format!("guest {} has a snapshot {name} already; choose another name", guest.vmid()),
        ));
    }
    let new = NewSnapshot {
        description: args.description.filter(|text| !text.is_empty()),
        vmstate: args.vmstate.unwrap_or(false),
    };
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().create_snapshot(&guest.at, &name, &new).await;
    routine.end(sent).await
}

/// What happens to a running guest while it is backed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Mode {
    /// It runs on.
    #[default]
    Snapshot,
    /// It is paused for a while.
    Suspend,
    /// It is stopped, and started again afterwards.
    Stop,
}

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Compress {
    /// Not at all.
    None,
    /// `gzip`
    Gzip,
    /// `lzo`
    Lzo,
    /// `zstd`
    #[default]
    Zstd,
}

/// Arguments of `create_backup`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// The storage for the archive.
    pub storage: String,
    /// `snapshot` (the default) lets the guest run on; `suspend` and `stop` take it down meanwhile and are refused on protected guests.
    pub mode: Option<Mode>,
    /// `zstd` (the default), `gzip`, `lzo` or `none`.
    pub compress: Option<Compress>,
    /// A note for the archive.
    pub notes: Option<String>,
    /// Protect the archive from being removed.
    pub protected: Option<bool>,
}

/// `create_backup`. Older archives are never removed by it, whatever the storage's own rules say.
pub async fn backup(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: BackupArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let storage: StorageId = id("storage", &args.storage)?;
    let options = BackupOptions {
        mode: match args.mode.unwrap_or_default() {
            Mode::Snapshot => BackupMode::Snapshot,
            Mode::Suspend => BackupMode::Suspend,
            Mode::Stop => BackupMode::Stop,
        },
        compress: match args.compress.unwrap_or_default() {
            Compress::None => Compression::None,
            Compress::Gzip => Compression::Gzip,
            Compress::Lzo => Compression::Lzo,
            Compress::Zstd => Compression::Zstd,
        },
        notes_template: args.notes.filter(|text| !text.is_empty()).map(|text| as_template(&text)),
        protected: args.protected.unwrap_or(false),
        ..BackupOptions::to(storage)
    };
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().backup(&guest.at.node, &[guest.at.vmid], &options).await;
    if matches!(sent, Ok(None)) {
        // PVE says OK and does nothing where the guest is not on the node any more.
        return Err(ToolFailure::new(
            "guest_moved",
            "the guest has just left the node, so nothing was backed up; call again",
        ));
    }
    routine.end(sent).await
}

/// A note as PVE's template: it is one line there, with line breaks and backslashes escaped.
fn as_template(text: &str) -> String {
    text.replace('\\', "\\\\").replace("\r\n", "\n").replace('\n', "\\n")
}

/// Arguments of `update_container_resources`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourcesArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The container's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the container is on this node.
    pub node: Option<String>,
    /// Cores it may use.
    #[schemars(range(min = 1, max = 8192))]
    pub cores: Option<u32>,
    /// Memory in MiB.
    #[schemars(range(min = 16))]
    pub memory: Option<u32>,
    /// Swap in MiB.
    pub swap: Option<u32>,
}

/// `update_container_resources`.
pub async fn resources(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: ResourcesArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let given = [("cores", args.cores), ("memory", args.memory), ("swap", args.swap)];
    let mut update = ConfigUpdate::new().digest(digest_of(guest)?);
    for (key, value) in given {
        if let Some(value) = value {
            update = update.set(key, value.to_string());
        }
    }
    if given.iter().all(|(_, value)| value.is_none()) {
        return Err(wrong("cores", "nothing to change: give `cores`, `memory` or `swap`"));
    }
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().update_config(&guest.at, &update).await;
    let changed = sent.is_ok();
    let mut out = routine.end(sent).await?;
    if changed {
        // What the running container cannot take now waits for its next start: said, and never forced by a restart.
        let pending = cluster.client.guest_pending(&guest.at).await?;
        let waiting = pending.items.iter().filter(|key| key.changes()).map(|key| key.key.clone());
        out["pending"] = waiting.collect::<Vec<_>>().into();
    }
    Ok(out)
}

/// Arguments of `update_guest_notes_tags`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotesTagsArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// The new note, in place of the old one; empty text removes it.
    pub description: Option<String>,
    /// The new tags, in place of all it has; an empty list removes them.
    pub tags: Option<Vec<String>>,
    /// Tags to add.
    pub add_tags: Option<Vec<String>>,
    /// Tags to remove.
    pub remove_tags: Option<Vec<String>>,
}

/// `update_guest_notes_tags`. Tags decide who may act on a guest, which is why a token must name this tool to change them.
pub async fn notes_tags(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: NotesTagsArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let mut update = ConfigUpdate::new().digest(digest_of(guest)?);
    if args.tags.is_some() && (args.add_tags.is_some() || args.remove_tags.is_some()) {
        return Err(wrong("tags", "`tags` replaces all of them: leave `add_tags` and `remove_tags` out"));
    }
    let before = guest.config.as_ref().map(proxmox_api::GuestConfig::tags);
    let before = before.and_then(|tags| tags.value().cloned()).unwrap_or_default();
    let tags = match (args.tags, args.add_tags, args.remove_tags) {
        (None, None, None) => None,
        (Some(all), ..) => Some(checked_tags("tags", all)?),
        (None, add, remove) => Some(changed(&before, add.unwrap_or_default(), &remove.unwrap_or_default())?),
    };
    if tags.is_none() && args.description.is_none() {
        return Err(wrong(
            "description",
            "nothing to change: give `description`, `tags`, `add_tags` or `remove_tags`",
        ));
    }
    if let Some(tags) = &tags {
        update = update.tags(tags);
    }
    if let Some(text) = &args.description {
        if text.len() > MAX_NOTE {
            return Err(wrong("description", format!("{} bytes; PVE takes at most {MAX_NOTE}", text.len())));
        }
        if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
            return Err(wrong("description", "a control character; line breaks and tabs are fine"));
        }
        update = update.set("description", text);
    }
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().update_config(&guest.at, &update).await;
    let mut out = routine.end(sent).await?;
    if let Some(tags) = &tags {
        out["tags"] = tags.iter().collect::<Vec<_>>().into();
    }
    Ok(out)
}

/// Tags with some added and some removed. One that is not there to be removed is a mistake in what the caller believes.
fn changed(before: &Tags, add: Vec<String>, remove: &[String]) -> Result<Tags, ToolFailure> {
    if let Some(absent) = remove.iter().find(|tag| !before.contains(tag)) {
        let there: Vec<&str> = before.iter().collect();
        return Err(wrong(
            "remove_tags",
            format!(
                "the guest has no tag `{}`; it has {}",
                absent.escape_debug(),
                if there.is_empty() { "none".to_owned() } else { there.join(", ") }
            ),
        ));
    }
    let added = checked_tags("add_tags", add)?;
    let kept = before.iter().filter(|tag| !remove.iter().any(|gone| gone == tag));
    Ok(kept.chain(added.iter()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_only_grows_by_a_whole_number_with_a_unit() {
        for good in ["+10G", "+1T", "+512M", "+1K"] {
            assert!(growth(good).is_ok(), "{good}");
        }
        for bad in [
            "10G",
            "+0G",
            "+banana",
            "+10",
            "-1G",
            "+1.5G",
            "+10g",
            "+10GB",
            "+ 10G",
            "++10G",
            "",
            "+",
            "+G",
            "+99999999999999999999G",
            "+9999999999T",
        ] {
            assert!(growth(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tags_are_added_and_removed_one_by_one() {
        let before = Tags::parse("web;prod");
        let list = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        let after = changed(&before, list(&["db", "web"]), &list(&["prod"])).unwrap();
        assert_eq!(after.to_string(), "db;web");
        let refused = changed(&before, Vec::new(), &list(&["Prod"])).unwrap_err();
        assert!(refused.public_message().contains("it has prod, web"), "{}", refused.public_message());
        assert!(changed(&before, list(&["a;b"]), &[]).is_err());
    }

    #[test]
    fn a_note_is_one_line_of_pves_template() {
        assert_eq!(as_template("a\\b\r\nc\nd"), "a\\\\b\\nc\\nd");
    }
}
