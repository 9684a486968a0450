//! Pushes into the lab's nodes, whose SSH side is an implementation of its own with faults to switch on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guest_push::{
    Deadlines, Dest, Identity, KnownHosts, LxcRoute, PushError, PushErrorKind, PushOptions, Pusher, Receipt,
    SshTarget, Step, VerifiedAt,
};
use lab::{Lab, LabConfig, LabNode, PushFault};

const VMID: u32 = 200;
const STAGING: &str = "/var/tmp/proxward";

struct Node {
    lab: Lab,
    node: LabNode,
}

impl Node {
    async fn start() -> Self {
        let lab = Lab::start(LabConfig::two_clusters().unwrap()).await.unwrap();
        let node = lab.cluster("alpha").node("pve1").unwrap().clone();
        Self { lab, node }
    }

    fn pusher(&self, deadlines: Deadlines) -> Pusher {
        let cluster = self.lab.cluster("alpha");
        let target = SshTarget {
            port: self.node.ssh_port(),
            staging_dir: STAGING.to_owned(),
            user: "proxward".to_owned(),
            sudo: true,
            ..SshTarget::new(self.node.ssh_host())
        };
        let identity = Identity::from_openssh(cluster.client_key_pem()).unwrap();
        let known_hosts = KnownHosts::parse(&self.node.host_key_line()).unwrap();
        Pusher::new(target, Arc::new(identity), Arc::new(known_hosts), deadlines)
    }

    async fn push(&self, path: &str, options: &PushOptions, bytes: Bytes) -> Result<Receipt, PushError> {
        let dest = Dest::parse(path).unwrap();
        self.pusher(quick()).push_lxc(VMID, &dest, options, bytes, &|_, _| ()).await
    }

    /// Everything of ours on the node and in the guest.
    fn residue(&self) -> Vec<String> {
        let cluster = self.lab.cluster("alpha");
        let mut found = Vec::new();
        for root in [cluster.node_root("pve1"), cluster.guest_root(VMID)] {
            look_for(&root, &mut found);
        }
        found
    }
}

fn look_for(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().contains("pxw-") {
            found.push(entry.path().display().to_string());
        } else if entry.file_type().unwrap().is_dir() {
            look_for(&entry.path(), found);
        }
    }
}

/// The defaults, by way of the node's staging directory.
fn sftp() -> PushOptions {
    PushOptions { route: LxcRoute::SftpPctPush, ..PushOptions::default() }
}

fn quick() -> Deadlines {
    let second = Duration::from_secs(1);
    Deadlines {
        handshake: second,
        step: second,
        copy_base: second,
        cleanup: Duration::from_secs(4),
        ..Deadlines::default()
    }
}

fn data() -> Bytes {
    (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into()
}

#[tokio::test]
async fn a_file_arrives_by_the_agreed_commands_alone() {
    let node = Node::start().await;
    let receipt = node.push("/root/$(touch PWNED);x y.bin", &sftp(), data()).await.unwrap();
    assert_eq!((receipt.bytes, receipt.verified_at), (1_200_000, VerifiedAt::Guest));
    let file = node.lab.cluster("alpha").guest_root(VMID).join("root/$(touch PWNED);x y.bin");
    assert_eq!(std::fs::read(file).unwrap(), data());
    assert_eq!(node.residue(), [""; 0]);
    let commands = node.node.faults().commands();
    let verbs: Vec<_> = commands.iter().map(|words| words[..5].join(" ")).collect();
    let exec = "sudo -n pct exec 200";
    assert_eq!(verbs, [exec, "sudo -n pct push 200", exec, exec]);
    assert!(commands[1][5].starts_with("/var/tmp/proxward/pxw-"), "{:?}", commands[1]);
    assert!(commands[1][6].starts_with("/root/.pxw-") && commands[1][6].ends_with(".part"));
    assert_eq!(commands[1][7..], ["--perms", "0644"]);
}

#[tokio::test]
async fn owner_and_group_reach_the_guest() {
    let node = Node::start().await;
    let options =
        PushOptions { owner: Some("app".parse().unwrap()), group: Some("33".parse().unwrap()), ..sftp() };
    node.push("/srv/f", &options, data()).await.unwrap();
    assert_eq!(node.lab.cluster("alpha").guest_owner(VMID, "/srv/f"), Some((1000, 33)));
}

#[tokio::test]
async fn sh_09_a_copy_cut_short_with_exit_0_is_never_success() {
    let node = Node::start().await;
    for length in [0, 1, 1_199_999] {
        node.node.faults().push(Some(PushFault::Short(length)));
        let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::HashMismatch);
        assert!(!error.residue());
        assert_eq!(node.residue(), [""; 0]);
        assert!(!node.lab.cluster("alpha").guest_root(VMID).join("root/f").exists());
    }
    node.node.faults().push(Some(PushFault::Fail));
    let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Remote { step: Step::Push, status: Some(255) });
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn a_guest_without_a_hashing_tool_is_never_called_verified() {
    let node = Node::start().await;
    node.node.faults().no_sha256(true);
    let receipt = node.push("/root/f", &sftp(), data()).await.unwrap();
    assert_eq!((receipt.verified_at, receipt.checksum_verified), (VerifiedAt::Node, false));
}

