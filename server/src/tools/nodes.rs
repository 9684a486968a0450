//! Reads of nodes.

use proxmox_api::Node;

use super::args::ClusterArgs;
use super::cluster_of;
use super::paging::Paging;
use super::sight::Sight;
use super::table::{Column, Table, integer, number, text};
use crate::catalog::{HandlerResult, Target};
use crate::stack::CallContext;

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
