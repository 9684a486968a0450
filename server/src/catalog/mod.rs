//! The catalog: one [`ToolSpec`] a tool, split by area. `tools/list`, the scope registry, input schemas and validators, the
//! privilege table and the documentation are derived from it and from nothing else.

mod caller;
mod change;
mod changes;
mod clusters;
mod errands;
mod firewall;
mod guests;
mod ha;
pub mod missing;
mod nodes;
mod power;
mod provision;
mod read;
pub mod schema;
mod spec;
mod storage;
mod tasks;
mod transfers;
mod upkeep;

use std::collections::HashMap;

use authz::ToolRule;
use mcp_wire::schema::Validator;
use mcp_wire::tool::{Annotations, DescriptorError, ToolDescriptor};
use serde_json::Value;

pub use spec::{
    Addresses, Arguments, GuestKinds, Handler, HandlerFuture, HandlerResult, Hints, Place, Target, ToolSpec,
};

use crate::stack::Caller;

/// Every area and its tools, in the order they are listed.
static AREAS: &[(&str, &[ToolSpec])] = &[
    ("Yourself", caller::TOOLS),
    ("Clusters", clusters::TOOLS),
    ("Nodes", nodes::TOOLS),
    ("Guests", guests::TOOLS),
    ("Storages and backups", storage::TOOLS),
    ("Tasks", tasks::TOOLS),
    ("Firewall", firewall::TOOLS),
    ("High availability", ha::TOOLS),
    ("Starting and stopping", power::TOOLS),
    ("New guests", provision::TOOLS),
    ("Work on guests", upkeep::TOOLS),
    ("Images and running tasks", errands::TOOLS),
    ("Transfers", transfers::TOOLS),
    ("Change sets", changes::TOOLS),
];

/// Names that a token may hold although no tool has them: each unlocks one operation of a change set.
pub use changes::{FIREWALL_OF_GUEST, OPERATIONS, SCOPES};

/// Every tool, in listing order.
pub fn all() -> impl Iterator<Item = &'static ToolSpec> {
    AREAS.iter().flat_map(|(_, tools)| tools.iter())
}

/// Every name that may stand in a token's `tools`: tools and authorization-only scopes.
pub fn scope_names() -> impl Iterator<Item = &'static str> {
    all().map(ToolSpec::name).chain(SCOPES.iter().map(|scope| scope.name))
}

/// What each tool needs at PVE, in listing order. What an operation of a change set needs stands at the tools that apply it.
pub fn privileges() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    all().map(|spec| (spec.name(), spec.privileges))
}

/// A tool with its compiled validator.
pub struct Entry {
    /// The tool.
    pub spec: &'static ToolSpec,
    /// Its arguments' schema, compiled once.
    pub validator: Validator,
    /// What `tools/list` shows of it.
    pub descriptor: ToolDescriptor,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.spec).finish()
    }
}

impl Entry {
    /// The tool these arguments mean. `proxmox_upload_link` with nothing but a `link_id` reads an outcome: it is decided as the
    /// read it is, under the scope of its name.
    pub fn spec_for(&self, arguments: &Arguments) -> &'static ToolSpec {
        if self.spec.name() == transfers::LINK_OUTCOME.name()
            && arguments.contains_key("link_id")
            && !arguments.contains_key("vmid")
        {
            return &transfers::LINK_OUTCOME;
        }
        if self.spec.name() == changes::PLAN_ISO.name()
            && arguments.get("op").and_then(Value::as_str) == Some(crate::changes::op::DELETE_ISO)
        {
            return &changes::PLAN_ISO;
        }
        if self.spec.name() == changes::PLAN_GUEST_FIREWALL.name()
            && arguments.get("scope").and_then(Value::as_str) == Some("guest")
        {
            return &changes::PLAN_GUEST_FIREWALL;
        }
        if self.spec.name() == upkeep::BACKUP_THAT_INTERRUPTS.name() && upkeep::backup_interrupts(arguments) {
            return &upkeep::BACKUP_THAT_INTERRUPTS;
        }
        if self.spec.name() == errands::STOP_TASK_OF_NO_GUEST.name() && errands::is_of_no_guest(arguments) {
            return &errands::STOP_TASK_OF_NO_GUEST;
        }
        self.spec
    }
}

