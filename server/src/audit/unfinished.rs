//! Attempts that a crash cut off: the trail says that something was about to be sent, and nothing about how it ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use super::record::{Event, Record};

/// What each attempt is waited for, and by what the two are joined.
const PAIRS: &[(Event, Event, &str)] = &[
    (Event::ToolAttempt, Event::ToolOutcome, "request_id"),
    (Event::TransferAttempt, Event::TransferUpload, "link"),
];

/// The outcome records that a crash kept from being written, each with the outcome `unknown`. Change sets are not among them:
/// recovery finds out about those and says so itself.
///
/// Looks at the present file alone; what was attempted before a rotation had the time until then to end.
///
/// # Errors
/// The file cannot be read.
pub fn unfinished(path: &Path) -> io::Result<Vec<Record>> {
    let mut open: BTreeMap<(usize, String), Value> = BTreeMap::new();
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        // Most lines are neither; they are not worth parsing.
        if !line.contains(".attempt\"") && !line.contains("tool.outcome") && !line.contains("transfer.upload")
        {
            continue;
        }
        let Ok(record) = serde_json::from_str::<Value>(&line) else { continue };
        let event = record["event"].as_str().unwrap_or_default();
        for (pair, (attempt, outcome, key)) in PAIRS.iter().enumerate() {
            let Some(name) = record[*key].as_str() else { continue };
            if event == attempt.name() {
                open.insert((pair, name.to_owned()), record.clone());
            } else if event == outcome.name() {
                open.remove(&(pair, name.to_owned()));
            }
        }
    }
    Ok(open
        .into_iter()
        .filter_map(|((pair, name), attempt)| Some(end_of(PAIRS.get(pair)?, &name, &attempt)))
        .collect())
}

fn end_of((_, outcome, key): &(Event, Event, &str), name: &str, attempt: &Value) -> Record {
    let text = |key: &str| attempt[key].as_str().map(str::to_owned);
    let mut record = Record::new(*outcome)
        .outcome("unknown")
        .reason("the server stopped before it could record how this ended; look at the guest's task list");
    record = if *key == "link" { record.link(name) } else { record.request_id(name) };
    if let Some(principal) = text("principal") {
        record = record.principal(principal);
    }
    if let Some(person) = text("person") {
        record = record.person(person);
    }
    if let Some(tool) = text("tool") {
        record = record.tool(tool);
    }
    if let Some(cluster) = text("cluster") {
        record = record.cluster(cluster);
    }
    if let Some(vmid) = attempt["vmid"].as_u64().and_then(|vmid| u32::try_from(vmid).ok()) {
        record = record.vmid(vmid);
    }
    if let Some(set) = text("change_set") {
        record = record.change_set(set);
    }
    if let Some(seq) = attempt["seq"].as_u64() {
        record = record.detail("attempt_seq", seq);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_without_an_end_is_told_once_with_what_is_known_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let lines = [
            r#"{"event":"tool.attempt","seq":1,"request_id":"req_a","tool":"stop_vm","cluster":"alpha","vmid":101,"principal":"agent"}"#,
            r#"{"event":"tool.attempt","seq":2,"request_id":"req_b","tool":"start_vm"}"#,
            r#"{"event":"tool.outcome","seq":3,"request_id":"req_b","outcome":"ok"}"#,
            r#"{"event":"transfer.attempt","seq":4,"link":"l1","vmid":201}"#,
            r#"{"event":"transfer.attempt","seq":5,"link":"l2"}"#,
            r#"{"event":"transfer.upload","seq":6,"link":"l2","outcome":"ok"}"#,
            r#"{"event":"change.attempt","seq":7,"request_id":"req_c"}"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found = unfinished(&path).unwrap();
        let shown: Vec<Value> = found.iter().map(|record| serde_json::to_value(record).unwrap()).collect();
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert_eq!((&shown[0]["event"], &shown[0]["outcome"]), (&"tool.outcome".into(), &"unknown".into()));
        assert_eq!((&shown[0]["vmid"], &shown[0]["principal"]), (&101.into(), &"agent".into()));
        assert_eq!((&shown[1]["event"], &shown[1]["link"]), (&"transfer.upload".into(), &"l1".into()));
        let with_ends: Vec<String> =
            lines.iter().map(|line| (*line).to_owned()).chain(shown.iter().map(Value::to_string)).collect();
        std::fs::write(&path, with_ends.join("\n")).unwrap();
        assert!(unfinished(&path).unwrap().is_empty(), "the next start must not tell it again");
    }
}
