//! The lab answers recorded reads as PVE did: same status, same reason phrase, same shape.
//!
//! What differs is listed with its reason in `tests/data/read-differences.json`; a difference that is not
//! listed fails, and so does a listed one that is gone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use lab::{Lab, LabCluster};
use serde::Deserialize;
use serde_json::Value;

/// Fields whose values, and not only their types, are the cluster's and not the moment's.
const SAME_VALUE: &[&str] = &[
    "id",
    "vmid",
    "name",
    "node",
    "type",
    "status",
    "tags",
    "template",
    "pool",
    "lock",
    "storage",
    "shared",
    "poolid",
    "comment",
    "parent",
    "description",
    "snaptime",
    "volid",
    "format",
    "subtype",
    "plugintype",
    "release",
    "version",
    "ostype",
    "memory",
    "cores",
    "protection",
    "onboot",
    "agent",
    "boot",
    "net0",
    "scsi0",
    "rootfs",
    "unprivileged",
    "vmgenid",
    "user",
    "tokenid",
    "running",
    "quorate",
    "online",
    "local",
    "level",
    "nodeid",
    "network",
    "maxmem",
    "maxdisk",
    "hostname",
    "managed",
    "qmpstatus",
];

#[derive(Deserialize)]
struct Recording {
    method: String,
    path: String,
    params: Vec<(String, String)>,
    token: String,
    status: u16,
    reason: String,
    body: Value,
}

#[derive(Deserialize)]
struct Known {
    request: String,
    difference: String,
    why: String,
}

#[tokio::test]
async fn recorded_reads_get_the_same_answers() {
    let (Some(cluster), Some(recordings)) =
        (common::shared("pve-exchange-cluster.json"), common::shared("pve-9.2-reads.jsonl"))
    else {
        return;
    };
    let config = common::exchange::lab_config(&cluster);
    let lab = Lab::start(config).await.unwrap();
    let (alpha, solo) = (lab.cluster("alpha"), lab.cluster("solo"));
    let mut found = BTreeSet::new();
    let mut compared = 0;
    let mut on_solo = false;
    for line in recordings.lines() {
        let recording: Recording = serde_json::from_str(line).unwrap();
        if !lab::facts::has_endpoint(&recording.method, &recording.path) {
            continue;
        }
        let cluster = if on_solo { &solo } else { &alpha };
        // The recordings of the second host follow the refused call.
        on_solo |= recording.status == 401;
        compared += 1;
        let request = name(&recording, cluster);
        let differences = replay(cluster, &recording).await;
        found.extend(differences.into_iter().map(|difference| (request.clone(), difference)));
        cluster.idle().await;
    }
    assert!(compared > 40, "only {compared} recordings concern the lab");
    let known: Vec<Known> = serde_json::from_str(include_str!("data/read-differences.json")).unwrap();
    assert!(known.iter().all(|known| !known.why.is_empty()));
    let known: BTreeSet<_> = known.into_iter().map(|known| (known.request, known.difference)).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}\nlisted and gone: {gone:#?}");
}

fn name(recording: &Recording, cluster: &LabCluster) -> String {
    let query: Vec<String> = recording.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{} {}{query} as {} on {}", recording.method, recording.path, recording.token, cluster.name())
}

async fn replay(cluster: &LabCluster, recording: &Recording) -> BTreeSet<String> {
    let query: Vec<String> = recording.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (path, body) = match recording.method.as_str() {
        "GET" if !query.is_empty() => (format!("{}?{}", recording.path, query.join("&")), String::new()),
        _ => (recording.path.clone(), query.join("&")),
    };
    let secret = cluster.secret_of(&recording.token).unwrap_or("00000000-0000-0000-0000-000000000000");
    let authorization = format!("PVEAPIToken={}={secret}", recording.token);
    let got = common::send(cluster, Some(&authorization), &recording.method, &path, &body).await.unwrap();
    let mut differences = BTreeSet::new();
    if (got.status, &got.reason) != (recording.status, &recording.reason) {
        differences.insert(format!("answered {} {}", got.status, got.reason));
        return differences;
    }
    let body = if got.text.is_empty() { Value::String(String::new()) } else { got.json() };
    compare(&recording.body, &body, "", &mut differences);
    differences
}

fn compare(pve: &Value, lab: &Value, at: &str, differences: &mut BTreeSet<String>) {
    match (pve, lab) {
        (Value::Object(pve), Value::Object(lab)) => {
            for (key, value) in pve {
                match lab.get(key) {
                    Some(other) => compare(value, other, &format!("{at}.{key}"), differences),
                    None => {
                        differences.insert(format!("{at}.{key} is missing"));
                    }
                }
            }
            for key in lab.keys().filter(|key| !pve.contains_key(*key)) {
                differences.insert(format!("{at}.{key} is too much"));
            }
        }
        (Value::Array(pve), Value::Array(lab)) => {
            let (pve, lab) = (by_identity(pve), by_identity(lab));
            for (identity, value) in &pve {
                match lab.get(identity) {
                    Some(other) => compare(value, other, &format!("{at}[{identity}]"), differences),
                    None => {
                        differences.insert(format!("{at}[{identity}] is missing"));
                    }
                }
            }
            for identity in lab.keys().filter(|identity| !pve.contains_key(*identity)) {
                differences.insert(format!("{at}[{identity}] is too much"));
            }
        }
        _ if std::mem::discriminant(pve) != std::mem::discriminant(lab) => {
            differences.insert(format!("{at} is {lab} and not {pve}"));
        }
        _ => {
            let field = at.rsplit(['.', ']']).next().unwrap_or_default();
            // How big the node of the recordings was, and what kernel it had, is no fact about PVE.
            let hardware = at.starts_with(".data.cpuinfo")
                || at.starts_with(".data.current-kernel")
                || at.starts_with(".data[node/") && matches!(field, "maxmem" | "maxdisk");
            // A snapshot that was taken during the recording.
            let moment = field == "snaptime" && pve.as_i64() > Some(1_790_000_000);
            if (SAME_VALUE.contains(&field) && !hardware && !moment || at == ".total") && pve != lab {
                differences.insert(format!("{at} is {lab} and not {pve}"));
            }
        }
    }
}

/// The elements of an array by what names them, since PVE's order is not defined.
fn by_identity(array: &[Value]) -> BTreeMap<String, &Value> {
    let name = |index: usize, value: &Value| {
        if let (Some(kind), Some(id), true) =
            (value["type"].as_str(), value["id"].as_str(), value["upid"].is_string())
        {
            return format!("{kind}:{id}");
        }
        for key in [
            "id", "volid", "poolid", "storage", "name", "node", "sid", "vmid", "key", "group", "macro",
            "cidr", "rule",
        ] {
            match &value[key] {
                Value::String(text) => return text.clone(),
                Value::Number(number) => return number.to_string(),
                _ => {}
            }
        }
        index.to_string()
    };
    array.iter().enumerate().map(|(index, value)| (name(index, value), value)).collect()
}
