//! Reads of nodes.

use super::read::{Read, list, list_of};
use super::spec::{Addresses, ToolSpec};
use crate::tools::args::ClusterArgs;
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
];
