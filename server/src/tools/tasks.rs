//! Reads of tasks. A task belongs to its guest, decided by its worker type and never by what its id looks like.

use std::sync::Arc;

use proxmox_api::{LogLine, Task, TaskExit, TaskFilter, TaskOutcome, TaskSource, TaskStatus, Upid, Vmid};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::args::{TaskArgs, id};
use super::cluster_of;
use super::paging::Paging;
use super::sight::Sight;
use super::table::{Extent, Table, flag, integer, text, texts};
use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::redact;
use crate::stack::{CallContext, ToolFailure};

/// How many tasks a page holds when the caller does not say: as many as PVE itself gives.
pub const DEFAULT_LIMIT: u64 = 50;
/// How many of a node's tasks are looked through for a token that may see some of them only.
const LOOKED_THROUGH: u32 = 2000;

/// Which tasks are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Running and finished ones.
    #[default]
    All,
    /// Running ones.
    Active,
    /// Finished ones.
    Archive,
}

/// How tasks that are listed ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// They have not ended.
    Running,
    /// They did what they were for, with or without warnings.
    Ok,
    /// They did it with warnings.
    Warnings,
    /// They did not, or PVE cannot tell.
    Failed,
}

impl Outcome {
    /// Where PVE keeps such tasks. It says of a running task that its end is unknown, so ended ones are asked for as such.
    fn source(self) -> Source {
        match self {
            Self::Running => Source::Active,
            Self::Ok | Self::Warnings | Self::Failed => Source::Archive,
        }
    }

    /// PVE's words for it.
    fn at_pve(self) -> Vec<TaskOutcome> {
        match self {
            Self::Running => Vec::new(),
            Self::Ok => vec![TaskOutcome::Ok, TaskOutcome::Warning],
            Self::Warnings => vec![TaskOutcome::Warning],
            Self::Failed => vec![TaskOutcome::Error, TaskOutcome::Unknown],
        }
    }
}

/// Arguments of `list_tasks`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Name of the node.
    pub node: String,
    /// Only tasks of this guest, which need not exist any more.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: Option<u32>,
    /// Only tasks of this worker type, such as `qmstart` or `vzdump`.
    pub typefilter: Option<String>,
    /// `all` (the default), `active` or `archive`.
    pub source: Option<Source>,
    /// Only tasks that ended so: `running` (not yet), `ok` (also with warnings), `warnings`, `failed` (also where PVE cannot tell).
    pub outcome: Option<Outcome>,
}

impl ListArgs {
    /// Running and finished tasks, or those of them that can have the outcome.
    fn source(&self) -> Result<Source, ToolFailure> {
        match (self.source, self.outcome.map(Outcome::source)) {
            (None | Some(Source::All), Some(of_outcome)) => Ok(of_outcome),
            (Some(source), Some(of_outcome)) if source != of_outcome => Err(ToolFailure::new(
                "invalid_argument",
                "`outcome` and `source` exclude each other: running tasks are `active`, the others `archive`; give one of the two",
            )
            .with("field", "outcome")),
            (source, _) => Ok(source.unwrap_or_default()),
        }
    }
}

/// `list_tasks`.
pub static TASKS: Table<Task> = Table(&[
    text("upid", "", |task| Some(task.upid.to_string())),
    text("type", "PVE's worker type", |task| Some(task.upid.kind().to_owned())),
    text("id", "what it is about", |task| Some(task.upid.id().to_owned()).filter(|id| !id.is_empty())),
    integer("vmid", "the guest it belongs to", |task| task.upid.guest().map(|vmid| vmid.get().into())),
    text("user", "", |task| Some(task.upid.user().to_owned())),
    integer("starttime", "seconds since 1970", |task| Some(task.upid.starttime().into())),
    integer("endtime", "", |task| task.endtime),
    text("status", "`running` or `stopped`", |task| Some(word(task.exit.is_none()).to_owned())),
    text("exitstatus", "PVE's words, once stopped", |task| task.exit.as_ref().map(said)),
    flag("success", "missing where PVE cannot tell", |task| task.exit.as_ref().and_then(success)),
]);

fn word(running: bool) -> &'static str {
    if running { "running" } else { "stopped" }
}

fn said(exit: &TaskExit) -> String {
    redact::free_text(&exit.to_string())
}

/// Whether the task did what it was for; `None` where PVE itself cannot tell, which is neither success nor failure.
fn success(exit: &TaskExit) -> Option<bool> {
    (!matches!(exit, TaskExit::Unstated(_))).then(|| exit.succeeded())
}

