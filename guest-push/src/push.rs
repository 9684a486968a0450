//! The entry point: a node, and what can be asked of it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::LxcRoute;
use crate::options::PushOptions;
use crate::receipt::{Receipt, Stage};
use crate::route::guest::Place;
use crate::route::intake::over_cap;
use crate::route::read::{self, Download};
use crate::route::{attempt, sftp_pct, ssh, stream};
use crate::source::Source;
use crate::spool::Spool;
use crate::ssh::{Identity, KnownHosts, Output, Session, Sftp, sweep};
use crate::target::{Deadlines, SshTarget};

/// Bytes after which the SSH keys are exchanged anew, the value RFC 4253 recommends.
const REKEY_AFTER: u32 = 1 << 30;

/// Pushes files into the guests of one node. Cheap to clone; keeps no connection between pushes.
///
/// Every push has a connection of its own, so that one that stalls does not hold up another. How many run at once is
/// the caller's to limit.
#[derive(Clone)]
pub struct Pusher {
    inner: Arc<Inner>,
}

struct Inner {
    target: SshTarget,
    identity: Arc<Identity>,
    known_hosts: Arc<KnownHosts>,
    deadlines: Deadlines,
    rekey_after: u32,
    contacted: AtomicBool,
}

impl Pusher {
    /// A pusher for a node. Nothing is checked or sent yet.
    pub fn new(
        target: SshTarget,
        identity: Arc<Identity>,
        known_hosts: Arc<KnownHosts>,
        deadlines: Deadlines,
    ) -> Self {
        Self::build(target, identity, known_hosts, deadlines, REKEY_AFTER)
    }

    /// The same, exchanging SSH keys anew after this many bytes in one direction (at least 64 KiB, at most 1 GiB; a
    /// push goes on across it). The default of 1 GiB suits AES-GCM and ChaCha20-Poly1305.
    #[must_use]
    pub fn rekey_after(self, bytes: u32) -> Self {
        let inner = &self.inner;
        Self::build(
            inner.target.clone(),
            Arc::clone(&inner.identity),
            Arc::clone(&inner.known_hosts),
            inner.deadlines.clone(),
            bytes.clamp(64 * 1024, REKEY_AFTER),
        )
    }

    fn build(
        target: SshTarget,
        identity: Arc<Identity>,
        known_hosts: Arc<KnownHosts>,
        deadlines: Deadlines,
        rekey_after: u32,
    ) -> Self {
        let contacted = AtomicBool::new(false);
        Self { inner: Arc::new(Inner { target, identity, known_hosts, deadlines, rekey_after, contacted }) }
    }

    /// Checks that the node is the one we know, lets us in, and has a sane staging directory we can write to.
    ///
    /// # Errors
    /// The kinds up to [`PushErrorKind::NoSpace`], and `Deadline`.
    pub async fn check(&self) -> Result<(), PushError> {
        let session = self.connect().await?;
        self.probe_staging(&session).await
    }

    /// [`check`](Self::check), and also asks an LXC guest whether `dest` could be written now. Changes nothing in the
    /// guest: with `mkdir` a missing parent passes.
    ///
    /// # Errors
    /// Those of `check`, and [`PushErrorKind::GuestUnreachable`], `DestExists`, `NoParent`, `DestIsDirectory`,
    /// `NotRegular`.
    pub async fn check_lxc(&self, vmid: u32, dest: &Dest, options: &PushOptions) -> Result<(), PushError> {
        check_addresses(vmid, dest)?;
        let session = self.connect().await?;
        if options.route == LxcRoute::SftpPctPush {
            self.probe_staging(&session).await?;
        }
        self.ask(&session, Place::Container(vmid), dest, options).await
    }

    /// Checks that the machine is the one we know and lets us in; needs no staging directory.
    ///
    /// # Errors
    /// The kinds up to [`PushErrorKind::Auth`], and `Deadline`.
    pub async fn reach(&self) -> Result<(), PushError> {
        self.connect().await.map(drop)
    }

    /// [`reach`](Self::reach), and also asks the machine itself whether `dest` could be written now. Changes nothing.
    ///
    /// # Errors
    /// Those of [`check_lxc`](Self::check_lxc).
    pub async fn check_machine(&self, dest: &Dest, options: &PushOptions) -> Result<(), PushError> {
        attempt::check_sibling_fits(dest)?;
        let session = self.connect().await?;
        self.ask(&session, Place::Machine, dest, options).await
    }

    async fn ask(
        &self,
        session: &Session,
        place: Place,
        dest: &Dest,
        options: &PushOptions,
    ) -> Result<(), PushError> {
        let looking = PushOptions { mkdir: false, ..options.clone() };
        match attempt::prepare(self, session, place, dest, &looking, None, None).await {
            Err(error) if options.mkdir && *error.kind() == PushErrorKind::NoParent => Ok(()),
            answer => answer,
        }
    }

