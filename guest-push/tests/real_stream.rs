//! The `stream` route over a real OpenSSH server: bytes straight into `pct exec`. See `support`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::future::{Future, poll_fn};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use guest_push::{
    Account, Deadlines, Dest, LxcRoute, Mode, PushError, PushErrorKind, PushOptions, Pusher, Receipt, Source,
    SourceError, SourceErrorKind, Step, VerifiedAt,
};
use sha2::{Digest, Sha256};
use support::{Sshd, eventually, names};

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

fn pusher(node: &Sshd) -> Pusher {
    node.pusher(Deadlines::default())
}

fn dest(path: &str) -> Dest {
    Dest::parse(path).unwrap()
}

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

fn overwriting() -> PushOptions {
    PushOptions { overwrite: true, ..PushOptions::default() }
}

async fn push(
    pusher: &Pusher,
    path: &str,
    options: &PushOptions,
    bytes: &Bytes,
) -> Result<Receipt, PushError> {
    pusher.push_lxc(VMID, &dest(path), options, bytes.clone(), &|_, _| ()).await
}

/// A source that gives some chunks and then waits, or fails.
struct Chunks {
    left: usize,
    waits: Arc<AtomicUsize>,
    fails: bool,
}

impl Source for Chunks {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.left == 0 {
            if self.fails {
                return Err(SourceError::new(SourceErrorKind::Aborted, "the sender went away"));
            }
            self.waits.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        self.left -= 1;
        Ok(Some(noise(100_000)))
    }
}

#[tokio::test]
async fn bytes_go_straight_into_the_guest_and_no_copy_is_on_the_node() {
    let node = node!();
    let data = noise(5 * 1024 * 1024 + 17);
    let receipt = push(&pusher(&node), "/root/app.bin", &PushOptions::default(), &data).await.unwrap();
    let file = node.guest_root(VMID).join("root/app.bin");
    assert_eq!(std::fs::read(&file).unwrap(), data);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(receipt.bytes, data.len() as u64);
    assert_eq!(receipt.sha256, <[u8; 32]>::from(Sha256::digest(&data)));
    assert_eq!((receipt.verified_at, receipt.checksum_verified), (VerifiedAt::Guest, true));
    assert_eq!(receipt.route, "stream");
    assert_eq!(node.residue(), [""; 0]);
    assert!(!node.staging_dir().exists(), "the node's staging directory is not needed");
    assert!(node.calls().iter().all(|call| call.starts_with("exec 905")), "{:?}", node.calls());
    // Prepare, receive and commit: the hash is made while the bytes arrive.
    assert_eq!(node.calls().len(), 3);
}

#[tokio::test]
async fn sizes_around_one_packet_arrive_whole_however_they_are_cut() {
    struct Cut(Bytes, usize);
    impl Source for Cut {
        async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            let take = self.1.min(self.0.len());
            Ok((take > 0).then(|| self.0.split_to(take)))
        }
    }
    let node = node!();
    let pusher = pusher(&node);
    for (size, chunk) in
        [(1, 1), (1023, 10), (32_703, 100), (32_704, 32_704), (32_705, 32_704), (300_000, 77_777)]
    {
        let data = noise(size);
        let source = Cut(data.clone(), chunk);
        let receipt =
            pusher.push_lxc(VMID, &dest("/root/f"), &overwriting(), source, &|_, _| ()).await.unwrap();
        assert_eq!(receipt.bytes, size as u64);
        assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), data);
    }
}

// B09: one literal argument, whatever is in it.
#[tokio::test]
async fn dp_01_shell_syntax_in_a_name_is_only_a_name_to_the_stream() {
    let node = node!();
    let pusher = pusher(&node);
    let root = node.guest_root(VMID).join("root");
    let odd =
        ["$(touch PWNED);x y.bin", "`id`", "a && b", "> x", "*", "~", "'", "\"", "\\", "-rf", "%s", "$HOME"];
    let data = noise(1000);
    for name in odd {
        push(&pusher, &format!("/root/{name}"), &PushOptions::default(), &data).await.unwrap();
        assert_eq!(std::fs::read(root.join(name)).unwrap(), data, "{name:?}");
    }
    assert_eq!(names(&root).len(), odd.len());
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn mode_owner_and_group_are_those_asked_for_with_set_id_bits() {
    let node = node!();
    let options = PushOptions {
        mode: Mode::parse("4750").unwrap(),
        owner: Some(Account::parse("app").unwrap()),
        group: Some(Account::parse("1234").unwrap()),
        ..PushOptions::default()
    };
    push(&pusher(&node), "/root/f", &options, &noise(10)).await.unwrap();
    let metadata = std::fs::metadata(node.guest_root(VMID).join("root/f")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1000, 1234));
    assert_eq!(metadata.mode() & 0o7777, 0o4750);
    let group = PushOptions { owner: None, mode: Mode::default(), ..options };
    push(&pusher(&node), "/root/g", &group, &noise(10)).await.unwrap();
    let metadata = std::fs::metadata(node.guest_root(VMID).join("root/g")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (0, 1234));
}

