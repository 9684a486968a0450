//! The state of one cluster: what `/etc/pve` and the running guests would hold.
//!
//! One mutex guards it; nothing holds the guard across an await.

pub(crate) mod acl;
pub(crate) mod agent;
pub(crate) mod firewall;
pub(crate) mod guest;
pub(crate) mod task;

use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::config::{
    ClusterConfig, GuestKind, HaConfig, HaRuleConfig, NodeConfig, PoolConfig, StorageConfig,
};
use crate::state::acl::Acl;
use crate::state::agent::Programs;
use crate::state::firewall::Firewalls;
use crate::state::guest::Guest;
use crate::state::task::{Task, TaskExit};

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cluster: String,
    pub(crate) standalone: bool,
    pub(crate) nodes: Vec<NodeConfig>,
    pub(crate) guests: BTreeMap<u32, Guest>,
    pub(crate) storages: Vec<StorageConfig>,
    pub(crate) pools: Vec<PoolConfig>,
    pub(crate) ha: Vec<HaConfig>,
    pub(crate) ha_rules: Vec<HaRuleConfig>,
    pub(crate) firewalls: Firewalls,
    pub(crate) programs: Programs,
    /// What the lab's internet has: size and SHA-256 in hex, by URL.
    pub(crate) published: BTreeMap<String, (u64, String)>,
    /// The generation of the next guest with a number that was in use.
    generations: BTreeMap<u32, u32>,
    /// Set by command: the cluster has lost its quorum although enough nodes are up.
    pub(crate) quorum_lost: bool,
    pub(crate) acl: Acl,
    /// All tasks, oldest first.
    pub(crate) tasks: Vec<Task>,
    pub(crate) next_exits: VecDeque<TaskExit>,
    /// The guest that a task holds locked, by the UPID of the task.
    locks: BTreeMap<String, u32>,
    /// SHA-256 of the listener's leaf certificate, as PVE prints it.
    pub(crate) fingerprint: String,
    pub(crate) started: i64,
    next_pid: u32,
}

impl State {
    pub(crate) fn new(cluster: &str, config: &ClusterConfig, fingerprint: String) -> State {
        let mut state = State {
            cluster: cluster.to_owned(),
            standalone: config.standalone,
            nodes: config.nodes.clone(),
            guests: config.guests.iter().map(|guest| (guest.vmid, Guest::new(guest))).collect(),
            storages: config.storages.clone(),
            pools: config.pools.clone(),
            ha: config.ha.clone(),
            ha_rules: config.ha_rules.clone(),
            firewalls: Firewalls::new(config),
            programs: Programs::default(),
            published: BTreeMap::new(),
            generations: BTreeMap::new(),
            quorum_lost: false,
            acl: Acl::new(config),
            tasks: Vec::new(),
            next_exits: VecDeque::new(),
            locks: BTreeMap::new(),
            fingerprint,
            started: now(),
            next_pid: 0x1000,
        };
        state.fill_backups();
        let mut history = config.history.clone();
        history.sort_by_key(|past| std::cmp::Reverse(past.ago));
        for past in history {
            let at = state.started - past.ago;
            let (pid, pstart) = state.next_pid();
            let mut task = Task::new(&past.node, (pid, pstart), at, &past.kind, &past.id, &past.user);
            task.finish(at + 1, past.status.clone());
            state.tasks.push(task);
        }
        state
    }

    /// Backups of which the file does not tell the config have that of their guest, if it is there.
    fn fill_backups(&mut self) {
        for volume in self.storages.iter_mut().flat_map(|storage| &mut storage.volumes) {
            let guest = volume.vmid.and_then(|vmid| self.guests.get(&vmid));
            if let (None, Some(guest)) = (&volume.config, guest.filter(|_| volume.content == "backup")) {
                volume.config = Some(guest.config.clone());
            }
        }
    }

    /// The node that the listener contacts: the first one that is online.
    pub(crate) fn contacted(&self) -> &str {
        self.nodes.iter().find(|node| node.online).map_or("", |node| node.name.as_str())
    }

