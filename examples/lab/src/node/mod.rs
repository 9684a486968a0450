//! The SSH side of a node: a login with SFTP, and exec for the closed set of commands that carry files into a
//! container.

pub(crate) mod agent;
pub(crate) mod exec;
pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod pct;
pub(crate) mod scripts;
mod sftp;
pub(crate) mod ssh;
mod words;

use std::sync::Arc;

use russh::keys::PublicKey;

use crate::cluster::Cluster;
use crate::node::fault::SshFaults;

/// One node as its SSH listener sees it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) name: String,
    pub(crate) faults: SshFaults,
    /// The key that may log in.
    pub(crate) client_key: PublicKey,
}
