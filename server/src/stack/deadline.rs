//! A bound on reads. A mutation is never cut off: dropping a request that may have been written would leave nobody knowing
//! what happened.

use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use tower::{Layer, Service};

use super::call::{Call, Validated};
use super::failure::ToolFailure;
use super::step::CallFuture;

/// Cuts reads off after `limit`.
#[derive(Debug, Clone)]
pub(super) struct DeadlineLayer {
    /// How long a read may take.
    pub limit: Duration,
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner, limit: self.limit }
    }
}

/// See [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub(super) struct Deadline<S> {
    inner: S,
    limit: Duration,
}

impl<S> Service<Call<Validated>> for Deadline<S>
where
    S: Service<Call<Validated>, Response = Value, Error = ToolFailure, Future = CallFuture>,
{
    type Response = Value;
    type Error = ToolFailure;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolFailure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call<Validated>) -> CallFuture {
        let spec = call.stage.spec;
        let limit = self.limit;
        let inner = self.inner.call(call);
        if spec.mutates() {
            return inner;
        }
        Box::pin(async move {
            tokio::time::timeout(limit, inner).await.unwrap_or_else(|_| {
                Err(ToolFailure::new(
                    "timeout",
                    format!(
                        "{} did not finish within {} s; ask for less, or try again later",
                        spec.name(),
                        limit.as_secs()
                    ),
                ))
            })
        })
    }
}
