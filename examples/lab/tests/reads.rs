//! The lab answers recorded reads as PVE did: same status, same reason phrase, same shape.
//!
//! What differs is listed with its reason in `tests/data/read-differences.json`; a difference that is not
//! listed fails, and so does a listed one that is gone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;

use common::replay::{Names, Recording, name, only_known, replay};
use lab::Lab;

/// Recorded reads of endpoints that the lab does not have, with the reason.
const ABSENT: &[(&str, &str)] = &[("/cluster/backup", "backup jobs are no part of what the lab simulates")];

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
        if ABSENT.iter().any(|(path, _)| recording.path == *path) {
            continue;
        }
        let cluster = if on_solo { &solo } else { &alpha };
        // The recordings of the second host follow the refused call.
        on_solo |= recording.status == 401;
        compared += 1;
        let request = name(&recording, cluster);
        let (differences, _) = replay(cluster, &recording, &Names::new()).await;
        found.extend(differences.into_iter().map(|difference| (request.clone(), difference)));
        cluster.idle().await;
    }
    assert!(compared >= 79, "only {compared} recordings concern the lab");
    only_known(&found, include_str!("data/read-differences.json"));
}
