#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod client;
mod cluster;
mod error;
mod firewall;
mod guest;
mod ha;
mod ids;
mod node;
mod pool;
mod storage;
mod task;
mod tls;
mod wire;

pub use access::Permissions;
pub use client::{ApiToken, Client, ClientBuilder, Endpoint, Timeouts};
pub use cluster::{ClusterNode, ClusterStatus, Resource, ResourceKind, Version};
pub use error::{Effect, Error, ErrorKind};
pub use firewall::{
    FirewallAlias, FirewallGroup, FirewallOptions, FirewallRef, FirewallRule, FirewallScope, IpSet,
    IpSetEntry,
};
pub use guest::{
    DestroyOptions, Disk, DiskSource, GuestConfig, GuestKind, GuestRef, GuestStatus, Interface,
    InterfaceAddress, Net, PendingDelete, PendingKey, RunState, Snapshot, Snapshots,
};
pub use ha::{HaResource, HaRule, HaStatus};
pub use ids::{
    AliasName, AliasScope, Cidr, Digest, HaSid, IdError, IpSetMember, IpSetName, NodeName, PoolId, RuleName,
    SecurityGroup, SnapName, StorageId, Tags, Upid, Vmid, Volid,
};
pub use node::{Node, NodeConfig, NodeGuest, NodeStatus, Usage};
pub use pool::{Pool, PoolMembers};
/// The type [`ApiToken::new`] takes a secret in.
pub use secrecy::SecretString;
pub use storage::{ContentFilter, StorageItem, StorageStatus, Volume};
pub use task::{
    LogLine, Task, TaskExit, TaskFilter, TaskOutcome, TaskSource, TaskStatus, WaitPolicy, Waited,
};
pub use tls::{Fingerprint, Trust};
pub use wire::{Field, JsonMap, Listing};
