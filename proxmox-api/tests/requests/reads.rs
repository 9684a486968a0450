//! The reading methods.

use proxmox_api::{ContentFilter, TaskFilter, TaskOutcome, TaskSource, WaitPolicy};

use crate::methods::{Entry, entry};

/// Methods that only read.
pub(crate) static READS: &[Entry] = &[
    entry!("version", |c, _a| c.version().await),
    entry!("cluster_status", |c, _a| c.cluster_status().await),
    entry!("next_vmid", |c, _a| c.next_vmid().await),
    entry!("resources", |c, _a| c.resources().await),
    entry!("guests", |c, _a| c.guests().await),
    entry!("inventory", |c, _a| c.inventory().await),
    entry!("nodes", |c, _a| c.nodes().await),
    entry!("node_status", |c, a| c.node_status(&a.node).await),
    entry!("node_config", |c, a| c.node_config(&a.node).await),
    entry!("node_guests", |c, a| c.node_guests(&a.node, a.kind()).await),
    entry!("guest_config", |c, a| c.guest_config(&a.guest()).await),
    entry!("guest_config_active", |c, a| c.guest_config_active(&a.guest()).await),
    entry!("guest_pending", |c, a| c.guest_pending(&a.guest()).await),
    entry!("guest_status", |c, a| c.guest_status(&a.guest()).await),
    entry!("snapshots", |c, a| c.snapshots(&a.guest()).await),
    entry!("snapshot_config", |c, a| c.snapshot_config(&a.guest(), &a.snap).await),
    entry!("interfaces", |c, a| c.interfaces(&a.guest()).await),
    entry!("lxc_interfaces", |c, a| c.lxc_interfaces(&a.lxc()).await),
    entry!("agent_interfaces", |c, a| c.agent_interfaces(&a.qemu()).await),
    entry!("agent_osinfo", |c, a| c.agent_osinfo(&a.qemu()).await),
    entry!("agent_exec_status", |c, a| c.agent_exec_status(&a.qemu(), a.number.into()).await),
    entry!("agent_file_read", |c, a| c.agent_file_read(&a.qemu(), &a.text).await),
    entry!("agent_file_read_part", |c, a| {
        let count = a.number % (16 * 1024 * 1024) + 1;
        c.agent_file_read_part(&a.qemu(), &a.text, a.number.into(), count).await
    }),
    entry!("migrate_preconditions", |c, a| {
        c.migrate_preconditions(&a.guest(), a.some(0, &a.target)).await
    }),
    entry!("storages", |c, a| c.storages(&a.node).await),
    entry!("storage_status", |c, a| c.storage_status(&a.node, &a.storage).await),
    entry!("storage_content", |c, a| {
        let kinds = ["iso", "vztmpl", "backup", "images", "rootdir", "import", "snippets"];
        let kind = kinds[a.number as usize % kinds.len()].to_owned();
        let filter = ContentFilter { content: a.some(0, kind), vmid: a.some(1, a.vmid) };
        c.storage_content(&a.node, &a.storage, &filter).await
    }),
    entry!("backups", |c, a| c.backups(&a.node, &a.storage, a.some(0, a.vmid)).await),
    entry!("volume", |c, a| c.volume(&a.node, &a.volid).await),
    entry!("url_metadata", |c, a| {
        c.url_metadata(&a.node, "https://mirror.example/a%20b?c=d&e=f;g#h", a.flags[0]).await
    }),
    entry!("tasks", |c, a| {
        let sources = [TaskSource::All, TaskSource::Active, TaskSource::Archive];
        let outcomes = [TaskOutcome::Ok, TaskOutcome::Warning, TaskOutcome::Error, TaskOutcome::Unknown];
        let filter = TaskFilter {
            source: sources[a.number as usize % 3],
            vmid: a.some(0, a.vmid),
            typefilter: a.some(1, "qmstart".to_owned()),
            since: a.some(2, a.number.into()),
            until: a.some(3, a.number.into()),
            userfilter: a.some(4, "root@pam".to_owned()),
            outcomes: outcomes[..a.number as usize % 5].to_vec(),
            start: a.number.into(),
            limit: a.number,
        };
        c.tasks(&a.node, &filter).await
    }),
    entry!("cluster_tasks", |c, _a| c.cluster_tasks().await),
    entry!("task_status", |c, a| c.task_status(&a.upid).await),
    entry!("task_log", |c, a| c.task_log(&a.upid, a.number.into(), a.number).await),
    entry!("task_warnings", |c, a| c.task_warnings(&a.upid).await),
    entry!("wait_task", |c, a| {
        let policy = WaitPolicy { deadline: std::time::Duration::ZERO, ..WaitPolicy::default() };
        c.wait_task(&a.upid, &policy).await
    }),
    entry!("firewall_rules", |c, a| c.firewall_rules(&a.rule_scope()).await),
    entry!("firewall_rule", |c, a| c.firewall_rule(&a.rule_scope(), a.number).await),
    entry!("firewall_options", |c, a| c.firewall_options(&a.option_scope()).await),
    entry!("firewall_aliases", |c, a| c.firewall_aliases(&a.object_scope()).await),
    entry!("firewall_alias", |c, a| c.firewall_alias(&a.object_scope(), &a.alias).await),
    entry!("ipsets", |c, a| c.ipsets(&a.object_scope()).await),
    entry!("ipset_entries", |c, a| c.ipset_entries(&a.object_scope(), &a.ipset).await),
    entry!("security_groups", |c, _a| c.security_groups().await),
    entry!("firewall_refs", |c, a| c.firewall_refs(&a.object_scope()).await),
    entry!("ha_resources", |c, _a| c.ha_resources().await),
    entry!("ha_resource", |c, a| c.ha_resource(a.sid()).await),
    entry!("ha_rules", |c, _a| c.ha_rules().await),
    entry!("ha_rule", |c, a| c.ha_rule(&a.rule).await),
    entry!("ha_status", |c, _a| c.ha_status().await),
    entry!("pools", |c, _a| c.pools().await),
    entry!("pool", |c, a| c.pool(&a.pool).await),
    entry!("permissions", |c, _a| c.permissions().await),
    entry!("permissions_on", |c, a| c.permissions_on(&format!("/vms/{}", a.vmid)).await),
];
