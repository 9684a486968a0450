//! A read of a guest that has moved, since the listing was fetched, to another node: the guest is looked for once more, and
//! everything that was decided about it is decided anew. A mutation is never sent again; its guest was looked for just before.

use std::task::{Context, Poll};

use serde_json::Value;
use tower::{Layer, Service, ServiceExt};

use super::call::{Call, Validated};
use super::failure::{GUEST_MOVED, ToolFailure};
use super::step::CallFuture;

/// Makes the layer.
#[derive(Debug, Clone)]
pub(super) struct MovedLayer;

impl<S> Layer<S> for MovedLayer {
    type Service = Moved<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Moved { inner }
    }
}

/// Runs a read again whose guest is not where it was.
#[derive(Debug, Clone)]
pub(super) struct Moved<S> {
    inner: S,
}

impl<S> Service<Call<Validated>> for Moved<S>
where
    S: Service<Call<Validated>, Response = Value, Error = ToolFailure, Future = CallFuture>
        + Clone
        + Send
        + 'static,
{
    type Response = Value;
    type Error = ToolFailure;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolFailure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call<Validated>) -> CallFuture {
        let fresh = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, fresh.clone());
        if call.stage.spec.mutates() {
            return ready.call(call);
        }
        let Call { context, stage: Validated { spec, arguments } } = &call;
        let again = Call::<Validated>::at(context.clone(), Validated { spec, arguments: arguments.clone() });
        Box::pin(async move {
            let failure = match ready.call(call).await {
                Err(failure) if failure.code() == GUEST_MOVED => failure,
                other => return other,
            };
            let context = &again.context;
            let named = context.trail.facts().cluster;
            let Some(cluster) = context.caller.snapshot.cluster(named.as_deref()) else {
                return Err(failure);
            };
            context.app.resolver.forget(cluster).await;
            fresh.oneshot(again).await
        })
    }
}
