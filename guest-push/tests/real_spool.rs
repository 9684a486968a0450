//! A file that comes to a real OpenSSH server in pieces, and goes into a container once it is whole.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use bytes::Bytes;
use guest_push::{
    Deadlines, Dest, PushErrorKind, PushOptions, Pusher, Source, SourceError, SourceErrorKind, Spool,
    VerifiedAt,
};
use sha2::{Digest, Sha256};
use support::{Sshd, eventually, private_dir};

const VMID: u32 = 905;

fn node() -> Option<(Sshd, Pusher)> {
    let node = Sshd::start()?;
    node.add_guest(VMID);
    let pusher = node.pusher(Deadlines::default());
    Some((node, pusher))
}

fn dest() -> Dest {
    Dest::parse("/root/f").unwrap()
}

fn data(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn quiet(_bytes: u64, _stage: guest_push::Stage) {}

/// The one staged file.
fn staged(node: &Sshd) -> PathBuf {
    let names = node.staged();
    assert_eq!(names.len(), 1, "{names:?}");
    node.staging_dir().join(&names[0])
}

async fn append(spool: &mut Spool, bytes: &[u8]) {
    spool.append(&mut Bytes::copy_from_slice(bytes), &quiet).await.unwrap();
}

/// A sender that goes away after its bytes.
struct Leaves(Bytes);

impl Source for Leaves {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        match std::mem::take(&mut self.0) {
            gone if gone.is_empty() => {
                Err(SourceError::new(SourceErrorKind::Aborted, "the sender went away"))
            }
            bytes => Ok(Some(bytes)),
        }
    }
}

