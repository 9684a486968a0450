//! Outermost: one audit record for every call, denied and cancelled ones included.

use std::task::{Context, Poll};
use std::time::Instant;

use authz::{Permit, Tier};
use serde_json::Value;
use tower::{Layer, Service};

use super::call::{Call, CallContext, Named, Via};
use super::dispatch::audit_down;
use super::failure::ToolFailure;
use super::step::CallFuture;
use crate::audit::{Event, Record};
use crate::catalog::Catalog;

/// Records every call.
#[derive(Debug, Clone)]
pub(super) struct AuditLayer {
    /// Knows the tier of a tool by its name.
    pub catalog: std::sync::Arc<Catalog>,
}

impl<S> Layer<S> for AuditLayer {
    type Service = Audit<S>;

    fn layer(&self, inner: S) -> Audit<S> {
        Audit { inner, catalog: self.catalog.clone() }
    }
}

/// See [`AuditLayer`].
#[derive(Debug, Clone)]
pub(super) struct Audit<S> {
    inner: S,
    catalog: std::sync::Arc<Catalog>,
}

impl<S> Service<Call<Named>> for Audit<S>
where
    S: Service<Call<Named>, Response = Value, Error = ToolFailure, Future = CallFuture>,
{
    type Response = Value;
    type Error = ToolFailure;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolFailure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call<Named>) -> CallFuture {
        let context = call.context.clone();
        let spec = self.catalog.find(&call.stage.name).map(|entry| entry.spec);
        // An unknown name is the caller's text: it goes into the record's details, never into a fixed field.
        let given = spec.is_none().then(|| call.stage.name.clone());
        let mut ended = Ended {
            context,
            spec_name: spec.map_or("unknown", |s| s.name()),
            tier: spec.map(|s| s.rule.tier),
            given,
            started: Instant::now(),
            written: false,
        };
        // The record of how a change ended belongs to the change: shutting down waits for both.
        let counted = spec.filter(|s| s.mutates()).map(|_| ended.context.app.tracker.enter());
        let inner = self.inner.call(call);
        Box::pin(async move {
            let _counted = counted;
            let result = inner.await;
            ended.count(result.as_ref().map_or_else(ToolFailure::code, |_| "ok"));
            let record = match &result {
                Ok(_) => ended.record().allowed(),
                Err(failure @ ToolFailure::Denied(_)) => {
                    ended.record().denied(failure.code(), failure.audit_detail())
                }
                Err(failure) => ended.record().outcome(failure.code()).reason(failure.audit_detail()),
            };
            ended.written = true;
            if let Err(error) = ended.context.app.audit.append(record).await {
                tracing::error!(%error, tool = ended.spec_name, "a call could not be audited");
            }
            result
        })
    }
}

/// Writes the record when the call ends, whichever way: a dropped future was a caller who left, or a fault of ours.
struct Ended {
    context: CallContext,
    spec_name: &'static str,
    tier: Option<Tier>,
    given: Option<String>,
    started: Instant,
    written: bool,
}

impl Ended {
    fn count(&self, outcome: &'static str) {
        self.context.app.metrics.call(self.spec_name, outcome, self.started.elapsed());
    }

    fn record(&mut self) -> Record {
        let event = match self.tier {
            Some(Tier::Read) | None => Event::ToolCall,
            Some(Tier::Low | Tier::Destructive) => Event::ToolOutcome,
        };
        let mut record = record_of(&self.context, event, self.spec_name, self.tier.unwrap_or(Tier::Read));
        if let Some(given) = self.given.take() {
            record = record.argument("name", given);
        }
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        record.detail("micros", micros)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if self.written {
            return;
        }
        let panicking = std::thread::panicking();
        self.count(if panicking { "internal" } else { "client_gone" });
        let record = if panicking {
            self.record()
                .outcome("internal")
                .reason("the server failed while it ran the call; its log says where")
        } else {
            self.record().outcome("client_gone").reason("the caller left before the call ended")
        };
        if let Err(error) = self.context.app.audit.try_append(record) {
            tracing::error!(%error, tool = self.spec_name, "a call could not be audited");
        }
    }
}

/// Records that an operator's waiver or lab mode took a guest's protection away for this call. Nothing is done under a lift that
/// is not on record.
pub(crate) async fn record_lift(
    context: &CallContext,
    op: &str,
    tier: Tier,
    permit: &Permit,
) -> Result<(), ToolFailure> {
    let Some(lift) = permit.lift() else { return Ok(()) };
    context.trail.note(|facts| facts.protection = Some(format!("lifted: {lift}")));
    let record = record_of(context, Event::ProtectionLifted, op, tier).allowed().reason(lift.to_string());
    context.app.audit.append_durable(record).await.map(|_| ()).map_err(|_| audit_down())
}

/// A record with everything the call's trail knows.
pub(crate) fn record_of(context: &CallContext, event: Event, tool: &str, tier: Tier) -> Record {
    let facts = context.trail.facts();
    let caller = &context.caller;
    let mut record = Record::new(event)
        .principal(caller.principal.name())
        .person(caller.principal.person())
        .actor(caller.principal.actor())
        .request_id(&caller.request_id)
        .generation(caller.snapshot.generation)
        .lab_mode(caller.snapshot.lab_mode)
        .tool(tool)
        .tier(tier);
    record = match caller.via {
        Via::Http(peer) => record.peer(peer.ip()),
        Via::Stdio | Via::Host => record.detail("via", caller.via.label()),
    };
    if let Some(cluster) = facts.cluster {
        record = record.cluster(cluster);
    }
    if let Some(vmid) = facts.vmid {
        record = record.vmid(vmid);
    }
    if let Some(protection) = facts.protection {
        record = record.detail("protection", protection);
    }
    if let Some(reasons) = facts.reasons {
        record = record.detail("reasons", reasons);
    }
    // The token file vouches for these; what a client says about itself is never mixed with them.
    let provenance = caller.principal.provenance();
    for (key, value) in [
        ("token_provider", &provenance.provider),
        ("token_provider_tier", &provenance.provider_tier),
        ("token_on_behalf_of", &provenance.on_behalf_of),
    ] {
        if let Some(value) = value {
            record = record.detail(key, value.clone());
        }
    }
    if let Some(upid) = facts.upid {
        record = record.upid(upid);
    }
    if let Some(change_set) = facts.change_set {
        record = record.change_set(change_set);
    }
    record
}