#[tokio::test]
async fn b06_an_owner_the_guest_does_not_know_leaves_no_file() {
    let node = node!();
    let options =
        PushOptions { owner: Some(Account::parse("no-such-user").unwrap()), ..PushOptions::default() };
    let error = push(&pusher(&node), "/root/f", &options, &noise(10)).await.unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Remote { step: Step::Write, .. }), "{error}");
    assert!(error.to_string().contains("no-such-user"), "{error}");
    assert!(!error.residue());
    assert!(names(&node.guest_root(VMID).join("root")).is_empty());
}

#[tokio::test]
async fn b07_an_id_outside_the_mapping_is_refused_by_name_and_leaves_no_file() {
    let node = node!();
    // As busybox and coreutils say it in an unprivileged container.
    node.fault("stream_fail", "chown: /root/x: Invalid argument");
    let options = PushOptions { owner: Some(Account::parse("70000").unwrap()), ..PushOptions::default() };
    let error = push(&pusher(&node), "/root/f", &options, &noise(10)).await.unwrap_err();
    assert!(error.to_string().contains("id mapping"), "{error}");
    assert!(names(&node.guest_root(VMID).join("root")).is_empty());
}

#[tokio::test]
async fn dp_09_dp_10_what_is_in_the_way_is_named_before_a_byte_travels() {
    struct Untouched;
    impl Source for Untouched {
        async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
            panic!("no byte is asked for");
        }
    }
    let node = node!();
    let pusher = pusher(&node);
    let root = node.guest_root(VMID).join("root");
    symlink("/etc/passwd", root.join("link")).unwrap();
    std::fs::write(root.join("old"), "old").unwrap();
    for (path, options, kind) in [
        ("/root/link", overwriting(), PushErrorKind::NotRegular),
        ("/root", overwriting(), PushErrorKind::DestIsDirectory),
        ("/root/old", PushOptions::default(), PushErrorKind::DestExists),
        ("/nowhere/f", PushOptions::default(), PushErrorKind::NoParent),
    ] {
        let error = pusher.push_lxc(VMID, &dest(path), &options, Untouched, &|_, _| ()).await.unwrap_err();
        assert_eq!(error.kind(), &kind, "{path}");
        assert!(!error.residue());
    }
    assert_eq!(std::fs::read(root.join("old")).unwrap(), b"old");
}

#[tokio::test]
async fn b04_a_stopped_guest_is_named_before_a_byte_travels() {
    let node = node!();
    node.stop_guest(VMID);
    let error = push(&pusher(&node), "/root/f", &PushOptions::default(), &noise(10)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestUnreachable);
}

#[tokio::test]
async fn ul_40_a_full_guest_is_named_before_and_during_the_stream() {
    let node = node!();
    let pusher = pusher(&node);
    node.fault("prepare_prints", "no-space\n");
    let error = push(&pusher, "/root/f", &PushOptions::default(), &noise(3_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoSpace);
    assert!(!error.residue());
    node.no_fault("prepare_prints");
    push(&pusher, "/root/f", &PushOptions::default(), &noise(500_000)).await.unwrap();

    node.fault("stream_fail", "cat: write error: No space left on device");
    let error = push(&pusher, "/root/f", &overwriting(), &noise(900_000)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoSpace, "{error}");
    assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), noise(500_000));
    assert_eq!(node.residue(), [""; 0]);
    node.no_fault("stream_fail");
    push(&pusher, "/root/f", &overwriting(), &noise(10)).await.unwrap();
}

