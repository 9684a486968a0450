//! `authz`: a waiver file lifts what it says, or does not load.

use authz::{Vmid, WaiverSet};
use jiff::Timestamp;

use crate::json::Json;
use crate::tokens_json::check_problems;

const OPS: [&str; 3] = ["guest_destroy", "snapshot_rollback", "guest_stop"];

/// Any bytes as `waivers.json`.
pub fn waivers_json(data: &[u8]) {
    let now: Timestamp = "2026-11-30T00:00:00Z".parse().expect("a time");
    let waivers = match WaiverSet::parse(data, |op| OPS.contains(&op), now) {
        Ok((waivers, warnings)) => {
            assert!(warnings.iter().all(|w| !w.to_string().chars().any(char::is_control)), "{warnings:?}");
            waivers
        }
        Err(problems) => return check_problems(&problems),
    };
    let file = Json::parse(data).expect("a file that loads is JSON");
    assert!(!file.repeats_a_key(), "a key stands twice and the file loads");
    let Some(Json::Array(entries)) = file.get("waivers") else { panic!("a file without waivers loads") };
    assert_eq!(waivers.iter().count(), entries.len());

    for entry in entries {
        let text = |name: &str| entry.get(name).map(|value| value.text().expect("a text"));
        let (cluster, until) = (text("cluster").unwrap(), text("until").unwrap());
        let until: Timestamp = until.parse().expect("a time that loads is one");
        let Some(Json::Number(vmid)) = entry.get("vmid") else { panic!("no vmid") };
        let vmid = Vmid::new(u32::try_from(vmid.as_u64().unwrap()).unwrap()).unwrap();
        assert!(!text("reason").unwrap().trim().is_empty(), "nobody said why");
        assert!(!entry.texts("ops").unwrap().is_empty());
        // Just before its end, at its end, now.
        let last = until.checked_sub(jiff::SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MIN);
        for at in [last, until, now] {
            for op in OPS.into_iter().chain(entry.texts("ops").unwrap()).take(8) {
                for planner in ["agent", text("principal").unwrap_or("agent")] {
                    let found = waivers.find(cluster, vmid, op, planner, at).is_some();
                    let expected = entries.iter().any(|entry| covers(entry, cluster, vmid, op, planner, at));
                    assert_eq!(found, expected, "{cluster}/{} {op} by {planner} at {at}", vmid.value());
                }
            }
        }
    }
}

fn covers(entry: &Json, cluster: &str, vmid: Vmid, op: &str, planner: &str, at: Timestamp) -> bool {
    let text = |name: &str| entry.get(name).and_then(Json::text);
    text("cluster") == Some(cluster)
        && entry.get("vmid") == Some(&Json::Number(vmid.value().into()))
        && entry.texts("ops").unwrap().contains(&op)
        && text("principal").is_none_or(|principal| principal == planner)
        && at < text("until").unwrap().parse::<Timestamp>().unwrap()
}
