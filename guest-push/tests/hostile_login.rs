//! A node that, once we have logged in, lies, stalls, talks nonsense or wants something of us.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use guest_push::{
    Deadlines, Dest, Identity, KnownHosts, LxcRoute, PushError, PushErrorKind, PushOptions, Pusher,
    SshTarget, Step,
};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId};
use russh_sftp::protocol::{Attrs, FileAttributes, Handle, OpenFlags, Packet, Status, StatusCode, Version};
use russh_sftp::server::StatusReply;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    Hang(&'static str),
    Fail(&'static str),
    /// Every write is acknowledged, the third is lost.
    LoseAWrite,
    /// The subsystem answers with these bytes and nothing else.
    Nonsense(&'static [u8]),
    /// Before each answer the node tries to open channels of every kind to us.
    OpensChannels,
    /// Strict key exchange is not offered, and this is the only cipher.
    NotStrict(russh::cipher::Name),
}

struct World {
    fault: Fault,
    file: Vec<u8>,
    writes: usize,
    exists: bool,
    discarded: usize,
    committed: bool,
    /// Channels that we refused to have opened, and that we let be opened.
    refused: usize,
    accepted: usize,
}

type Shared = Arc<Mutex<World>>;

struct Login {
    world: Shared,
    channels: HashMap<ChannelId, Channel<Msg>>,
}

impl Handler for Login {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        line: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)?;
        let channel = self.channels.remove(&id).unwrap();
        let answer = self.run(&String::from_utf8_lossy(line));
        let (world, handle) = (Arc::clone(&self.world), session.handle());
        tokio::spawn(async move {
            if world.lock().unwrap().fault == Fault::OpensChannels {
                let opened = [
                    handle.channel_open_agent().await.is_ok(),
                    handle.channel_open_session().await.is_ok(),
                    handle.channel_open_x11("127.0.0.1", 6000).await.is_ok(),
                    handle.channel_open_direct_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await.is_ok(),
                    handle.channel_open_forwarded_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await.is_ok(),
                    handle.channel_open_direct_streamlocal("/run/x").await.is_ok(),
                    handle.channel_open_forwarded_streamlocal("/run/x").await.is_ok(),
                ];
                let mut world = world.lock().unwrap();
                world.accepted += opened.iter().filter(|open| **open).count();
                world.refused += opened.iter().filter(|open| !**open).count();
            }
            let _sent = channel.data_bytes(answer).await;
            let _sent = channel.exit_status(0).await;
            let _sent = channel.close().await;
        });
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)?;
        let mut stream = self.channels.remove(&id).unwrap().into_stream();
        let fault = self.world.lock().unwrap().fault;
        if let Fault::Nonsense(bytes) = fault {
            tokio::spawn(async move {
                let _sent = stream.write_all(bytes).await;
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {}
            });
        } else {
            russh_sftp::server::run(stream, Sftp(Arc::clone(&self.world))).await;
        }
        Ok(())
    }
}

impl Login {
    /// A guest that honestly hashes what the staging file holds.
    fn run(&self, line: &str) -> String {
        let mut world = self.world.lock().unwrap();
        if line.contains("no-parent") {
            return "ok\n".to_owned();
        }
        if line.contains("openssl") {
            let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(&world.file));
            return format!("{hash} {}\n", world.file.len());
        }
        if line.contains("mv -n") {
            world.committed = true;
            return "ok\n".to_owned();
        }
        if !line.contains("pct push") {
            world.discarded += 1;
        }
        String::new()
    }
}

/// The defaults, by way of the node's staging directory.
fn sftp() -> PushOptions {
    PushOptions { route: LxcRoute::SftpPctPush, ..PushOptions::default() }
}

struct Sftp(Shared);

impl Sftp {
    async fn step(&self, name: &str) -> Result<(), StatusReply> {
        let fault = self.0.lock().unwrap().fault;
        match fault {
            Fault::Hang(at) if at == name => std::future::pending().await,
            Fault::Fail(at) if at == name => Err(StatusCode::Failure.with_message("Failure\x1b[31m\n")),
            _ => Ok(()),
        }
    }
}

fn done(id: u32) -> Status {
    Status { id, status_code: StatusCode::Ok, error_message: String::new(), language_tag: String::new() }
}

fn attributes(permissions: u32) -> FileAttributes {
    FileAttributes { uid: Some(0), permissions: Some(permissions), mtime: Some(0), ..FileAttributes::empty() }
}

impl russh_sftp::server::Handler for Sftp {
    type Error = StatusReply;

    fn unimplemented(&self) -> StatusReply {
        StatusCode::OpUnsupported.into()
    }