#[tokio::test]
async fn sh_09_bytes_lost_on_the_way_are_found_in_the_guest() {
    let node = node!();
    let pusher = pusher(&node);
    for short in ["0", "1", "299999"] {
        node.fault("stream_short", short);
        let error = push(&pusher, "/root/f", &PushOptions::default(), &noise(300_000)).await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::HashMismatch, "{short}");
        assert!(!error.residue());
        assert_eq!(node.residue(), [""; 0]);
        assert!(names(&node.guest_root(VMID).join("root")).is_empty());
    }
}

#[tokio::test]
async fn b14_a_command_killed_in_the_middle_is_no_success_and_leaves_nothing() {
    let node = node!();
    node.fault("stream_kill", "70000");
    let error = push(&pusher(&node), "/root/f", &PushOptions::default(), &noise(300_000)).await.unwrap_err();
    assert!(!matches!(error.kind(), PushErrorKind::Source(_)), "{error}");
    assert!(names(&node.guest_root(VMID).join("root")).is_empty());
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn ul_26_a_source_that_aborts_gets_its_own_error_back_and_nothing_remains() {
    let node = node!();
    let source = Chunks { left: 30, waits: Arc::default(), fails: true };
    let error = pusher(&node)
        .push_lxc(VMID, &dest("/root/f"), &PushOptions::default(), source, &|_, _| ())
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Source(s) if s.kind() == SourceErrorKind::Aborted));
    assert!(!error.residue());
    assert_eq!(node.residue(), [""; 0]);
    assert!(names(&node.guest_root(VMID).join("root")).is_empty());
}

/// Polls a push until something has happened, then drops it.
async fn drop_when(pushing: impl Future<Output = Result<Receipt, PushError>>, mut now: impl FnMut() -> bool) {
    let mut pushing = Box::pin(pushing);
    poll_fn(|cx| {
        if let Poll::Ready(ended) = pushing.as_mut().poll(cx) {
            panic!("the push ended first: {ended:?}");
        }
        cx.waker().wake_by_ref();
        if now() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_a_stream_that_is_dropped_leaves_nothing() {
    let node = node!();
    let pusher = pusher(&node);
    let waits = Arc::new(AtomicUsize::new(0));
    let source = Chunks { left: 30, waits: Arc::clone(&waits), fails: false };
    let to = dest("/root/f");
    let options = PushOptions::default();
    drop_when(pusher.push_lxc(VMID, &to, &options, source, &|_, _| ()), || {
        waits.load(Ordering::SeqCst) > 0 && !node.residue().is_empty()
    })
    .await;
    eventually("the temporary file is gone", || node.residue().is_empty());
    assert!(names(&node.guest_root(VMID).join("root")).is_empty());
}

// B22: a channel whose window is never opened again.
#[tokio::test]
async fn sh_12_a_guest_that_stops_reading_ends_at_the_idle_deadline() {
    let node = node!();
    node.fault("hang_exec", "set -C");
    let quick = Deadlines {
        idle: Duration::from_millis(500),
        step: Duration::from_secs(2),
        cleanup: Duration::from_secs(2),
        ..Deadlines::default()
    };
    let pusher = node.pusher(quick);
    let error = push(&pusher, "/root/f", &PushOptions::default(), &noise(6_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Write });
    node.no_fault("hang_exec");
    assert!(!node.guest_root(VMID).join("root/f").exists());
}

#[tokio::test]
async fn b14_b16_a_stream_crosses_key_exchanges_of_both_sides_unharmed() {
    let node = node!("RekeyLimit 1M\n");
    let data = noise(12 * 1024 * 1024);
    let pusher = pusher(&node).rekey_after(1024 * 1024);
    push(&pusher, "/root/f", &PushOptions::default(), &data).await.unwrap();
    assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), data);
}

#[tokio::test]
async fn an_unexpected_hash_and_a_source_over_the_cap_put_nothing_in_place() {
    let node = node!();
    let pusher = pusher(&node);
    let options = PushOptions { expected_sha256: Some([7; 32]), ..PushOptions::default() };
    let error = push(&pusher, "/root/f", &options, &noise(100)).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::UnexpectedHash);
    let options = PushOptions { max_bytes: Some(99_999), ..PushOptions::default() };
    let error = push(&pusher, "/root/f", &options, &noise(100_000)).await.unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Source(s) if s.kind() == SourceErrorKind::TooLarge));
    let source = Chunks { left: 2, waits: Arc::default(), fails: false };
    let error = pusher.push_lxc(VMID, &dest("/root/f"), &options, source, &|_, _| ()).await.unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Source(s) if s.kind() == SourceErrorKind::TooLarge));
    assert_eq!(node.residue(), [""; 0]);
    assert!(names(&node.guest_root(VMID).join("root")).is_empty());
}

