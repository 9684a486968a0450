//! Reads of firewalls: the cluster's, a node's, a guest's.

use super::read::{Read, list, list_of, record};
use super::schema::schema_of;
use super::spec::{Addresses, GuestKinds, Place, ToolSpec};
use crate::tools::args::{ClusterArgs, GuestArgs, NodeArgs};
use crate::tools::firewall;

pub(super) static TOOLS: &[ToolSpec] = &[
    Read {
        name: "get_cluster_firewall_rules",
        title: "Cluster firewall rules",
        description: "Rules of the cluster's firewall, in the order they apply. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: list_of::<ClusterArgs>,
        output: || firewall::RULES.list_schema(),
        run: list!(firewall::cluster_rules),
    }
    .tool(),
    Read {
        name: "get_cluster_firewall_options",
        title: "Cluster firewall options",
        description: "Whether the cluster's firewall is on, its policies and other options. While it is off no firewall of a guest \
                      has any effect. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: schema_of::<ClusterArgs>,
        output: || firewall::OPTIONS.record_schema(),
        run: record!(firewall::cluster_options),
    }
    .tool(),
    Read {
        name: "list_firewall_security_groups",
        title: "Security groups",
        description: "Lists the security groups of the cluster's firewall. Sorted by name. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: list_of::<ClusterArgs>,
        output: || firewall::GROUPS.list_schema(),
        run: list!(firewall::groups),
    }
    .tool(),
    Read {
        name: "get_firewall_security_group_rules",
        title: "Security group rules",
        description: "Rules of one security group, in the order they apply. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: list_of::<firewall::GroupArgs>,
        output: || firewall::RULES.list_schema(),
        run: list!(firewall::group_rules),
    }
    .tool(),
    Read {
        name: "list_firewall_ipsets",
        title: "Cluster IP sets",
        description: "Lists the IP sets of the cluster's firewall. Sorted by name. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: list_of::<ClusterArgs>,
        output: || firewall::IPSETS.list_schema(),
        run: list!(firewall::cluster_ipsets),
    }
    .tool(),
    Read {
        name: "get_firewall_ipset_entries",
        title: "Cluster IP set entries",
        description: "Members of one IP set of the cluster's firewall. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: list_of::<firewall::SetArgs>,
        output: || firewall::ENTRIES.list_schema(),
        run: list!(firewall::cluster_entries),
    }
    .tool(),
    Read {
        name: "list_firewall_aliases",
        title: "Cluster firewall aliases",
        description: "Lists the address aliases of the cluster's firewall. Sorted by name. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Cluster),
        privileges: &["Sys.Audit"],
        input: list_of::<ClusterArgs>,
        output: || firewall::ALIASES.list_schema(),
        run: list!(firewall::cluster_aliases),
    }
    .tool(),
    Read {
        name: "get_node_firewall_rules",
        title: "Node firewall rules",
        description: "Rules of one node's firewall, in the order they apply. Needs a token that may read every guest.",
        addresses: Addresses::Whole(Place::Node),
        privileges: &["Sys.Audit"],
        input: list_of::<NodeArgs>,
        output: || firewall::RULES.list_schema(),
        run: list!(firewall::node_rules),
    }
    .tool(),
    Read {
        name: "get_node_firewall_options",
        title: "Node firewall options",
        description: "Whether one node's firewall is on, and its options. A node takes its policies from the cluster. Needs a token \
                      that may read every guest.",
        addresses: Addresses::Whole(Place::Node),
        privileges: &["Sys.Audit"],
        input: schema_of::<NodeArgs>,
        output: || firewall::OPTIONS.record_schema(),
        run: record!(firewall::node_options),
    }
    .tool(),
    Read {
        name: "get_guest_firewall_rules",
        title: "Guest firewall rules",
        description: "Rules of one guest's firewall, in the order they apply.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: list_of::<GuestArgs>,
        output: || firewall::RULES.list_schema(),
        run: list!(firewall::guest_rules),
    }
    .tool(),
    Read {
        name: "get_guest_firewall_options",
        title: "Guest firewall options",
        description: "Whether one guest's firewall is on, its policies and other options. It has effect only while the cluster's \
                      firewall is on as well.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: schema_of::<GuestArgs>,
        output: || firewall::OPTIONS.record_schema(),
        run: record!(firewall::guest_options),
    }
    .tool(),
    Read {
        name: "list_guest_firewall_aliases",
        title: "Guest firewall aliases",
        description: "Lists the address aliases of one guest's firewall. Sorted by name.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: list_of::<GuestArgs>,
        output: || firewall::ALIASES.list_schema(),
        run: list!(firewall::guest_aliases),
    }
    .tool(),
    Read {
        name: "list_guest_firewall_ipsets",
        title: "Guest IP sets",
        description: "Lists the IP sets of one guest's firewall. Sorted by name.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: list_of::<GuestArgs>,
        output: || firewall::IPSETS.list_schema(),
        run: list!(firewall::guest_ipsets),
    }
    .tool(),
    Read {
        name: "get_guest_firewall_ipset_entries",
        title: "Guest IP set entries",
        description: "Members of one IP set of one guest's firewall.",
        addresses: Addresses::Guest(GuestKinds::Any),
        privileges: &["VM.Audit"],
        input: list_of::<firewall::GuestSetArgs>,
        output: || firewall::ENTRIES.list_schema(),
        run: list!(firewall::guest_entries),
    }
    .tool(),
];
