//! Reads of nodes.

use proxmox_api::{Error, ErrorKind, Node, NodeName, NodeStatus, Usage};
use serde_json::{Map, Value};

use super::args::{ClusterArgs, NodeArgs, id};
use super::cluster_of;
use super::paging::Paging;
use super::sight::Sight;
use super::table::{Column, Table, integer, number, object, text, texts};
use crate::catalog::{HandlerResult, Target};
use crate::config::Cluster;
use crate::stack::{CallContext, ToolFailure};

const NAME: Column<Node> = text("node", "", |node| Some(node.name.to_string()));
const STATUS_WORD: Column<Node> = text("status", "online, offline or unknown", |node| node.status.clone());

/// `get_nodes`.
pub static NODES: Table<Node> = Table(&[
    NAME,
    STATUS_WORD,
    number("cpu", "share in use, 0 to 1", |node| node.cpu),
    number("maxcpu", "", |node| node.maxcpu),
    integer("mem", "bytes", |node| node.mem),
    integer("maxmem", "", |node| node.maxmem),
    integer("disk", "", |node| node.disk),
    integer("maxdisk", "", |node| node.maxdisk),
    integer("uptime", "seconds", |node| node.uptime),
]);

/// `get_nodes` for a token that may not read every guest: a node's load is the sum of what all its guests do.
static NAMES: Table<Node> = Table(&[NAME, STATUS_WORD]);

/// `get_nodes`.
pub async fn list(ctx: &CallContext, target: &Target, _args: ClusterArgs, paging: &Paging) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let sight = Sight::of(ctx, cluster).await?;
    let listing = cluster.client.nodes().await?;
    let skipped = if sight.is_whole() { listing.skipped } else { 0 };
    let mut nodes: Vec<Node> = listing.into_iter().filter(|node| sight.node(node.name.as_str())).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    if sight.is_whole() { &NODES } else { &NAMES }.page(&nodes, skipped, paging)
}

/// `get_node_status`.
pub static STATUS: Table<(NodeName, NodeStatus)> = Table(&[
    text("node", "", |(name, _)| Some(name.to_string())),
    text("pveversion", "", |(_, status)| status.pveversion.clone()),
    text("kversion", "", |(_, status)| status.kversion.clone()),
    integer("uptime", "seconds", |(_, status)| status.uptime),
    number("cpu", "share in use, 0 to 1", |(_, status)| status.cpu),
    number("wait", "share waiting for disks, 0 to 1", |(_, status)| status.wait),
    integer("cpus", "", |(_, status)| status.cpus),
    text("cpu_model", "", |(_, status)| status.cpu_model.clone()),
    texts("loadavg", "over 1, 5 and 15 minutes", |(_, status)| {
        status.loadavg.iter().map(|load| format!("{load:.2}")).collect()
    }),
    object("memory", "`total`, `used`, `free`, bytes", |(_, status)| usage(status.memory)),
    object("swap", "", |(_, status)| usage(status.swap)),
    object("rootfs", "", |(_, status)| usage(status.rootfs)),
    integer("ksm_shared", "bytes saved by sharing equal pages", |(_, status)| status.ksm_shared),
]);

fn usage(usage: Usage) -> Option<Map<String, Value>> {
    let known = [("total", usage.total), ("used", usage.used), ("free", usage.free)];
    let out: Map<String, Value> =
        known.into_iter().filter_map(|(name, bytes)| Some((name.to_owned(), bytes?.into()))).collect();
    (!out.is_empty()).then_some(out)
}

/// `get_node_status`.
pub async fn status(_ctx: &CallContext, target: &Target, args: NodeArgs) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let node: NodeName = id("node", &args.node)?;
    let status = match cluster.client.node_status(&node).await {
        Ok(status) => status,
        Err(error) => return Err(explained(cluster, &node, error).await),
    };
    Ok(Value::Object(STATUS.record(&(node, status))))
}

/// A failure of a call to a node. Where the cluster has no node of that name, it says which ones there are: PVE's own words are
/// those of a name server. Only for callers who may know all nodes.
pub(crate) async fn explained(cluster: &Cluster, node: &NodeName, error: Error) -> ToolFailure {
    if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NodeUnreachable) {
        return error.into();
    }
    let Ok(listing) = cluster.client.nodes().await else { return error.into() };
    let mut names: Vec<&str> = listing.iter().map(|known| known.name.as_str()).collect();
    names.sort_unstable();
    if names.is_empty() || names.contains(&node.as_str()) {
        return error.into();
    }
    let message = format!(
        "there is no node `{node}` in cluster {}: its nodes are {}; names are compared exactly",
        cluster.name,
        names.join(", ")
    );
    ToolFailure::new("not_found", message).with("field", "node")
}