/// The tools this process serves, ready to be looked up.
#[derive(Debug)]
pub struct Catalog {
    entries: HashMap<&'static str, Entry>,
    transfers: bool,
}

impl Catalog {
    /// Compiles every tool's schema. `transfers`: whether an HTTP listener serves the transfer routes.
    ///
    /// # Errors
    /// A schema of our own that does not compile, which a test would have found.
    pub fn new(transfers: bool) -> anyhow::Result<Self> {
        let mut entries = HashMap::new();
        for spec in all() {
            let faulty =
                |error: &dyn std::fmt::Display| anyhow::anyhow!("schema of {}: {error}", spec.name());
            let input = (spec.input)().map_err(|error| faulty(&error))?;
            let validator = Validator::new(&input).map_err(|error| faulty(&error))?;
            let descriptor = descriptor(spec, input).map_err(|error| faulty(&error))?;
            entries.insert(spec.name(), Entry { spec, validator, descriptor });
        }
        Ok(Self { entries, transfers })
    }

    /// The tool of that name, where this process serves it.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).filter(|entry| self.transfers || !entry.spec.needs_transfers)
    }

    /// What this caller lacks to call a tool of this process; empty where it could.
    pub fn missing_for(&self, spec: &ToolSpec, caller: &Caller, now: jiff::Timestamp) -> Vec<String> {
        let mut missing = missing::of_tool(spec, caller, now);
        if spec.needs_transfers && !self.transfers {
            missing.push("a server with an HTTP listener (`--transfer-listen`)".to_owned());
        }
        missing
    }

    /// What `tools/list` shows this caller: only what its token could call, in the catalog's order.
    pub fn listed_for(&self, caller: &Caller, now: jiff::Timestamp) -> Vec<ToolDescriptor> {
        all()
            .filter(|spec| self.missing_for(spec, caller, now).is_empty())
            .filter_map(|spec| self.entries.get(spec.name()).map(|entry| entry.descriptor.clone()))
            .collect()
    }
}

/// A tool as MCP describes it, with this input schema.
///
/// # Errors
/// A schema that real clients refuse, which a test would have found.
pub fn descriptor(spec: &ToolSpec, input: Value) -> Result<ToolDescriptor, DescriptorError> {
    let annotations = Annotations {
        read_only_hint: spec.hints.read_only,
        destructive_hint: spec.hints.destructive,
        idempotent_hint: spec.hints.idempotent,
        open_world_hint: spec.hints.open_world,
    };
    Ok(ToolDescriptor::new(spec.name(), spec.description, input)?
        .title(spec.title)
        .output_schema((spec.output)())?
        .annotations(annotations))
}

/// The rule of a name in a token's `tools`: of a tool or of an authorization-only scope.
pub fn rule(name: &str) -> Option<&'static ToolRule> {
    all().map(|spec| &spec.rule).chain(SCOPES.iter()).find(|rule| rule.name == name)
}

/// Whether a token may hold this name: of a tool, or of an authorization-only scope.
pub fn knows_scope(name: &str) -> bool {
    scope_names().any(|known| known == name)
}

/// Whether a waiver can name this operation: an operation of a change set, or a tool that protection refuses.
pub fn knows_op(name: &str) -> bool {
    OPERATIONS.contains(&name)
        || name == upkeep::BACKUP_THAT_INTERRUPTS.name()
        || all().any(|spec| spec.rule.protection_refuses() && spec.name() == name)
}

/// An object schema for results whose fields are described in words: the shape is promised, its fields may grow.
pub(crate) fn open_object(fields: &[(&str, &str, &str)]) -> Value {
    let properties: serde_json::Map<String, Value> = fields
        .iter()
        .map(|(name, kind, what)| {
            let mut field = serde_json::json!({"type": kind});
            if !what.is_empty() {
                field["description"] = (*what).into();
            }
            ((*name).to_owned(), field)
        })
        .collect();
    serde_json::json!({"type": "object", "properties": properties})
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod page;
