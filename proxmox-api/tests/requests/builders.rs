//! The verdicts PVE's parameter checks gave on configurations, where the recordings are at hand: what PVE takes, a
//! [`ConfigUpdate`] sends unchanged; what PVE refuses, it refuses to send, or sends so that PVE sees it.

use std::path::Path;

use lab::facts::{self, Verdict};
use proxmox_api::{ConfigUpdate, Effect, GuestKind, GuestRef};
use serde_json::{Map, Value};

use crate::{
    every::call,
    support::{data, pair},
};

/// Parameters PVE takes from root alone, or takes for another purpose; they have no place in a configuration.
const NOT_SENT: [&str; 4] = ["skiplock", "lock", "background_delay", "vmid"];

/// The update that says what the parameters say; `None` when it cannot be said.
fn update(parameters: &Map<String, Value>) -> Option<ConfigUpdate> {
    let mut update = ConfigUpdate::new();
    for (key, value) in parameters {
        let value = value.as_str()?;
        let list = || value.split([',', ';', ' ']).filter(|part| !part.is_empty()).map(str::to_owned);
        update = match key.as_str() {
            "delete" => list().fold(update, ConfigUpdate::unset),
            "revert" => list().fold(update, ConfigUpdate::revert),
            "digest" => update.digest(value.parse().ok()?),
            "force" if value == "1" => update.destroy_unset_disks(),
            "force" => return None,
            _ => update.set(key, value),
        };
    }
    Some(update)
}

#[tokio::test]
async fn configurations_pve_takes_arrive_and_others_do_not_slip_through() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pve-9.2-parameter-verdicts.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("not applicable: no recorded verdicts at {}", file.display());
        return;
    };
    let (server, client) = pair(|_, _| data("null")).await;
    let (mut arrived, mut refused_here, mut refused_there) = (0, 0, 0);
    let mut held_back = Vec::new();
    for line in text.lines() {
        let verdict: Value = serde_json::from_str(line).unwrap();
        let path = verdict["path"].as_str().unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        let (Some("PUT"), ["", "nodes", node, kind, vmid, "config"]) =
            (verdict["method"].as_str(), parts.as_slice())
        else {
            continue;
        };
        let kind = if *kind == "qemu" { GuestKind::Qemu } else { GuestKind::Lxc };
        let guest = GuestRef { node: node.parse().unwrap(), kind, vmid: vmid.parse().unwrap() };
        let parameters = verdict["params"].as_object().unwrap();
        let taken = verdict["ok"] == true;
        std::mem::take(&mut *server.seen.lock().unwrap());
        let result = match update(parameters) {
            Some(update) => client.update_config(&guest, &update).await,
            None => {
                refused_here += 1;
                continue;
            }
        };
        if let Err(error) = result {
            assert_eq!(error.effect(), Effect::NotSent, "{line}: {error}");
            assert!(server.seen().is_empty(), "{line}");
            refused_here += 1;
            if taken && !parameters.keys().any(|key| NOT_SENT.contains(&key.as_str())) {
                held_back.push(line.to_owned());
            }
            continue;
        }
        let (method, path, sent) = call(&server.seen()[0]).unwrap();
        for (key, value) in parameters.iter().filter(|(key, _)| !["delete", "revert"].contains(&key.as_str()))
        {
            assert_eq!(sent.get(key), Some(value), "{line}");
        }
        match facts::judge(&method, &path, &sent) {
            Verdict::Accepted => {
                assert!(taken || line.contains("cpu\": \"custom-"), "PVE refused it: {line}");
                arrived += 1;
            }
            _ => {
                assert!(!taken, "{line}");
                refused_there += 1;
            }
        }
    }
    println!(
        "{arrived} arrived, {refused_here} refused here, {refused_there} by PVE; held back: {held_back:#?}"
    );
    // Empty values, which PVE takes and makes nothing of, and updates that change nothing.
    assert!(held_back.len() <= 4, "{held_back:#?}");
    assert!(arrived > 120 && refused_here + refused_there > 80, "{arrived} {refused_here} {refused_there}");
}
