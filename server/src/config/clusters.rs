//! `clusters.json`: what each cluster is, how to reach it, what must not be touched on it.
//!
//! The file is read to its end whatever is wrong with it, together with the secrets, certificates and keys it
//! names, so that one pass reports everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use authz::json::{At, Document, Fields, Findings};
use authz::{Protection, Selector, Vmid};
use guest_push::{Identity, KnownHosts, SshTarget};
use proxmox_api::{ApiToken, Client, Endpoint, Fingerprint, NodeName, Trust};
use secrecy::SecretString;

use super::policy::Policy;
use super::{Environment, policy_file, secret};
use crate::files::{self, Privacy};

/// Longest certificate, key or `known_hosts` file read, in bytes.
const MAX_SIDE_FILE: u64 = 1024 * 1024;

/// One cluster, ready to be called.
#[derive(Debug)]
pub struct Cluster {
    /// Its name: the key in `devices`.
    pub name: String,
    /// The API client; it connects at its first call.
    pub client: Client,
    /// The configured endpoints as written, for messages and for the addresses that fetches must not reach.
    pub endpoints: Vec<String>,
    /// Guests that must not be touched.
    pub protection: Protection,
    /// How to reach nodes over SSH; `None`: uploads are not possible.
    pub ssh: Option<SshAccess>,
}

/// `ssh` of one cluster.
#[derive(Debug)]
pub struct SshAccess {
    /// The key that logs in.
    pub identity: Arc<Identity>,
    /// The host keys that are trusted.
    pub known_hosts: Arc<KnownHosts>,
    /// The user on every node.
    pub user: String,
    /// Whether commands run under `sudo -n`.
    pub sudo: bool,
    /// The port on nodes that name none.
    pub port: u16,
    /// The directory on the node for bytes on their way.
    pub staging_dir: String,
    /// Addresses by node name.
    pub nodes: BTreeMap<String, SshAddress>,
    /// Guests that can be reached over SSH themselves, first match wins.
    pub guests: Vec<SshGuest>,
}

/// Where a node's sshd listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshAddress {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// A guest with SSH access of its own (`ssh.guests`).
#[derive(Debug, Clone)]
pub struct SshGuest {
    /// Which guests this is for.
    pub selector: Selector,
    /// Host name or address.
    pub host: String,
    /// The user inside the guest.
    pub user: String,
    /// TCP port, 22 when the file names none.
    pub port: u16,
}

impl SshAccess {
    /// How to reach a node, or `None` when `ssh.nodes` does not list it.
    pub fn target(&self, node: &str) -> Option<SshTarget> {
        let address = self.nodes.get(node)?;
        let mut target = SshTarget::new(address.host.clone());
        target.port = address.port;
        target.user.clone_from(&self.user);
        target.sudo = self.sudo;
        target.staging_dir.clone_from(&self.staging_dir);
        Some(target)
    }
}

/// What `clusters.json` says.
#[derive(Debug)]
pub(super) struct ClustersFile {
    pub(super) clusters: BTreeMap<String, Arc<Cluster>>,
    pub(super) policy: Policy,
}

/// Reads the document; `None` when something was wrong, which is then in `findings`.
pub(super) fn read(
    document: &Document<'_>,
    findings: &mut Findings<'_>,
    base: &Path,
    environment: Environment<'_>,
) -> Option<ClustersFile> {
    let root = document.root();
    let mut fields = root.fields(findings)?;
    if let Some(version) = fields.required("version", findings)
        && version.number(findings).is_some_and(|number| number != 1)
    {
        findings.problem(&version, "this program reads version 1 only");
    }
    let mut clusters = BTreeMap::new();
    if let Some(devices) = fields.required("devices", findings)
        && let Some(members) = devices.members(findings)
    {
        if members.is_empty() {
            findings.problem(&devices, "no cluster at all; expected at least one");
        }
        for (name, at) in members {
            if !is_cluster_name(name) {
                findings.problem(
                    &at,
                    "a cluster's name has 1 to 64 letters, digits, `-`, `_` and `.`, and begins with a letter or digit",
                );
            }
            let mut reader = ClusterReader { findings, base, environment };
            if let Some(cluster) = reader.cluster(name, &at) {
                clusters.insert(name.to_owned(), Arc::new(cluster));
            }
        }
    }
    let policy = match fields.optional("policy") {
        Some(at) => policy_file::read(&at, findings),
        None => Policy::default(),
    };
    fields.finish(findings);
    Some(ClustersFile { clusters, policy })
}

