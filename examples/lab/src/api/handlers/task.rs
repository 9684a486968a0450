//! Tasks: lists, status, log, stop.

use serde_json::{Value, json};

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::state::now;
use crate::state::task::{Task, looks_like_upid};

/// A token sees the tasks it started itself.
fn is_own(call: &Call<'_>, task: &Task) -> bool {
    match &task.tokenid {
        Some(tokenid) => call.token == format!("{}!{tokenid}", task.user),
        None => call.token == task.user,
    }
}

/// `ok`, `warning`, `error` or `unknown`.
fn status_kind(status: &str) -> &'static str {
    match status {
        "OK" => "ok",
        "unexpected status" => "unknown",
        warnings if warnings.starts_with("WARNINGS: ") => "warning",
        _ => "error",
    }
}

pub(crate) fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let node = call.node();
    let audit = call.may(&format!("/nodes/{node}"), "Sys.Audit");
    let source = call.get("source").unwrap_or("archive");
    let statuses: Option<Vec<&str>> = call.get("statusfilter").map(|list| split_list(list).collect());
    let wanted = |task: &&Task| {
        let in_source = match source {
            "active" => task.is_running(),
            "all" => true,
            _ => !task.is_running(),
        };
        let kind = task.end.as_ref().map(|(_, status)| status_kind(status));
        in_source
            && task.node == node
            && (audit || is_own(call, task))
            && call.get("vmid").is_none_or(|vmid| vmid == task.id)
            && call.get("typefilter").is_none_or(|filter| filter == task.kind)
            && call.get("userfilter").is_none_or(|filter| task.user.contains(filter))
            && call.number("since").is_none_or(|since| task.starttime >= since)
            && call.number("until").is_none_or(|until| task.starttime <= until)
            && (!call.flag("errors") || matches!(kind, Some("error" | "unknown")))
            && statuses.as_ref().is_none_or(|statuses| kind.is_some_and(|kind| statuses.contains(&kind)))
    };
    // Newest first, and running ones before finished ones.
    let mut tasks: Vec<&Task> = call.state.tasks.iter().rev().filter(wanted).collect();
    tasks.sort_by_key(|task| !task.is_running());
    let total = tasks.len();
    let start = usize_of(call.number("start"), 0);
    let limit = match usize_of(call.number("limit"), 50) {
        0 => usize::MAX,
        limit => limit,
    };
    let rows = tasks.into_iter().skip(start).take(limit).map(|task| {
        let mut row = base(task);
        match &task.end {
            Some((at, status)) => {
                row["endtime"] = json!(at);
                row["status"] = json!(status);
            }
            None => row["status"] = json!("RUNNING"),
        }
        row
    });
    Ok(Answer::List(rows.collect(), total))
}

/// The newest tasks of all nodes that are up.
pub(crate) fn of_cluster(call: &Call<'_>) -> Result<Answer, Refusal> {
    let visible = |task: &&Task| {
        call.state.is_online(&task.node)
            && (is_own(call, task) || call.may(&format!("/nodes/{}", task.node), "Sys.Audit"))
    };
    let mut rows = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for task in call.state.tasks.iter().rev().filter(visible).take(25) {
        let mut row = json!({
            "upid": task.upid, "node": task.node, "starttime": task.starttime, "type": task.kind, "id": task.id,
            "user": task.user,
        });
        if let Some(tokenid) = &task.tokenid {
            row["tokenid"] = json!(tokenid);
        }
        if let Some((at, status)) = &task.end {
            row["endtime"] = json!(at);
            row["status"] = json!(status);
            // The newest one of a node is still a number, the others have been through a file.
            let newest = seen.insert(task.node.as_str());
            row["saved"] = if newest { json!(1) } else { json!("1") };
        }
        rows.push(row);
    }
    Ok(Answer::Data(Value::Array(rows)))
}

fn usize_of(number: Option<i64>, default: usize) -> usize {
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
}

/// The fields of lists and of the status alike.
fn base(task: &Task) -> Value {
    let mut row = json!({
        "upid": task.upid, "node": task.node, "pid": task.pid, "pstart": task.pstart, "starttime": task.starttime,
        "type": task.kind, "id": task.id, "user": task.user,
    });
    if let Some(tokenid) = &task.tokenid {
        row["tokenid"] = json!(tokenid);
    }
    row
}

/// The task of a call, if it exists, parses and may be seen.
fn find<'a>(call: &'a Call<'_>, privilege: &str) -> Result<Option<&'a Task>, Refusal> {
    let upid = call.get("upid").unwrap_or_default();
    if !looks_like_upid(upid) {
        return Err(Refusal::parameter("upid", "unable to parse worker upid"));
    }
    let task = call.state.tasks.iter().find(|task| task.upid == upid);
    // Who owns it is read from the UPID, so that it does not matter whether the task exists.
    let owner = upid.split(':').nth(7).unwrap_or_default();
    if owner != call.token {
        require(call.state, call.token, &format!("/nodes/{}", call.node()), &[privilege], false)?;
    }
    Ok(task)
}

pub(crate) fn status(call: &Call<'_>) -> Result<Answer, Refusal> {
    let Some(task) = find(call, "Sys.Audit")? else {
        return Err(Refusal::parameter("upid", "no such task"));
    };
    let mut row = base(task);
    match &task.end {
        Some((_, status)) => {
            row["status"] = json!("stopped");
            row["exitstatus"] = json!(status);
        }
        None => row["status"] = json!("running"),
    }
    Ok(Answer::Data(row))
}

pub(crate) fn log(call: &Call<'_>) -> Result<Answer, Refusal> {
    let missing = ["unable to open file - No such file or directory".to_owned()];
    let task = find(call, "Sys.Audit")?;
    let lines = task.map_or(missing.as_slice(), |task| task.log.as_slice());
    let start = usize_of(call.number("start"), 0);
    let limit = match usize_of(call.number("limit"), 50) {
        0 => usize::MAX,
        limit => limit,
    };
    let mut rows: Vec<Value> = lines
        .iter()
        .enumerate()
        .skip(start)
        .take(limit)
        .map(|(index, text)| json!({ "n": index + 1, "t": text }))
        .collect();
    if lines.is_empty() {
        // PVE has one line for a log without content.
        rows.push(json!({ "n": 1, "t": "no content" }));
    }
    Ok(Answer::List(Value::Array(rows), lines.len()))
}

pub(crate) fn stop(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let upid = find(call, "Sys.Modify")?.map(|task| task.upid.clone());
    if let Some(upid) = upid
        && let Some(task) = call.state.tasks.iter_mut().find(|task| task.upid == upid && task.is_running())
    {
        task.finish(now(), "interrupted by signal".to_owned());
        // Only a backup cleans up after itself when it is stopped; the lock of any other worker stays.
        if task.kind == "vzdump" {
            call.state.unlock(&upid);
        }
    }
    Ok(Answer::Changed)
}
