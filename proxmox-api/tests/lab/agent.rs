//! Programs and files in a guest, by its agent.

use std::time::Duration;

use proxmox_api::{AGENT_MAX_WRITE, Client, Effect, ErrorKind, ExecStatus, GuestKind, GuestRef};

use crate::{Setup, guest, setup};

async fn ended(client: &Client, guest: &GuestRef, pid: u64) -> ExecStatus {
    for _ in 0..200 {
        let status = client.agent_exec_status(guest, pid).await.unwrap();
        if status.exited {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the program did not end");
}

#[tokio::test]
async fn bytes_come_back_as_they_were_written() {
    let Setup { client, .. } = &setup().await;
    let web = guest("pve1", GuestKind::Qemu, 100);
    client.agent_ping(&web).await.unwrap();
    assert!(client.agent_osinfo(&web).await.unwrap().contains_key("id"));
    let every: Vec<u8> = (0..=255_u8).cycle().take(AGENT_MAX_WRITE).collect();
    for content in [&every[..], b"", "text, \u{e4} and \u{20ac}\n".as_bytes(), b"\xff\xfe\x00"] {
        client.agent_file_write(&web, "/tmp/a b", content).await.unwrap();
        assert_eq!(client.agent_file_read(&web, "/tmp/a b").await.unwrap().content, content);
    }
    client.agent_file_write(&web, "/tmp/a b", &every).await.unwrap();
    let part = client.agent_file_read_part(&web, "/tmp/a b", 250, 10).await.unwrap();
    assert_eq!(part.content, &every[250..260]);

    let larger = vec![0; AGENT_MAX_WRITE + 1];
    let error = client.agent_file_write(&web, "/tmp/x", &larger).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Parameter, Effect::NotSent), "{error}");
    let error = client.agent_file_read(&web, "/tmp/nothing").await.unwrap_err();
    assert!(error.message().contains("No such file"), "{error}");
}

#[tokio::test]
async fn a_program_is_told_about_once() {
    let Setup { client, .. } = &setup().await;
    let web = guest("pve1", GuestKind::Qemu, 100);
    let pid = client.agent_exec(&web, &["cat"], Some(b"\x00 in; & out =\n")).await.unwrap();
    let status = ended(client, &web, pid).await;
    assert_eq!((status.exitcode, status.out.as_slice()), (Some(0), &b"\x00 in; & out =\n"[..]), "{status:?}");
    let error = client.agent_exec_status(&web, pid).await.unwrap_err();
    assert!(error.message().contains("does not exist"), "{error}");

    let error = client.agent_exec(&web, &["cat"], Some(b"\xff")).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotSent, "{error}");

    let without = guest("pve2", GuestKind::Qemu, 105);
    assert!(client.agent_ping(&without).await.is_err(), "its agent does not run");
    let container = guest("pve1", GuestKind::Lxc, 200);
    assert_eq!(client.agent_ping(&container).await.unwrap_err().effect(), Effect::NotSent);
}
