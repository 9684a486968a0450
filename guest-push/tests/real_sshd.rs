//! Pushes over a real OpenSSH server into containers that a stub `pct` makes of folders. See `support`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::future::{Future, poll_fn};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use guest_push::{
    Account, Deadlines, Dest, Identity, KnownHosts, LxcRoute, Mode, PushError, PushErrorKind, PushOptions,
    Pusher, Receipt, Source, SourceError, SourceErrorKind, SshTarget, Stage, Step, VerifiedAt,
};
use sha2::{Digest, Sha256};
use support::{Sshd, eventually, names, private_dir};

const VMID: u32 = 905;

/// Starts the server and one guest, or ends the test with a printed reason.
macro_rules! node {
    () => {
        node!("")
    };
    ($settings:expr) => {
        match Sshd::start_with($settings) {
            Some(node) => {
                node.add_guest(VMID);
                node
            }
            None => return,
        }
    };
}

fn target(node: &Sshd) -> SshTarget {
    SshTarget {
        host: node.host().to_owned(),
        port: node.port(),
        user: node.user().to_owned(),
        sudo: false,
        staging_dir: node.staging_dir().to_str().unwrap().to_owned(),
    }
}

fn pusher_with(node: &Sshd, known_hosts: &str, deadlines: Deadlines) -> Pusher {
    let identity = Arc::new(Identity::from_openssh(&node.client_key_pem()).unwrap());
    let known_hosts = Arc::new(KnownHosts::parse(known_hosts).unwrap());
    Pusher::new(target(node), identity, known_hosts, deadlines)
}

fn pusher(node: &Sshd) -> Pusher {
    pusher_with(node, &node.known_hosts_line(), Deadlines::default())
}

/// The defaults, by way of the node's staging directory.
fn sftp() -> PushOptions {
    PushOptions { route: LxcRoute::SftpPctPush, ..PushOptions::default() }
}

fn dest(path: &str) -> Dest {
    Dest::parse(path).unwrap()
}

/// Bytes that no compression or repetition hides a fault in.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect::<Vec<u8>>().into()
}

async fn push(
    pusher: &Pusher,
    path: &str,
    options: &PushOptions,
    bytes: &Bytes,
) -> Result<Receipt, PushError> {
    pusher.push_lxc(VMID, &dest(path), options, bytes.clone(), &|_, _| ()).await
}

fn overwriting() -> PushOptions {
    PushOptions { overwrite: true, ..sftp() }
}

/// A source made of a list of steps.
struct Script<F: FnMut(usize) -> Result<Option<Bytes>, SourceError> + Send> {
    step: F,
    count: usize,
}

impl<F: FnMut(usize) -> Result<Option<Bytes>, SourceError> + Send> Source for Script<F> {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.count += 1;
        (self.step)(self.count - 1)
    }
}

fn script<F: FnMut(usize) -> Result<Option<Bytes>, SourceError> + Send>(step: F) -> Script<F> {
    Script { step, count: 0 }
}

/// A source that gives some chunks and then nothing more, ever.
struct Stalls(usize, Arc<AtomicUsize>);

impl Source for Stalls {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.0 == 0 {
            self.1.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        self.0 -= 1;
        Ok(Some(noise(100_000)))
    }
}

