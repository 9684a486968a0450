//! The PVE privileges that the cluster's token needs, and the `pveum` lines that give it exactly those.
//!
//! Everything is derived from the catalog: a tool's row names its privileges, so a new tool changes role, table and
//! `proxward doctor` without another edit.

use std::collections::BTreeMap;

use crate::catalog;

/// The oldest version of PVE that the tools are made for.
pub const OLDEST: u32 = 7;
/// The version of PVE that privileges are spelt for unless something else is known.
pub const NEWEST: u32 = 9;

/// One privilege and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The privilege in the spelling of the version that was asked for.
    pub privilege: &'static str,
    /// The tools that need it, in the catalog's order.
    pub tools: Vec<&'static str>,
    /// Whether it stays out of the role because it gives far more than the tool it is for; the operator adds it
    /// knowingly.
    pub apart: Option<&'static str>,
}

/// Privileges that are not in the role, with the reason.
const APART: &[(&str, &str)] = &[
    (
        "Datastore.Allocate",
        "on a storage it also allows to change or remove the storage itself; give it on single storages only, where images shall be deleted",
    ),
    ("Sys.Console", "it also opens shells on the nodes; give it only where HA rules shall be changed"),
    (
        "Sys.Modify",
        "it is most of a node's administration; give it only where the cluster's or a node's firewall shall be changed",
    ),
];

/// What the enabled tools need on a cluster of this major version, sorted by privilege.
pub fn needs(major: u32, enabled: impl Fn(&str) -> bool) -> Vec<Need> {
    let mut by_name: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
    for (tool, privileges) in catalog::privileges().filter(|(tool, _)| enabled(tool)) {
        for privilege in privileges.iter().flat_map(|name| spelt(name, major)) {
            let tools = by_name.entry(privilege).or_default();
            if !tools.contains(&tool) {
                tools.push(tool);
            }
        }
    }
    let apart = |name: &str| APART.iter().find(|(privilege, _)| *privilege == name).map(|(_, why)| *why);
    by_name.into_iter().map(|(privilege, tools)| Need { privilege, tools, apart: apart(privilege) }).collect()
}

/// A privilege as a version of PVE spells it: names came and went, and a role with an unknown one is refused.
fn spelt(privilege: &'static str, major: u32) -> Vec<&'static str> {
    match privilege {
        // 9 split VM.Monitor.
        _ if privilege.starts_with("VM.GuestAgent.") && major < 9 => vec!["VM.Monitor"],
        // Both came with 8. Before, downloads needed the pair, and bridges nothing.
        "Sys.AccessNetwork" if major < 8 => vec!["Sys.Audit", "Sys.Modify"],
        "SDN.Use" if major < 8 => Vec::new(),
        _ => vec![privilege],
    }
}

/// The path under which a privilege must hold so that every tool works on everything.
pub fn place(privilege: &str) -> &'static str {
    match privilege.split('.').next() {
        Some("VM") => "/vms",
        Some("Datastore") => "/storage",
        Some("SDN") => "/sdn",
        Some("Pool") => "/pool",
        Some("Sys") if privilege == "Sys.AccessNetwork" => "/nodes",
        _ => "/",
    }
}

/// Names in `pveum` lines.
#[derive(Debug, Clone)]
pub struct RoleNames {
    /// The role.
    pub role: String,
    /// The user, `name@realm`.
    pub user: String,
    /// The token's name below the user.
    pub token: String,
}

impl Default for RoleNames {
    fn default() -> Self {
        Self { role: "Proxward".to_owned(), user: "proxward@pve".to_owned(), token: "gate".to_owned() }
    }
}

impl RoleNames {
    /// User and token of a token id, `user@realm!token`.
    #[must_use]
    pub fn of_token(token_id: &str) -> Self {
        let (user, token) = token_id.split_once('!').unwrap_or((token_id, "gate"));
        Self { user: user.to_owned(), token: token.to_owned(), ..Self::default() }
    }

    /// The line that makes the role.
    pub fn make_role(&self, needs: &[Need]) -> String {
        format!("pveum role add {} --privs {}", self.role, quoted(needs))
    }

    /// The line that gives an existing role these privileges besides those it has.
    pub fn extend_role(&self, needs: &[Need]) -> String {
        format!("pveum role modify {} --append 1 --privs {}", self.role, quoted(needs))
    }

