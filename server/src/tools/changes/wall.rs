//! `plan_firewall_change`.

use std::collections::BTreeMap;

use authz::Permit;
use proxmox_api::{FirewallScope, NodeName, SecurityGroup};
use schemars::JsonSchema;
use serde::Deserialize;

use super::plan::{answer, no_scope, plan_on_guest, planner};
use crate::catalog::{HandlerResult, Target};
use crate::changes::{self, GuestOp, Object, Verb, WallChange, op};
use crate::stack::{CallContext, ToolFailure};
use crate::tools::power::guest_of;

/// Arguments of `plan_firewall_change`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFirewallArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Whose firewall.
    pub scope: ScopeName,
    /// scope node: the node. scope guest: optional cross-check.
    pub node: Option<String>,
    /// scope guest: the guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: Option<u32>,
    /// scope cluster, object rule: change the rules of this security group instead.
    pub group: Option<String>,
    /// What to change.
    pub object: ObjectName,
    /// How to change it; options are updated, IP sets and groups made or deleted, rules also moved.
    pub op: VerbName,
    /// object rule: its position, from 0.
    #[schemars(range(min = 0))]
    pub pos: Option<u32>,
    /// op move: the position to move it before.
    #[schemars(range(min = 0))]
    pub before: Option<u32>,
    /// The name of an alias, an IP set or a group.
    pub name: Option<String>,
    /// The address of an alias, or the member of an IP set.
    pub cidr: Option<String>,
    /// Fields to set, by PVE's names and as text: `type`, `action`, `dport`, `policy_in`, `comment`.
    pub set: Option<BTreeMap<String, String>>,
    /// Fields to unset.
    pub delete: Option<Vec<String>>,
    /// A key of your own: the same key with the same arguments answers the same change set.
    #[schemars(length(min = 1, max = 128))]
    pub idempotency_key: Option<String>,
}

/// Whose firewall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ScopeName {
    /// The cluster's.
    Cluster,
    /// A node's.
    Node,
    /// A guest's.
    Guest,
}

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ObjectName {
    /// A rule.
    Rule,
    /// The options.
    Options,
    /// An alias.
    Alias,
    /// A set of addresses.
    Ipset,
    /// A member of a set.
    IpsetEntry,
    /// A security group.
    Group,
}

/// How it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum VerbName {
    /// Made.
    Create,
    /// Changed.
    Update,
    /// Removed.
    Delete,
    /// Put elsewhere.
    Move,
}

/// `plan_firewall_change`.
pub async fn plan_firewall(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: PlanFirewallArgs,
) -> HandlerResult {
    let invalid =
        |name: &'static str, why: String| ToolFailure::new("invalid_argument", why).with("field", name);
    let change = WallChange {
        object: match args.object {
            ObjectName::Rule => Object::Rule,
            ObjectName::Options => Object::Options,
            ObjectName::Alias => Object::Alias,
            ObjectName::Ipset => Object::IpSet,
            ObjectName::IpsetEntry => Object::Entry,
            ObjectName::Group => Object::Group,
        },
        verb: match args.op {
            VerbName::Create => Verb::Create,
            VerbName::Update => Verb::Update,
            VerbName::Delete => Verb::Delete,
            VerbName::Move => Verb::Move,
        },
        pos: args.pos,
        before: args.before,
        name: args.name,
        cidr: args.cidr,
        set: args.set.unwrap_or_default(),
        delete: args.delete.unwrap_or_default().into_iter().collect(),
    };
    if !change.makes_sense() {
        return Err(invalid("op", "`op` does not fit the object: see the description of `op`".to_owned()));
    }
    if args.group.is_some() && (args.scope != ScopeName::Cluster || args.object != ObjectName::Rule) {
        return Err(invalid(
            "group",
            "`group` is for the rules of a security group, with scope cluster".to_owned(),
        ));
    }
    let cluster = match target {
        Target::Guest(..) => {
            let (cluster, guest) = guest_of(target)?;
            if args.object == ObjectName::Group {
                return Err(invalid("object", "security groups are the cluster's".to_owned()));
            }
            return plan_on_guest(ctx, cluster, guest, &GuestOp::Firewall(change), args.idempotency_key)
                .await;
        }
        Target::Cluster(cluster) => cluster,
        _ => return Err(invalid("cluster", "`cluster` is missing".to_owned())),
    };
    if args.vmid.is_some() {
        return Err(invalid("vmid", "`vmid` is for scope guest".to_owned()));
    }
    let scope = match (args.scope, args.node, args.group) {
        (ScopeName::Node, Some(node), _) => {
            let node: NodeName = node.parse().map_err(|error| invalid("node", format!("`node`: {error}")))?;
            if !matches!(args.object, ObjectName::Rule | ObjectName::Options) {
                return Err(invalid("object", "a node's firewall has rules and options only".to_owned()));
            }
            FirewallScope::Node(node)
        }
        (ScopeName::Node, None, _) => {
            return Err(invalid("node", "`node` is missing: whose firewall".to_owned()));
        }
        (_, Some(_), _) => return Err(invalid("node", "`node` is for scope node".to_owned())),
        (_, None, Some(group)) => {
            let group: SecurityGroup =
                group.parse().map_err(|error| invalid("group", format!("`group`: {error}")))?;
            FirewallScope::Group(group)
        }
        (_, None, None) => FirewallScope::Cluster,
    };
    let caller = &ctx.caller;
    let rule = op::scope(change.op(), "").ok_or_else(no_scope)?;
    let admitted = authz::admit(&caller.principal, rule, Some(&cluster.name), ctx.now())?;
    authz::permit_cluster_write(admitted, ctx.now())?;
    if !caller.principal.unrestricted_guests() {
        return Err(ToolFailure::new("authorization_failed", changes::NEEDS_ALL_GUESTS));
    }
    let planned = ctx
        .app
        .changes
        .plan_firewall_at(
            &ctx.app,
            &caller.snapshot,
            cluster,
            &scope,
            &change,
            planner(ctx, args.idempotency_key),
        )
        .await;
    answer(ctx, planned)
}