#[tokio::test]
async fn ul_40_a_node_that_fills_up_is_named_before_and_during_the_push() {
    let node = Node::start().await;
    node.node.faults().space(Some(1024 * 1024));
    let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoSpace);
    assert_eq!(node.residue(), [""; 0]);

    // Enough to begin with; then another writer takes it.
    node.node.faults().space(Some(64 * 1024 * 1024));
    let dest = Dest::parse("/root/f").unwrap();
    let faults = node.node.faults().clone();
    let progress = move |bytes, _stage| {
        if bytes > 500_000 {
            faults.space(Some(10_000));
        }
    };
    let source = Pieces(data());
    let pusher = node.pusher(quick());
    let error = pusher.push_lxc(VMID, &dest, &sftp(), source, &progress).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::NoSpace, "{error}");
    assert!(!error.residue());
    assert_eq!(node.residue(), [""; 0]);

    node.node.faults().space(None);
    node.push("/root/f", &sftp(), data()).await.unwrap();
}

/// A source in pieces of 50 kB and of unknown length.
struct Pieces(Bytes);

impl guest_push::Source for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, guest_push::SourceError> {
        let length = self.0.len().min(50_000);
        Ok((length > 0).then(|| self.0.split_to(length)))
    }
}

#[tokio::test]
async fn sh_12_a_node_that_stops_answering_is_noticed_at_each_step() {
    let node = Node::start().await;
    node.node.faults().hang_connections(true);
    let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Handshake });
    node.node.faults().hang_connections(false);
    node.node.faults().refuse_connections(true);
    let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Connect);
    node.node.faults().refuse_connections(false);

    node.node.faults().hang_exec(true);
    let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Prepare });
    assert!(!error.residue(), "nothing had been made: {error}");
    node.node.faults().hang_exec(false);

    // From the first byte on, no command is answered: pct push, and the clean-up in the guest too.
    let faults = node.node.faults().clone();
    let dest = Dest::parse("/root/f").unwrap();
    let progress = move |bytes, _stage| {
        if bytes > 0 {
            faults.hang_exec(true);
        }
    };
    let pusher = node.pusher(quick());
    let error = pusher.push_lxc(VMID, &dest, &sftp(), data(), &progress).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Push });
    assert!(error.residue());
    assert!(error.to_string().contains("/root/.pxw-"), "what may remain is named: {error}");
    assert_eq!(node.residue(), [""; 0], "the node was cleaned although the guest did not answer");
}

#[tokio::test]
async fn clean_up_that_the_node_refuses_is_reported() {
    let node = Node::start().await;
    node.node.faults().remove_fails(true);
    let error = node.push("/root/f", &sftp(), data()).await.unwrap_err();
    assert!(error.residue());
    assert!(error.to_string().contains("/var/tmp/proxward/pxw-"), "{error}");
    assert!(!node.lab.cluster("alpha").guest_root(VMID).join("root/f").exists(), "not committed");
    let left = node.residue();
    assert_eq!(left.len(), 1, "the guest was cleaned all the same: {left:?}");

    node.node.faults().remove_fails(false);
    let pusher = node.pusher(quick());
    assert_eq!(pusher.sweep(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(node.residue(), [""; 0]);
}

#[tokio::test]
async fn sh_13_a_guest_that_migrates_during_the_push_is_named() {
    let node = Node::start().await;
    let cluster = node.lab.cluster("alpha").clone();
    let progress = move |_bytes, stage| {
        if stage == guest_push::Stage::Push {
            cluster.migrate(VMID, "pve2").unwrap();
        }
    };
    let dest = Dest::parse("/root/f").unwrap();
    let pusher = node.pusher(quick());
    let error = pusher.push_lxc(VMID, &dest, &sftp(), data(), &progress).await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::GuestUnreachable, "{error}");
    assert_eq!(node.residue(), [""; 0], "the node's file is gone");
}
