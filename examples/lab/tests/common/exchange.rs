//! The cluster that the recordings were made on, as a lab.

use std::collections::BTreeMap;

use lab::{
    AclConfig, AliasConfig, ClusterConfig, FirewallConfig, GuestConfig, GuestKind, IpSetConfig, IpSetEntry,
    LabConfig, NodeConfig, PoolConfig, SecurityGroupConfig, SnapshotConfig, StorageConfig, TokenConfig,
    VolumeConfig,
};
use serde_json::{Value, json};

/// Reads `pve-exchange-cluster.json`: the files of `/etc/pve`, the files of the nodes, the running guests.
pub(crate) fn lab_config(text: &str) -> LabConfig {
    let source: Value = serde_json::from_str(text).unwrap();
    let files = source["files"].as_object().unwrap();
    let file = |name: &str| files[name].as_str().unwrap();
    let users = file("user.cfg");
    let nodes: Vec<NodeConfig> = source["nodes"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, node)| NodeConfig {
            name: name.clone(),
            online: node["online"].as_bool().unwrap_or(true),
            ip: "127.0.0.1".into(),
            ssh_port: 0,
            offline_reason: "Connection refused".into(),
            firewall: FirewallConfig::default(),
        })
        .collect();
    let mut storages = storages(file("storage.cfg"));
    for (node, facts) in source["nodes"].as_object().unwrap() {
        for (path, facts) in facts["files"].as_object().into_iter().flatten() {
            let volume = volume(node, path, facts["size"].as_u64().unwrap());
            storages.iter_mut().find(|storage| storage.id == "local").unwrap().volumes.push(volume);
        }
    }
    let guests = files
        .iter()
        .filter_map(|(path, text)| {
            let parts: Vec<&str> = path.split('/').collect();
            let ["nodes", node, folder, name] = parts.as_slice() else { return None };
            let vmid = name.strip_suffix(".conf")?.parse().unwrap();
            let kind = if *folder == "lxc" { GuestKind::Lxc } else { GuestKind::Qemu };
            let running = source["guests"][vmid_key(vmid)]["running"] == json!(true);
            Some(guest(vmid, kind, node, running, text.as_str().unwrap()))
        })
        .collect();
    let alpha = ClusterConfig {
        task_ms: 1,
        nodes,
        guests,
        storages,
        pools: pools(users),
        tokens: tokens(users, file("priv/token.cfg")),
        acl: acl(users),
        firewall: firewall(file("firewall/cluster.fw")),
        ..empty()
    };
    LabConfig { clusters: BTreeMap::from([("alpha".to_owned(), alpha), ("solo".to_owned(), solo())]) }
}

/// The second host of the recordings, of which only the answers are known.
fn solo() -> ClusterConfig {
    let conf =
        "arch: amd64\ncores: 1\nhostname: dns\nmemory: 256\nrootfs: local:100/vm-100-disk-0.raw,size=1G\n";
    let content = ["rootdir", "iso", "images", "vztmpl", "snippets", "backup"].map(str::to_owned).to_vec();
    let cluster: ClusterConfig = serde_json::from_value(json!({
        "standalone": true,
        "nodes": [{ "name": "solo", "ip": "10.0.0.1" }],
        "storages": [{ "id": "local", "type": "dir", "content": content, "total": 270_553_174_016_u64 }],
        "tokens": [{ "id": "root@pam!full", "secret": "11111111-1111-1111-1111-111111111111" }],
    }))
    .unwrap();
    ClusterConfig { guests: vec![guest(100, GuestKind::Lxc, "solo", true, conf)], ..cluster }
}

fn empty() -> ClusterConfig {
    serde_json::from_value(json!({ "nodes": [], "tokens": [] })).unwrap()
}

fn vmid_key(vmid: u32) -> String {
    vmid.to_string()
}

/// A config file: options, then one section per snapshot.
fn guest(vmid: u32, kind: GuestKind, node: &str, running: bool, text: &str) -> GuestConfig {
    let mut sections: Vec<(String, BTreeMap<String, String>)> = vec![(String::new(), BTreeMap::new())];
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            sections.push((name.to_owned(), BTreeMap::new()));
            continue;
        }
        let section = &mut sections.last_mut().unwrap().1;
        match line.strip_prefix('#') {
            Some(comment) => section.insert("description".to_owned(), comment.to_owned()),
            None => {
                let (key, value) = line.split_once(": ").unwrap();
                section.insert(key.to_owned(), value.to_owned())
            }
        };
    }
    let config = sections.remove(0).1;
    let mut snapshots: Vec<SnapshotConfig> = sections
        .into_iter()
        .map(|(name, mut config)| SnapshotConfig {
            name,
            snaptime: config.remove("snaptime").unwrap().parse().unwrap(),
            parent: config.remove("parent"),
            description: config.remove("description").unwrap_or_default(),
            vmstate: false,
            config,
        })
        .collect();
    snapshots.sort_by_key(|snapshot| snapshot.snaptime);
    let node = node.to_owned();
    GuestConfig {
        vmid,
        kind,
        node,
        running,
        ignores_shutdown: false,
        agent_runs: true,
        firewall: FirewallConfig::default(),
        config,
        snapshots,
        files: BTreeMap::new(),
    }
}