    async fn init(&mut self, _version: u32, _have: HashMap<String, String>) -> Result<Version, StatusReply> {
        self.step("init").await?;
        let mut version = Version::new();
        version.extensions.insert("fsync@openssh.com".to_owned(), "1".to_owned());
        Ok(version)
    }

    async fn lstat(&mut self, id: u32, _path: String) -> Result<Attrs, StatusReply> {
        self.step("lstat").await?;
        Ok(Attrs { id, attrs: attributes(0o040_700) })
    }

    async fn open(
        &mut self,
        id: u32,
        _name: String,
        flags: OpenFlags,
        attributes: FileAttributes,
    ) -> Result<Handle, StatusReply> {
        self.step("open").await?;
        assert!(flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUDE | OpenFlags::WRITE));
        assert_eq!(attributes.permissions, Some(0o600));
        self.0.lock().unwrap().exists = true;
        Ok(Handle { id, handle: "file".to_owned() })
    }

    async fn fstat(&mut self, id: u32, _handle: String) -> Result<Attrs, StatusReply> {
        self.step("fstat").await?;
        Ok(Attrs { id, attrs: attributes(0o100_600) })
    }

    async fn write(
        &mut self,
        id: u32,
        _handle: String,
        at: u64,
        data: Vec<u8>,
    ) -> Result<Status, StatusReply> {
        self.step("write").await?;
        let mut world = self.0.lock().unwrap();
        world.writes += 1;
        let end = usize::try_from(at).unwrap() + data.len();
        let length = world.file.len().max(end);
        world.file.resize(length, 0);
        if !(world.fault == Fault::LoseAWrite && world.writes == 3) {
            world.file[end - data.len()..end].copy_from_slice(&data);
        }
        Ok(done(id))
    }

    async fn extended(&mut self, id: u32, _request: String, _data: Vec<u8>) -> Result<Packet, StatusReply> {
        self.step("fsync").await?;
        Ok(done(id).into())
    }

    async fn close(&mut self, id: u32, _handle: String) -> Result<Status, StatusReply> {
        self.step("close").await?;
        Ok(done(id))
    }

    async fn opendir(&mut self, id: u32, _path: String) -> Result<Handle, StatusReply> {
        self.step("opendir").await?;
        Ok(Handle { id, handle: "folder".to_owned() })
    }

    async fn readdir(
        &mut self,
        _id: u32,
        _handle: String,
    ) -> Result<russh_sftp::protocol::Name, StatusReply> {
        Err(StatusCode::Eof.into())
    }

    async fn remove(&mut self, id: u32, _name: String) -> Result<Status, StatusReply> {
        self.step("remove").await?;
        self.0.lock().unwrap().exists = false;
        Ok(done(id))
    }
}

/// Pushes 200 kB to a node with a fault.
async fn push(fault: Fault) -> (Result<u64, PushError>, Shared) {
    push_words(fault, 50_000).await
}

/// Pushes this many words of four bytes.
async fn push_words(fault: Fault, words: u32) -> (Result<u64, PushError>, Shared) {
    let world = World {
        fault,
        file: Vec::new(),
        writes: 0,
        exists: false,
        discarded: 0,
        committed: false,
        refused: 0,
        accepted: 0,
    };
    let world: Shared = Arc::new(Mutex::new(world));
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[3; 32]));
    let identity = Identity::from_openssh(&key.to_openssh(LineEnding::LF).unwrap()).unwrap();
    let known_hosts = KnownHosts::parse(&format!("* {}", identity.public_line().unwrap())).unwrap();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = Config { keys: vec![key], nodelay: true, ..Config::default() };
    if let Fault::NotStrict(cipher) = fault {
        config.preferred.kex = vec![russh::kex::CURVE25519].into();
        config.preferred.cipher = vec![cipher].into();
    }
    let config = Arc::new(config);
    let shared = Arc::clone(&world);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let login = Login { world: Arc::clone(&shared), channels: HashMap::new() };
            let running = russh::server::run_stream(Arc::clone(&config), stream, login);
            tokio::spawn(async move {
                if let Ok(session) = running.await {
                    let _ended = session.await;
                }
            });
        }
    });
    let second = Duration::from_secs(1);
    let deadlines = Deadlines {
        step: second,
        idle: second,
        copy_base: second,
        cleanup: Duration::from_secs(10),
        ..Deadlines::default()
    };
    let target = SshTarget { port, ..SshTarget::new("127.0.0.1") };
    let pusher = Pusher::new(target, Arc::new(identity), Arc::new(known_hosts), deadlines);
    let dest = Dest::parse("/root/f").unwrap();
    let data: Bytes = (0..words).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into();
    let pushed = pusher.push_lxc(905, &dest, &sftp(), data, &|_, _| ()).await;
    (pushed.map(|receipt| receipt.bytes), world)
}

