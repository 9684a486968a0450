//! The end of the stack: runs the tool's function.

use std::task::{Context, Poll};

use serde_json::Value;
use tower::Service;

use super::call::{Call, Permitted, Trail};
use super::failure::ToolFailure;
use super::step::CallFuture;
use crate::audit::Event;

/// Runs handlers: reads in the caller's own future, mutations in a tracked task of their own behind a durable audit record.
#[derive(Debug, Clone)]
pub(super) struct Dispatch;

impl Service<Call<Permitted>> for Dispatch {
    type Response = Value;
    type Error = ToolFailure;
    type Future = CallFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call<Permitted>) -> CallFuture {
        let Call { context, stage: Permitted { spec, arguments, permit, target } } = call;
        if !spec.mutates() {
            let read = (spec.handler)(context, permit, target, arguments);
            return Box::pin(async move { read.await.and_then(super::shape::within_cap) });
        }
        Box::pin(async move {
            let app = context.app.clone();
            // Also for change sets: planning and approving change the store, and an apply writes an attempt of its own at the
            // step that dispatches, when it is known what will be sent.
            let mut record =
                super::audit::record_of(&context, Event::ToolAttempt, spec.name(), spec.rule.tier);
            for (name, value) in audited(&arguments) {
                record = record.argument(name, value);
            }
            app.audit.append_durable(record).await.map_err(|_| audit_down())?;
            // TK-08: a token, a grant or a protection taken back while this call was on its way must not be acted on.
            if app.live.load().generation != context.caller.snapshot.generation {
                return Err(ToolFailure::new(
                    "configuration_changed",
                    "the server's configuration was reloaded while this call was decided, so nothing was changed; call again",
                ));
            }
            // The caller's future only waits: when the caller goes away the work and its bookkeeping still finish.
            let mut presence = Presence(Some(context.trail.clone()));
            let work = (spec.handler)(context, permit, target, arguments);
            let done = app.tracker.spawn(work).await;
            presence.0 = None;
            match done {
                Ok(result) => result,
                Err(_) => Err(ToolFailure::new(
                    "internal",
                    "the call ended unexpectedly; look at the guest's task list before repeating it",
                )),
            }
        })
    }
}

/// Arguments that say what a change is, beside its guest. Text that people write and whatever may hold a secret is not among them.
const AUDITED: &[&str] = &[
    "change_set_id",
    "cores",
    "disk",
    "disk_gib",
    "dry_run",
    "filename",
    "memory",
    "mode",
    "name",
    "newid",
    "node",
    "ostemplate",
    "pool",
    "size",
    "snapname",
    "storage",
    "target_node",
    "upid",
];

fn audited(arguments: &crate::catalog::Arguments) -> impl Iterator<Item = (&'static str, Value)> {
    let plain = AUDITED.iter().filter_map(|name| {
        let value = arguments.get(*name)?;
        (value.is_string() || value.is_number() || value.is_boolean()).then(|| (*name, value.clone()))
    });
    let url = arguments.get("url").and_then(Value::as_str);
    plain.chain(url.map(|url| ("url", Value::from(crate::fetch::for_audit(url)))))
}

/// Lives as long as the caller waits: what runs for it can ask the trail whether it still does.
struct Presence(Option<Trail>);

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(trail) = &self.0 {
            trail.note(|facts| facts.caller_gone = true);
        }
    }
}

/// The refusal when the audit cannot be made durable: nothing has been sent.
pub(crate) fn audit_down() -> ToolFailure {
    ToolFailure::new(
        "audit_unavailable",
        "the audit log cannot be written, so nothing was changed; the operator must make it writable again",
    )
}
