//! What the trail says about change sets: how far each of them was seen to come.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::record::Event;
use crate::changes::{History, Seen};

/// Most rotated files that are looked at.
const MAX_ROTATED: u32 = 9;

/// Reads the present file, behind those before it that rotation has left beside it uncompressed (`audit.jsonl.1` is the newest).
/// Only records count that are written after the store was: an attempt is announced before it.
///
/// # Errors
/// A file cannot be read.
pub fn history(path: &Path) -> io::Result<History> {
    let mut history = History::new();
    let rotated = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    let older: Vec<PathBuf> = (1..=MAX_ROTATED).map(rotated).take_while(|file| file.is_file()).collect();
    for file in older.iter().rev() {
        read_into(&mut history, file)?;
    }
    read_into(&mut history, path)?;
    Ok(history)
}

fn read_into(history: &mut History, path: &Path) -> io::Result<()> {
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        if !line.contains("\"change.") && !line.contains("\"state.") {
            continue;
        }
        let Ok(record) = serde_json::from_str::<Value>(&line) else { continue };
        let event = record["event"].as_str().unwrap_or_default();
        if event == Event::StateRollbackAcknowledged.name() {
            // A person has looked at everything up to here.
            history.clear();
        }
        let Some(name) = record["change_set"].as_str() else { continue };
        let seen = match event {
            e if e == Event::ChangePlan.name() => Seen::Planned,
            e if e == Event::ChangeApprove.name() => Seen::Approved,
            // Written before the end is stored, and after the intent was.
            e if e == Event::ChangeOutcome.name() => Seen::Applying,
            e if e == Event::ChangeReject.name()
                || e == Event::ChangeCancel.name()
                || e == Event::ChangeResolve.name() =>
            {
                Seen::Ended
            }
            _ => continue,
        };
        let known = history.entry(name.to_owned()).or_insert(seen);
        *known = (*known).max(seen);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rotation_has_moved_away_still_counts() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("audit.jsonl");
        let write = |name: &str, lines: &[(&str, &str)]| {
            let text: String = lines
                .iter()
                .map(|(event, set)| format!("{}\n", serde_json::json!({"event": event, "change_set": set})))
                .collect();
            std::fs::write(dir.path().join(name), text).unwrap();
        };
        write("audit.jsonl", &[("change.cancel", "cs_b")]);
        write(
            "audit.jsonl.1",
            &[("change.plan", "cs_b"), ("change.plan", "cs_c"), ("change.approve", "cs_c")],
        );
        write("audit.jsonl.2", &[("change.plan", "cs_a")]);
        // Not one of the chain that is there: a gap ends it.
        write("audit.jsonl.4", &[("change.plan", "cs_z")]);
        let found: Vec<(String, Seen)> = history(&path).unwrap().into_iter().collect();
        let expected = [("cs_a", Seen::Planned), ("cs_b", Seen::Ended), ("cs_c", Seen::Approved)]
            .map(|(name, seen)| (name.to_owned(), seen));
        assert_eq!(found, expected);
        // What a person has looked at is settled, wherever the trail is cut.
        write("audit.jsonl", &[("state.rollback_acknowledged", ""), ("change.plan", "cs_d")]);
        assert_eq!(history(&path).unwrap().into_keys().collect::<Vec<_>>(), ["cs_d"]);
    }
}
