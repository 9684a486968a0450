//! The QEMU guest agent as a way into a virtual machine: what is needed of it, and the entry point that uses it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use crate::dest::Dest;
use crate::error::PushError;
use crate::options::PushOptions;
use crate::receipt::{Receipt, Stage};
use crate::route::intake::over_cap;
use crate::route::read::Download;
use crate::route::{agent, attempt};
use crate::source::Source;
use crate::target::Deadlines;

/// The most bytes of one [`AgentChannel::write_file`]: in base64 the 61,440 characters that Proxmox VE takes in one request.
pub const AGENT_PART: usize = 45 * 1024;

/// What is asked of one virtual machine's guest agent. Implemented over an API client by whoever has one; this crate
/// knows no HTTP.
pub trait AgentChannel: Send + Sync {
    /// Writes a file anew with at most [`AGENT_PART`] bytes. They must be encoded exactly once on the way (Proxmox VE:
    /// `agent/file-write` with the content in base64 and `encode=0`; its own encoding mangles bytes).
    fn write_file(&self, path: &str, bytes: &[u8]) -> impl Future<Output = Result<(), AgentError>> + Send;

    /// Starts a program with its arguments, capturing its output, and returns its process id.
    fn exec(&self, argv: &[&str]) -> impl Future<Output = Result<u64, AgentError>> + Send;

    /// How a program that [`exec`](Self::exec) started is doing. The end is told once; it is not asked for again.
    fn exec_status(&self, pid: u64) -> impl Future<Output = Result<ExecStatus, AgentError>> + Send;

    /// Bytes of a file from `offset` on, at most `count`; fewer only at the end of the file.
    fn read_file(
        &self,
        path: &str,
        offset: u64,
        count: u64,
    ) -> impl Future<Output = Result<Bytes, AgentError>> + Send;
}

/// How a program in the guest is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecStatus {
    /// Whether it has ended.
    pub exited: bool,
    /// Its exit code; absent while it runs, and when a signal ended it.
    pub exit_code: Option<i64>,
    /// Standard output, decoded.
    pub stdout: Vec<u8>,
    /// Standard error, decoded.
    pub stderr: Vec<u8>,
}

/// Why the agent did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    kind: AgentErrorKind,
    message: String,
}

/// The sort of an [`AgentError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentErrorKind {
    /// The machine is stopped, or its agent is not installed, not enabled or not answering.
    NotRunning,
    /// We are not allowed to.
    Denied,
    /// The request did not get there, or its answer did not come back.
    Unreachable,
    /// The agent refused or failed.
    Failed,
}

impl AgentError {
    /// An error with a message that says what to do next.
    pub fn new(kind: AgentErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The sort of the error.
    pub fn kind(&self) -> AgentErrorKind {
        self.kind
    }
}

/// Pushes files into one virtual machine through its guest agent: no SSH, no network into the guest.
///
/// The bytes go in parts of 45 KiB, the most that one request carries, which are joined and hashed in the guest. That is
/// slow (each part is a request of its own), so cap it with [`PushOptions::max_bytes`].
pub struct AgentPusher<A> {
    agent: Arc<A>,
    deadlines: Deadlines,
}

impl<A> Clone for AgentPusher<A> {
    fn clone(&self) -> Self {
        Self { agent: Arc::clone(&self.agent), deadlines: self.deadlines.clone() }
    }
}

impl<A> fmt::Debug for AgentPusher<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentPusher").finish_non_exhaustive()
    }
}

impl<A: AgentChannel + 'static> AgentPusher<A> {
    /// A pusher over this agent. Nothing is sent yet.
    pub fn new(agent: Arc<A>, deadlines: Deadlines) -> Self {
        Self { agent, deadlines }
    }

    /// Asks the guest whether `dest` could be written now. Changes nothing.
    ///
    /// # Errors
    /// [`GuestUnreachable`](crate::PushErrorKind::GuestUnreachable) when the agent does not answer, `DestExists`,
    /// `NoParent`, `DestIsDirectory`, `NotRegular`.
    pub async fn check(&self, dest: &Dest, options: &PushOptions) -> Result<(), PushError> {
        attempt::check_sibling_fits(dest)?;
        agent::check(self, dest, options).await
    }

    /// Brings a source into a file of the guest and verifies it there, as
    /// [`Pusher::push_lxc`](crate::Pusher::push_lxc) does.
    ///
    /// # Errors
    /// As `push_lxc`.
    pub async fn push<S: Source>(
        &self,
        dest: &Dest,
        options: &PushOptions,
        source: S,
        progress: &(dyn Fn(u64, Stage) + Send + Sync),
    ) -> Result<Receipt, PushError> {
        attempt::check_sibling_fits(dest)?;
        over_cap(source.length(), options)?;
        agent::push(self, dest, options, source, progress).await
    }

    /// Opens a file of the guest for reading: its size and hash first, then its bytes.
    ///
    /// # Errors
    /// As [`Pusher::read_lxc`](crate::Pusher::read_lxc).
    pub async fn read(&self, path: &Dest) -> Result<Download, PushError> {
        agent::open(self, path).await
    }

    pub(crate) fn agent(&self) -> &Arc<A> {
        &self.agent
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }
}
