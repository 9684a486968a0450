//! `plan_ha_rule_change`.

use std::collections::BTreeMap;

use authz::Permit;
use schemars::JsonSchema;
use serde::Deserialize;

use super::plan::{answer, no_scope, planner};
use crate::catalog::{HandlerResult, Target};
use crate::changes::{self, HaChange, op};
use crate::stack::{CallContext, ToolFailure};

/// Arguments of `plan_ha_rule_change`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanHaArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// How to change the rule.
    pub op: HaVerb,
    /// The rule's name.
    pub rule: String,
    /// `node-affinity` or `resource-affinity`; cannot be changed afterwards.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The guests, as `vm:100` or `ct:200`. They must be under HA.
    pub resources: Option<Vec<String>>,
    /// node-affinity: the nodes, with a priority where they have one: `pve1:2`.
    pub nodes: Option<Vec<String>>,
    /// node-affinity: whether the guests run nowhere else.
    pub strict: Option<bool>,
    /// resource-affinity: `positive` (together) or `negative` (apart).
    pub affinity: Option<String>,
    /// Whether the rule is switched off.
    pub disable: Option<bool>,
    /// What it is for.
    pub comment: Option<String>,
    /// A key of your own: the same key with the same arguments answers the same change set.
    #[schemars(length(min = 1, max = 128))]
    pub idempotency_key: Option<String>,
}

/// How a rule is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HaVerb {
    /// Made.
    HaRuleCreate,
    /// Changed.
    HaRuleUpdate,
    /// Removed.
    HaRuleDelete,
}

/// `plan_ha_rule_change`.
pub async fn plan_ha_rule(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: PlanHaArgs,
) -> HandlerResult {
    let Target::Cluster(cluster) = target else {
        return Err(ToolFailure::new("invalid_argument", "`cluster` is missing").with("field", "cluster"));
    };
    let flag = |on: Option<bool>| on.map(|on| u8::from(on).to_string());
    let list = |list: Option<Vec<String>>| list.map(|list| list.join(","));
    let given = [
        ("type", args.kind),
        ("resources", list(args.resources)),
        ("nodes", list(args.nodes)),
        ("strict", flag(args.strict)),
        ("affinity", args.affinity),
        ("disable", flag(args.disable)),
        ("comment", args.comment),
    ];
    let fields: BTreeMap<String, String> =
        given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    let change = HaChange {
        op: match args.op {
            HaVerb::HaRuleCreate => changes::HA_CREATE,
            HaVerb::HaRuleUpdate => changes::HA_UPDATE,
            HaVerb::HaRuleDelete => changes::HA_DELETE,
        },
        rule: args.rule,
        fields,
    };
    let caller = &ctx.caller;
    let rule = op::scope(change.op, "").ok_or_else(no_scope)?;
    let admitted = authz::admit(&caller.principal, rule, Some(&cluster.name), ctx.now())?;
    authz::permit_cluster_write(admitted, ctx.now())?;
    if !caller.principal.unrestricted_guests() {
        return Err(ToolFailure::new("authorization_failed", changes::NEEDS_ALL_GUESTS));
    }
    let planned = ctx
        .app
        .changes
        .plan_ha_rule(
            &ctx.app,
            (&caller.snapshot, &caller.principal),
            cluster,
            &change,
            planner(ctx, args.idempotency_key),
        )
        .await;
    answer(ctx, planned)
}