fn storages(text: &str) -> Vec<StorageConfig> {
    text.split("\n\n")
        .filter(|section| !section.trim().is_empty())
        .map(|section| {
            let mut lines = section.lines();
            let (kind, id) = lines.next().unwrap().split_once(": ").unwrap();
            let options: BTreeMap<&str, &str> =
                lines.filter_map(|line| line.trim().split_once(' ')).collect();
            StorageConfig {
                id: id.to_owned(),
                kind: kind.to_owned(),
                content: options["content"].split(',').map(str::to_owned).collect(),
                shared: options.get("shared") == Some(&"1"),
                active: true,
                total: if id == "local-lvm" { 536_870_912_000 } else { 270_553_174_016 },
                used: 24_081_985_536,
                nodes: Vec::new(),
                volumes: Vec::new(),
            }
        })
        .collect()
}

fn volume(node: &str, path: &str, size: u64) -> VolumeConfig {
    let name = path.rsplit('/').next().unwrap();
    let (content, format) = match path.split('/').nth_back(1).unwrap() {
        "iso" => ("iso", "iso"),
        "cache" => ("vztmpl", "tzst"),
        _ if name.contains("-lxc-") => ("backup", "tar.zst"),
        _ => ("backup", "vma.zst"),
    };
    let owner: Vec<&str> = name.split('-').collect();
    let is_backup = content == "backup";
    VolumeConfig {
        volid: format!("local:{content}/{name}"),
        content: content.to_owned(),
        format: format.to_owned(),
        size,
        ctime: 1_767_323_045,
        vmid: is_backup.then(|| owner[2].parse().unwrap()),
        subtype: is_backup.then(|| owner[1].to_owned()),
        notes: None,
        protected: false,
        node: Some(node.to_owned()),
        config: None,
    }
}

/// The fields of the lines of `user.cfg` of one kind.
fn lines<'a>(users: &'a str, kind: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
    users.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(move |fields| fields[0] == kind)
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|word| !word.is_empty())
}

fn pools(users: &str) -> Vec<PoolConfig> {
    lines(users, "pool")
        .map(|fields| PoolConfig {
            id: fields[1].to_owned(),
            comment: Some(fields[2].to_owned()).filter(|comment| !comment.is_empty()),
            vms: words(fields[3]).map(|vmid| vmid.parse().unwrap()).collect(),
            storage: words(fields[4]).map(str::to_owned).collect(),
        })
        .collect()
}

fn tokens(users: &str, secrets: &str) -> Vec<TokenConfig> {
    lines(users, "token")
        .map(|fields| TokenConfig {
            id: fields[1].to_owned(),
            secret: secrets
                .lines()
                .find_map(|line| line.strip_prefix(fields[1]))
                .map(|rest| rest.trim().to_owned()),
            privsep: fields[3] == "1",
        })
        .collect()
}

fn acl(users: &str) -> Vec<AclConfig> {
    lines(users, "acl")
        .flat_map(|fields| {
            words(fields[3])
                .map(|who| AclConfig {
                    path: fields[2].to_owned(),
                    who: who.to_owned(),
                    role: fields[4].to_owned(),
                    propagate: fields[1] == "1",
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The sections of a `.fw` file.
fn firewall(text: &str) -> FirewallConfig {
    let mut firewall = FirewallConfig::default();
    let mut section: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (line, comment) =
            line.split_once('#').map_or((line, None), |(line, comment)| (line, Some(comment)));
        let (line, comment) = (line.trim(), comment.map(|comment| comment.trim().to_owned()));
        if let Some(head) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = head.split(' ').map(str::to_owned).collect();
            match section.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["IPSET", name] => firewall.ipsets.push(IpSetConfig {
                    name: (*name).to_owned(),
                    comment,
                    entries: Vec::new(),
                }),
                ["group", name] => firewall.groups.push(SecurityGroupConfig {
                    group: (*name).to_owned(),
                    comment,
                    rules: Vec::new(),
                }),
                _ => {}
            }
            continue;
        }
        match section[0].as_str() {
            "OPTIONS" => {
                let (key, value) = line.split_once(": ").unwrap();
                firewall.options.insert(key.to_owned(), value.to_owned());
            }
            "ALIASES" => {
                let (name, cidr) = line.split_once(' ').unwrap();
                firewall.aliases.push(AliasConfig { name: name.to_owned(), cidr: cidr.to_owned(), comment });
            }
            "IPSET" => firewall.ipsets.last_mut().unwrap().entries.push(IpSetEntry {
                cidr: line.to_owned(),
                nomatch: false,
                comment,
            }),
            "group" => firewall.groups.last_mut().unwrap().rules.push(rule(line, comment)),
            _ => firewall.rules.push(rule(line, comment)),
        }
    }
    firewall
}

/// `IN ACCEPT -p tcp -dport 22 -log nolog`, `IN HTTPS(ACCEPT)`, `GROUP web`.
fn rule(line: &str, comment: Option<String>) -> BTreeMap<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut rule = BTreeMap::from([("enable".to_owned(), "1".to_owned())]);
    rule.insert("type".to_owned(), words[0].to_ascii_lowercase());
    match words[1].split_once('(') {
        Some((name, action)) => {
            rule.insert("macro".to_owned(), name.to_owned());
            rule.insert("action".to_owned(), action.trim_end_matches(')').to_owned());
        }
        None => {
            rule.insert("action".to_owned(), words[1].to_owned());
        }
    }
    for pair in words[2..].chunks(2) {
        let key = match pair[0] {
            "-p" => "proto",
            other => other.trim_start_matches('-'),
        };
        rule.insert(key.to_owned(), pair[1].to_owned());
    }
    rule.extend(comment.map(|comment| ("comment".to_owned(), comment)));
    rule
}
