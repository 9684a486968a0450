//! Changes of guests, storages, firewalls, HA and pools: their order of checks, their words and what they leave behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Got, call, exit_of};
use lab::{Action, Fault, Lab, LabCluster, LabConfig};
use serde_json::{Value, json};

async fn lab() -> (Lab, LabCluster) {
    let mut config = LabConfig::two_clusters().unwrap();
    for cluster in config.clusters.values_mut() {
        cluster.task_ms = 5;
    }
    let lab = Lab::start(config).await.unwrap();
    let alpha = lab.cluster("alpha");
    (lab, alpha)
}

/// Sends a change that a worker does, and gives the end of the task.
async fn done(cluster: &LabCluster, method: &str, path: &str, body: &str) -> String {
    let (path, body) = match method {
        "DELETE" if !body.is_empty() => (format!("{path}?{body}"), ""),
        _ => (path.to_owned(), body),
    };
    let upid = call(cluster, method, &path, body).await.data();
    exit_of(cluster, upid.as_str().unwrap()).await
}

fn refused(got: &Got) -> (u16, &str) {
    (got.status, got.reason.as_str())
}

#[tokio::test]
async fn a_snapshot_locks_the_guest_while_it_is_taken() {
    let (_lab, alpha) = lab().await;
    alpha.hold_tasks(true);
    let path = "/nodes/pve1/qemu/100";
    let upid = call(&alpha, "POST", &format!("{path}/snapshot"), "snapname=s1&vmstate=1").await.data();
    assert_eq!(alpha.guest_option(100, "lock").as_deref(), Some("snapshot"));
    let got = call(&alpha, "PUT", &format!("{path}/config"), "cores=1").await;
    assert_eq!(refused(&got), (500, "VM is locked (snapshot)"));
    alpha.hold_tasks(false);
    assert_eq!(exit_of(&alpha, upid.as_str().unwrap()).await, "OK");
    assert_eq!(alpha.guest_option(100, "lock"), None);
    assert_eq!(alpha.guest_option(100, "parent").as_deref(), Some("s1"));
    let again = done(&alpha, "POST", &format!("{path}/snapshot"), "snapname=s1").await;
    assert_eq!(again, "snapshot name 's1' already used");
    // With the RAM in the snapshot the VM runs again, without it does not.
    assert_eq!(done(&alpha, "POST", &format!("{path}/snapshot/s1/rollback"), "").await, "OK");
    assert_eq!(alpha.guest_running(100), Some(true));
    assert_eq!(done(&alpha, "POST", &format!("{path}/snapshot/clean/rollback"), "").await, "OK");
    assert_eq!(alpha.guest_running(100), Some(false));
    assert_eq!(done(&alpha, "DELETE", &format!("{path}/snapshot/clean"), "").await, "OK");
    let left = call(&alpha, "GET", &format!("{path}/snapshot"), "").await.data();
    let names: Vec<&str> = left.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["before-update", "s1", "current"]);
    assert_eq!(left[0].get("parent"), None, "its parent is gone");
}

#[tokio::test]
async fn a_clone_has_its_own_disks_and_addresses() {
    let (_lab, alpha) = lab().await;
    let clone = "/nodes/pve1/qemu/101/clone";
    assert_eq!(done(&alpha, "POST", clone, "newid=900&name=copy&pool=sandbox").await, "OK");
    let config = call(&alpha, "GET", "/nodes/pve1/qemu/900/config", "").await.data();
    assert_eq!(config["scsi0"], "local-lvm:vm-900-disk-0,size=16G");
    assert_eq!(config["name"], "copy");
    assert_ne!(config["net0"], json!(alpha.guest_option(101, "net0")));
    let pool = call(&alpha, "GET", "/pools?poolid=sandbox", "").await.data();
    assert!(pool[0]["members"].as_array().unwrap().iter().any(|member| member["vmid"] == 900));
    let got = call(&alpha, "POST", clone, "newid=102").await;
    assert_eq!(refused(&got), (500, "unable to create VM 102: config file already exists"));
    let got = call(&alpha, "POST", "/nodes/pve2/qemu/110/clone", "newid=901&storage=local-lvm").await;
    assert_eq!(refused(&got), (500, "parameter 'storage' not allowed for linked clones"));
    let got = call(&alpha, "POST", clone, "newid=901&target=pve2").await;
    assert_eq!(refused(&got), (500, "can't clone VM to node 'pve2' (VM uses local storage)"));
    // The answer is lost, the clone is there.
    alpha.inject(Fault::once("POST", "/nodes/{node}/qemu/{vmid}/clone", Action::DropAfter));
    let authorization = common::authorization(&alpha, alpha.token_id());
    let lost = common::send(&alpha, Some(&authorization), "POST", clone, "newid=902").await;
    assert!(lost.is_err());
    alpha.idle().await;
    assert!(alpha.guest_exists(902));
}

