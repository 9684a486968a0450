//! Reads of clusters as a whole.

use super::read::{Read, list, list_of, record};
use super::schema::schema_of;
use super::spec::{Addresses, Place, ToolSpec};
use crate::tools::args::{ClusterArgs, NoArgs};
use crate::tools::clusters;

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "list_clusters",
        title: "Clusters",
        description: "Lists the clusters this token may use, each with whether it answers, its PVE version and how many of its guests \
                      this token sees; for a token that may read every guest also quorum and nodes. One that does not answer is \
                      listed with the reason.",
        addresses: Addresses::Clusters,
        privileges: &["Sys.Audit", "VM.Audit"],
        input: list_of::<NoArgs>,
        output: || clusters::CLUSTERS.list_schema(),
        run: list!(clusters::list),
    }
    .tool(),
    Read {
        name: "get_cluster_status",
        title: "Cluster status",
        description: "Quorum and members of one cluster. Without quorum nothing in the cluster can be changed. Needs a token that may \
                      read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: schema_of::<ClusterArgs>,
        output: || clusters::STATUS.record_schema(),
        run: record!(clusters::status),
    }
    .tool(),
];
