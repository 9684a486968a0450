//! The security groups of the cluster; their rules are in the sibling for rules.

use serde_json::json;

use crate::api::handlers::Call;
use crate::api::handlers::firewall::{digest, unchanged};
use crate::api::reply::{Answer, Refusal};
use crate::config::SecurityGroupConfig;
use crate::state::firewall::Scope;

pub(crate) fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let groups = &call.state.firewalls.cluster().groups;
    let rows = groups.iter().map(|group| {
        let mut row = json!({ "group": group.group, "digest": digest(groups) });
        if let Some(comment) = &group.comment {
            row["comment"] = json!(comment);
        }
        row
    });
    Ok(Answer::Data(rows.collect()))
}

/// Creates a group, or renames or comments one (`rename` names the group that there is).
pub(crate) fn create(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let name = call.get("group").unwrap_or_default().to_owned();
    let comment = call.get("comment").map(str::to_owned);
    let rename = call.get("rename").map(str::to_owned);
    let firewall = call.state.firewalls.cluster();
    let current = digest(&firewall.groups);
    let taken = firewall.group(&name).is_some();
    match rename {
        Some(old) => {
            unchanged(call, &current)?;
            if call.state.firewalls.cluster().group(&old).is_none() {
                return Err(Refusal::parameter("rename", format!("Security group '{old}' does not exist")));
            }
            if old != name && taken {
                let text = format!("Security group '{name}' already exists");
                return Err(Refusal::parameter("group", text));
            }
            let firewall = call.state.firewalls.of_mut(&Scope::Cluster);
            for group in firewall.groups.iter_mut().filter(|group| group.group == old) {
                group.group.clone_from(&name);
                if comment.is_some() {
                    group.comment.clone_from(&comment);
                }
            }
        }
        None if taken => {
            return Err(Refusal::parameter("group", format!("Security group '{name}' already exists")));
        }
        None => call.state.firewalls.of_mut(&Scope::Cluster).groups.push(SecurityGroupConfig {
            group: name,
            comment,
            rules: Vec::new(),
        }),
    }
    Ok(Answer::Changed)
}

pub(crate) fn delete(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let name = call.get("group").unwrap_or_default().to_owned();
    if call.state.firewalls.cluster().group(&name).is_some_and(|group| !group.rules.is_empty()) {
        return Err(Refusal::die(format!("Security group '{name}' is not empty")));
    }
    call.state.firewalls.of_mut(&Scope::Cluster).groups.retain(|group| group.group != name);
    Ok(Answer::Changed)
}
