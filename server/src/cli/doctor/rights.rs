//! What the token may do, against what the tools need.

use proxmox_api::{ErrorKind, Permissions};

use super::Enabled;
use super::finding::Finding;
use crate::config::Cluster;
use crate::privileges::{self, Need, RoleNames};

/// Compares; one finding each for what is missing everywhere and for what holds in places only.
pub(super) async fn examine(cluster: &Cluster, enabled: &Enabled, major: u32) -> Vec<Finding> {
    let needs = privileges::needs(major, |name| enabled.has(name));
    let token = cluster.client.token_id();
    match cluster.client.permissions().await {
        Ok(permissions) => compare(&permissions, &needs, token, enabled.basis),
        Err(error) => {
            let text = format!("the privileges of {token} cannot be read: {}", error.message());
            vec![match error.kind() {
                // A proxy in front may allow only some paths; the tools may work all the same.
                ErrorKind::PermissionDenied | ErrorKind::Unsupported => Finding::warning("privileges", text),
                _ => Finding::problem("privileges", text),
            }]
        }
    }
}

fn compare(permissions: &Permissions, needs: &[Need], token: &str, basis: &str) -> Vec<Finding> {
    let names = RoleNames::of_token(token);
    if permissions.is_empty() {
        return vec![no_rights(&names, needs, token)];
    }
    let (mut missing, mut partial, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    for need in needs {
        let everywhere = permissions.has(privileges::place(need.privilege), need.privilege);
        let somewhere = places(permissions, need.privilege);
        match (everywhere, somewhere.is_empty(), need.apart) {
            (true, _, _) => {}
            (false, false, _) => partial.push((need, somewhere)),
            (false, true, Some(_)) => apart.push(need),
            (false, true, None) => missing.push(need.clone()),
        }
    }
    let mut findings = Vec::new();
    if !missing.is_empty() {
        findings.push(lacking(&missing, &names, token));
    }
    for (need, somewhere) in partial {
        let text = format!(
            "{token} has {} on {} only; {} will be refused elsewhere",
            need.privilege,
            somewhere.join(", "),
            need.tools.join(", ")
        );
        findings.push(Finding::warning("privileges", text));
    }
    for need in apart {
        let text =
            format!("{token} does not have {}, so {} will be refused", need.privilege, need.tools.join(", "));
        let why = need.apart.unwrap_or_default();
        findings.push(Finding::warning("privileges", text).fix(format!("if that is wanted: {why}")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("privileges", format!("{token} has all that is needed for {basis}")));
    }
    findings
}

/// No right at all. With privilege separation, PVE's default, a new token has none until it gets an entry of its own.
fn no_rights(names: &RoleNames, needs: &[Need], token: &str) -> Finding {
    let text = format!(
        "{token} has no privilege at all: either its user has none, or the token was made with privilege separation \
         (PVE's default) and has no entry of its own in the access list"
    );
    Finding::problem("privileges", text)
        .fix(names.make_role(needs))
        .fix(names.give_user())
        .fix(format!("with privilege separation, the token needs it too: {}", names.give_token()))
}

fn lacking(missing: &[Need], names: &RoleNames, token: &str) -> Finding {
    let list: Vec<_> =
        missing.iter().map(|need| format!("{} (for {})", need.privilege, need.tools.join(", "))).collect();
    Finding::problem("privileges", format!("{token} lacks {}", list.join("; ")))
        .fix(format!("{}   # where the role exists", names.extend_role(missing)))
        .fix(format!("{}   # where it does not", names.make_role(missing)))
        .fix(names.give_user())
        .fix(format!(
            "with privilege separation a token has what it and its user have; give it to both: {}",
            names.give_token()
        ))
}

/// The paths on which the token has the privilege, the topmost ones.
fn places(permissions: &Permissions, privilege: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (path, here) in &permissions.paths {
        let below = |top: &String| path.starts_with(top.as_str()) && path[top.len()..].starts_with('/');
        if here.contains_key(privilege) && !found.iter().any(below) {
            found.push(path.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proxmox_api::Field;

    use super::*;
    use crate::cli::doctor::finding::Level;

    const TOKEN: &str = "agents@pve!gate";

    fn permissions(paths: &[(&str, &[&str])]) -> Permissions {
        let mut permissions = Permissions::default();
        for (path, names) in paths {
            let held = names.iter().map(|name| ((*name).to_owned(), Field::Value(true))).collect();
            permissions.paths.insert((*path).to_owned(), held);
        }
        permissions
    }

    fn need(privilege: &'static str, tool: &'static str) -> Need {
        Need { privilege, tools: vec![tool], apart: None }
    }

    #[test]
    fn a_token_without_rights_is_told_about_privilege_separation() {
        let found = compare(&permissions(&[("/", &[])]), &[need("VM.Audit", "get_vms")], TOKEN, "x");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Problem);
        assert!(found[0].text.contains("privilege separation"), "{}", found[0].text);
        let fixes = found[0].fixes.join("\n");
        for line in [
            "pveum role add Proxward --privs \"VM.Audit\"",
            "pveum acl modify / --users agents@pve --roles Proxward",
            "pveum acl modify / --tokens 'agents@pve!gate' --roles Proxward",
        ] {
            assert!(fixes.contains(line), "{line} is not in {fixes}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_tools() {
        let rights = permissions(&[("/", &["Sys.Audit"]), ("/vms", &["Sys.Audit"])]);
        let needs = [need("VM.Audit", "get_vms"), need("Sys.Audit", "get_nodes")];
        let found = compare(&rights, &needs, TOKEN, "x");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Problem);
        assert!(found[0].text.contains("VM.Audit (for get_vms)"), "{}", found[0].text);
        assert!(!found[0].text.contains("Sys.Audit"), "{}", found[0].text);
        assert!(found[0].fixes[0].starts_with("pveum role modify Proxward --append 1 --privs \"VM.Audit\""));
    }

    #[test]
    fn a_right_on_some_guests_is_a_warning_that_names_them() {
        let rights = permissions(&[("/", &["Sys.Audit"]), ("/vms", &[]), ("/vms/100", &["VM.Audit"])]);
        let found = compare(&rights, &[need("VM.Audit", "get_vms")], TOKEN, "x");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Warning);
        assert!(found[0].text.contains("on /vms/100 only"), "{}", found[0].text);
    }

    #[test]
    fn all_of_it_on_the_right_path_is_enough() {
        let rights = permissions(&[("/", &["Sys.Audit"]), ("/vms", &["VM.Audit"]), ("/storage", &[])]);
        let needs = [need("VM.Audit", "get_vms"), need("Sys.Audit", "get_nodes")];
        let found = compare(&rights, &needs, TOKEN, "the tools");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Ok);
    }
}