/// The step that an error names.
fn step(error: &PushError) -> Option<Step> {
    match error.kind() {
        PushErrorKind::Deadline { step } | PushErrorKind::Remote { step, .. } => Some(*step),
        _ => None,
    }
}

#[tokio::test]
async fn an_honest_node_is_believed() {
    let (pushed, world) = push(Fault::Nothing).await;
    assert_eq!(pushed.unwrap(), 200_000);
    let world = world.lock().unwrap();
    assert!(world.committed && !world.exists);
}

#[tokio::test]
async fn sh_08_a_write_that_is_acknowledged_and_lost_is_found_in_the_guest() {
    let (pushed, world) = push(Fault::LoseAWrite).await;
    let error = pushed.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::HashMismatch);
    assert!(!error.residue(), "{error}");
    let world = world.lock().unwrap();
    assert!(!world.committed && !world.exists && world.discarded == 1);
}

#[tokio::test]
async fn sh_12_a_hang_at_any_sftp_step_ends_at_its_deadline_and_is_named() {
    for (at, named) in [
        ("init", Step::Sftp),
        ("lstat", Step::Staging),
        ("open", Step::Staging),
        ("fstat", Step::Staging),
        ("write", Step::Sync),
        ("fsync", Step::Sync),
        ("close", Step::Sync),
        ("remove", Step::Cleanup),
    ] {
        let (pushed, world) = push(Fault::Hang(at)).await;
        let error = pushed.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::Deadline { step: named }, "{at}: {error}");
        let world = world.lock().unwrap();
        assert!(!world.committed, "{at}");
        // What cannot be removed is admitted; what can is gone.
        assert_eq!(error.residue(), at == "remove", "{at}: {error}");
        assert_eq!(world.exists, at == "remove", "{at}");
    }
}

#[tokio::test]
async fn sh_12_writes_that_are_not_acknowledged_end_at_the_idle_deadline() {
    // More than fits in flight, so that a write waits.
    let (pushed, world) = push_words(Fault::Hang("write"), 1_000_000).await;
    assert_eq!(pushed.unwrap_err().kind(), &PushErrorKind::Deadline { step: Step::Write });
    assert!(!world.lock().unwrap().exists);
}

#[tokio::test]
async fn sh_06_without_strict_key_exchange_only_aes_gcm_is_accepted() {
    use russh::cipher::{AES_256_CTR, AES_256_GCM, CHACHA20_POLY1305};
    for cipher in [CHACHA20_POLY1305, AES_256_CTR] {
        let (pushed, _world) = push(Fault::NotStrict(cipher)).await;
        let error = pushed.unwrap_err();
        assert_eq!(error.kind(), &PushErrorKind::Connect);
        assert!(error.to_string().contains("strict key exchange"), "{error}");
    }
    assert!(push(Fault::NotStrict(AES_256_GCM)).await.0.is_ok());
}

#[tokio::test]
async fn sh_16_no_channel_that_a_node_wants_is_opened() {
    let (pushed, world) = push(Fault::OpensChannels).await;
    pushed.unwrap();
    let world = world.lock().unwrap();
    assert_eq!((world.accepted, world.refused), (0, 4 * 7), "seven kinds before each of four answers");
}

// B27: any status but success ends it.
#[tokio::test]
async fn sh_08_a_refusal_at_any_sftp_step_ends_the_push_cleanly() {
    for (at, named) in [
        ("lstat", None),
        ("open", None),
        ("fstat", None),
        ("write", Some(Step::Sync)),
        ("fsync", Some(Step::Sync)),
        ("close", Some(Step::Sync)),
        ("remove", Some(Step::Cleanup)),
    ] {
        let (pushed, world) = push(Fault::Fail(at)).await;
        let error = pushed.unwrap_err();
        assert_eq!(step(&error), named, "{at}: {error}");
        assert!(named.is_some() || *error.kind() == PushErrorKind::Staging, "{at}: {error}");
        assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        let world = world.lock().unwrap();
        assert!(!world.committed, "{at}");
        assert_eq!(world.exists, at == "remove", "{at}");
    }
}

#[tokio::test]
async fn sh_08_nonsense_from_the_subsystem_is_an_error() {
    const NONSENSE: [&[u8]; 6] = [
        b"This account is not available.\r\n",
        &[0xff; 32],
        &[0, 0, 0, 0],
        &[0, 0, 0, 5, 2, 0, 0, 0, 99],
        &[0, 0, 0, 9, 101, 0, 0, 0, 1, 0, 0, 0, 0],
        &[0, 0, 0, 13, 2, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
    ];
    for bytes in NONSENSE {
        let (pushed, world) = push(Fault::Nonsense(bytes)).await;
        let error = pushed.unwrap_err();
        assert!(!error.residue(), "{error}");
        assert!(!world.lock().unwrap().committed);
    }
}
