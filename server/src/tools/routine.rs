//! What every routine change has in common: it is sent once or rehearsed, and answered with its task or followed to its end.

use std::sync::Arc;
use std::time::Duration;

use proxmox_api::{
    Client, Error, ErrorKind, GuestRef, Rehearsal, RehearsedRequest, RunState, TaskExit, Upid, WaitPolicy,
    Waited,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::catalog::{Arguments, HandlerResult};
use crate::config::Cluster;
use crate::redact;
use crate::resolve::Guest;
use crate::stack::{CallContext, ToolFailure};

/// Longest that a call may wait for its task, seconds.
pub const LONGEST_WAIT: u64 = 300;
/// Lines of a failed task's log that are told.
const TAIL: u64 = 10;
/// Pause between two looks at a guest that HA starts or stops.
const HA_POLL: Duration = Duration::from_millis(500);
/// Pause between two looks at whether the caller is still there.
const PRESENCE: Duration = Duration::from_millis(500);

/// What the result of a routine change can hold.
pub const OUTPUT: &[(&str, &str, &str)] = &[
    ("upid", "string", "the task, for get_task_status"),
    ("synchronous", "boolean", "done at once, without a task"),
    ("vmid", "integer", ""),
    ("node", "string", "where it happens"),
    ("status", "string", "after `wait`: ok, warnings or running; a failure is an error"),
    ("ha_managed", "boolean", "HA does it after the task: look at the guest"),
    ("request", "object", "of a dry run: method, path, parameters"),
];

/// The schema of such a result.
pub fn output() -> Value {
    crate::catalog::open_object(OUTPUT)
}

/// The same with fields of the tool's own.
pub fn output_with(more: &[(&str, &str, &str)]) -> Value {
    crate::catalog::open_object(&[OUTPUT, more].concat())
}

/// How a change is to be made. Every routine change takes these arguments, and takes them here.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    dry_run: bool,
    wait: Option<Duration>,
}

impl How {
    /// Takes `dry_run` and `wait` (seconds) out of a call's arguments, which were checked against [`How::properties`].
    ///
    /// # Errors
    /// A wait that is too long: it is refused and not shortened. An argument of another type.
    pub fn take(arguments: &mut Arguments) -> Result<Self, ToolFailure> {
        let dry_run = match arguments.remove("dry_run") {
            None => false,
            Some(value) => value.as_bool().ok_or_else(|| refused("dry_run", "true or false"))?,
        };
        let wait = match arguments.remove("wait") {
            None => 0,
            Some(value) => value.as_u64().filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(|| {
                refused(
                    "wait",
                    &format!("at most {LONGEST_WAIT} seconds; get_task_status tells about longer tasks"),
                )
            })?,
        };
        Ok(Self { dry_run, wait: (wait > 0).then(|| Duration::from_secs(wait)) })
    }

    /// The schema of these arguments. `waits`: whether a task does the work, which can be waited for.
    pub fn properties(waits: bool) -> Map<String, Value> {
        let mut out = Map::new();
        let dry_run = json!({"type": "boolean", "description": "Only say what would be sent."});
        out.insert("dry_run".to_owned(), dry_run);
        if waits {
            let what = format!("Seconds to wait for the task's end, at most {LONGEST_WAIT}.");
            out.insert("wait".to_owned(), json!({"type": "integer", "minimum": 0, "description": what}));
        }
        out
    }
}

fn refused(field: &'static str, expected: &str) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{field}`: expected {expected}")).with("field", field)
}

/// What PVE answered to a change.
#[derive(Debug)]
pub enum Sent {
    /// A task does it.
    Task(Upid),
    /// It is done.
    Done,
}

impl From<Upid> for Sent {
    fn from(upid: Upid) -> Self {
        Self::Task(upid)
    }
}

impl From<()> for Sent {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Option<Upid>> for Sent {
    fn from(upid: Option<Upid>) -> Self {
        upid.map_or(Self::Done, Self::Task)
    }
}

/// The state a guest has when a change of HA is through.
#[derive(Debug, Clone)]
struct Expected {
    at: GuestRef,
    running: bool,
}

/// One change on its way. Make it, call its client once, [`end`](Self::end) it.
#[derive(Debug)]
pub struct Routine<'a> {
    ctx: &'a CallContext,
    cluster: &'a Arc<Cluster>,
    how: How,
    vmid: Option<u32>,
    node: String,
    rehearsal: Option<Rehearsal>,
    expected: Option<Expected>,
}

impl<'a> Routine<'a> {
    /// A change of a guest that is there.
    pub fn on(ctx: &'a CallContext, cluster: &'a Arc<Cluster>, guest: &Guest, how: How) -> Self {
        Self::at(ctx, cluster, Some(guest.vmid()), guest.node(), how)
    }