/// `list_tasks`. A token that may read every guest gets PVE's own page and total; every other one those tasks of its guests
/// that are among the node's newest, and no total, which would count what is not its own.
pub async fn list(ctx: &CallContext, target: &Target, args: ListArgs, paging: &Paging) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let node = id("node", &args.node)?;
    let sight = Sight::of(ctx, cluster).await?;
    let mut filter = TaskFilter {
        source: match args.source()? {
            Source::All => TaskSource::All,
            Source::Active => TaskSource::Active,
            Source::Archive => TaskSource::Archive,
        },
        vmid: sight.only(args.vmid)?,
        outcomes: args.outcome.map(Outcome::at_pve).unwrap_or_default(),
        typefilter: args.typefilter,
        start: paging.offset,
        limit: u32::try_from(paging.limit).unwrap_or(u32::MAX),
        ..TaskFilter::default()
    };
    if sight.is_whole() {
        let listing = cluster.client.tasks(&node, &filter).await?;
        let read = (listing.items.len() + listing.skipped) as u64;
        let more =
            listing.total.map_or(read >= paging.limit, |total| paging.offset.saturating_add(read) < total);
        let extent = Extent { total: listing.total, more, skipped: Some(listing.skipped as u64) };
        return TASKS.window(&listing.items, extent, paging);
    }
    (filter.start, filter.limit) = (0, LOOKED_THROUGH);
    let mut tasks = cluster.client.tasks(&node, &filter).await?.items;
    tasks.retain(|task| sight.guest_or_none(task.upid.guest().map(Vmid::get)));
    let from = usize::try_from(paging.offset).unwrap_or(usize::MAX).min(tasks.len());
    let to = from.saturating_add(usize::try_from(paging.limit).unwrap_or(usize::MAX)).min(tasks.len());
    let extent = Extent { total: None, more: to < tasks.len(), skipped: Some(0) };
    TASKS.window(tasks.get(from..to).unwrap_or_default(), extent, paging)
}

/// The task that is named, where the caller may know of it: the refusal is that of a guest that is not there.
async fn known(ctx: &CallContext, cluster: &Arc<Cluster>, args: &TaskArgs) -> Result<Upid, ToolFailure> {
    let upid: Upid = id("upid", &args.upid)?;
    if ctx.caller.principal.unrestricted_guests() {
        return Ok(upid);
    }
    let vmid = upid.guest().ok_or_else(authz::Denial::guest_unknown)?;
    if Sight::of(ctx, cluster).await?.guest(vmid.get()) {
        Ok(upid)
    } else {
        Err(authz::Denial::guest_unknown().into())
    }
}

/// A task that was looked up.
#[derive(Debug)]
pub struct LookedUp {
    upid: Upid,
    status: TaskStatus,
    /// Lines of its log that warn, of one that succeeded with warnings.
    warning_lines: Vec<String>,
}

/// `get_task_status`.
pub static STATUS: Table<LookedUp> = Table(&[
    text("upid", "", |task| Some(task.upid.to_string())),
    text("node", "where it runs or ran", |task| Some(task.upid.node().to_string())),
    text("type", "PVE's worker type", |task| Some(task.upid.kind().to_owned())),
    integer("vmid", "the guest it belongs to", |task| task.upid.guest().map(|vmid| vmid.get().into())),
    text("user", "", |task| Some(task.upid.user().to_owned())),
    integer("starttime", "seconds since 1970", |task| Some(task.upid.starttime().into())),
    text("status", "`running` or `stopped`", |task| Some(word(task.status.running).to_owned())),
    text("exitstatus", "PVE's words, once stopped", |task| task.status.exit.as_ref().map(said)),
    flag("success", "once stopped; missing where PVE cannot tell", |task| {
        task.status.exit.as_ref().and_then(success)
    }),
    integer("warnings", "how many, of a task that succeeded with warnings", |task| match task.status.exit {
        Some(TaskExit::Warnings(n)) => Some(n),
        _ => None,
    }),
    texts("warning_lines", "what they say, from its log", |task| task.warning_lines.clone()),
]);

/// Most lines of a log that are told with a task that succeeded with warnings.
const WARNING_LINES: usize = 10;

/// What the warnings of a task say; nothing where its log cannot be read, which is no reason to doubt how it ended.
pub(super) async fn warning_lines(cluster: &Cluster, upid: &Upid) -> Vec<String> {
    let lines = cluster.client.task_warnings(upid).await.unwrap_or_default();
    lines.iter().take(WARNING_LINES).map(|line| redact::free_text(line)).collect()
}

/// `get_task_status`.
pub async fn status(ctx: &CallContext, target: &Target, args: TaskArgs) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let upid = known(ctx, cluster, &args).await?;
    let status = cluster.client.task_status(&upid).await?;
    let warned = matches!(status.exit, Some(TaskExit::Warnings(_)));
    let warning_lines = if warned { warning_lines(cluster, &upid).await } else { Vec::new() };
    Ok(Value::Object(STATUS.record(&LookedUp { upid, status, warning_lines })))
}

/// `get_task_log`.
pub static LOG: Table<LogLine> = Table(&[
    integer("n", "number of the line, from 1", |line| Some(line.n)),
    text("t", "the text", |line| Some(redact::free_text(&line.t))),
]);

/// What PVE answers as the only line of a log that is not there.
const NO_LOG: &str = "unable to open file - ";

/// `get_task_log`.
pub async fn log(ctx: &CallContext, target: &Target, args: TaskArgs, paging: &Paging) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let upid = known(ctx, cluster, &args).await?;
    let limit = u32::try_from(paging.limit).unwrap_or(u32::MAX);
    let mut listing = cluster.client.task_log(&upid, paging.offset, limit).await?;
    if let [only] = listing.items.as_slice()
        && only.t.starts_with(NO_LOG)
    {
        return Err(ToolFailure::new(
            "not_found",
            "there is no log of this task: PVE does not know it, or has removed its log by now",
        ));
    }
    // Behind the last line PVE says so in a line of its own.
    if listing.total.is_some_and(|total| paging.offset >= total) {
        listing.items.clear();
    }
    let end = paging.offset.saturating_add(listing.items.len() as u64);
    let more = listing.total.map_or(listing.items.len() as u64 >= paging.limit, |total| end < total);
    LOG.window(
        &listing.items,
        Extent { total: listing.total, more, skipped: Some(listing.skipped as u64) },
        paging,
    )
}