    /// Whether the cluster may be written to. A standalone host always may.
    pub(crate) fn is_quorate(&self) -> bool {
        let online = self.nodes.iter().filter(|node| node.online).count();
        self.standalone || (!self.quorum_lost && online * 2 > self.nodes.len())
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(crate) fn is_online(&self, name: &str) -> bool {
        self.node(name).is_some_and(|node| node.online)
    }

    /// The guest with this number, if it is of this kind and on this node.
    pub(crate) fn guest_at(&self, node: &str, kind: GuestKind, vmid: u32) -> Option<&Guest> {
        self.guests.get(&vmid).filter(|guest| guest.kind == kind && guest.node == node)
    }

    pub(crate) fn pool_of(&self, vmid: u32) -> Option<&str> {
        self.pools.iter().find(|pool| pool.vms.contains(&vmid)).map(|pool| pool.id.as_str())
    }

    /// The HA resource of a guest, when HA manages it (`ignored` counts as unmanaged).
    pub(crate) fn ha_of(&self, kind: GuestKind, vmid: u32) -> Option<&HaConfig> {
        let sid = sid(kind, vmid);
        self.ha.iter().find(|resource| resource.sid == sid && resource.state != "ignored")
    }

    /// A pid that no task has had, and the time since boot in jiffies.
    pub(crate) fn next_pid(&mut self) -> (u32, u32) {
        self.next_pid += 3;
        let jiffies = u32::try_from((now() - self.started).max(0)).unwrap_or(0);
        (self.next_pid, 300_000 + jiffies * 100 + self.next_pid % 100)
    }

    /// Locks a guest for a task.
    pub(crate) fn lock(&mut self, upid: &str, vmid: u32, word: &str) {
        if let Some(guest) = self.guests.get_mut(&vmid) {
            guest.config.insert("lock".to_owned(), word.to_owned());
            self.locks.insert(upid.to_owned(), vmid);
        }
    }

    /// Takes away the lock that a task holds, if it holds one.
    pub(crate) fn unlock(&mut self, upid: &str) {
        let vmid = self.locks.remove(upid);
        if let Some(guest) = vmid.and_then(|vmid| self.guests.get_mut(&vmid)) {
            guest.config.remove("lock");
        }
    }

    /// A new guest, in the place of one with the same number if there is one. Its folder is a new one.
    pub(crate) fn insert_guest(
        &mut self,
        vmid: u32,
        kind: GuestKind,
        node: &str,
        config: BTreeMap<String, String>,
    ) -> &mut Guest {
        let used = self.guests.get(&vmid).map(|old| old.generation + 1);
        let generation = used.or_else(|| self.generations.get(&vmid).copied()).unwrap_or(0);
        let guest = Guest::of(vmid, kind, node, config, generation);
        self.guests.entry(vmid).and_modify(|old| old.clone_from(&guest)).or_insert(guest)
    }

    /// Makes a guest a member of a pool, and of no other.
    pub(crate) fn join_pool(&mut self, pool: Option<&str>, vmid: u32) {
        let Some(id) = pool else { return };
        for pool in &mut self.pools {
            pool.vms.retain(|member| *member != vmid);
            if pool.id == id {
                pool.vms.push(vmid);
            }
        }
    }

    /// Removes everything that belonged to a guest.
    pub(crate) fn forget_guest(&mut self, vmid: u32, purge: bool) {
        if let Some(guest) = self.guests.remove(&vmid) {
            self.generations.insert(vmid, guest.generation + 1);
            if purge {
                let sid = sid(guest.kind, vmid);
                self.ha.retain(|resource| resource.sid != sid);
            }
        }
        self.firewalls.forget(vmid);
        self.programs.forget(vmid);
        for pool in &mut self.pools {
            pool.vms.retain(|member| *member != vmid);
        }
        self.acl.forget(&format!("/vms/{vmid}"));
    }
}

/// The HA id of a guest: `vm:100`, `ct:200`.
pub(crate) fn sid(kind: GuestKind, vmid: u32) -> String {
    match kind {
        GuestKind::Qemu => format!("vm:{vmid}"),
        GuestKind::Lxc => format!("ct:{vmid}"),
    }
}

/// The digest of a text of the configuration, of the form of PVE's: the first 40 hex digits of its SHA-256.
pub(crate) fn digest(text: &str) -> String {
    let mut hex = data_encoding::HEXLOWER.encode(&Sha256::digest(text.as_bytes()));
    hex.truncate(40);
    hex
}

/// Epoch seconds.
pub(crate) fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0)
}
