//! Guests from their making to their end, and what is on storages.

use std::io::Cursor;

use proxmox_api::{
    BackupOptions, CloneMode, CloneOptions, ConfigUpdate, ContentFilter, DestroyOptions, DiskSize, Download,
    Effect, ErrorKind, Field, FileContent, GuestKind, GuestRef, MigrateOptions, NewDisk, NewLxc, NewNet,
    NewQemu, PoolChange, Resize, RestoreOptions, TaskExit, Upid, Upload, Vmid, VolumeUpdate,
};

use crate::{Setup, guest, setup};

fn vmid(number: u32) -> Vmid {
    number.try_into().unwrap()
}

impl Setup {
    async fn ok(&self, upid: &Upid) {
        let exit = self.finish(upid).await;
        assert!(exit.succeeded(), "{upid}: {exit}");
    }
}

fn net() -> NewNet {
    NewNet { bridge: "vmbr0".to_owned(), firewall: true, ..NewNet::default() }
}

#[tokio::test]
async fn a_virtual_machine_from_making_to_end() {
    let setup = setup().await;
    let client = &setup.client;
    let made = guest("pve1", GuestKind::Qemu, 900);
    let mut new = NewQemu::new(made.vmid);
    new.name = Some("fresh.example".parse().unwrap());
    new.memory = Some(1024);
    new.cores = Some(2);
    new.description = Some("a; b = c & d".to_owned());
    new.disks.insert("scsi0".parse().unwrap(), NewDisk::new("local-lvm".parse().unwrap(), 4));
    new.nets.push(net());
    let upid = client.create_qemu(&made.node, &new).await.unwrap();
    assert_eq!((upid.kind(), upid.guest()), ("qmcreate", Some(made.vmid)));
    setup.ok(&upid).await;
    let config = client.guest_config(&made).await.unwrap();
    assert_eq!((config.name(), config.raw["memory"].as_str()), (Some("fresh.example"), "1024"));
    assert_eq!(config.raw["description"].trim_end(), "a; b = c & d");
    assert!(config.nets()[0].mac.is_some() && config.disks().iter().any(|disk| disk.slot == "scsi0"));

    let error = client.create_qemu(&made.node, &new).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Exists, Effect::Refused), "{error}");

    let size = Resize::By(DiskSize::gib(2));
    let slot = "scsi0".parse().unwrap();
    let upid = client.resize(&made, &slot, size, config.digest.as_ref()).await.unwrap().unwrap();
    setup.ok(&upid).await;
    let grown = client.guest_config(&made).await.unwrap();
    assert_eq!(grown.disks().iter().find(|disk| disk.slot == "scsi0").unwrap().size(), Some("6G"));

    let update = ConfigUpdate::new().set("cores", "3");
    if let Some(upid) = client.update_config_task(&made, &update).await.unwrap() {
        setup.ok(&upid).await;
    }
    assert_eq!(client.guest_config(&made).await.unwrap().raw["cores"], "3");
    let upid = client.destroy(&made, DestroyOptions::default()).await.unwrap();
    setup.ok(&upid).await;
    assert!(client.guest_config(&made).await.unwrap_err().is_missing_guest());
}

#[tokio::test]
async fn a_container_is_unprivileged_unless_asked_otherwise() {
    let setup = setup().await;
    let client = &setup.client;
    let made = guest("pve1", GuestKind::Lxc, 901);
    let templates = ContentFilter { content: Some("vztmpl".to_owned()), vmid: None };
    let local = "local".parse().unwrap();
    let template =
        client.storage_content(&made.node, &local, &templates).await.unwrap().items.remove(0).volid;
    let mut new = NewLxc::new(made.vmid, template, "local-lvm".parse().unwrap(), 4);
    new.hostname = Some("box".parse().unwrap());
    new.nesting = true;
    new.nets.push(net());
    let upid = client.create_lxc(&made.node, &new).await.unwrap();
    assert_eq!(upid.kind(), "vzcreate");
    setup.ok(&upid).await;
    let config = client.guest_config(&made).await.unwrap();
    assert_eq!((config.name(), config.raw["unprivileged"].as_str()), (Some("box"), "1"));
    assert_eq!(config.raw["features"], "nesting=1");
}

