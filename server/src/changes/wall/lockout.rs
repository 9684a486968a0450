//! Would a change cut off those who administer the cluster?

use std::collections::BTreeMap;

use proxmox_api::FirewallScope;

use super::request::{Object, Resolved, Verb, WallChange};
use super::{Listed, texts};
use crate::config::Cluster;

/// PVE's web interface and API.
const MANAGEMENT_PORT: u16 = 8006;

type Row = BTreeMap<String, String>;

/// A warning for the approver, where a change of the cluster's or a node's firewall would leave nothing that lets management in, or
/// where that cannot be told.
pub(super) async fn warning(
    cluster: &Cluster,
    change: &WallChange,
    scope: &FirewallScope,
    now: &Listed,
    resolved: &Resolved,
) -> Option<String> {
    if !matches!(scope, FirewallScope::Cluster | FirewallScope::Node(_)) {
        return None;
    }
    let (rules, options): (Vec<Row>, Row) = match change.object {
        Object::Rule => match cluster.client.firewall_options(scope).await {
            Ok(options) => (now.rows.iter().map(texts).collect(), texts(&options.json)),
            Err(_) => return Some(UNREADABLE.to_owned()),
        },
        Object::Options => match cluster.client.firewall_rules(scope).await {
            Ok(rules) => (
                rules.items.iter().map(|rule| texts(&rule.json)).collect(),
                now.rows.first().map(texts).unwrap_or_default(),
            ),
            Err(_) => return Some(UNREADABLE.to_owned()),
        },
        // A name that rules may use: whoever approves must look at the rules.
        _ if change.verb != Verb::Create => {
            return Some(
                "rules that name this let other traffic through afterwards; see that management stays let in"
                    .to_owned(),
            );
        }
        _ => return None,
    };
    let (rules_after, options_after) = after(change, &rules, &options, resolved);
    let is_node = matches!(scope, FirewallScope::Node(_));
    let (before, afterwards) =
        (lets_in(&rules, &options, is_node), lets_in(&rules_after, &options_after, is_node));
    (before && !afterwards).then(|| {
        format!(
            "this may lock administrators out: afterwards no rule of this list lets anybody in to port {MANAGEMENT_PORT} while the \
             firewall is on"
        )
    })
}

const UNREADABLE: &str = "whether this locks administrators out could not be read";

/// Rules and options as the change makes them.
fn after(change: &WallChange, rules: &[Row], options: &Row, resolved: &Resolved) -> (Vec<Row>, Row) {
    let mut rules = rules.to_vec();
    let place = |pos: Option<u32>| pos.and_then(|pos| usize::try_from(pos).ok());
    match (change.object, change.verb) {
        (Object::Options, _) => return (rules, resolved.after.clone().unwrap_or_default()),
        (_, Verb::Create) => rules.insert(0, resolved.after.clone().unwrap_or_default()),
        (_, Verb::Update) => {
            if let (Some(slot), Some(rule)) =
                (place(change.pos).and_then(|pos| rules.get_mut(pos)), &resolved.after)
            {
                *slot = rule.clone();
            }
        }
        (_, Verb::Delete) => {
            if let Some(pos) = place(change.pos).filter(|pos| *pos < rules.len()) {
                rules.remove(pos);
            }
        }
        (_, Verb::Move) => {
            if let (Some(from), Some(to)) =
                (place(change.pos).filter(|pos| *pos < rules.len()), place(change.before))
            {
                let rule = rules.remove(from);
                let to = if to > from { to.saturating_sub(1) } else { to };
                rules.insert(to.min(rules.len()), rule);
            }
        }
    }
    (rules, options.clone())
}

/// Whether somebody gets in to the management port: the first rule that meets its traffic decides, then the policy. A rule that
/// takes some sources only drops nobody else.
fn lets_in(rules: &[Row], options: &Row, is_node: bool) -> bool {
    let get = |row: &Row, key: &str| row.get(key).cloned().unwrap_or_default();
    // Off by default for the cluster, on for a node.
    let on = options.get("enable").map_or(is_node, |value| value != "0");
    if !on {
        return true;
    }
    for rule in rules.iter().filter(|rule| get(rule, "enable") == "1" && get(rule, "type") == "in") {
        let proto = get(rule, "proto");
        let meets = rule.get("macro").is_none()
            && (proto.is_empty() || proto == "tcp")
            && rule.get("dport").is_none_or(|ports| has_port(ports, MANAGEMENT_PORT));
        if !meets {
            continue;
        }
        match get(rule, "action").as_str() {
            "ACCEPT" => return true,
            _ if rule.contains_key("source") || rule.contains_key("iface") || rule.contains_key("dest") => {}
            _ => return false,
        }
    }
    // A node has no policy of its own: the cluster's decides there, and drops unless it says otherwise.
    get(options, "policy_in") == "ACCEPT"
}

fn has_port(ports: &str, wanted: u16) -> bool {
    ports.split(',').any(|part| match part.split_once(':') {
        Some((from, to)) => {
            matches!((from.trim().parse::<u16>(), to.trim().parse::<u16>()), (Ok(from), Ok(to)) if (from..=to).contains(&wanted))
        }
        None => part.trim() == wanted.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fields: &[(&str, &str)]) -> Row {
        fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_first_rule_that_meets_management_decides() {
        let on = row(&[("enable", "1"), ("policy_in", "DROP")]);
        let accept = row(&[
            ("type", "in"),
            ("action", "ACCEPT"),
            ("enable", "1"),
            ("proto", "tcp"),
            ("dport", "22,8000:8010"),
        ]);
        let off = row(&[("type", "in"), ("action", "ACCEPT"), ("enable", "0")]);
        let drop_all = row(&[("type", "in"), ("action", "DROP"), ("enable", "1")]);
        let drop_some = row(&[("type", "in"), ("action", "DROP"), ("enable", "1"), ("source", "+bad")]);
        let ping = row(&[("type", "in"), ("action", "ACCEPT"), ("enable", "1"), ("macro", "Ping")]);
        let lets = |rules: &[Row]| lets_in(rules, &on, false);
        assert!(lets(&[drop_some.clone(), accept.clone()]));
        assert!(!lets(&[drop_all.clone(), accept.clone()]));
        assert!(!lets(&[off, ping]));
        assert!(!lets(&[]));
        assert!(lets_in(&[drop_all], &row(&[]), false), "the cluster's firewall is off by default");
        assert!(lets_in(&[], &row(&[("enable", "1"), ("policy_in", "ACCEPT")]), false));
    }
}
