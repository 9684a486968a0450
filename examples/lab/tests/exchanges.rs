//! The lab answers recorded exchanges (calls that change things, and what follows) as PVE did: same status, same reason
//! phrase, same shape, and the same end of the task.
//!
//! What differs is listed with its reason in `tests/data/exchange-differences.json`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;

use common::replay::{Names, Recording, name, only_known, replay, timeless};
use lab::{Lab, LabCluster};
use serde_json::Value;

/// Where the recordings go on with a cluster that is as at the start.
const AFRESH: &[usize] = &[0, 35, 86, 145, 245, 279];

/// Where PVE was asked before the migration of the first of these lines had ended.
const HELD: std::ops::RangeInclusive<usize> = 202..=204;

/// Recorded exchanges with endpoints that the lab does not have, with the reason.
const ABSENT: &[(&str, &str)] = &[
    ("/execute", "nothing is run on a node"),
    ("/move_disk", "no client of the lab moves disks"),
    ("/move_volume", "no client of the lab moves disks"),
    ("/startall", "no client of the lab starts or stops all guests"),
    ("/stopall", "no client of the lab starts or stops all guests"),
];

#[tokio::test]
async fn recorded_exchanges_get_the_same_answers() {
    let (Some(cluster), Some(recordings)) =
        (common::shared("pve-exchange-cluster.json"), common::shared("pve-9.2-exchanges.jsonl"))
    else {
        return;
    };
    let config = common::exchange::lab_config(&cluster);
    let mut lab = Lab::start(config.clone()).await.unwrap();
    let mut names = Names::new();
    let mut found = BTreeSet::new();
    let (mut compared, mut absent) = (0, 0);
    for (index, line) in recordings.lines().enumerate() {
        if AFRESH.contains(&index) && index > 0 {
            lab = Lab::start(config.clone()).await.unwrap();
            names.clear();
        }
        let alpha = lab.cluster("alpha");
        let recording: Recording = serde_json::from_str(line).unwrap();
        if ABSENT.iter().any(|(path, _)| recording.path.ends_with(path)) {
            absent += 1;
            if recording.path.ends_with("/stopall") {
                // What it had stopped by the next line.
                alpha.stop(100).unwrap();
            }
            continue;
        }
        compared += 1;
        let request = format!("{index}: {}", name(&recording, &alpha));
        alpha.hold_tasks(HELD.contains(&index));
        let (mut differences, mut body) = replay(&alpha, &recording, &names).await;
        while recording.path.ends_with("/exec-status") && body["data"]["exited"] == 0 {
            (differences, body) = replay(&alpha, &recording, &names).await;
        }
        if index == *HELD.end() {
            alpha.hold_tasks(false);
        }
        if !HELD.contains(&index) || index == *HELD.end() {
            alpha.idle().await;
        }
        if let (Some(task), Some(upid)) = (&recording.task, body["data"].as_str()) {
            differences.extend(ended(&alpha, task, upid).await);
            learn(&alpha, &recording, upid, &mut names).await;
        }
        found.extend(differences.into_iter().map(|difference| (request.clone(), difference)));
    }
    println!(
        "compared {compared} exchanges, {} differences, {absent} concern no endpoint of the lab",
        found.len()
    );
    assert!(compared >= 300, "only {compared} recordings concern the lab");
    only_known(&found, include_str!("data/exchange-differences.json"));
}

/// How the end of a task differs.
async fn ended(cluster: &LabCluster, task: &Value, upid: &str) -> Option<String> {
    let kind = |upid: &str| upid.split(':').skip(5).take(2).collect::<Vec<_>>().join(":");
    let recorded = kind(task["upid"].as_str().unwrap());
    if recorded != kind(upid) {
        return Some(format!("the task is {} and not {recorded}", kind(upid)));
    }
    let exit = common::exit_of(cluster, upid).await;
    let wanted = task["exitstatus"].as_str()?;
    (timeless(&exit) != timeless(wanted)).then(|| format!("the task ended {exit:?} and not {wanted:?}"))
}

/// Remembers under which name the lab made the backup that PVE had made under another.
async fn learn(cluster: &LabCluster, recording: &Recording, upid: &str, names: &mut Names) {
    let archive = |line: &str| {
        let path = line.strip_prefix("INFO: creating vzdump archive '")?.strip_suffix('\'')?;
        Some(path.rsplit('/').next()?.to_owned())
    };
    let Some(pve) = recording.task_log.iter().flatten().find_map(|line| archive(line)) else { return };
    let node = upid.split(':').nth(1).unwrap();
    let got =
        common::call(cluster, "GET", &format!("/nodes/{node}/tasks/{upid}/log?limit=0"), "").await.data();
    let lines = got.as_array().unwrap();
    if let Some(lab) = lines.iter().find_map(|line| archive(line["t"].as_str().unwrap())) {
        names.insert(pve, lab);
    }
}