    /// A change at a node, of a guest that may not be there yet, or of none.
    pub fn at(
        ctx: &'a CallContext,
        cluster: &'a Arc<Cluster>,
        vmid: Option<u32>,
        node: &str,
        how: How,
    ) -> Self {
        let rehearsal = how.dry_run.then(|| cluster.client.rehearsal());
        Self { ctx, cluster, how, vmid, node: node.to_owned(), rehearsal, expected: None }
    }

    /// What the guest will be when the change is through, where HA makes it.
    #[must_use]
    pub fn expecting(mut self, guest: &Guest, running: bool) -> Self {
        self.expected = Some(Expected { at: guest.at.clone(), running });
        self
    }

    /// The client to make the change with: the cluster's own, or one that sends nothing.
    pub fn client(&self) -> &Client {
        self.rehearsal.as_ref().map_or(&self.cluster.client, Rehearsal::client)
    }

    /// Answers the call.
    ///
    /// # Errors
    /// PVE's refusal; that it may have been done although no answer came; with `wait` a task that failed.
    pub async fn end(self, sent: Result<impl Into<Sent>, Error>) -> HandlerResult {
        let mut out = Map::new();
        if let Some(vmid) = self.vmid {
            out.insert("vmid".to_owned(), vmid.into());
        }
        out.insert("node".to_owned(), self.node.clone().into());
        if let Some(rehearsal) = &self.rehearsal {
            if let Err(error) = sent
                && error.kind() != ErrorKind::Rehearsed
            {
                return Err(error.into());
            }
            out.insert("dry_run".to_owned(), true.into());
            if let Some(request) = rehearsal.requests().first() {
                out.insert("request".to_owned(), shown(request));
            }
            return Ok(out.into());
        }
        self.ctx.app.resolver.forget(self.cluster).await;
        let upid = match sent.map_err(|error| doubt(error, self.vmid))?.into() {
            Sent::Done => {
                out.insert("synchronous".to_owned(), true.into());
                return Ok(out.into());
            }
            Sent::Task(upid) => upid,
        };
        self.ctx.trail.note(|facts| facts.upid = Some(upid.to_string()));
        out.insert("upid".to_owned(), upid.to_string().into());
        // The task is where PVE says it is: a guest may be cloned on one node and end up on another.
        out.insert("node".to_owned(), upid.node().as_str().into());
        if is_of_ha(&upid) {
            out.insert("ha_managed".to_owned(), true.into());
        }
        if let Some(wait) = self.how.wait {
            self.follow(&upid, wait, &mut out).await?;
            self.ctx.app.resolver.forget(self.cluster).await;
        }
        Ok(out.into())
    }

    /// Waits for the task, and for the guest where HA has the work. The task goes on when the wait is over, or the caller is gone.
    async fn follow(
        &self,
        upid: &Upid,
        wait: Duration,
        out: &mut Map<String, Value>,
    ) -> Result<(), ToolFailure> {
        let until = Instant::now() + wait;
        let policy = WaitPolicy { deadline: wait, ..WaitPolicy::default() };
        let client = &self.cluster.client;
        let waited = tokio::select! {
            waited = client.wait_task(upid, &policy) => waited,
            () = self.nobody_waits(wait) => Ok(Waited::StillRunning),
        };
        let exit = match waited {
            // It was started all the same: what is known is told.
            Err(error) => {
                out.insert("status".to_owned(), "running".into());
                out.insert("note".to_owned(), format!("its state cannot be read now: {error}").into());
                return Ok(());
            }
            Ok(Waited::StillRunning) => {
                out.insert("status".to_owned(), "running".into());
                return Ok(());
            }
            Ok(Waited::Ended(exit)) => exit,
        };
        match exit {
            TaskExit::Ok => {}
            TaskExit::Warnings(count) => {
                out.insert("warnings".to_owned(), count.into());
                let lines = super::tasks::warning_lines(self.cluster, upid).await;
                out.insert("warning_lines".to_owned(), lines.into());
            }
            failed @ (TaskExit::Failed(_) | TaskExit::Unstated(_)) => {
                return Err(self.failed(upid, &failed).await);
            }
        }
        if is_of_ha(upid)
            && let Some(expected) = &self.expected
        {
            let reached = self.reached(expected, until).await;
            out.insert("guest_status".to_owned(), reached.into());
            let there = reached == if expected.running { "running" } else { "stopped" };
            out.insert("status".to_owned(), if there { "ok" } else { "running" }.into());
            return Ok(());
        }
        let warned = matches!(exit, TaskExit::Warnings(_));
        out.insert("status".to_owned(), if warned { "warnings" } else { "ok" }.into());
        Ok(())
    }

