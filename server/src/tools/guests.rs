//! Reads of guests.

use std::sync::Arc;

use authz::GuestKind;
use proxmox_api::{Entry, Field, GuestConfig, GuestStatus, Inventory, RunState, Snapshot};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::args::{ClusterArgs, GuestArgs};
use super::clusters::{self, Unreachable};
use super::paging::Paging;
use super::power::guest_of;
use super::table::{Table, flag, integer, number, object, text, texts};
use super::{cluster_of, words};
use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::redact;
use crate::resolve::{Guest, kind_of, visible_guests};
use crate::stack::{CallContext, ToolFailure};

/// A guest in a list: a place in a cluster's inventory, which is shared and never copied.
#[derive(Debug)]
pub struct Found {
    cluster: Arc<Cluster>,
    inventory: Arc<Inventory>,
    place: usize,
}

impl Found {
    fn entry(&self) -> Option<Entry<'_>> {
        self.inventory.get(self.place)
    }
}

/// The columns of guests, after `first` ones.
macro_rules! guest_columns {
    ($($first:expr,)*) => {
        Table(&[
            $($first,)*
            integer("vmid", "", |guest| Some(guest.entry()?.vmid()?.get().into())),
            text("name", "", |guest| guest.entry()?.name().map(String::from)),
            text("node", "", |guest| guest.entry()?.node().map(String::from)),
            text("status", "PVE's word: running, stopped, paused, unknown, …", |guest| {
                guest.entry()?.status().map(String::from)
            }),
            texts("tags", "", |guest| {
                let tags = guest.entry().map(Entry::tags);
                words(tags.as_ref().and_then(Field::value).map(|tags| tags.iter()))
            }),
            text("pool", "", |guest| guest.entry()?.pool().value().cloned().map(String::from)),
            flag("template", "", |guest| Some(guest.entry()?.template().value().copied().unwrap_or(false))),
            text("lock", "", |guest| guest.entry()?.lock().map(String::from)),
            text("hastate", "", |guest| guest.entry()?.ha_state().map(String::from)),
            number("cpu", "share in use, 0 to 1", |guest| guest.entry()?.cpu()),
            number("maxcpu", "", |guest| guest.entry()?.maxcpu()),
            integer("mem", "bytes", |guest| guest.entry()?.mem()),
            integer("maxmem", "", |guest| guest.entry()?.maxmem()),
            integer("maxdisk", "", |guest| guest.entry()?.maxdisk()),
            integer("uptime", "seconds", |guest| guest.entry()?.uptime()),
        ])
    };
}

/// What lists of one cluster show of a guest.
pub static GUESTS: Table<Found> = guest_columns![];
/// What a search shows of a guest.
pub static FOUND: Table<Found> = guest_columns![
    text("cluster", "", |guest: &Found| Some(guest.cluster.name.clone())),
    text("kind", "`qemu` or `lxc`", |guest: &Found| Some(
        kind_of(guest.entry()?.guest_kind()?).as_str().to_owned()
    )),
];

/// Guests of one cluster, as places in its inventory, by number.
#[derive(Debug)]
struct Listed {
    cluster: Arc<Cluster>,
    inventory: Arc<Inventory>,
    places: Vec<usize>,
}

impl Listed {
    fn row(&self, place: usize) -> Found {
        Found { cluster: self.cluster.clone(), inventory: self.inventory.clone(), place }
    }
}