    /// The line that gives the user the role everywhere.
    pub fn give_user(&self) -> String {
        format!("pveum acl modify / --users {} --roles {}", self.user, self.role)
    }

    /// The line that gives a token with privilege separation the role everywhere. It has what it *and* its user have.
    pub fn give_token(&self) -> String {
        format!("pveum acl modify / --tokens '{}!{}' --roles {}", self.user, self.token, self.role)
    }

    /// The line that makes the user.
    pub fn make_user(&self) -> String {
        format!("pveum user add {} --comment Proxward", self.user)
    }

    /// The line that makes the token and prints its secret, once.
    pub fn make_token(&self) -> String {
        format!("pveum user token add {} {} --privsep 0", self.user, self.token)
    }
}

fn quoted(needs: &[Need]) -> String {
    let names: Vec<_> = needs.iter().filter(|need| need.apart.is_none()).map(|need| need.privilege).collect();
    format!("\"{}\"", names.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(major: u32) -> Vec<&'static str> {
        needs(major, |_| true).iter().map(|need| need.privilege).collect()
    }

    #[test]
    fn every_tool_with_a_privilege_is_named_by_it() {
        let all = needs(NEWEST, |_| true);
        for (tool, privileges) in catalog::privileges() {
            for privilege in privileges {
                let need = all.iter().find(|need| need.privilege == *privilege);
                assert!(need.is_some_and(|need| need.tools.contains(&tool)), "{tool} {privilege}");
            }
        }
    }

    #[test]
    fn a_role_for_reads_holds_no_privilege_that_changes() {
        let reads = needs(NEWEST, |name| {
            catalog::rule(name).is_some_and(|rule| matches!(rule.tier, authz::Tier::Read) && rule.wildcard)
        });
        let names: Vec<_> = reads.iter().map(|need| need.privilege).collect();
        assert!(names.contains(&"VM.Audit") && names.contains(&"Sys.Audit"), "{names:?}");
        // PVE shows backups only to those who may make them.
        let backups = ["Datastore.AllocateSpace", "VM.Backup"];
        for need in reads.iter().filter(|need| !need.privilege.ends_with("Audit")) {
            assert!(backups.contains(&need.privilege), "{} is more than reading", need.privilege);
            assert_eq!(need.tools, ["list_backups"], "{}", need.privilege);
        }
    }

    #[test]
    fn no_version_gets_a_privilege_it_does_not_know() {
        for major in OLDEST..=NEWEST {
            let names = names(major);
            assert!(major >= 9 || !names.iter().any(|name| name.starts_with("VM.GuestAgent.")), "{major}");
            assert!(major < 9 || !names.contains(&"VM.Monitor"), "{major}");
            assert!(
                major >= 8 || !names.contains(&"SDN.Use") && !names.contains(&"Sys.AccessNetwork"),
                "{major}"
            );
        }
    }

    #[test]
    fn what_administers_a_storage_or_a_node_is_not_in_the_role() {
        let needs = needs(NEWEST, |_| true);
        let line = RoleNames::default().make_role(&needs);
        for privilege in ["Datastore.Allocate", "Sys.Modify", "Sys.Console"] {
            let need = needs.iter().find(|need| need.privilege == privilege);
            assert!(need.is_some_and(|need| need.apart.is_some()), "{privilege}");
            assert!(!line.split(['"', ',']).any(|word| word == privilege), "{privilege} in {line}");
        }
    }

    #[test]
    fn privileges_that_give_too_much_stay_out_of_the_role() {
        let need = |privilege, apart| Need { privilege, tools: vec!["x"], apart };
        let role = RoleNames::default();
        let needs = [need("VM.Audit", None), need("Datastore.Allocate", Some("why"))];
        assert_eq!(role.make_role(&needs), "pveum role add Proxward --privs \"VM.Audit\"");
    }

    #[test]
    fn user_and_token_come_from_the_token_id() {
        let names = RoleNames::of_token("agents@pve!gate-1");
        assert_eq!(names.give_token(), "pveum acl modify / --tokens 'agents@pve!gate-1' --roles Proxward");
        assert_eq!(names.give_user(), "pveum acl modify / --users agents@pve --roles Proxward");
    }
}
