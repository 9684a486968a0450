//! Programs in a guest.

use std::sync::Arc;

use serde_json::json;

use crate::api::handlers::Call;
use crate::api::handlers::agent::{answering, latin1};
use crate::api::reply::{Answer, Refusal};
use crate::cluster::guest_folder;
use crate::node;
use crate::state::agent::Ended;

/// Starts a program and answers with its PID. What it prints is captured until it is asked for.
pub(crate) fn start(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let guest = answering(call)?;
    let (vmid, root) = (guest.vmid, guest_folder(&call.cluster.root, guest.vmid, guest.generation));
    let argv: Vec<String> = call.get("command").unwrap_or_default().split('\0').map(str::to_owned).collect();
    let input = call.get("input-data").unwrap_or_default().to_owned();
    if input.chars().any(|char| char > '\u{ff}') {
        return Err(Refusal::die("Wide character in subroutine entry"));
    }
    let pid = call.state.programs.start(vmid);
    let cluster = Arc::clone(call.cluster);
    tokio::task::spawn_blocking(move || {
        let output = node::agent::run(&cluster, &root, &argv, &input);
        let ended = Ended { code: output.code, stdout: output.stdout, stderr: output.stderr.into_bytes() };
        cluster.state().programs.end(vmid, pid, ended);
        cluster.announce_change();
    });
    Ok(Answer::ChangedTo(json!({ "pid": pid })))
}

/// How a program is doing; its end is told once.
pub(crate) fn status(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let vmid = answering(call)?.vmid;
    let pid = call.number("pid").and_then(|pid| u64::try_from(pid).ok()).unwrap_or_default();
    let Some(status) = call.state.programs.status(vmid, pid) else {
        return Err(Refusal::die(format!("Agent error: PID {pid} does not exist")));
    };
    let Some(ended) = status else { return Ok(Answer::Data(json!({ "exited": 0 }))) };
    let mut row = json!({ "exited": 1, "exitcode": ended.code });
    for (key, bytes) in [("out-data", &ended.stdout), ("err-data", &ended.stderr)] {
        if !bytes.is_empty() {
            row[key] = json!(latin1(bytes));
        }
    }
    Ok(Answer::Data(row))
}
