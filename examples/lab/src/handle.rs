//! The lab as a test or a demo holds it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cluster::{Cluster, guest_folder};
use crate::config::{ClusterConfig, GuestKind, LabConfig};
use crate::fault::{Fault, FaultHandle};
use crate::node::fault::SshFaults;
use crate::node::keys::KeyText;
use crate::recorded::Recorded;
use crate::state::guest::Guest;
use crate::state::task::{Task, TaskExit};
use crate::state::{State, now};
use crate::{LabError, api, node, output, tls};

/// A running lab. Dropping it closes every listener and connection and removes its temporary folder.
#[derive(Debug)]
pub struct Lab {
    clusters: Vec<LabCluster>,
    folder: TempDir,
    shutdown: watch::Sender<bool>,
}

/// One running cluster. Clones are handles of the same cluster.
#[derive(Clone)]
pub struct LabCluster {
    pub(crate) inner: Arc<Cluster>,
    address: SocketAddr,
    ca_pem: Arc<str>,
    token: Arc<(String, String)>,
    tokens: Arc<Vec<(String, String)>>,
    client_key: Arc<KeyText>,
    nodes: Arc<Vec<LabNode>>,
}

/// Without the secrets of the tokens.
impl std::fmt::Debug for LabCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LabCluster")
            .field("name", &self.name())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The SSH side of one online node.
#[derive(Debug, Clone)]
pub struct LabNode {
    name: String,
    address: SocketAddr,
    host_key: Arc<KeyText>,
    faults: SshFaults,
}

impl Lab {
    /// Starts listeners for every cluster and every online node, on the runtime it is called from.
    ///
    /// # Errors
    /// When a port is taken, a key cannot be made or the temporary folder cannot be written.
    pub async fn start(config: LabConfig) -> Result<Lab, LabError> {
        let folder = TempDir::new().map_err(LabError::io("make a folder in", &std::env::temp_dir()))?;
        let shutdown = watch::Sender::new(false);
        let mut clusters = Vec::new();
        for (name, cluster) in &config.clusters {
            let root = folder.path().join(name);
            clusters.push(start_cluster(name, cluster, root, &shutdown).await?);
        }
        Ok(Lab { clusters, folder, shutdown })
    }

    /// One cluster by its name.
    ///
    /// # Panics
    /// When there is none: the caller chose the configuration.
    #[expect(
        clippy::panic,
        reason = "a name that the caller's own configuration lacks is a mistake in the caller"
    )]
    pub fn cluster(&self, name: &str) -> LabCluster {
        match self.clusters.iter().find(|cluster| cluster.name() == name) {
            Some(cluster) => cluster.clone(),
            None => panic!("the lab has no cluster {name}"),
        }
    }

    /// All clusters, by name.
    pub fn clusters(&self) -> &[LabCluster] {
        &self.clusters
    }

    /// The temporary folder that holds the file systems of nodes and guests.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes what a server needs to use the lab into a folder: `clusters.json`, the token secrets, the
    /// authorities, the SSH user keys and the known host keys, all with mode 0600.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_config(&self, dir: impl AsRef<Path>) -> Result<PathBuf, LabError> {
        output::write_config(&self.clusters, dir.as_ref())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
        for cluster in &self.clusters {
            cluster.clear_faults();
        }
    }
}

