//! The changing methods.

use std::io::Cursor;

use proxmox_api::{
    BackupMode, BackupOptions, Checksum, ChecksumAlgorithm, CloneMode, CloneOptions, Compression,
    ConfigUpdate, DestroyOptions, DiskFormat, Download, FileContent, FileName, FirewallOption,
    FirewallOptionsUpdate, FirewallScope, GuestKind, HaAffinity, HaRuleKind, HaSettings, HaState, LogLevel,
    MigrateOptions, NewDisk, NewHaRule, NewLxc, NewNet, NewQemu, NewRule, NewSnapshot, Policy, PoolChange,
    Resize, RestoreOptions, RuleAction, ShutdownOptions, StopOptions, Suspend, TargetStorage, Upload,
    VolumeUpdate,
};

use crate::{
    arguments::Args,
    methods::{Entry, entry},
};

fn clone_options(a: &Args, kind: GuestKind) -> CloneOptions {
    let formats = [DiskFormat::Raw, DiskFormat::Qcow2, DiskFormat::Vmdk];
    let format = (kind == GuestKind::Qemu).then(|| formats[a.number as usize % 3]);
    let mode = match a.number % 3 {
        0 => CloneMode::Auto,
        1 => CloneMode::Linked,
        _ => CloneMode::Full { storage: a.some(1, a.storage.clone()), format: format.filter(|_| a.flags[2]) },
    };
    CloneOptions {
        name: a.some(3, a.name.clone()),
        description: a.some(4, a.text.clone()),
        pool: a.some(5, a.pool.clone()),
        snapname: a.some(6, a.snap.clone()),
        target: a.some(7, a.target.clone()),
        mode,
        bwlimit: a.some(8, a.number),
    }
}

fn migrate_options(a: &Args, kind: GuestKind) -> MigrateOptions {
    let qemu = kind == GuestKind::Qemu;
    let storage = match a.number % 4 {
        0 => None,
        1 => Some(TargetStorage::Same),
        2 => Some(TargetStorage::One(a.storage.clone())),
        _ => Some(TargetStorage::Map(vec![
            (a.storage.clone(), a.other_storage.clone()),
            (a.other_storage.clone(), a.storage.clone()),
        ])),
    };
    MigrateOptions {
        online: qemu && a.flags[0],
        restart: !qemu && a.flags[0],
        timeout: (!qemu && a.flags[1]).then_some(a.number),
        with_local_disks: qemu && a.flags[2],
        target_storage: storage,
        bwlimit: a.some(3, a.number),
    }
}

fn nets(a: &Args, kind: GuestKind) -> Vec<NewNet> {
    let first = NewNet { bridge: "vmbr0".to_owned(), ..NewNet::default() };
    let options = match kind {
        GuestKind::Qemu => a.options(&[("link_down", "1"), ("rate", "12.5"), ("mtu", "1500")]),
        GuestKind::Lxc => a.options(&[("ip", "10.0.0.5/24"), ("gw", "10.0.0.1"), ("ip6", "auto")]),
    };
    let second = NewNet {
        bridge: "vmbr12".to_owned(),
        model: a.some(2, "e1000e".to_owned()).unwrap_or_default(),
        name: a.some(2, "lan".to_owned()).unwrap_or_default(),
        mac: a.some(3, "BC:24:11:00:00:01".to_owned()),
        tag: a.some(4, u16::try_from(a.number % 4094).unwrap() + 1),
        firewall: a.flags[5],
        options,
    };
    [first, second].into_iter().take(a.number as usize % 3).collect()
}

fn new_qemu(a: &Args) -> NewQemu {
    let mut new = NewQemu::new(a.vmid);
    new.name = a.some(0, a.name.clone());
    new.memory = a.some(1, 16 + a.number % 4_000_000);
    new.cores = a.some(2, 1 + a.number % 128);
    new.sockets = a.some(3, 1 + a.number % 4);
    new.ostype = a.some(4, "l26".to_owned());
    new.description = a.some(5, a.text.clone());
    new.tags = a.tags.clone();
    new.pool = a.some(6, a.pool.clone());
    [new.agent, new.onboot, new.protection, new.start] = [a.flags[7], a.flags[8], a.flags[9], a.flags[10]];
    let options = a.options(&[("discard", "on"), ("iothread", "1"), ("ssd", "1")]);
    // Not every bus has every option.
    let options = if a.qemu_slot.as_str().starts_with("scsi") { options } else { Default::default() };
    let disk = NewDisk::Volume { storage: a.storage.clone(), gib: 1 + a.number % 4096, options };
    new.disks.insert(a.qemu_slot.clone(), disk);
    if a.qemu_slot.as_str() != "ide2" {
        let image = format!("{}:iso/debian.iso", a.other_storage).parse().unwrap();
        new.disks.insert("ide2".parse().unwrap(), NewDisk::Cdrom(image));
    }
    new.nets = nets(a, GuestKind::Qemu);
    new.extra =
        a.options(&[("scsihw", "virtio-scsi-single"), ("boot", "order=scsi0;net0"), ("bios", "ovmf")]);
    new
}

