//! The SSH side of a node: SFTP, and the commands that carry a file into a container.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::time::Duration;

use lab::{Lab, LabConfig, LabNode, PushFault};
use russh::client::{AuthResult, Handle, Handler};
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, client};
use russh_sftp::client::RawSftpSession;
use russh_sftp::protocol::{FileAttributes, OpenFlags, StatusCode};

const PREPARE: &str = include_str!("../src/node/scripts/prepare.sh");
const HASH: &str = include_str!("../src/node/scripts/hash.sh");
const COMMIT: &str = include_str!("../src/node/scripts/commit.sh");
const DISCARD: &str = include_str!("../src/node/scripts/discard.sh");
const STAGED: &str = "/var/tmp/proxward/pxw-0123456789abcdef0123456789abcdef";

/// Accepts the one host key that the lab tells.
struct Pinned(String);

impl Handler for Pinned {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else { return Ok(false) };
        Ok(self.0.contains(key.to_openssh().unwrap().split(' ').nth(1).unwrap()))
    }
}

async fn login(node: &LabNode, key_pem: &str) -> Result<Option<Handle<Pinned>>, russh::Error> {
    let pinned = Pinned(node.host_key_line());
    let address = (node.ssh_host(), node.ssh_port());
    let mut session = client::connect(Arc::new(client::Config::default()), address, pinned).await?;
    let key = PrivateKeyWithHashAlg::new(Arc::new(PrivateKey::from_openssh(key_pem).unwrap()), None);
    match session.authenticate_publickey("root", key).await? {
        AuthResult::Success => Ok(Some(session)),
        AuthResult::Failure { .. } => Ok(None),
    }
}

async fn exec(session: &Handle<Pinned>, line: &str) -> (String, String, u32) {
    let mut channel = session.channel_open_session().await.unwrap();
    channel.exec(true, line).await.unwrap();
    let (mut out, mut err, mut code) = (String::new(), String::new(), None);
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => out.push_str(std::str::from_utf8(&data).unwrap()),
            ChannelMsg::ExtendedData { data, .. } => err.push_str(std::str::from_utf8(&data).unwrap()),
            ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
            _ => {}
        }
    }
    (out, err, code.unwrap())
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn script(vmid: u32, text: &str, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
    format!("pct exec {vmid} -- sh -c {} proxward {}", quote(text), arguments.join(" "))
}

async fn sftp(session: &Handle<Pinned>) -> RawSftpSession {
    let channel = session.channel_open_session().await.unwrap();
    channel.request_subsystem(true, "sftp").await.unwrap();
    let sftp = RawSftpSession::new(channel.into_stream());
    sftp.init().await.unwrap();
    sftp
}

fn mode(mode: u32) -> FileAttributes {
    FileAttributes { permissions: Some(mode), ..FileAttributes::empty() }
}

/// Stages a file as a client would, and returns whether all its bytes were taken.
async fn stage(sftp: &RawSftpSession, content: &[u8]) -> bool {
    // The folder may be there from an earlier file.
    let _ = sftp.mkdir("/var/tmp/proxward", mode(0o700)).await;
    let flags = OpenFlags::CREATE | OpenFlags::EXCLUDE | OpenFlags::WRITE;
    let handle = sftp.open(STAGED, flags, mode(0o600)).await.unwrap().handle;
    let mut taken = true;
    for (index, chunk) in content.chunks(32 * 1024).enumerate() {
        let written = sftp.write(&handle, index as u64 * 32 * 1024, chunk.to_vec()).await;
        taken &= written.is_ok_and(|status| status.status_code == StatusCode::Ok);
    }
    sftp.fsync(&handle).await.unwrap();
    sftp.close(&handle).await.unwrap();
    taken
}

async fn lab() -> Lab {
    Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap()
}

#[tokio::test]
async fn only_the_cluster_s_user_key_logs_in_and_offline_nodes_have_no_listener() {
    let lab = lab().await;
    let (alpha, beta) = (lab.cluster("alpha"), lab.cluster("beta"));
    let pve1 = alpha.node("pve1").unwrap();
    assert!(login(pve1, alpha.client_key_pem()).await.unwrap().is_some());
    assert!(login(pve1, beta.client_key_pem()).await.unwrap().is_none());
    assert!(alpha.node("pve3").is_none());
    assert_ne!(pve1.host_key_fingerprint(), alpha.node("pve2").unwrap().host_key_fingerprint());
}