#[tokio::test]
async fn guests_move_and_their_disks_grow() {
    let (_lab, alpha) = lab().await;
    let got = call(&alpha, "POST", "/nodes/pve1/lxc/200/migrate", "target=pve2").await;
    assert_eq!(refused(&got), (500, "can't migrate running container without --online or --restart"));
    let got = call(&alpha, "POST", "/nodes/pve1/qemu/100/migrate", "target=pve1").await;
    assert_eq!(got.json()["errors"]["target"], "target is local node.");
    assert_eq!(done(&alpha, "POST", "/nodes/pve1/lxc/200/migrate", "target=pve2&restart=1").await, "OK");
    let got = call(&alpha, "GET", "/nodes/pve1/lxc/200/config", "").await;
    assert_eq!(got.reason, "Configuration file 'nodes/pve1/lxc/200.conf' does not exist");
    let resize = "/nodes/pve2/lxc/200/resize";
    assert_eq!(done(&alpha, "PUT", resize, "disk=rootfs&size=%2B1G").await, "OK");
    assert_eq!(alpha.guest_option(200, "rootfs").unwrap(), "local-lvm:vm-200-disk-0,size=9G");
    let got = call(&alpha, "PUT", resize, "disk=rootfs&size=1G").await;
    assert_eq!(refused(&got), (500, "unable to shrink disk size"));
    let qemu = "/nodes/pve1/qemu/100/resize";
    assert_eq!(done(&alpha, "PUT", qemu, "disk=scsi0&size=1G").await, "shrinking disks is not supported");
    assert_eq!(done(&alpha, "PUT", qemu, "disk=scsi9&size=1G").await, "disk 'scsi9' does not exist");
}

#[tokio::test]
async fn a_backup_restores_over_its_guest_only_by_force() {
    let (_lab, alpha) = lab().await;
    let dump = "vmid=201&storage=backup&compress=zstd&notes-template=%7B%7Bguestname%7D%7D&protected=1";
    assert_eq!(done(&alpha, "POST", "/nodes/pve1/vzdump", dump).await, "OK");
    let path = "/nodes/pve1/storage/backup/content";
    let list = call(&alpha, "GET", &format!("{path}?content=backup&vmid=201"), "").await.data();
    let made =
        list.as_array().unwrap().iter().find(|row| row["notes"] == "disposable" && row["protected"] == 1);
    let volid = made.unwrap()["volid"].as_str().unwrap().to_owned();
    let restore = format!("vmid=201&ostemplate={volid}&restore=1&storage=local-lvm");
    let got = call(&alpha, "POST", "/nodes/pve1/lxc", &restore).await;
    assert_eq!(refused(&got), (500, "CT 201 already exists on node 'pve1'"));
    std::fs::write(alpha.guest_root(201).join("tmp/old"), "x").unwrap();
    assert_eq!(done(&alpha, "POST", "/nodes/pve1/lxc", &format!("{restore}&force=1")).await, "OK");
    assert_eq!(alpha.guest_option(201, "hostname").as_deref(), Some("disposable"));
    assert!(!alpha.guest_root(201).join("tmp/old").exists());
    let gone = done(&alpha, "DELETE", &format!("{path}/{volid}"), "").await;
    assert!(gone.starts_with("cannot remove protected volume 'backup/vzdump-lxc-201-"), "{gone}");
    call(&alpha, "PUT", &format!("{path}/{volid}"), "protected=0").await.data();
    assert_eq!(done(&alpha, "DELETE", &format!("{path}/{volid}"), "").await, "OK");
    // Nothing to do on this node is no task.
    assert_eq!(call(&alpha, "POST", "/nodes/pve1/vzdump", "vmid=202&storage=backup").await.data(), "OK");
    assert_eq!(done(&alpha, "POST", "/nodes/pve1/vzdump", "vmid=999&storage=backup").await, "job errors");
}