async fn start_cluster(
    name: &str,
    config: &ClusterConfig,
    root: PathBuf,
    shutdown: &watch::Sender<bool>,
) -> Result<LabCluster, LabError> {
    let mut config = config.clone();
    for token in &mut config.tokens {
        if token.secret.is_none() {
            token.secret = Some(crate::state::guest::uuid(random()?));
        }
    }
    let tokens: Vec<(String, String)> = config
        .tokens
        .iter()
        .map(|token| (token.id.clone(), token.secret.clone().unwrap_or_default()))
        .collect();
    let Some(token) = tokens.first().cloned() else {
        return Err(LabError::Config(format!("cluster {name} has no token")));
    };
    for guest in &config.guests {
        if !config.nodes.iter().any(|node| node.name == guest.node) {
            return Err(LabError::Config(format!(
                "guest {} is on the unknown node {}",
                guest.vmid, guest.node
            )));
        }
    }
    let identity = tls::identity(name)?;
    let state = State::new(name, &config, identity.fingerprint);
    let (task, auth) = (Duration::from_millis(config.task_ms), Duration::from_millis(config.auth_delay_ms));
    let cluster = Arc::new(Cluster::new(state, task, auth, root));
    for guest in &config.guests {
        node::files::populate(&guest_folder(&cluster.root, guest.vmid, 0), &guest.files)?;
    }
    let client_key = Arc::new(KeyText::generate(&format!("lab@{name}"))?);
    let listener = listen(config.port).await?;
    let address = listener.local_addr().map_err(LabError::io("bind", Path::new("127.0.0.1")))?;
    tokio::spawn(api::serve::run(cluster.clone(), listener, identity.server, shutdown.subscribe()));
    let mut nodes = Vec::new();
    for node in config.nodes.iter().filter(|node| node.online) {
        node::files::populate(&cluster.node_root(&node.name), &node::files::node_skeleton())?;
        let host_key = Arc::new(KeyText::generate(&node.name)?);
        let listener = listen(node.ssh_port).await?;
        let address = listener.local_addr().map_err(LabError::io("bind", Path::new("127.0.0.1")))?;
        let faults = SshFaults::default();
        let side = node::Node {
            cluster: cluster.clone(),
            name: node.name.clone(),
            faults: faults.clone(),
            client_key: client_key.public.clone(),
        };
        tokio::spawn(node::ssh::run(side, listener, host_key.private(), shutdown.subscribe()));
        nodes.push(LabNode { name: node.name.clone(), address, host_key, faults });
    }
    Ok(LabCluster {
        inner: cluster,
        address,
        ca_pem: identity.ca_pem.into(),
        token: Arc::new(token),
        tokens: Arc::new(tokens),
        client_key,
        nodes: Arc::new(nodes),
    })
}

async fn listen(port: u16) -> Result<TcpListener, LabError> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(LabError::io("listen on", Path::new("127.0.0.1")))
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], LabError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(LabError::keys)?;
    Ok(bytes)
}

impl LabCluster {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// `https://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The listener's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the cluster's own authority.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// SHA-256 of the listener's certificate, as PVE prints it: upper-case hex pairs with colons.
    pub fn fingerprint(&self) -> String {
        self.inner.state().fingerprint.clone()
    }

    /// The first token of the configuration, by convention the one with all rights: `user@realm!id`.
    pub fn token_id(&self) -> &str {
        &self.token.0
    }

    /// The secret of that token.
    pub fn token_secret(&self) -> &str {
        &self.token.1
    }

    /// The secret of any token.
    pub fn secret_of(&self, token_id: &str) -> Option<&str> {
        self.tokens.iter().find(|(id, _)| id == token_id).map(|(_, secret)| secret.as_str())
    }

    /// The SSH side of an online node; `None` for an offline or unknown one.
    pub fn node(&self, name: &str) -> Option<&LabNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The SSH sides of all online nodes.
    pub fn nodes(&self) -> &[LabNode] {
        &self.nodes
    }

    /// The private key, as OpenSSH writes it, that every node accepts for the user `root` and any other.
    pub fn client_key_pem(&self) -> &str {
        &self.client_key.private_pem
    }

    /// The folder that is the file system of a guest.
    pub fn guest_root(&self, vmid: u32) -> PathBuf {
        self.inner.guest_root(vmid)
    }

    /// Owner and group of a file in a container, as `pct push` set them; 0 where it did not. (On the host every
    /// file belongs to whoever runs the lab.)
    pub fn guest_owner(&self, vmid: u32, path: &str) -> Option<(u32, u32)> {
        let file = node::files::resolve(&self.guest_root(vmid), path, true).ok()?;
        file.exists().then(|| self.inner.owner(&file))
    }

    /// The folder that is the file system of a node.
    pub fn node_root(&self, node: &str) -> PathBuf {
        self.inner.node_root(node)
    }

    /// Whether there is such a guest.
    pub fn guest_exists(&self, vmid: u32) -> bool {
        self.inner.state().guests.contains_key(&vmid)
    }

    /// Whether a guest runs; `None` when there is none.
    pub fn guest_running(&self, vmid: u32) -> Option<bool> {
        self.inner.state().guests.get(&vmid).map(|guest| guest.running)
    }

