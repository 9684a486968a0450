//! Files out of guests, and small ones in and out without a link.

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::raw::{Reply, head, once};
use crate::support::{AGENT, Rights, Stage, roomy};
use crate::uploads::{Uploads, VMID};

fn guest(more: serde_json::Value) -> serde_json::Value {
    let mut arguments = json!({"cluster": "alpha", "vmid": VMID});
    for (key, value) in more.as_object().unwrap() {
        arguments[key] = value.clone();
    }
    arguments
}

async fn get(up: &Uploads, path: &str, method: &str, lines: &[&str]) -> Reply {
    once(up.address, head(up.address, method, path, lines)).await
}

struct Download {
    path: String,
    id: String,
    minted: serde_json::Value,
}

async fn download_of(up: &Uploads, source: &str) -> Download {
    let minted = up.agent.call("proxmox_download_link", guest(json!({"source": source}))).await.unwrap();
    let url = minted["url"].as_str().unwrap();
    Download {
        path: url[url.find("/transfers/").unwrap()..].to_owned(),
        id: minted["link_id"].as_str().unwrap().to_owned(),
        minted,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_c02_a_file_comes_out_once_and_looking_spends_nothing() {
    let up = Uploads::new().await;
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(up.stage.alpha().guest_root(VMID).join("root/x y.bin"), &data).unwrap();
    let link = download_of(&up, "/root/x y.bin").await;
    assert_eq!(link.minted["bytes"], data.len());
    assert_eq!(link.minted["sha256"], data_encoding::HEXLOWER.encode(&Sha256::digest(&data)));
    for method in ["HEAD", "OPTIONS", "PUT", "POST", "DELETE"] {
        let mut raw = up.open().await;
        raw.write(head(up.address, method, &link.path, &["Content-Length: 0"])).await;
        let reply = raw.next(method == "HEAD").await.unwrap();
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")), "{method}");
    }
    // A browser or chat program that looks ahead.
    assert_eq!(get(&up, &link.path, "GET", &["Sec-Purpose: prefetch"]).await.status, 404);
    // An upload link's path does not know it, nor the other way round.
    let token = link.path.rsplit('/').next().unwrap();
    assert_eq!(up.put(&format!("/transfers/upload/{token}"), "x").await.status, 404);

    let reply = get(&up, &link.path, "GET", &[]).await;
    assert_eq!(reply.status, 200, "{}", reply.head);
    assert_eq!(reply.body, data);
    assert_eq!(reply.header("content-length"), Some(data.len().to_string().as_str()));
    let digest = format!("sha-256=:{}:", data_encoding::BASE64.encode(&Sha256::digest(&data)));
    assert_eq!(reply.header("repr-digest"), Some(digest.as_str()));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(reply.header("content-disposition").unwrap().contains("x%20y.bin"));
    assert_eq!(get(&up, &link.path, "GET", &[]).await, up.not_found().await);
    let outcome = loop {
        let status = up.agent.call("get_transfer", json!({"link_id": link.id})).await.unwrap();
        if status["state"] != "running" {
            break status;
        }
    };
    assert_eq!((&outcome["state"], &outcome["bytes"]), (&json!("ok"), &json!(data.len())), "{outcome}");
    assert_eq!(up.records("transfer.download").await.len(), 1);
    assert_eq!(up.records("transfer.link_reuse").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_link_holds_for_its_minter_and_its_guest_alone() {
    let up = Uploads::new().await;
    let root = up.stage.alpha().guest_root(VMID).join("root");
    std::fs::write(root.join("f"), "x").unwrap();
    for (source, code) in
        [("/root/none", "missing"), ("/root", "dest_is_directory"), ("relative", "invalid_argument")]
    {
        let refused =
            up.agent.call("proxmox_download_link", guest(json!({"source": source}))).await.unwrap_err();
        assert_eq!(refused["code"], code, "{refused}");
    }
    let reader = up.stage.client(up.address, "reader");
    let refused =
        reader.call("proxmox_download_link", guest(json!({"source": "/root/f"}))).await.unwrap_err();
    assert_eq!(refused["code"], "insufficient_scope", "no wildcard reaches it");
    let link = download_of(&up, "/root/f").await;
    std::fs::remove_file(root.join("f")).unwrap();
    assert_eq!(get(&up, &link.path, "GET", &[]).await.status, 409, "gone since then");
    std::fs::write(root.join("f"), "x").unwrap();
    let link = download_of(&up, "/root/f").await;
    up.stage.alpha().recreate(VMID).unwrap();
    let reply = get(&up, &link.path, "GET", &[]).await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "guest_changed"), "{reply:?}");
}

// C06: a cap on what runs, before any work.
#[tokio::test(flavor = "multi_thread")]
async fn c06_downloads_are_few_at_a_time_and_over_the_cap_the_link_stays_good() {
    let up = Uploads::limited(json!({"downloads": 1})).await;
    let root = up.stage.alpha().guest_root(VMID).join("root");
    std::fs::write(root.join("large"), vec![7; 30_000_000]).unwrap();
    std::fs::write(root.join("small"), "x").unwrap();
    let (large, small) = (download_of(&up, "/root/large").await, download_of(&up, "/root/small").await);
    let mut slow = up.open().await;
    slow.write(head(up.address, "GET", &large.path, &[])).await;
    let running = async |id: &str| up.agent.call("get_transfer", json!({"link_id": id})).await.unwrap();
    while running(&large.id).await["stage"] != "send" {}
    let reply = get(&up, &small.path, "GET", &[]).await;
    assert_eq!((reply.status, reply.code().as_str()), (429, "no_slot"), "{reply:?}");
    up.agent.call("cancel_transfer", json!({"link_id": large.id})).await.unwrap();
    while running(&large.id).await["state"] == "running" {}
    drop(slow);
    let reply = loop {
        let reply = get(&up, &small.path, "GET", &[]).await;
        if reply.status != 429 {
            break reply;
        }
    };
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"x"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_are_written_and_read_back_exactly() {
    let up = Uploads::new().await;
    for (content, encoding, bytes) in [
        ("grüße\n\u{0}end", "text", "grüße\n\u{0}end".as_bytes().to_vec()),
        ("AP8KDYA=", "base64", vec![0x00, 0xff, 0x0a, 0x0d, 0x80]),
    ] {
        let written = up
            .agent
            .call(
                "write_guest_file",
                guest(json!({"dest": "/root/small", "content": content, "encoding": encoding, "overwrite": true, "mode": "0600"})),
            )
            .await
            .unwrap();
        assert_eq!((&written["bytes"], &written["checksum_verified"]), (&json!(bytes.len()), &json!(true)));
        assert_eq!(std::fs::read(up.stage.alpha().guest_root(VMID).join("root/small")).unwrap(), bytes);
        let read = up.agent.call("read_guest_file", guest(json!({"source": "/root/small"}))).await.unwrap();
        assert_eq!((&read["content"], &read["encoding"]), (&json!(content), &json!(encoding)), "{read}");
    }
    let refuse = async |arguments, code: &str| {
        let refused = up.agent.call("write_guest_file", guest(arguments)).await.unwrap_err();
        assert_eq!(refused["code"], code, "{refused}");
    };
    refuse(json!({"dest": "/root/small", "content": "x"}), "dest_exists").await;
    refuse(json!({"dest": "/root/y", "content": "%%", "encoding": "base64"}), "invalid_argument").await;
    refuse(json!({"dest": "/root/y", "content": ""}), "invalid_argument").await;
    refuse(json!({"dest": "/root/y", "content": "x".repeat((1 << 20) + 1)}), "invalid_argument").await;
    // DP-06: what JSON can spell and a path cannot hold.
    refuse(json!({"dest": "/root/a\u{0}b", "content": "x"}), "invalid_argument").await;
    refuse(json!({"dest": "", "content": "x"}), "invalid_argument").await;
    std::fs::write(up.stage.alpha().guest_root(VMID).join("root/large"), vec![b'x'; 128 * 1024 + 1]).unwrap();
    let refused =
        up.agent.call("read_guest_file", guest(json!({"source": "/root/large"}))).await.unwrap_err();
    assert_eq!(refused["code"], "too_large");
    up.no_residue().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_refused_on_a_protected_guest_and_reads_are_not() {
    let up = Uploads::new().await;
    std::fs::write(up.stage.alpha().guest_root(VMID).join("root/f"), "x").unwrap();
    up.stage.alpha().set_tags(VMID, &["protected"]).unwrap();
    for (tool, arguments) in [
        ("write_guest_file", json!({"dest": "/root/g", "content": "x"})),
        ("proxmox_upload_link", json!({"dest": "/root/g"})),
        ("proxmox_upload_file", json!({"dest": "/root/g", "source": "x"})),
        ("proxmox_fetch_url", json!({"dest": "/root/g", "url": "https://example.org/"})),
    ] {
        let refused = up.agent.call(tool, guest(arguments)).await.unwrap_err();
        assert_eq!(refused["code"], "protected", "{tool}: {refused}");
    }
    let read = up.agent.call("read_guest_file", guest(json!({"source": "/root/f"}))).await.unwrap();
    assert_eq!(read["content"], "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_operators_directory_are_pushed_and_nothing_outside_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/app.bin"), vec![9; 300_000]).unwrap();
    let mut policy = roomy();
    policy["transfers"] = json!({"dir": dir.path()});
    let up = Uploads::of(Stage::with_policy(policy).await).await;
    let arguments = guest(json!({"source": "sub/app.bin", "dest": "/root/app.bin"}));
    let done = up.agent.call("proxmox_upload_file", arguments).await.unwrap();
    assert_eq!((&done["bytes"], &done["verified_at"]), (&json!(300_000), &json!("guest")));
    assert_eq!(
        std::fs::read(up.stage.alpha().guest_root(VMID).join("root/app.bin")).unwrap(),
        vec![9; 300_000]
    );
    for source in ["../etc/passwd", "/etc/passwd", "none", "sub"] {
        let arguments = guest(json!({"source": source, "dest": "/root/x"}));
        let refused = up.agent.call("proxmox_upload_file", arguments).await.unwrap_err();
        assert_eq!(refused["code"], "invalid_argument", "{source}");
    }
    let off = Uploads::new().await;
    let arguments = guest(json!({"source": "sub/app.bin", "dest": "/root/app.bin"}));
    let refused = off.agent.call("proxmox_upload_file", arguments).await.unwrap_err();
    assert_eq!(refused["code"], "no_transfer_directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_outside_the_grant_is_absent_to_every_way_in_and_out() {
    let mut stage = Stage::new().await;
    stage.token("narrow", Rights { guests: &["vmid:100"], ..AGENT });
    let up = Uploads::of(stage).await;
    let narrow = up.stage.client(up.address, "narrow");
    for (tool, arguments) in [
        ("proxmox_download_link", json!({"source": "/root/f"})),
        ("read_guest_file", json!({"source": "/root/f"})),
        ("write_guest_file", json!({"dest": "/root/f", "content": "x"})),
        ("proxmox_fetch_url", json!({"dest": "/root/f", "url": "https://example.org/"})),
    ] {
        for vmid in [VMID, 987_654] {
            let mut arguments = guest(arguments.clone());
            arguments["vmid"] = vmid.into();
            let refused = narrow.call(tool, arguments).await.unwrap_err();
            assert_eq!(refused["message"], "authorization failed", "{tool} {vmid}: {refused}");
        }
    }
}

/// A virtual machine whose agent answers.
const VM: u32 = 100;

fn machine(more: serde_json::Value) -> serde_json::Value {
    let mut arguments = guest(more);
    arguments["vmid"] = VM.into();
    arguments
}

#[tokio::test(flavor = "multi_thread")]
async fn sh_17_files_go_into_and_out_of_a_machine_through_its_agent_up_to_its_cap() {
    let mut policy = roomy();
    policy["transfers"] = json!({"agent_max_mb": 1});
    let up = Uploads::of(Stage::with_policy(policy).await).await;
    let root = up.stage.alpha().guest_root(VM);
    std::fs::create_dir_all(root.join("root")).unwrap();
    let mint =
        up.agent.call("proxmox_upload_link", machine(json!({"dest": "/root/it's $(x).bin"}))).await.unwrap();
    assert_eq!(mint["max_bytes"], 1 << 20);
    let data: String = (0..100_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let reply = up.put(&crate::support::path_of(&mint), &data).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((&answer["route"], &answer["verified_at"]), (&json!("agent"), &json!("guest")), "{answer}");
    assert_eq!(std::fs::read(root.join("root/it's $(x).bin")).unwrap(), data.as_bytes());

    let link = {
        let arguments = machine(json!({"source": "/root/it's $(x).bin"}));
        up.agent.call("proxmox_download_link", arguments).await.unwrap()
    };
    let url = link["url"].as_str().unwrap();
    let reply = get(&up, &url[url.find("/transfers/").unwrap()..], "GET", &[]).await;
    assert_eq!((reply.status, reply.body.as_slice()), (200, data.as_bytes()));
    let binary = machine(json!({"dest": "/root/b", "content": "AP8KDYA=", "encoding": "base64"}));
    up.agent.call("write_guest_file", binary).await.unwrap();
    assert_eq!(std::fs::read(root.join("root/b")).unwrap(), [0x00, 0xff, 0x0a, 0x0d, 0x80]);
    let read = up.agent.call("read_guest_file", machine(json!({"source": "/root/b"}))).await.unwrap();
    assert_eq!((&read["content"], &read["encoding"]), (&json!("AP8KDYA="), &json!("base64")));

    // Above the cap: named at the mint where the size is known, while it comes where it is not; both name the other way.
    let arguments = machine(json!({"dest": "/root/large", "size": (1 << 20) + 1}));
    let refused = up.agent.call("proxmox_upload_link", arguments).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("ssh.guests"), "{refused}");
    let mint = up.agent.call("proxmox_upload_link", machine(json!({"dest": "/root/large"}))).await.unwrap();
    let reply = up.put(&crate::support::path_of(&mint), &"x".repeat((1 << 20) + 1)).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    assert!(!root.join("root/large").exists());
    up.no_residue().await;
}
