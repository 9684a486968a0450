//! The shape that the middle layers share: consume a call at one stage, yield it at the next, or refuse.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde_json::Value;
use tower::{Layer, Service};

use super::call::Call;
use super::failure::ToolFailure;

/// The future of every layer: one allocation a layer, for a stack that can be read.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Value, ToolFailure>> + Send>>;

/// One stage of the way.
pub trait Step<In>: Clone + Send + Sync + 'static {
    /// The stage it yields.
    type Out: Send + 'static;

    /// Consumes the call or refuses it.
    fn step(&self, call: Call<In>) -> impl Future<Output = Result<Call<Self::Out>, ToolFailure>> + Send;
}

/// Makes a tower layer of a [`Step`].
#[derive(Debug, Clone)]
pub(super) struct StepLayer<T>(pub T);

impl<T: Clone, S> Layer<S> for StepLayer<T> {
    type Service = StepService<T, S>;

    fn layer(&self, inner: S) -> Self::Service {
        StepService { step: self.0.clone(), inner }
    }
}

/// Runs a [`Step`] and hands its result to the service within.
#[derive(Debug, Clone)]
pub(super) struct StepService<T, S> {
    step: T,
    inner: S,
}

impl<T, S, In> Service<Call<In>> for StepService<T, S>
where
    T: Step<In>,
    In: Send + 'static,
    S: Service<Call<T::Out>, Response = Value, Error = ToolFailure, Future = CallFuture>
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

    fn call(&mut self, call: Call<In>) -> CallFuture {
        // The readiness that was polled belongs to `self.inner`: take that one along and leave the clone behind.
        let fresh = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        let step = self.step.clone();
        Box::pin(async move {
            let next = step.step(call).await?;
            ready.call(next).await
        })
    }
}