#[tokio::test]
async fn a_file_arrives_is_verified_in_the_guest_and_nothing_else_remains() {
    let node = node!();
    let pusher = pusher(&node);
    let data = noise(5 * 1024 * 1024 + 17);
    let stages = std::sync::Mutex::new(Vec::new());
    let last = AtomicU64::new(0);
    let progress = |bytes: u64, stage: Stage| {
        last.fetch_max(bytes, Ordering::SeqCst);
        let mut stages = stages.lock().unwrap();
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
    };
    let to = dest("/root/app.bin");
    let receipt = pusher.push_lxc(VMID, &to, &sftp(), data.clone(), &progress).await.unwrap();

    let file = node.guest_root(VMID).join("root/app.bin");
    assert_eq!(std::fs::read(&file).unwrap(), data);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(receipt.bytes, data.len() as u64);
    assert_eq!(receipt.sha256, <[u8; 32]>::from(Sha256::digest(&data)));
    assert_eq!((receipt.verified_at, receipt.checksum_verified), (VerifiedAt::Guest, true));
    assert_eq!(receipt.route, "sftp+pct_push");
    assert_eq!(
        *stages.lock().unwrap(),
        [Stage::Connect, Stage::Receive, Stage::Push, Stage::Verify, Stage::Commit]
    );
    assert_eq!(last.load(Ordering::SeqCst), receipt.bytes);
    assert_eq!(names(&node.guest_root(VMID).join("root")), ["app.bin"]);
    assert_eq!(node.residue(), [""; 0]);
    let mode = std::fs::metadata(node.staging_dir()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
}

#[tokio::test]
async fn sizes_around_one_write_arrive_whole_however_they_are_cut() {
    let node = node!();
    let pusher = pusher(&node);
    for (size, chunk) in
        [(1, 1), (1023, 10), (32_703, 100), (32_704, 32_704), (32_705, 32_704), (300_000, 77_777)]
    {
        let data = noise(size);
        let mut rest = data.clone();
        let source = script(|_| Ok((!rest.is_empty()).then(|| rest.split_to(chunk.min(rest.len())))));
        let receipt =
            pusher.push_lxc(VMID, &dest("/root/f"), &overwriting(), source, &|_, _| ()).await.unwrap();
        assert_eq!(receipt.bytes, size as u64);
        assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), data);
    }
}

