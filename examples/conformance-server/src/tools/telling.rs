//! Tools that tell the client something while they run, or afterwards.

use std::time::Duration;

use mcp_wire::Level;
use serde_json::json;

use super::{Shelf, text};

/// Between two things told, so that a client sees them apart.
const APART: Duration = Duration::from_millis(50);

pub(super) fn fill(shelf: &mut Shelf) -> anyhow::Result<()> {
    shelf.tool("test_tool_with_logging", "Logs three messages.", json!({}), &[], |call| async move {
        for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            call.request.line.log(Level::Info, Some("conformance"), &json!(message));
            tokio::time::sleep(APART).await;
        }
        text("Logging test completed")
    })?;
    shelf.tool("test_logging_tool", "Logs one message.", json!({}), &[], |call| async move {
        call.request.line.log(Level::Info, Some("conformance"), &json!("Tool called"));
        text("Logged, for those who asked to be told")
    })?;
    shelf.tool("test_tool_with_progress", "Reports progress.", json!({}), &[], |call| async move {
        for (done, message) in [(0.0, "begun"), (50.0, "half done"), (100.0, "done")] {
            if let Some(progress) = &call.request.progress {
                progress.report(done, Some(100.0), Some(message.to_owned()));
            }
            tokio::time::sleep(APART).await;
        }
        text("Progress test completed")
    })?;
    shelf.tool(
        "test_reconnection",
        "Lets the client go, and answers when it is back.",
        json!({}),
        &[],
        |call| async move {
            call.request.line.pause();
            tokio::time::sleep(2 * APART).await;
            text("Reconnection test completed")
        },
    )?;
    shelf.tool(
        "test_trigger_tool_change",
        "Says that the tools changed.",
        json!({}),
        &[],
        |call| async move {
            call.events.tools_changed();
            text("Told everyone who listens")
        },
    )?;
    shelf.tool(
        "test_trigger_prompt_change",
        "Says that the prompts changed.",
        json!({}),
        &[],
        |call| async move {
            call.events.prompts_changed();
            text("Told everyone who listens")
        },
    )
}
