//! A small server for the tests of both transports.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "shared between test binaries")]

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use mcp_wire::{Identity, Method, Reply, Request, RpcError, ServerInfo, ToolDescriptor, ToolResult};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What the tests can see and do while a call runs.
#[derive(Default)]
pub struct Stage {
    /// Calls that reached the service.
    pub calls: AtomicUsize,
    /// Calls that saw their cancel signal.
    pub cancelled: AtomicUsize,
    /// Notified when `hold` began.
    pub holding: Notify,
    /// Lets one `hold` go.
    pub release: Notify,
    /// Notified when `hold` ended, either way.
    pub ended: Notify,
}

#[derive(Clone, Default)]
pub struct Tools(pub Arc<Stage>);

impl tower::Service<Request<String>> for Tools {
    type Response = Reply;
    type Error = RpcError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(answer(Arc::clone(&self.0), request))
    }
}

async fn answer(stage: Arc<Stage>, request: Request<String>) -> Result<Reply, RpcError> {
    let (name, arguments) = match request.method {
        Method::ToolsList { .. } => {
            let tool = ToolDescriptor::new("echo", "Echoes.", json!({"type": "object"})).unwrap();
            return Ok(Reply::Tools(vec![tool]));
        }
        Method::ToolsCall { name, arguments } => (name, arguments),
        other => return Err(RpcError::method_not_found(other.as_str())),
    };
    match name.as_str() {
        "echo" => {
            Ok(ToolResult::structured(json!({"caller": request.caller, "arguments": arguments})).into())
        }
        "scalar" => Ok(ToolResult::structured(json!([1, 2])).into()),
        "panic" => panic!("a tool that panics, on purpose"),
        "progress" => {
            for done in [0.0, 50.0, 100.0] {
                if let Some(progress) = &request.progress {
                    progress.report(done, Some(100.0), Some("working\nhard".to_owned()));
                }
                tokio::task::yield_now().await;
            }
            Ok(ToolResult::structured(json!({"asked": request.progress.is_some()})).into())
        }
        "hold" => {
            stage.holding.notify_one();
            tokio::select! {
                () = request.cancel.cancelled() => {
                    stage.cancelled.fetch_add(1, Ordering::SeqCst);
                }
                () = stage.release.notified() => {}
            }
            stage.ended.notify_one();
            Ok(ToolResult::structured(json!({"held": true})).into())
        }
        other => Err(RpcError::unknown_tool(other)),
    }
}

pub fn identity() -> Identity {
    Identity::new(ServerInfo::new("test", "1.2.3")).instructions("Be brief.")
}

/// A modern request.
pub fn modern(id: Value, method: &str, mut params: Value) -> Value {
    let meta = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A legacy request.
pub fn legacy(id: Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A call of one tool.
pub fn call(name: &str) -> Value {
    json!({"name": name, "arguments": {}})
}