fn new_lxc(a: &Args) -> NewLxc {
    let template = format!("{}:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst", a.other_storage);
    let mut new = NewLxc::new(a.vmid, template.parse().unwrap(), a.storage.clone(), 1 + a.number % 4096);
    [new.unprivileged, new.nesting] = [a.flags[0], a.flags[1]];
    new.hostname = a.some(2, a.name.clone());
    new.memory = a.some(3, 16 + a.number % 4_000_000);
    new.swap = a.some(4, a.number % 4_000_000);
    new.cores = a.some(5, 1 + a.number % 128);
    new.password = a.some(6, format!("{}12345", a.text).into());
    new.ssh_public_keys = a.some(7, "ssh-ed25519 AAAA/b+c= card no:18\nssh-rsa AAAAB3 u@h".to_owned());
    new.description = a.some(8, a.text.clone());
    new.tags = a.tags.clone();
    new.pool = a.some(9, a.pool.clone());
    [new.onboot, new.protection, new.start] = [a.flags[10], a.flags[9], a.flags[8]];
    new.nets = nets(a, GuestKind::Lxc);
    new.extra = a.options(&[("nameserver", "10.0.0.1 10.0.0.2"), ("tty", "2"), ("startup", "order=1,up=30")]);
    new
}

fn update(a: &Args, kind: GuestKind) -> ConfigUpdate {
    let (name, unset) = match kind {
        GuestKind::Qemu => ("name", ["balloon", "scsi3"]),
        GuestKind::Lxc => ("hostname", ["swap", "mp3"]),
    };
    let mut update =
        ConfigUpdate::new().set("cores", (1 + a.number % 128).to_string()).flag("onboot", a.flags[0]);
    if a.flags[1] {
        update = update.set("description", a.text.clone()).tags(&a.tags);
    }
    if a.flags[2] {
        update = update.unset(unset[0]).unset(unset[1]);
        if kind == GuestKind::Qemu && a.flags[3] {
            update = update.destroy_unset_disks();
        }
    }
    if a.flags[4] {
        update = update.digest(a.digest.clone());
    }
    if a.flags[5] {
        update = update.set(name, a.name.as_str()).revert("memory");
    }
    if a.flags[6] && kind == GuestKind::Qemu {
        update = update.sshkeys(&format!("ssh-ed25519 AAAA/b+c= card no:18\nssh-rsa {} u@h", a.text));
    }
    update
}

fn policy(n: u32) -> Policy {
    [Policy::Accept, Policy::Drop, Policy::Reject][n as usize % 3]
}

fn level(n: u32) -> LogLevel {
    use LogLevel::{Alert, Crit, Debug, Emerg, Err, Info, Nolog, Notice, Warning};
    [Emerg, Alert, Crit, Err, Warning, Notice, Info, Debug, Nolog][n as usize % 9]
}

fn new_rule(a: &Args) -> NewRule {
    let mut rule = NewRule::new(match a.number % 4 {
        0 => RuleAction::In(policy(a.number / 4)),
        1 => RuleAction::Out(policy(a.number / 4)),
        2 => RuleAction::Forward(policy(a.number / 4)),
        _ => RuleAction::Group(a.group.clone()),
    });
    rule.enable = a.flags[0];
    rule.macro_name = a.some(1, "SSH".to_owned());
    rule.proto = a.some(2, "tcp".to_owned());
    rule.source = a.some(3, a.cidr.to_string());
    rule.dest = a.some(4, format!("+{}", a.ipset));
    if a.flags[2] {
        rule.sport = a.some(5, "1024:65535".to_owned());
        rule.dport = a.some(6, "80,443,8000:8100".to_owned());
    }
    rule.iface = a.some(7, "net0".to_owned());
    rule.log = a.some(9, level(a.number));
    rule.comment = a.some(10, a.text.clone());
    rule
}

