//! The firewalls of a cluster: its own, those of the nodes and those of the guests.

use std::collections::BTreeMap;

use crate::config::{AliasConfig, ClusterConfig, FirewallConfig, IpSetConfig, SecurityGroupConfig};

/// Whose firewall it is. A guest's is known by its number alone: PVE does not look whether there is such a guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// `/cluster/firewall`.
    Cluster,
    /// `/nodes/{node}/firewall`.
    Node(String),
    /// `/nodes/{node}/{qemu|lxc}/{vmid}/firewall`.
    Guest(u32),
}

impl Scope {
    /// The word before the slash in references to what this scope defines.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Scope::Guest(_) => "guest",
            Scope::Cluster | Scope::Node(_) => "dc",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Firewalls {
    all: BTreeMap<Scope, FirewallConfig>,
    none: FirewallConfig,
}

impl Firewalls {
    pub(crate) fn new(config: &ClusterConfig) -> Firewalls {
        let mut all = BTreeMap::from([(Scope::Cluster, config.firewall.clone())]);
        for node in &config.nodes {
            all.insert(Scope::Node(node.name.clone()), node.firewall.clone());
        }
        for guest in &config.guests {
            all.insert(Scope::Guest(guest.vmid), guest.firewall.clone());
        }
        Firewalls { all, none: FirewallConfig::default() }
    }

    pub(crate) fn of(&self, scope: &Scope) -> &FirewallConfig {
        self.all.get(scope).unwrap_or(&self.none)
    }

    pub(crate) fn of_mut(&mut self, scope: &Scope) -> &mut FirewallConfig {
        self.all.entry(scope.clone()).or_default()
    }

    pub(crate) fn cluster(&self) -> &FirewallConfig {
        self.of(&Scope::Cluster)
    }

    pub(crate) fn forget(&mut self, vmid: u32) {
        self.all.remove(&Scope::Guest(vmid));
    }

    /// The alias that a text names in a scope: `name`, `dc/name` or `guest/name`.
    pub(crate) fn alias<'a>(&'a self, scope: &Scope, text: &'a str) -> Option<&'a AliasConfig> {
        self.places(scope, text).into_iter().find_map(|(firewall, name)| {
            firewall.aliases.iter().find(|alias| alias.name.eq_ignore_ascii_case(name))
        })
    }

    /// The IP set that a text names in a scope, without its `+`.
    pub(crate) fn ipset<'a>(&'a self, scope: &Scope, text: &'a str) -> Option<&'a IpSetConfig> {
        self.places(scope, text)
            .into_iter()
            .find_map(|(firewall, name)| firewall.ipsets.iter().find(|set| set.name == name))
    }

    /// Where a name may be defined: in the scope that it says, else in its own scope and in the cluster.
    fn places<'a>(&'a self, scope: &Scope, text: &'a str) -> Vec<(&'a FirewallConfig, &'a str)> {
        match text.split_once('/') {
            Some(("dc", name)) => vec![(self.cluster(), name)],
            Some(("guest", name)) if matches!(scope, Scope::Guest(_)) => vec![(self.of(scope), name)],
            Some(_) => Vec::new(),
            None if matches!(scope, Scope::Guest(_)) => vec![(self.of(scope), text), (self.cluster(), text)],
            None => vec![(self.cluster(), text)],
        }
    }
}

impl FirewallConfig {
    pub(crate) fn set(&self, name: &str) -> Option<&IpSetConfig> {
        self.ipsets.iter().find(|set| set.name == name)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&SecurityGroupConfig> {
        self.groups.iter().find(|group| group.group == name)
    }
}
