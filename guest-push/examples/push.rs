//! Pushes one file into an LXC guest.
//!
//! ```text
//! cargo run -p guest-push --example push -- \
//!     root@pve1.example.org ~/.ssh/id_ed25519 ~/.ssh/known_hosts 905 ./app.tar /root/app.tar
//! ```
//!
//! A user other than root is given `sudo`. `PROXWARD_STAGING` names the staging directory on the node.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use guest_push::{
    Deadlines, Dest, Identity, KnownHosts, PushOptions, Pusher, Source, SourceError, SourceErrorKind,
    SshTarget,
};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// A file as a source.
struct FromFile {
    file: File,
    length: u64,
}

impl Source for FromFile {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut chunk = Vec::with_capacity(256 * 1024);
        match self.file.read_buf(&mut chunk).await {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(chunk.into())),
            Err(error) => Err(SourceError::new(SourceErrorKind::Other, error.to_string())),
        }
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}

/// `[user@]host[:port]`.
fn target(text: &str) -> Result<SshTarget, Box<dyn Error>> {
    let (user, host) = text.split_once('@').unwrap_or(("root", text));
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse()?),
        None => (host, 22),
    };
    let mut target = SshTarget { port, user: user.to_owned(), sudo: user != "root", ..SshTarget::new(host) };
    if let Ok(staging_dir) = env::var("PROXWARD_STAGING") {
        target.staging_dir = staging_dir;
    }
    Ok(target)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("push: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [node, key, known_hosts, vmid, file, dest] = arguments.as_slice() else {
        return Err("usage: push [user@]host[:port] <key> <known_hosts> <vmid> <file> <destination>".into());
    };
    let identity = Arc::new(Identity::from_openssh(&std::fs::read_to_string(key)?)?);
    let known_hosts = KnownHosts::parse(&std::fs::read_to_string(known_hosts)?)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let pusher = Pusher::new(target(node)?, identity, Arc::new(known_hosts), Deadlines::default());

    let file = File::open(file).await?;
    let source = FromFile { length: file.metadata().await?.len(), file };
    let progress = |bytes, stage| eprint!("\r{stage:>8} {bytes:>14} bytes");
    let pushed =
        pusher.push_lxc(vmid.parse()?, &Dest::parse(dest)?, &PushOptions::default(), source, &progress).await;
    eprintln!();
    let receipt = pushed?;
    println!("{}  {dest}", receipt.sha256_hex());
    println!("{} bytes, verified at the {}", receipt.bytes, receipt.verified_at);
    Ok(())
}
