//! Reads of firewalls: the cluster's, a node's, a guest's, a security group's.

use proxmox_api::{
    FirewallAlias, FirewallGroup, FirewallOptions, FirewallRule, FirewallScope, IpSet, IpSetEntry, IpSetName,
    NodeName,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::args::{ClusterArgs, GuestArgs, NodeArgs, id};
use super::cluster_of;
use super::nodes::explained;
use super::paging::Paging;
use super::power::guest_of;
use super::table::{Table, flag, integer, object, text};
use crate::catalog::{HandlerResult, Target};
use crate::redact;
use crate::stack::{CallContext, ToolFailure};

/// Rules, in the order they apply.
pub static RULES: Table<FirewallRule> = Table(&[
    integer("pos", "from 0; shifts when rules are added or removed", |rule| rule.pos.map(Into::into)),
    text("type", "`in`, `out`, `forward`, or `group`", |rule| rule.kind.clone()),
    text("action", "ACCEPT, DROP, REJECT, or a security group", |rule| rule.action.clone()),
    flag("enable", "in force", |rule| rule.enable.or_default(false)),
    text("macro", "", |rule| rule.macro_name.clone()),
    text("proto", "", |rule| rule.proto.clone()),
    text("source", "", |rule| rule.source.clone()),
    text("dest", "", |rule| rule.dest.clone()),
    text("sport", "", |rule| rule.sport.clone()),
    text("dport", "", |rule| rule.dport.clone()),
    text("icmp_type", "", |rule| rule.icmp_type.clone()),
    text("iface", "", |rule| rule.iface.clone()),
    text("log", "", |rule| rule.log.clone()),
    text("comment", "", |rule| comment(rule.comment.as_deref())),
    object("errors", "what PVE finds wrong, by field: the rule has no effect", |rule| {
        let errors = rule.errors.iter().map(|(field, problem)| (field.clone(), problem.clone().into()));
        (!rule.errors.is_empty()).then(|| errors.collect())
    }),
]);

/// Aliases.
pub static ALIASES: Table<FirewallAlias> = Table(&[
    text("name", "", |alias| Some(alias.name.to_string())),
    text("cidr", "", |alias| alias.cidr.clone()),
    integer("ipversion", "4 or 6", |alias| alias.ipversion),
    text("comment", "", |alias| comment(alias.comment.as_deref())),
]);

/// IP sets.
pub static IPSETS: Table<IpSet> = Table(&[
    text("name", "", |set| Some(set.name.to_string())),
    text("comment", "", |set| comment(set.comment.as_deref())),
]);

/// Members of an IP set.
pub static ENTRIES: Table<IpSetEntry> = Table(&[
    text("cidr", "address, network or alias", |entry| Some(entry.cidr.clone())),
    flag("nomatch", "an exception to the set", |entry| entry.nomatch.or_default(false)),
    text("comment", "", |entry| comment(entry.comment.as_deref())),
]);

/// Security groups.
pub static GROUPS: Table<FirewallGroup> = Table(&[
    text("group", "", |group| Some(group.group.to_string())),
    text("comment", "", |group| comment(group.comment.as_deref())),
]);

/// Options. PVE leaves out what has its default; what matters is filled in.
pub static OPTIONS: Table<(FirewallScope, FirewallOptions)> = Table(&[
    flag("enable", "whether the firewall is on; PVE's default where not set", |(scope, options)| {
        options.enable.or_default(matches!(scope, FirewallScope::Node(_)))
    }),
    text("policy_in", "", |(scope, options)| policy(scope, options.policy_in.as_deref(), "DROP")),
    text("policy_out", "", |(scope, options)| policy(scope, options.policy_out.as_deref(), "ACCEPT")),
    text("policy_forward", "", |(_, options)| options.policy_forward.clone()),
    text("digest", "PVE's digest of these options", |(_, options)| {
        options.digest.as_ref().map(ToString::to_string)
    }),
    object("options", "those that are set, by PVE's names", |(_, options)| {
        let set = options.json.iter().filter(|(name, _)| name.as_str() != "digest");
        Some(set.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<String, Value>>())
    }),
]);

fn policy(scope: &FirewallScope, set: Option<&str>, default: &str) -> Option<String> {
    // A node's firewall takes the cluster's policies.
    let default = (!matches!(scope, FirewallScope::Node(_))).then_some(default);
    set.or(default).map(str::to_owned)
}

fn comment(text: Option<&str>) -> Option<String> {
    text.map(redact::free_text)
}

/// Arguments of a tool on one security group.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Name of the security group.
    pub group: String,
}

