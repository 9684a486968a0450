//! What people leave in notes and programs in logs does not get through.

use lab::{Action, Fault};
use serde_json::{Value, json};

use crate::support::Stage;

const SECRET: &str = "hunter2-canary";

fn leaky(text: &str) -> String {
    format!("{text} password={SECRET} https://bob:{SECRET}@host/ and Authorization: Bearer {SECRET}")
}

/// Every read whose answer holds text that somebody wrote.
#[tokio::test(flavor = "multi_thread")]
async fn no_read_carries_what_looks_like_a_credential() {
    let stage = Stage::new().await;
    let server = stage.serve().await;
    let reader = stage.client(server.address, "reader");
    let raw = |body: Value| Action::Raw(json!({"data": body}).to_string().into());
    let upid = "UPID:pve1:0000ABCD:00123456:65A00001:qmstart:100:root@pam:";
    let exit = leaky("failed:");
    let (guest, node) =
        (json!({"cluster": "alpha", "vmid": 100}), json!({"cluster": "alpha", "node": "pve1"}));
    let ct = json!({"cluster": "alpha", "vmid": 200});
    let storage = json!({"cluster": "alpha", "node": "pve1", "storage": "backup"});
    let task = json!({"cluster": "alpha", "upid": upid});
    let cluster = json!({"cluster": "alpha"});
    let config = json!({
        "name": "web", "description": leaky("note"), "args": format!("-object secret,id=x --password {SECRET}"),
        "cipassword": SECRET, "cicustom": leaky("user=local:snippets/x"), "digest": "0".repeat(40),
        "net0": "virtio=BC:24:11:0A:00:01,bridge=vmbr0", "sshkeys": "ssh-ed25519%20AAAA",
    });
    let container = json!({"hostname": "files", "description": leaky("note"), "env": format!("DB={SECRET}\0X={SECRET}"), "digest": "0".repeat(40)});
    for (path, body, tool, arguments, kept) in [
        ("/nodes/{node}/qemu/{vmid}/config", config, "get_vm_config", &guest, "ssh-ed25519%20AAAA"),
        ("/nodes/{node}/lxc/{vmid}/config", container, "get_container_config", &ct, "files"),
        (
            "/nodes/{node}/qemu/{vmid}/snapshot",
            json!([{"name": "s", "description": leaky("before")}]),
            "list_snapshots",
            &guest,
            "before",
        ),
        (
            "/nodes/{node}/storage/{storage}/content",
            json!([{"volid": "backup:backup/vzdump-qemu-100-2026_11_20-02_00_05.vma.zst", "content": "backup", "vmid": 100, "notes": leaky("weekly")}]),
            "list_backups",
            &storage,
            "weekly",
        ),
        (
            "/nodes/{node}/tasks/{upid}/log",
            json!([{"n": 1, "t": leaky("copying")}]),
            "get_task_log",
            &task,
            "copying",
        ),
        (
            "/nodes/{node}/tasks/{upid}/status",
            json!({"status": "stopped", "exitstatus": exit}),
            "get_task_status",
            &task,
            "failed",
        ),
        (
            "/nodes/{node}/tasks",
            json!([{"upid": upid, "status": exit, "endtime": 1}]),
            "list_tasks",
            &node,
            "failed",
        ),
        (
            "/cluster/firewall/rules",
            json!([{"pos": 0, "type": "in", "action": "DROP", "comment": leaky("why")}]),
            "get_cluster_firewall_rules",
            &cluster,
            "why",
        ),
        (
            "/cluster/ha/rules",
            json!([{"rule": "r1", "type": "node-affinity", "resources": "vm:100", "comment": leaky("why")}]),
            "list_ha_rules",
            &cluster,
            "why",
        ),
    ] {
        stage.alpha().clear_faults();
        stage.alpha().inject(Fault::always("GET", path, raw(body)));
        let answer = reader.rpc("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains("[redacted]") && text.contains(kept), "{tool}: {text}");
        assert!(!text.contains(SECRET), "{tool}: {text}");
    }
    let trail = std::fs::read_to_string(stage.path("state/audit.jsonl")).unwrap();
    assert!(!trail.contains(SECRET));
    server.stop().await;
}
