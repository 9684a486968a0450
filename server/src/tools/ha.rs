//! Reads of HA rules. A rule is about guests, so a caller sees of it what is about its own.

use proxmox_api::{HaRule, HaSid, RuleName, Vmid};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::args::{ClusterArgs, id};
use super::cluster_of;
use super::paging::Paging;
use super::sight::Sight;
use super::table::{Table, flag, text, texts};
use crate::catalog::{HandlerResult, Target};
use crate::redact;
use crate::stack::CallContext;

/// `list_ha_rules` and `get_ha_rule`.
pub static RULES: Table<HaRule> = Table(&[
    text("rule", "", |rule| Some(rule.rule.to_string())),
    text("type", "`node-affinity` or `resource-affinity`", |rule| rule.kind.clone()),
    texts("resources", "the guests it is about, `vm:100`", |rule| rule.resources.clone()),
    texts("nodes", "with priority where set, `pve1:2`", |rule| rule.nodes.clone()),
    flag("strict", "runs nowhere else", |rule| rule.strict.value().copied()),
    text("affinity", "`positive` (together) or `negative` (apart)", |rule| rule.affinity.clone()),
    flag("disable", "switched off", |rule| rule.disable.or_default(false)),
    text("comment", "", |rule| rule.comment.as_deref().map(redact::free_text)),
]);

/// Arguments of `get_ha_rule`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// Name of the rule.
    pub rule: String,
}

/// What of a rule may be shown: nothing where it is about no guest of the caller's. Where it is about others as well, their
/// names go, and with them the comment, which may tell of them.
fn shown(sight: &Sight, mut rule: HaRule) -> Option<HaRule> {
    if sight.is_whole() {
        return Some(rule);
    }
    let all = rule.resources.len();
    rule.resources.retain(|sid| {
        let guest = sid.parse::<HaSid>().ok().map(|sid| sid.vmid);
        sight.guest_or_none(guest.map(Vmid::get))
    });
    if rule.resources.is_empty() {
        return None;
    }
    if rule.resources.len() < all {
        rule.comment = None;
    }
    Some(rule)
}

/// `list_ha_rules`.
pub async fn list(ctx: &CallContext, target: &Target, _args: ClusterArgs, paging: &Paging) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let sight = Sight::of(ctx, cluster).await?;
    let listing = cluster.client.ha_rules().await?;
    let skipped = if sight.is_whole() { listing.skipped } else { 0 };
    let mut rules: Vec<HaRule> = listing.into_iter().filter_map(|rule| shown(&sight, rule)).collect();
    rules.sort_by(|a, b| a.rule.cmp(&b.rule));
    RULES.page(&rules, skipped, paging)
}

/// `get_ha_rule`. A token that may not read every guest gets one answer for a rule that is about none of its guests and for one
/// that is not there, after the same requests.
pub async fn rule(ctx: &CallContext, target: &Target, args: RuleArgs) -> HandlerResult {
    let cluster = cluster_of(target)?;
    let name: RuleName = id("rule", &args.rule)?;
    let sight = Sight::of(ctx, cluster).await?;
    let rule = if sight.is_whole() {
        cluster.client.ha_rule(&name).await?
    } else {
        let listing = cluster.client.ha_rules().await?;
        let found = listing.into_iter().find(|rule| rule.rule == name);
        found.and_then(|rule| shown(&sight, rule)).ok_or_else(authz::Denial::guest_unknown)?
    };
    Ok(Value::Object(RULES.record(&rule)))
}
