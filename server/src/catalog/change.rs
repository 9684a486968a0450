//! A routine change, in as few words as one has: what is true of every one of them is said here, once.

use authz::{Tier, ToolRule};
use mcp_wire::tool::SchemaError;
use schemars::JsonSchema;
use serde_json::Value;

use super::schema::schema_of;
use super::spec::{Addresses, Handler, Hints, ToolSpec};
use crate::tools::routine::How;

/// The row of a routine change.
pub(super) struct Change {
    /// Its name.
    pub name: &'static str,
    /// Human-readable name.
    pub title: &'static str,
    /// What it does, what it needs and what it refuses.
    pub description: &'static str,
    /// What it addresses.
    pub addresses: Addresses,
    /// Whether it takes a running guest, or a task of it, down.
    pub interrupts: bool,
    /// Whether it changes the guest's configuration, disks or files.
    pub writes_guest: bool,
    /// MCP annotations.
    pub hints: Hints,
    /// The PVE privileges the cluster's token needs for it.
    pub privileges: &'static [&'static str],
    /// JSON schema of the arguments: [`followed`] or [`at_once`] makes it.
    pub input: fn() -> Result<Value, SchemaError>,
    /// JSON schema of the structured result.
    pub output: fn() -> Value,
    /// The function: [`change!`] makes it.
    pub run: Handler,
}

impl Change {
    /// The tool. No `*` ever reaches it.
    pub(super) const fn tool(self) -> ToolSpec {
        ToolSpec {
            rule: ToolRule {
                name: self.name,
                tier: Tier::Low,
                interrupts: self.interrupts,
                writes_guest: self.writes_guest,
                wildcard: false,
            },
            title: self.title,
            description: self.description,
            addresses: self.addresses,
            hints: self.hints,
            privileges: self.privileges,
            input: self.input,
            output: self.output,
            approver_only: false,
            needs_transfers: false,
            handler: self.run,
        }
    }
}

/// The schema of the arguments of a change that a task makes: those of `T`, `dry_run` and `wait`.
pub(super) fn followed<T: JsonSchema>() -> Result<Value, SchemaError> {
    with_how(schema_of::<T>()?, true)
}

/// The same of a change that is made when it is answered.
pub(super) fn at_once<T: JsonSchema>() -> Result<Value, SchemaError> {
    with_how(schema_of::<T>()?, false)
}

fn with_how(mut schema: Value, waits: bool) -> Result<Value, SchemaError> {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(How::properties(waits));
    }
    Ok(schema)
}

/// A handler from `async fn(&CallContext, Permit, &Target, Args, How) -> HandlerResult`.
macro_rules! change {
    ($function:path) => {
        |ctx, permit, target, mut args| {
            Box::pin(async move {
                let how = crate::tools::routine::How::take(&mut args)?;
                $function(&ctx, permit, &target, crate::tools::parsed(args)?, how).await
            })
        }
    };
}

pub(super) use change;
