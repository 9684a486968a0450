//! What a lab is made of: clusters, nodes, guests, storages, tokens and their rights, as one JSON file.
//!
//! Guests are written as PVE writes them: a map of the options of `/etc/pve/…/<vmid>.conf`, and one such map
//! per snapshot. Unknown keys are refused, so that a typo does not silently make another lab.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::LabError;

/// The whole lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabConfig {
    /// The clusters by name (`alpha`, `beta`, …).
    pub clusters: BTreeMap<String, ClusterConfig>,
}

/// One simulated cluster, or a standalone host when it has one node and `standalone` is set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// TCP port of the HTTPS listener on 127.0.0.1; 0 lets the system choose.
    #[serde(default)]
    pub port: u16,
    /// A host that is in no cluster: `/cluster/status` then has only the node.
    #[serde(default)]
    pub standalone: bool,
    /// How long a worker runs before its effect happens, in milliseconds.
    #[serde(default = "default_task_ms")]
    pub task_ms: u64,
    /// How long a 401 is held back, in milliseconds. PVE waits 3000; the lab does not unless told.
    #[serde(default)]
    pub auth_delay_ms: u64,
    /// The nodes. The first online one is the node that the listener contacts.
    pub nodes: Vec<NodeConfig>,
    /// The guests.
    #[serde(default)]
    pub guests: Vec<GuestConfig>,
    /// The storages.
    #[serde(default)]
    pub storages: Vec<StorageConfig>,
    /// The pools.
    #[serde(default)]
    pub pools: Vec<PoolConfig>,
    /// The HA resources.
    #[serde(default)]
    pub ha: Vec<HaConfig>,
    /// The HA rules.
    #[serde(default)]
    pub ha_rules: Vec<HaRuleConfig>,
    /// The firewall of the cluster.
    #[serde(default)]
    pub firewall: FirewallConfig,
    /// The API tokens.
    pub tokens: Vec<TokenConfig>,
    /// Rights, in the form of `/etc/pve/user.cfg`.
    #[serde(default)]
    pub acl: Vec<AclConfig>,
    /// Roles beyond the built-in ones: name to privileges.
    #[serde(default)]
    pub roles: BTreeMap<String, Vec<String>>,
    /// Finished tasks of the past.
    #[serde(default)]
    pub history: Vec<HistoryConfig>,
}

/// One node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Node name, as in `/nodes/{node}`.
    pub name: String,
    /// Whether it is up. An offline node answers 595 through the contacted one and has no SSH listener.
    #[serde(default = "yes")]
    pub online: bool,
    /// Address in `/cluster/status`.
    #[serde(default = "loopback")]
    pub ip: String,
    /// TCP port of its SSH listener on 127.0.0.1; 0 lets the system choose.
    #[serde(default)]
    pub ssh_port: u16,
    /// Reason phrase of the 595 when it is offline.
    #[serde(default = "refused")]
    pub offline_reason: String,
    /// Its firewall: options and rules.
    #[serde(default)]
    pub firewall: FirewallConfig,
}

/// Virtual machine or container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// A virtual machine (`/nodes/{node}/qemu`).
    Qemu,
    /// A container (`/nodes/{node}/lxc`).
    Lxc,
}

impl GuestKind {
    /// The word in API paths: `qemu` or `lxc`.
    pub fn as_str(self) -> &'static str {
        match self {
            GuestKind::Qemu => "qemu",
            GuestKind::Lxc => "lxc",
        }
    }

    /// The folder of its config files under `/etc/pve/nodes/{node}`.
    pub(crate) fn conf_dir(self) -> &'static str {
        match self {
            GuestKind::Qemu => "qemu-server",
            GuestKind::Lxc => "lxc",
        }
    }

    /// The prefix of its worker types: `qm` or `vz`.
    pub(crate) fn worker(self) -> &'static str {
        match self {
            GuestKind::Qemu => "qm",
            GuestKind::Lxc => "vz",
        }
    }

    /// The word in its error texts: `VM` or `CT`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            GuestKind::Qemu => "VM",
            GuestKind::Lxc => "CT",
        }
    }
}

