//! Reads of high availability.

use super::read::{Read, list, list_of, record};
use super::schema::schema_of;
use super::spec::{Addresses, ToolSpec};
use crate::tools::args::ClusterArgs;
use crate::tools::ha;

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "list_ha_rules",
        title: "HA rules",
        description: "Lists the HA rules of one cluster that are about guests this token may see: where guests must or should run, \
                      together or apart. Sorted by name. Needs PVE 9.",
        addresses: Addresses::Cluster,
        privileges: &["Sys.Audit"],
        input: list_of::<ClusterArgs>,
        output: || ha::RULES.list_schema(),
        run: list!(ha::list),
    }
    .tool(),
    Read {
        name: "get_ha_rule",
        title: "HA rule",
        description: "One HA rule. One that is about no guest this token may see is refused like one that is not there. Needs PVE 9.",
        addresses: Addresses::Cluster,
        privileges: &["Sys.Audit"],
        input: schema_of::<ha::RuleArgs>,
        output: || ha::RULES.record_schema(),
        run: record!(ha::rule),
    }
    .tool(),
];