    /// Streams a source into a file of a running LXC guest and verifies it there.
    ///
    /// Until the last step the bytes are in files with random names beside the destination and in the staging
    /// directory; both are removed on every path, also when the returned future is dropped. On success nothing but
    /// the destination remains. (Directories made for [`mkdir`](PushOptions::mkdir) stay.)
    ///
    /// `progress` is called with the bytes received so far and the stage; it must not block.
    ///
    /// # Errors
    /// [`PushError`]. The destination is untouched unless the error's text says that it may already be in place.
    pub async fn push_lxc<S: Source>(
        &self,
        vmid: u32,
        dest: &Dest,
        options: &PushOptions,
        source: S,
        progress: &(dyn Fn(u64, Stage) + Send + Sync),
    ) -> Result<Receipt, PushError> {
        check_addresses(vmid, dest)?;
        over_cap(source.length(), options)?;
        match options.route {
            LxcRoute::Stream => stream::push(self, vmid, dest, options, source, progress).await,
            LxcRoute::SftpPctPush => sftp_pct::push(self, vmid, dest, options, source, progress).await,
        }
    }

    /// Streams a source into a file of the machine that the target itself is: a virtual machine with an SSH server. The
    /// login user must be able to write there; `sudo` is for commands and does not help SFTP. The target's staging
    /// directory is not used. Otherwise as [`push_lxc`](Self::push_lxc).
    ///
    /// # Errors
    /// As `push_lxc`.
    pub async fn push_machine<S: Source>(
        &self,
        dest: &Dest,
        options: &PushOptions,
        source: S,
        progress: &(dyn Fn(u64, Stage) + Send + Sync),
    ) -> Result<Receipt, PushError> {
        attempt::check_sibling_fits(dest)?;
        over_cap(source.length(), options)?;
        ssh::push(self, dest, options, source, progress).await
    }

    /// Makes a file in the staging directory that can grow over several connections, for a source of `length` bytes that
    /// does not fit one.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub async fn spool(&self, length: u64) -> Result<Spool, PushError> {
        Spool::begin(self, length).await
    }

    /// Opens a file of a running LXC guest for reading: its size and hash first, then its bytes.
    ///
    /// # Errors
    /// The kinds of [`reach`](Self::reach), [`PushErrorKind::GuestUnreachable`], `NoParent` when there is no such file,
    /// `DestIsDirectory`, `NotRegular`.
    pub async fn read_lxc(&self, vmid: u32, path: &Dest) -> Result<Download, PushError> {
        check_addresses(vmid, path)?;
        read::open(self, Place::Container(vmid), path).await
    }

    /// The same for a file of the machine that the target itself is.
    ///
    /// # Errors
    /// As [`read_lxc`](Self::read_lxc).
    pub async fn read_machine(&self, path: &Dest) -> Result<Download, PushError> {
        read::open(self, Place::Machine, path).await
    }

    /// Removes staging files of earlier processes: regular files named `pxw-<32 hex>` in the staging directory that
    /// have not been written to for `age`, by the node's clock. Returns how many. The first push or check of a
    /// `Pusher` does this by itself, with [`Deadlines::stale_after`].
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub async fn sweep(&self, age: Duration) -> Result<usize, PushError> {
        let session = self.connect().await?;
        let node_time = self.probe_file(&session).await?;
        let inner = &self.inner;
        sweep(&session, &inner.target.staging_dir, node_time, age, inner.deadlines.step).await
    }

    /// The node.
    pub fn target(&self) -> &SshTarget {
        &self.inner.target
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.inner.deadlines
    }

    /// True once: for the caller that should sweep.
    pub(crate) fn first_contact(&self) -> bool {
        !self.inner.contacted.swap(true, Ordering::Relaxed)
    }

    pub(crate) async fn connect(&self) -> Result<Session, PushError> {
        let inner = &self.inner;
        check_target(&inner.target)?;
        Session::open(&inner.target, &inner.identity, &inner.known_hosts, &inner.deadlines, inner.rekey_after)
            .await
    }

    /// An argument vector to run on the node, with `sudo -n` where the target asks for it.
    pub(crate) fn on_node(&self, argv: &[&str]) -> Vec<Vec<u8>> {
        let sudo: &[&str] = if self.inner.target.sudo { &["sudo", "-n"] } else { &[] };
        sudo.iter().chain(argv).map(|argument| argument.as_bytes().to_vec()).collect()
    }

    /// The vector that runs a script in a guest with positional arguments; `$0` is `proxward`.
    pub(crate) fn guest_argv(&self, place: Place, script: &str, arguments: &[&str]) -> Vec<Vec<u8>> {
        let number;
        let mut argv = match place {
            Place::Container(vmid) => {
                number = vmid.to_string();
                vec!["pct", "exec", &number, "--"]
            }
            Place::Machine => Vec::new(),
        };
        argv.extend(["sh", "-c", script, "proxward"]);
        argv.extend(arguments);
        self.on_node(&argv)
    }

    /// Runs such a script.
    pub(crate) async fn in_guest(
        &self,
        session: &Session,
        place: Place,
        script: &str,
        arguments: &[&str],
        step: Step,
        deadline: Duration,
    ) -> Result<Output, PushError> {
        session.run(&self.guest_argv(place, script, arguments), step, deadline).await
    }

    async fn probe_staging(&self, session: &Session) -> Result<(), PushError> {
        let node_time = self.probe_file(session).await?;
        if self.first_contact() {
            let inner = &self.inner;
            let age = inner.deadlines.stale_after;
            sweep(session, &inner.target.staging_dir, node_time, age, inner.deadlines.step).await?;
        }
        Ok(())
    }

    /// Makes and removes a staging file. Returns the node's time.
    async fn probe_file(&self, session: &Session) -> Result<u32, PushError> {
        let directory = &self.inner.target.staging_dir;
        let sftp = Sftp::open(session, self.inner.deadlines.step).await?;
        let checked = sftp.directory(session, directory).await?;
        let path = format!("{directory}/pxw-{}", attempt::random_hex()?);
        let created = sftp.create(checked, &path).await;
        // Also after a refusal: the file may exist by then.
        sftp.remove(&path).await?;
        created.map(|(_, created)| created.node_time)
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("target", &self.inner.target).finish_non_exhaustive()
    }
}

