//! A read, in as few words as one has: what is true of every read is said here, once.

use authz::{Tier, ToolRule};
use mcp_wire::tool::SchemaError;
use schemars::JsonSchema;
use serde_json::Value;

use super::schema::schema_of;
use super::spec::{Addresses, Handler, READ, ToolSpec};
use crate::tools::paging::{DEFAULT_LIMIT, Paging};

/// The row of a read.
pub(super) struct Read {
    /// Its name.
    pub name: &'static str,
    /// Human-readable name.
    pub title: &'static str,
    /// What it shows, what it needs and what it refuses.
    pub description: &'static str,
    /// What it addresses.
    pub addresses: Addresses,
    /// The PVE privileges the cluster's token needs for it.
    pub privileges: &'static [&'static str],
    /// JSON schema of the arguments.
    pub input: fn() -> Result<Value, SchemaError>,
    /// JSON schema of the structured result.
    pub output: fn() -> Value,
    /// The function: [`record!`] or [`list!`] makes it.
    pub run: Handler,
}

impl Read {
    /// The tool. A read reveals no secret, so `*` reaches it.
    pub(super) const fn tool(self) -> ToolSpec {
        ToolSpec {
            rule: ToolRule {
                name: self.name,
                tier: Tier::Read,
                interrupts: false,
                writes_guest: false,
                wildcard: true,
            },
            title: self.title,
            description: self.description,
            addresses: self.addresses,
            hints: READ,
            privileges: self.privileges,
            input: self.input,
            output: self.output,
            approver_only: false,
            needs_transfers: false,
            handler: self.run,
        }
    }
}

/// The schema of a list's arguments: those of `T`, and the ones every list takes.
pub(super) fn list_of<T: JsonSchema>() -> Result<Value, SchemaError> {
    paged(schema_of::<T>()?, DEFAULT_LIMIT)
}

/// The same for tasks, of which a model seldom wants more than the newest.
pub(super) fn tasks_of<T: JsonSchema>() -> Result<Value, SchemaError> {
    paged(schema_of::<T>()?, crate::tools::tasks::DEFAULT_LIMIT)
}

fn paged(mut schema: Value, default: u64) -> Result<Value, SchemaError> {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(Paging::properties(default));
    }
    Ok(schema)
}

/// A handler from `async fn(&CallContext, &Target, Args) -> HandlerResult`.
macro_rules! record {
    ($function:path) => {
        |ctx, _permit, target, args| {
            Box::pin(async move { $function(&ctx, &target, crate::tools::parsed(args)?).await })
        }
    };
}

/// A handler from `async fn(&CallContext, &Target, Args, &Paging) -> HandlerResult`.
macro_rules! list {
    ($function:path) => {
        list!($function, crate::tools::paging::DEFAULT_LIMIT)
    };
    ($function:path, $default:expr) => {
        |ctx, _permit, target, mut args| {
            Box::pin(async move {
                let paging = crate::tools::paging::Paging::take(&mut args, $default)?;
                $function(&ctx, &target, crate::tools::parsed(args)?, &paging).await
            })
        }
    };
}

pub(super) use {list, record};
