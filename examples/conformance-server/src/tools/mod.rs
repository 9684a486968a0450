//! The tools, in one list from which `tools/list` and the dispatch both come.

mod asking;
mod background;
mod simple;
mod telling;

use std::{future::Future, pin::Pin};

use mcp_wire::{
    Method, Reply, Request, RpcError, ToolDescriptor, ToolResult, events::Events, schema::Validator,
};
use serde_json::{Map, Value, json};

use crate::{Anyone, service::Answer};

/// What a tool is given: its call, its checked arguments, and where to say that something changed.
pub(crate) struct Call {
    pub(crate) request: Request<Anyone>,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) events: Events,
}

impl Call {
    /// A string argument; empty when it was left out.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.arguments.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

type Run = Box<dyn Fn(Call) -> Answer + Send + Sync>;

struct Tool {
    descriptor: ToolDescriptor,
    validator: Validator,
    run: Run,
}

/// Collects tools.
pub(crate) struct Shelf(Vec<Tool>);

impl Shelf {
    /// A tool that takes an object of `properties`, of which those in `required` must be given.
    pub(crate) fn tool<F, R>(
        &mut self,
        name: &str,
        description: &str,
        properties: Value,
        required: &[&str],
        run: F,
    ) -> anyhow::Result<()>
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, RpcError>> + Send + 'static,
    {
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        self.described(ToolDescriptor::new(name, description, schema.clone())?, &schema, run)
    }

    /// A tool with a descriptor of its own.
    pub(crate) fn described<F, R>(
        &mut self,
        descriptor: ToolDescriptor,
        schema: &Value,
        run: F,
    ) -> anyhow::Result<()>
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, RpcError>> + Send + 'static,
    {
        let run = move |call: Call| -> Answer { Box::pin(run(call)) as Pin<Box<_>> };
        self.0.push(Tool { descriptor, validator: Validator::new(schema)?, run: Box::new(run) });
        Ok(())
    }
}

/// All tools.
pub(crate) struct Tools {
    tools: Vec<Tool>,
    events: Events,
}

impl Tools {
    pub(crate) fn new(events: Events) -> anyhow::Result<Self> {
        let mut shelf = Shelf(Vec::new());
        simple::fill(&mut shelf)?;
        telling::fill(&mut shelf)?;
        asking::fill(&mut shelf)?;
        background::fill(&mut shelf)?;
        Ok(Self { tools: shelf.0, events })
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &ToolDescriptor> {
        self.tools.iter().map(|tool| &tool.descriptor)
    }

    pub(crate) fn list(&self) -> Reply {
        Reply::Tools(self.descriptors().cloned().collect())
    }

    pub(crate) fn call(&self, request: Request<Anyone>) -> Answer {
        let ready = |outcome| Box::pin(std::future::ready(outcome));
        let Method::ToolsCall { name, arguments } = &request.method else {
            return ready(Err(RpcError::method_not_found(request.method.as_str())));
        };
        let Some(tool) = self.tools.iter().find(|tool| tool.descriptor.name() == name) else {
            return ready(Err(RpcError::unknown_tool(name)));
        };
        match tool.validator.validate(arguments.clone()) {
            Ok(arguments) => (tool.run)(Call { request, arguments, events: self.events.clone() }),
            Err(problem) => ready(Ok(Reply::Tool(problem.into()))),
        }
    }
}

/// A tool's plain answer.
pub(crate) fn text(text: impl Into<String>) -> Result<Reply, RpcError> {
    Ok(ToolResult::text(text).into())
}
