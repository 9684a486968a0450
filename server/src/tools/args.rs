//! Arguments that several tools share, and the parsers that stand between text and a request.

use proxmox_api::IdError;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::stack::ToolFailure;

/// No argument.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArgs {}

/// Arguments of a tool on one cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
}

/// Arguments of a tool on one node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Name of the node.
    pub node: String,
}

/// Arguments of a tool on one storage of a node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The node to ask; shared storages answer alike from each.
    pub node: String,
    /// Name of the storage.
    pub storage: String,
}

/// Arguments of a tool on one guest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
}

/// Arguments of a tool on one task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The task, as a tool or PVE named it: `UPID:node:…:`.
    pub upid: String,
}

/// Parses an argument into what may become part of a request. Nothing else may.
///
/// # Errors
/// What the parser says, with the argument's name.
pub fn id<T>(field: &'static str, text: &str) -> Result<T, ToolFailure>
where
    T: std::str::FromStr<Err = IdError>,
{
    text.parse().map_err(|error: IdError| {
        ToolFailure::new("invalid_argument", format!("`{field}`: {error}")).with("field", field)
    })
}
