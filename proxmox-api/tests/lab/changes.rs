//! Changes of guests and of HA.

use proxmox_api::{
    ConfigUpdate, Effect, ErrorKind, Field, GuestKind, HaAffinity, HaRuleKind, HaSettings, HaSid, HaState,
    NewHaRule, NewSnapshot, ShutdownOptions, Tags, TaskExit,
};

use crate::{Setup, guest, setup};

#[tokio::test]
async fn snapshots_are_taken_described_rolled_back_and_deleted() {
    let setup = setup().await;
    let client = &setup.client;
    for guest in [guest("pve2", GuestKind::Qemu, 104), guest("pve1", GuestKind::Lxc, 201)] {
        let name = "before".parse().unwrap();
        let new = NewSnapshot { description: Some("a; b = c".to_owned()), vmstate: false };
        let upid = client.create_snapshot(&guest, &name, &new).await.unwrap();
        assert_eq!(setup.finish(&upid).await, TaskExit::Ok, "{guest}");
        let taken = client.snapshots(&guest).await.unwrap();
        let snapshot = taken.items.iter().find(|snapshot| snapshot.name == "before").unwrap();
        assert_eq!(snapshot.description.as_deref().map(str::trim_end), Some("a; b = c"));
        client.describe_snapshot(&guest, &name, "other").await.unwrap();
        client.update_config(&guest, &ConfigUpdate::new().set("cores", "7")).await.unwrap();
        let upid = client.rollback_snapshot(&guest, &name, false).await.unwrap();
        assert_eq!(setup.finish(&upid).await, TaskExit::Ok, "{guest}");
        assert_ne!(
            client.guest_config(&guest).await.unwrap().raw.get("cores").map(String::as_str),
            Some("7")
        );

        // The name is taken: the task says so.
        let upid = client.create_snapshot(&guest, &name, &new).await.unwrap();
        assert!(matches!(setup.finish(&upid).await, TaskExit::Failed(why) if why.contains("already used")));
        let upid = client.delete_snapshot(&guest, &name, false).await.unwrap();
        assert_eq!(setup.finish(&upid).await, TaskExit::Ok, "{guest}");
        assert!(
            client.snapshots(&guest).await.unwrap().items.iter().all(|snapshot| snapshot.name != "before")
        );
    }
}

#[tokio::test]
async fn a_configuration_is_changed_with_its_digest() {
    let setup = setup().await;
    let client = &setup.client;
    for guest in [guest("pve2", GuestKind::Qemu, 104), guest("pve1", GuestKind::Lxc, 201)] {
        let config = client.guest_config(&guest).await.unwrap();
        let digest = config.digest.unwrap();
        let tags = Tags::parse("b;a");
        let update =
            ConfigUpdate::new().tags(&tags).set("description", "x; y = 1 & 2 % ä").flag("protection", true);
        client.update_config(&guest, &update.clone().digest(digest.clone())).await.unwrap();
        let changed = client.guest_config(&guest).await.unwrap();
        assert_eq!(changed.tags(), Field::Value(tags));
        assert_eq!(changed.raw["description"].trim_end(), "x; y = 1 & 2 % ä");
        assert_eq!(changed.protection(), Field::Value(true));

        let error = client.update_config(&guest, &update.digest(digest)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Changed, Effect::Refused), "{error}");
        client.update_config(&guest, &ConfigUpdate::new().unset("protection")).await.unwrap();
        assert_eq!(client.guest_config(&guest).await.unwrap().protection().or_default(false), Some(false));
    }
    let locked = guest("pve1", GuestKind::Qemu, 102);
    let error = client.update_config(&locked, &ConfigUpdate::new().set("cores", "2")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Locked, Effect::Refused), "{error}");
}

#[tokio::test]
async fn a_guest_that_does_not_listen_is_not_shut_down() {
    let setup = setup().await;
    let client = &setup.client;
    let stubborn = guest("pve2", GuestKind::Qemu, 105);
    let upid =
        client.shutdown(&stubborn, ShutdownOptions { timeout: Some(1), force_stop: false }).await.unwrap();
    assert!(matches!(setup.finish(&upid).await, TaskExit::Failed(why) if why.contains("got timeout")));
    assert_eq!(setup.alpha.guest_running(105), Some(true));
    let upid =
        client.shutdown(&stubborn, ShutdownOptions { timeout: Some(1), force_stop: true }).await.unwrap();
    assert!(setup.finish(&upid).await.succeeded());
    assert_eq!(setup.alpha.guest_running(105), Some(false));
}

