//! Simulated Proxmox VE clusters and nodes: the HTTPS API with tasks, and per node SSH with SFTP and `pct`.
//!
//! A [`Lab`] is made of a [`LabConfig`], listens on 127.0.0.1 and lives until it is dropped. Everything a
//! client sees follows PVE 9.2: parameter checks, error texts, permissions, UPIDs, task states. What PVE would
//! do slowly or rarely can be asked for: task durations and results, faults of the API ([`Fault`]) and of SSH
//! ([`SshFaults`]), guests that migrate, vanish or are recreated.
//!
//! The lab never starts a program of the host and touches no file outside its own temporary folder.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let lab = lab::Lab::start(lab::LabConfig::two_clusters()?).await?;
//! let alpha = lab.cluster("alpha");
//! println!("{} trusts {}", alpha.endpoint(), alpha.ca_pem());
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod api;
mod cluster;
mod config;
mod error;
pub mod facts;
mod fault;
mod handle;
mod node;
mod output;
mod recorded;
mod state;
mod tls;

pub use config::{
    AclConfig, AliasConfig, ClusterConfig, FirewallConfig, GuestConfig, GuestKind, HaConfig, HaRuleConfig,
    HistoryConfig, IpSetConfig, IpSetEntry, LabConfig, NodeConfig, PoolConfig, SecurityGroupConfig,
    SnapshotConfig, StorageConfig, TokenConfig, VolumeConfig,
};
pub use error::LabError;
pub use fault::{Action, Fault, FaultHandle, Matcher, Nth};
pub use handle::{Lab, LabCluster, LabNode};
pub use node::fault::{PushFault, SshFaults};
pub use recorded::Recorded;
pub use state::task::TaskExit;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
