//! One SSH connection to a node, opened for one push.

use std::borrow::Cow;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{self, AuthResult, ChannelOpenHandle, Config, Handle, Msg};
use russh::keys::{Algorithm, EcdsaCurve, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, Channel, Disconnect, Limits, Names, Preferred, cipher, compression, kex, mac};
use tokio::net::TcpStream;
use tokio::runtime::Handle as Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Identity;
use super::exec::printable;
use super::known_hosts::{KnownHosts, Verdict, fingerprint};
use crate::error::{PushError, PushErrorKind, Step};
use crate::target::{Deadlines, SshTarget};

/// Curve25519 alone and with ML-KEM; `ext-info` for nothing but compatibility, strict key exchange against prefix
/// truncation (Terrapin).
const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
];

/// AES-GCM first: on every processor with AES instructions it is the fastest of them.
const CIPHERS: &[cipher::Name] =
    &[cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::CHACHA20_POLY1305, cipher::AES_256_CTR];

/// Encrypt-then-MAC only; used with AES-CTR alone.
const MACS: &[mac::Name] = &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM];

/// Host key types we can verify, most wanted first.
const HOST_KEYS: [Algorithm; 4] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
];

/// What we offer to receive per channel. Replies are short, so a small window bounds what a node can make us hold.
const WINDOW: u32 = 256 * 1024;

/// How long a dropped connection may take to say goodbye before its socket is closed.
const FAREWELL: Duration = Duration::from_secs(2);

/// How often a connection may be dropped before the keys are exchanged: OpenSSH's `MaxStartups` drops some at random while
/// ten others log in. Nothing else is tried again.
const DROPS: u32 = 4;

/// An authenticated connection. Dropped, it says goodbye in a task of its own and closes the socket after
/// [`FAREWELL`] at the latest, whatever the connection's task is doing.
pub(crate) struct Session {
    handle: Option<Handle<Client>>,
    hangup: Option<Hangup>,
    /// Its other end is the connection's task's.
    alive: watch::Receiver<()>,
}

impl Session {
    /// Connects, checks the host key and logs in, each within its deadline.
    pub(crate) async fn open(
        target: &SshTarget,
        identity: &Identity,
        known_hosts: &Arc<KnownHosts>,
        deadlines: &Deadlines,
        rekey_after: u32,
    ) -> Result<Self, PushError> {
        let config =
            Arc::new(config(host_key_algorithms(target, known_hosts)?, rekey_after, deadlines.keepalive));
        let mut dropped = 0;
        let (mut handle, hangup, alive) = loop {
            let (stream, hangup) = connect(target, deadlines.connect).await?;
            let (held, alive) = watch::channel(());
            let client = Client {
                known_hosts: Arc::clone(known_hosts),
                host: target.host.clone(),
                port: target.port,
                _alive: held,
            };
            let handshake = client::connect_stream(Arc::clone(&config), stream, client);
            match timeout(deadlines.handshake, handshake).await {
                Err(_) => return Err(PushError::deadline(Step::Handshake, deadlines.handshake)),
                Ok(Ok(handle)) => break (handle, hangup, alive),
                Ok(Err(refusal)) if refusal.is_drop() && dropped < DROPS => {
                    drop(hangup);
                    dropped += 1;
                    tokio::time::sleep(pause(dropped)).await;
                }
                Ok(Err(refusal)) => return Err(refusal.explain(target)),
            }
        };
        let key = PrivateKeyWithHashAlg::new(identity.key(), None);
        let answer = timeout(deadlines.auth, handle.authenticate_publickey(target.user.as_str(), key))
            .await
            .map_err(|_| PushError::deadline(Step::Auth, deadlines.auth))?
            .map_err(|error| broken(Step::Auth, &error))?;
        match answer {
            AuthResult::Success => Ok(Self { handle: Some(handle), hangup: Some(hangup), alive }),
            AuthResult::Failure { partial_success, .. } => Err(not_accepted(target, partial_success)),
        }
    }

    /// Opens a session channel.
    pub(super) async fn channel(&self, step: Step) -> Result<Channel<Msg>, PushError> {
        match &self.handle {
            Some(handle) => handle.channel_open_session().await.map_err(|error| broken(step, &error)),
            None => Err(broken(step, &"it is being closed")),
        }
    }