#[tokio::test]
async fn clones_are_other_guests() {
    let setup = setup().await;
    let client = &setup.client;
    let options =
        |mode| CloneOptions { name: Some("copy".parse().unwrap()), mode, ..CloneOptions::default() };
    for (source, newid, mode) in [
        (guest("pve2", GuestKind::Qemu, 110), 910, CloneMode::Linked),
        (guest("pve2", GuestKind::Qemu, 104), 911, CloneMode::Full { storage: None, format: None }),
        (guest("pve1", GuestKind::Lxc, 201), 912, CloneMode::Full { storage: None, format: None }),
    ] {
        let upid = client.clone_guest(&source, vmid(newid), &options(mode)).await.unwrap();
        setup.ok(&upid).await;
        let copy = GuestRef { vmid: vmid(newid), ..source.clone() };
        assert_eq!(client.guest_config(&copy).await.unwrap().name(), Some("copy"), "{source}");
        // A20: the number is taken now, whoever asks.
        let error = client.clone_guest(&source, vmid(newid), &options(CloneMode::Auto)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Exists, Effect::Refused), "{error}");
        assert!(error.message().contains(&newid.to_string()), "{error}");
    }
}

#[tokio::test]
async fn guests_move_when_nothing_holds_them() {
    let setup = setup().await;
    let client = &setup.client;
    let target = "pve1".parse().unwrap();
    let scratch = guest("pve2", GuestKind::Qemu, 104);
    let before = client.migrate_preconditions(&scratch, Some(&target)).await.unwrap();
    assert_eq!(before.running.or_default(false), Some(false));
    let upid = client.migrate(&scratch, &target, &MigrateOptions::default()).await.unwrap();
    assert_eq!(upid.kind(), "qmigrate");
    setup.ok(&upid).await;
    assert!(client.guest_config(&scratch).await.unwrap_err().is_missing_guest());
    client.guest_config(&guest("pve1", GuestKind::Qemu, 104)).await.unwrap();

    // A running one needs to be told how, and is not sent where it is.
    let files = guest("pve1", GuestKind::Lxc, 200);
    let pve2 = "pve2".parse().unwrap();
    let error = client.migrate(&files, &pve2, &MigrateOptions::default()).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Refused, "{error}");
    let error = client.migrate(&files, &files.node.clone(), &MigrateOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Parameter, Effect::NotSent), "{error}");
    let restart = MigrateOptions { restart: true, ..MigrateOptions::default() };
    let upid = client.migrate(&files, &pve2, &restart).await.unwrap();
    setup.ok(&upid).await;
}