#[tokio::test]
async fn pieces_over_several_connections_make_one_verified_file() {
    let Some((node, pusher)) = node() else { return };
    let data = data(300_000);
    let mut spool = pusher.spool(data.len() as u64).await.unwrap();
    let mode = std::fs::metadata(staged(&node)).unwrap().permissions().mode();
    assert_eq!((spool.offset(), mode & 0o7777), (0, 0o600));
    append(&mut spool, &data[..70_000]).await;
    // The sender's own error comes back, and what had come before it counts.
    let mut leaves = Leaves(Bytes::copy_from_slice(&data[70_000..100_001]));
    let error = spool.append(&mut leaves, &quiet).await.unwrap_err();
    assert!(
        matches!(error.kind(), PushErrorKind::Source(e) if e.kind() == SourceErrorKind::Aborted),
        "{error}"
    );
    assert_eq!(spool.offset(), 100_001);
    assert_eq!(spool.sha256(), <[u8; 32]>::from(Sha256::digest(&data[..100_001])));
    append(&mut spool, &data[100_001..]).await;
    assert!(std::fs::read(staged(&node)).unwrap() == data);
    let receipt = spool.deliver_lxc(VMID, &dest(), &PushOptions::default(), &quiet).await.unwrap();
    assert_eq!((receipt.bytes, receipt.verified_at), (data.len() as u64, VerifiedAt::Guest));
    assert_eq!(receipt.sha256, <[u8; 32]>::from(Sha256::digest(&data)));
    assert!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap() == data);
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn what_is_rewound_is_overwritten_by_what_comes_next() {
    let Some((node, pusher)) = node() else { return };
    let mut spool = pusher.spool(10).await.unwrap();
    append(&mut spool, b"good").await;
    let mark = spool.mark();
    append(&mut spool, b"damaged").await;
    assert_eq!(spool.offset(), 11);
    spool.rewind(mark);
    assert_eq!((spool.offset(), spool.sha256()), (4, Sha256::digest(b"good").into()));
    append(&mut spool, b"better.").await;
    let receipt = spool.deliver_lxc(VMID, &dest(), &PushOptions::default(), &quiet).await.unwrap();
    assert_eq!(receipt.bytes, 11);
    assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), b"goodbetter.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_piece_that_was_rewound_leaves_no_tail_in_the_guest() {
    let Some((node, pusher)) = node() else { return };
    let mut spool = pusher.spool(10).await.unwrap();
    let mark = spool.mark();
    append(&mut spool, b"far too long").await;
    spool.rewind(mark);
    append(&mut spool, b"short").await;
    // The file on the node is longer than what counts: it must not arrive as a success.
    let delivered = spool.deliver_lxc(VMID, &dest(), &PushOptions::default(), &quiet).await;
    match delivered {
        Ok(receipt) => {
            assert_eq!(receipt.bytes, 5);
            assert_eq!(std::fs::read(node.guest_root(VMID).join("root/f")).unwrap(), b"short");
        }
        Err(error) => {
            assert_eq!(*error.kind(), PushErrorKind::HashMismatch, "{error}");
            assert!(!node.guest_root(VMID).join("root/f").exists());
        }
    }
    eventually("nothing to be left", || node.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discarding_and_dropping_remove_the_file() {
    let Some((node, pusher)) = node() else { return };
    let mut spool = pusher.spool(4).await.unwrap();
    append(&mut spool, b"gone").await;
    spool.discard().await.unwrap();
    assert_eq!(node.staged(), [""; 0]);
    let mut spool = pusher.spool(4).await.unwrap();
    append(&mut spool, b"gone").await;
    drop(spool);
    eventually("the file to be removed", || node.staged().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spool_whose_file_was_lost_or_cut_takes_and_delivers_nothing_more() {
    let Some((node, pusher)) = node() else { return };
    for cut in [None, Some(3)] {
        let mut spool = pusher.spool(20).await.unwrap();
        append(&mut spool, b"acknowledged").await;
        match cut {
            None => std::fs::remove_file(staged(&node)).unwrap(),
            Some(length) => {
                std::fs::File::options().write(true).open(staged(&node)).unwrap().set_len(length).unwrap();
            }
        }
        let error = spool.append(&mut Bytes::from_static(b"more"), &quiet).await.unwrap_err();
        assert_eq!(*error.kind(), PushErrorKind::Staging, "{cut:?}: {error}");
        let again = spool.append(&mut Bytes::from_static(b"more"), &quiet).await.unwrap_err();
        assert!(again.to_string().contains("begin anew"), "{cut:?}: {again}");
        let error = spool.deliver_lxc(VMID, &dest(), &PushOptions::default(), &quiet).await.unwrap_err();
        assert_eq!(*error.kind(), PushErrorKind::Staging, "{cut:?}: {error}");
        assert!(!node.guest_root(VMID).join("root/f").exists());
        eventually("nothing to be left", || node.residue().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_refused_leaves_the_old_file_and_no_spool() {
    let Some((node, pusher)) = node() else { return };
    let file = node.guest_root(VMID).join("root/f");
    std::fs::write(&file, "old").unwrap();
    let mut spool = pusher.spool(3).await.unwrap();
    append(&mut spool, b"new").await;
    let error = spool.deliver_lxc(VMID, &dest(), &PushOptions::default(), &quiet).await.unwrap_err();
    assert_eq!(*error.kind(), PushErrorKind::DestExists, "{error}");
    let mut spool = pusher.spool(3).await.unwrap();
    append(&mut spool, b"new").await;
    let other = PushOptions { overwrite: true, expected_sha256: Some([0; 32]), ..PushOptions::default() };
    let error = spool.deliver_lxc(VMID, &dest(), &other, &quiet).await.unwrap_err();
    assert_eq!(*error.kind(), PushErrorKind::UnexpectedHash, "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    eventually("nothing to be left", || node.residue().is_empty());
}

#[tokio::test]
async fn ul_40_no_spool_is_begun_that_the_node_has_no_room_for() {
    let Some((node, pusher)) = node() else { return };
    let error = pusher.spool(u64::MAX / 4).await.unwrap_err();
    assert_eq!(*error.kind(), PushErrorKind::NoSpace, "{error}");
    // Nor in a directory that others can enter.
    std::fs::remove_dir_all(node.staging_dir()).unwrap();
    private_dir(&node.staging_dir());
    std::fs::set_permissions(node.staging_dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = pusher.spool(1).await.unwrap_err();
    assert_eq!(*error.kind(), PushErrorKind::Staging, "{error}");
    assert_eq!(node.staged(), [""; 0]);
}