fn is_cluster_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// What reading one cluster needs.
struct ClusterReader<'r, 't, 'e> {
    findings: &'r mut Findings<'t>,
    base: &'r Path,
    environment: Environment<'e>,
}

impl ClusterReader<'_, '_, '_> {
    fn cluster(&mut self, name: &str, at: &At<'_>) -> Option<Cluster> {
        let mut fields = at.fields(self.findings)?;
        let endpoints = self.endpoints(at, &mut fields);
        let token = self.token(at, &mut fields);
        let trust = self.trust(&mut fields);
        let protection = self.protection(at, &mut fields);
        let ssh = match fields.optional("ssh") {
            Some(at) => self.ssh(&at).map(Some),
            None => Some(None),
        };
        fields.finish(self.findings);

        // Everything was looked at; only now may the first gap end it.
        let (endpoints, token, trust, protection, ssh) = (endpoints?, token?, trust?, protection?, ssh?);
        let mut builder = Client::builder().token(token).trust(trust);
        let mut written = Vec::new();
        for (text, endpoint) in endpoints {
            builder = builder.endpoint(endpoint);
            written.push(text);
        }
        match builder.build() {
            Ok(client) => {
                Some(Cluster { name: name.to_owned(), client, endpoints: written, protection, ssh })
            }
            Err(error) => {
                self.findings.problem(at, error.to_string());
                None
            }
        }
    }

    fn endpoints(&mut self, at: &At<'_>, fields: &mut Fields<'_>) -> Option<Vec<(String, Endpoint)>> {
        let items = match (fields.optional("endpoint"), fields.optional("endpoints")) {
            (Some(one), None) => vec![one],
            (None, Some(list)) => {
                let items = list.items(self.findings)?;
                if items.is_empty() {
                    self.findings.problem(&list, "expected at least one endpoint");
                    return None;
                }
                items
            }
            (Some(_), Some(list)) => {
                self.findings.problem(&list, "`endpoint` and `endpoints` are both set; keep one of them");
                return None;
            }
            (None, None) => {
                self.findings.problem(at, "the field `endpoint` (or `endpoints`) is missing");
                return None;
            }
        };
        let parsed: Vec<_> = items.iter().map(|item| self.parsed(item, Endpoint::parse)).collect();
        parsed.into_iter().collect()
    }

    /// A string through a parser whose error becomes the problem.
    fn parsed<T, E: std::fmt::Display>(
        &mut self,
        at: &At<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<(String, T)> {
        let text = at.text(self.findings)?;
        match parse(text) {
            Ok(value) => Some((text.to_owned(), value)),
            Err(error) => {
                self.findings.problem(at, error.to_string());
                None
            }
        }
    }

    fn token(&mut self, at: &At<'_>, fields: &mut Fields<'_>) -> Option<ApiToken> {
        let id = fields.required("token_id", self.findings);
        let id = id.and_then(|id| Some((id.text(self.findings)?, id)));
        let from_file = fields.optional("token_secret_file");
        let from_variable = fields.optional("token_secret_env");
        let secret = match (from_file, from_variable) {
            (Some(file), None) => {
                let path = self.path(&file)?;
                (secret::from_file(&path), file)
            }
            (None, Some(variable)) => {
                let name = variable.text(self.findings)?;
                (secret::from_environment(name, self.environment), variable)
            }
            (Some(_), Some(variable)) => {
                self.findings.problem(
                    &variable,
                    "`token_secret_file` and `token_secret_env` are both set; keep one, better the file",
                );
                return None;
            }
            (None, None) => {
                self.findings.problem(at, "the field `token_secret_file` (or `token_secret_env`) is missing");
                return None;
            }
        };
        let (id_text, id_at) = id?;
        let secret: SecretString = match secret {
            (Ok(secret), _) => secret,
            (Err(problem), place) => {
                self.findings.problem(&place, problem);
                return None;
            }
        };
        if id_text.starts_with("root@pam!") {
            self.findings.warn(
                &id_at,
                "root@pam bypasses PVE's own access control; make a user of the pve realm with a role of its own that holds only what the tools need",
            );
        }
        match ApiToken::new(id_text, secret) {
            Ok(token) => Some(token),
            Err(error) => {
                self.findings.problem(&id_at, error.to_string());
                None
            }
        }
    }

    fn trust(&mut self, fields: &mut Fields<'_>) -> Option<Trust> {
        match (fields.optional("ca_pem_path"), fields.optional("tls_fingerprint")) {
            (Some(ca), None) => self.text_file(&ca, Privacy::Public).map(Trust::Ca),
            (None, Some(pin)) => {
                self.parsed(&pin, str::parse::<Fingerprint>).map(|(_, pin)| Trust::Leaf(pin))
            }
            (Some(_), Some(pin)) => {
                self.findings.problem(
                    &pin,
                    "`ca_pem_path` and `tls_fingerprint` are both set; a pinned certificate replaces every other check, keep one",
                );
                None
            }
            (None, None) => Some(Trust::System),
        }
    }

    fn protection(&mut self, at: &At<'_>, fields: &mut Fields<'_>) -> Option<Protection> {
        let mut vmids = Vec::new();
        if let Some(list) = fields.optional("protected_vmids") {
            for item in list.items(self.findings)? {
                let number = item.number(self.findings)?;
                match u32::try_from(number).ok().and_then(Vmid::new) {
                    Some(vmid) => vmids.push(vmid),
                    None => self.findings.problem(&item, "expected a VMID from 100 to 999999999"),
                }
            }
        }
        let tags_at = fields.optional("protected_tags");
        let tags = match &tags_at {
            Some(list) => {
                let items = list.items(self.findings)?;
                let texts: Vec<_> =
                    items.iter().map(|item| item.text(self.findings).map(str::to_owned)).collect();
                texts.into_iter().collect::<Option<Vec<_>>>()?
            }
            None => vec![Protection::DEFAULT_TAG.to_owned()],
        };
        match Protection::new(vmids, tags) {
            Ok(protection) => Some(protection),
            Err(error) => {
                self.findings.problem(tags_at.as_ref().unwrap_or(at), error.to_string());
                None
            }
        }
    }

    fn ssh(&mut self, at: &At<'_>) -> Option<SshAccess> {
        let mut fields = at.fields(self.findings)?;
        let user = match fields.optional("user") {
            Some(at) => self.login(&at),
            None => Some("root".to_owned()),
        };
        let sudo = match fields.optional("sudo") {
            Some(at) => at.bool(self.findings),
            None => Some(false),
        };
        let port = match fields.optional("port") {
            Some(at) => self.port(&at),
            None => Some(22),
        };
        let staging_dir = match fields.optional("staging_dir") {
            Some(at) => self.staging_dir(&at),
            None => Some("/var/tmp/proxward".to_owned()),
        };
        let identity = fields.required("key_file", self.findings).and_then(|at| self.identity(&at));
        let known_hosts =
            fields.required("known_hosts_file", self.findings).and_then(|at| self.known_hosts(&at));
        let nodes_at = fields.optional("nodes");
        let nodes = match &nodes_at {
            Some(at) => self.nodes(at, port.unwrap_or(22)),
            None => Some(BTreeMap::new()),
        };
        let guests = match fields.optional("guests") {
            Some(at) => self.guests(&at),
            None => Some(Vec::new()),
        };
        fields.finish(self.findings);

        let access = SshAccess {
            identity: Arc::new(identity?),
            known_hosts: Arc::new(known_hosts?),
            user: user?,
            sudo: sudo?,
            port: port?,
            staging_dir: staging_dir?,
            nodes: nodes?,
            guests: guests?,
        };
        if access.nodes.is_empty() {
            self.findings.warn(at, "`nodes` lists no node, so no upload can reach one");
        }
        for (name, address) in &access.nodes {
            if access.known_hosts.fingerprints(&address.host, address.port).is_empty() {
                let message = format!(
                    "the known hosts have no key for node {name} ({}:{})",
                    address.host, address.port
                );
                self.findings.warn(nodes_at.as_ref().unwrap_or(at), message);
            }
        }
        Some(access)
    }

    fn identity(&mut self, at: &At<'_>) -> Option<Identity> {
        let text = zeroize::Zeroizing::new(self.text_file(at, Privacy::Secret)?);
        match Identity::from_openssh(&text) {
            Ok(identity) => Some(identity),
            Err(error) => {
                self.findings.problem(at, error.to_string());
                None
            }
        }
    }

    fn known_hosts(&mut self, at: &At<'_>) -> Option<KnownHosts> {
        let path = self.path(at)?;
        let text = self.text_file(at, Privacy::Public)?;
        match KnownHosts::parse(&text) {
            Ok(hosts) => Some(hosts),
            Err(problems) => {
                for problem in problems {
                    let line = if problem.line == 0 { String::new() } else { format!(":{}", problem.line) };
                    self.findings.problem(at, format!("{}{line}: {}", path.display(), problem.message));
                }
                None
            }
        }
    }

    fn nodes(&mut self, at: &At<'_>, default_port: u16) -> Option<BTreeMap<String, SshAddress>> {
        let mut nodes = BTreeMap::new();
        let mut sound = true;
        for (name, at) in at.members(self.findings)? {
            if let Err(error) = name.parse::<NodeName>() {
                self.findings.problem(&at, error.to_string());
                sound = false;
            }
            let Some(mut fields) = at.fields(self.findings) else {
                sound = false;
                continue;
            };
            let host = fields.required("host", self.findings).and_then(|at| self.host(&at));
            let port = match fields.optional("port") {
                Some(at) => self.port(&at),
                None => Some(default_port),
            };
            fields.finish(self.findings);
            match (host, port) {
                (Some(host), Some(port)) => {
                    nodes.insert(name.to_owned(), SshAddress { host, port });
                }
                _ => sound = false,
            }
        }
        sound.then_some(nodes)
    }

    fn guests(&mut self, at: &At<'_>) -> Option<Vec<SshGuest>> {
        let mut guests = Vec::new();
        let mut sound = true;
        for (selector, at) in at.members(self.findings)? {
            let selector = match selector.parse::<Selector>() {
                Ok(selector) => Some(selector),
                Err(error) => {
                    self.findings.problem(&at, error.to_string());
                    None
                }
            };
            let Some(mut fields) = at.fields(self.findings) else {
                sound = false;
                continue;
            };
            let host = fields.required("host", self.findings).and_then(|at| self.host(&at));
            let user = match fields.optional("user") {
                Some(at) => self.login(&at),
                None => Some("root".to_owned()),
            };
            let port = match fields.optional("port") {
                Some(at) => self.port(&at),
                None => Some(22),
            };
            fields.finish(self.findings);
            match (selector, host, user, port) {
                (Some(selector), Some(host), Some(user), Some(port)) => {
                    guests.push(SshGuest { selector, host, user, port });
                }
                _ => sound = false,
            }
        }
        sound.then_some(guests)
    }

    fn port(&mut self, at: &At<'_>) -> Option<u16> {
        match u16::try_from(at.number(self.findings)?) {
            Ok(port) if port != 0 => Some(port),
            _ => {
                self.findings.problem(at, "expected a port from 1 to 65535");
                None
            }
        }
    }

    fn host(&mut self, at: &At<'_>) -> Option<String> {
        let host = at.text(self.findings)?;
        let name = !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            && !host.starts_with(['-', '.']);
        if name || host.parse::<std::net::IpAddr>().is_ok() {
            return Some(host.to_owned());
        }
        self.findings.problem(at, "expected a host name or an IP address, without port and brackets");
        None
    }

    fn login(&mut self, at: &At<'_>) -> Option<String> {
        let user = at.text(self.findings)?;
        let plain = (1..=32).contains(&user.len())
            && !user.starts_with('-')
            && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !plain {
            self.findings.problem(at, "expected a login name of letters, digits, `-`, `_` and `.`");
        }
        plain.then(|| user.to_owned())
    }

    fn staging_dir(&mut self, at: &At<'_>) -> Option<String> {
        let text = at.text(self.findings)?;
        let sound = text.len() <= 200
            && text.starts_with('/')
            && text != "/"
            && text[1..].split('/').all(|part| !matches!(part, "" | "." | ".."))
            && !text.chars().any(char::is_control);
        if !sound {
            self.findings.problem(
                at,
                "expected an absolute path of a directory, without `.`, `..` and a trailing slash",
            );
        }
        sound.then(|| text.to_owned())
    }

    /// A path; relative ones are relative to the directory of `clusters.json`.
    fn path(&mut self, at: &At<'_>) -> Option<PathBuf> {
        let text = at.text(self.findings)?;
        if text.is_empty() {
            self.findings.problem(at, "expected the path of a file");
            return None;
        }
        Some(self.base.join(text))
    }

    fn text_file(&mut self, at: &At<'_>, privacy: Privacy) -> Option<String> {
        let path = self.path(at)?;
        let result = files::read(&path, privacy, MAX_SIDE_FILE);
        match result.map_err(|error| error.to_string()).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", path.display()))
        }) {
            Ok(text) => Some(text),
            Err(problem) => {
                self.findings.problem(at, problem);
                None
            }
        }
    }
}
