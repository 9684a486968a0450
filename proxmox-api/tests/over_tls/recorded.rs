//! Answers recorded from PVE's own API code, where they are at hand.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
};

use proxmox_api::{
    Client, ContentFilter, DestroyOptions, Effect, Error, FirewallScope, GuestKind, GuestRef, TaskFilter,
    Upid,
};
use serde_json::Value;

use crate::support::{Answer, http, pair};

/// `assert!` for answers as they were recorded.
macro_rules! check {
    ($strict:expr, $($what:tt)+) => { if $strict { assert!($($what)+) } };
}

/// `assert_eq!` for answers as they were recorded.
macro_rules! check_eq {
    ($strict:expr, $($what:tt)+) => { if $strict { assert_eq!($($what)+) } };
}

/// What a method of the client made of an answer: how many entries it read and skipped.
pub(crate) type Read = Result<(usize, usize), Error>;

/// Calls the method that covers this exchange; `None` when there is none.
///
/// `strict` also looks at single fields; what was changed on the way does not stand that.
pub(crate) async fn call(
    client: &Client,
    method: &str,
    path: &str,
    query: Option<&str>,
    strict: bool,
) -> Option<Read> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let guest = |node: &str, kind: &str, vmid: &str| {
        let kind = if kind == "qemu" { GuestKind::Qemu } else { GuestKind::Lxc };
        GuestRef { node: node.parse().unwrap(), kind, vmid: vmid.parse().unwrap() }
    };
    let one = |result: Result<(), Error>| result.map(|()| (1, 0));
    let task = |upid: Result<Upid, Error>| one(upid.map(drop));
    Some(match (method, parts.as_slice()) {
        ("GET", ["version"]) => one(client.version().await.map(drop)),
        ("GET", ["cluster", "status"]) => {
            // Beside its nodes a cluster has an entry of its own; a single node has none.
            let entries = client.cluster_status().await;
            entries.map(|s| (s.nodes.len() + usize::from(!s.json.is_empty()), s.skipped))
        }
        ("GET", ["cluster", "resources"]) => client.resources().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["cluster", "ha", "resources"]) => client.ha_resources().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["nodes"]) => client.nodes().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "config"]) => {
            let guest = guest(node, kind, vmid);
            one(client.guest_config(&guest).await.map(|config| {
                check!(strict, config.digest.is_some() && config.unreadable.is_empty(), "{config:?}");
                check!(strict, !config.protection().is_unreadable());
                check!(
                    strict,
                    config
                        .disks()
                        .iter()
                        .all(|disk| !matches!(disk.source, proxmox_api::DiskSource::Path(_)))
                );
                check!(strict, config.nets().iter().all(|net| net.mac.is_some() && net.bridge.is_some()));
            }))
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "status", "current"]) => {
            one(client.guest_status(&guest(node, kind, vmid)).await.map(|status| {
                check!(strict, !matches!(status.state, proxmox_api::RunState::Unknown(_)), "{status:?}");
                check!(strict, !status.ha_managed.is_unreadable() && !status.template.is_unreadable());
            }))
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "snapshot"]) => {
            client.snapshots(&guest(node, kind, vmid)).await.map(|s| (s.items.len() + 1, s.skipped))
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "pending"]) => {
            let list = client.guest_pending(&guest(node, kind, vmid)).await;
            list.map(|list| {
                for key in &list {
                    check!(strict, !key.value.is_unreadable() && !key.pending.is_unreadable(), "{key:?}");
                    check_eq!(
                        strict,
                        key.changes(),
                        key.json.contains_key("pending") || key.json.contains_key("delete")
                    );
                }
                (list.len(), list.skipped)
            })
        }
        ("GET", ["nodes", node, "lxc", vmid, "interfaces"]) => {
            let list = client.interfaces(&guest(node, "lxc", vmid)).await;
            list.map(|list| {
                let addresses: usize = list.iter().map(|interface| interface.addresses.len()).sum();
                check_eq!(strict, addresses, list.len() * 2, "{list:?}");
                (list.len(), list.skipped)
            })
        }
        ("GET", ["nodes", node, "qemu", vmid, "agent", "network-get-interfaces"]) => {
            let list = client.interfaces(&guest(node, "qemu", vmid)).await;
            one(list.map(|list| {
                let reachable: Vec<_> = list.iter().flat_map(|interface| interface.reachable()).collect();
                check_eq!(strict, reachable.len(), 1, "neither loopback nor link-local: {reachable:?}");
            }))
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc")]) => {
            let kind = if *kind == "qemu" { GuestKind::Qemu } else { GuestKind::Lxc };
            client.node_guests(&node.parse().unwrap(), kind).await.map(|l| (l.len(), l.skipped))
        }
        ("GET", ["nodes", node, "status"]) => {
            one(client.node_status(&node.parse().unwrap()).await.map(|node| {
                check!(
                    strict,
                    node.uptime.is_some() && node.cpus.is_some() && node.loadavg.len() == 3,
                    "{node:?}"
                );
                check!(
                    strict,
                    [node.memory, node.swap, node.rootfs].iter().all(|part| part.total.is_some()),
                    "{node:?}"
                );
            }))
        }
        ("GET", ["cluster", "nextid"]) => one(client.next_vmid().await.map(drop)),
        ("GET", ["cluster", "tasks"]) => client.cluster_tasks().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["cluster", "ha", "resources", sid]) => {
            one(client.ha_resource(sid.parse().ok()?).await.map(drop))
        }
        ("GET", ["cluster", "ha", "rules"]) => client.ha_rules().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["cluster", "ha", "rules", rule]) => {
            one(client.ha_rule(&rule.parse().unwrap()).await.map(drop))
        }
        ("GET", ["cluster", "ha", "status", "current"]) => {
            client.ha_status().await.map(|l| (l.len(), l.skipped))
        }
        ("GET", ["access", "permissions"]) => one(client.permissions().await.map(|permissions| {
            check!(strict, permissions.skipped == 0 && !permissions.is_empty());
            check!(
                strict,
                permissions.paths.values().flat_map(|path| path.values()).all(|flag| !flag.is_unreadable())
            );
        })),
        ("GET", ["pools"]) => match query {
            None => client.pools().await.map(|l| (l.len(), l.skipped)),
            Some(poolid) => one(client.pool(&poolid.parse().unwrap()).await.map(|pool| {
                let listed = pool.pool.json["members"].as_array().map_or(0, Vec::len);
                check_eq!(strict, (pool.members.len(), pool.members.skipped), (listed, 0));
            })),
        },
        ("GET", ["cluster", "firewall", "groups"]) => {
            client.security_groups().await.map(|l| (l.len(), l.skipped))
        }
        ("GET", ["cluster", "firewall", "groups", group]) => {
            let group = FirewallScope::Group(group.parse().unwrap());
            client.firewall_rules(&group).await.map(|l| (l.len(), l.skipped))
        }
        ("GET", ["cluster", "firewall", rest @ ..]) => {
            firewall(client, &FirewallScope::Cluster, rest, strict).await?
        }
        ("GET", ["nodes", node, "firewall", rest @ ..]) => {
            firewall(client, &FirewallScope::Node(node.parse().unwrap()), rest, strict).await?
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "firewall", rest @ ..]) => {
            firewall(client, &FirewallScope::Guest(guest(node, kind, vmid)), rest, strict).await?
        }
        ("GET", ["nodes", node, "storage", storage, "status"]) => one(client
            .storage_status(&node.parse().unwrap(), &storage.parse().unwrap())
            .await
            .map(|storage| check!(strict, storage.is_usable(), "{storage:?}"))),
        ("GET", ["nodes", node, "storage", storage, "content", volume @ ..]) if !volume.is_empty() => {
            let volume = volume.join("/");
            let volid = if volume.contains(':') { volume } else { format!("{storage}:{volume}") };
            one(client.volume(&node.parse().unwrap(), &volid.parse().unwrap()).await.map(|volume| {
                check!(strict, volume.size.is_some() && volume.path.is_some(), "{volume:?}");
            }))
        }
        ("GET", ["nodes", node, "storage"]) => {
            client.storages(&node.parse().unwrap()).await.map(|l| (l.len(), l.skipped))
        }
        ("GET", ["nodes", node, "storage", storage, "content"]) => client
            .storage_content(&node.parse().unwrap(), &storage.parse().unwrap(), &ContentFilter::default())
            .await
            .map(|l| (l.len(), l.skipped)),
        ("GET", ["nodes", node, "tasks"]) => {
            client.tasks(&node.parse().unwrap(), &TaskFilter::default()).await.map(|l| (l.len(), l.skipped))
        }
        ("GET", ["nodes", _, "tasks", upid, what]) => match (upid.parse::<Upid>(), *what) {
            (Err(_), _) => return None,
            (Ok(upid), "status") => one(client.task_status(&upid).await.map(drop)),
            (Ok(upid), _) => client.task_log(&upid, 0, 50).await.map(|l| (l.len(), l.skipped)),
        },
        ("POST", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "status", "start"]) => {
            task(client.start(&guest(node, kind, vmid)).await)
        }
        ("POST", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "status", "stop"]) => {
            task(client.stop(&guest(node, kind, vmid)).await)
        }
        ("DELETE", ["nodes", node, kind @ ("qemu" | "lxc"), vmid]) => {
            task(client.destroy(&guest(node, kind, vmid), DestroyOptions::default()).await)
        }
        _ => return None,
    })
}