#[tokio::test]
async fn guests_are_made_with_disks_and_addresses() {
    let (_lab, alpha) = lab().await;
    let body = "vmid=910&name=new&memory=512&scsi0=local-lvm:4&net0=virtio,bridge%3Dvmbr0&start=1";
    assert_eq!(done(&alpha, "POST", "/nodes/pve1/qemu", body).await, "OK");
    assert_eq!(alpha.guest_option(910, "scsi0").unwrap(), "local-lvm:vm-910-disk-0,size=4G");
    assert_eq!(alpha.guest_running(910), Some(true));
    let got = call(&alpha, "POST", "/nodes/pve1/qemu", "vmid=910").await;
    assert_eq!(refused(&got), (500, "unable to create VM 910 - VM 910 already exists on node 'pve1'"));
    let template = "local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst";
    let body = format!("vmid=911&ostemplate={template}&rootfs=local-lvm:4&hostname=h");
    assert_eq!(done(&alpha, "POST", "/nodes/pve1/lxc", &body).await, "OK");
    assert_eq!(alpha.guest_option(911, "unprivileged").as_deref(), Some("1"));
    let got = call(&alpha, "POST", "/nodes/pve1/lxc", &format!("vmid=912&ostemplate={template}")).await;
    assert_eq!(got.json()["errors"]["storage"], "storage 'local' does not support container directories");
}

#[tokio::test]
async fn what_a_running_vm_cannot_take_waits_for_its_next_start() {
    let (_lab, alpha) = lab().await;
    let path = "/nodes/pve1/qemu/100";
    call(&alpha, "PUT", &format!("{path}/config"), "cores=3&delete=ostype&name=renamed").await.data();
    let rows = call(&alpha, "GET", &format!("{path}/pending"), "").await.data();
    let row = |key: &str| rows.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(row("cores"), json!({ "key": "cores", "value": 2, "pending": 3 }));
    assert_eq!(row("ostype"), json!({ "key": "ostype", "value": "l26", "delete": 1 }));
    assert_eq!(row("name"), json!({ "key": "name", "value": "renamed" }));
    let current = call(&alpha, "GET", &format!("{path}/config?current=1"), "").await.data();
    assert_eq!((&current["cores"], &current["ostype"]), (&json!(2), &json!("l26")));
    assert_eq!(done(&alpha, "POST", &format!("{path}/config"), "memory=1024").await, "OK");
    call(&alpha, "PUT", &format!("{path}/config"), "revert=cores").await.data();
    assert_eq!(done(&alpha, "POST", &format!("{path}/status/reboot"), "").await, "OK");
    let current = call(&alpha, "GET", &format!("{path}/config?current=1"), "").await.data();
    assert_eq!(
        (&current["cores"], &current["memory"], current.get("ostype")),
        (&json!(2), &json!("1024"), None)
    );
    // To disk and back.
    assert_eq!(done(&alpha, "POST", &format!("{path}/status/suspend"), "todisk=1").await, "OK");
    let status = call(&alpha, "GET", &format!("{path}/status/current"), "").await.data();
    assert_eq!((&status["status"], &status["lock"]), (&json!("stopped"), &json!("suspended")));
    assert_eq!(done(&alpha, "POST", &format!("{path}/status/resume"), "").await, "OK");
    assert_eq!((alpha.guest_running(100), alpha.guest_option(100, "lock")), (Some(true), None));
}

