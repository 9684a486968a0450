//! The rest of what can be read.

use std::net::IpAddr;

use proxmox_api::{ErrorKind, Field, FirewallScope, GuestKind, PendingDelete, TaskFilter, TaskOutcome};

use crate::{Setup, client, guest, setup};

#[tokio::test]
async fn nodes_in_detail() {
    let Setup { client, .. } = &setup().await;
    let node = client.node_status(&"pve1".parse().unwrap()).await.unwrap();
    assert!(
        node.uptime.is_some() && node.memory.total > node.memory.used && node.loadavg.len() == 3,
        "{node:?}"
    );
    assert!(node.json.contains_key("pveversion"));
    let error = client.node_status(&"pve3".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeUnreachable, "{error}");

    let machines = client.node_guests(&"pve1".parse().unwrap(), GuestKind::Qemu).await.unwrap();
    let containers = client.node_guests(&"pve1".parse().unwrap(), GuestKind::Lxc).await.unwrap();
    assert!(machines.iter().any(|entry| entry.guest == guest("pve1", GuestKind::Qemu, 100)));
    assert!(containers.iter().any(|entry| entry.guest == guest("pve1", GuestKind::Lxc, 200)));
    assert_eq!(machines.skipped + containers.skipped, 0);

    let free = client.next_vmid().await.unwrap();
    let taken = client.guests().await.unwrap();
    assert!(taken.iter().all(|guest| guest.vmid != Some(free)), "{free}");
}

#[tokio::test]
async fn addresses_of_both_kinds() {
    let Setup { client, .. } = &setup().await;
    for guest in [guest("pve1", GuestKind::Qemu, 100), guest("pve1", GuestKind::Lxc, 200)] {
        let interfaces = client.interfaces(&guest).await.unwrap();
        assert_eq!(interfaces.skipped, 0);
        let all: Vec<IpAddr> =
            interfaces.iter().flat_map(|interface| &interface.addresses).map(|address| address.ip).collect();
        let reachable: Vec<IpAddr> = interfaces.iter().flat_map(|interface| interface.reachable()).collect();
        assert!(all.iter().any(IpAddr::is_loopback), "{guest}: {all:?}");
        assert!(
            !reachable.is_empty() && !reachable.iter().any(IpAddr::is_loopback),
            "{guest}: {reachable:?}"
        );
    }
    // The agent of this one is configured and does not run.
    let error = client.interfaces(&guest("pve2", GuestKind::Qemu, 105)).await.unwrap_err();
    assert!(error.message().contains("guest agent is not running"), "{error}");
}

/// A26: a token that can see nothing is told from a cluster that has nothing.
#[tokio::test]
async fn what_a_token_may_do() {
    let Setup { client: full, alpha, .. } = &setup().await;
    let all = full.permissions().await.unwrap();
    assert!(all.has("/vms/100", "VM.PowerMgmt") && all.has("/storage/nowhere", "Datastore.Audit"));
    let audit = client(alpha, "audit@pve!lab").permissions().await.unwrap();
    assert!(audit.has("/vms/100", "VM.Audit") && !audit.has("/vms/100", "VM.PowerMgmt"));
    let nobody = client(alpha, "nobody@pve!lab").permissions().await.unwrap();
    assert!(nobody.is_empty() && !nobody.has("/vms/100", "VM.Audit") && !nobody.holds_anywhere("VM.Audit"));
    assert!(audit.holds_anywhere("VM.Audit") && !audit.holds_anywhere("VM.PowerMgmt"));
    let one = full.permissions_on("/vms/100").await.unwrap();
    assert_eq!(one.paths.keys().collect::<Vec<_>>(), ["/vms/100"]);
}

#[tokio::test]
async fn pools_and_their_members() {
    let Setup { client, .. } = &setup().await;
    let pools = client.pools().await.unwrap();
    let production = pools.iter().find(|pool| pool.poolid.as_str() == "production").unwrap();
    let pool = client.pool(&production.poolid).await.unwrap();
    assert!(pool.members.iter().any(|member| member.guest() == Some(guest("pve1", GuestKind::Qemu, 100))));
    let error = client.pool(&"nope".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test]
async fn every_firewall_can_be_read() {
    let Setup { client, .. } = &setup().await;
    let web = FirewallScope::Guest(guest("pve1", GuestKind::Qemu, 100));
    let rules = client.firewall_rules(&web).await.unwrap();
    assert_eq!((rules.len(), rules.skipped), (3, 0));
    assert_eq!(rules.items[0].kind.as_deref(), Some("group"));
    assert_eq!(rules.items[1].source.as_deref(), Some("dc/office"));
    assert!(rules.iter().enumerate().all(|(index, rule)| rule.pos == u32::try_from(index).ok()));
    assert_eq!(client.firewall_rule(&web, 1).await.unwrap().macro_name.as_deref(), Some("SSH"));
    let options = client.firewall_options(&web).await.unwrap();
    assert_eq!((options.enable, options.policy_in.as_deref()), (Field::Value(true), Some("DROP")));
    assert_eq!(client.firewall_aliases(&web).await.unwrap().items[0].cidr.as_deref(), Some("10.0.0.102"));
    let sets = client.ipsets(&web).await.unwrap();
    assert_eq!(client.ipset_entries(&web, &sets.items[0].name).await.unwrap().items[0].cidr, "10.0.0.0/24");
    let refs = client.firewall_refs(&web).await.unwrap();
    assert!(refs.iter().any(|entry| entry.scope.as_deref() == Some("guest")));

    let groups = client.security_groups().await.unwrap();
    let group = FirewallScope::Group(groups.items[0].group.clone());
    assert!(!client.firewall_rules(&group).await.unwrap().is_empty());
    let node = FirewallScope::Node("pve1".parse().unwrap());
    assert_eq!(client.firewall_rules(&node).await.unwrap().items[0].comment.as_deref(), Some("monitoring"));
    client.firewall_options(&node).await.unwrap();
    client.firewall_rules(&FirewallScope::Cluster).await.unwrap();
    for refused in
        [client.firewall_aliases(&node).await.map(drop), client.firewall_options(&group).await.map(drop)]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Parameter);
    }
}

#[tokio::test]
async fn pending_keys_and_filtered_tasks() {
    let setup = setup().await;
    let Setup { client, .. } = &setup;
    let web = guest("pve1", GuestKind::Qemu, 100);
    let pending = client.guest_pending(&web).await.unwrap();
    let memory = pending.iter().find(|key| key.key == "memory").unwrap();
    assert_eq!((memory.value.value().map(String::as_str), memory.delete), (Some("2048"), PendingDelete::No));
    assert_eq!(client.guest_config_active(&web).await.unwrap().name(), Some("web"));
    let then = client.snapshot_config(&web, &"clean".parse().unwrap()).await.unwrap();
    assert_eq!(then.name(), Some("web"));

    let scratch = guest("pve2", GuestKind::Qemu, 104);
    let upid = client.start(&scratch).await.unwrap();
    assert!(setup.finish(&upid).await.succeeded());
    assert!(client.cluster_tasks().await.unwrap().iter().any(|task| task.upid == upid));
    let failed = TaskFilter { outcomes: vec![TaskOutcome::Error], ..TaskFilter::default() };
    assert!(!client.tasks(&scratch.node, &failed).await.unwrap().iter().any(|task| task.upid == upid));
    assert!(client.task_warnings(&upid).await.unwrap().is_empty());
}
