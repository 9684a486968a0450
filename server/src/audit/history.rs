//! What the trail says about change sets: how far each of them was seen to come.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use super::record::Event;
use crate::changes::{History, Seen};

/// Reads the present file. Only records count that are written after the store was: an attempt is announced before it.
///
/// # Errors
/// The file cannot be read.
pub fn history(path: &Path) -> io::Result<History> {
    let mut history = History::new();
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
    Ok(history)
}