/// Calls the reading method for what is below `…/firewall`; `None` when there is none.
async fn firewall(client: &Client, scope: &FirewallScope, rest: &[&str], strict: bool) -> Option<Read> {
    Some(match rest {
        ["rules"] => client.firewall_rules(scope).await.map(|list| {
            check!(strict, list.iter().all(|rule| rule.pos.is_some() && rule.digest.is_some()), "{list:?}");
            (list.len(), list.skipped)
        }),
        ["rules", pos] => client.firewall_rule(scope, pos.parse().unwrap()).await.map(|rule| {
            check_eq!(strict, rule.pos, Some(pos.parse().unwrap()));
            (1, 0)
        }),
        ["options"] => client.firewall_options(scope).await.map(|options| {
            check!(strict, options.digest.is_some() && !options.enable.is_unreadable(), "{options:?}");
            (1, 0)
        }),
        ["aliases"] => client.firewall_aliases(scope).await.map(|list| (list.len(), list.skipped)),
        ["aliases", name] => client.firewall_alias(scope, &name.parse().unwrap()).await.map(|_| (1, 0)),
        ["ipset"] => client.ipsets(scope).await.map(|list| (list.len(), list.skipped)),
        ["ipset", name] => {
            client.ipset_entries(scope, &name.parse().unwrap()).await.map(|list| (list.len(), list.skipped))
        }
        ["refs"] => client.firewall_refs(scope).await.map(|list| (list.len(), list.skipped)),
        _ => return None,
    })
}

