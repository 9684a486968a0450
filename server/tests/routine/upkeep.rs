use serde_json::{Value, json};

use super::support::Rights;
use super::{Shop, WORKER, code, message};

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_grows_once_and_only_grows() {
    let shop = Shop::new().await;
    let before = shop.stage.alpha().guest_option(104, "scsi0").unwrap();
    let told = shop
        .call("resize_disk", json!({"vmid": 104, "disk": "scsi0", "size": "+2G", "dry_run": true}))
        .await
        .unwrap();
    let parameters = &told["request"]["parameters"];
    assert_eq!((&parameters["size"], parameters["digest"].is_string()), (&json!("+2G"), true), "{told}");
    assert_eq!(shop.stage.alpha().guest_option(104, "scsi0").unwrap(), before);
    let done = shop
        .call("resize_disk", json!({"vmid": 104, "disk": "scsi0", "size": "+2G", "wait": 60}))
        .await
        .unwrap();
    assert_eq!(done["status"], "ok", "{done}");
    assert_ne!(shop.stage.alpha().guest_option(104, "scsi0").unwrap(), before);
    shop.stage.alpha().clear_requests();
    for size in ["2G", "+0G", "+banana", "-1G", "+2", "+1.5G", "+2g"] {
        let refused =
            shop.call("resize_disk", json!({"vmid": 104, "disk": "scsi0", "size": size})).await.unwrap_err();
        assert_eq!(refused["field"], "size", "{size}: {refused}");
    }
    let refused =
        shop.call("resize_disk", json!({"vmid": 104, "disk": "scsi7", "size": "+1G"})).await.unwrap_err();
    assert!(message(&refused).contains("has no disk scsi7"), "{refused}");
    assert_eq!(shop.sent(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_on_a_protected_guest_is_and_the_rest_is_not() {
    let shop = Shop::new().await;
    shop.stage.alpha().set_tags(201, &["protected"]).unwrap();
    for (tool, arguments) in [
        ("create_snapshot", json!({"vmid": 201, "snapname": "before", "wait": 60})),
        ("create_backup", json!({"vmid": 201, "storage": "local", "wait": 60})),
    ] {
        let done = shop.call(tool, arguments).await.unwrap_or_else(|refused| panic!("{tool}: {refused}"));
        assert_eq!(done["status"], "ok", "{tool}: {done}");
    }
    shop.stage.alpha().clear_requests();
    for (tool, arguments) in [
        ("create_backup", json!({"vmid": 201, "storage": "local", "mode": "stop"})),
        ("create_backup", json!({"vmid": 201, "storage": "local", "mode": "suspend"})),
        ("resize_disk", json!({"vmid": 201, "disk": "rootfs", "size": "+1G"})),
        ("update_container_resources", json!({"vmid": 201, "cores": 2})),
        ("update_guest_notes_tags", json!({"vmid": 201, "tags": []})),
        ("update_guest_notes_tags", json!({"vmid": 201, "remove_tags": ["protected"]})),
    ] {
        let refused = shop.call(tool, arguments).await.unwrap_err();
        assert_eq!(code(&refused), "protected", "{tool}: {refused}");
    }
    assert_eq!(shop.sent(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_removes_none_and_says_what_it_is() {
    let shop = Shop::new().await;
    let arguments =
        json!({"vmid": 201, "storage": "local", "notes": "first\nsecond \\ end", "dry_run": true});
    let told = shop.call("create_backup", arguments).await.unwrap();
    let parameters = &told["request"]["parameters"];
    assert_eq!(parameters["remove"], "0", "{told}");
    assert_eq!(
        (&parameters["mode"], &parameters["compress"]),
        (&json!("snapshot"), &json!("zstd")),
        "{told}"
    );
    assert_eq!(parameters["notes-template"], "first\\nsecond \\\\ end", "{told}");
    let refused = shop
        .call("create_backup", json!({"vmid": 201, "storage": "local", "mode": "Stop"}))
        .await
        .unwrap_err();
    assert!(message(&refused).contains("mode"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_name_that_is_there_is_refused_before_it_is_sent() {
    let shop = Shop::new().await;
    let take =
        async || shop.call("create_snapshot", json!({"vmid": 104, "snapname": "s1", "wait": 60})).await;
    assert_eq!(take().await.unwrap()["status"], "ok");
    shop.stage.alpha().clear_requests();
    assert_eq!(code(&take().await.unwrap_err()), "snapshot_exists");
    for name in ["current", "x", "1st", "a b", "../x", "ä1"] {
        let refused = shop.call("create_snapshot", json!({"vmid": 104, "snapname": name})).await.unwrap_err();
        assert_eq!(refused["field"], "snapname", "{name}: {refused}");
    }
    assert_eq!(shop.sent(), Vec::<String>::new());
}

/// A43: what a running guest cannot take now waits, and nothing is restarted for it.
#[tokio::test(flavor = "multi_thread")]
async fn resources_change_without_a_restart_and_with_the_digest() {
    let shop = Shop::new().await;
    let arguments = json!({"vmid": 201, "cores": 2, "memory": 1024, "swap": 0});
    shop.stage.alpha().clear_requests();
    let done = shop.call("update_container_resources", arguments).await.unwrap();
    assert_eq!(done["synchronous"], true, "{done}");
    assert!(done["pending"].is_array(), "{done}");
    assert_eq!(shop.stage.alpha().guest_option(201, "memory").as_deref(), Some("1024"));
    assert_eq!(shop.sent(), ["PUT /nodes/pve1/lxc/201/config"]);
    let refused = shop.call("update_container_resources", json!({"vmid": 201})).await.unwrap_err();
    assert!(message(&refused).contains("nothing to change"), "{refused}");
    let refused =
        shop.call("update_container_resources", json!({"vmid": 100, "cores": 2})).await.unwrap_err();
    assert_eq!(code(&refused), "wrong_guest_kind", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_and_tags_change_under_their_own_scope() {
    let shop = Shop::with(|stage| {
        stage.token("rest", Rights { tools: &["update_container_resources", "resize_disk"], ..WORKER });
        stage.token("tagged", Rights { guests: &["tag:web"], ..WORKER });
    })
    .await;
    shop.stage.alpha().set_tags(104, &["web", "trial"]).unwrap();
    let change = async |arguments: Value| shop.call("update_guest_notes_tags", arguments).await;
    let done = change(
        json!({"vmid": 104, "add_tags": ["db"], "remove_tags": ["trial"], "description": "a; b=c & d\nü"}),
    )
    .await
    .unwrap();
    assert_eq!(done["tags"], json!(["db", "web"]), "{done}");
    let alpha = shop.stage.alpha();
    assert_eq!(alpha.guest_option(104, "tags").as_deref(), Some("db;web"));
    assert_eq!(alpha.guest_option(104, "description").as_deref(), Some("a; b=c & d\nü"));
    change(json!({"vmid": 104, "description": ""})).await.unwrap();
    assert_eq!(alpha.guest_option(104, "description").unwrap_or_default(), "");
    for (arguments, field) in [
        (json!({"vmid": 104}), "description"),
        (json!({"vmid": 104, "tags": ["a"], "add_tags": ["b"]}), "tags"),
        (json!({"vmid": 104, "tags": ["a;b"]}), "tags"),
        (json!({"vmid": 104, "remove_tags": ["absent"]}), "remove_tags"),
        (json!({"vmid": 104, "description": "bell \u{7}"}), "description"),
    ] {
        let refused = change(arguments).await.unwrap_err();
        assert_eq!(refused["field"], field, "{refused}");
    }
    let arguments = json!({"cluster": "alpha", "vmid": 104, "tags": []});
    let refused = shop.client("rest").call("update_guest_notes_tags", arguments.clone()).await.unwrap_err();
    assert_eq!(code(&refused), "insufficient_scope", "{refused}");
    // Whoever may change tags may also lose a guest by it.
    shop.client("tagged").call("update_guest_notes_tags", arguments.clone()).await.unwrap();
    let refused = shop.client("tagged").call("update_guest_notes_tags", arguments).await.unwrap_err();
    assert_eq!(message(&refused), "authorization failed", "{refused}");
}
