#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod agent;
mod client;
mod cluster;
mod error;
mod firewall;
mod guest;
mod ha;
mod ids;
mod inventory;
mod node;
mod pool;
mod storage;
mod task;
mod tls;
mod wire;

pub use access::Permissions;
pub use agent::{AgentFile, ExecStatus, MAX_WRITE as AGENT_MAX_WRITE};
pub use client::{ApiToken, Client, ClientBuilder, Endpoint, Rehearsal, RehearsedRequest, Timeouts};
pub use cluster::{ClusterNode, ClusterStatus, Version};
pub use error::{Effect, Error, ErrorKind};
pub use firewall::{
    FirewallAlias, FirewallGroup, FirewallOption, FirewallOptions, FirewallOptionsUpdate, FirewallRef,
    FirewallRule, FirewallScope, IpSet, IpSetEntry, LogLevel, NewRule, Policy, RuleAction,
};
pub use guest::{
    BackupMode, BackupOptions, CloneMode, CloneOptions, Compression, ConfigUpdate, DestroyOptions, Disk,
    DiskFormat, DiskSource, GuestConfig, GuestKind, GuestRef, GuestStatus, Interface, InterfaceAddress,
    LocalDisk, MigrateOptions, MigratePreconditions, Net, NewDisk, NewLxc, NewNet, NewQemu, NewSnapshot,
    PendingDelete, PendingKey, Resize, RestoreOptions, RunState, ShutdownOptions, Snapshot, Snapshots,
    StopOptions, Suspend, TargetStorage,
};
pub use ha::{HaAffinity, HaMove, HaResource, HaRule, HaRuleKind, HaSettings, HaState, HaStatus, NewHaRule};
pub use ids::{
    AliasName, AliasScope, Cidr, Digest, DiskSize, DiskSlot, DnsName, HaSid, IdError, IpSetMember, IpSetName,
    NodeName, PoolId, RuleName, SecurityGroup, SnapName, StorageId, Tags, Upid, Vmid, Volid,
};
pub use inventory::{Contradiction, Entry, Inventory, Lookup, Named, Resource, ResourceKind};
pub use node::{Node, NodeConfig, NodeGuest, NodeStatus, Usage};
pub use pool::{Pool, PoolChange, PoolMembers};
/// The type [`ApiToken::new`] takes a secret in.
pub use secrecy::SecretString;
pub use storage::{
    Checksum, ChecksumAlgorithm, ContentFilter, Download, FileContent, FileName, StorageItem, StorageStatus,
    Upload, UrlMetadata, Volume, VolumeUpdate,
};
pub use task::{
    LogLine, Task, TaskExit, TaskFilter, TaskOutcome, TaskSource, TaskStatus, WaitPolicy, Waited,
};
pub use tls::{Fingerprint, Presented, Trust, presented};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use wire::fuzzing;
pub use wire::{Field, JsonMap, Listing};
