//! What the catalog says about one tool.

use std::future::Future;
use std::pin::Pin;

use authz::{Permit, Tier, ToolRule};
use mcp_wire::tool::SchemaError;
use serde_json::{Map, Value};

use crate::stack::{CallContext, ToolFailure};

/// JSON arguments after validation: every key is known and has the type its schema names.
pub type Arguments = Map<String, Value>;

/// What a handler returns: the structured result, an object, or a failure the model can act on.
pub type HandlerResult = Result<Value, ToolFailure>;

/// A handler in flight.
pub type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

/// A tool's function. The [`Permit`] is the proof that both stages of authorization passed; a handler that mutates
/// cannot be written without taking one.
pub type Handler = fn(CallContext, Permit, Target, Arguments) -> HandlerFuture;

/// What a call addresses, resolved by the server and never taken from the caller.
#[derive(Debug, Clone)]
pub enum Target {
    /// Nothing in a cluster (a change set, a transfer, the caller itself).
    Nothing,
    /// A cluster as a whole.
    Cluster(std::sync::Arc<crate::config::Cluster>),
    /// One guest, where it is now.
    Guest(std::sync::Arc<crate::config::Cluster>, std::sync::Arc<crate::resolve::Guest>),
}

/// How a tool names what it addresses. Decides which arguments exist and what stage 2 resolves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// Nothing in a cluster: stage 2 has nothing to resolve.
    Nothing,
    /// The clusters the token may use: all, or the one that `cluster` names.
    Clusters,
    /// `cluster`; what is shown of it is shown guest by guest, or to nobody's harm.
    Cluster,
    /// `cluster` and `node`; shown guest by guest.
    Node,
    /// `cluster`, `node` and `storage`; shown guest by guest.
    Storage,
    /// A place as a whole, which no filter by guest can narrow: only for tokens that may read every guest.
    Whole(Place),
    /// `cluster` and `upid`: the task's guest decides who may see it.
    Task,
    /// `cluster` and `vmid`, of either kind or of one kind alone.
    Guest(GuestKinds),
    /// `cluster` and the `vmid` of a guest that is to be made: the number alone is decided about.
    NewGuest,
    /// `change_set_id`: the change set's guest decides, in the change service.
    ChangeSet,
    /// `link_id`: the link store decides, by minter.
    Transfer,
}

/// What is addressed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `cluster`.
    Cluster,
    /// `cluster` and `node`.
    Node,
    /// `cluster`, `node` and `storage`.
    Storage,
}

/// Which kinds of guest a tool accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKinds {
    /// QEMU and LXC.
    Any,
    /// QEMU virtual machines only.
    Qemu,
    /// LXC containers only.
    Lxc,
}

/// The four MCP annotations, always all of them: a client assumes the worst about an absent one.
#[derive(Debug, Clone, Copy)]
pub struct Hints {
    /// Does not change its environment.
    pub read_only: bool,
    /// May destroy something.
    pub destructive: bool,
    /// Calling it again with the same arguments changes nothing more.
    pub idempotent: bool,
    /// Reaches systems outside the configured clusters.
    pub open_world: bool,
}

impl Addresses {
    /// Whether a call must name a cluster, where several are configured.
    pub fn needs_cluster(self) -> bool {
        match self {
            Addresses::Cluster
            | Addresses::Node
            | Addresses::Storage
            | Addresses::Whole(_)
            | Addresses::Task
            | Addresses::NewGuest
            | Addresses::Guest(_) => true,
            Addresses::Nothing | Addresses::Clusters | Addresses::ChangeSet | Addresses::Transfer => false,
        }
    }
}

/// One tool: everything that is true of it is said here and derived from here.
pub struct ToolSpec {
    /// Name, tier and the facts authorization needs.
    pub rule: ToolRule,
    /// Human-readable name.
    pub title: &'static str,
    /// What it does, what it needs and what it refuses.
    pub description: &'static str,
    /// What it addresses.
    pub addresses: Addresses,
    /// MCP annotations.
    pub hints: Hints,
    /// The PVE privileges the cluster's token needs for it, in PVE's spelling.
    pub privileges: &'static [&'static str],
    /// JSON schema of the arguments.
    pub input: fn() -> Result<Value, SchemaError>,
    /// JSON schema of the structured result.
    pub output: fn() -> Value,
    /// Whether approving is what it does; listed only for callers who could.
    pub approver_only: bool,
    /// Needs the HTTP transfer routes; not listed where none is served.
    pub needs_transfers: bool,
    /// The function.
    pub handler: Handler,
}

impl std::fmt::Debug for ToolSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSpec")
            .field("name", &self.rule.name)
            .field("tier", &self.rule.tier)
            .finish_non_exhaustive()
    }
}

impl ToolSpec {
    /// The tool's name.
    pub fn name(&self) -> &'static str {
        self.rule.name
    }

    /// Whether a call goes on when its caller leaves. A read has nobody left to answer. A change set keeps a record of its own,
    /// and one that nobody waits for is not begun (CS-31). Every other change runs to its end, because its record is the only one.
    pub fn outlives_its_caller(&self) -> bool {
        self.mutates() && self.addresses != Addresses::ChangeSet
    }

    /// Whether the tool changes anything: such a call needs a durable audit attempt and runs to its end even when the
    /// caller goes away.
    pub fn mutates(&self) -> bool {
        !matches!(self.rule.tier, Tier::Read)
    }
}

/// The hints of a read.
pub(super) const READ: Hints =
    Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
/// The hints of a routine change that can be repeated harmlessly.
pub(super) const ROUTINE: Hints =
    Hints { read_only: false, destructive: false, idempotent: true, open_world: false };
/// The hints of a routine change that makes something new each time.
pub(super) const CREATES: Hints =
    Hints { read_only: false, destructive: false, idempotent: false, open_world: false };
/// The hints of a change that reaches out to the world.
pub(super) const FETCHES: Hints =
    Hints { read_only: false, destructive: false, idempotent: false, open_world: true };
/// The hints of an interruption.
pub(super) const INTERRUPTS: Hints =
    Hints { read_only: false, destructive: true, idempotent: true, open_world: false };
/// The hints of a destructive act.
pub(super) const DESTROYS: Hints =
    Hints { read_only: false, destructive: true, idempotent: false, open_world: false };