    /// Ends when the connection has, whoever ended it.
    pub(crate) async fn ended(&self, step: Step) -> PushError {
        let mut alive = self.alive.clone();
        // Nothing is ever sent: it errs when the connection's task has dropped the other end.
        while alive.changed().await.is_ok() {}
        broken(step, &"the node no longer answers")
    }

    /// True when the connection's task has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.handle.as_ref().is_none_or(Handle::is_closed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (Some(handle), Some(hangup), Ok(runtime)) =
            (self.handle.take(), self.hangup.take(), Runtime::try_current())
        else {
            return;
        };
        // How it ends does not matter: everything that had to arrive has been acknowledged by now.
        let farewell = async {
            if handle.disconnect(Disconnect::ByApplication, "done", "").await.is_ok() {
                let _ended = handle.await;
            }
        };
        runtime.spawn(async move {
            let _in_time = timeout(FAREWELL, farewell).await;
            drop(hangup);
        });
    }
}

/// A second descriptor of the connection's socket. The connection's task owns the first and, in the middle of a key
/// exchange, would wait for a silent peer forever; shutting the socket down ends it.
struct Hangup(std::net::TcpStream);

impl Drop for Hangup {
    fn drop(&mut self) {
        // An error means that the peer has closed it already.
        let _closed = self.0.shutdown(Shutdown::Both);
    }
}

/// How long to wait after the so-manieth drop: twice as long each time, and not all at the same moment.
fn pause(dropped: u32) -> Duration {
    let mut random = [0];
    // Without randomness all wait equally long, which is no harm to the one that waits.
    let _drawn = getrandom::fill(&mut random);
    let base = Duration::from_millis(50) * (1 << dropped.min(8));
    base + base * u32::from(random[0]) / 256
}

async fn connect(target: &SshTarget, deadline: Duration) -> Result<(TcpStream, Hangup), PushError> {
    let unreachable = |error: std::io::Error| {
        PushError::new(
            PushErrorKind::Connect,
            format!(
                "cannot connect to {}: {error}; check that the node is up and its SSH port open",
                place(target)
            ),
        )
    };
    let dial = TcpStream::connect((target.host.as_str(), target.port));
    let stream = timeout(deadline, dial)
        .await
        .map_err(|_| PushError::deadline(Step::Connect, deadline))?
        .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let stream = stream.into_std().map_err(unreachable)?;
    let hangup = Hangup(stream.try_clone().map_err(unreachable)?);
    Ok((TcpStream::from_std(stream).map_err(unreachable)?, hangup))
}

fn config(host_keys: Vec<Algorithm>, rekey_after: u32, keepalive: Duration) -> Config {
    let rekey = usize::try_from(rekey_after).unwrap_or(usize::MAX);
    Config {
        limits: Limits {
            rekey_write_limit: rekey,
            rekey_read_limit: rekey,
            rekey_time_limit: Duration::from_secs(3600),
        },
        window_size: WINDOW,
        channel_buffer_size: 16,
        preferred: Preferred {
            kex: Cow::Borrowed(KEX),
            key: Cow::Owned(host_keys),
            host_key_certificates: Cow::Borrowed(&[]),
            cipher: Cow::Borrowed(CIPHERS),
            mac: Cow::Borrowed(MACS),
            compression: Cow::Borrowed(&[compression::NONE]),
        },
        keepalive_interval: Some(keepalive),
        keepalive_max: 3,
        nodelay: true,
        ..Config::default()
    }
}

/// The host key types to ask for: those we hold for this host, so that a node with several keys presents one we can
/// judge. For an unknown host all of them: the key will be refused, but its fingerprint can be named.
fn host_key_algorithms(target: &SshTarget, known_hosts: &KnownHosts) -> Result<Vec<Algorithm>, PushError> {
    let held = known_hosts.key_types(&target.host, target.port);
    if held.is_empty() {
        return Ok(HOST_KEYS.to_vec());
    }
    let usable: Vec<Algorithm> =
        HOST_KEYS.into_iter().filter(|a| held.iter().any(|name| *name == a.to_string())).collect();
    if usable.is_empty() {
        return Err(PushError::new(
            PushErrorKind::HostKey { fingerprint: None },
            format!(
                "known_hosts holds only {} for {}, which is not accepted; add its ssh-ed25519 key (ssh-keyscan -t ed25519, compared on the node's console)",
                held.join(", "),
                place(target)
            ),
        ));
    }
    Ok(usable)
}

/// The callbacks of a connection: judges the host key and refuses every channel the node wants to open.
struct Client {
    known_hosts: Arc<KnownHosts>,
    host: String,
    port: u16,
    /// Dropped with the connection's task, which is how its end is noticed.
    _alive: watch::Sender<()>,
}