fn check_addresses(vmid: u32, dest: &Dest) -> Result<(), PushError> {
    if !(100..=999_999_999).contains(&vmid) {
        return Err(unusable(format!("{vmid} is not a guest's number, expected 100 to 999999999")));
    }
    attempt::check_sibling_fits(dest)
}

fn check_target(target: &SshTarget) -> Result<(), PushError> {
    let host = target.host.as_str();
    let is_name = !host.is_empty()
        && host.len() <= 253
        && !host.starts_with(['-', '.'])
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if !is_name && host.parse::<IpAddr>().is_err() {
        return Err(unusable(format!("{host:?} is not a host name or an IP address (without brackets)")));
    }
    if target.port == 0 {
        return Err(unusable("port 0 cannot be connected to; SSH is usually at 22".to_owned()));
    }
    let user = target.user.as_str();
    if user.is_empty() || user.starts_with('-') || user.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(unusable(format!("{user:?} is not a login name")));
    }
    Dest::parse(&target.staging_dir).map(drop).map_err(|_| {
        unusable(format!("the staging directory {:?} is not a plain absolute path", target.staging_dir))
    })
}

fn unusable(message: String) -> PushError {
    PushError::new(PushErrorKind::Target, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str) -> SshTarget {
        SshTarget::new(host)
    }

    #[test]
    fn b32_hosts_that_look_like_options_are_refused() {
        for good in ["pve1", "pve1.example.org", "10.0.0.1", "fe80::1", "::1", "a_b"] {
            assert!(check_target(&target(good)).is_ok(), "{good}");
        }
        for bad in ["", "-oProxyCommand=touch x", "a b", "a\n", "[::1]", "pve1;id", ".", "ä"] {
            assert_eq!(check_target(&target(bad)).unwrap_err().kind(), &PushErrorKind::Target, "{bad:?}");
        }
        assert!(check_target(&SshTarget { port: 0, ..target("h") }).is_err());
        assert!(check_target(&SshTarget { user: "-l".to_owned(), ..target("h") }).is_err());
        for bad in ["relative", "/", "/a/../b", "/a/", ""] {
            assert!(
                check_target(&SshTarget { staging_dir: bad.to_owned(), ..target("h") }).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn guest_numbers_and_room_for_the_temporary_name_are_checked_first() {
        let dest = Dest::parse("/f").unwrap();
        assert!(check_addresses(100, &dest).is_ok());
        assert!(check_addresses(999_999_999, &dest).is_ok());
        assert!(check_addresses(99, &dest).is_err());
        assert!(check_addresses(1_000_000_000, &dest).is_err());
        let deep = |parent: usize| {
            let component = "d".repeat(250);
            let mut path = String::new();
            while path.len() + 251 < parent {
                path = format!("{path}/{component}");
            }
            let rest = parent - path.len() - 1;
            Dest::parse(&format!("{path}/{}/f", "e".repeat(rest))).unwrap()
        };
        assert!(check_addresses(100, &deep(4052)).is_ok());
        assert!(check_addresses(100, &deep(4053)).is_err());
    }

    #[test]
    fn commands_are_prefixed_by_sudo_only_where_asked() {
        let identity = Arc::new(Identity::for_tests(7));
        let line = format!("h {}", identity.public_line().unwrap());
        let known_hosts = Arc::new(KnownHosts::parse(&line).unwrap());
        let make = |sudo| {
            let target = SshTarget { sudo, ..target("h") };
            Pusher::new(target, Arc::clone(&identity), Arc::clone(&known_hosts), Deadlines::default())
        };
        let words = |pusher: &Pusher| {
            let argv = pusher.guest_argv(Place::Container(905), "script", &["/d"]);
            argv.into_iter().map(|a| String::from_utf8(a).unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&make(false)), "pct exec 905 -- sh -c script proxward /d");
        assert_eq!(words(&make(true)), "sudo -n pct exec 905 -- sh -c script proxward /d");
        assert!(!format!("{:?} {identity:?}", make(true)).contains("PRIVATE"));
    }
}
