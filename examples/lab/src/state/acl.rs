//! Users, tokens, roles and rights, after PVE's `user.cfg`.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{AclConfig, ClusterConfig, PoolConfig};

/// Every privilege of PVE 9.2, the role `Administrator`.
const ALL: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Group.Allocate",
    "Mapping.Audit",
    "Mapping.Modify",
    "Mapping.Use",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "Realm.Allocate",
    "Realm.AllocateUser",
    "SDN.Allocate",
    "SDN.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "Sys.Console",
    "Sys.Incoming",
    "Sys.Modify",
    "Sys.PowerMgmt",
    "Sys.Syslog",
    "User.Modify",
    "VM.Allocate",
    "VM.Audit",
    "VM.Backup",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Console",
    "VM.GuestAgent.Audit",
    "VM.GuestAgent.FileRead",
    "VM.GuestAgent.FileSystemMgmt",
    "VM.GuestAgent.FileWrite",
    "VM.GuestAgent.Unrestricted",
    "VM.Migrate",
    "VM.PowerMgmt",
    "VM.Replicate",
    "VM.Snapshot",
    "VM.Snapshot.Rollback",
];

/// The role `PVEAuditor`.
const AUDITOR: &[&str] = &[
    "Datastore.Audit",
    "Mapping.Audit",
    "Pool.Audit",
    "SDN.Audit",
    "Sys.Audit",
    "VM.Audit",
    "VM.GuestAgent.Audit",
];

/// Rights on one path: privilege to whether it propagates.
pub(crate) type Rights = BTreeMap<String, bool>;

/// One token as the lab knows it.
#[derive(Clone)]
struct Token {
    secret: String,
    privsep: bool,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("privsep", &self.privsep).finish_non_exhaustive()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Acl {
    tokens: BTreeMap<String, Token>,
    entries: Vec<AclConfig>,
    roles: BTreeMap<String, Vec<String>>,
}

impl Acl {
    pub(crate) fn new(config: &ClusterConfig) -> Acl {
        let tokens = config.tokens.iter().map(|token| {
            let secret = token.secret.clone().unwrap_or_default();
            (token.id.clone(), Token { secret, privsep: token.privsep })
        });
        Acl { tokens: tokens.collect(), entries: config.acl.clone(), roles: config.roles.clone() }
    }

    /// Whether this is a token with this secret. An empty secret never matches.
    pub(crate) fn authenticate(&self, id: &str, secret: &str) -> bool {
        self.tokens.get(id).is_some_and(|token| !token.secret.is_empty() && token.secret == secret)
    }

    /// What a token may do on a path: its user's rights, and with privilege separation only those that are its
    /// own too.
    pub(crate) fn rights(&self, token: &str, path: &str, pools: &[PoolConfig]) -> Rights {
        let user = token.split('!').next().unwrap_or(token);
        let of_user = self.rights_of(user, path, pools);
        match self.tokens.get(token) {
            Some(known) if known.privsep => {
                let own = self.rights_of(token, path, pools);
                of_user.into_iter().filter(|(privilege, _)| own.contains_key(privilege)).collect()
            }
            Some(_) => of_user,
            None => Rights::new(),
        }
    }

    pub(crate) fn has(&self, token: &str, path: &str, privilege: &str, pools: &[PoolConfig]) -> bool {
        self.rights(token, path, pools).contains_key(privilege)
    }

    /// The deepest path that names somebody decides; a VM also has the rights on its pool.
    fn rights_of(&self, who: &str, path: &str, pools: &[PoolConfig]) -> Rights {
        if who == "root@pam" {
            return ALL.iter().map(|privilege| ((*privilege).to_owned(), true)).collect();
        }
        let mut rights = self.walk(who, path);
        let pool_paths = pools.iter().filter(|pool| {
            pool.vms.iter().any(|vmid| path == format!("/vms/{vmid}"))
                || pool.storage.iter().any(|id| path == format!("/storage/{id}"))
        });
        for pool in pool_paths {
            rights.extend(self.walk(who, &format!("/pool/{}", pool.id)));
        }
        rights
    }

    fn walk(&self, who: &str, path: &str) -> Rights {
        let mut rights = Rights::new();
        for prefix in prefixes(path) {
            let entries: Vec<&AclConfig> = self
                .entries
                .iter()
                .filter(|entry| {
                    entry.who == who && entry.path == prefix && (entry.propagate || prefix == path)
                })
                .collect();
            if !entries.is_empty() {
                rights = Rights::new();
                for entry in entries {
                    rights.extend(
                        self.role(&entry.role).into_iter().map(|privilege| (privilege, entry.propagate)),
                    );
                }
            }
        }
        rights
    }

    fn role(&self, name: &str) -> Vec<String> {
        let own = |list: &[&str]| list.iter().map(|privilege| (*privilege).to_owned()).collect();
        match name {
            "Administrator" => own(ALL),
            "PVEAuditor" => own(AUDITOR),
            "PVEVMAdmin" => {
                ALL.iter().filter(|name| name.starts_with("VM.")).map(|name| (*name).to_owned()).collect()
            }
            "PVEVMUser" => own(&[
                "VM.Audit",
                "VM.Backup",
                "VM.Config.CDROM",
                "VM.Config.Cloudinit",
                "VM.Console",
                "VM.PowerMgmt",
            ]),
            "PVEDatastoreUser" => own(&["Datastore.AllocateSpace", "Datastore.Audit"]),
            "PVESDNUser" => own(&["SDN.Audit", "SDN.Use"]),
            _ => self.roles.get(name).cloned().unwrap_or_default(),
        }
    }

    /// The paths that `/access/permissions` reports on: the fixed ones, those of the rights, those of pool members.
    pub(crate) fn known_paths(&self, pools: &[PoolConfig]) -> BTreeSet<String> {
        let fixed = ["/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"];
        let mut paths: BTreeSet<String> = fixed.iter().map(|path| (*path).to_owned()).collect();
        for entry in &self.entries {
            paths.extend(prefixes(&entry.path));
        }
        for pool in pools {
            paths.extend(pool.vms.iter().map(|vmid| format!("/vms/{vmid}")));
            paths.extend(pool.storage.iter().map(|id| format!("/storage/{id}")));
        }
        paths
    }

    /// Forgets the rights on a path.
    pub(crate) fn forget(&mut self, path: &str) {
        self.entries.retain(|entry| entry.path != path);
    }
}

/// `/`, `/vms`, `/vms/100` for `/vms/100`.
fn prefixes(path: &str) -> Vec<String> {
    let mut all = vec!["/".to_owned()];
    let mut so_far = String::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        so_far.push('/');
        so_far.push_str(segment);
        all.push(so_far.clone());
    }
    all
}
