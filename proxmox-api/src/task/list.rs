use super::TaskExit;
use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, Upid, Vmid},
    wire::{Form, JsonMap, Listing, Path, Record},
};

/// Which tasks to look among.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskSource {
    /// Running and finished ones. PVE's own default is finished ones only.
    #[default]
    All,
    /// Running ones.
    Active,
    /// Finished ones.
    Archive,
}

/// How finished tasks ended, as PVE sorts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskOutcome {
    /// `OK`.
    Ok,
    /// `WARNINGS: n`.
    Warning,
    /// An error.
    Error,
    /// PVE cannot tell.
    Unknown,
}

impl TaskOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }
}

/// Which tasks of a node to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFilter {
    /// Running, finished or both.
    pub source: TaskSource,
    /// Only tasks of this guest.
    pub vmid: Option<Vmid>,
    /// Only tasks of this worker type, `qmstart`.
    pub typefilter: Option<String>,
    /// Only tasks started at or after this time, seconds since 1970 by the node's clock.
    pub since: Option<u64>,
    /// Only tasks started at or before this time.
    pub until: Option<u64>,
    /// Only tasks of this user, `root@pam`.
    pub userfilter: Option<String>,
    /// Only finished tasks that ended like one of these; all when empty.
    pub outcomes: Vec<TaskOutcome>,
    /// How many to skip.
    pub start: u64,
    /// How many at most, newest first.
    pub limit: u32,
}

impl Default for TaskFilter {
    /// Everything, at most 500.
    fn default() -> Self {
        Self {
            source: TaskSource::All,
            vmid: None,
            typefilter: None,
            since: None,
            until: None,
            userfilter: None,
            outcomes: Vec::new(),
            start: 0,
            limit: 500,
        }
    }
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its handle, which also tells node, start, type, guest and user.
    pub upid: Upid,
    /// How it ended; `None` while it runs.
    pub exit: Option<TaskExit>,
    /// When it ended, seconds since 1970.
    pub endtime: Option<u64>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl Task {
    fn read(row: &Record<'_>) -> Option<Self> {
        let endtime = row.integer("endtime");
        let status = row.filled("status");
        let exit = match status.as_deref() {
            Some("RUNNING" | "running") => None,
            None if endtime.is_none() => None,
            status => Some(TaskExit::of_stopped(status)),
        };
        Some(Self { upid: row.id("upid")?, exit, endtime, json: row.json() })
    }
}

impl Client {
    /// The recent tasks of all nodes (`GET /cluster/tasks`; a token sees its own, others need `Sys.Audit` on the node;
    /// PVE 7 to 9). Each node tells only its last ones; for a search use [`Client::tasks`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster_tasks(&self) -> Result<Listing<Task>, Error> {
        self.read(Path::of("cluster").word("tasks"), Form::new()).await?.list(Task::read)
    }

    /// The tasks of a node, newest first (`GET /nodes/{node}/tasks`; a token sees its own, others need `Sys.Audit` on
    /// the node; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tasks(&self, node: &NodeName, filter: &TaskFilter) -> Result<Listing<Task>, Error> {
        let source = match filter.source {
            TaskSource::All => "all",
            TaskSource::Active => "active",
            TaskSource::Archive => "archive",
        };
        let query = Form::new()
            .put("source", source)
            .put_some("vmid", filter.vmid)
            .put_some("typefilter", filter.typefilter.as_ref())
            .put_some("since", filter.since)
            .put_some("until", filter.until)
            .put_some("userfilter", filter.userfilter.as_ref())
            .put_list("statusfilter", filter.outcomes.iter().map(|outcome| outcome.word()))
            .put("start", filter.start)
            .put("limit", filter.limit);
        self.read(Path::node(node).word("tasks"), query).await?.list(Task::read)
    }
}
