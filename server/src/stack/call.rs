//! A call and the stages it passes. Each layer consumes one stage and yields the next, so a layer that is missing or in
//! the wrong place does not compile.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use authz::Principal;
use mcp_wire::{CancelSignal, Progress};

use crate::app::App;
use crate::catalog::{Arguments, Target, ToolSpec};
use crate::config::{Cluster, Snapshot};
use crate::stack::rate::Share;

/// Who calls, by which door, under which configuration. Made by the transport, never looked up later.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The authenticated principal.
    pub principal: Arc<Principal>,
    /// How the call came in.
    pub via: Via,
    /// The configuration this call lives under, from its first step to its last.
    pub snapshot: Arc<Snapshot>,
    /// Joins this call's audit records, its log lines and its change set.
    pub request_id: String,
    /// This call's share of what its principal may run at once, given back when the call ends.
    pub share: Option<Arc<Share>>,
}

/// The door a call came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Streamable HTTP, from this peer.
    Http(SocketAddr),
    /// Standard input and output: can never approve.
    Stdio,
    /// The command line on the server's own host, with a person's token.
    Host,
}

impl Via {
    /// The peer's address as text, or `stdio`.
    pub fn label(&self) -> String {
        match self {
            Via::Http(peer) => peer.ip().to_string(),
            Via::Stdio => "stdio".to_owned(),
            Via::Host => "host".to_owned(),
        }
    }
}

/// What every layer and every handler takes first.
#[derive(Clone)]
pub struct CallContext {
    /// The server's long-lived parts.
    pub app: Arc<App>,
    /// Who calls.
    pub caller: Caller,
    /// What the layers learnt, for the audit record that the outermost layer writes.
    pub trail: Trail,
    /// The caller, while it waits.
    pub listener: Listener,
}

/// Whoever waits for the end of a call.
#[derive(Clone, Default)]
pub struct Listener {
    /// Fires when the caller no longer wants the answer; absent where the door cannot tell.
    pub cancel: Option<CancelSignal>,
    /// Where the caller asked to be told how far a call is.
    pub progress: Option<Progress>,
}

impl Listener {
    /// Tells the caller how far the call is, if it asked.
    pub fn report(&self, done: f64, total: Option<f64>, message: &str) {
        if let Some(progress) = &self.progress {
            progress.report(done, total, Some(message.to_owned()));
        }
    }

    /// Waits until the caller says that it does not want the answer any more; for ever where it cannot.
    pub async fn cancelled(&self) {
        match &self.cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("progress", &self.progress.is_some()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl CallContext {
    /// The time of day, for tokens, waivers and plans.
    pub fn now(&self) -> jiff::Timestamp {
        self.app.clock.now()
    }
}

/// Facts collected on the way through the stack.
#[derive(Debug, Clone, Default)]
pub struct Trail(Arc<Mutex<Facts>>);

/// The audit-relevant facts of one call.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The cluster addressed.
    pub cluster: Option<String>,
    /// The guest addressed, as resolved by the server.
    pub vmid: Option<u32>,
    /// Whether the guest was found protected, and by what it was lifted if it was.
    pub protection: Option<String>,
    /// Why a mutation was allowed: every step of the decision.
    pub reasons: Option<String>,
    /// The task a mutation started.
    pub upid: Option<String>,
    /// The change set concerned.
    pub change_set: Option<String>,
    /// The caller left while a change ran for it.
    pub caller_gone: bool,
}

impl Trail {
    /// Notes something.
    pub fn note(&self, write: impl FnOnce(&mut Facts)) {
        write(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What has been noted so far.
    pub fn facts(&self) -> Facts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A call at stage `S`.
#[derive(Debug)]
pub struct Call<S> {
    /// Who, where, under what.
    pub context: CallContext,
    /// What is known so far.
    pub stage: S,
}

impl<S> Call<S> {
    /// The same call at another stage.
    pub fn at<T>(context: CallContext, stage: T) -> Call<T> {
        Call { context, stage }
    }
}

/// As it came off the wire: a name and arguments nobody has looked at.
#[derive(Debug)]
pub struct Named {
    /// The tool's name, as the caller spelt it.
    pub name: String,
    /// The arguments, as the caller sent them.
    pub arguments: Arguments,
}

/// The tool exists and the arguments match its schema.
#[derive(Debug)]
pub struct Validated {
    /// The tool.
    pub spec: &'static ToolSpec,
    /// Checked arguments.
    pub arguments: Arguments,
}

/// Stage 1 passed: the token is valid, and holds the tool and the cluster.
#[derive(Debug)]
pub struct Admitted {
    /// The tool.
    pub spec: &'static ToolSpec,
    /// Checked arguments.
    pub arguments: Arguments,
    /// Stage 1's proof.
    pub admitted: authz::Admitted,
    /// The cluster addressed, where one is.
    pub cluster: Option<Arc<Cluster>>,
}

/// Stage 2 passed: the guest was resolved, the grant holds it, protection allows it or was lifted.
#[derive(Debug)]
pub struct Permitted {
    /// The tool.
    pub spec: &'static ToolSpec,
    /// Checked arguments.
    pub arguments: Arguments,
    /// Stage 2's proof.
    pub permit: authz::Permit,
    /// What is addressed.
    pub target: Target,
}
