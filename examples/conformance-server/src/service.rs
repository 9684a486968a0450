//! Which room answers which method.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use mcp_wire::{Method, Reply, Request, RpcError};

use crate::{Anyone, prompts, resources, tools::Tools};

/// A future that a room answers with.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

/// The service that `mcp-wire` calls.
#[derive(Clone)]
pub(crate) struct Service {
    tools: Arc<Tools>,
}

impl Service {
    pub(crate) fn new(tools: Arc<Tools>) -> Self {
        Self { tools }
    }
}

impl tower::Service<Request<Anyone>> for Service {
    type Response = Reply;
    type Error = RpcError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Anyone>) -> Answer {
        let answer = match &request.method {
            Method::ToolsCall { .. } => return self.tools.call(request),
            Method::ToolsList { cursor } => one_page(cursor).map(|()| self.tools.list()),
            Method::ResourcesList { cursor } => one_page(cursor).map(|()| resources::list()),
            Method::ResourceTemplatesList { cursor } => one_page(cursor).map(|()| resources::templates()),
            Method::ResourcesRead { uri } => resources::read(request.era, uri),
            // Any address may be watched, also of what is not there yet.
            Method::ResourcesSubscribe { .. } => Ok(Reply::Done),
            Method::PromptsList { cursor } => one_page(cursor).map(|()| prompts::list()),
            Method::PromptsGet { name, arguments } => prompts::get(name, arguments, &request.input),
            Method::Complete(asked) => Ok(Reply::Completion(prompts::complete(asked))),
            Method::Listen(filter) => Ok(Reply::Listening(filter.clone())),
            other => Err(RpcError::method_not_found(other.as_str())),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn one_page(cursor: &Option<String>) -> Result<(), RpcError> {
    match cursor {
        None => Ok(()),
        Some(_) => Err(RpcError::invalid_params("there is one page; leave `cursor` out")),
    }
}