#[tokio::test]
async fn b13_forgotten_siblings_are_swept_by_age_and_younger_ones_are_kept() {
    let node = node!();
    let root = node.guest_root(VMID).join("root");
    let old = root.join(format!(".pxw-{}.part", "a".repeat(32)));
    let young = root.join(format!(".pxw-{}.part", "b".repeat(32)));
    let other = root.join(".pxw-x.part");
    for file in [&old, &young, &other] {
        std::fs::write(file, "x").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7 * 3600);
    for file in [&old, &other] {
        std::fs::File::options().write(true).open(file).unwrap().set_modified(long_ago).unwrap();
    }
    push(&pusher(&node), "/root/f", &PushOptions::default(), &noise(10)).await.unwrap();
    assert!(!old.exists() && young.exists() && other.exists());
}

#[tokio::test]
async fn b12_a_guest_that_cannot_hash_is_never_called_verified() {
    let node = node!();
    node.fault("exec_prints", "none 10\n");
    let receipt = push(&pusher(&node), "/root/f", &PushOptions::default(), &noise(10)).await.unwrap();
    assert_eq!((receipt.verified_at, receipt.checksum_verified), (VerifiedAt::Nowhere, false));
    assert_eq!(receipt.verified_at.as_str(), "none");
}

#[tokio::test]
async fn a_file_is_read_back_with_its_size_and_hash() {
    let node = node!();
    let root = node.guest_root(VMID).join("root");
    let data = noise(3_000_001);
    std::fs::write(root.join("x y.bin"), &data).unwrap();
    std::fs::write(root.join("empty"), "").unwrap();
    let pusher = pusher(&node);
    let download = pusher.read_lxc(VMID, &dest("/root/x y.bin")).await.unwrap();
    assert_eq!(download.size(), data.len() as u64);
    assert_eq!(download.sha256(), Some(Sha256::digest(&data).into()));
    assert_eq!(download.collect(u64::MAX).await.unwrap(), data);
    assert_eq!(pusher.read_lxc(VMID, &dest("/root/empty")).await.unwrap().collect(0).await.unwrap(), b"");
    let long = pusher.read_lxc(VMID, &dest("/root/x y.bin")).await.unwrap().collect(3_000_000).await;
    assert_eq!(long.unwrap_err().kind(), &PushErrorKind::TooLong);
    assert!(std::process::Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    for (path, kind) in [
        ("/root/none", PushErrorKind::Missing),
        ("/root", PushErrorKind::DestIsDirectory),
        ("/root/fifo", PushErrorKind::NotRegular),
    ] {
        assert_eq!(pusher.read_lxc(VMID, &dest(path)).await.unwrap_err().kind(), &kind, "{path}");
    }
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_an_error() {
    let node = node!();
    std::fs::write(node.guest_root(VMID).join("root/f"), noise(1000)).unwrap();
    node.fault("exec_prints", &format!("{} 1000\n", "0".repeat(64)));
    let download = pusher(&node).read_lxc(VMID, &dest("/root/f")).await.unwrap();
    let error = download.collect(u64::MAX).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::HashMismatch);
}

/// The machine that is logged in to is the guest itself.
#[tokio::test]
async fn the_ssh_route_writes_into_the_machine_itself() {
    let node = node!();
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", home.path().display());
    let pusher = pusher(&node);
    let data = noise(2_000_003);
    let options = PushOptions {
        mode: Mode::parse("0600").unwrap(),
        owner: Some(Account::parse("1000").unwrap()),
        ..PushOptions::default()
    };
    let to = dest(&at("it's $(x).bin"));
    pusher.check_machine(&to, &options).await.unwrap();
    let receipt = pusher.push_machine(&to, &options, data.clone(), &|_, _| ()).await.unwrap();
    assert_eq!((receipt.route, receipt.verified_at), ("ssh", VerifiedAt::Guest));
    let file = home.path().join("it's $(x).bin");
    assert_eq!(std::fs::read(&file).unwrap(), data);
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, 1000));
    let error = pusher.push_machine(&to, &options, data.clone(), &|_, _| ()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::DestExists);
    let failing = Chunks { left: 3, waits: Arc::default(), fails: true };
    let error = pusher.push_machine(&dest(&at("g")), &options, failing, &|_, _| ()).await.unwrap_err();
    assert!(matches!(error.kind(), PushErrorKind::Source(_)));
    assert_eq!(names(home.path()), ["it's $(x).bin"]);
    let read = pusher.read_machine(&to).await.unwrap().collect(u64::MAX).await.unwrap();
    assert_eq!(read, data);
}

