//! One cluster: its endpoints, their certificates, and whether it lets the token in.

use std::time::{Duration, Instant, SystemTime};

use proxmox_api::{Client, Endpoint, Error, ErrorKind, Version, presented};

use super::finding::{Finding, Level};
use super::{Enabled, clock, nodes, rights};
use crate::config::Cluster;
use crate::privileges::{NEWEST, OLDEST, RoleNames};

/// Longest wait for one endpoint's handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Everything about one cluster, in the order in which it matters: what cannot be reached is not asked further.
pub(super) async fn examine(cluster: &Cluster, enabled: &Enabled) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut version = None;
    for endpoint in cluster.client.endpoints() {
        let (answer, more) = endpoint_state(cluster, endpoint).await;
        findings.extend(more);
        version = version.or(answer);
    }
    if let Some(version) = version {
        let (major, finding) = release(&version);
        findings.push(finding);
        findings.extend(rights::examine(cluster, enabled, major).await);
        findings.extend(nodes::examine(cluster).await);
    }
    findings.into_iter().map(|finding| finding.of(&cluster.name)).collect()
}

/// Reaches one endpoint: first without trusting it, to be able to say what it shows, then as the tools do.
async fn endpoint_state(cluster: &Cluster, endpoint: &Endpoint) -> (Option<Version>, Vec<Finding>) {
    let shown = match presented(endpoint, HANDSHAKE).await {
        Ok(shown) => shown.fingerprint(),
        Err(error) => {
            let fix = match error.kind() {
                ErrorKind::Tls => {
                    "what answers there speaks no TLS: name the port of pveproxy, 8006 unless changed"
                }
                _ => {
                    "check the address in clusters.json, the firewall in between, and `systemctl status pveproxy` there"
                }
            };
            return (None, vec![Finding::problem("reach", error.message().to_owned()).fix(fix)]);
        }
    };
    let only: Client = cluster.client.only(endpoint);
    let reached = |level_text: &str| format!("{endpoint} {level_text}; its certificate's SHA-256 is {shown}");
    let (sent, started) = (SystemTime::now(), Instant::now());
    match only.version().await {
        Ok(version) => {
            let mut findings = vec![Finding::ok("tls", reached("is trusted"))];
            let theirs = only.last_date();
            findings.extend(
                theirs.map(|theirs| clock::skew(&endpoint.to_string(), theirs, sent, started.elapsed())),
            );
            (Some(version), findings)
        }
        Err(error) if error.kind() == ErrorKind::Tls => {
            let finding = Finding::problem("tls", format!("{}: {}", reached("is not trusted"), error.message()))
                .fix("on that node, read its own fingerprint: openssl x509 -in /etc/pve/local/pve-ssl.pem -noout -fingerprint -sha256")
                .fix(format!("if it is the same, pin it in clusters.json: \"tls_fingerprint\": \"{shown}\""))
                .fix("or trust the cluster's CA: copy the node's /etc/pve/pve-root-ca.pem and name it as ca_pem_path");
            (None, vec![finding])
        }
        Err(error) => {
            let tls = Finding::ok("tls", reached("is trusted"));
            (None, vec![tls, refused(cluster, endpoint, &error)])
        }
    }
}

fn refused(cluster: &Cluster, endpoint: &Endpoint, error: &Error) -> Finding {
    let token = cluster.client.token_id();
    let names = RoleNames::of_token(token);
    match error.kind() {
        ErrorKind::Unauthorized => Finding::problem(
            "token",
            format!("{endpoint} does not accept the token {token}: {}", error.message()),
        )
        .fix(format!("see whether it exists and is not expired: pveum user token list {}", names.user))
        .fix(format!(
            "make it, and put the secret it prints into the configured place: {}",
            names.make_token()
        )),
        _ => Finding::problem(
            "reach",
            format!("{endpoint} is trusted and does not answer: {}", error.message()),
        )
        .fix("look at `journalctl -u pveproxy -u pvedaemon` on that node"),
    }
}

/// The major version, and what is to be said about it.
fn release(version: &Version) -> (u32, Finding) {
    let said = format!("PVE {}", version.version);
    match version.numbers() {
        Some((major, _)) if major < OLDEST => {
            let finding = Finding::problem("version", format!("{said} is older than {OLDEST}"))
                .fix("update the cluster: its API lacks what the tools call");
            (OLDEST, finding)
        }
        Some((major, _)) if major > NEWEST => {
            let text = format!("{said} is newer than {NEWEST}, the newest this program was made for");
            (NEWEST, Finding::warning("version", text))
        }
        Some((major, _)) if major < NEWEST => {
            let text = format!("{said}; tools for features that came later will answer with PVE's refusal");
            (major, Finding::new_at(if major < 8 { Level::Warning } else { Level::Ok }, "version", text))
        }
        Some((major, _)) => (major, Finding::ok("version", said)),
        None => (NEWEST, Finding::warning("version", format!("{said}: the number cannot be read"))),
    }
}
