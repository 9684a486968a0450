//! What cannot be done without quorum, and in which words each part of PVE says so.

use crate::api::check::Checked;
use crate::api::reply::Refusal;

/// The refusal of a mutating call on a cluster without quorum; `None` for one that writes nothing to the cluster's
/// file system.
pub(crate) fn refusal(template: &str, parameters: &Checked) -> Option<Refusal> {
    let of = |name: &str| parameters.get(name).map_or("", String::as_str);
    let locked = |domain: &str| Some(Refusal::die(format!("cfs-lock '{domain}' error: no quorum!")));
    if template.contains("/firewall") {
        return locked("firewall_config");
    }
    if template.starts_with("/cluster/ha") {
        return locked("domain-ha");
    }
    if template.starts_with("/pools") {
        return locked("file-user_cfg");
    }
    if template.contains("/agent") || template.contains("/tasks/") {
        return None;
    }
    let folder = if template.contains("/lxc") { "lxc" } else { "qemu-server" };
    if template.ends_with("/config") {
        let file = format!("/etc/pve/nodes/{}/{folder}/{}.conf.tmp.1", of("node"), of("vmid"));
        return Some(Refusal::die(format!("unable to open file '{file}' - Permission denied")));
    }
    Some(Refusal::die("cluster not ready - no quorum?"))
}