#[tokio::test]
async fn guests_are_put_under_ha_and_rules_made_about_them() {
    let setup = setup().await;
    let client = &setup.client;
    let vm = HaSid { kind: GuestKind::Qemu, vmid: 104.try_into().unwrap() };
    let ct = HaSid { kind: GuestKind::Lxc, vmid: 202.try_into().unwrap() };
    let settings =
        HaSettings { state: Some(HaState::Stopped), max_restart: Some(2), ..HaSettings::default() };
    client.add_ha_resource(vm, &settings).await.unwrap();
    let error = client.add_ha_resource(vm, &settings).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Exists, Effect::Refused), "{error}");
    let resource = client.ha_resource(vm).await.unwrap();
    assert_eq!((resource.state.as_deref(), resource.max_restart), (Some("stopped"), Some(2)));
    let ignored = HaSettings { state: Some(HaState::Ignored), ..HaSettings::default() };
    client.update_ha_resource(vm, &ignored, resource.digest.as_ref()).await.unwrap();
    assert_eq!(client.ha_resource(vm).await.unwrap().state.as_deref(), Some("ignored"));
    assert!(!client.ha_status().await.unwrap().is_empty());

    let name = "apart0".parse().unwrap();
    let new = NewHaRule {
        affinity: HaAffinity::Apart(vec![vm, ct]),
        disable: false,
        comment: Some("x".to_owned()),
    };
    client.create_ha_rule(&name, &new).await.unwrap();
    let rule = client.ha_rule(&name).await.unwrap();
    assert_eq!(
        (rule.kind.as_deref(), rule.affinity.as_deref()),
        (Some("resource-affinity"), Some("negative"))
    );
    assert_eq!(rule.resources, ["ct:202", "vm:104"].map(str::to_owned).into_iter().rev().collect::<Vec<_>>());
    let digest = rule.digest.unwrap();
    client.enable_ha_rule(&name, HaRuleKind::ResourceAffinity, false, &digest).await.unwrap();
    assert_eq!(client.ha_rule(&name).await.unwrap().disable, Field::Value(true));
    let error = client.replace_ha_rule(&name, &new, &digest).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Changed, Effect::Refused), "{error}");
    let digest = client.ha_rules().await.unwrap().items[0].digest.clone().unwrap();
    let plain = NewHaRule { comment: None, ..new };
    client.replace_ha_rule(&name, &plain, &digest).await.unwrap();
    let rule = client.ha_rule(&name).await.unwrap();
    assert_eq!((rule.disable.or_default(false), rule.comment), (Some(false), None));

    // Rules about guests that are not under HA are refused in words.
    let unmanaged = HaSid { kind: GuestKind::Qemu, vmid: 100.try_into().unwrap() };
    let new =
        NewHaRule { affinity: HaAffinity::Together(vec![vm, unmanaged]), disable: false, comment: None };
    let error = client.create_ha_rule(&"near0".parse().unwrap(), &new).await.unwrap_err();
    assert!(error.message().contains("unmanaged"), "{error}");

    client.delete_ha_rule(&name).await.unwrap();
    client.delete_ha_rule(&name).await.unwrap();
    assert_eq!(client.ha_rule(&name).await.unwrap_err().kind(), ErrorKind::NotFound);
    client.remove_ha_resource(vm).await.unwrap();
    assert!(client.ha_resources().await.unwrap().iter().all(|resource| resource.vmid != vm.vmid));
}

/// A44: a cluster without a majority.
#[tokio::test]
async fn without_quorum_reads_go_on_and_writes_are_refused() {
    let setup = setup().await;
    let Setup { client, alpha, .. } = &setup;
    alpha.lose_quorum(true);
    assert!(!client.guests().await.unwrap().is_empty());
    assert_eq!(client.cluster_status().await.unwrap().quorate, Field::Value(false));
    let scratch = guest("pve2", GuestKind::Qemu, 104);
    let update = ConfigUpdate::new().set("cores", "3");
    let error = client.update_config(&scratch, &update).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::NoQuorum, Effect::Refused), "{error}");
    alpha.lose_quorum(false);
    client.update_config(&scratch, &update).await.unwrap();
}