// B23: the reader polls the file while it is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b23_a_reader_never_sees_a_missing_or_partial_file() {
    let node = node!();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("f");
    std::fs::write(&file, noise(1000)).unwrap();
    let pusher = pusher(&node);
    let stop = Arc::new(AtomicUsize::new(0));
    let (watched, seen) = (file.clone(), Arc::clone(&stop));
    let reader = std::thread::spawn(move || {
        let mut looks = 0_u32;
        while seen.load(Ordering::SeqCst) == 0 {
            let length = std::fs::read(&watched).unwrap().len();
            assert!(length == 1000 || length == 500_000, "{length}");
            looks += 1;
        }
        looks
    });
    let to = dest(file.to_str().unwrap());
    for _round in 0..3 {
        pusher.push_machine(&to, &overwriting(), noise(500_000), &|_, _| ()).await.unwrap();
        pusher.push_machine(&to, &overwriting(), noise(1000), &|_, _| ()).await.unwrap();
    }
    stop.store(1, Ordering::SeqCst);
    assert!(reader.join().unwrap() > 0);
}

/// Root in a container can lie about its own files, and nothing proves anything against it: what it says is taken for the
/// container's word (`verified_at: guest`), and only the word for this very file is taken.
#[tokio::test]
async fn sh_10_a_hash_program_that_lies_must_know_the_file_to_be_believed() {
    let node = node!();
    let pusher = pusher(&node);
    let data = noise(50_000);
    let right = data_encoding::HEXLOWER.encode(&Sha256::digest(&data));
    let liar = node.guest_root(VMID).join("bin/openssl");
    let wrong = "0".repeat(64);
    for lie in [wrong.as_str(), "", "OK", &right[..63], &right.to_uppercase(), &format!("{right}0")] {
        std::fs::write(&liar, format!("#!/bin/sh\ncat >/dev/null\necho '{lie} *stdin'\n")).unwrap();
        std::fs::set_permissions(&liar, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = push(&pusher, "/root/f", &PushOptions::default(), &data).await.unwrap_err();
        let kind = error.kind();
        let expected = if lie == wrong {
            matches!(kind, PushErrorKind::HashMismatch)
        } else {
            matches!(kind, PushErrorKind::Remote { .. })
        };
        assert!(expected, "{lie:?}: {error}");
        assert_eq!(names(&node.guest_root(VMID).join("root")), [""; 0], "{lie:?}");
    }
    // A liar that knows the file has it.
    std::fs::write(&liar, format!("#!/bin/sh\ncat >/dev/null\necho '{right} *stdin'\n")).unwrap();
    let receipt = push(&pusher, "/root/f", &PushOptions::default(), &data).await.unwrap();
    assert_eq!(receipt.verified_at, VerifiedAt::Guest);
    // It cannot lie about the size: that is counted by another program.
    node.fault("stream_short", "1000");
    let error = push(&pusher, "/root/g", &PushOptions::default(), &data).await.unwrap_err();
    assert_eq!(*error.kind(), PushErrorKind::HashMismatch, "{error}");
}

/// A destination is a path of the container, whatever it is called, and the node's own names are not of the caller's making.
#[tokio::test]
async fn dp_11_paths_of_the_node_are_paths_of_the_guest_and_staging_has_names_of_its_own() {
    let node = node!();
    let pusher = pusher(&node);
    let places = ["/etc/pve/priv/authorized_keys", "/var/lib/vz/x", "/root/.ssh/authorized_keys"];
    let host = |path: &str| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let before = places.map(host);
    for route in [LxcRoute::Stream, LxcRoute::SftpPctPush] {
        for path in places.into_iter().chain([node.staging_dir().join("mine").to_str().unwrap()]) {
            let options = PushOptions { route, mkdir: true, overwrite: true, ..PushOptions::default() };
            let seen = std::sync::Mutex::new(Vec::new());
            let progress = |_: u64, _: guest_push::Stage| seen.lock().unwrap().extend(node.staged());
            let receipt = pusher.push_lxc(VMID, &dest(path), &options, noise(5000), &progress).await.unwrap();
            assert_eq!(receipt.bytes, 5000);
            let inside = node.guest_root(VMID).join(path.trim_start_matches('/'));
            assert_eq!(std::fs::metadata(inside).unwrap().len(), 5000, "{path}");
            for name in seen.into_inner().unwrap() {
                let hex = name.strip_prefix("pxw-").unwrap_or_default();
                assert!(hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
            }
        }
    }
    assert_eq!(places.map(host), before, "the node's own files");
    assert!(!node.staging_dir().join("mine").exists());
    assert_eq!(node.residue(), [""; 0]);
}

/// A small generator that gives the same numbers every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// A source that ends with an error after so many bytes, or not at all.
struct Breaks {
    data: Bytes,
    after: Option<usize>,
    sent: usize,
}

impl Source for Breaks {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.after.is_some_and(|after| self.sent >= after) {
            return Err(SourceError::new(SourceErrorKind::Aborted, "the sender went away"));
        }
        let take = self.data.len().min(20_000);
        self.sent += take;
        Ok((take > 0).then(|| self.data.split_to(take)))
    }
}

/// `PROXWARD_FAULTS=500` for the long form.
#[tokio::test]
async fn whatever_goes_wrong_the_destination_is_old_or_complete_and_nothing_remains() {
    let rounds: usize = std::env::var("PROXWARD_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let node = node!();
    let pusher = pusher(&node);
    let file = node.guest_root(VMID).join("root/f");
    std::fs::write(&file, "old").unwrap();
    let mut before = b"old".to_vec();
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let (mut good, mut bad) = (0, 0);
    for round in 0..rounds {
        let route = [LxcRoute::Stream, LxcRoute::SftpPctPush][dice.roll(2)];
        let data = noise(1 + dice.roll(200_000));
        let cut = dice.roll(data.len() + 1).to_string();
        let hash = "0".repeat(64);
        let (fault, value) = match dice.roll(9) {
            0 => ("stream_short", cut.clone()),
            1 => ("stream_fail", "cat: write error: No space left on device".to_owned()),
            2 => ("stream_kill", cut.clone()),
            3 => ("push_short", cut.clone()),
            4 => ("push_fail", "close failed: Disk quota exceeded".to_owned()),
            5 => ("exec_prints", format!("{hash} {}\n", data.len())),
            6 => ("exec_prints", format!("none {cut}\n")),
            7 => ("prepare_prints", "no-space\n".to_owned()),
            _ => ("", String::new()),
        };
        let breaks = (dice.roll(4) == 0).then(|| dice.roll(data.len()));
        if !fault.is_empty() {
            node.fault(fault, &value);
        }
        let options = PushOptions { route, ..overwriting() };
        let source = Breaks { data: data.clone(), after: breaks, sent: 0 };
        let outcome = pusher.push_lxc(VMID, &dest("/root/f"), &options, source, &|_, _| ()).await;
        if !fault.is_empty() {
            node.no_fault(fault);
        }
        let what =
            format!("round {round}: {route} {fault} {value:?} {breaks:?} of {}: {outcome:?}", data.len());
        let found = std::fs::read(&file).unwrap();
        match &outcome {
            Ok(receipt) => {
                assert_eq!(found, data, "{what}");
                assert_eq!(receipt.bytes, data.len() as u64, "{what}");
                good += 1;
                before = found;
            }
            Err(error) => {
                assert_eq!(found, before, "{what}");
                // Of a command that was killed nobody can say whether its other half still writes: that is said, although nothing
                // is left here.
                assert!(!error.residue() || fault == "stream_kill", "{what}");
                bad += 1;
            }
        }
        assert_eq!(node.residue(), [""; 0], "{what}");
        assert_eq!(names(&node.guest_root(VMID).join("root")), ["f"], "{what}");
    }
    println!("{rounds} rounds: {good} delivered, {bad} refused or failed");
    assert!(good > 0 && bad > 0);
}
