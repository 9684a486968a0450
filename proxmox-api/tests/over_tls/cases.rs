//! Faults other clients of PVE were reported to have. The letter and number are those of the collection the reports
//! are kept in.

use proxmox_api::{
    BackupOptions, CloneMode, CloneOptions, ConfigUpdate, Effect, ErrorKind, Field, GuestKind, GuestRef,
    NewNet, NewQemu, NewSnapshot, SnapName, TaskExit, WaitPolicy, Waited,
};

use crate::support::{Answer, Seen, UPID, data, guest, http, pair};

fn lxc() -> GuestRef {
    GuestRef { kind: GuestKind::Lxc, ..guest() }
}

/// The form of a request, decoded.
fn form(seen: &Seen) -> Vec<(String, String)> {
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let text = std::str::from_utf8(&seen.body).unwrap();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap()).map(|(key, value)| (decode(key), decode(value))).collect()
}

fn upid() -> Answer {
    data(&format!("\"{UPID}\""))
}

/// A01: numbers as text, and Perl's empty text for "no".
#[tokio::test]
async fn a_container_whose_numbers_are_texts_is_read() {
    let (_server, client) = pair(|_, _| {
        data(
            r#"{"vmid":"731","pid":"77001","cpu":0.0125,"disk":"1500000000","maxdisk":"4294967296","mem":134217728,
                "template":"","lock":"","ha":{"managed":0}}"#,
        )
    })
    .await;
    let status = client.guest_status(&lxc()).await.unwrap();
    assert_eq!(
        (status.pid, status.disk, status.maxdisk),
        (Some(77001), Some(1_500_000_000), Some(4_294_967_296))
    );
    assert_eq!((status.template, status.ha_managed), (Field::Value(false), Field::Value(false)));
    assert_eq!((status.lock, status.mem), (None, Some(134_217_728)));
}