#[tokio::test]
async fn a_file_goes_through_staging_push_hash_and_commit() {
    let lab = lab().await;
    let alpha = lab.cluster("alpha");
    let session = login(alpha.node("pve1").unwrap(), alpha.client_key_pem()).await.unwrap().unwrap();
    let sftp = sftp(&session).await;
    let content: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
    assert!(stage(&sftp, &content).await);
    let folder = sftp.lstat("/var/tmp/proxward").await.unwrap().attrs;
    assert_eq!((folder.permissions.unwrap() & 0o7777, folder.uid, folder.is_dir()), (0o700, Some(0), true));
    assert!(sftp.statvfs("/var/tmp/proxward").await.unwrap().blocks_avail > 0);

    let dest = "/srv/it's new/file.bin";
    let temp = "/srv/it's new/.pxw-ffffffffffffffffffffffffffffffff.part";
    assert_eq!(exec(&session, &script(200, PREPARE, &[dest, "0", "0", "0", "0"])).await.0, "no-parent\n");
    assert_eq!(exec(&session, &script(200, PREPARE, &[dest, "0", "1", "0", "0"])).await.0, "ok\n");
    let push = format!("sudo -n pct push 200 {STAGED} {} --perms 0644 --user app --group 33", quote(temp));
    assert_eq!(exec(&session, &push).await, (String::new(), String::new(), 0));
    let (hash, _, _) = exec(&session, &script(200, HASH, &[temp, "60"])).await;
    assert_eq!(hash, format!("{} 100000\n", sha256(&content)));
    assert_eq!(exec(&session, &script(200, COMMIT, &[temp, dest, "0"])).await.0, "ok\n");
    let landed = alpha.guest_root(200).join("srv/it's new/file.bin");
    assert_eq!(std::fs::read(&landed).unwrap(), content);
    assert_eq!(std::fs::metadata(&landed).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(alpha.guest_owner(200, dest), Some((1000, 33)));
    assert_eq!(exec(&session, &script(200, PREPARE, &[dest, "0", "0", "0", "0"])).await.0, "exists\n");
    assert_eq!(exec(&session, &script(200, PREPARE, &[dest, "1", "0", "0", "0"])).await.0, "ok\n");
    assert_eq!(
        exec(&session, &script(200, PREPARE, &["/srv", "1", "0", "0", "0"])).await.0,
        "is-directory\n"
    );
    assert_eq!(exec(&session, &push).await.2, 0);
    assert_eq!(exec(&session, &script(200, COMMIT, &[temp, dest, "0"])).await.0, "exists\n");
    assert_eq!(exec(&session, &script(200, DISCARD, &[temp])).await, (String::new(), String::new(), 0));
    sftp.remove(STAGED).await.unwrap();
    let handle = sftp.opendir("/var/tmp/proxward").await.unwrap().handle;
    assert!(sftp.readdir(&handle).await.is_err(), "the staging folder is not empty");
    assert_eq!(std::fs::read_dir(landed.parent().unwrap()).unwrap().count(), 1);
}

fn sha256(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    data_encoding::HEXLOWER.encode(&Sha256::digest(content))
}

#[tokio::test]
async fn dp_links_in_a_guest_never_lead_out_of_it() {
    let lab = lab().await;
    let alpha = lab.cluster("alpha");
    let session = login(alpha.node("pve1").unwrap(), alpha.client_key_pem()).await.unwrap().unwrap();
    let sftp = sftp(&session).await;
    assert!(stage(&sftp, b"x").await);
    let outside = lab.folder().join("outside");
    std::fs::create_dir(&outside).unwrap();
    symlink(&outside, alpha.guest_root(200).join("srv/way-out")).unwrap();
    symlink("/etc/hostname", alpha.guest_root(200).join("srv/link")).unwrap();
    let prepared = exec(&session, &script(200, PREPARE, &["/srv/way-out/f", "0", "0", "0", "0"])).await.0;
    assert_eq!(prepared, "no-parent\n");
    assert_eq!(
        exec(&session, &script(200, PREPARE, &["/srv/link", "1", "0", "0", "0"])).await.0,
        "not-regular\n"
    );
    for dest in ["/srv/way-out/f", "/../outside/f", "srv/f"] {
        let (_, err, code) = exec(&session, &format!("pct push 200 {STAGED} {dest} --perms 0644")).await;
        assert_eq!(code, 255, "{dest}: {err}");
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert!(sftp.lstat("/../../outside").await.is_err());
}

#[tokio::test]
async fn only_the_closed_set_of_commands_exists() {
    let lab = lab().await;
    let alpha = lab.cluster("alpha");
    let node = alpha.node("pve1").unwrap();
    let session = login(node, alpha.client_key_pem()).await.unwrap().unwrap();
    for line in [
        "id",
        "sh -c 'touch /tmp/x'",
        "pct list",
        "pct exec 200 -- sh -c 'rm -rf /' proxward /tmp",
        "pct exec 200 -- id",
        "pct status 200; id",
        "sudo pct status 200",
        "pct push 200 $(id) /tmp/x",
    ] {
        assert_eq!(exec(&session, line).await.2, 127, "{line}");
    }
    assert_eq!(exec(&session, "pct status 200").await.0, "status: running\n");
    assert_eq!(exec(&session, "pct status 201").await.0, "status: stopped\n");
    assert_eq!(node.faults().commands().len(), 10);
}

#[tokio::test]
async fn a_stopped_or_absent_container_takes_no_files() {
    let lab = lab().await;
    let alpha = lab.cluster("alpha");
    let session = login(alpha.node("pve1").unwrap(), alpha.client_key_pem()).await.unwrap().unwrap();
    let sftp = sftp(&session).await;
    assert!(stage(&sftp, b"x").await);
    let (_, err, code) = exec(&session, &format!("pct push 201 {STAGED} /tmp/x")).await;
    assert_eq!((code, err.as_str()), (255, "can only push files to a running VM\n"));
    let (_, err, _) = exec(&session, &format!("pct push 202 {STAGED} /tmp/x")).await;
    assert_eq!(err, "Configuration file 'nodes/pve1/lxc/202.conf' does not exist\n");
    let (_, err, _) = exec(&session, &script(201, PREPARE, &["/tmp/x", "0", "0", "0", "0"])).await;
    assert_eq!(err, "container '201' not running!\n");
    let (_, err, code) = exec(&session, &format!("pct push 200 {STAGED} /tmp/x --user ghost")).await;
    assert_eq!((code, err.as_str()), (255, "lookup failed for 'ghost' in the container's passwd\n"));
    let (_, _, code) = exec(&session, "pct push 200 /var/tmp/absent /tmp/x").await;
    assert_eq!(code, 255);
}

#[tokio::test]
async fn push_hash_and_space_go_wrong_on_request() {
    let lab = lab().await;
    let alpha = lab.cluster("alpha");
    let node = alpha.node("pve1").unwrap();
    let session = login(node, alpha.client_key_pem()).await.unwrap().unwrap();
    let sftp = sftp(&session).await;
    assert!(stage(&sftp, &[7; 1000]).await);
    node.faults().push(Some(PushFault::Short(10)));
    assert_eq!(exec(&session, &format!("pct push 200 {STAGED} /tmp/x --perms 0600")).await.2, 0);
    assert_eq!(std::fs::metadata(alpha.guest_root(200).join("tmp/x")).unwrap().len(), 10);
    node.faults().push(Some(PushFault::Fail));
    assert_eq!(exec(&session, &format!("pct push 200 {STAGED} /tmp/y")).await.2, 255);
    node.faults().push(None);
    node.faults().no_sha256(true);
    assert_eq!(exec(&session, &script(200, HASH, &["/tmp/x", "60"])).await.0, "none 10\n");
    assert_eq!(exec(&session, &script(200, HASH, &["/tmp/absent", "60"])).await.2, 1);
    sftp.remove(STAGED).await.unwrap();
    node.faults().space(Some(40_000));
    assert_eq!(sftp.statvfs("/var/tmp").await.unwrap().blocks_avail, 40_000 / 4096);
    assert!(!stage(&sftp, &[7; 100_000]).await);
}

#[tokio::test]
async fn connections_are_refused_or_hang_on_request() {
    let lab = lab().await;
    let alpha = lab.cluster("alpha");
    let node = alpha.node("pve1").unwrap();
    node.faults().refuse_connections(true);
    assert!(login(node, alpha.client_key_pem()).await.is_err());
    node.faults().refuse_connections(false);
    node.faults().hang_connections(true);
    let hung = tokio::time::timeout(Duration::from_millis(200), login(node, alpha.client_key_pem())).await;
    assert!(hung.is_err());
    node.faults().hang_connections(false);
    let session = login(node, alpha.client_key_pem()).await.unwrap().unwrap();
    node.faults().hang_exec(true);
    let hung = tokio::time::timeout(Duration::from_millis(200), exec(&session, "pct status 200")).await;
    assert!(hung.is_err());
    node.faults().hang_exec(false);
    assert_eq!(exec(&session, "pct status 200").await.2, 0);
}