    /// One option of a guest's config, as its file has it.
    pub fn guest_option(&self, vmid: u32, key: &str) -> Option<String> {
        self.inner.state().guests.get(&vmid).and_then(|guest| guest.config.get(key).cloned())
    }

    fn change(&self, vmid: u32, change: impl FnOnce(&mut Guest)) -> Result<(), LabError> {
        let unknown = || LabError::Unknown(format!("guest {vmid}"));
        change(self.inner.state().guests.get_mut(&vmid).ok_or_else(unknown)?);
        self.inner.announce_change();
        Ok(())
    }

    /// Sets or removes (`None`) one option of a guest's config, past every check.
    ///
    /// # Errors
    /// When there is no such guest; so for all commands below.
    pub fn set_option(&self, vmid: u32, key: &str, value: Option<&str>) -> Result<(), LabError> {
        self.change(vmid, |guest| {
            match value {
                Some(value) => guest.config.insert(key.to_owned(), value.to_owned()),
                None => guest.config.remove(key),
            };
            guest.active = guest.config.clone();
        })
    }

    /// Sets a guest's tags; an empty list removes them.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn set_tags(&self, vmid: u32, tags: &[&str]) -> Result<(), LabError> {
        let joined = tags.join(";");
        self.set_option(vmid, "tags", Some(joined.as_str()).filter(|joined| !joined.is_empty()))
    }

    /// Sets or clears a guest's `protection`.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn set_protection(&self, vmid: u32, protected: bool) -> Result<(), LabError> {
        self.set_option(vmid, "protection", protected.then_some("1"))
    }

    /// Sets or clears a guest's `lock`.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn set_lock(&self, vmid: u32, lock: Option<&str>) -> Result<(), LabError> {
        self.set_option(vmid, "lock", lock)
    }

    /// Starts a guest at once, without a task.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn start(&self, vmid: u32) -> Result<(), LabError> {
        self.change(vmid, Guest::start)
    }

    /// Stops a guest at once, without a task.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn stop(&self, vmid: u32) -> Result<(), LabError> {
        self.change(vmid, |guest| guest.running = false)
    }

    /// Moves a guest to another node at once.
    ///
    /// # Errors
    /// When there is no such guest or node.
    pub fn migrate(&self, vmid: u32, node: &str) -> Result<(), LabError> {
        if self.inner.state().node(node).is_none() {
            return Err(LabError::Unknown(format!("node {node}")));
        }
        self.change(vmid, |guest| guest.node = node.to_owned())
    }

    /// Replaces a guest by another machine with the same number, name and config: new hardware identity, no
    /// snapshots, empty file system, and a `qmcreate` or `vzcreate` task in the history.
    ///
    /// # Errors
    /// When there is no such guest or no entropy.
    pub fn recreate(&self, vmid: u32) -> Result<(), LabError> {
        let entropy = random()?;
        self.change(vmid, |guest| guest.recreate(entropy))?;
        let mut state = self.inner.state();
        let Some(guest) = state.guests.get(&vmid) else {
            return Err(LabError::Unknown(format!("guest {vmid}")));
        };
        let (node, kind) = (guest.node.clone(), format!("{}create", guest.kind.worker()));
        let generation = guest.generation;
        let pid = state.next_pid();
        let mut task = Task::new(&node, pid, now(), &kind, &vmid.to_string(), "root@pam");
        task.finish(now(), "OK".to_owned());
        state.tasks.push(task);
        drop(state);
        node::files::populate(&guest_folder(&self.inner.root, vmid, generation), &Default::default())
    }

    /// Removes a guest at once, without a task.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn remove(&self, vmid: u32) -> Result<(), LabError> {
        if !self.guest_exists(vmid) {
            return Err(LabError::Unknown(format!("guest {vmid}")));
        }
        self.inner.state().forget_guest(vmid, true);
        self.inner.announce_change();
        Ok(())
    }

    /// Whether a guest is a VM or a container.
    pub fn guest_kind(&self, vmid: u32) -> Option<GuestKind> {
        self.inner.state().guests.get(&vmid).map(|guest| guest.kind)
    }

    /// Takes a node up or down for the API. Its SSH listener stays as it was at the start; see
    /// [`SshFaults::refuse_connections`].
    ///
    /// # Errors
    /// When there is no such node.
    pub fn set_node_online(&self, node: &str, online: bool) -> Result<(), LabError> {
        let mut state = self.inner.state();
        let unknown = || LabError::Unknown(format!("node {node}"));
        state.nodes.iter_mut().find(|known| known.name == node).ok_or_else(unknown)?.online = online;
        Ok(())
    }

    /// Tells what a download of an URL brings: its size, and its SHA-256 in hex. (The lab fetches nothing.)
    pub fn publish(&self, url: &str, size: u64, sha256: &str) {
        self.inner.state().published.insert(url.to_owned(), (size, sha256.to_ascii_lowercase()));
    }

    /// Takes the cluster's quorum away (`true`) or gives it back (`false`): reads go on, writes are refused.
    pub fn lose_quorum(&self, lost: bool) {
        self.inner.state().quorum_lost = lost;
    }

    /// Stops or starts the guest agent inside a VM; its config is not changed.
    ///
    /// # Errors
    /// When there is no such guest.
    pub fn set_agent_runs(&self, vmid: u32, runs: bool) -> Result<(), LabError> {
        self.change(vmid, |guest| guest.agent_runs = runs)
    }

    /// Every request received so far, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.inner.recorded()
    }

    /// How many POST, PUT and DELETE requests were received, whatever became of them.
    pub fn mutations(&self) -> usize {
        self.inner.recorded().iter().filter(|request| request.is_mutation()).count()
    }

    /// The mutating requests that were accepted, as method and path: a worker was started or something changed.
    pub fn effects(&self) -> Vec<(String, String)> {
        self.inner.effects()
    }

    /// Forgets the record of requests and effects.
    pub fn clear_requests(&self) {
        self.inner.clear_recorded();
    }

    /// Arms a fault of the API.
    pub fn inject(&self, fault: Fault) -> FaultHandle {
        self.inner.faults.inject(fault)
    }

    /// Disarms all faults of the API and lets go of the requests they hold.
    pub fn clear_faults(&self) {
        self.inner.faults.clear();
    }

    /// How long the workers started from now on run.
    pub fn task_duration(&self, duration: Duration) {
        self.inner.set_task_duration(duration);
    }

    /// Keeps all workers running (`true`) until they are let go (`false`).
    pub fn hold_tasks(&self, held: bool) {
        self.inner.hold_tasks(held);
    }

    /// How the next worker that is started ends. Several calls queue up.
    pub fn next_task_exit(&self, exit: TaskExit) {
        self.inner.state().next_exits.push_back(exit);
    }

    /// All tasks as (UPID, exit status if it ended), oldest first.
    pub fn tasks(&self) -> Vec<(String, Option<String>)> {
        let state = self.inner.state();
        state
            .tasks
            .iter()
            .map(|task| (task.upid.clone(), task.end.as_ref().map(|(_, status)| status.clone())))
            .collect()
    }

    /// Waits until no worker runs.
    pub async fn idle(&self) {
        self.wait_for(|cluster| !cluster.inner.state().tasks.iter().any(Task::is_running)).await;
    }

    /// Waits until a condition on the cluster holds. It is looked at again whenever a request takes effect, a
    /// worker ends or a command of this handle changes something.
    pub async fn wait_for(&self, mut condition: impl FnMut(&LabCluster) -> bool) {
        let mut changes = self.inner.changes();
        while !condition(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl LabNode {
    /// Node name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host to connect to.
    pub fn ssh_host(&self) -> String {
        self.address.ip().to_string()
    }

    /// The port to connect to.
    pub fn ssh_port(&self) -> u16 {
        self.address.port()
    }

    /// Its host key as a line of a `known_hosts` file.
    pub fn host_key_line(&self) -> String {
        format!("[{}]:{} {}", self.address.ip(), self.address.port(), self.host_key.public_line())
    }

    /// The `SHA256:…` fingerprint of its host key.
    pub fn host_key_fingerprint(&self) -> String {
        self.host_key.fingerprint()
    }

    /// Its SSH faults, shared with the running listener.
    pub fn faults(&self) -> &SshFaults {
        &self.faults
    }
}
