//! Reads of nodes, guests and tasks.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxmox_api::{Resource, RunState, Upid};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::power::guest_of;
use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::redact;
use crate::resolve::guest_of_row;
use crate::stack::{CallContext, ToolFailure};

/// Items a page holds when the caller does not say.
pub const DEFAULT_LIMIT: u64 = 500;
/// Most items a page may hold; more is refused, so that nobody takes a clamped page for the whole.
pub const MAX_LIMIT: u64 = 700;
/// Largest JSON text of one result's structured copy. The text copy doubles it, and together they stay under 512 KiB.
const MAX_RESULT_BYTES: usize = 240 * 1024;

/// Arguments of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Index of the first item, from 0.
    #[schemars(range(min = 0))]
    pub offset: Option<u64>,
    /// Largest number of items to return, 1 to 700; 500 when omitted.
    #[schemars(range(min = 1, max = 700))]
    pub limit: Option<u64>,
    /// Columns to keep; all when omitted.
    pub fields: Option<Vec<String>>,
}

/// Arguments of a tool on one guest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
}

/// Arguments of a tool on one task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The task, as a tool or PVE named it: `UPID:node:…:`.
    pub upid: String,
}

fn cluster_of(target: &Target) -> Result<&Arc<Cluster>, ToolFailure> {
    match target {
        Target::Cluster(cluster) | Target::Guest(cluster, _) => Ok(cluster),
        Target::Nothing => {
            Err(ToolFailure::new("invalid_argument", "`cluster` is missing: expected a cluster's name"))
        }
    }
}

/// `get_nodes`.
pub async fn nodes(_ctx: &CallContext, target: &Target, args: ListArgs) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let listing = cluster.client.nodes().await?;
    let mut rows: Vec<(String, Map<String, Value>)> = listing
        .items
        .iter()
        .map(|node| {
            let mut row = Map::new();
            row.insert("node".to_owned(), node.name.to_string().into());
            put(&mut row, "status", node.status.clone());
            put(&mut row, "cpu", node.cpu);
            put(&mut row, "maxcpu", node.maxcpu);
            put(&mut row, "mem", node.mem);
            put(&mut row, "maxmem", node.maxmem);
            put(&mut row, "disk", node.disk);
            put(&mut row, "maxdisk", node.maxdisk);
            put(&mut row, "uptime", node.uptime);
            (node.name.to_string(), row)
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    page(rows.into_iter().map(|(_, row)| row).collect(), listing.skipped as u64, &args)
}

/// `get_vms` and `get_containers`: the guests of one kind that the caller may see, with a total that counts only those.
pub async fn list(
    ctx: &CallContext,
    target: &Target,
    kind: authz::GuestKind,
    args: ListArgs,
) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let rows = ctx.app.resolver.resources(cluster, ctx.caller.snapshot.read_freshness()).await?;
    let principal = &ctx.caller.principal;
    let mut guests: Vec<(u32, Map<String, Value>)> = rows
        .iter()
        .filter_map(|row| {
            let guest = guest_of_row(&cluster.name, row)?;
            (guest.facts.kind == kind && principal.visible(&guest.facts))
                .then(|| (guest.vmid(), guest_row(row)))
        })
        .collect();
    guests.sort_by_key(|(vmid, _)| *vmid);
    page(guests.into_iter().map(|(_, row)| row).collect(), 0, &args)
}