#[tokio::test]
async fn members_of_pools_move_only_when_told() {
    let (_lab, alpha) = lab().await;
    let got = call(&alpha, "PUT", "/pools", "poolid=sandbox&vms=100").await;
    let text = "update pools failed: VM 100 belongs already to pool 'production' and 'allow-move' is not set";
    assert_eq!(refused(&got), (500, text));
    call(&alpha, "PUT", "/pools", "poolid=sandbox&vms=100&allow-move=1").await.data();
    let members = call(&alpha, "GET", "/pools/sandbox?type=qemu", "").await.data()["members"].clone();
    let vmids: Vec<u64> =
        members.as_array().unwrap().iter().map(|row| row["vmid"].as_u64().unwrap()).collect();
    assert_eq!(vmids, [104, 100]);
    let got = call(&alpha, "DELETE", "/pools?poolid=sandbox", "").await;
    assert_eq!(got.reason, "delete pool failed: pool 'sandbox' is not empty (contains VM 104)");
    call(&alpha, "PUT", "/pools", "poolid=sandbox&vms=100,104,201&delete=1").await.data();
    call(&alpha, "DELETE", "/pools?poolid=sandbox", "").await.data();
    let got = call(&alpha, "POST", "/pools", "poolid=production").await;
    assert_eq!(got.reason, "create pool failed: pool 'production' already exists");
}

#[tokio::test]
async fn faults_strike_paths_whose_ends_have_slashes() {
    let (_lab, alpha) = lab().await;
    let volume = "/nodes/pve1/storage/local/content/iso/virtio-win-0.1.285.iso";
    let template = "/nodes/{node}/storage/{storage}/content/{volume}";
    let action = Action::Status { code: 500, reason: "broken".to_owned(), body: String::new() };
    alpha.inject(Fault::once("DELETE", template, action));
    assert_eq!(refused(&call(&alpha, "DELETE", volume, "").await), (500, "broken"));
    assert!(alpha.effects().is_empty());
    assert_eq!(done(&alpha, "DELETE", volume, "").await, "OK");
    assert_eq!(alpha.effects(), [("DELETE".to_owned(), volume.to_owned())]);
}

#[tokio::test]
async fn a_new_firewall_rule_is_first_and_off_and_positions_move() {
    let (_lab, alpha) = lab().await;
    let rules = "/nodes/pve1/lxc/200/firewall/rules";
    let list = async || call(&alpha, "GET", rules, "").await.data();
    let ports = |rows: &Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["dport"].as_str().unwrap_or("-").to_owned()).collect()
    };
    for port in ["80", "443"] {
        let body = format!("type=in&action=ACCEPT&proto=tcp&dport={port}&pos=5");
        call(&alpha, "POST", rules, &body).await.data();
    }
    let rows = list().await;
    assert_eq!(ports(&rows), ["443", "80", "22"]);
    assert_eq!((&rows[0]["enable"], &rows[2]["enable"]), (&json!(0), &json!(1)));
    // The target counts in the old list, and all else in the call is ignored.
    call(&alpha, "PUT", &format!("{rules}/0"), "moveto=2&dport=1").await.data();
    assert_eq!(ports(&list().await), ["80", "443", "22"]);
    let digest = rows[0]["digest"].as_str().unwrap();
    let got = call(&alpha, "PUT", &format!("{rules}/0"), &format!("enable=1&digest={digest}")).await;
    assert_eq!(got.reason, "detected modified configuration - file changed by other user? Try again.");
    assert_eq!(call(&alpha, "DELETE", &format!("{rules}/9"), "").await.reason, "no rule at position 9");
    call(&alpha, "DELETE", &format!("{rules}/1"), "").await.data();
    assert_eq!(ports(&list().await), ["80", "22"]);
    let got = call(&alpha, "POST", rules, "type=in&action=ACCEPT&dport=22").await;
    assert_eq!(got.json()["errors"]["proto"], "missing property - 'dport' requires this property");
    let got = call(&alpha, "POST", rules, "type=in&action=ACCEPT&source=%2Bnosuch").await;
    assert_eq!(got.json()["errors"]["source"], "no such ipset 'nosuch'");
}