#[tokio::test]
async fn dp_01_shell_syntax_in_a_name_is_only_a_name() {
    let node = node!();
    let pusher = pusher(&node);
    let root = node.guest_root(VMID).join("root");
    let odd_names = [
        "$(touch PWNED);x y.bin",
        "`touch PWNED`",
        "a && touch PWNED",
        "a | tee PWNED",
        "> PWNED",
        "*",
        "~",
        "!!",
        "'",
        "\"",
        "\\",
        "'\"'\"'",
        "-rf",
        "--perms=0777",
        "naïve ☃ \u{202e}gpj.exe",
        "%s%n",
        "a\\nb",
        "$HOME",
        "#x",
        " lead and trail ",
    ];
    let data = noise(1000);
    for name in odd_names {
        push(&pusher, &format!("/root/{name}"), &sftp(), &data).await.unwrap();
        assert_eq!(std::fs::read(root.join(name)).unwrap(), data, "{name:?}");
    }
    assert_eq!(names(&root).len(), odd_names.len());
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn dp_08_a_name_of_255_bytes_is_written() {
    let node = node!();
    let name = "ä".repeat(127) + "x";
    push(&pusher(&node), &format!("/root/{name}"), &sftp(), &noise(10)).await.unwrap();
    assert_eq!(names(&node.guest_root(VMID).join("root")), [name]);
}

#[tokio::test]
async fn dp_09_what_is_not_a_regular_file_is_refused() {
    let node = node!();
    let pusher = pusher(&node);
    let root = node.guest_root(VMID).join("root");
    symlink("/etc/passwd", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    for name in ["link", "dangling", "fifo"] {
        let error = push(&pusher, &format!("/root/{name}"), &overwriting(), &noise(10)).await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::NotRegular, "{name}");
        assert!(!error.residue());
    }
    let error = push(&pusher, "/root", &overwriting(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::DestIsDirectory);
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn dp_10_a_missing_parent_is_refused_or_made_on_request() {
    let node = node!();
    let pusher = pusher(&node);
    let error = push(&pusher, "/srv/new/f", &sftp(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoParent);
    assert!(!node.guest_root(VMID).join("srv").exists());
    let options = PushOptions { mkdir: true, ..sftp() };
    pusher.check_lxc(VMID, &dest("/srv/new/f"), &options).await.unwrap();
    assert!(!node.guest_root(VMID).join("srv").exists(), "a check changes nothing");
    push(&pusher, "/srv/new/f", &options, &noise(10)).await.unwrap();
    assert_eq!(std::fs::read(node.guest_root(VMID).join("srv/new/f")).unwrap(), noise(10));
}

#[tokio::test]
async fn an_existing_file_is_refused_unless_overwriting() {
    let node = node!();
    let pusher = pusher(&node);
    let file = node.guest_root(VMID).join("root/f");
    std::fs::write(&file, "old").unwrap();
    let error = push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::DestExists);
    assert!(!error.residue());
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    push(&pusher, "/root/f", &overwriting(), &noise(10)).await.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), noise(10));
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn a_file_that_appears_during_the_push_is_kept() {
    let node = node!();
    let file = node.guest_root(VMID).join("root/f");
    let source = script(|count| {
        if count == 1 {
            std::fs::write(&file, "someone else's").unwrap();
        }
        Ok((count < 2).then(|| noise(10)))
    });
    let to = dest("/root/f");
    let error = pusher(&node).push_lxc(VMID, &to, &sftp(), source, &|_, _| ()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::DestExists);
    assert_eq!(std::fs::read(&file).unwrap(), b"someone else's");
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn mode_owner_and_group_are_those_asked_for() {
    let node = node!();
    let options = PushOptions {
        mode: Mode::parse("4750").unwrap(),
        owner: Some(Account::parse("app").unwrap()),
        group: Some(Account::parse("1234").unwrap()),
        ..sftp()
    };
    push(&pusher(&node), "/root/f", &options, &noise(10)).await.unwrap();
    let metadata = std::fs::metadata(node.guest_root(VMID).join("root/f")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1000, 1234));
    // The stub sets the mode before the owner, and Linux clears set-id bits on chown.
    assert_eq!(metadata.mode() & 0o777, 0o750);
}

#[tokio::test]
async fn sh_09_a_short_copy_that_exits_0_is_found_out_and_the_destination_is_untouched() {
    let node = node!();
    let pusher = pusher(&node);
    let file = node.guest_root(VMID).join("root/f");
    std::fs::write(&file, "old").unwrap();
    for short in ["0", "4096", "99999"] {
        node.fault("push_short", short);
        let error = push(&pusher, "/root/f", &overwriting(), &noise(100_000)).await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::HashMismatch, "{error}");
        assert!(!error.residue(), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(node.residue(), [""; 0]);
    }
    node.no_fault("push_short");
    push(&pusher, "/root/f", &overwriting(), &noise(100_000)).await.unwrap();
}

#[tokio::test]
async fn sh_11_only_an_exact_hash_line_counts() {
    let node = node!();
    let pusher = pusher(&node);
    let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(noise(10)));
    let wrong = "0".repeat(64);
    for (answer, kind) in [
        (format!("{wrong} 10\n"), "hash_mismatch"),
        (format!("{hash} 11\n"), "hash_mismatch"),
        (format!("\\{hash} 10\n"), "remote"),
        (format!("{hash}  10\n"), "remote"),
        (format!("{} 10\n", hash.to_uppercase()), "remote"),
        (format!("\u{1b}[32m{hash} 10\n"), "remote"),
        (format!("{hash} 10\n{hash} 10\n"), "remote"),
        (format!("{hash} +10\n"), "remote"),
        (String::new(), "remote"),
        ("x".repeat(2_000_000), "remote"),
    ] {
        node.fault("exec_prints", &answer);
        let error = push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap_err();
        assert_eq!(error.kind().code(), kind, "{:.80}: {error}", answer);
        assert!(!error.residue(), "{error}");
        assert!(!node.guest_root(VMID).join("root/f").exists());
        assert_eq!(node.residue(), [""; 0]);
    }
}

#[tokio::test]
async fn a_guest_that_cannot_hash_is_verified_at_the_node_and_says_so() {
    let node = node!();
    node.fault("exec_prints", "none 10\n");
    let receipt = push(&pusher(&node), "/root/f", &sftp(), &noise(10)).await.unwrap();
    assert_eq!((receipt.verified_at, receipt.checksum_verified), (VerifiedAt::Node, false));
    node.fault("exec_prints", "none 9\n");
    let error = push(&pusher(&node), "/root/g", &sftp(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::HashMismatch);
}

#[tokio::test]
async fn b04_a_stopped_or_absent_guest_is_named_before_a_byte_travels() {
    let node = node!();
    let pusher = pusher(&node);
    node.stop_guest(VMID);
    let asked = AtomicUsize::new(0);
    let source = script(|_| {
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(None)
    });
    let to = dest("/root/f");
    let error = pusher.push_lxc(VMID, &to, &sftp(), source, &|_, _| ()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestUnreachable);
    assert!(error.to_string().contains("905"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let error = pusher.check_lxc(777, &to, &sftp()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestUnreachable);
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn b04_a_locked_guest_is_asked_again_and_then_named() {
    let node = node!();
    node.fault("push_locked", "1");
    push(&pusher(&node), "/root/f", &sftp(), &noise(10)).await.unwrap();
    node.fault("push_locked", "1000");
    let impatient = Deadlines { busy: Duration::ZERO, ..Deadlines::default() };
    let pusher = pusher_with(&node, &node.known_hosts_line(), impatient);
    let error = push(&pusher, "/root/g", &sftp(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestBusy);
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn sh_13_a_guest_that_stops_during_the_push_is_named_and_the_node_is_clean() {
    let node = node!();
    let mark = node.running_mark(VMID);
    let source = script(|count| {
        if count == 1 {
            std::fs::remove_file(&mark).unwrap();
        }
        Ok((count < 2).then(|| noise(10)))
    });
    let to = dest("/root/f");
    let error = pusher(&node).push_lxc(VMID, &to, &sftp(), source, &|_, _| ()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestUnreachable, "{error}");
    assert!(error.residue(), "the guest could not be asked to remove its temporary file");
    assert_eq!(node.staged(), [""; 0]);
}

#[tokio::test]
async fn ul_40_a_full_guest_is_named() {
    let node = node!();
    node.fault("push_fail", "failed to open /root/.pxw: No space left on device");
    let error = push(&pusher(&node), "/root/f", &sftp(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoSpace);
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn ul_40_a_node_without_room_is_named_before_a_byte_travels() {
    struct Huge;
    impl Source for Huge {
        async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            panic!("asked for bytes");
        }
        fn length(&self) -> Option<u64> {
            Some(u64::MAX / 2)
        }
    }
    let node = node!();
    let to = dest("/root/f");
    let error = pusher(&node).push_lxc(VMID, &to, &sftp(), Huge, &|_, _| ()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoSpace, "{error}");
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn sh_01_an_unknown_host_key_is_refused_with_its_fingerprint() {
    let node = node!();
    let key = node.known_hosts_line().split_once(' ').unwrap().1.to_owned();
    // The same key at another host, port or at no port is not this host's.
    for others in ["elsewhere.example", "127.0.0.1", "[127.0.0.1]:1", "[localhost]:22"] {
        let pusher = pusher_with(&node, &format!("{others} {key}"), Deadlines::default());
        let error = pusher.check().await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::HostKey { fingerprint: Some(node.fingerprint()) });
        assert!(error.to_string().contains(&node.fingerprint()), "{error}");
    }
    assert!(!node.staging_dir().exists());
}

#[tokio::test]
async fn sh_02_a_changed_or_revoked_host_key_is_refused() {
    let node = node!();
    let (host, key) =
        node.known_hosts_line().split_once(' ').map(|(h, k)| (h.to_owned(), k.to_owned())).unwrap();
    let other = Identity::from_openssh(&node.client_key_pem()).unwrap().public_line().unwrap();
    let kind = PushErrorKind::HostKey { fingerprint: Some(node.fingerprint()) };

    let error =
        pusher_with(&node, &format!("{host} {other}"), Deadlines::default()).check().await.unwrap_err();
    assert_eq!(error.kind(), &kind);
    assert!(error.to_string().contains("is not the one"), "{error}");

    let revoked = format!("{host} {key}\n@revoked * {key}");
    let error = pusher_with(&node, &revoked, Deadlines::default()).check().await.unwrap_err();
    assert_eq!(error.kind(), &kind);
    assert!(error.to_string().contains("@revoked"), "{error}");

    // Rotation: the old and the new key side by side.
    let both = format!("{host} {other}\n{host} {key}");
    pusher_with(&node, &both, Deadlines::default()).check().await.unwrap();
}

#[tokio::test]
async fn sh_02_a_host_key_type_we_do_not_hold_is_no_fallback() {
    let node = node!();
    // An ECDSA key in wire form: type, curve, an uncompressed point. It need not be on the curve to be held.
    let field = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let point = [&[4_u8][..], &[7; 64]].concat();
    let blob = [field(b"ecdsa-sha2-nistp256"), field(b"nistp256"), field(&point)].concat();
    let held =
        format!("[127.0.0.1]:{} ecdsa-sha2-nistp256 {}", node.port(), data_encoding::BASE64.encode(&blob));
    let error = pusher_with(&node, &held, Deadlines::default()).check().await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::HostKey { fingerprint: None }, "{error}");
}

// B31: the refusal names both sides' offers.
#[tokio::test]
async fn sh_05_weak_algorithms_end_the_handshake() {
    let node = node!("KexAlgorithms diffie-hellman-group-exchange-sha1,diffie-hellman-group14-sha1\n");
    let text = pusher(&node).check().await.unwrap_err().to_string();
    assert!(text.contains("diffie-hellman-group14-sha1") && text.contains("curve25519-sha256"), "{text}");
    for settings in [
        "KexAlgorithms diffie-hellman-group14-sha1\n",
        "KexAlgorithms diffie-hellman-group14-sha256,ecdh-sha2-nistp256\n",
        "Ciphers aes128-cbc,aes256-cbc\n",
        "Ciphers aes256-ctr\nMACs hmac-sha1,hmac-sha1-etm@openssh.com,hmac-sha2-256\n",
    ] {
        let node = node!(settings);
        let error = pusher(&node).check().await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::Connect, "{settings}: {error}");
    }
}

#[tokio::test]
async fn every_cipher_we_accept_carries_a_push() {
    for settings in [
        "Ciphers aes256-gcm@openssh.com\n",
        "Ciphers aes128-gcm@openssh.com\n",
        "Ciphers chacha20-poly1305@openssh.com\n",
        "Ciphers aes256-ctr\nMACs hmac-sha2-256-etm@openssh.com\n",
    ] {
        let node = node!(settings);
        push(&pusher(&node), "/root/f", &sftp(), &noise(200_000)).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_that_is_not_authorized_is_refused() {
    let node = node!();
    let stranger = russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&[9; 32]);
    let pem =
        russh::keys::PrivateKey::from(stranger).to_openssh(russh::keys::ssh_key::LineEnding::LF).unwrap();
    let identity = Arc::new(Identity::from_openssh(&pem).unwrap());
    let known_hosts = Arc::new(KnownHosts::parse(&node.known_hosts_line()).unwrap());
    let pusher = Pusher::new(target(&node), identity, known_hosts, Deadlines::default());
    assert_eq!(pusher.check().await.unwrap_err().kind(), &PushErrorKind::Auth);
}

#[tokio::test]
async fn sh_16_a_second_authentication_method_is_not_answered() {
    let node = node!("AuthenticationMethods publickey,publickey\n");
    let error = pusher(&node).check().await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Auth);
    assert!(error.to_string().contains("second"), "{error}");
}

#[tokio::test]
async fn sh_15_a_key_with_a_passphrase_or_of_another_type_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, arguments: &[&str]| {
        let path = dir.path().join(name);
        let status =
            std::process::Command::new("ssh-keygen").args(["-q", "-f"]).arg(&path).args(arguments).status();
        match status {
            Ok(status) if status.success() => Some(std::fs::read_to_string(path).unwrap()),
            _ => None,
        }
    };
    let Some(locked) = make("locked", &["-t", "ed25519", "-N", "secret"]) else {
        println!("skipped: ssh-keygen is missing");
        return;
    };
    assert_eq!(Identity::from_openssh(&locked).unwrap_err(), guest_push::IdentityError::Encrypted);
    let ecdsa = make("ecdsa", &["-t", "ecdsa", "-N", ""]).unwrap();
    assert!(matches!(Identity::from_openssh(&ecdsa), Err(guest_push::IdentityError::NotEd25519(_))));
    let pem = make("pem", &["-t", "ecdsa", "-m", "PEM", "-N", ""]).unwrap();
    assert_eq!(Identity::from_openssh(&pem).unwrap_err(), guest_push::IdentityError::Malformed);
}

#[tokio::test]
async fn sh_12_a_command_that_hangs_ends_at_its_deadline() {
    let node = node!();
    let deadlines = Deadlines {
        step: Duration::from_secs(2),
        copy_base: Duration::from_secs(2),
        cleanup: Duration::from_secs(20),
        ..Deadlines::default()
    };
    let pusher = pusher_with(&node, &node.known_hosts_line(), deadlines);
    for (part_of_script, step) in
        [("no-parent", Step::Prepare), ("openssl", Step::Hash), ("mv -n", Step::Commit)]
    {
        node.fault("hang_exec", part_of_script);
        let error = push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::Deadline { step });
        assert_eq!(error.residue(), step == Step::Commit, "{error}");
        assert_eq!(node.residue(), [""; 0], "{step}");
        let calls = node.calls().len();
        node.no_fault("hang_exec");
        // What hung now runs on; after a commit that hung, its temporary file is gone already.
        eventually("the command that hung has ended", || {
            node.calls().len() == calls && no_command_runs(&node)
        });
        assert!(!node.guest_root(VMID).join("root/f").exists());
    }
    node.fault("hang_push", "");
    let error = push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Push });
    assert!(error.residue(), "{error}");
    assert_eq!(node.residue(), [""; 0]);
}

/// True when no process of the node's stub `pct` is left.
fn no_command_runs(node: &Sshd) -> bool {
    let stub = format!("{}/bin/pct", node.staging_dir().parent().unwrap().display());
    std::fs::read_dir("/proc").unwrap().flatten().all(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        !String::from_utf8_lossy(&line).contains(&stub)
    })
}

#[tokio::test]
async fn ul_26_a_source_that_aborts_half_way_gets_its_own_error_back_and_nothing_remains() {
    let node = node!();
    let pusher = pusher(&node);
    for kind in [SourceErrorKind::Aborted, SourceErrorKind::TooSlow, SourceErrorKind::TooLarge] {
        for after in [0, 1, 40] {
            let own = SourceError::new(kind, "the client went away");
            let source =
                script(|count| if count < after { Ok(Some(noise(50_000))) } else { Err(own.clone()) });
            let to = dest("/root/f");
            let error = pusher.push_lxc(VMID, &to, &sftp(), source, &|_, _| ()).await.unwrap_err();
            assert_eq!(error.kind(), &PushErrorKind::Source(own));
            assert!(!error.residue());
            assert_eq!(node.residue(), [""; 0]);
            assert!(!node.guest_root(VMID).join("root/f").exists());
        }
    }
}

#[tokio::test]
async fn ul_38_a_source_that_panics_leaves_nothing() {
    let node = node!();
    let pusher = pusher(&node);
    let pushing = tokio::spawn(async move {
        let source = script(|count| if count < 3 { Ok(Some(noise(50_000))) } else { panic!("injected") });
        pusher.push_lxc(VMID, &dest("/root/f"), &sftp(), source, &|_, _| ()).await
    });
    assert!(pushing.await.unwrap_err().is_panic());
    tokio::task::spawn_blocking(move || eventually("nothing remains", || node.residue().is_empty()))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_cap_is_exact_and_an_unexpected_hash_commits_nothing() {
    let node = node!();
    let pusher = pusher(&node);
    let capped = PushOptions { max_bytes: Some(100_000), overwrite: true, ..sftp() };
    push(&pusher, "/root/f", &capped, &noise(99_999)).await.unwrap();
    push(&pusher, "/root/f", &capped, &noise(100_000)).await.unwrap();
    let error = push(&pusher, "/root/f", &capped, &noise(100_001)).await.unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Source(e) if e.kind() == SourceErrorKind::TooLarge));
    assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), noise(100_000));

    let hash = Sha256::digest(noise(10)).into();
    let expecting = PushOptions { expected_sha256: Some(hash), ..sftp() };
    push(&pusher, "/root/right", &expecting, &noise(10)).await.unwrap();
    let error = push(&pusher, "/root/wrong", &expecting, &noise(11)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::UnexpectedHash);
    assert!(!node.guest_root(VMID).join("root/wrong").exists());
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn ul_23_an_empty_source_makes_no_file() {
    let node = node!();
    let pusher = pusher(&node);
    let error = push(&pusher, "/root/f", &sftp(), &Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Empty);
    let dribble = script(|count| Ok((count < 5).then(Bytes::new)));
    let to = dest("/root/f");
    let error = pusher.push_lxc(VMID, &to, &sftp(), dribble, &|_, _| ()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Empty);
    assert!(!node.guest_root(VMID).join("root/f").exists());
    assert_eq!(node.residue(), [""; 0]);
}