fn guest_row(row: &Resource) -> Map<String, Value> {
    let mut out = Map::new();
    put(&mut out, "vmid", row.vmid.map(|vmid| vmid.get()));
    put(&mut out, "name", row.name.clone());
    put(&mut out, "node", row.node.as_ref().map(ToString::to_string));
    put(&mut out, "status", row.status.clone());
    let tags: Vec<String> =
        row.tags.value().map(|tags| tags.iter().map(str::to_owned).collect()).unwrap_or_default();
    out.insert("tags".to_owned(), tags.into());
    put(&mut out, "pool", row.pool.value().cloned());
    out.insert("template".to_owned(), row.template.value().copied().unwrap_or(false).into());
    put(&mut out, "lock", row.lock.clone());
    put(&mut out, "cpu", row.cpu);
    put(&mut out, "maxcpu", row.maxcpu);
    put(&mut out, "mem", row.mem);
    put(&mut out, "maxmem", row.maxmem);
    put(&mut out, "maxdisk", row.maxdisk);
    put(&mut out, "uptime", row.uptime);
    out
}

fn put(row: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        row.insert(key.to_owned(), value.into());
    }
}

/// Cuts one page out of sorted rows. A page that would grow past the result's cap ends early and says so.
pub(super) fn page(rows: Vec<Map<String, Value>>, skipped: u64, args: &ListArgs) -> HandlerResult {
    let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ToolFailure::new(
            "invalid_argument",
            format!("`limit` is out of range: expected 1 to {MAX_LIMIT}"),
        )
        .with("field", "limit"));
    }
    let offset = args.offset.unwrap_or(0);
    let total = rows.len() as u64;
    let wanted: Option<BTreeSet<&str>> = args.fields.as_ref().map(|f| f.iter().map(String::as_str).collect());
    let mut items = Vec::new();
    let mut bytes = 0;
    let skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let take = usize::try_from(limit).unwrap_or(usize::MAX);
    for mut row in rows.into_iter().skip(skip).take(take) {
        if let Some(wanted) = &wanted {
            row.retain(|key, _| wanted.contains(key.as_str()));
        }
        let item = Value::Object(row);
        bytes += item.to_string().len() + 1;
        if bytes > MAX_RESULT_BYTES {
            break;
        }
        items.push(item);
    }
    let has_more = offset.saturating_add(items.len() as u64) < total;
    Ok(json!({
        "items": items, "total": total, "offset": offset, "limit": limit, "has_more": has_more, "skipped": skipped,
    }))
}

/// `get_guest_status`.
pub async fn status(_ctx: &CallContext, target: &Target) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let status = cluster.client.guest_status(&guest.at).await?;
    let mut out = Map::new();
    out.insert("vmid".to_owned(), guest.vmid().into());
    out.insert("node".to_owned(), guest.node().into());
    out.insert("kind".to_owned(), guest.facts.kind.as_str().into());
    out.insert("status".to_owned(), state_word(&status.state).into());
    put(&mut out, "name", status.name.clone());
    put(&mut out, "lock", status.lock.clone());
    put(&mut out, "qmpstatus", status.qmp_status.clone());
    put(&mut out, "uptime", status.uptime);
    put(&mut out, "cpu", status.cpu);
    put(&mut out, "cpus", status.cpus);
    put(&mut out, "mem", status.mem);
    put(&mut out, "maxmem", status.maxmem);
    put(&mut out, "disk", status.disk);
    put(&mut out, "maxdisk", status.maxdisk);
    put(&mut out, "ha_managed", status.ha_managed.value().copied());
    Ok(Value::Object(out))
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

/// `get_vm_config`.
pub async fn vm_config(_ctx: &CallContext, target: &Target) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let config = cluster.client.guest_config(&guest.at).await?;
    let shown: Map<String, Value> = config
        .raw
        .iter()
        .map(|(key, value)| (key.clone(), redact::config_value(key, value).into()))
        .collect();
    let mut out = Map::new();
    out.insert("vmid".to_owned(), guest.vmid().into());
    out.insert("node".to_owned(), guest.node().into());
    put(&mut out, "digest", config.digest.as_ref().map(ToString::to_string));
    out.insert("config".to_owned(), Value::Object(shown));
    Ok(Value::Object(out))
}

