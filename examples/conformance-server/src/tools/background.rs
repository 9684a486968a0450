//! Tools that go on as tasks, where the client understands them.

use std::{collections::BTreeMap, time::Duration};

use mcp_wire::{
    InputRequired, Reply, RpcError, ToolResult,
    input::TASKS_EXTENSION,
    tasks::{TaskOptions, Tasks},
};
use serde_json::json;

use super::{
    Call, Shelf,
    asking::{field, form},
};

/// Longest a tool may be asked to compute, in seconds.
const LONGEST: u64 = 300;

fn options() -> TaskOptions {
    TaskOptions { poll_interval: Duration::from_millis(200), ..TaskOptions::default() }
}

/// The call's tasks, or the error that says that there must be some.
fn needed(call: &Call) -> Result<Tasks, RpcError> {
    let tasks = call.request.tasks.clone();
    tasks.ok_or_else(|| RpcError::missing_capability(json!({"extensions": {TASKS_EXTENSION: {}}})))
}

fn computed(seconds: u64, label: &str) -> ToolResult {
    ToolResult::text(format!("Computed for {seconds} s: {label}"))
}

fn slow_compute(call: &Call) -> Result<Reply, (u64, String)> {
    let seconds = call.arguments.get("seconds").and_then(serde_json::Value::as_u64).unwrap_or(0).min(LONGEST);
    let label = call.text("label").to_owned();
    match &call.request.tasks {
        Some(tasks) if seconds > 0 => {
            let started = tasks.start(options(), {
                let label = label.clone();
                move |task| async move {
                    task.status("computing");
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_secs(seconds)) => Ok(computed(seconds, &label)),
                        () = task.cancelled() => Err(RpcError::internal("cancelled")),
                    }
                }
            });
            started.map_err(|_| (seconds, label))
        }
        _ => Err((seconds, label)),
    }
}

pub(super) fn fill(shelf: &mut Shelf) -> anyhow::Result<()> {
    let properties = json!({"seconds": {"type": "integer", "minimum": 0}, "label": {"type": "string"}});
    shelf.tool("slow_compute", "Takes its time.", properties, &["seconds"], |call| async move {
        match slow_compute(&call) {
            Ok(started) => Ok(started),
            // Without a task the caller waits.
            Err((seconds, label)) => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
                    () = call.request.cancel.cancelled() => {}
                }
                Ok(computed(seconds, &label).into())
            }
        }
    })?;
    shelf.tool(
        "failing_job",
        "A task that ends with a tool's error.",
        json!({}),
        &[],
        |call| async move {
            needed(&call)?.start(options(), |_| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(ToolResult::error("The job failed, as it always does"))
            })
        },
    )?;
    shelf.tool(
        "protocol_error_job",
        "A task that ends with an error.",
        json!({}),
        &[],
        |call| async move {
            needed(&call)?.start(options(), |_| async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(RpcError::internal("the job broke, as it always does"))
            })
        },
    )?;
    let filename = json!({"filename": {"type": "string"}});
    shelf.tool(
        "confirm_delete",
        "A task that asks before it goes on.",
        filename,
        &[],
        |call| async move {
            let file = call.text("filename").to_owned();
            needed(&call)?.start(options(), move |task| async move {
                let question = form(&format!("Delete {file}?"), "confirm", "boolean");
                let answers = task.ask(BTreeMap::from([("confirm".to_owned(), question)])).await?;
                let confirmed =
                    answers.accepted("confirm").and_then(|fields| fields.get("confirm")?.as_bool());
                let done = if confirmed == Some(true) { "Deleted" } else { "Kept" };
                Ok(ToolResult::text(format!("{done} {file}")))
            })
        },
    )?;
    shelf.tool("multi_input", "A task that asks two things at once.", json!({}), &[], |call| async move {
        needed(&call)?.start(options(), |task| async move {
            let first = ("first".to_owned(), form("The first name?", "name", "string"));
            let second = ("second".to_owned(), form("The second name?", "name", "string"));
            let answers = task.ask(BTreeMap::from([first, second])).await?;
            let name = |key| field(&answers, key, "name").unwrap_or("nobody");
            Ok(ToolResult::text(format!("{} and {}", name("first"), name("second"))))
        })
    })?;
    shelf.tool(
        "test_tool_with_task",
        "Asks first, and then goes on as a task.",
        json!({}),
        &[],
        |call| async move {
            let tasks = needed(&call)?;
            let Some(name) = field(&call.request.input, "user_name", "name") else {
                let form = form("What is your name?", "name", "string");
                return Ok(InputRequired::new().ask("user_name", form).into());
            };
            let name = name.to_owned();
            tasks.start(options(), |_| async move { Ok(ToolResult::text(format!("Hello, {name}!"))) })
        },
    )
}