/// Those guests of a cluster that the caller may see and `wanted` picks.
async fn guests_of(
    ctx: &CallContext,
    cluster: &Arc<Cluster>,
    wanted: impl Fn(Entry<'_>) -> bool,
) -> Result<Listed, ToolFailure> {
    let inventory = ctx.app.resolver.inventory(cluster, ctx.caller.snapshot.read_freshness()).await?;
    if inventory.guests().next().is_none() && inventory.skipped() == 0 {
        sees_guests(cluster).await?;
    }
    let visible = visible_guests(&inventory, &cluster.name, &ctx.caller.principal);
    let places = visible.filter(|entry| wanted(*entry)).map(Entry::place).collect();
    Ok(Listed { cluster: cluster.clone(), inventory, places })
}

/// No guest at all is what PVE also answers to an API token that may see none, and "there are no guests" would be a lie then.
async fn sees_guests(cluster: &Cluster) -> Result<(), ToolFailure> {
    let permissions = cluster.client.permissions().await?;
    let missing = if permissions.is_empty() {
        "its API token has no privilege at all, as one made with privilege separation until it gets its own"
    } else if permissions.skipped == 0 && !permissions.holds_anywhere("VM.Audit") {
        "its API token holds `VM.Audit` nowhere"
    } else {
        return Ok(());
    };
    Err(ToolFailure::new(
        "pve_permission",
        format!(
            "cluster {} shows no guest: {missing}; the operator can see with `proxward doctor` which role it lacks",
            cluster.name
        ),
    ))
}

/// `get_vms`: the virtual machines that the caller may see, with a total that counts only those.
pub async fn vms(ctx: &CallContext, target: &Target, _args: ClusterArgs, paging: &Paging) -> HandlerResult {
    of_kind(ctx, target, GuestKind::Qemu, paging).await
}

/// `get_containers`.
pub async fn containers(
    ctx: &CallContext,
    target: &Target,
    _args: ClusterArgs,
    paging: &Paging,
) -> HandlerResult {
    of_kind(ctx, target, GuestKind::Lxc, paging).await
}

async fn of_kind(ctx: &CallContext, target: &Target, kind: GuestKind, paging: &Paging) -> HandlerResult {
    let listed =
        guests_of(ctx, cluster_of(target)?, |entry| entry.guest_kind().map(kind_of) == Some(kind)).await?;
    GUESTS.page_by(&listed.places, |place| listed.row(*place), 0, paging)
}

/// Arguments of `find_guests`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindArgs {
    /// Name of one cluster; all clusters of this token when omitted.
    pub cluster: Option<String>,
    /// Part of the name, in any case.
    pub name: Option<String>,
    /// A tag, exactly.
    pub tag: Option<String>,
    /// A pool, exactly.
    pub pool: Option<String>,
    /// PVE's word: running, stopped, paused, unknown.
    pub status: Option<String>,
    /// A node, exactly.
    pub node: Option<String>,
}

impl FindArgs {
    /// Whether it is one of those looked for; a wanted name is in lower case already.
    fn picks(&self, entry: Entry<'_>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        is(&self.node, entry.node().as_deref())
            && is(&self.status, Some(entry.status().as_deref().unwrap_or("unknown")))
            && is(&self.pool, entry.pool().value().map(|pool| &**pool))
            && self
                .tag
                .as_deref()
                .is_none_or(|tag| entry.tags().value().is_some_and(|tags| tags.contains(tag)))
            && self
                .name
                .as_deref()
                .is_none_or(|part| entry.name().is_some_and(|name| name.to_lowercase().contains(part)))
    }
}

/// `find_guests`.
pub async fn find(ctx: &CallContext, target: &Target, args: FindArgs, paging: &Paging) -> HandlerResult {
    let args = Arc::new(FindArgs { name: args.name.map(|name| name.to_lowercase()), ..args });
    let answers = clusters::ask_each(clusters::addressed(ctx, target), |cluster| {
        let (ctx, args) = (ctx.clone(), args.clone());
        async move { guests_of(&ctx, &cluster, |entry| args.picks(entry)).await }
    })
    .await;
    let mut listed = Vec::new();
    let mut unreachable = Vec::new();
    for (cluster, answer) in answers {
        match answer {
            Ok(guests) => listed.push(guests),
            Err(failure) => unreachable.push(Unreachable { cluster: cluster.name.clone(), failure }),
        }
    }
    let found: Vec<(&Listed, usize)> =
        listed.iter().flat_map(|guests| guests.places.iter().map(move |place| (guests, *place))).collect();
    let mut page = FOUND.page_by(&found, |(guests, place)| guests.row(*place), 0, paging)?;
    page["unreachable"] = unreachable.iter().map(Unreachable::describe).collect();
    Ok(page)
}

/// A list's schema with the clusters that could not be asked.
pub fn with_unreachable(mut schema: Value) -> Value {
    schema["properties"]["unreachable"] = json!({
        "type": "array", "items": {"type": "object"},
        "description": "clusters that did not answer, with `code` and `message`; their guests are missing here",
    });
    schema
}

