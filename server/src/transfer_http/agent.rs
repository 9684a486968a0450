//! The guest agent of one virtual machine, over the cluster's API.

use std::sync::Arc;

use bytes::Bytes;
use guest_push::{AgentChannel, AgentError, AgentErrorKind, ExecStatus};
use proxmox_api::{Effect, Error, ErrorKind, GuestRef};

use crate::config::Cluster;

/// One virtual machine's agent.
#[derive(Debug)]
pub(crate) struct VmAgent {
    cluster: Arc<Cluster>,
    at: GuestRef,
}

impl VmAgent {
    /// The agent of the machine that is at `at` now.
    pub(crate) fn new(cluster: Arc<Cluster>, at: GuestRef) -> Self {
        Self { cluster, at }
    }
}

impl AgentChannel for VmAgent {
    async fn write_file(&self, path: &str, bytes: &[u8]) -> Result<(), AgentError> {
        self.cluster.client.agent_file_write(&self.at, path, bytes).await.map_err(told)
    }

    async fn exec(&self, argv: &[&str]) -> Result<u64, AgentError> {
        self.cluster.client.agent_exec(&self.at, argv, None).await.map_err(told)
    }

    async fn exec_status(&self, pid: u64) -> Result<ExecStatus, AgentError> {
        let status = self.cluster.client.agent_exec_status(&self.at, pid).await.map_err(told)?;
        // Ended by a signal there is no exit code that counts.
        let exit_code = status.exitcode.filter(|_| status.signal.is_none());
        Ok(ExecStatus { exited: status.exited, exit_code, stdout: status.out, stderr: status.err })
    }

    async fn read_file(&self, path: &str, offset: u64, count: u64) -> Result<Bytes, AgentError> {
        let part = u32::try_from(count).unwrap_or(u32::MAX);
        match self.cluster.client.agent_file_read_part(&self.at, path, offset, part).await {
            Ok(file) => Ok(file.content.into()),
            // Before PVE 9 there are no parts: the file comes as a whole, which the agent bounds, and is cut here.
            Err(error) if error.kind() == ErrorKind::Parameter => {
                let whole = self.cluster.client.agent_file_read(&self.at, path).await.map_err(told)?;
                let all = Bytes::from(whole.content);
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
                let to = from.saturating_add(usize::try_from(count).unwrap_or(usize::MAX)).min(all.len());
                Ok(all.slice(from..to))
            }
            Err(error) => Err(told(error)),
        }
    }
}

/// PVE's own words, sorted by what they mean for a transfer.
fn told(error: Error) -> AgentError {
    let text = error.message().trim_end();
    let says = |what: &str| text.contains(what);
    let (kind, remedy) = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::Unauthorized => (
            AgentErrorKind::Denied,
            "; the operator grants the cluster's API token VM.GuestAgent.Unrestricted, VM.GuestAgent.FileRead and VM.GuestAgent.FileWrite",
        ),
        _ if says("No QEMU guest agent configured") => (
            AgentErrorKind::NotRunning,
            "; install qemu-guest-agent in the guest and set `agent: 1`, or the operator configures SSH to it under `ssh.guests`",
        ),
        _ if says("guest agent is not running") || says("is not running") => (
            AgentErrorKind::NotRunning,
            "; start the guest and its qemu-guest-agent, or the operator configures SSH to it under `ssh.guests`",
        ),
        ErrorKind::Unreachable | ErrorKind::NodeUnreachable | ErrorKind::Tls => {
            (AgentErrorKind::Unreachable, "")
        }
        // The command may have been carried out.
        _ if error.effect() == Effect::Unknown || says("got timeout") => (AgentErrorKind::Unreachable, ""),
        _ => (AgentErrorKind::Failed, ""),
    };
    AgentError::new(kind, format!("{text}{remedy}"))
}