/// Replays a file of exchanges; every one that a method covers must be read as it was recorded.
async fn replay(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("not applicable: no recorded answers at {}", file.display());
        return;
    };
    let current = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::clone(&current);
    let (_server, client) = pair(move |_, _| Answer::Close(answer.lock().unwrap().clone())).await;
    let mut covered = 0;
    let mut passed_over = BTreeSet::new();
    for line in text.lines() {
        let exchange: Value = serde_json::from_str(line).unwrap();
        let (method, path) = (exchange["method"].as_str().unwrap(), exchange["path"].as_str().unwrap());
        let status = exchange["status"].as_u64().unwrap();
        let reason = exchange["reason"].as_str().unwrap();
        let body = match &exchange["body"] {
            Value::String(text) => text.clone(),
            json => json.to_string(),
        };
        *current.lock().unwrap() = http(&format!("{status} {reason}"), &body);
        let pool = exchange["params"].as_array().and_then(|params| {
            params.iter().find(|pair| pair[0] == "poolid").and_then(|pair| pair[1].as_str())
        });
        let Some(read) = call(&client, method, path, pool, true).await else {
            passed_over.insert(format!("{method} {path}"));
            continue;
        };
        covered += 1;
        let rows = exchange["body"]["data"].as_array().map(Vec::len);
        match read {
            Ok((read, skipped)) => {
                assert_eq!(status, 200, "{line}");
                assert_eq!(skipped, 0, "{line}");
                if let Some(rows) = rows {
                    assert_eq!(read, rows, "{line}");
                }
            }
            Err(error) => {
                assert_eq!(error.status().map(u64::from), Some(status), "{error}: {line}");
                assert_eq!(error.effect(), Effect::Refused, "{error}: {line}");
                let said = exchange["body"]["message"].as_str().map_or(reason, str::trim);
                assert_eq!(error.message(), said, "{line}");
                let errors = exchange["body"]["errors"].as_object().map_or(0, serde_json::Map::len);
                assert_eq!(error.parameter_errors().len(), errors, "{line}");
            }
        }
    }
    println!("{name}: {covered} exchanges; no method for {passed_over:#?}");
    assert!(covered > 20, "{covered}");
}

#[tokio::test]
async fn every_recorded_read_is_read() {
    replay("pve-9.2-reads.jsonl").await;
}

#[tokio::test]
async fn every_recorded_exchange_is_read() {
    replay("pve-9.2-exchanges.jsonl").await;
}
