use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::TaskExit;
use crate::{
    client::Client,
    error::{Error, ErrorKind},
    ids::Upid,
};

/// How to wait for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    /// The pause after the first look; each further one is half as long again.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// How long to wait in all.
    pub deadline: Duration,
}

impl Default for WaitPolicy {
    /// From 200 ms to 5 s between looks, 10 minutes in all.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(5),
            deadline: Duration::from_secs(600),
        }
    }
}

/// What waiting for a task came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The task ended.
    Ended(TaskExit),
    /// It still ran when the deadline passed; it goes on.
    StillRunning,
}

impl Client {
    /// Waits for a task to end. Reads that fail for a reason that may pass (node or link down, timeout, an error of
    /// the server) are tried again until the deadline.
    ///
    /// # Errors
    /// Fails at once when asking again cannot help (no such task, no permission), and with the last error when the
    /// deadline passes while the task cannot be read. Either way the task may still run.
    pub async fn wait_task(&self, upid: &Upid, policy: &WaitPolicy) -> Result<Waited, Error> {
        let deadline = Instant::now() + policy.deadline;
        let mut pause = policy.first;
        loop {
            let looked = self.task_status(upid).await;
            match &looked {
                Ok(status) => {
                    if let Some(exit) = &status.exit {
                        return Ok(Waited::Ended(exit.clone()));
                    }
                }
                Err(error) if may_pass(error.kind()) => {
                    tracing::debug!(%upid, %error, "task could not be read, asking again");
                }
                Err(_) => {}
            }
            let now = Instant::now();
            match looked {
                Err(error) if now >= deadline || !may_pass(error.kind()) => return Err(error),
                Ok(_) if now >= deadline => return Ok(Waited::StillRunning),
                Ok(_) | Err(_) => {}
            }
            // The last look is at the deadline itself.
            sleep_until(deadline.min(now + pause)).await;
            pause = (pause + pause / 2).min(policy.longest);
        }
    }
}

fn may_pass(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Disconnected
            | ErrorKind::Malformed
            | ErrorKind::NodeUnreachable
            | ErrorKind::Server
            | ErrorKind::Timeout
            | ErrorKind::Unreachable
    )
}