fn options_update(a: &Args, scope: &FirewallScope) -> FirewallOptionsUpdate {
    let has = |option: FirewallOption| option.is_of(scope);
    FirewallOptionsUpdate {
        enable: a.some(0, a.flags[1]),
        policy_in: a.some(2, policy(a.number)).filter(|_| has(FirewallOption::PolicyIn)),
        policy_out: a.some(3, policy(a.number / 3)).filter(|_| has(FirewallOption::PolicyOut)),
        policy_forward: a.some(4, policy(a.number % 2)).filter(|_| has(FirewallOption::PolicyForward)),
        log_level_in: a.some(5, level(a.number)).filter(|_| has(FirewallOption::LogLevelIn)),
        log_level_out: a.some(6, level(a.number / 9)).filter(|_| has(FirewallOption::LogLevelOut)),
        dhcp: a.some(7, a.flags[1]).filter(|_| has(FirewallOption::Dhcp)),
        radv: a.some(7, a.flags[2]).filter(|_| has(FirewallOption::Radv)),
        ipfilter: a.some(7, a.flags[3]).filter(|_| has(FirewallOption::Ipfilter)),
        macfilter: a.some(7, a.flags[4]).filter(|_| has(FirewallOption::Macfilter)),
        ndp: a.some(8, a.flags[5]).filter(|_| has(FirewallOption::Ndp)),
        unset: if a.flags[0] { Vec::new() } else { vec![FirewallOption::Enable] },
    }
}

fn ha_settings(a: &Args) -> HaSettings {
    let states = [HaState::Started, HaState::Stopped, HaState::Disabled, HaState::Ignored];
    HaSettings {
        state: Some(states[a.number as usize % 4]),
        max_restart: a.some(1, a.number),
        max_relocate: a.some(2, a.number),
        failback: a.some(3, a.flags[4]),
        comment: a.some(5, a.text.clone()),
    }
}

fn new_ha_rule(a: &Args) -> NewHaRule {
    let affinity = match a.number % 3 {
        0 => HaAffinity::Node {
            resources: a.sids(),
            nodes: vec![(a.node.clone(), a.some(0, a.number % 1000)), (a.target.clone(), None)],
            strict: a.flags[1],
        },
        1 => HaAffinity::Together(a.sids()),
        _ => HaAffinity::Apart(a.sids()),
    };
    NewHaRule { affinity, disable: a.flags[2], comment: a.some(3, a.text.clone()) }
}

fn members(a: &Args) -> PoolChange {
    PoolChange { vms: a.vmids.clone(), storage: a.some(0, a.storage.clone()).into_iter().collect() }
}

fn file(a: &Args) -> (FileContent, FileName) {
    let (content, ending) = match a.number % 3 {
        0 => (FileContent::Iso, "iso"),
        1 => (FileContent::Vztmpl, "tar.zst"),
        _ => (FileContent::Import, "qcow2"),
    };
    (content, format!("{}.{ending}", a.snap).parse().unwrap())
}

fn checksum(a: &Args) -> Checksum {
    Checksum::new(ChecksumAlgorithm::Sha1, a.digest.as_str()).unwrap()
}