/// Polls a future until a condition holds, then drops it.
async fn drop_when(pushing: impl Future<Output = Result<Receipt, PushError>>, mut now: impl FnMut() -> bool) {
    let mut pushing = std::pin::pin!(pushing);
    poll_fn(|context| {
        if now() {
            return Poll::Ready(());
        }
        let ended = pushing.as_mut().poll(context).is_ready();
        assert!(!ended, "the push ended before it was dropped");
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_dropped_while_receiving_leaves_nothing() {
    let node = node!();
    let pusher = pusher(&node);
    let (to, options, stalled) = (dest("/root/f"), sftp(), Arc::new(AtomicUsize::new(0)));
    let source = Stalls(30, Arc::clone(&stalled));
    let pushing = pusher.push_lxc(VMID, &to, &options, source, &|_, _| ());
    drop_when(pushing, || stalled.load(Ordering::SeqCst) == 1 && !node.staged().is_empty()).await;
    eventually("nothing remains", || node.residue().is_empty());
    assert_eq!(names(&node.guest_root(VMID).join("root")), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_dropped_during_pct_push_leaves_nothing_even_when_that_ends_later() {
    let node = node!();
    let pusher = pusher(&node);
    node.fault("hang_push", "");
    let (to, options) = (dest("/root/f"), sftp());
    let pushing = pusher.push_lxc(VMID, &to, &options, noise(100_000), &|_, _| ());
    drop_when(pushing, || node.calls().iter().any(|call| call.starts_with("push "))).await;
    // Only now does pct push make its file.
    node.no_fault("hang_push");
    eventually("nothing remains", || node.residue().is_empty() && no_command_runs(&node));
    assert_eq!(names(&node.guest_root(VMID).join("root")), [""; 0]);
}

#[tokio::test]
async fn ul_39_a_staging_directory_that_others_control_is_refused_by_name() {
    let node = node!();
    let pusher = pusher(&node);
    let staging = node.staging_dir();
    let refused = || async {
        for error in [
            push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap_err(),
            pusher.check().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), &PushErrorKind::Staging, "{error}");
            assert!(error.to_string().contains(staging.to_str().unwrap()), "{error}");
            assert!(!error.residue(), "{error}");
        }
        assert_eq!(node.residue(), [""; 0]);
    };
    let elsewhere = staging.with_file_name("elsewhere");
    private_dir(&elsewhere);
    symlink(&elsewhere, &staging).unwrap();
    refused().await;

    std::fs::remove_file(&staging).unwrap();
    std::fs::write(&staging, "a file").unwrap();
    refused().await;

    std::fs::remove_file(&staging).unwrap();
    private_dir(&staging);
    for mode in [0o755, 0o1777, 0o770, 0o701] {
        std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(mode)).unwrap();
        refused().await;
    }
    std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&staging, Some(12345), None).unwrap();
    refused().await;

    std::os::unix::fs::chown(&staging, Some(0), None).unwrap();
    push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap();
}

#[tokio::test]
async fn a_staging_directory_whose_parent_is_missing_is_refused_by_name() {
    let node = node!();
    let identity = Arc::new(Identity::from_openssh(&node.client_key_pem()).unwrap());
    let known_hosts = Arc::new(KnownHosts::parse(&node.known_hosts_line()).unwrap());
    let staging_dir = node.staging_dir().join("deeper").to_str().unwrap().to_owned();
    let target = SshTarget { staging_dir, ..target(&node) };
    let error = Pusher::new(target, identity, known_hosts, Deadlines::default()).check().await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Staging);
    assert!(error.to_string().contains("deeper"), "{error}");
}