#[tokio::test]
async fn backups_are_made_kept_restored_and_deleted() {
    let setup = setup().await;
    let client = &setup.client;
    for (source, restored) in [
        (guest("pve2", GuestKind::Qemu, 104), guest("pve2", GuestKind::Qemu, 920)),
        (guest("pve1", GuestKind::Lxc, 201), guest("pve1", GuestKind::Lxc, 921)),
    ] {
        let storage = "backup".parse().unwrap();
        let mut options = BackupOptions::to("backup".parse().unwrap());
        options.notes_template = Some("of {{vmid}}".to_owned());
        let upid = client.backup(&source.node, &[source.vmid], &options).await.unwrap().unwrap();
        setup.ok(&upid).await;
        let backups = client.backups(&source.node, &storage, Some(source.vmid)).await.unwrap();
        let newest = backups.iter().max_by_key(|item| item.ctime).unwrap();
        let archive = newest.volid.clone();

        let protect = VolumeUpdate { notes: Some("keep; this".to_owned()), protected: Some(true) };
        client.update_volume(&source.node, &archive, &protect).await.unwrap();
        let volume = client.volume(&source.node, &archive).await.unwrap();
        assert_eq!((volume.notes.as_deref(), volume.protected), (Some("keep; this"), Field::Value(true)));
        let upid = client.delete_volume(&source.node, &archive).await.unwrap();
        assert!(matches!(setup.finish(&upid).await, TaskExit::Failed(why) if why.contains("protected")));

        let options =
            RestoreOptions { storage: Some("local-lvm".parse().unwrap()), ..RestoreOptions::default() };
        let upid = client.restore(&restored, &archive, &options).await.unwrap();
        setup.ok(&upid).await;
        client.guest_config(&restored).await.unwrap();
        let error = client.restore(&restored, &archive, &options).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Exists, Effect::Refused), "{error}");
        let force = RestoreOptions { force: true, ..options };
        let upid = client.restore(&restored, &archive, &force).await.unwrap();
        setup.ok(&upid).await;

        let release = VolumeUpdate { protected: Some(false), ..VolumeUpdate::default() };
        client.update_volume(&source.node, &archive, &release).await.unwrap();
        let upid = client.delete_volume(&source.node, &archive).await.unwrap();
        setup.ok(&upid).await;
        let left = client.backups(&source.node, &storage, Some(source.vmid)).await.unwrap();
        assert!(left.iter().all(|item| item.volid != archive));
    }
    let elsewhere = BackupOptions::to("backup".parse().unwrap());
    let none = client.backup(&"pve1".parse().unwrap(), &[vmid(104)], &elsewhere).await.unwrap();
    assert_eq!(none, None, "the guest is on another node");
}

#[tokio::test]
async fn files_are_fetched_and_uploaded() {
    let setup = setup().await;
    let client = &setup.client;
    let (node, local) = ("pve1".parse().unwrap(), "local".parse().unwrap());
    let download = Download {
        url: "https://mirror.example/new.iso".to_owned(),
        content: FileContent::Iso,
        filename: "new.iso".parse().unwrap(),
        checksum: None,
        verify_certificates: true,
    };
    let upid = client.download_url(&node, &local, &download).await.unwrap();
    assert_eq!(upid.kind(), "download");
    setup.finish(&upid).await;

    let bytes = b"not really an image; --boundary\r\n".repeat(1000);
    let upload = Upload {
        content: FileContent::Iso,
        filename: "mine.iso".parse().unwrap(),
        size: bytes.len() as u64,
        checksum: None,
    };
    let upid = client.upload(&node, &local, &upload, Cursor::new(bytes.clone())).await.unwrap();
    assert_eq!(upid.kind(), "imgcopy");
    setup.ok(&upid).await;
    let volid = upload.filename.volid(&local, upload.content).unwrap();
    assert_eq!(client.volume(&node, &volid).await.unwrap().size, Some(bytes.len() as u64));
    let upid = client.delete_volume(&node, &volid).await.unwrap();
    setup.ok(&upid).await;
}

#[tokio::test]
async fn pools_are_made_filled_emptied_and_deleted() {
    let setup = setup().await;
    let client = &setup.client;
    let pool = "east/inner".parse().unwrap();
    client.create_pool(&"east".parse().unwrap(), None).await.unwrap();
    client.create_pool(&pool, Some("x")).await.unwrap();
    client.describe_pool(&pool, "y; z").await.unwrap();
    let members = PoolChange { vms: vec![vmid(104)], storage: vec!["local".parse().unwrap()] };
    let error = client.add_to_pool(&pool, &members, false).await.unwrap_err();
    assert!(error.message().contains("belongs already to pool 'sandbox'"), "{error}");
    client.add_to_pool(&pool, &members, true).await.unwrap();
    let filled = client.pool(&pool).await.unwrap();
    assert_eq!(filled.pool.comment.as_deref(), Some("y; z"));
    assert!(filled.members.iter().any(|member| member.vmid == Some(vmid(104))));
    assert!(client.delete_pool(&pool).await.is_err(), "it is not empty");
    client.remove_from_pool(&pool, &members).await.unwrap();
    client.delete_pool(&pool).await.unwrap();
    assert_eq!(client.pool(&pool).await.unwrap_err().kind(), ErrorKind::NotFound);
}