/// `get_task_status`. A task belongs to its guest: one outside the caller's scope is refused like one that is not there.
pub async fn task_status(ctx: &CallContext, target: &Target, args: TaskArgs) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let upid: Upid = args.upid.parse().map_err(|error| {
        ToolFailure::new("invalid_argument", format!("`upid` is not a task id: {error}"))
            .with("field", "upid")
    })?;
    let principal = &ctx.caller.principal;
    if !principal.unrestricted_guests() {
        let vmid = upid.guest().ok_or_else(authz::Denial::guest_unknown)?;
        let guest = ctx
            .app
            .resolver
            .guest(cluster, vmid.get(), ctx.caller.snapshot.read_freshness(), principal)
            .await
            .map_err(|_| authz::Denial::guest_unknown())?;
        if !principal.visible(&guest.facts) {
            return Err(authz::Denial::guest_unknown().into());
        }
    }
    let status = cluster.client.task_status(&upid).await?;
    let mut out = Map::new();
    out.insert("upid".to_owned(), upid.to_string().into());
    out.insert("node".to_owned(), upid.node().to_string().into());
    out.insert("type".to_owned(), upid.kind().into());
    out.insert("status".to_owned(), if status.running { "running" } else { "stopped" }.into());
    if let Some(exit) = &status.exit {
        out.insert("exitstatus".to_owned(), exit.to_string().into());
        out.insert("success".to_owned(), exit.succeeded().into());
    }
    Ok(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(n: u32) -> Vec<Map<String, Value>> {
        (0..n)
            .map(|i| {
                let mut row = Map::new();
                row.insert("vmid".to_owned(), (100 + i).into());
                row.insert("name".to_owned(), format!("guest-{i}").into());
                row
            })
            .collect()
    }

    fn args(offset: Option<u64>, limit: Option<u64>, fields: Option<&[&str]>) -> ListArgs {
        ListArgs {
            cluster: None,
            offset,
            limit,
            fields: fields.map(|f| f.iter().map(|s| (*s).to_owned()).collect()),
        }
    }

    #[test]
    fn pages_tile_the_list_and_say_when_there_is_more() {
        let first = page(rows(1000), 0, &args(None, None, None)).unwrap();
        assert_eq!((first["items"].as_array().unwrap().len(), &first["has_more"]), (500, &true.into()));
        let second = page(rows(1000), 0, &args(Some(500), Some(700), None)).unwrap();
        assert_eq!((second["items"].as_array().unwrap().len(), &second["has_more"]), (500, &false.into()));
        assert_eq!(second["items"][0]["vmid"], 600);
        let beyond = page(rows(3), 0, &args(Some(u64::MAX), None, None)).unwrap();
        assert_eq!((beyond["items"].as_array().unwrap().len(), &beyond["has_more"]), (0, &false.into()));
    }

    #[test]
    fn a_limit_above_the_maximum_is_refused_not_clamped() {
        for limit in [0, MAX_LIMIT + 1, u64::MAX] {
            assert_eq!(
                page(rows(1), 0, &args(None, Some(limit), None)).unwrap_err().code(),
                "invalid_argument"
            );
        }
        assert!(page(rows(1), 0, &args(None, Some(MAX_LIMIT), None)).is_ok());
    }

    #[test]
    fn fields_keep_only_what_was_asked_for() {
        let out = page(rows(1), 0, &args(None, None, Some(&["name", "no_such"]))).unwrap();
        assert_eq!(out["items"][0], json!({"name": "guest-0"}));
    }

    #[test]
    fn mc_08_a_page_that_would_exceed_the_cap_ends_early_and_says_so() {
        let wide: Vec<Map<String, Value>> = (0..700)
            .map(|_| {
                let mut row = Map::new();
                row.insert("name".to_owned(), "x".repeat(1000).into());
                row
            })
            .collect();
        let out = page(wide, 0, &args(None, Some(700), None)).unwrap();
        assert!(out.to_string().len() <= 256 * 1024);
        assert_eq!(out["has_more"], true);
    }
}