#[tokio::test]
async fn what_a_rule_refers_to_may_go_and_the_rule_says_so() {
    let (_lab, alpha) = lab().await;
    let firewall = "/cluster/firewall";
    call(&alpha, "DELETE", &format!("{firewall}/aliases/office"), "").await.data();
    let rules = call(&alpha, "GET", "/nodes/pve1/qemu/100/firewall/rules", "").await.data();
    assert_eq!(rules[1]["errors"]["source"], "no such alias 'dc/office'");
    let got = call(&alpha, "DELETE", &format!("{firewall}/ipset/management"), "").await;
    assert_eq!(refused(&got), (500, "IPSet 'management' is not empty"));
    let entry = format!("{firewall}/ipset/blocklist/203.0.113.128%2F25");
    assert_eq!(call(&alpha, "GET", &entry, "").await.data()["cidr"], "203.0.113.128/25");
    call(&alpha, "DELETE", &entry, "").await.data();
    call(&alpha, "DELETE", &format!("{firewall}/ipset/blocklist"), "").await.data();
    let got = call(&alpha, "DELETE", &format!("{firewall}/groups/web"), "").await;
    assert_eq!(refused(&got), (500, "Security group 'web' is not empty"));
    call(&alpha, "DELETE", &format!("{firewall}/groups/empty"), "").await.data();
}

#[tokio::test]
async fn ha_rules_take_managed_resources_only() {
    let (_lab, alpha) = lab().await;
    let rule = "rule=apart&type=resource-affinity&affinity=negative&resources=ct:203,vm:104";
    let got = call(&alpha, "POST", "/cluster/ha/rules", rule).await;
    assert_eq!(refused(&got), (500, "create ha rule failed: cannot use unmanaged resource(s) vm:104."));
    call(&alpha, "POST", "/cluster/ha/resources", "sid=104&state=stopped").await.data();
    let got = call(&alpha, "POST", "/cluster/ha/resources", "sid=vm:104").await;
    assert_eq!(got.reason, "create resource failed: resource ID 'vm:104' already defined");
    // The other member prefers its nodes in an order, which such a rule cannot have.
    let got = call(&alpha, "POST", "/cluster/ha/rules", rule).await;
    assert_eq!(refused(&got), (500, "create ha rule failed: 400 Rule 'apart' is invalid."));
    assert!(got.json()["message"].as_str().unwrap().contains("multiple priorities"));
    let got = call(&alpha, "PUT", "/cluster/ha/rules/archive-on-pve2", "disable=1").await;
    assert_eq!(got.json()["errors"]["type"], "property is missing and it is not optional");
    call(&alpha, "PUT", "/cluster/ha/rules/archive-on-pve2", "type=node-affinity&disable=1").await.data();
    assert_eq!(call(&alpha, "GET", "/cluster/ha/rules/archive-on-pve2", "").await.data()["disable"], 1);
    call(&alpha, "DELETE", "/cluster/ha/resources/ct:203", "").await.data();
    assert_eq!(call(&alpha, "GET", "/cluster/ha/rules/archive-on-pve2", "").await.status, 500);
    call(&alpha, "DELETE", "/cluster/ha/rules/archive-on-pve2", "").await.data();
}