/// Arguments of a tool on one IP set of the cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Name of the IP set.
    pub ipset: String,
}

/// Arguments of a tool on one IP set of a guest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestSetArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Name of the IP set.
    pub ipset: String,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
}

/// Whose firewall a call is about, by its arguments.
trait Scoped {
    fn scope(&self, target: &Target) -> Result<FirewallScope, ToolFailure>;
}

impl Scoped for ClusterArgs {
    fn scope(&self, _target: &Target) -> Result<FirewallScope, ToolFailure> {
        Ok(FirewallScope::Cluster)
    }
}

impl Scoped for NodeArgs {
    fn scope(&self, _target: &Target) -> Result<FirewallScope, ToolFailure> {
        Ok(FirewallScope::Node(id("node", &self.node)?))
    }
}

impl Scoped for GuestArgs {
    fn scope(&self, target: &Target) -> Result<FirewallScope, ToolFailure> {
        Ok(FirewallScope::Guest(guest_of(target)?.1.at.clone()))
    }
}

impl Scoped for GroupArgs {
    fn scope(&self, _target: &Target) -> Result<FirewallScope, ToolFailure> {
        Ok(FirewallScope::Group(id("group", &self.group)?))
    }
}

/// An answer for a page, or why there is none. Where a node was asked that the cluster does not have, the names it has.
async fn answer<T>(
    target: &Target,
    scope: &FirewallScope,
    asked: Result<T, proxmox_api::Error>,
) -> Result<T, ToolFailure> {
    match (asked, scope) {
        (Ok(answer), _) => Ok(answer),
        (Err(error), FirewallScope::Node(node)) => {
            let node: &NodeName = node;
            Err(explained(cluster_of(target)?, node, error).await)
        }
        (Err(error), _) => Err(error.into()),
    }
}

async fn rules(target: &Target, args: &impl Scoped, paging: &Paging) -> HandlerResult {
    let scope = args.scope(target)?;
    let asked = cluster_of(target)?.client.firewall_rules(&scope).await;
    let mut listing = answer(target, &scope, asked).await?;
    // Rules apply in this order, so no other would do.
    listing.items.sort_by_key(|rule| rule.pos.unwrap_or(u32::MAX));
    RULES.page(&listing.items, listing.skipped, paging)
}

async fn options(target: &Target, args: &impl Scoped) -> HandlerResult {
    let scope = args.scope(target)?;
    let asked = cluster_of(target)?.client.firewall_options(&scope).await;
    let options = answer(target, &scope, asked).await?;
    Ok(Value::Object(OPTIONS.record(&(scope, options))))
}

async fn aliases(target: &Target, args: &impl Scoped, paging: &Paging) -> HandlerResult {
    let scope = args.scope(target)?;
    let mut listing = cluster_of(target)?.client.firewall_aliases(&scope).await?;
    listing.items.sort_by(|a, b| a.name.cmp(&b.name));
    ALIASES.page(&listing.items, listing.skipped, paging)
}

async fn ipsets(target: &Target, args: &impl Scoped, paging: &Paging) -> HandlerResult {
    let scope = args.scope(target)?;
    let mut listing = cluster_of(target)?.client.ipsets(&scope).await?;
    listing.items.sort_by(|a, b| a.name.cmp(&b.name));
    IPSETS.page(&listing.items, listing.skipped, paging)
}

