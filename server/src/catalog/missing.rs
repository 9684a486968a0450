//! What a caller lacks for a tool. Nothing lacking is what `tools/list` lists by; the same words go into `whoami`.

use authz::{Principal, Tier, ToolRule};

use super::spec::{Addresses, ToolSpec};
use crate::stack::{Caller, Via};

/// What the principal lacks for a tool or scope, as far as the token alone tells.
pub fn of_rule(principal: &Principal, rule: &ToolRule, now: jiff::Timestamp) -> Vec<String> {
    let mut missing = Vec::new();
    if principal.is_expired(now) {
        missing.push("a token that has not expired".to_owned());
    } else if principal.may_use(rule, now).is_err() {
        missing.push(format!("the scope `{}`", rule.name));
    }
    missing
}

/// What the caller lacks for a tool.
pub(super) fn of_tool(spec: &ToolSpec, caller: &Caller, now: jiff::Timestamp) -> Vec<String> {
    let principal = &caller.principal;
    let mut missing = of_rule(principal, &spec.rule, now);
    let holds = |tier: Tier| principal.grant().is_some_and(|grant| grant.actions().holds(tier));
    match spec.addresses {
        Addresses::Whole(_) if !principal.unrestricted_guests() => {
            missing.push("the guest scope `*` with the action `read`".to_owned());
        }
        Addresses::Guest(_) | Addresses::NewGuest
            if principal.grant().is_none_or(|grant| grant.guests().is_empty()) =>
        {
            missing.push("a grant that names guests".to_owned());
        }
        _ => {}
    }
    if (spec.mutates() || matches!(spec.addresses, Addresses::Guest(_))) && !holds(spec.rule.tier) {
        missing.push(format!("the action `{}`", spec.rule.tier));
    }
    if spec.approver_only {
        if principal.actor() != Some(authz::ActorKind::Human) {
            missing.push("`actor_type: human`".to_owned());
        }
        if caller.via == Via::Stdio {
            missing.push("another door than stdio, where nobody is authenticated".to_owned());
        }
    }
    missing
}
