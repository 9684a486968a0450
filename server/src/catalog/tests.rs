use std::collections::BTreeSet;

use super::*;

#[test]
fn names_are_unique_short_and_plain() {
    let mut seen = BTreeSet::new();
    for name in scope_names() {
        assert!(seen.insert(name), "{name} twice");
        assert!(
            name.len() <= 40
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{name}"
        );
    }
}

/// Token files and waivers that were written for another server name these; each must mean something here.
#[test]
fn names_that_existing_files_hold_are_known_here() {
    for name in "get_cluster_status get_nodes get_node_status get_vms get_containers get_vm_config get_container_config \
        get_container_ip get_guest_status list_snapshots get_storage list_backups list_isos list_templates list_tasks \
        get_task_status get_proxmox_change_set get_cluster_firewall_rules get_cluster_firewall_options \
        list_firewall_security_groups get_firewall_security_group_rules list_firewall_ipsets get_firewall_ipset_entries \
        list_firewall_aliases get_node_firewall_rules get_node_firewall_options get_guest_firewall_rules \
        get_guest_firewall_options list_guest_firewall_aliases list_guest_firewall_ipsets \
        get_guest_firewall_ipset_entries start_vm stop_vm shutdown_vm reset_vm start_container stop_container \
        restart_container create_vm create_container clone_vm download_iso resize_disk create_snapshot create_backup \
        update_container_resources stop_task plan_proxmox_destroy approve_proxmox_change_set apply_proxmox_change_set \
        plan_firewall_change approve_firewall_change apply_firewall_change plan_ha_rule_change"
        .split_whitespace()
    {
        assert!(all().any(|spec| spec.name() == name), "{name} is no tool");
    }
    for name in "delete_vm delete_container delete_snapshot delete_backup delete_iso restore_backup rollback_snapshot \
        restore_backup_new_vmid"
        .split_whitespace()
    {
        assert!(SCOPES.iter().any(|scope| scope.name == name), "{name} is no scope");
    }
    for name in "destroy_guest delete_snapshot rollback_snapshot delete_backup delete_iso restore_backup migrate \
        update_vm_config restore_new_vmid stop_vm shutdown_vm reboot_vm reset_vm stop_container restart_container \
        update_container_resources stop_task ha_rule_create ha_rule_update ha_rule_delete firewall_rule_create \
        firewall_options_update firewall_ipset_entry_delete"
        .split_whitespace()
    {
        assert!(knows_op(name), "a waiver cannot name {name}");
    }
    // Nothing runs in guests before a policy can say no to it.
    assert!(!knows_scope("execute_vm_command"));
}

#[test]
fn no_tool_and_no_argument_overrides_protection() {
    assert!(!knows_scope("grant_waiver"));
    for spec in all() {
        let input = (spec.input)().unwrap();
        for argument in ["force", "skiplock", "override", "waiver", "lab_mode", "protection"] {
            assert!(input["properties"].get(argument).is_none(), "{} takes {argument}", spec.name());
        }
    }
}

#[test]
fn gr_02_no_wildcard_reaches_a_tool_that_mutates() {
    for spec in all() {
        let reads_secrets = spec.needs_transfers;
        assert_eq!(
            spec.rule.wildcard,
            !spec.mutates() && !reads_secrets || ["get_transfer", "list_transfers"].contains(&spec.name()),
            "{}",
            spec.name()
        );
    }
    for scope in SCOPES {
        assert!(!scope.wildcard, "{}", scope.name);
    }
}

/// Tier, `interrupts`, `writes_guest` and what is addressed have no default: a row without one does not compile. What a row could
/// still get wrong is held here, so that no new tool is open by oversight.
#[test]
fn gr_03_no_tool_is_without_what_authorization_goes_by() {
    for spec in all() {
        let (name, own) = (spec.name(), &spec.rule);
        let changes_guests = own.interrupts || own.writes_guest;
        assert!(
            !changes_guests || !matches!(own.tier, authz::Tier::Read),
            "{name} changes guests and is a read"
        );
        let names_none = matches!(spec.addresses, Addresses::Nothing | Addresses::Clusters);
        assert!(!changes_guests || !names_none, "{name} changes guests and addresses none");
        assert!(own.tier == authz::Tier::Read || !own.wildcard, "{name}");
        assert!(
            rule(name).is_some_and(|found| std::ptr::eq(found, own)),
            "{name} is decided by another rule"
        );
    }
}

#[test]
fn hints_agree_with_tiers() {
    for spec in all() {
        assert_eq!(spec.hints.read_only, !spec.mutates(), "{}", spec.name());
        assert_eq!(
            spec.hints.destructive,
            spec.rule.interrupts || matches!(spec.rule.tier, authz::Tier::Destructive),
            "{}",
            spec.name()
        );
    }
}

#[test]
fn mc_07_schemas_stay_on_the_common_ground_of_real_clients() {
    for spec in all() {
        let input = (spec.input)().unwrap();
        for schema in [&input, &(spec.output)()] {
            let text = schema.to_string();
            assert_eq!(schema["type"], "object", "{}: {text}", spec.name());
            for refused in ["\"$", "\"type\":[", "Of\":["] {
                assert!(!text.contains(refused), "{}: {refused} in {text}", spec.name());
            }
        }
        assert_eq!(input["additionalProperties"], false, "{}", spec.name());
        assert!(spec.description.len() <= 1024, "{}", spec.name());
    }
}

/// A change of a tool's contract shows up in review: the snapshot holds every definition.
#[test]
fn mc_07_tool_definitions_match_the_committed_snapshot() {
    let definition =
        |spec: &ToolSpec| serde_json::to_value(descriptor(spec, (spec.input)().unwrap()).unwrap()).unwrap();
    let definitions: Vec<Value> = all().map(definition).collect();
    insta::assert_json_snapshot!("tool_definitions", definitions);
}

/// What a model pays for the list before it has asked anything: about four characters a token.
#[test]
fn the_whole_list_stays_cheap() {
    let bytes: usize = all()
        .map(|spec| serde_json::to_string(&descriptor(spec, (spec.input)().unwrap()).unwrap()).unwrap().len())
        .sum();
    assert!(bytes / all().count() <= 1750, "{bytes} bytes for {} tools", all().count());
}
