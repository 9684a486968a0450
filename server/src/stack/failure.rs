//! Why a call did not succeed, in a form a model can act on.

use authz::Denial;
use mcp_wire::{RpcError, ToolResult};
use serde_json::{Map, Value};

/// The code of a guest that was not at the node where the cluster had listed it a moment ago.
pub(super) const GUEST_MOVED: &str = "guest_moved";

/// A refusal or a failure of one call.
#[derive(Debug)]
pub enum ToolFailure {
    /// No tool of that name: a malformed request, so a protocol error.
    UnknownTool,
    /// Authorization said no.
    Denied(Denial),
    /// Anything else a caller can act on.
    Tool(Problem),
}

/// A problem with a stable code, a message for people and models, and optional structured detail.
#[derive(Debug, Clone)]
pub struct Problem {
    /// A stable snake_case word.
    pub code: &'static str,
    /// Cause and remedy, in one or two sentences.
    pub message: String,
    /// Structured detail, merged into the result beside `code` and `message`.
    pub detail: Map<String, Value>,
}

impl ToolFailure {
    /// A problem without structured detail.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        ToolFailure::Tool(Problem { code, message: message.into(), detail: Map::new() })
    }

    /// Adds one structured detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        if let ToolFailure::Tool(problem) = &mut self {
            problem.detail.insert(key.to_owned(), value.into());
        }
        self
    }

    /// The stable code, for audit and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            ToolFailure::UnknownTool => "unknown_tool",
            ToolFailure::Denied(denial) => denial.code(),
            ToolFailure::Tool(problem) => problem.code,
        }
    }

    /// What the audit keeps: for a denial the full reason, which the caller may not see.
    pub fn audit_detail(&self) -> String {
        match self {
            ToolFailure::UnknownTool => "no such tool".to_owned(),
            ToolFailure::Denied(denial) => denial.audit_detail().to_owned(),
            ToolFailure::Tool(problem) => problem.message.clone(),
        }
    }

    /// What the caller sees, as an object with `code` and `message`.
    pub fn into_object(self) -> Map<String, Value> {
        let (mut body, code, message) = match self {
            ToolFailure::UnknownTool => (Map::new(), "unknown_tool", "no such tool".to_owned()),
            ToolFailure::Denied(denial) => (Map::new(), denial.code(), denial.public_message().to_owned()),
            ToolFailure::Tool(problem) => (problem.detail, problem.code, problem.message),
        };
        body.insert("code".to_owned(), code.into());
        body.insert("message".to_owned(), message.into());
        body
    }

    /// The words the caller sees.
    pub fn public_message(&self) -> &str {
        match self {
            ToolFailure::UnknownTool => "unknown tool; tools/list names the tools of this token",
            ToolFailure::Denied(denial) => denial.public_message(),
            ToolFailure::Tool(problem) => &problem.message,
        }
    }

    /// What the caller sees: a tool result with `isError`, or a protocol error where the request itself was wrong.
    ///
    /// # Errors
    /// An unknown tool is `-32602`.
    pub fn into_reply(self) -> Result<ToolResult, RpcError> {
        match self {
            ToolFailure::UnknownTool => Err(RpcError::invalid_params(self.public_message())),
            failure => Ok(ToolResult::error(Value::Object(failure.into_object()).to_string())),
        }
    }
}

impl From<Denial> for ToolFailure {
    fn from(denial: Denial) -> Self {
        ToolFailure::Denied(denial)
    }
}

impl From<proxmox_api::Error> for ToolFailure {
    /// PVE's own words reach the caller: it is inside its scope when a request to PVE is made for it.
    fn from(error: proxmox_api::Error) -> Self {
        use proxmox_api::ErrorKind as K;
        let (code, remedy) = match error.kind() {
            _ if error.is_missing_guest() => {
                (GUEST_MOVED, "; the guest has just been moved or removed, so nothing was done: call again")
            }
            K::Busy => ("busy", "; another task holds the lock right now, try again later"),
            K::NoQuorum => (
                "no_quorum",
                "; the cluster has no majority of its nodes, it can be read and not changed until it has",
            ),
            K::Overloaded => ("overloaded", ""),
            K::Unreachable | K::Tls => {
                ("cluster_unreachable", "; the operator can run `proxward check` and look at the cluster")
            }
            K::NodeUnreachable => ("node_unreachable", "; the node does not answer its cluster"),
            K::Timeout => ("timeout", "; try again later"),
            K::Unauthorized | K::PermissionDenied => (
                "pve_permission",
                "; the cluster's API token lacks this privilege, the operator can grant it",
            ),
            K::Parameter => ("pve_parameter", ""),
            K::NotFound => {
                ("not_found", "; nothing of that name is there, or not for this cluster's API token")
            }
            K::Unsupported => ("unsupported", "; this cluster's version of PVE does not have it"),
            K::Locked => ("locked", "; wait for the task that holds the lock"),
            _ => ("pve_error", ""),
        };
        let message = error.message().trim_end();
        let message = match error.node() {
            // The words are of a connection; which one cannot be seen from them.
            Some(node) if error.kind() == K::NodeUnreachable => {
                format!("node {node} cannot be reached from the rest of its cluster: {message}")
            }
            _ => format!("{message}{remedy}"),
        };
        let mut failure = ToolFailure::new(code, message);
        let fields = error.parameter_errors();
        if !fields.is_empty() {
            let fields: Map<String, Value> =
                fields.iter().map(|(k, v)| (k.clone(), Value::from(v.clone()))).collect();
            failure = failure.with("errors", Value::Object(fields));
        }
        failure
    }
}
