use serde_json::{Value, json};

use super::support::Rights;
use super::{Shop, WORKER, code, message};

const TEMPLATE: &str = "local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst";
const ISO: &str = "local:iso/debian-13.2.0-amd64-netinst.iso";

fn machine(vmid: u32) -> Value {
    json!({"node": "pve1", "vmid": vmid, "name": "new-one", "cores": 2, "memory": 2048, "storage": "local-lvm", "disk_gib": 8,
           "bridge": "vmbr0"})
}

fn container(vmid: u32) -> Value {
    json!({"node": "pve1", "vmid": vmid, "ostemplate": TEMPLATE, "storage": "local-lvm", "disk_gib": 4})
}

fn with(mut arguments: Value, key: &str, value: Value) -> Value {
    arguments[key] = value;
    arguments
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_made_as_its_arguments_say() {
    let shop = Shop::new().await;
    let mut arguments = machine(400);
    for (key, value) in [
        ("iso", json!(ISO)),
        ("ciuser", json!("ops")),
        ("ssh_public_keys", json!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI ops@home")),
        ("ip", json!("192.0.2.77/24")),
        ("gateway", json!("192.0.2.1")),
        ("vlan", json!(20)),
        ("agent", json!(true)),
        ("start", json!(true)),
        ("pool", json!("sandbox")),
        ("tags", json!(["web", "trial"])),
        ("description", json!("two\nlines; a=b & ü")),
        ("config", json!({"scsi1": "local-lvm:2,discard=on", "numa": "1"})),
        ("wait", json!(60)),
    ] {
        arguments[key] = value;
    }
    let rehearsed = shop.call("create_vm", with(arguments.clone(), "dry_run", json!(true))).await.unwrap();
    assert!(!shop.stage.alpha().guest_exists(400));
    let parameters = &rehearsed["request"]["parameters"];
    assert_eq!(parameters["ide2"], format!("{ISO},media=cdrom"), "{rehearsed}");
    assert_eq!(parameters["ide0"], "local-lvm:cloudinit", "{rehearsed}");
    assert_eq!(parameters["ipconfig0"], "gw=192.0.2.1,ip=192.0.2.77/24", "{rehearsed}");

    let made = shop.call("create_vm", arguments).await.unwrap();
    assert_eq!(made["status"], "ok", "{made}");
    let alpha = shop.stage.alpha();
    let option = |key: &str| alpha.guest_option(400, key).unwrap_or_default();
    assert_eq!(
        (option("cores"), option("memory"), option("name")),
        ("2".into(), "2048".into(), "new-one".into())
    );
    assert!(
        option("scsi0").starts_with("local-lvm:vm-400-disk-") && option("scsi0").contains("size=8G"),
        "{}",
        option("scsi0")
    );
    assert!(option("scsi1").contains("discard=on"), "{}", option("scsi1"));
    assert!(
        option("net0").contains("bridge=vmbr0")
            && option("net0").contains("tag=20")
            && option("net0").contains("firewall=1")
    );
    assert_eq!(option("scsihw"), "virtio-scsi-single");
    assert_eq!(option("description"), "two\nlines; a=b & ü");
    assert_eq!(option("tags"), "trial;web");
    assert_eq!(alpha.guest_running(400), Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_always_unprivileged() {
    let shop = Shop::new().await;
    let arguments = with(with(container(401), "bridge", json!("vmbr0")), "ip", json!("dhcp"));
    let arguments = with(arguments, "config", json!({"mp0": "local-lvm:1,mp=/srv/data"}));
    let made = shop.call("create_container", with(arguments, "wait", json!(60))).await.unwrap();
    assert_eq!(made["status"], "ok", "{made}");
    let alpha = shop.stage.alpha();
    assert_eq!(alpha.guest_option(401, "unprivileged").as_deref(), Some("1"));
    assert!(alpha.guest_option(401, "mp0").unwrap().contains("mp=/srv/data"));
    let refused =
        shop.call("create_container", with(container(402), "unprivileged", json!(false))).await.unwrap_err();
    assert!(message(&refused).contains("privileged"), "{refused}");
    let backup =
        with(container(402), "ostemplate", json!("local:backup/vzdump-lxc-200-2026_11_21-03_00_00.tar.zst"));
    let refused = shop.call("create_container", backup).await.unwrap_err();
    assert_eq!(refused["field"], "ostemplate", "a backup would be restored: {refused}");
    assert!(!alpha.guest_exists(402));
}

#[tokio::test(flavor = "multi_thread")]
async fn px_08_no_key_that_reaches_the_node_or_a_volume_gets_past_a_create() {
    let shop = Shop::new().await;
    shop.stage.alpha().clear_requests();
    for (key, value) in [
        ("hookscript", "local:snippets/x.pl"),
        ("args", "-device x"),
        ("hostpci0", "0000:01:00"),
        ("usb0", "host=1234:5678"),
        ("serial0", "/dev/ttyS0"),
        ("parallel0", "/dev/parport0"),
        ("Cores", "4"),
        ("archive", "local:backup/vzdump-qemu-100-2026_11_21-03_00_00.vma.zst"),
        ("force", "1"),
        ("scsi1", "/dev/sda"),
        ("scsi1", "local-lvm:vm-100-disk-0"),
        ("scsi1", "local-lvm:0,import-from=/etc/shadow"),
        ("scsi1", "local-lvm:0,import-from=local:import/a.qcow2"),
        ("efidisk0", "local-lvm:1,import-from=local:import/a.qcow2"),
        ("net1", "virtio,bridge=vmbr0\nhookscript: x"),
        ("tags", "prod"),
        ("pool", "production"),
        ("protection", "0"),
        ("cicustom", "user=local:snippets/x.yml"),
        ("cipassword", "hunter2hunter2"),
        ("unheard_of", "1"),
        ("cores", "4"),
    ] {
        let refused =
            shop.call("create_vm", with(machine(410), "config", json!({key: value}))).await.unwrap_err();
        assert!(["invalid_argument", "pve_parameter"].contains(&code(&refused)), "{key}={value}: {refused}");
        assert!(refused.to_string().contains(key), "{key}={value}: {refused}");
    }
    for (key, value) in [
        ("mp0", "/srv,mp=/srv"),
        ("mp0", "local-lvm:vm-200-disk-0,mp=/x"),
        ("dev0", "/dev/kvm"),
        ("lxc.mount.entry", "/ mnt none bind"),
        ("rootfs", "local-lvm:vm-200-disk-0"),
        ("restore", "1"),
        ("features", "mount=nfs"),
    ] {
        let refused = shop
            .call("create_container", with(container(411), "config", json!({key: value})))
            .await
            .unwrap_err();
        assert_eq!(code(&refused), "invalid_argument", "{key}={value}: {refused}");
    }
    assert_eq!(shop.sent(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn gr_13_a_number_that_is_taken_protected_or_not_granted_and_a_node_that_is_not_up_are_refused() {
    let shop = Shop::with(|stage| {
        stage.edit_clusters(|file| file["devices"]["alpha"]["protected_vmids"] = json!([450]));
        stage.token("ranged", Rights { guests: &["vmid:400-499"], ..WORKER });
        stage.token("tagged", Rights { guests: &["tag:web", "pool:sandbox"], ..WORKER });
    })
    .await;
    shop.stage.alpha().clear_requests();
    let create = async |token: &str, arguments: Value| {
        let arguments = with(arguments, "cluster", json!("alpha"));
        shop.client(token).call("create_vm", arguments).await.unwrap_err()
    };
    let taken = create("worker", machine(104)).await;
    assert_eq!(code(&taken), "vmid_taken", "{taken}");
    assert_eq!(code(&create("worker", with(machine(460), "node", json!("nowhere"))).await), "unknown_node");
    assert_eq!(code(&create("worker", with(machine(460), "node", json!("pve3"))).await), "node_unreachable");
    assert_eq!(code(&create("worker", machine(450)).await), "protected");
    for token in ["ranged", "tagged"] {
        // Whether there is such a guest changes nothing: the number is not theirs.
        for vmid in [104, 399, 500] {
            let refused = create(token, machine(vmid)).await;
            let told = ["authorization_failed", "vmid_out_of_scope"];
            assert!(told.contains(&code(&refused)), "{token} {vmid}: {refused}");
            assert!(!message(&refused).contains("exists"), "{token} {vmid}: {refused}");
        }
    }
    assert_eq!(shop.sent(), Vec::<String>::new());
    let arguments = with(machine(499), "cluster", json!("alpha"));
    shop.client("ranged").call("create_vm", arguments).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_decides_who_may_act_on_a_new_guest_needs_a_scope_of_its_own() {
    let shop = Shop::with(|stage| {
        stage.token("plain", Rights { tools: &["create_vm", "create_container", "clone_vm"], ..WORKER });
    })
    .await;
    let plain = shop.client("plain");
    for (tool, arguments, key, value, scope) in [
        ("create_vm", machine(420), "tags", json!(["prod"]), "update_guest_notes_tags"),
        ("create_vm", machine(420), "pool", json!("production"), "set_guest_pool"),
        ("create_container", container(420), "tags", json!(["prod"]), "update_guest_notes_tags"),
        ("create_container", container(420), "pool", json!("production"), "set_guest_pool"),
        ("clone_vm", json!({"vmid": 110, "newid": 420}), "pool", json!("production"), "set_guest_pool"),
    ] {
        let arguments = with(with(arguments, key, value), "cluster", json!("alpha"));
        let refused = plain.call(tool, arguments).await.unwrap_err();
        assert_eq!(code(&refused), "insufficient_scope", "{tool} {key}: {refused}");
        assert!(message(&refused).contains(scope), "{tool} {key}: {refused}");
    }
    assert!(!shop.stage.alpha().guest_exists(420));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_needs_the_guest_and_the_number() {
    let shop = Shop::with(|stage| {
        stage.edit_clusters(|file| file["devices"]["alpha"]["protected_vmids"] = json!([450]));
        stage.token("ranged", Rights { guests: &["vmid:100-199"], ..WORKER });
    })
    .await;
    // A protected guest may be cloned.
    shop.stage.alpha().set_tags(110, &["protected"]).unwrap();
    let arguments =
        json!({"vmid": 110, "newid": 430, "name": "twin", "full": true, "storage": "local-lvm", "wait": 60});
    let made = shop.call("clone_vm", arguments).await.unwrap();
    assert_eq!((&made["status"], &made["newid"]), (&json!("ok"), &json!(430)), "{made}");
    assert_eq!(shop.stage.alpha().guest_option(430, "name").as_deref(), Some("twin"));

    shop.stage.alpha().clear_requests();
    let refused = shop.call("clone_vm", json!({"vmid": 110, "newid": 100})).await.unwrap_err();
    assert_eq!(code(&refused), "vmid_taken", "{refused}");
    let refused = shop.call("clone_vm", json!({"vmid": 110, "newid": 450})).await.unwrap_err();
    assert_eq!(code(&refused), "protected", "{refused}");
    let arguments = json!({"vmid": 110, "newid": 440, "full": false, "storage": "local-lvm"});
    let refused = shop.call("clone_vm", arguments).await.unwrap_err();
    assert_eq!(refused["field"], "storage", "{refused}");
    let arguments = json!({"vmid": 110, "newid": 440, "target_node": "pve3"});
    let refused = shop.call("clone_vm", arguments).await.unwrap_err();
    assert_eq!(code(&refused), "node_unreachable", "{refused}");
    let arguments = json!({"cluster": "alpha", "vmid": 110, "newid": 440});
    let refused = shop.client("ranged").call("clone_vm", arguments).await.unwrap_err();
    assert!(!message(&refused).is_empty() && code(&refused) != "vmid_taken", "{refused}");
    assert_eq!(shop.sent(), Vec::<String>::new());
}