/// Methods that change something.
pub(crate) static MUTATIONS: &[Entry] = &[
    entry!("start", |c, a| c.start(&a.guest()).await),
    entry!("stop", |c, a| c.stop(&a.guest()).await),
    entry!("stop_with", |c, a| {
        c.stop_with(&a.guest(), StopOptions { overrule_shutdown: a.flags[0] }).await
    }),
    entry!("shutdown", |c, a| {
        let options = ShutdownOptions { timeout: a.some(0, a.number), force_stop: a.flags[1] };
        c.shutdown(&a.guest(), options).await
    }),
    entry!("reboot", |c, a| c.reboot(&a.guest(), a.some(0, a.number)).await),
    entry!("reset", |c, a| c.reset(&a.qemu()).await),
    entry!("suspend", |c, a| {
        let to_disk = Suspend::ToDisk { statestorage: a.some(1, a.storage.clone()) };
        c.suspend(&a.qemu(), &a.some(0, to_disk).unwrap_or_default()).await
    }),
    entry!("resume", |c, a| c.resume(&a.qemu()).await),
    entry!("create_snapshot", |c, a| {
        let vmstate = a.kind() == GuestKind::Qemu && a.flags[0];
        let new = NewSnapshot { description: a.some(1, a.text.clone()), vmstate };
        c.create_snapshot(&a.guest(), &a.snap, &new).await
    }),
    entry!("delete_snapshot", |c, a| c.delete_snapshot(&a.guest(), &a.snap, a.flags[0]).await),
    entry!("rollback_snapshot", |c, a| c.rollback_snapshot(&a.guest(), &a.snap, a.flags[0]).await),
    entry!("describe_snapshot", |c, a| c.describe_snapshot(&a.guest(), &a.snap, &a.text).await),
    entry!("clone_guest", |c, a| c.clone_guest(&a.guest(), a.vmids[0], &clone_options(a, a.kind())).await),
    entry!("migrate", |c, a| c.migrate(&a.guest(), &a.target, &migrate_options(a, a.kind())).await),
    entry!("resize", |c, a| {
        let (guest, slot) = match a.kind() {
            GuestKind::Qemu => (a.qemu(), &a.qemu_slot),
            GuestKind::Lxc => (a.lxc(), &a.lxc_slot),
        };
        let size = if a.flags[0] { Resize::To(a.size) } else { Resize::By(a.size) };
        c.resize(&guest, slot, size, a.some(1, &a.digest)).await
    }),
    entry!("create_qemu", |c, a| c.create_qemu(&a.node, &new_qemu(a)).await),
    entry!("create_lxc", |c, a| c.create_lxc(&a.node, &new_lxc(a)).await),
    entry!("destroy", |c, a| {
        let options = DestroyOptions { purge: a.flags[0], destroy_unreferenced_disks: a.flags[1] };
        c.destroy(&a.guest(), options).await
    }),
    entry!("update_config", |c, a| c.update_config(&a.guest(), &update(a, a.kind())).await),
    entry!("update_config_task", |c, a| {
        c.update_config_task(&a.qemu(), &update(a, GuestKind::Qemu)).await
    }),
    entry!("backup", |c, a| {
        let mut options = BackupOptions::to(a.storage.clone());
        options.mode = [BackupMode::Snapshot, BackupMode::Suspend, BackupMode::Stop][a.number as usize % 3];
        options.compress = [Compression::None, Compression::Gzip, Compression::Lzo, Compression::Zstd]
            [a.number as usize % 4];
        options.notes_template = a.some(0, a.text.clone());
        [options.protected, options.remove] = [a.flags[1], a.flags[2]];
        options.bwlimit = a.some(3, a.number);
        c.backup(&a.node, &a.vmids, &options).await
    }),
    entry!("restore", |c, a| {
        let qemu = a.kind() == GuestKind::Qemu;
        let options = RestoreOptions {
            storage: a.some(0, a.storage.clone()),
            force: a.flags[1],
            unique: a.flags[2],
            pool: a.some(3, a.pool.clone()),
            start: a.flags[4],
            live_restore: qemu && a.flags[5],
            unprivileged: (!qemu && a.flags[5]).then_some(a.flags[6]),
            bwlimit: a.some(7, a.number),
        };
        c.restore(&a.guest(), &a.volid, &options).await
    }),
    entry!("delete_volume", |c, a| c.delete_volume(&a.node, &a.volid).await),
    entry!("update_volume", |c, a| {
        let notes = a.some(0, a.text.clone());
        let protected = (notes.is_none() || a.flags[1]).then_some(a.flags[2]);
        c.update_volume(&a.node, &a.volid, &VolumeUpdate { notes, protected }).await
    }),
    entry!("download_url", |c, a| {
        let (content, filename) = file(a);
        let download = Download {
            url: "https://mirror.example/a%20b?c=d&e=f;g#h".to_owned(),
            content,
            filename,
            checksum: a.some(0, checksum(a)),
            verify_certificates: a.flags[1],
        };
        c.download_url(&a.node, &a.storage, &download).await
    }),
    entry!("upload", |c, a| {
        let (content, filename) = file(a);
        let upload =
            Upload { content, filename, size: a.bytes.len() as u64, checksum: a.some(0, checksum(a)) };
        c.upload(&a.node, &a.storage, &upload, Cursor::new(a.bytes.clone())).await
    }),
    entry!("stop_task", |c, a| c.stop_task(&a.upid).await),
    entry!("add_firewall_rule", |c, a| {
        c.add_firewall_rule(&a.rule_scope(), &new_rule(a), a.some(11, &a.digest)).await
    }),
    entry!("replace_firewall_rule", |c, a| {
        c.replace_firewall_rule(&a.rule_scope(), a.number, &new_rule(a), &a.digest).await
    }),
    entry!("enable_firewall_rule", |c, a| {
        c.enable_firewall_rule(&a.rule_scope(), a.number, a.flags[0], &a.digest).await
    }),
    entry!("move_firewall_rule", |c, a| {
        c.move_firewall_rule(&a.rule_scope(), a.number, a.number / 2, &a.digest).await
    }),
    entry!("delete_firewall_rule", |c, a| {
        c.delete_firewall_rule(&a.rule_scope(), a.number, &a.digest).await
    }),
    entry!("update_firewall_options", |c, a| {
        let scope = a.option_scope();
        c.update_firewall_options(&scope, &options_update(a, &scope), a.some(8, &a.digest)).await
    }),
    entry!("create_firewall_alias", |c, a| {
        c.create_firewall_alias(&a.object_scope(), &a.alias, &a.cidr, a.comment()).await
    }),
    entry!("update_firewall_alias", |c, a| {
        let rename = "other".parse().unwrap();
        let rename = a.some(1, &rename);
        c.update_firewall_alias(&a.object_scope(), &a.alias, &a.cidr, a.comment(), rename, &a.digest).await
    }),
    entry!("delete_firewall_alias", |c, a| {
        c.delete_firewall_alias(&a.object_scope(), &a.alias, a.some(0, &a.digest)).await
    }),
    entry!("create_ipset", |c, a| c.create_ipset(&a.object_scope(), &a.ipset, a.comment()).await),
    entry!("update_ipset", |c, a| {
        let new_name = "other".parse().unwrap();
        c.update_ipset(&a.object_scope(), &a.ipset, &new_name, a.comment(), &a.digest).await
    }),
    entry!("delete_ipset", |c, a| c.delete_ipset(&a.object_scope(), &a.ipset, a.flags[0]).await),
    entry!("add_ipset_entry", |c, a| {
        c.add_ipset_entry(&a.object_scope(), &a.ipset, &a.member, a.flags[1], a.comment()).await
    }),
    entry!("update_ipset_entry", |c, a| {
        let digest = a.some(2, &a.digest);
        c.update_ipset_entry(&a.object_scope(), &a.ipset, &a.member, a.flags[1], a.comment(), digest).await
    }),
    entry!("delete_ipset_entry", |c, a| {
        c.delete_ipset_entry(&a.object_scope(), &a.ipset, &a.member, a.some(2, &a.digest)).await
    }),
    entry!("create_security_group", |c, a| c.create_security_group(&a.group, a.comment()).await),
    entry!("update_security_group", |c, a| {
        let new_name = "other".parse().unwrap();
        c.update_security_group(&a.group, &new_name, a.comment(), &a.digest).await
    }),
    entry!("delete_security_group", |c, a| c.delete_security_group(&a.group).await),
    entry!("add_ha_resource", |c, a| c.add_ha_resource(a.sid(), &ha_settings(a)).await),
    entry!("update_ha_resource", |c, a| {
        c.update_ha_resource(a.sid(), &ha_settings(a), a.some(6, &a.digest)).await
    }),
    entry!("remove_ha_resource", |c, a| c.remove_ha_resource(a.sid()).await),
    entry!("migrate_ha_resource", |c, a| c.migrate_ha_resource(a.sid(), &a.target).await),
    entry!("relocate_ha_resource", |c, a| c.relocate_ha_resource(a.sid(), &a.target).await),
    entry!("create_ha_rule", |c, a| c.create_ha_rule(&a.rule, &new_ha_rule(a)).await),
    entry!("replace_ha_rule", |c, a| c.replace_ha_rule(&a.rule, &new_ha_rule(a), &a.digest).await),
    entry!("enable_ha_rule", |c, a| {
        let kind = if a.flags[0] { HaRuleKind::NodeAffinity } else { HaRuleKind::ResourceAffinity };
        c.enable_ha_rule(&a.rule, kind, a.flags[1], &a.digest).await
    }),
    entry!("delete_ha_rule", |c, a| c.delete_ha_rule(&a.rule).await),
    entry!("create_pool", |c, a| c.create_pool(&a.pool, a.comment()).await),
    entry!("describe_pool", |c, a| c.describe_pool(&a.pool, &a.text).await),
    entry!("add_to_pool", |c, a| c.add_to_pool(&a.pool, &members(a), a.flags[1]).await),
    entry!("remove_from_pool", |c, a| c.remove_from_pool(&a.pool, &members(a)).await),
    entry!("delete_pool", |c, a| c.delete_pool(&a.pool).await),
    entry!("agent_ping", |c, a| c.agent_ping(&a.qemu()).await),
    entry!("agent_exec", |c, a| {
        let words: Vec<&str> = a.words.iter().map(String::as_str).collect();
        let input: Vec<u8> = a.bytes.iter().map(|byte| byte % 128).collect();
        c.agent_exec(&a.qemu(), &words, a.some(0, &input)).await
    }),
    entry!("agent_file_write", |c, a| c.agent_file_write(&a.qemu(), &a.text, &a.bytes).await),
];