/// A03: a whole number that comes as text.
#[tokio::test]
async fn the_settings_of_a_node_are_read_back() {
    let (_server, client) = pair(|_, _| data(r#"{"startall-onboot-delay":"15","digest":"ab12"}"#)).await;
    let config = client.node_config(&guest().node).await.unwrap();
    assert_eq!((config.startall_onboot_delay, config.digest.unwrap().as_str()), (Some(15), "ab12"));
}

/// A04: the same field as number, as text and not at all.
#[tokio::test]
async fn sizes_of_every_kind_in_one_list() {
    let (_server, client) = pair(|_, _| {
        data(
            r#"[{"volid":"local:iso/a.iso","size":1048576},{"volid":"local:iso/b.iso","size":"2097152"},
                {"volid":"local:iso/c.iso"}]"#,
        )
    })
    .await;
    let storage = "local".parse().unwrap();
    let list = client.storage_content(&guest().node, &storage, &Default::default()).await.unwrap();
    let sizes: Vec<Option<u64>> = list.iter().map(|item| item.size).collect();
    assert_eq!(sizes, [Some(1_048_576), Some(2_097_152), None]);
}

/// A05: a stopped guest without a process.
#[tokio::test]
async fn a_guest_without_a_process_hides_no_other() {
    let (_server, client) = pair(|_, _| {
        data(r#"[{"vmid":201,"status":"running","pid":1410},{"vmid":202,"status":"stopped","pid":null}]"#)
    })
    .await;
    let list = client.node_guests(&guest().node, GuestKind::Qemu).await.unwrap();
    let pids: Vec<Option<u64>> = list.iter().map(|guest| guest.status.pid).collect();
    assert_eq!((pids.as_slice(), list.skipped), (&[Some(1410), None][..], 0));
}

/// A06: counters beyond 32 and 64 bits.
#[tokio::test]
async fn shared_memory_of_any_size() {
    for (shared, read) in [
        ("50000000001", Some(50_000_000_001)),
        ("18446744073709551615", Some(u64::MAX)),
        ("9.1e15", Some(9_100_000_000_000_000)),
        ("18446744073709551616", None),
    ] {
        let body = format!(r#"{{"uptime":1,"ksm":{{"shared":{shared}}}}}"#);
        let (_server, client) = pair(move |_, _| data(&body)).await;
        assert_eq!(client.node_status(&guest().node).await.unwrap().ksm_shared, read, "{shared}");
    }
}

/// A13: success with warnings, which are at hand.
#[tokio::test]
async fn warnings_are_no_failure_and_can_be_read() {
    let log = r#"[{"n":1,"t":"starting"},{"n":2,"t":"WARN: no TPM state"},{"n":3,"t":"TASK WARNINGS: 1"}]"#;
    let (server, client) = pair(move |_, seen| {
        if seen.line.contains("/log") {
            return data(log);
        }
        data(r#"{"status":"stopped","exitstatus":"WARNINGS: 1","type":"qmstart"}"#)
    })
    .await;
    let upid = UPID.parse().unwrap();
    let waited = client.wait_task(&upid, &WaitPolicy::default()).await.unwrap();
    assert_eq!(waited, Waited::Ended(TaskExit::Warnings(1)));
    assert_eq!(client.task_warnings(&upid).await.unwrap(), ["WARN: no TPM state"]);
    assert!(server.seen().iter().all(|seen| seen.line.starts_with("GET ")));
}

/// A16: something in front of the task's handle.
#[tokio::test]
async fn a_start_without_a_plain_handle_is_not_known_to_be_one() {
    for body in ["\"generating cloud-init ISO\\nUPID:n1:0:0:0:qmstart:500:u@pam:\"", "null", "{}", "7"] {
        let (_server, client) = pair(move |_, _| data(body)).await;
        let error = client.start(&guest()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Malformed, Effect::Unknown),
            "{body}: {error}"
        );
    }
}

/// A18: no path is built of an empty name.
#[test]
fn empty_names_are_no_names() {
    assert!("".parse::<proxmox_api::NodeName>().is_err() && "".parse::<proxmox_api::StorageId>().is_err());
    assert!(proxmox_api::Vmid::new(0).is_err() && "".parse::<proxmox_api::Vmid>().is_err());
    let error = "".parse::<proxmox_api::NodeName>().unwrap_err();
    assert!(error.to_string().contains("node name"), "{error}");
}

/// A20: the number is taken, and whoever has it is not the clone.
#[tokio::test]
async fn a_clone_onto_a_taken_number_is_a_conflict() {
    let taken = [
        r#"{"data":null,"message":"unable to create VM 123: config file already exists\n"}"#,
        r#"{"data":null,"message":"unable to create VM 123 - VM 123 already exists on node 'pve1'\n"}"#,
        r#"{"data":null,"message":"CT 123 already exists on node 'pve1'\n"}"#,
    ];
    for body in taken {
        let (server, client) = pair(move |_, _| Answer::Close(http("500 x", body))).await;
        let newid = "123".parse().unwrap();
        let error = client.clone_guest(&guest(), newid, &CloneOptions::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Exists, Effect::Refused), "{error}");
        assert!(error.message().contains("123"), "{error}");
        assert_eq!(server.seen().len(), 1);
    }
}

/// A23: interfaces without addresses, loopback, link-local.
#[tokio::test]
async fn the_address_of_a_guest_is_one_that_can_be_reached() {
    let (_server, client) = pair(|_, _| {
        data(
            r#"{"result":[
                {"name":"lo","hardware-address":"00:00:00:00:00:00","ip-addresses":[{"ip-address":"127.0.0.1"}]},
                {"name":"eth0","ip-addresses":[{"ip-address":"10.0.0.5","prefix":24},{"ip-address":"fe80::1%eth0"},
                                               {"ip-address":"169.254.1.1","prefix":"16"},{"ip-address":"odd"}]},
                {"name":"veth1"},{"name":"veth2","ip-addresses":null},{"name":"veth3","ip-addresses":"none"}]}"#,
        )
    })
    .await;
    let list = client.agent_interfaces(&guest()).await.unwrap();
    assert_eq!((list.len(), list.skipped), (5, 0));
    let reachable: Vec<String> =
        list.iter().flat_map(|interface| interface.reachable()).map(|ip| ip.to_string()).collect();
    assert_eq!(reachable, ["10.0.0.5"]);
    assert_eq!(list.items[1].addresses[0].prefix, Some(24));
    assert_eq!(list.items[1].addresses.len(), 3, "what is no address is left out");

    for body in ["{}", "{\"result\":null}", "{\"result\":{}}", "[]"] {
        let (_server, client) = pair(move |_, _| data(body)).await;
        assert_eq!(
            client.agent_interfaces(&guest()).await.unwrap_err().kind(),
            ErrorKind::Malformed,
            "{body}"
        );
    }
}

