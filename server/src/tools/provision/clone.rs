//! `clone_vm`.

use authz::Permit;
use proxmox_api::{CloneMode, CloneOptions, NodeName, StorageId, Vmid};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{free_place, pool, wrong};
use crate::catalog::{self, HandlerResult, Target};
use crate::stack::{CallContext, ToolFailure};
use crate::tools::args::id;
use crate::tools::power::guest_of;
use crate::tools::routine::{How, Routine};

/// Its name: the rule that the new number is decided under, too.
pub const NAME: &str = "clone_vm";

/// Arguments of `clone_vm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest to clone.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless that guest is on this node.
    pub node: Option<String>,
    /// The clone's number, which no guest may have.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub newid: u32,
    /// The clone's name, a DNS name.
    pub name: Option<String>,
    /// The snapshot to clone instead of the present state.
    pub snapname: Option<String>,
    /// The storage for a full clone's disks; where the original's are when omitted.
    pub storage: Option<String>,
    /// The node to make it on, with all disks on shared storage; the original's when omitted.
    pub target_node: Option<String>,
    /// The pool to put it into; needs the scope `set_guest_pool`.
    pub pool: Option<String>,
    /// true: disks of its own; false: linked to a template's. Omitted, templates are linked to and others copied.
    pub full: Option<bool>,
    /// A note.
    pub description: Option<String>,
}

/// `clone_vm`. Two decisions: about the guest that is cloned, made before this is called, and about the number of the clone.
pub async fn clone(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: CloneArgs,
    how: How,
) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let rule = catalog::rule(NAME)
        .ok_or_else(|| ToolFailure::new("internal", "the catalog does not hold this tool"))?;
    let number = authz::Vmid::new(args.newid).ok_or_else(|| wrong("newid", "expected 100 to 999999999"))?;
    let admitted = authz::admit(&ctx.caller.principal, rule, Some(&cluster.name), ctx.now())?;
    authz::decide_new_guest(admitted, &cluster.name, number, &cluster.protection, ctx.now()).map(drop)?;
    let newid = Vmid::new(args.newid).map_err(|error| wrong("newid", error))?;
    let storage: Option<StorageId> =
        args.storage.as_deref().map(|storage| id("storage", storage)).transpose()?;
    let mode = match (args.full, storage) {
        (Some(false), Some(_)) => {
            return Err(wrong(
                "storage",
                "a linked clone has no disks of its own that could be put anywhere",
            ));
        }
        (Some(false), None) => CloneMode::Linked,
        (None, None) => CloneMode::Auto,
        (_, storage) => CloneMode::Full { storage, format: None },
    };
    let target_node: Option<NodeName> =
        args.target_node.as_deref().map(|node| id("target_node", node)).transpose()?;
    let options = CloneOptions {
        name: args.name.as_deref().map(|name| id("name", name)).transpose()?,
        description: args.description.filter(|text| !text.is_empty()),
        pool: pool(ctx, cluster, args.pool.as_deref())?,
        snapname: args.snapname.as_deref().map(|name| id("snapname", name)).transpose()?,
        target: target_node.clone().filter(|node| *node != guest.at.node),
        mode,
        bwlimit: None,
    };
    free_place(ctx, cluster, target_node.as_ref(), newid).await?;
    let routine = Routine::on(ctx, cluster, guest, how);
    let sent = routine.client().clone_guest(&guest.at, newid, &options).await;
    let mut out = routine.end(sent).await?;
    out["newid"] = args.newid.into();
    Ok(out)
}