/// Why a connection was not made.
#[derive(Debug)]
enum Refusal {
    HostKey { verdict: Verdict, fingerprint: String },
    NotStrict,
    Ssh(russh::Error),
}

impl From<russh::Error> for Refusal {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

impl client::Handler for Client {
    type Error = Refusal;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, Refusal> {
        let blob = presented.public_key().to_bytes().map_err(russh::Error::from)?;
        // A certificate was never asked for; its key is not a host key we pinned.
        let verdict = match presented {
            PublicKeyOrCertificate::PublicKey { .. } => self.known_hosts.judge(&self.host, self.port, &blob),
            PublicKeyOrCertificate::Certificate(_) => Verdict::Unknown,
        };
        match verdict {
            Verdict::Trusted => Ok(true),
            refused => Err(Refusal::HostKey { verdict: refused, fingerprint: fingerprint(&blob) }),
        }
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        names: &Names,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        // Without strict key exchange these two can lose a prefix of the encrypted stream unnoticed.
        let truncatable = names.cipher == cipher::CHACHA20_POLY1305 || names.cipher == cipher::AES_256_CTR;
        if truncatable && !names.strict_kex() { Err(Refusal::NotStrict) } else { Ok(()) }
    }

    // We never ask for a forwarding, so no node has a reason to open a channel. The library's defaults would accept;
    // dropping the reply rejects.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _connected_address: &str,
        _connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host_to_connect: &str,
        _port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Refusal {
    /// Whether the node only hung up: not a word about keys or algorithms.
    fn is_drop(&self) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match self {
            Self::Ssh(russh::Error::Disconnect | russh::Error::HUP) => true,
            Self::Ssh(russh::Error::IO(error)) => {
                matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
            }
            _ => false,
        }
    }

    fn explain(self, target: &SshTarget) -> PushError {
        let place = place(target);
        match self {
            Self::HostKey { verdict, fingerprint } => {
                let why = match verdict {
                    Verdict::Revoked => format!(
                        "the host key of {place} ({fingerprint}) is marked @revoked; find out why before trusting this node"
                    ),
                    Verdict::Changed => format!(
                        "the host key of {place} is not the one in known_hosts; it presented {fingerprint}. Compare that on the node's console, and only if it is right replace the line"
                    ),
                    Verdict::Unknown | Verdict::Trusted => format!(
                        "the host key of {place} is not in known_hosts; it presented {fingerprint}. Compare that on the node's console and add the key"
                    ),
                };
                PushError::new(PushErrorKind::HostKey { fingerprint: Some(fingerprint) }, why)
            }
            Self::NotStrict => PushError::new(
                PushErrorKind::Connect,
                format!(
                    "{place} does not support strict key exchange and offers no AES-GCM; update its SSH server"
                ),
            ),
            Self::Ssh(russh::Error::NoCommonAlgo { kind: AlgorithmKind::Key, ours, .. }) => PushError::new(
                PushErrorKind::HostKey { fingerprint: None },
                format!(
                    "{place} has no host key of a type we hold for it ({}); add its current key to known_hosts",
                    ours.join(", ")
                ),
            ),
            Self::Ssh(russh::Error::NoCommonAlgo { kind, ours, theirs }) => PushError::new(
                PushErrorKind::Connect,
                format!(
                    "{place} offers no acceptable {kind:?} algorithm: it has {}, expected one of {}; update its SSH server",
                    printable(theirs.join(", ").as_bytes()),
                    ours.join(", ")
                ),
            ),
            Self::Ssh(error) => broken(Step::Handshake, &error),
        }
    }
}

fn not_accepted(target: &SshTarget, partial: bool) -> PushError {
    let why = if partial {
        "wants a second authentication method, which nobody is there to answer"
    } else {
        "does not accept our key"
    };
    PushError::new(
        PushErrorKind::Auth,
        format!(
            "{} {why} for user {}; put the public key into that user's authorized_keys",
            place(target),
            target.user
        ),
    )
}

fn place(target: &SshTarget) -> String {
    format!("{} port {}", target.host, target.port)
}

/// A connection that failed in the middle of something.
pub(super) fn broken(step: Step, error: &dyn std::fmt::Display) -> PushError {
    PushError::new(PushErrorKind::Connect, format!("the connection to the node broke while {step}: {error}"))
}