    /// The guest's state when it is what was expected, or when the time is over.
    async fn reached(&self, expected: &Expected, until: Instant) -> &'static str {
        loop {
            let state = match self.cluster.client.guest_status(&expected.at).await {
                Ok(status) => match status.state {
                    RunState::Running => "running",
                    RunState::Stopped => "stopped",
                    RunState::Unknown(_) => "unknown",
                },
                Err(_) => "unknown",
            };
            if state == if expected.running { "running" } else { "stopped" } {
                return state;
            }
            let next = Instant::now() + HA_POLL;
            if next > until || self.is_left() {
                return state;
            }
            self.ctx.listener.report(self.passed(until), None, "HA has the request");
            tokio::time::sleep_until(next).await;
        }
    }

    /// Seconds of the wait that have passed.
    fn passed(&self, until: Instant) -> f64 {
        let wait = self.how.wait.unwrap_or_default();
        wait.saturating_sub(until.saturating_duration_since(Instant::now())).as_secs_f64()
    }

    fn is_left(&self) -> bool {
        self.ctx.trail.facts().caller_gone
            || self.ctx.listener.cancel.as_ref().is_some_and(mcp_wire::CancelSignal::is_cancelled)
    }

    /// Ends when the caller has left or no longer wants to wait. Tells it meanwhile that the task goes on.
    async fn nobody_waits(&self, wait: Duration) {
        let started = Instant::now();
        while !self.is_left() {
            tokio::select! {
                () = self.ctx.listener.cancelled() => return,
                () = tokio::time::sleep(PRESENCE) => {}
            }
            let total = Some(wait.as_secs_f64());
            self.ctx.listener.report(started.elapsed().as_secs_f64(), total, "the task is running");
        }
    }

    /// A task that did not do what it was for, with the end of its log.
    async fn failed(&self, upid: &Upid, exit: &TaskExit) -> ToolFailure {
        let said = redact::free_text(&exit.to_string());
        let (code, message) = match exit {
            TaskExit::Unstated(_) => (
                "outcome_unknown",
                format!("PVE cannot tell how the task ended ({said}); look at the guest before repeating it"),
            ),
            _ => ("task_failed", format!("the task failed: {said}")),
        };
        let mut failure = ToolFailure::new(code, message)
            .with("upid", upid.to_string())
            .with("node", upid.node().as_str())
            .with("exitstatus", said);
        if let Some(vmid) = self.vmid {
            failure = failure.with("vmid", vmid);
        }
        match self.tail(upid).await {
            Some(lines) => failure.with("log", lines),
            None => failure,
        }
    }

    /// The last lines of a task's log; `None` where it cannot be read.
    async fn tail(&self, upid: &Upid) -> Option<Vec<String>> {
        let client = &self.cluster.client;
        let total = client.task_log(upid, 0, 1).await.ok()?.total?;
        let log = client.task_log(upid, total.saturating_sub(TAIL), TAIL as u32).await.ok()?;
        Some(log.into_iter().map(|line| redact::free_text(&line.t)).collect())
    }
}

/// Whether HA does what the task only asks for.
fn is_of_ha(upid: &Upid) -> bool {
    matches!(upid.kind(), "hastart" | "hastop" | "hamigrate")
}

/// A request for people and models.
fn shown(request: &RehearsedRequest) -> Value {
    let mut parameters = Map::new();
    for (key, value) in &request.parameters {
        let value = Value::from(redact::config_value(key, value));
        match parameters.get_mut(key) {
            None => {
                parameters.insert(key.clone(), value);
            }
            Some(Value::Array(all)) => all.push(value),
            Some(one) => *one = Value::Array(vec![one.take(), value]),
        }
    }
    json!({"method": request.method, "path": request.path, "parameters": parameters})
}

/// A request that may have been written is never repeated, and the caller is told so, and nothing that sounds like "try again".
fn doubt(error: Error, vmid: Option<u32>) -> ToolFailure {
    if error.effect() != proxmox_api::Effect::Unknown {
        return error.into();
    }
    let look = match vmid {
        Some(vmid) => format!("read get_guest_status of {vmid}, and list_tasks,"),
        None => "look at list_tasks".to_owned(),
    };
    let message = format!(
        "{}; the request may have taken effect: {look} before repeating it",
        error.message().trim_end()
    );
    ToolFailure::new("outcome_unknown", message).with("effect", "unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_too_long_is_refused_and_not_shortened() {
        let how = |wait: Value| How::take(json!({"wait": wait, "dry_run": true}).as_object_mut().unwrap());
        assert!(how(json!(LONGEST_WAIT)).unwrap().wait.is_some());
        assert!(how(json!(0)).unwrap().wait.is_none());
        let refused = how(json!(LONGEST_WAIT + 1)).unwrap_err();
        assert!(refused.public_message().contains("at most 300 seconds"), "{}", refused.public_message());
    }

    #[test]
    fn a_repeated_parameter_is_shown_as_the_array_it_is() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let request = RehearsedRequest {
            method: "POST".to_owned(),
            path: "/x".to_owned(),
            parameters: vec![
                pair("command", "ls"),
                pair("command", "-l"),
                pair("command", "/"),
                pair("cipassword", "x"),
            ],
        };
        let shown = shown(&request);
        assert_eq!(shown["parameters"]["command"], json!(["ls", "-l", "/"]));
        assert_eq!(shown["parameters"]["cipassword"], "[redacted]");
    }
}
