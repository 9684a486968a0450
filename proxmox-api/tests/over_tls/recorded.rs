//! Answers recorded from PVE's own API code, where they are at hand.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use proxmox_api::{
    Client, ContentFilter, DestroyOptions, Effect, Error, GuestKind, GuestRef, TaskFilter, Upid,
};
use serde_json::Value;

use crate::support::{Answer, http, pair};

/// What a method of the client made of an answer: how many entries it read and skipped.
type Read = Result<(usize, usize), Error>;

/// Calls the method that covers this exchange; `None` when there is none.
async fn call(client: &Client, method: &str, path: &str) -> Option<Read> {
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
            entries.map(|s| (s.nodes.len() + usize::from(s.name.is_some()), s.skipped))
        }
        ("GET", ["cluster", "resources"]) => client.resources().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["cluster", "ha", "resources"]) => client.ha_resources().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["nodes"]) => client.nodes().await.map(|l| (l.len(), l.skipped)),
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "config"]) => {
            let guest = guest(node, kind, vmid);
            one(client.guest_config(&guest).await.map(|config| {
                assert!(config.digest.is_some() && config.unreadable.is_empty(), "{config:?}");
                assert!(!config.protection().is_unreadable());
                assert!(
                    config
                        .disks()
                        .iter()
                        .all(|disk| !matches!(disk.source, proxmox_api::DiskSource::Path(_)))
                );
                assert!(config.nets().iter().all(|net| net.mac.is_some() && net.bridge.is_some()));
            }))
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "status", "current"]) => {
            one(client.guest_status(&guest(node, kind, vmid)).await.map(|status| {
                assert!(!matches!(status.state, proxmox_api::RunState::Unknown(_)), "{status:?}");
                assert!(!status.ha_managed.is_unreadable() && !status.template.is_unreadable());
            }))
        }
        ("GET", ["nodes", node, kind @ ("qemu" | "lxc"), vmid, "snapshot"]) => {
            client.snapshots(&guest(node, kind, vmid)).await.map(|s| (s.items.len() + 1, s.skipped))
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
        let Some(read) = call(&client, method, path).await else { continue };
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
    println!("{name}: {covered} exchanges");
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
