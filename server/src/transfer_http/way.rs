//! Which way leads into a guest, and the same questions asked of each.

use std::sync::Arc;

use guest_push::{
    AgentPusher, Deadlines, Dest, Download, LxcRoute, PushError, PushOptions, Pusher, Receipt, Source,
    SshTarget, Stage,
};

use super::agent::VmAgent;
use crate::config::{Cluster, TransferPolicy};
use crate::resolve::Guest;

/// A way into one guest.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// Through the SSH server of the container's node.
    Container(Pusher, u32, LxcRoute),
    /// Through the virtual machine's own SSH server.
    Machine(Pusher),
    /// Through the virtual machine's guest agent.
    Agent(AgentPusher<VmAgent>),
}

/// There is no way; a code and what the operator does about it.
#[derive(Debug)]
pub(crate) struct NoWay(pub(crate) String);

impl Way {
    /// The way into this guest, as configured now. Nothing is connected to.
    pub(crate) fn to(cluster: &Arc<Cluster>, guest: &Guest, policy: &TransferPolicy) -> Result<Self, NoWay> {
        match guest.facts.kind {
            authz::GuestKind::Lxc => {
                let ssh = cluster.ssh.as_ref();
                let found = ssh.and_then(|ssh| Some((ssh, ssh.target(guest.node())?)));
                let (ssh, target) = found.ok_or_else(|| {
                    NoWay(format!(
                        "no SSH access to node {} is configured; the operator adds it under `ssh` of cluster {} in clusters.json",
                        guest.node(),
                        cluster.name
                    ))
                })?;
                let pusher =
                    Pusher::new(target, ssh.identity.clone(), ssh.known_hosts.clone(), Deadlines::default());
                Ok(Self::Container(pusher, guest.vmid(), policy.lxc_route))
            }
            authz::GuestKind::Qemu => {
                let own = cluster.ssh.as_ref().and_then(|ssh| {
                    let access = ssh.guests.iter().find(|access| access.selector.matches(&guest.facts))?;
                    let mut target = SshTarget::new(access.host.clone());
                    target.user.clone_from(&access.user);
                    target.port = access.port;
                    Some(Pusher::new(
                        target,
                        ssh.identity.clone(),
                        ssh.known_hosts.clone(),
                        Deadlines::default(),
                    ))
                });
                Ok(match own {
                    Some(pusher) => Self::Machine(pusher),
                    None => {
                        let agent = VmAgent::new(cluster.clone(), guest.at.clone());
                        Self::Agent(AgentPusher::new(Arc::new(agent), Deadlines::default()))
                    }
                })
            }
        }
    }

    /// The largest file that goes this way, in bytes.
    pub(crate) fn largest(&self, policy: &TransferPolicy) -> u64 {
        match self {
            Self::Agent(_) => policy.agent_max_bytes.min(policy.max_bytes),
            Self::Container(..) | Self::Machine(_) => policy.max_bytes,
        }
    }

    /// Why a larger file does not go, for a refusal.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Agent(_) => {
                "; the guest agent takes small files only, the operator can configure SSH to this guest under `ssh.guests`"
            }
            Self::Container(..) | Self::Machine(_) => "",
        }
    }

    /// Whether the far side is there, known to us, lets us in, and could hold a file of this name.
    pub(crate) async fn reach(&self, dest: &Dest) -> Result<(), PushError> {
        // What is at the destination now may be gone when the bytes come; that is asked again then.
        let lenient = PushOptions { overwrite: true, mkdir: true, ..PushOptions::default() };
        match self {
            Self::Container(pusher, _, LxcRoute::SftpPctPush) => pusher.check().await,
            Self::Container(pusher, _, LxcRoute::Stream) => pusher.reach().await,
            Self::Machine(pusher) => pusher.reach().await,
            Self::Agent(pusher) => pusher.check(dest, &lenient).await,
        }
    }

    /// Whether the guest could take exactly this file now. Changes nothing.
    pub(crate) async fn check(&self, dest: &Dest, options: &PushOptions) -> Result<(), PushError> {
        match self {
            Self::Container(pusher, vmid, route) => {
                let options = PushOptions { route: *route, ..options.clone() };
                pusher.check_lxc(*vmid, dest, &options).await
            }
            Self::Machine(pusher) => pusher.check_machine(dest, options).await,
            Self::Agent(pusher) => pusher.check(dest, options).await,
        }
    }

    /// Brings a source into the guest.
    pub(crate) async fn push<S: Source>(
        &self,
        dest: &Dest,
        options: &PushOptions,
        source: S,
        progress: &(dyn Fn(u64, Stage) + Send + Sync),
    ) -> Result<Receipt, PushError> {
        match self {
            Self::Container(pusher, vmid, route) => {
                let options = PushOptions { route: *route, ..options.clone() };
                pusher.push_lxc(*vmid, dest, &options, source, progress).await
            }
            Self::Machine(pusher) => pusher.push_machine(dest, options, source, progress).await,
            Self::Agent(pusher) => pusher.push(dest, options, source, progress).await,
        }
    }

    /// Opens a file of the guest.
    pub(crate) async fn read(&self, path: &Dest) -> Result<Download, PushError> {
        match self {
            Self::Container(pusher, vmid, _) => pusher.read_lxc(*vmid, path).await,
            Self::Machine(pusher) => pusher.read_machine(path).await,
            Self::Agent(pusher) => pusher.read(path).await,
        }
    }
}
