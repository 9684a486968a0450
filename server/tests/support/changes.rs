//! A stage with its server and the two clients that a change set needs.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    missing_docs,
    reason = "shared by several test programs, none of which uses all of it; a test stops at the first surprise"
)]

use proxward::serve::Running;
use serde_json::{Value, json};

use crate::support::{Client, Stage};

/// The guest that is destroyed: a stopped container.
pub const VMID: u32 = 201;
/// Another one: a stopped virtual machine.
pub const MACHINE: u32 = 104;
/// The path of the request that destroys a container.
pub const DELETE: &str = "/nodes/{node}/lxc/{vmid}";

pub struct Set {
    pub stage: Stage,
    pub server: Running,
    pub agent: Client,
    pub approver: Client,
}

impl Set {
    pub async fn new() -> Self {
        Self::of(Stage::new().await).await
    }

    pub async fn of(stage: Stage) -> Self {
        let server = stage.serve().await;
        Self::with(stage, server)
    }

    /// With a server of its own, on a stage that had one before.
    pub async fn with_server(stage: Stage) -> Self {
        let server = stage.serve().await;
        Self::with(stage, server)
    }

    pub fn with(stage: Stage, server: Running) -> Self {
        let (agent, approver) =
            (stage.client(server.address, "agent"), stage.client(server.address, "approver"));
        Self { stage, server, agent, approver }
    }

    pub fn client(&self, token: &str) -> Client {
        self.stage.client(self.server.address, token)
    }

    pub async fn plan(&self) -> Value {
        self.plan_of(VMID).await.unwrap()
    }

    pub async fn plan_of(&self, vmid: u32) -> Result<Value, Value> {
        self.agent.call("plan_proxmox_destroy", destroy(vmid)).await
    }

    pub async fn approve(&self, plan: &Value) -> Result<Value, Value> {
        self.approver.call("approve_proxmox_change_set", approval(plan)).await
    }

    pub async fn approved(&self) -> Value {
        let plan = self.plan().await;
        self.approve(&plan).await.unwrap();
        plan
    }

    pub async fn apply(&self, plan: &Value) -> Result<Value, Value> {
        self.agent.call("apply_proxmox_change_set", named(plan)).await
    }

    pub async fn show(&self, plan: &Value) -> Value {
        self.agent.call("get_proxmox_change_set", named(plan)).await.unwrap()
    }

    /// How many requests to destroy something the cluster received.
    pub fn deletes(&self) -> usize {
        self.stage.alpha().requests().iter().filter(|r| r.method == "DELETE").count()
    }

    /// Records of this event about this set, in order.
    pub fn records(&self, event: &str, plan: &Value) -> Vec<Value> {
        let of_plan = |r: &Value| r["event"] == event && r["change_set"] == plan["change_set_id"];
        self.stage.audit().into_iter().filter(of_plan).collect()
    }

    /// Has the server read its files again, after `edit` of the token file.
    pub async fn edit_tokens(&self, edit: impl FnOnce(&mut Value)) {
        let path = self.stage.path("tokens.json");
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        edit(&mut file["tokens"]);
        std::fs::write(&path, file.to_string()).unwrap();
        self.reload().await;
    }

    pub async fn reload(&self) {
        let sources = proxward::config::Sources::of(&self.stage.args(&[]));
        let reloader = proxward::config::Reloader::new(sources, self.server.app.live.clone(), None);
        reloader.reload().await.unwrap();
    }
}

pub fn destroy(vmid: u32) -> Value {
    json!({"cluster": "alpha", "vmid": vmid, "op": "destroy_guest"})
}

pub fn named(plan: &Value) -> Value {
    json!({"change_set_id": plan["change_set_id"]})
}

pub fn approval(plan: &Value) -> Value {
    let vmid: u32 = plan["target"].as_str().unwrap().strip_prefix("guest/").unwrap().parse().unwrap();
    json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": vmid})
}

pub fn code(refused: Result<Value, Value>) -> String {
    refused.unwrap_err()["code"].as_str().unwrap_or_default().to_owned()
}