/// One guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Its number.
    pub vmid: u32,
    /// VM or container.
    pub kind: GuestKind,
    /// The node it is on.
    pub node: String,
    /// Whether it runs.
    #[serde(default)]
    pub running: bool,
    /// It never reacts to a shutdown request, so that the task runs into its timeout.
    #[serde(default)]
    pub ignores_shutdown: bool,
    /// The options of its config file.
    pub config: BTreeMap<String, String>,
    /// Its snapshots, oldest first.
    #[serde(default)]
    pub snapshots: Vec<SnapshotConfig>,
    /// Whether the guest agent runs in it while it runs. (Whether PVE looks for one tells the option `agent`.)
    #[serde(default = "yes")]
    pub agent_runs: bool,
    /// Its firewall: options, rules, aliases and IP sets.
    #[serde(default)]
    pub firewall: FirewallConfig,
    /// Files that exist in a guest at the start: absolute path to content. A path that ends in `/` is a
    /// folder.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// One snapshot: the section `[name]` of a config file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotConfig {
    /// Its name.
    pub name: String,
    /// Epoch seconds of when it was taken.
    pub snaptime: i64,
    /// The snapshot before it.
    #[serde(default)]
    pub parent: Option<String>,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// Whether it has the RAM too (VMs only).
    #[serde(default)]
    pub vmstate: bool,
    /// The options of the guest at that time.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// One storage of `/etc/pve/storage.cfg`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageConfig {
    /// Storage id.
    pub id: String,
    /// Plugin type: `dir`, `lvmthin`, `nfs`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Content types.
    pub content: Vec<String>,
    /// The same storage on every node.
    #[serde(default)]
    pub shared: bool,
    /// Whether it can be reached.
    #[serde(default = "yes")]
    pub active: bool,
    /// Size in bytes.
    #[serde(default = "default_total")]
    pub total: u64,
    /// Used bytes.
    #[serde(default = "default_used")]
    pub used: u64,
    /// The nodes that have it; empty for all.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Its volumes besides the disks of guests, which follow from the guests.
    #[serde(default)]
    pub volumes: Vec<VolumeConfig>,
}

/// One ISO image, template or backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Volume id, `storage:type/name`.
    pub volid: String,
    /// Content type.
    pub content: String,
    /// Format, as PVE names it.
    pub format: String,
    /// Size in bytes.
    pub size: u64,
    /// Epoch seconds of its creation.
    pub ctime: i64,
    /// The guest it belongs to.
    #[serde(default)]
    pub vmid: Option<u32>,
    /// `qemu` or `lxc` for a backup.
    #[serde(default)]
    pub subtype: Option<String>,
    /// Notes of a backup.
    #[serde(default)]
    pub notes: Option<String>,
    /// A protected backup.
    #[serde(default)]
    pub protected: bool,
    /// The node that has it, for a storage that is not shared; absent for the first node.
    #[serde(default)]
    pub node: Option<String>,
    /// The options of the guest in a backup; absent for those that the guest has at the start.
    #[serde(default)]
    pub config: Option<BTreeMap<String, String>>,
}

/// One pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Pool id.
    pub id: String,
    /// Its comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// Guests in it.
    #[serde(default)]
    pub vms: Vec<u32>,
    /// Storages in it.
    #[serde(default)]
    pub storage: Vec<String>,
}

/// One HA resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaConfig {
    /// `vm:100` or `ct:200`.
    pub sid: String,
    /// `started`, `stopped`, `disabled` or `ignored`.
    pub state: String,
    /// The other options: `comment`, `max_restart`, `max_relocate`, `failback`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl HaConfig {
    /// A resource without further options.
    pub fn new(sid: &str, state: &str) -> HaConfig {
        HaConfig { sid: sid.to_owned(), state: state.to_owned(), options: BTreeMap::new() }
    }
}

/// One HA rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaRuleConfig {
    /// Its name.
    pub rule: String,
    /// `node-affinity` or `resource-affinity`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The other options: `resources`, `nodes`, `strict`, `affinity`, `comment`, `disable`.
    pub options: BTreeMap<String, String>,
}