/// `get_guest_status`.
pub static STATUS: Table<(Guest, GuestStatus)> = Table(&[
    integer("vmid", "", |(guest, _)| Some(guest.vmid().into())),
    text("node", "where it is now", |(guest, _)| Some(guest.node().to_owned())),
    text("kind", "`qemu` or `lxc`", |(guest, _)| Some(guest.facts.kind.as_str().to_owned())),
    text("status", "PVE's word: running, stopped, …", |(_, status)| Some(state_word(&status.state))),
    text("name", "", |(_, status)| status.name.clone()),
    text("lock", "", |(_, status)| status.lock.clone()),
    text("qmpstatus", "QEMU's own word, such as `paused`", |(_, status)| status.qmp_status.clone()),
    integer("uptime", "seconds", |(_, status)| status.uptime),
    number("cpu", "share in use, 0 to 1", |(_, status)| status.cpu),
    number("cpus", "", |(_, status)| status.cpus),
    integer("mem", "bytes", |(_, status)| status.mem),
    integer("maxmem", "", |(_, status)| status.maxmem),
    integer("disk", "", |(_, status)| status.disk),
    integer("maxdisk", "", |(_, status)| status.maxdisk),
    flag("ha_managed", "start, stop and migrate then go through HA", |(_, status)| {
        status.ha_managed.value().copied()
    }),
]);

/// `get_guest_status`.
pub async fn status(_ctx: &CallContext, target: &Target, _args: GuestArgs) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let status = cluster.client.guest_status(&guest.at).await?;
    Ok(Value::Object(STATUS.record(&(guest.clone(), status))))
}

/// PVE's word for the state.
fn state_word(state: &RunState) -> String {
    match state {
        RunState::Running => "running".to_owned(),
        RunState::Stopped => "stopped".to_owned(),
        RunState::Unknown(word) if word.is_empty() => "unknown".to_owned(),
        RunState::Unknown(word) => word.clone(),
    }
}

/// `get_vm_config` and `get_container_config`.
pub static CONFIG: Table<(Guest, GuestConfig)> = Table(&[
    integer("vmid", "", |(guest, _)| Some(guest.vmid().into())),
    text("node", "where it is now", |(guest, _)| Some(guest.node().to_owned())),
    text("digest", "PVE's digest of this configuration", |(_, config)| {
        config.digest.as_ref().map(ToString::to_string)
    }),
    object("config", "by PVE's option names, values as text", |(_, config)| {
        let shown = |(key, value): (&String, &String)| (key.clone(), redact::config_value(key, value).into());
        Some(config.raw.iter().map(shown).collect::<Map<String, Value>>())
    }),
]);

/// `get_vm_config` and `get_container_config`.
pub async fn config(_ctx: &CallContext, target: &Target, _args: GuestArgs) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let config = cluster.client.guest_config(&guest.at).await?;
    Ok(Value::Object(CONFIG.record(&(guest.clone(), config))))
}

/// `list_snapshots`.
pub static SNAPSHOTS: Table<Snapshot> = Table(&[
    text("name", "", |snapshot| Some(snapshot.name.clone())),
    integer("snaptime", "seconds since 1970", |snapshot| snapshot.snaptime),
    text("description", "", |snapshot| snapshot.description.as_deref().map(redact::free_text)),
    text("parent", "the snapshot it was taken after", |snapshot| snapshot.parent.clone()),
    flag("vmstate", "holds the memory", |snapshot| snapshot.vmstate.value().copied()),
]);

/// The schema of `list_snapshots`.
pub fn snapshots_schema() -> Value {
    let mut schema = SNAPSHOTS.list_schema();
    schema["properties"]["current_parent"] =
        json!({"type": "string", "description": "the snapshot the present state descends from"});
    schema
}

/// `list_snapshots`, oldest first.
pub async fn snapshots(
    _ctx: &CallContext,
    target: &Target,
    _args: GuestArgs,
    paging: &Paging,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let mut snapshots = cluster.client.snapshots(&guest.at).await?;
    snapshots.items.sort_by(|a, b| (a.snaptime, &a.name).cmp(&(b.snaptime, &b.name)));
    let mut page = SNAPSHOTS.page(&snapshots.items, snapshots.skipped, paging)?;
    if let Some(parent) = snapshots.current_parent {
        page["current_parent"] = parent.into();
    }
    Ok(page)
}
