//! Reads of nodes.

use super::read::{Read, list, list_of, record};
use super::schema::schema_of;
use super::spec::{Addresses, Place, ToolSpec};
use crate::tools::args::{ClusterArgs, NodeArgs};
use crate::tools::nodes;

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "get_nodes",
        title: "Cluster nodes",
        description: "Lists the nodes of one cluster with status, CPU, memory and uptime. An offline node is listed with status \
                      `offline` and without load. A token that may not read every guest sees the nodes its guests are on, by name \
                      and status alone: load is the sum of what all guests do.",
        addresses: Addresses::Cluster,
        privileges: &["Sys.Audit"],
        input: list_of::<ClusterArgs>,
        output: || nodes::NODES.list_schema(),
        run: list!(nodes::list),
    }
    .tool(),
    Read {
        name: "get_node_status",
        title: "Node status",
        description: "One node in detail: PVE and kernel version, uptime, load, CPU, memory, swap, root file system. Needs a token \
                      that may read every guest.",
        addresses: Addresses::Whole(Place::Node),
        privileges: &["Sys.Audit"],
        input: schema_of::<NodeArgs>,
        output: || nodes::STATUS.record_schema(),
        run: record!(nodes::status),
    }
    .tool(),
];
