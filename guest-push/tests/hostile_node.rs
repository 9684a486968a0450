//! Nodes that say nothing, or say too much, before anybody has logged in.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use guest_push::{Deadlines, Identity, KnownHosts, PushError, PushErrorKind, Pusher, SshTarget, Step};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Runs a check against a node that behaves as given. The behaviour's end is the end of its connection.
async fn check<F, B>(behaviour: F) -> PushError
where
    F: Fn(TcpStream) -> B + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            behaviour(stream).await;
        }
    });
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[1; 32]));
    let identity = Identity::from_openssh(&key.to_openssh(LineEnding::LF).unwrap()).unwrap();
    let known_hosts = KnownHosts::parse(&format!("* {}", identity.public_line().unwrap())).unwrap();
    let second = Duration::from_secs(1);
    let deadlines = Deadlines { connect: second, handshake: second, auth: second, ..Deadlines::default() };
    let target = SshTarget { port, ..SshTarget::new("127.0.0.1") };
    let pusher = Pusher::new(target, Arc::new(identity), Arc::new(known_hosts), deadlines);
    let began = Instant::now();
    let error = pusher.check().await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(15), "{error}");
    assert!(!error.residue());
    error
}

/// Reads until the client hangs up, which proves that it does.
async fn until_hung_up(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {}
}

#[tokio::test]
async fn sh_12_a_node_that_never_speaks_ends_at_the_deadline_and_is_hung_up_on() {
    let (hung_up, told) = tokio::sync::oneshot::channel();
    let hung_up = Arc::new(std::sync::Mutex::new(Some(hung_up)));
    let error = check(move |mut stream| {
        let hung_up = Arc::clone(&hung_up);
        async move {
            until_hung_up(&mut stream).await;
            if let Some(tell) = hung_up.lock().unwrap().take() {
                let _told = tell.send(());
            }
        }
    })
    .await;
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Handshake });
    tokio::time::timeout(Duration::from_secs(10), told).await.unwrap().unwrap();
}

#[tokio::test]
async fn sh_12_a_node_that_stops_in_the_key_exchange_ends_at_the_deadline() {
    let error = check(|mut stream| async move {
        stream.write_all(b"SSH-2.0-Silent\r\n").await.unwrap();
        until_hung_up(&mut stream).await;
    })
    .await;
    assert_eq!(error.kind(), &PushErrorKind::Deadline { step: Step::Handshake });
}

#[tokio::test]
async fn sh_07_garbage_before_or_instead_of_the_handshake_is_an_error() {
    let hello = |rest: &[u8]| [b"SSH-2.0-Hostile\r\n", rest].concat();
    for bytes in [
        hello(&[0xff; 64]),
        hello(&[0; 64]),
        hello(&[0, 0, 0, 1, 0]),
        hello(&[0, 0, 0x88, 0xb8, 4, 20]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"SSH-1.5-Old\r\n".to_vec(),
        b"\xff\xfe\r\n".to_vec(),
        Vec::new(),
    ] {
        let error = check(move |mut stream| {
            let bytes = bytes.clone();
            async move {
                let _sent = stream.write_all(&bytes).await;
                let _ended = stream.shutdown().await;
                until_hung_up(&mut stream).await;
            }
        })
        .await;
        let ended = matches!(error.kind(), PushErrorKind::Connect | PushErrorKind::Deadline { .. });
        assert!(ended, "{error}");
    }
}

#[tokio::test]
async fn sh_07_an_endless_banner_is_cut_off_without_being_kept() {
    let error = check(|mut stream| async move {
        let line = [b'x'; 64 * 1024];
        while stream.write_all(&line).await.is_ok() {}
    })
    .await;
    assert!(matches!(error.kind(), PushErrorKind::Connect | PushErrorKind::Deadline { .. }), "{error}");
    let error = check(|mut stream| async move {
        while stream.write_all(b"a line that is not a version\r\n").await.is_ok() {}
    })
    .await;
    assert!(matches!(error.kind(), PushErrorKind::Connect | PushErrorKind::Deadline { .. }), "{error}");
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
        assert!(kilobytes < 64 * 1024, "peak memory {kilobytes} kB");
    }
}

#[tokio::test]
async fn a_closed_port_is_a_connect_error() {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[1; 32]));
    let identity = Identity::from_openssh(&key.to_openssh(LineEnding::LF).unwrap()).unwrap();
    let known_hosts = KnownHosts::parse(&format!("* {}", identity.public_line().unwrap())).unwrap();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let target = SshTarget { port, ..SshTarget::new("127.0.0.1") };
    let pusher = Pusher::new(target, Arc::new(identity), Arc::new(known_hosts), Deadlines::default());
    let error = pusher.check().await.unwrap_err();
    assert_eq!(error.kind(), &PushErrorKind::Connect);
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}
