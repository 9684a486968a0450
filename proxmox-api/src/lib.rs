#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod cluster;
mod error;
mod guest;
mod ha;
mod ids;
mod storage;
mod task;
mod tls;
mod wire;

pub use client::{ApiToken, Client, ClientBuilder, Endpoint, Timeouts};
pub use cluster::{ClusterNode, ClusterStatus, Node, Resource, ResourceKind, Version};
pub use error::{Effect, Error, ErrorKind};
pub use guest::{
    DestroyOptions, Disk, DiskSource, GuestConfig, GuestKind, GuestRef, GuestStatus, Net, RunState, Snapshot,
    Snapshots,
};
pub use ha::HaResource;
pub use ids::{Digest, IdError, NodeName, SnapName, StorageId, Tags, Upid, Vmid, Volid};
/// The type [`ApiToken::new`] takes a secret in.
pub use secrecy::SecretString;
pub use storage::{ContentFilter, StorageItem, StorageStatus};
pub use task::{LogLine, Task, TaskExit, TaskFilter, TaskSource, TaskStatus, WaitPolicy, Waited};
pub use tls::{Fingerprint, Trust};
pub use wire::{Field, Listing};
