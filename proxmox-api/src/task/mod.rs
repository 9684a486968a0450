//! Tasks: what most changes turn into, and how to follow one to its end.

mod exit;
mod list;
mod wait;

pub use exit::TaskExit;
pub use list::{Task, TaskFilter, TaskOutcome, TaskSource};
pub use wait::{WaitPolicy, Waited};

use crate::{
    client::Client,
    error::Error,
    ids::Upid,
    wire::{Form, JsonMap, Listing, Path},
};

/// Whether a task runs, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// Whether it still runs.
    pub running: bool,
    /// How it ended; `None` exactly while it runs.
    pub exit: Option<TaskExit>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

/// A line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The number of the line, from 1.
    pub n: u64,
    /// The text.
    pub t: String,
}

impl Client {
    /// The state of a task, asked at the task's own node (`GET /nodes/{node}/tasks/{upid}/status`; a token sees its
    /// own tasks, others need `Sys.Audit` on the node; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; a task PVE does not know is [`NotFound`](crate::ErrorKind::NotFound).
    pub async fn task_status(&self, upid: &Upid) -> Result<TaskStatus, Error> {
        let reply = self.read(task(upid).word("status"), Form::new()).await?;
        reply.record(|data| match data.filled("status").as_deref() {
            Some("running") => Ok(TaskStatus { running: true, exit: None, json: data.json() }),
            Some("stopped") => {
                let exit = data.filled("exitstatus");
                let exit = Some(TaskExit::of_stopped(exit.as_deref()));
                Ok(TaskStatus { running: false, exit, json: data.json() })
            }
            _ => Err(reply.malformed("`status` is neither `running` nor `stopped`")),
        })
    }

    /// Lines of a task's log, `limit` of them from line `start` (0 is the first), with the total number of lines
    /// (`GET /nodes/{node}/tasks/{upid}/log`; rights as for [`Client::task_status`]; PVE 7 to 9). Of an unknown task PVE gives one line that says the file cannot be opened.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn task_log(&self, upid: &Upid, start: u64, limit: u32) -> Result<Listing<LogLine>, Error> {
        // PVE takes a limit of 0 for "everything".
        let query = Form::new().put("start", start).put("limit", limit.max(1));
        self.read(task(upid).word("log"), query).await?.list(|row| {
            // A line that is no text stays in its place, as what it is.
            let odd = || row.raw("t").map(|raw| raw.get().to_owned()).unwrap_or_default();
            Some(LogLine { n: row.integer("n")?, t: row.text("t").value().cloned().unwrap_or_else(odd) })
        })
    }

    /// The lines of a task's log that warn or complain (as [`Client::task_log`], the last 500 lines of it): what
    /// [`TaskExit::Warnings`] counts.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn task_warnings(&self, upid: &Upid) -> Result<Vec<String>, Error> {
        const LINES: u32 = 500;
        let mut log = self.task_log(upid, 0, LINES).await?;
        if let Some(skip) =
            log.total.and_then(|total| total.checked_sub(LINES.into())).filter(|skip| *skip > 0)
        {
            log = self.task_log(upid, skip, LINES).await?;
        }
        let warns = |line: &str| {
            let start = line.trim_start().as_bytes();
            ["warn", "error"].iter().any(|word| {
                start.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
            })
        };
        Ok(log.into_iter().map(|line| line.t).filter(|line| warns(line)).collect())
    }

    /// Stops a running task (`DELETE /nodes/{node}/tasks/{upid}`; a token stops its own tasks, others need `Sys.Modify`
    /// on the node; PVE 7 to 9). Done when it is answered; the task ends a little later, and what it had done stays done.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stop_task(&self, upid: &Upid) -> Result<(), Error> {
        self.delete(task(upid), Form::new()).await?.done()
    }
}

fn task(upid: &Upid) -> Path {
    Path::node(upid.node()).word("tasks").id(upid)
}