/// The firewall of the cluster, of a node or of a guest, as its `.fw` file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirewallConfig {
    /// The section `[OPTIONS]`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// The section `[RULES]`, in order; each rule by the names of the API (`type`, `action`, `enable`, …).
    #[serde(default)]
    pub rules: Vec<BTreeMap<String, String>>,
    /// The section `[ALIASES]`.
    #[serde(default)]
    pub aliases: Vec<AliasConfig>,
    /// The sections `[IPSET …]`.
    #[serde(default)]
    pub ipsets: Vec<IpSetConfig>,
    /// The sections `[group …]`; the cluster's only.
    #[serde(default)]
    pub groups: Vec<SecurityGroupConfig>,
}

/// A name for an address or a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AliasConfig {
    /// Its name.
    pub name: String,
    /// Address or network.
    pub cidr: String,
    /// A comment.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A set of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpSetConfig {
    /// Its name.
    pub name: String,
    /// A comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// What is in it.
    #[serde(default)]
    pub entries: Vec<IpSetEntry>,
}

/// One entry of a set of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpSetEntry {
    /// Address, network or alias.
    pub cidr: String,
    /// An exception from the set.
    #[serde(default)]
    pub nomatch: bool,
    /// A comment.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A security group: rules with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecurityGroupConfig {
    /// Its name.
    pub group: String,
    /// A comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// Its rules, in order.
    #[serde(default)]
    pub rules: Vec<BTreeMap<String, String>>,
}

/// One API token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// `user@realm!tokenid`.
    pub id: String,
    /// Its secret. Absent: a random one is made at start.
    #[serde(default)]
    pub secret: Option<String>,
    /// Privilege separation: the token has only what both it and its user have.
    #[serde(default)]
    pub privsep: bool,
}

/// Without the secret.
impl std::fmt::Debug for TokenConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenConfig")
            .field("id", &self.id)
            .field("privsep", &self.privsep)
            .finish_non_exhaustive()
    }
}

/// One `acl:` line of `user.cfg`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AclConfig {
    /// Object path, `/`, `/vms/100`, `/storage/local`, …
    pub path: String,
    /// User or token id.
    pub who: String,
    /// Role name.
    pub role: String,
    /// Whether it holds below the path too.
    #[serde(default = "yes")]
    pub propagate: bool,
}

/// One finished task of the past.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryConfig {
    /// The node it ran on.
    pub node: String,
    /// Worker type, `qmstart`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Worker id, mostly a VMID.
    #[serde(default)]
    pub id: String,
    /// Who started it, `root@pam` or `user@realm!token`.
    pub user: String,
    /// How many seconds before the start of the lab it began.
    pub ago: i64,
    /// Its end: `OK`, `WARNINGS: 1` or an error text.
    pub status: String,
}

impl LabConfig {
    /// The lab that comes with this crate: `alpha` with three nodes, of which `pve3` is offline, and a dozen
    /// guests, and `beta` with one node. Also the best example of the file format.
    ///
    /// # Errors
    /// When the built-in file does not parse, which the tests of this crate rule out.
    pub fn two_clusters() -> Result<LabConfig, LabError> {
        LabConfig::from_json(include_str!("../data/two-clusters.json"))
    }

    /// Parses the text of a lab file.
    ///
    /// # Errors
    /// [`LabError::Config`] with the line of the mistake.
    pub fn from_json(text: &str) -> Result<LabConfig, LabError> {
        serde_json::from_str(text).map_err(|error| LabError::Config(error.to_string()))
    }

    /// Reads a lab file.
    ///
    /// # Errors
    /// [`LabError::Io`] when it cannot be read, [`LabError::Config`] when it does not parse.
    pub fn from_file(path: impl AsRef<Path>) -> Result<LabConfig, LabError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(LabError::io("read the lab file", path))?;
        LabConfig::from_json(&text)
    }
}

fn yes() -> bool {
    true
}

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

fn refused() -> String {
    "Connection refused".to_owned()
}

fn default_task_ms() -> u64 {
    100
}

fn default_total() -> u64 {
    256 << 30
}

fn default_used() -> u64 {
    24 << 30
}