#[tokio::test]
async fn uploads_need_their_fields_before_the_file() {
    let (_lab, alpha) = lab().await;
    let file = "--B\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"up.iso\"\r\n\r\nabc";
    let field = |name: &str, value: &str| {
        format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let send = async |body: String| {
        let mut sender = common::connect(&alpha).await;
        let request = http::Request::post("/api2/json/nodes/pve1/storage/local/upload")
            .header("host", "127.0.0.1")
            .header("authorization", common::authorization(&alpha, alpha.token_id()))
            .header("content-type", "multipart/form-data; boundary=B")
            .body(http_body_util::Full::new(bytes::Bytes::from(body)))
            .unwrap();
        common::read(sender.send_request(request).await.unwrap()).await.unwrap()
    };
    let late = format!("{file}\r\n{}--B--\r\n", field("content", "iso"));
    let got = send(late).await;
    assert_eq!(got.json()["errors"]["content"], "property is missing and it is not optional");
    // The digest of "abc".
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let head = |sum: &str| {
        format!(
            "{}{}{}",
            field("content", "iso"),
            field("checksum-algorithm", "sha256"),
            field("checksum", sum)
        )
    };
    let upid = send(format!("{}{file}\r\n--B--\r\n", head(sum))).await.data();
    assert!(upid.as_str().unwrap().contains(":imgcopy::"), "{upid}");
    assert_eq!(exit_of(&alpha, upid.as_str().unwrap()).await, "OK");
    let volume = call(&alpha, "GET", "/nodes/pve1/storage/local/content/iso/up.iso", "").await.data();
    assert_eq!(volume["size"], 3);
    let upid = send(format!("{}{file}\r\n--B--\r\n", head(&"0".repeat(64)))).await.data();
    assert!(exit_of(&alpha, upid.as_str().unwrap()).await.starts_with("checksum mismatch"));
    let download = "/nodes/pve1/storage/local/download-url";
    let again = done(&alpha, "POST", download, "content=iso&filename=up.iso&url=https://e/x").await;
    assert_eq!(again, "refusing to override existing file '/var/lib/vz/template/iso/up.iso'");
    let got = call(&alpha, "POST", download, "content=iso&filename=x.exe&url=https://e/x").await;
    assert_eq!(got.json()["errors"]["filename"], "wrong file extension");
}

#[tokio::test]
async fn without_quorum_reads_go_on_and_writes_do_not() {
    let (_lab, alpha) = lab().await;
    alpha.lose_quorum(true);
    assert_eq!(call(&alpha, "GET", "/cluster/status", "").await.data()[0]["quorate"], 0);
    assert_eq!(call(&alpha, "GET", "/nodes/pve1/qemu/100/config", "").await.status, 200);
    let got = call(&alpha, "PUT", "/nodes/pve1/qemu/100/config", "cores=1").await;
    assert!(
        got.reason.starts_with("unable to open file '/etc/pve/nodes/pve1/qemu-server/100.conf.tmp."),
        "{got:?}"
    );
    assert_eq!(
        call(&alpha, "POST", "/nodes/pve1/qemu", "vmid=920").await.reason,
        "cluster not ready - no quorum?"
    );
    assert!(alpha.effects().is_empty());
    alpha.lose_quorum(false);
    assert_eq!(call(&alpha, "PUT", "/nodes/pve1/qemu/100/config", "cores=1").await.status, 200);
}

#[tokio::test]
async fn every_endpoint_of_the_facts_is_there() {
    let (_lab, alpha) = lab().await;
    let facts: Value = serde_json::from_str(lab::facts::COMMITTED).unwrap();
    let mut missing = Vec::new();
    for (path, methods) in facts["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let mut filled = path.clone();
            let values = [
                ("node", "pve1"),
                ("vmid", "100"),
                ("storage", "local"),
                ("volume", "iso/none.iso"),
                ("upid", "x"),
                ("snapname", "none"),
                ("pos", "99"),
                ("name", "none"),
                ("cidr", "10.9.9.9"),
                ("group", "none"),
                ("sid", "vm:999"),
                ("rule", "none"),
                ("poolid", "none"),
            ];
            for (name, value) in values {
                filled = filled.replace(&format!("{{{name}}}"), value);
            }
            let filled = if path.contains("/lxc/") { filled.replace("/100", "/200") } else { filled };
            let got = call(&alpha, method, &filled, "").await;
            alpha.idle().await;
            if got.status == 501 {
                missing.push(format!("{method} {path}: {}", got.reason));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
