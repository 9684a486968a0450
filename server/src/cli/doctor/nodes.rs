//! The nodes: quorum, who is away, and SSH.

use std::sync::Arc;

use guest_push::{Deadlines, PushError, PushErrorKind, Pusher};
use proxmox_api::ErrorKind;

use super::finding::Finding;
use crate::config::{Cluster, SshAccess};

pub(super) async fn examine(cluster: &Cluster) -> Vec<Finding> {
    let mut findings = quorum(cluster).await;
    let mut names = Vec::new();
    match cluster.client.nodes().await {
        Ok(nodes) => {
            let away: Vec<_> =
                nodes.iter().filter(|node| !node.is_online()).map(|node| node.name.to_string()).collect();
            if !away.is_empty() {
                let text = format!("not online: {}; tools on their guests will be refused", away.join(", "));
                findings.push(Finding::warning("nodes", text));
            }
            names = nodes.into_iter().map(|node| node.name.to_string()).collect();
        }
        Err(error) => {
            findings.push(Finding::problem("nodes", format!("cannot be listed: {}", error.message())));
        }
    }
    match &cluster.ssh {
        Some(ssh) => findings.extend(shells(ssh, &names).await),
        None => {
            let text = "no `ssh` in clusters.json: containers take no files";
            findings.push(Finding::warning("ssh", text).fix("docs/transfers.md says what it needs"));
        }
    }
    findings
}

async fn quorum(cluster: &Cluster) -> Vec<Finding> {
    match cluster.client.cluster_status().await {
        Ok(status) if status.quorate == proxmox_api::Field::Value(false) => {
            vec![
                Finding::problem("quorum", "the cluster has no quorum: reads work, every change will fail")
                    .fix("pvecm status   # on a node: which members are missing"),
            ]
        }
        Ok(_) => Vec::new(),
        // A missing Sys.Audit is already among the privileges.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Vec::new(),
        Err(error) => vec![Finding::warning("quorum", format!("cannot be read: {}", error.message()))],
    }
}

/// Logs in to every node that is configured for it, as an upload would.
async fn shells(ssh: &SshAccess, names: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in names.iter().filter(|name| !ssh.nodes.contains_key(*name)) {
        let text = format!("{name} is not among ssh.nodes: containers on it take no files");
        findings.push(Finding::warning("ssh", text));
    }
    for (name, address) in &ssh.nodes {
        if !names.is_empty() && !names.contains(name) {
            let text = format!("ssh.nodes has {name}, which is no node of the cluster");
            findings.push(Finding::warning("ssh", text));
            continue;
        }
        let Some(target) = ssh.target(name) else { continue };
        let deadlines = Deadlines::default();
        let pusher = Pusher::new(target, Arc::clone(&ssh.identity), Arc::clone(&ssh.known_hosts), deadlines);
        let place = format!("{}@{}:{}", ssh.user, address.host, address.port);
        findings.push(match pusher.check().await {
            Ok(()) => {
                Finding::ok("ssh", format!("{name}: logged in as {place}; {} is usable", ssh.staging_dir))
            }
            Err(error) => shut(name, &place, &address.host, address.port, &error),
        });
    }
    findings
}

fn shut(name: &str, place: &str, host: &str, port: u16, error: &PushError) -> Finding {
    let finding = Finding::problem("ssh", format!("{name} ({place}): {error}"));
    match error.kind() {
        PushErrorKind::HostKey { fingerprint } => {
            let finding = match fingerprint {
                Some(shown) => finding.fix(format!(
                    "on the node, compare with {shown}: for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done"
                )),
                None => finding,
            };
            finding.fix(format!("only if it is the same: ssh-keyscan -p {port} {host} >> the known_hosts_file of clusters.json"))
        }
        PushErrorKind::Auth => {
            finding.fix("put the public half of key_file into authorized_keys of that user on the node")
        }
        PushErrorKind::Staging => {
            finding.fix("on the node, the directory must belong to that user alone: chown it and chmod 0700")
        }
        PushErrorKind::Connect => {
            finding.fix("check ssh.nodes in clusters.json, sshd on the node, and the firewall in between")
        }
        _ => finding,
    }
}
