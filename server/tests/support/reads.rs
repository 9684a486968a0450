//! A call of every read tool on the two-cluster lab.

use serde_json::{Value, json};

use super::Client;

/// Every read with arguments it can answer, as a token that may read everything. Plans the stopped guest `planned`, of its cluster, away for the
/// read that needs a change set.
pub async fn every_read(
    reader: &Client,
    planner: &Client,
    planned: (&str, u32),
) -> Vec<(&'static str, Value)> {
    let tasks =
        reader.call("list_tasks", json!({"cluster": "alpha", "node": "pve1", "vmid": 100})).await.unwrap();
    let upid = tasks["items"][0]["upid"].clone();
    let plan = json!({"cluster": planned.0, "vmid": planned.1, "op": "destroy_guest"});
    let plan = planner.call("plan_proxmox_destroy", plan).await.unwrap();
    let cluster = || json!({"cluster": "alpha"});
    let node = || json!({"cluster": "alpha", "node": "pve1"});
    let storage = |storage: &str| json!({"cluster": "alpha", "node": "pve1", "storage": storage});
    let guest = |vmid: u32| json!({"cluster": "alpha", "vmid": vmid});
    let task = || json!({"cluster": "alpha", "upid": upid});
    vec![
        ("whoami", json!({})),
        ("list_clusters", json!({})),
        ("get_cluster_status", cluster()),
        ("get_nodes", cluster()),
        ("get_node_status", node()),
        ("get_vms", cluster()),
        ("get_containers", cluster()),
        ("find_guests", json!({"tag": "prod"})),
        ("get_guest_status", guest(200)),
        ("get_vm_config", guest(100)),
        ("get_container_config", guest(200)),
        ("get_vm_ip", guest(100)),
        ("get_container_ip", guest(200)),
        ("list_snapshots", guest(100)),
        ("get_storage", node()),
        ("list_backups", storage("backup")),
        ("list_isos", storage("local")),
        ("list_templates", storage("local")),
        ("list_tasks", node()),
        ("get_task_status", task()),
        ("get_task_log", task()),
        ("get_cluster_firewall_rules", cluster()),
        ("get_cluster_firewall_options", cluster()),
        ("list_firewall_security_groups", cluster()),
        ("get_firewall_security_group_rules", json!({"cluster": "alpha", "group": "web"})),
        ("list_firewall_ipsets", cluster()),
        ("get_firewall_ipset_entries", json!({"cluster": "alpha", "ipset": "management"})),
        ("list_firewall_aliases", cluster()),
        ("get_node_firewall_rules", node()),
        ("get_node_firewall_options", node()),
        ("get_guest_firewall_rules", guest(100)),
        ("get_guest_firewall_options", guest(100)),
        ("list_guest_firewall_aliases", guest(100)),
        ("list_guest_firewall_ipsets", guest(100)),
        ("get_guest_firewall_ipset_entries", json!({"cluster": "alpha", "vmid": 100, "ipset": "monitors"})),
        ("list_ha_rules", cluster()),
        ("get_ha_rule", json!({"cluster": "alpha", "rule": "archive-on-pve2"})),
        ("list_change_sets", json!({})),
        ("get_proxmox_change_set", json!({"change_set_id": plan["change_set_id"]})),
    ]
}
