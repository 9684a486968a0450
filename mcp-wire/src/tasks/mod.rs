//! The tasks extension of revision 2026-07-28 (`io.modelcontextprotocol/tasks`): a call that is answered at once
//! with a task, which its caller then polls, answers and cancels.
//!
//! A task belongs to the caller who made it; to everyone else it does not exist. Its id is 128 random bits.

mod run;
mod store;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Era, Identity, InputRequest, RpcError, ToolResult, jsonrpc::quoted, reply};

pub(crate) use run::Desk;
pub use run::{Task, TaskStopped, Tasks};
pub use store::{MemoryStore, Store, StoreError};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It runs.
    Working,
    /// It waits for answers of the client.
    InputRequired,
    /// It has a result, which may be a tool's error.
    Completed,
    /// It ended with a JSON-RPC error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Whether nothing about the task changes any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The status as on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How a task is kept and polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOptions {
    /// How long it is kept, from its start. A task that still runs then is cancelled. Default one hour.
    pub lifetime: Duration,
    /// How often its client should look. Default one second.
    pub poll_interval: Duration,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(3600), poll_interval: Duration::from_secs(1) }
    }
}

/// A task as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskRecord {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// What it does just now, for people.
    pub message: Option<String>,
    /// When it began.
    pub created: Timestamp,
    /// When anything about it changed last.
    pub updated: Timestamp,
    /// How it is kept and polled.
    pub options: TaskOptions,
    /// Its questions that are not answered yet.
    pub requests: BTreeMap<String, InputRequest>,
    /// How it ended, once it has and was not cancelled.
    pub outcome: Option<Result<ToolResult, RpcError>>,
}

impl TaskRecord {
    /// A task that begins now.
    #[must_use]
    pub fn new(id: String, owner: String, options: TaskOptions, now: Timestamp) -> Self {
        let (status, message, requests, outcome) = (TaskStatus::Working, None, BTreeMap::new(), None);
        Self { id, owner, status, message, created: now, updated: now, options, requests, outcome }
    }

    /// Whether it is past its lifetime.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now.duration_since(self.created).unsigned_abs() >= self.options.lifetime && now >= self.created
    }

    fn facts(&self) -> Value {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let mut facts = json!({
            "taskId": self.id,
            "status": self.status.as_str(),
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": self.updated.to_string(),
            "ttlMs": millis(self.options.lifetime),
            "pollIntervalMs": millis(self.options.poll_interval),
        });
        if let Some(message) = &self.message {
            facts["statusMessage"] = json!(message);
        }
        facts
    }

    /// The answer to the call that made it.
    pub(crate) fn created_view(&self) -> Value {
        let mut view = self.facts();
        view["resultType"] = json!("task");
        view
    }

    /// The answer to `tasks/get`, and what `notifications/tasks` says.
    pub(crate) fn view(&self, identity: &Identity) -> Value {
        let mut view = self.facts();
        match (&self.outcome, self.status) {
            (Some(Ok(result)), _) => view["result"] = reply::tool_result(identity, Era::Modern, result),
            (Some(Err(error)), _) => view["error"] = json!(error),
            (None, TaskStatus::InputRequired) => {
                let requests = self.requests.iter().map(|(key, request)| (key.clone(), request.to_value()));
                view["inputRequests"] = Value::Object(requests.collect());
            }
            (None, _) => {}
        }
        view
    }
}

/// -32602 for a task that does not exist, or not for this caller; the two read the same.
pub(crate) fn unknown_task(id: &str) -> RpcError {
    RpcError::invalid_params(format!("there is no task {}; it may have expired", quoted(id)))
}