/// A24: every way tags were ever separated.
#[tokio::test]
async fn tags_in_every_spelling() {
    let tags = |text: &str| {
        let body = format!(r#"{{"status":"running","tags":{text}}}"#);
        async move {
            let (_server, client) = pair(move |_, _| data(&body)).await;
            client.guest_status(&guest()).await.unwrap().tags
        }
    };
    for text in ["\"web;prod\"", "\"web,prod\"", "\"web prod\"", "\";web;;prod;\"", "\"prod;web\""] {
        assert_eq!(tags(text).await.value().unwrap().to_string(), "prod;web", "{text}");
    }
    assert_eq!(tags("\"\"").await.value().unwrap().len(), 0);
    assert_eq!(tags("null").await, Field::Unreadable, "not the same as none");
}

/// A27: keys are encoded within the value, which is encoded again.
#[tokio::test]
async fn ssh_keys_arrive_as_they_are() {
    let keys = "ssh-ed25519 AAAA/b+c= cardno:18 228\nssh-rsa AAAAB3 u@h";
    let (server, client) = pair(|_, _| data("null")).await;
    client.update_config(&guest(), &ConfigUpdate::new().sshkeys(keys)).await.unwrap();
    let form = form(&server.seen()[0]);
    assert_eq!(form[0].0, "sshkeys");
    assert!(form[0].1.contains("%20") && form[0].1.contains("%2F") && form[0].1.contains("%3A"), "{form:?}");
    assert!(!form[0].1.contains(['+', ' ', '/', ':', '\n']), "{form:?}");
    assert_eq!(percent_encoding::percent_decode_str(&form[0].1).decode_utf8().unwrap(), keys);
}

/// A28: arguments of programs, and what containers do not have.
#[tokio::test]
async fn a_program_gets_its_arguments_and_a_container_none() {
    let (server, client) =
        pair(|_, seen| if seen.line.contains("/agent/") { data(r#"{"pid":7}"#) } else { upid() }).await;
    assert_eq!(client.agent_exec(&guest(), &["/bin/ls", "-l", "/a b"], None).await.unwrap(), 7);
    let words = [("command", "/bin/ls"), ("command", "-l"), ("command", "/a b")];
    assert_eq!(form(&server.seen()[0]), words.map(|(key, value)| (key.to_owned(), value.to_owned())));

    let error = client.agent_exec(&lxc(), &["id"], None).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Parameter, Effect::NotSent));
    assert!(error.to_string().contains("pct"), "{error}");
    assert_eq!(server.seen().len(), 1);

    client.reboot(&lxc(), None).await.unwrap();
    assert!(server.seen()[1].line.starts_with("POST /api2/json/nodes/pve1/lxc/102/status/reboot "));
    let options = CloneOptions { name: Some("web9".parse().unwrap()), ..CloneOptions::default() };
    for (guest, key) in [(lxc(), "hostname"), (guest(), "name")] {
        client.clone_guest(&guest, "900".parse().unwrap(), &options).await.unwrap();
        let seen = server.seen().pop().unwrap();
        assert!(form(&seen).contains(&(key.to_owned(), "web9".to_owned())), "{guest}");
    }
}

/// A30: a program that may have been started, without its number.
#[tokio::test]
async fn an_agent_that_gives_no_process_id_is_said_so() {
    for body in ["{}", "null", "{\"pid\":null}", "{\"pid\":-1}", "[]"] {
        let (_server, client) = pair(move |_, _| data(body)).await;
        let error = client.agent_exec(&guest(), &["true"], None).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Malformed, Effect::Unknown), "{body}");
        assert!(error.message().contains("gave no process id"), "{body}: {error}");
    }
}

/// A39: backups on a backup server, with colons in their names.
#[tokio::test]
async fn backups_on_a_backup_server_are_backups() {
    let (server, client) = pair(|_, _| {
        data(
            r#"[{"volid":"pbs1:backup/vm/901/2026-03-04T05:06:07Z","content":"backup","format":"pbs-vm","subtype":"qemu",
                 "vmid":901,"size":null,"verification":{"state":"ok","upid":"UPID:x"}},
                {"volid":"pbs1:backup/ns1/ct/5/2026-01-01T00:00:00Z","vmid":"5"}]"#,
        )
    })
    .await;
    let list = client.backups(&guest().node, &"pbs1".parse().unwrap(), None).await.unwrap();
    assert_eq!((list.len(), list.skipped), (2, 0));
    assert_eq!(list.items[0].volid.volume(), "backup/vm/901/2026-03-04T05:06:07Z");
    assert_eq!((list.items[0].size, list.items[0].vmid.map(|vmid| vmid.get())), (None, Some(901)));
    assert_eq!(list.items[0].json["verification"]["state"], "ok");
    assert!(server.seen()[0].line.contains("?content=backup "), "{}", server.seen()[0].line);
}

