//! The way of a call, from JSON-RPC to a tool's function and back. One middleware a file; each changes the call's type.

mod admit;
mod audit;
pub mod bearer;
mod call;
mod deadline;
mod dispatch;
mod failure;
mod moved;
mod permit;
pub mod rate;
pub(crate) mod shape;
mod step;
mod validate;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mcp_wire::{Method, Reply, Request, RpcError, ToolResult};
use serde_json::{Map, Value};
use tower::{Service, ServiceBuilder, ServiceExt};

pub(crate) use audit::{record_lift, record_of as audit_record};
pub use call::{
    Admitted, Call, CallContext, Caller, Facts, Listener, Named, Permitted, Trail, Validated, Via,
};
pub(crate) use dispatch::audit_down;
pub use failure::{Problem, ToolFailure};
pub use step::{CallFuture, Step};

use self::step::StepLayer;
use crate::app::App;

/// Longest a read may take. Clients give up at 60 s.
const READ_DEADLINE: Duration = Duration::from_secs(45);

/// Runs one call through the whole stack.
///
/// # Errors
/// Whatever refused or failed it.
pub async fn run(
    context: CallContext,
    name: String,
    arguments: Map<String, Value>,
) -> Result<Value, ToolFailure> {
    let catalog = context.app.catalog.clone();
    let stack = ServiceBuilder::new()
        // Outermost, so that refusals and callers who leave are recorded like everything else.
        .layer(audit::AuditLayer { catalog: catalog.clone() })
        // Named -> Validated: what is malformed is told before anything is decided about it.
        .layer(StepLayer(validate::Validate::new(catalog)))
        // Bounds reads only; needs the tool's tier, so it stands behind the lookup.
        .layer(deadline::DeadlineLayer { limit: READ_DEADLINE })
        // A read whose guest has moved goes through what follows a second time.
        .layer(moved::MovedLayer)
        // Validated -> Admitted: stage 1, before any cluster hears of the call.
        .layer(StepLayer(admit::Admit))
        // Admitted -> Permitted: stage 2, on facts the server fetched itself.
        .layer(StepLayer(permit::Decide))
        // The tool's function; a mutation in a task of its own, behind a durable record.
        .service(dispatch::Dispatch);
    stack.oneshot(Call::<Named>::at(context, Named { name, arguments })).await
}

/// The stack as the service that both transports call.
#[derive(Clone, Debug)]
pub struct Rpc {
    app: Arc<App>,
}

impl Rpc {
    /// Over these parts.
    pub fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

impl Service<Request<Caller>> for Rpc {
    type Response = Reply;
    type Error = RpcError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Caller>) -> Self::Future {
        let app = self.app.clone();
        let Request { caller, method, cancel, progress, .. } = request;
        Box::pin(async move {
            match method {
                Method::ToolsList { .. } => {
                    Ok(Reply::Tools(app.catalog.listed_for(&caller, app.clock.now())))
                }
                Method::ToolsCall { name, arguments } => {
                    let runs_on =
                        app.catalog.find(&name).is_some_and(|entry| entry.spec.outlives_its_caller());
                    let listener = Listener { cancel: Some(cancel.clone()), progress };
                    let context = CallContext { app, caller, trail: Trail::default(), listener };
                    let work = run(context, name, arguments);
                    let result = if runs_on {
                        work.await
                    } else {
                        tokio::select! {
                            biased;
                            result = work => result,
                            () = cancel.cancelled() => {
                                return Err(RpcError::internal("the call was cancelled by its caller"));
                            }
                        }
                    };
                    match result {
                        Ok(result) => Ok(Reply::Tool(ToolResult::structured(result))),
                        Err(failure) => failure.into_reply().map(Reply::Tool),
                    }
                }
                _ => Err(RpcError::method_not_found(method.as_str())),
            }
        })
    }
}
