//! What a reload changed about clusters and protection.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::snapshot::Snapshot;

/// The difference as audit details: `clusters_added`, `clusters_removed`, and per cluster whose protection changed
/// the VMIDs and tags that came and went. Empty when none of that changed.
pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Map<String, Value> {
    let mut diff = Map::new();
    let names = |snapshot: &Snapshot| snapshot.clusters.keys().cloned().collect::<BTreeSet<_>>();
    let (before, after) = (names(old), names(new));
    let mut set = |key: &str, values: Vec<Value>| {
        if !values.is_empty() {
            diff.insert(key.to_owned(), Value::Array(values));
        }
    };
    set("clusters_added", after.difference(&before).map(|name| json!(name)).collect());
    set("clusters_removed", before.difference(&after).map(|name| json!(name)).collect());
    let mut protection = Map::new();
    for name in before.intersection(&after) {
        let (Some(old), Some(new)) = (old.clusters.get(name), new.clusters.get(name)) else { continue };
        let (old, new) = (&old.protection, &new.protection);
        let mut change = Map::new();
        let mut note = |key: &str, values: Vec<Value>| {
            if !values.is_empty() {
                change.insert(key.to_owned(), Value::Array(values));
            }
        };
        note("vmids_added", new.vmids().difference(old.vmids()).map(|vmid| json!(vmid.value())).collect());
        note("vmids_removed", old.vmids().difference(new.vmids()).map(|vmid| json!(vmid.value())).collect());
        note("tags_added", new.tags().difference(old.tags()).map(|tag| json!(tag)).collect());
        note("tags_removed", old.tags().difference(new.tags()).map(|tag| json!(tag)).collect());
        if !change.is_empty() {
            protection.insert(name.clone(), Value::Object(change));
        }
    }
    if !protection.is_empty() {
        diff.insert("protection".to_owned(), Value::Object(protection));
    }
    diff
}