#[tokio::test]
async fn ul_31_stale_staging_files_are_swept_at_first_contact_and_on_request() {
    let node = node!();
    let staging = node.staging_dir();
    private_dir(&staging);
    let old = staging.join(format!("pxw-{}", "ab".repeat(16)));
    let age = |path: &PathBuf| {
        assert!(
            std::process::Command::new("touch")
                .args(["-d", "3 days ago"])
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    };
    std::fs::write(&old, "left by an earlier process").unwrap();
    age(&old);
    let foreign = staging.join("notes");
    std::fs::write(&foreign, "not ours").unwrap();
    age(&foreign);

    let pusher = pusher(&node);
    push(&pusher, "/root/f", &sftp(), &noise(10)).await.unwrap();
    assert_eq!(node.staged(), ["notes"], "the first contact sweeps");

    std::fs::write(&old, "younger").unwrap();
    assert_eq!(pusher.sweep(Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(pusher.sweep(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(node.staged(), ["notes"]);
}

#[tokio::test]
async fn a_push_crosses_key_exchanges_of_both_sides_unharmed() {
    let node = node!("RekeyLimit 1M\nLogLevel DEBUG1\n");
    let data = noise(24 * 1024 * 1024);
    let pusher = pusher(&node).rekey_after(512 * 1024);
    push(&pusher, "/root/f", &sftp(), &data).await.unwrap();
    assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), data);
    let exchanges = node.log().matches("SSH2_MSG_KEXINIT received").count();
    assert!(exchanges >= 10, "{exchanges} key exchanges");
}

/// OpenSSH drops some of many that log in at once, at random and without a word; that is tried again. A refusal is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_connections_that_are_dropped_before_the_login_are_tried_again() {
    let node = node!("MaxStartups 10:30:100\n");
    let pusher = pusher(&node);
    let checks: Vec<_> = (0..20)
        .map(|_| {
            let pusher = pusher.clone();
            tokio::spawn(async move { pusher.reach().await })
        })
        .collect();
    for check in checks {
        check.await.unwrap().unwrap();
    }
    // Every one is dropped: that ends, too.
    let node = node!("MaxStartups 1:100:1\n");
    // Whoever is greeted has the only place; the server's own start may have had it a moment ago.
    let _holds_it = loop {
        let mut stream = std::net::TcpStream::connect((node.host(), node.port())).unwrap();
        let mut greeting = [0; 4];
        if std::io::Read::read_exact(&mut stream, &mut greeting).is_ok() && greeting == *b"SSH-" {
            break stream;
        }
    };
    let error = self::pusher(&node).reach().await.unwrap_err();
    assert_eq!(*error.kind(), PushErrorKind::Connect, "{error}");
}

/// The first pushes to a node race to make the staging directory; none may see it half made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_pushes_do_not_disturb_each_other() {
    let node = node!();
    let pusher = pusher(&node);
    let pushes: Vec<_> = (0..12)
        .map(|i| {
            let pusher = pusher.clone();
            tokio::spawn(
                async move { push(&pusher, &format!("/root/{i}"), &sftp(), &noise(300_000 + i)).await },
            )
        })
        .collect();
    for (i, pushing) in pushes.into_iter().enumerate() {
        assert_eq!(pushing.await.unwrap().unwrap().bytes, 300_000 + i as u64);
        assert_eq!(
            std::fs::read(node.guest_root(VMID).join(format!("root/{i}"))).unwrap(),
            noise(300_000 + i)
        );
    }
    assert_eq!(node.residue(), [""; 0]);
}