async fn entries(target: &Target, scope: FirewallScope, ipset: &str, paging: &Paging) -> HandlerResult {
    let ipset: IpSetName = id("ipset", ipset)?;
    let mut listing = cluster_of(target)?.client.ipset_entries(&scope, &ipset).await?;
    listing.items.sort_by(|a, b| a.cidr.cmp(&b.cidr));
    ENTRIES.page(&listing.items, listing.skipped, paging)
}

/// `get_cluster_firewall_rules`.
pub async fn cluster_rules(
    _ctx: &CallContext,
    target: &Target,
    args: ClusterArgs,
    paging: &Paging,
) -> HandlerResult {
    rules(target, &args, paging).await
}

/// `get_cluster_firewall_options`.
pub async fn cluster_options(_ctx: &CallContext, target: &Target, args: ClusterArgs) -> HandlerResult {
    options(target, &args).await
}

/// `list_firewall_security_groups`.
pub async fn groups(
    _ctx: &CallContext,
    target: &Target,
    _args: ClusterArgs,
    paging: &Paging,
) -> HandlerResult {
    let mut listing = cluster_of(target)?.client.security_groups().await?;
    listing.items.sort_by(|a, b| a.group.cmp(&b.group));
    GROUPS.page(&listing.items, listing.skipped, paging)
}

/// `get_firewall_security_group_rules`.
pub async fn group_rules(
    _ctx: &CallContext,
    target: &Target,
    args: GroupArgs,
    paging: &Paging,
) -> HandlerResult {
    rules(target, &args, paging).await
}

/// `list_firewall_ipsets`.
pub async fn cluster_ipsets(
    _ctx: &CallContext,
    target: &Target,
    args: ClusterArgs,
    paging: &Paging,
) -> HandlerResult {
    ipsets(target, &args, paging).await
}

/// `get_firewall_ipset_entries`.
pub async fn cluster_entries(
    _ctx: &CallContext,
    target: &Target,
    args: SetArgs,
    paging: &Paging,
) -> HandlerResult {
    entries(target, FirewallScope::Cluster, &args.ipset, paging).await
}

/// `list_firewall_aliases`.
pub async fn cluster_aliases(
    _ctx: &CallContext,
    target: &Target,
    args: ClusterArgs,
    paging: &Paging,
) -> HandlerResult {
    aliases(target, &args, paging).await
}

/// `get_node_firewall_rules`.
pub async fn node_rules(
    _ctx: &CallContext,
    target: &Target,
    args: NodeArgs,
    paging: &Paging,
) -> HandlerResult {
    rules(target, &args, paging).await
}

/// `get_node_firewall_options`.
pub async fn node_options(_ctx: &CallContext, target: &Target, args: NodeArgs) -> HandlerResult {
    options(target, &args).await
}

/// `get_guest_firewall_rules`.
pub async fn guest_rules(
    _ctx: &CallContext,
    target: &Target,
    args: GuestArgs,
    paging: &Paging,
) -> HandlerResult {
    rules(target, &args, paging).await
}

/// `get_guest_firewall_options`.
pub async fn guest_options(_ctx: &CallContext, target: &Target, args: GuestArgs) -> HandlerResult {
    options(target, &args).await
}

/// `list_guest_firewall_aliases`.
pub async fn guest_aliases(
    _ctx: &CallContext,
    target: &Target,
    args: GuestArgs,
    paging: &Paging,
) -> HandlerResult {
    aliases(target, &args, paging).await
}

/// `list_guest_firewall_ipsets`.
pub async fn guest_ipsets(
    _ctx: &CallContext,
    target: &Target,
    args: GuestArgs,
    paging: &Paging,
) -> HandlerResult {
    ipsets(target, &args, paging).await
}

/// `get_guest_firewall_ipset_entries`.
pub async fn guest_entries(
    _ctx: &CallContext,
    target: &Target,
    args: GuestSetArgs,
    paging: &Paging,
) -> HandlerResult {
    let scope = FirewallScope::Guest(guest_of(target)?.1.at.clone());
    entries(target, scope, &args.ipset, paging).await
}
