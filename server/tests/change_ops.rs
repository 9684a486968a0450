//! The operations of change sets beside destroying: what is refused, what the approver reads, what is sent, and how it is taken back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "support/changes.rs"]
mod changes;
mod support;

use changes::{MACHINE, Set, VMID, approval, code, named};
use lab::{Action, Fault, TaskExit};
use serde_json::{Value, json};
use support::{AGENT, APPROVER, Client, Rights, Stage};

/// A running machine with two snapshots and a backup.
const WEB: u32 = 100;

const GOVERNOR: Rights<'static> = Rights {
    tools: &[
        "plan_proxmox_destroy",
        "plan_restore_new_vmid",
        "plan_undo",
        "get_proxmox_change_set",
        "cancel_change_set",
        "apply_proxmox_change_set",
        "delete_vm",
        "delete_container",
        "delete_snapshot",
        "rollback_snapshot",
        "delete_backup",
        "delete_iso",
        "restore_backup",
        "restore_backup_new_vmid",
        "migrate",
        "update_vm_config",
        "update_container_config",
    ],
    ..AGENT
};

async fn set() -> Set {
    let mut stage = Stage::new().await;
    stage.token("governor", GOVERNOR);
    Set::of(stage).await
}

fn op(vmid: u32, op: &str, more: Value) -> Value {
    let mut arguments = json!({"cluster": "alpha", "vmid": vmid, "op": op});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

/// Plans as the governor.
async fn plan(set: &Set, arguments: Value) -> Result<Value, Value> {
    set.client("governor").call("plan_proxmox_destroy", arguments).await
}

/// Approves and applies.
async fn carry_out(set: &Set, plan: &Value) -> Value {
    set.approve(plan).await.unwrap();
    apply(set, plan).await.unwrap()
}

async fn apply(set: &Set, plan: &Value) -> Result<Value, Value> {
    set.client("governor").call("apply_proxmox_change_set", named(plan)).await
}

/// Requests that change something, as method and path.
fn mutations(set: &Set) -> Vec<String> {
    let sent = set.stage.alpha().requests();
    sent.iter().filter(|r| r.is_mutation()).map(|r| format!("{} {}", r.method, r.path)).collect()
}

fn preview(plan: &Value) -> &str {
    plan["preview"].as_str().unwrap()
}

fn says(refused: &Value, part: &str) {
    assert_eq!(refused["code"], "plan_impossible", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains(part), "{part:?} in {refused}");
}

// === snapshots ===

#[tokio::test(flavor = "multi_thread")]
async fn cs_41_a_rollback_takes_a_safety_snapshot_first_and_can_be_taken_back() {
    let set = set().await;
    let wanted = op(WEB, "rollback_snapshot", json!({"snapname": "clean"}));
    let rollback = plan(&set, wanted).await.unwrap();
    for part in [
        "back to snapshot \"clean\"",
        "stays stopped",
        "Safety snapshot     pxw_",
        "Step 1",
        "Step 2",
        "backup:backup/vzdump-qemu-100",
    ] {
        assert!(preview(&rollback).contains(part), "{part} in {}", preview(&rollback));
    }
    assert_eq!(rollback["destructive"], true);
    assert!(mutations(&set).is_empty());
    let done = carry_out(&set, &rollback).await;
    assert_eq!(done["state"], "applied", "{done}");
    let outcomes: Vec<&Value> =
        done["steps"].as_array().unwrap().iter().map(|step| &step["outcome"]).collect();
    assert_eq!(outcomes, ["OK", "OK"]);
    assert_eq!(
        mutations(&set),
        ["POST /nodes/pve1/qemu/100/snapshot", "POST /nodes/pve1/qemu/100/snapshot/clean/rollback"]
    );
    assert_eq!(set.stage.alpha().guest_option(WEB, "onboot"), None, "the snapshot had no onboot");

    let undo = set.client("governor").call("plan_undo", named(&rollback)).await.unwrap();
    let name = preview(&rollback).split("pxw_").nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert!(preview(&undo).contains(&format!("back to snapshot \"pxw_{name}\"")), "{}", preview(&undo));
    assert_ne!(undo["change_set_id"], rollback["change_set_id"]);
    assert_eq!(carry_out(&set, &undo).await["state"], "applied");
    assert_eq!(set.stage.alpha().guest_option(WEB, "onboot").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_safety_snapshot_ends_the_set_before_anything_is_lost() {
    let set = set().await;
    let rollback = plan(&set, op(WEB, "rollback_snapshot", json!({"snapname": "clean"}))).await.unwrap();
    set.stage.alpha().next_task_exit(TaskExit::Failed("no space left on thin pool".to_owned()));
    let done = carry_out(&set, &rollback).await;
    assert_eq!(done["state"], "failed", "{done}");
    assert!(done["ended"]["note"].as_str().unwrap().contains("thin pool"), "{done}");
    assert_eq!(mutations(&set), ["POST /nodes/pve1/qemu/100/snapshot"]);
    assert_eq!(
        set.client("governor").call("plan_undo", named(&rollback)).await.unwrap_err()["code"],
        "not_reversible"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_20_a_snapshot_that_is_not_the_one_approved_is_not_touched() {
    let set = set().await;
    let refused = plan(&set, op(WEB, "delete_snapshot", json!({"snapname": "nope"}))).await.unwrap_err();
    says(&refused, "\"clean\", \"before-update\"");
    let delete = plan(&set, op(WEB, "delete_snapshot", json!({"snapname": "clean"}))).await.unwrap();
    assert!(preview(&delete).contains("delete snapshot \"clean\""), "{}", preview(&delete));
    set.approve(&delete).await.unwrap();
    // Somebody changes the guest between approval and apply.
    set.stage.alpha().set_option(WEB, "cores", Some("3")).unwrap();
    let moved = apply(&set, &delete).await.unwrap_err();
    assert_eq!(moved["code"], "fingerprint_moved");
    assert!(moved["message"].as_str().unwrap().contains("config"), "{moved}");
    set.stage.alpha().set_option(WEB, "cores", Some("2")).unwrap();
    assert_eq!(apply(&set, &delete).await.unwrap()["state"], "applied");
    assert_eq!(mutations(&set), ["DELETE /nodes/pve1/qemu/100/snapshot/clean"]);
    assert_eq!(apply(&set, &delete).await.unwrap_err()["code"], "not_approved");
}

// === configuration ===

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_change_shows_its_diff_sends_the_digest_and_can_be_taken_back() {
    let set = set().await;
    let change = json!({"set": {"cores": "4", "sockets": "2"}, "delete": ["agent"]});
    let planned = plan(&set, op(MACHINE, "update_vm_config", change)).await.unwrap();
    for part in [
        "cores: \"2\" -> \"4\"",
        "sockets: (not set) -> \"2\"",
        "agent: \"1\" -> (not set)",
        "at the next start",
    ] {
        assert!(preview(&planned).contains(part), "{part} in {}", preview(&planned));
    }
    assert_eq!(planned["destructive"], false);
    // Nothing is destroyed, so the number is not asked for; a second person still is.
    let approve = json!({"change_set_id": planned["change_set_id"], "digest": planned["digest"]});
    set.approver.call("approve_proxmox_change_set", approve).await.unwrap();
    assert_eq!(apply(&set, &planned).await.unwrap()["state"], "applied");
    let sent = set.stage.alpha().requests();
    let put = sent.iter().find(|r| r.method == "PUT").unwrap();
    assert_eq!((put.params["cores"].as_str(), put.params["delete"].as_str()), ("4", "agent"));
    assert_eq!(put.params["digest"].len(), 40);
    let option = |key| set.stage.alpha().guest_option(MACHINE, key);
    assert_eq!((option("cores").as_deref(), option("agent")), (Some("4"), None));

    let undo = set.client("governor").call("plan_undo", named(&planned)).await.unwrap();
    assert!(preview(&undo).contains("cores: \"4\" -> \"2\""), "{}", preview(&undo));
    assert_eq!(carry_out(&set, &undo).await["state"], "applied");
    assert_eq!(
        (option("cores").as_deref(), option("sockets"), option("agent").as_deref()),
        (Some("2"), None, Some("1"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_may_not_hold_is_refused_before_anybody_is_asked() {
    let set = set().await;
    for (arguments, part) in [
        (
            op(MACHINE, "update_vm_config", json!({"set": {"hookscript": "local:snippets/x.sh"}})),
            "hookscript",
        ),
        (op(MACHINE, "update_vm_config", json!({"set": {"tags": "prod"}})), "tool of its own"),
        (op(MACHINE, "update_vm_config", json!({"set": {"cores": "2"}})), "already"),
        (op(MACHINE, "update_vm_config", json!({"delete": ["cpu"]})), "not set"),
        (op(102, "update_vm_config", json!({"set": {"cores": "4"}})), "locked"),
        (op(MACHINE, "rollback_snapshot", json!({"snapname": "clean"})), "it has none"),
        (op(110, "rollback_snapshot", json!({"snapname": "clean"})), "template"),
        (
            op(
                WEB,
                "restore_backup",
                json!({"volid": "backup:backup/vzdump-qemu-100-2026_11_20-02_00_05.vma.zst"}),
            ),
            "running",
        ),
        (
            op(
                MACHINE,
                "restore_backup",
                json!({"volid": "backup:backup/vzdump-qemu-100-2026_11_20-02_00_05.vma.zst"}),
            ),
            "of guest 100",
        ),
        (op(MACHINE, "restore_backup", json!({"volid": "local:iso/virtio-win-0.1.285.iso"})), "no backup"),
        (op(MACHINE, "delete_backup", json!({"volid": "backup:backup/nope.vma.zst"})), "lists"),
        (op(MACHINE, "migrate", json!({"target_node": "pve2"})), "already"),
        (op(MACHINE, "migrate", json!({"target_node": "pve3"})), "online"),
        (op(WEB, "migrate", json!({"target_node": "pve2"})), "`online`"),
        (op(WEB, "migrate", json!({"target_node": "pve2", "online": true})), "with_local_disks"),
        (op(200, "migrate", json!({"target_node": "pve2"})), "cannot move while it runs"),
    ] {
        says(&plan(&set, arguments).await.unwrap_err(), part);
    }
    for (arguments, field) in [
        (op(MACHINE, "migrate", json!({})), "target_node"),
        (op(MACHINE, "migrate", json!({"target_node": "../x"})), "target_node"),
        (op(MACHINE, "migrate", json!({"target_node": "pve1", "purge": true})), "purge"),
        (op(MACHINE, "delete_snapshot", json!({"snapname": "a/b"})), "snapname"),
        (op(MACHINE, "delete_backup", json!({"volid": "no colon"})), "volid"),
        (op(MACHINE, "destroy_guest", json!({"set": {"cores": "1"}})), "set"),
    ] {
        let refused = plan(&set, arguments).await.unwrap_err();
        assert_eq!(
            (&refused["code"], &refused["field"]),
            (&json!("invalid_argument"), &json!(field)),
            "{refused}"
        );
    }
    let other_kind = plan(&set, op(VMID, "update_vm_config", json!({"set": {"cores": "2"}}))).await;
    assert_eq!(code(other_kind), "wrong_guest_kind");
    let protected = plan(&set, op(101, "update_vm_config", json!({"set": {"cores": "8"}}))).await;
    assert_eq!(code(protected), "protected");
    // A scope of its own each: the plain agent holds none of these.
    let unscoped =
        set.agent.call("plan_proxmox_destroy", op(MACHINE, "migrate", json!({"target_node": "pve1"}))).await;
    assert_eq!(code(unscoped), "insufficient_scope");
    assert!(mutations(&set).is_empty());
    assert!(
        set.stage.audit().iter().all(|r| r["event"] != "change.plan"),
        "a refusal leaves no record of a plan"
    );
}

/// A44: what is known to fail is not planned, and what is sent all the same is refused once, with the cause.
#[tokio::test(flavor = "multi_thread")]
async fn without_quorum_nothing_is_planned_and_reads_go_on() {
    let set = set().await;
    set.stage.alpha().lose_quorum(true);
    for arguments in [
        op(VMID, "destroy_guest", json!({})),
        op(MACHINE, "update_vm_config", json!({"set": {"cores": "4"}})),
    ] {
        let refused = plan(&set, arguments).await.unwrap_err();
        assert_eq!(refused["code"], "no_quorum", "{refused}");
    }
    assert!(mutations(&set).is_empty());
    let sent = set.agent.call("start_vm", json!({"cluster": "alpha", "vmid": MACHINE})).await.unwrap_err();
    assert_eq!(sent["code"], "no_quorum", "{sent}");
    assert_eq!(mutations(&set).len(), 1, "once");
    let reader = set.client("reader");
    let status = reader.call("get_cluster_status", json!({"cluster": "alpha"})).await.unwrap();
    assert_eq!(status["quorate"], false);
    assert!(reader.call("get_vms", json!({"cluster": "alpha"})).await.is_ok());
    set.stage.alpha().lose_quorum(false);
    plan(&set, op(VMID, "destroy_guest", json!({}))).await.unwrap();
}

/// GR-06 too: tags and pool decide who may act on the guest, so a plan of its configuration never holds them.
#[tokio::test(flavor = "multi_thread")]
async fn px_08_gr_06_keys_and_values_that_reach_further_than_the_guest_are_refused() {
    let set = set().await;
    let (vm, ct) = ((MACHINE, "update_vm_config"), (VMID, "update_container_config"));
    for ((vmid, name), key, value) in [
        (vm, "hookscript", "local:snippets/x.sh"),
        (vm, "args", "-device vfio-pci"),
        (vm, "hostpci0", "0000:01:00.0"),
        (vm, "usb0", "host=1234:5678"),
        (vm, "serial0", "/dev/ttyS0"),
        (vm, "scsi1", "/dev/sda"),
        (vm, "ide2", "none"),
        (vm, "Cores", "4"),
        (vm, "HOOKSCRIPT", "local:snippets/x.sh"),
        (vm, "protection", "0"),
        (vm, "tags", "disposable"),
        (vm, "pool", "scratch"),
        (vm, "no_such_key", "1"),
        (vm, "delete", "protection"),
        (vm, "name", "a\nprotection: 0"),
        (vm, "name", "a\u{0}b"),
        (vm, "net0", "virtio,bridge=vmbr0,script=/etc/x"),
        (ct, "mp0", "/host,mp=/host"),
        (ct, "dev0", "/dev/kvm"),
        (ct, "lxc.apparmor.profile", "unconfined"),
        (ct, "features", "nesting=1"),
        (ct, "unprivileged", "0"),
        (ct, "hostname", "a\r\nmp0: /host"),
        (ct, "tags", "disposable"),
    ] {
        let refused = plan(&set, op(vmid, name, json!({"set": {key: value}}))).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(key), "{key}={value:?}: {refused}");
    }
    for ((vmid, name), key) in [(vm, "protection"), (vm, "tags"), (vm, "scsi0"), (ct, "tags"), (ct, "rootfs")]
    {
        let refused = plan(&set, op(vmid, name, json!({"delete": [key]}))).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(key), "{key}: {refused}");
    }
    assert!(mutations(&set).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_28_a_synchronous_change_whose_answer_is_lost_is_looked_at_and_never_sent_again() {
    for (action, state) in [(Action::DropAfter, "applied"), (Action::DropBefore, "unknown")] {
        let set = set().await;
        let change = json!({"set": {"cores": "2"}, "safety_snapshot": false});
        let planned = plan(&set, op(VMID, "update_container_config", change)).await.unwrap();
        assert!(preview(&planned).contains("none: not asked for"), "{}", preview(&planned));
        set.stage.alpha().inject(Fault::once("PUT", "/nodes/{node}/lxc/{vmid}/config", action));
        let done = carry_out(&set, &planned).await;
        assert_eq!(done["state"], state, "{done}");
        assert_eq!(mutations(&set), ["PUT /nodes/pve1/lxc/201/config"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_changes_under_the_request_is_left_alone() {
    let set = set().await;
    let change = json!({"set": {"cores": "2"}, "safety_snapshot": false});
    let planned = plan(&set, op(VMID, "update_container_config", change)).await.unwrap();
    set.approve(&planned).await.unwrap();
    let mut held =
        set.stage.alpha().inject(Fault::once("PUT", "/nodes/{node}/lxc/{vmid}/config", Action::HoldBefore));
    let (client, id) = (set.client("governor"), named(&planned));
    let applying = tokio::spawn(async move { client.call("apply_proxmox_change_set", id).await });
    held.struck().await;
    set.stage.alpha().set_option(VMID, "memory", Some("1024")).unwrap();
    held.release();
    let done = applying.await.unwrap().unwrap();
    assert_eq!(done["state"], "failed", "{done}");
    assert_eq!(set.stage.alpha().guest_option(VMID, "cores").as_deref(), Some("1"));
}

// === what is no guest, and guests yet to be ===

#[tokio::test(flavor = "multi_thread")]
async fn an_image_belongs_to_nobody_so_only_tokens_for_everything_see_its_set() {
    let mut stage = Stage::new().await;
    stage.token("governor", GOVERNOR);
    stage.token("narrow", Rights { guests: &["vmid:100-199"], ..GOVERNOR });
    stage.token("narrow-approver", Rights { guests: &["vmid:100-199"], ..APPROVER });
    let set = Set::of(stage).await;
    let iso = json!({"cluster": "alpha", "op": "delete_iso", "volid": "local:iso/virtio-win-0.1.285.iso"});
    assert_eq!(
        code(set.client("narrow").call("plan_proxmox_destroy", iso.clone()).await),
        "authorization_failed"
    );
    let planned = plan(&set, iso).await.unwrap();
    assert_eq!(planned["target"], "volume/local:iso/virtio-win-0.1.285.iso");
    assert!(preview(&planned).contains("In drives of guests "), "{}", preview(&planned));
    let approve = json!({"change_set_id": planned["change_set_id"], "digest": planned["digest"]});
    let refused = set.client("narrow-approver").call("approve_proxmox_change_set", approve.clone()).await;
    assert_eq!(code(refused), "unknown_change_set");
    let mut with_number = approve.clone();
    with_number["confirm_vmid"] = 100.into();
    assert_eq!(
        code(set.approver.call("approve_proxmox_change_set", with_number).await),
        "confirmation_missing"
    );
    let approved = set.approver.call("approve_proxmox_change_set", approve).await.unwrap();
    assert_eq!(approved["state"], "approved");
    let no_image = json!({"cluster": "alpha", "op": "delete_iso", "volid": "backup:backup/vzdump-qemu-100-2026_11_20-02_00_05.vma.zst"});
    says(&plan(&set, no_image).await.unwrap_err(), "no ISO image");
    let with_guest = op(WEB, "delete_iso", json!({"volid": "local:iso/virtio-win-0.1.285.iso"}));
    assert_eq!(code(plan(&set, with_guest).await), "invalid_argument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_to_a_new_number_needs_a_free_number_that_the_token_may_make() {
    let mut stage = Stage::new().await;
    stage.token("governor", GOVERNOR);
    stage.token("narrow", Rights { guests: &["vmid:100-199"], ..GOVERNOR });
    let set = Set::of(stage).await;
    let volid = "backup:backup/vzdump-qemu-100-2026_11_20-02_00_05.vma.zst";
    let restore = |newid: u32| json!({"cluster": "alpha", "vmid": WEB, "volid": volid, "newid": newid});
    let call = |token: &'static str, newid: u32| {
        let client: Client = set.client(token);
        async move { client.call("plan_restore_new_vmid", restore(newid)).await }
    };
    says(&call("governor", 104).await.unwrap_err(), "in use");
    assert_eq!(code(call("narrow", 990).await), "vmid_out_of_scope");
    let planned = call("governor", 990).await.unwrap();
    for part in ["make a new QEMU virtual machine 990", "New VMID            990", "not started"] {
        assert!(preview(&planned).contains(part), "{part} in {}", preview(&planned));
    }
    set.approver.call("approve_proxmox_change_set", approval(&planned)).await.unwrap();
}

// === the preview ===

#[tokio::test(flavor = "multi_thread")]
async fn the_preview_names_the_last_backup_and_linked_clones_or_says_what_could_not_be_read() {
    let set = set().await;
    let planned = set.plan().await;
    assert!(
        preview(&planned).contains("Backups             1, newest \"backup:backup/vzdump-lxc-201-"),
        "{}",
        preview(&planned)
    );
    assert!(preview(&planned).contains("Linked clones       none"), "{}", preview(&planned));
    set.agent.call("cancel_change_set", named(&planned)).await.unwrap();

    let broken = Action::Status { code: 500, reason: "mount error".to_owned(), body: String::new() };
    set.stage.alpha().inject(Fault::always("GET", "/nodes/{node}/storage/backup/content", broken));
    let planned = set.plan().await;
    assert!(preview(&planned).contains("could not be read: backup"), "{}", preview(&planned));
    set.stage.alpha().clear_faults();

    let linked = "local-lvm:base-110-disk-0/vm-104-disk-0,size=8G";
    set.stage.alpha().set_option(MACHINE, "scsi0", Some(linked)).unwrap();
    says(&plan(&set, op(110, "destroy_guest", json!({}))).await.unwrap_err(), "(104; ");
}