/// A31: parameters are where PVE looks for them.
#[tokio::test]
async fn parameters_of_a_get_are_in_its_query() {
    let (server, client) = pair(|_, _| data(r#"{"exited":1,"exitcode":0,"out-data":"\u00e4\n"}"#)).await;
    let status = client.agent_exec_status(&guest(), 42).await.unwrap();
    assert!(status.succeeded());
    assert_eq!(status.out, [0xe4, b'\n'], "a byte for each character");
    let seen = server.seen().pop().unwrap();
    assert!(
        seen.line.ends_with("/agent/exec-status?pid=42 HTTP/1.1") && seen.body.is_empty(),
        "{}",
        seen.line
    );
}

/// A42: what is not set is not sent.
#[tokio::test]
async fn nothing_is_sent_for_what_is_not_set() {
    let (server, client) = pair(|_, _| upid()).await;
    client.create_qemu(&guest().node, &NewQemu::new("900".parse().unwrap())).await.unwrap();
    client.clone_guest(&guest(), "900".parse().unwrap(), &CloneOptions::default()).await.unwrap();
    client.create_snapshot(&guest(), &"s1".parse().unwrap(), &NewSnapshot::default()).await.unwrap();
    client.migrate(&guest(), &"pve2".parse().unwrap(), &Default::default()).await.unwrap();
    client.reboot(&guest(), None).await.unwrap();
    let keys: Vec<Vec<String>> =
        server.seen().iter().map(|seen| form(seen).into_iter().map(|(key, _)| key).collect()).collect();
    assert_eq!(keys, [vec!["vmid"], vec!["newid"], vec!["snapname"], vec!["target"], vec![]]);
    let delete = ConfigUpdate::new().unset("balloon").unset("cpulimit");
    client.update_config(&guest(), &delete).await.unwrap();
    assert_eq!(form(&server.seen()[5]), [("delete".to_owned(), "balloon,cpulimit".to_owned())]);
}

/// A46: the entry PVE makes up, and the names it keeps for itself.
#[tokio::test]
async fn the_present_state_is_no_snapshot() {
    let (_server, client) =
        pair(|_, _| data(r#"[{"name":"current","description":"You are here!","running":1,"digest":"ab"}]"#))
            .await;
    let snapshots = client.snapshots(&guest()).await.unwrap();
    assert!(snapshots.items.is_empty() && snapshots.skipped == 0);
    for name in ["current", "pending", "vzdump", "CURRENT", &"x".repeat(41), "1st", "x", ""] {
        assert!(name.parse::<SnapName>().is_err(), "{name}");
    }
}

/// A47: what a clone is, is said; a linked one has no storage to choose.
#[tokio::test]
async fn full_and_linked_clones_are_asked_for_by_name() {
    let (server, client) = pair(|_, _| upid()).await;
    let storage = Some("fast".parse().unwrap());
    let modes = [CloneMode::Auto, CloneMode::Linked, CloneMode::Full { storage, format: None }];
    for mode in modes {
        let options = CloneOptions { mode, ..CloneOptions::default() };
        client.clone_guest(&guest(), "900".parse().unwrap(), &options).await.unwrap();
    }
    let sent: Vec<Vec<String>> = server
        .seen()
        .iter()
        .map(|seen| form(seen).into_iter().skip(1).map(|(key, value)| format!("{key}={value}")).collect())
        .collect();
    assert_eq!(sent, [vec![], vec!["full=0"], vec!["full=1", "storage=fast"]]);

    let refusal = r#"{"data":null,"message":"Linked clone feature is not supported for drive 'scsi0'\n"}"#;
    let (_server, client) = pair(move |_, _| Answer::Close(http("500 x", refusal))).await;
    let options = CloneOptions { mode: CloneMode::Linked, ..CloneOptions::default() };
    let error = client.clone_guest(&guest(), "900".parse().unwrap(), &options).await.unwrap_err();
    assert!(error.message().contains("Linked clone feature is not supported"), "{error}");
}

/// A49: a storage that cannot be reached is no target.
#[tokio::test]
async fn a_storage_that_is_not_there_is_not_usable() {
    let (_server, client) = pair(|_, _| {
        data(
            r#"[{"storage":"ok","active":1,"enabled":1,"total":100,"used":1,"avail":99},
                {"storage":"off","active":1,"enabled":0,"total":100},
                {"storage":"lvm1","active":0,"enabled":1,"type":"lvm","total":0},
                {"storage":"odd","active":"maybe","total":100},
                {"storage":"bare"}]"#,
        )
    })
    .await;
    let list = client.storages(&guest().node).await.unwrap();
    let usable: Vec<(&str, bool)> = list.iter().map(|s| (s.storage.as_str(), s.is_usable())).collect();
    assert_eq!(usable, [("ok", true), ("off", false), ("lvm1", false), ("odd", false), ("bare", false)]);
    assert_eq!(list.items[4].total, None);
}

/// A22: somebody else is at work on the guest.
#[tokio::test]
async fn a_guest_somebody_works_on_is_busy() {
    let body =
        r#"{"data":null,"message":"can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout"}"#;
    let (server, client) = pair(move |_, _| Answer::Close(http("500 x", body))).await;
    let error =
        client.clone_guest(&guest(), "900".parse().unwrap(), &CloneOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Busy, Effect::Refused), "{error}");
    assert!(error.message().contains("lock-101.conf"), "{error}");
    assert_eq!(server.seen().len(), 1, "sent once");
}

/// A41: what a version does not have is told from what went wrong.
#[tokio::test]
async fn a_path_this_version_does_not_have_is_unsupported() {
    let body = r#"{"data":null,"message":"Method 'GET /cluster/ha/rules' not implemented"}"#;
    let (_server, client) = pair(move |_, _| Answer::Close(http("501 x", body))).await;
    assert_eq!(client.ha_rules().await.unwrap_err().kind(), ErrorKind::Unsupported);
}

/// PVE answers with the word `OK` when none of the guests is on the node.
#[tokio::test]
async fn a_backup_of_nothing_is_no_task() {
    let node = guest().node;
    let options = BackupOptions::to("local".parse().unwrap());
    for (body, task) in [("\"OK\"".to_owned(), false), (format!("\"{UPID}\""), true)] {
        let (server, client) = pair(move |_, _| data(&body)).await;
        let begun = client.backup(&node, &["210".parse().unwrap()], &options).await.unwrap();
        assert_eq!(begun.is_some(), task);
        assert!(
            form(&server.seen()[0]).contains(&("remove".to_owned(), "0".to_owned())),
            "nothing is pruned"
        );
    }
    let (server, client) = pair(|_, _| upid()).await;
    let error = client.backup(&node, &[], &options).await.unwrap_err();
    assert_eq!((error.effect(), server.seen().len()), (Effect::NotSent, 0));
}

/// PX-08: what would be read as something else than it was meant is refused before anything is sent.
#[tokio::test]
async fn px_08_odd_keys_and_values_are_not_sent() {
    let (server, client) = pair(|_, _| upid()).await;
    let update = ConfigUpdate::new;
    for (what, update) in [
        ("a line break", update().set("name", "a\nprotection: 0")),
        ("a NUL", update().set("description", "a\0b")),
        ("upper case", update().set("Hookscript", "x")),
        ("a raw LXC key", update().set("lxc.apparmor.profile", "unconfined")),
        ("skiplock", update().set("skiplock", "1")),
        ("the digest as a key", update().set("digest", "ab")),
        ("the lock", update().set("lock", "backup")),
        ("delete as a key", update().set("delete", "protection")),
        ("a list in delete", update().unset("a,protection")),
        ("set and unset", update().set("cores", "2").unset("cores")),
        ("empty", update().set("cores", "")),
        ("a tag that is none", update().set("tags", "ok;-no")),
        ("nothing", update()),
        ("force alone", update().set("cores", "2").destroy_unset_disks()),
    ] {
        let error = client.update_config(&guest(), &update).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Parameter, Effect::NotSent), "{what}");
    }
    let mut new = NewQemu::new("900".parse().unwrap());
    for (key, value) in
        [("archive", "local:backup/x"), ("force", "1"), ("pool", "x"), ("unique", "1"), ("cores", "2")]
    {
        new.cores = Some(1);
        new.extra = [(key.to_owned(), value.to_owned())].into();
        assert_eq!(
            client.create_qemu(&guest().node, &new).await.unwrap_err().effect(),
            Effect::NotSent,
            "{key}"
        );
    }
    new.extra.clear();
    new.nets = vec![NewNet { bridge: "vmbr0,firewall=0".to_owned(), ..NewNet::default() }];
    assert_eq!(client.create_qemu(&guest().node, &new).await.unwrap_err().effect(), Effect::NotSent);
    assert_eq!(server.seen().len(), 0);
}
