//! Every routine change over HTTP on the lab: what it sends, what it answers, and what it refuses.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../support/mod.rs"]
mod support;

mod power;
mod provision;
mod tasks;
mod upkeep;

use proxward::serve::Running;
use serde_json::Value;
use support::{AGENT, Client, Rights, Stage};

/// Every routine tool.
const TOOLS: &[&str] = &[
    "start_vm",
    "stop_vm",
    "shutdown_vm",
    "reboot_vm",
    "reset_vm",
    "suspend_vm",
    "resume_vm",
    "start_container",
    "stop_container",
    "shutdown_container",
    "restart_container",
    "create_vm",
    "create_container",
    "clone_vm",
    "download_iso",
    "resize_disk",
    "create_snapshot",
    "create_backup",
    "update_container_resources",
    "update_guest_notes_tags",
    "stop_task",
    "set_guest_pool",
    "get_guest_status",
];
const WORKER: Rights<'static> = Rights { tools: TOOLS, actions: &["read", "low"], ..AGENT };

/// A server, and a token `worker` that may do all of it.
struct Shop {
    stage: Stage,
    server: Running,
}

impl Shop {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(more: impl FnOnce(&mut Stage)) -> Self {
        let mut stage = Stage::new().await;
        stage.token("worker", WORKER);
        more(&mut stage);
        let server = stage.serve().await;
        Self { stage, server }
    }

    fn client(&self, token: &str) -> Client {
        self.stage.client(self.server.address, token)
    }

    async fn call(&self, tool: &str, mut arguments: Value) -> Result<Value, Value> {
        arguments["cluster"] = "alpha".into();
        self.client("worker").call(tool, arguments).await
    }

    /// The changes that reached the lab, as `POST /path key=value …`.
    fn sent(&self) -> Vec<String> {
        let requests = self.stage.alpha().requests();
        let changes = requests.iter().filter(|request| request.is_mutation());
        changes.map(|request| format!("{} {}", request.method, request.path)).collect()
    }
}

fn code(refused: &Value) -> &str {
    refused["code"].as_str().unwrap_or_default()
}

fn message(refused: &Value) -> &str {
    refused["message"].as_str().unwrap_or_default()
}
