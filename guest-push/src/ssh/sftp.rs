//! The node's staging directory, over SFTP.

use std::future::Future;
use std::time::Duration;

use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::fs::{File, Metadata};
use russh_sftp::client::{Config, RawSftpSession, SftpSession};
use russh_sftp::protocol::{FileAttributes, OpenFlags, StatusCode};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Session;
use super::exec::{printable, remote};
use super::session::broken;
use crate::error::{PushError, PushErrorKind, Step};

/// Writes under way at a time: with [`WRITE`] bytes each, the 2 MiB window that OpenSSH grants.
const IN_FLIGHT: usize = 64;
/// Bytes of one write. With its header it fits a 32 KiB SFTP packet, hence one SSH packet.
pub(crate) const WRITE: usize = 32 * 1024 - 64;
/// The library counts from queueing, not from sending, so this is generous; our own deadlines are the real ones.
const REQUEST_TIMEOUT_SECS: u64 = 24 * 3600;
/// The most names read from a staging directory when sweeping it.
const MAX_SWEPT: usize = 4096;

const TYPE_MASK: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_REGULAR: u32 = 0o100_000;

/// An SFTP session on one channel of a connection.
pub(crate) struct Sftp {
    session: SftpSession,
    deadline: Duration,
}

/// A staging directory that passed its checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Directory {
    owner: u32,
}

/// What the node says about a fresh staging file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Created {
    /// Its modification time, hence the node's own clock, in seconds since the epoch.
    pub(crate) node_time: u32,
}

impl Sftp {
    /// Opens the subsystem. `deadline` also bounds every later request but the writes.
    pub(crate) async fn open(session: &Session, deadline: Duration) -> Result<Self, PushError> {
        let opening = async {
            let stream = subsystem(session).await?;
            let config = Config {
                max_concurrent_writes: IN_FLIGHT,
                request_timeout_secs: REQUEST_TIMEOUT_SECS,
                ..Config::default()
            };
            SftpSession::new_with_config(stream, config).await.map_err(|error| failed(Step::Sftp, &error))
        };
        let session =
            timeout(deadline, opening).await.map_err(|_| PushError::deadline(Step::Sftp, deadline))??;
        Ok(Self { session, deadline })
    }

    async fn request<T>(
        &self,
        step: Step,
        request: impl Future<Output = Result<T, SftpError>>,
    ) -> Result<Result<T, SftpError>, PushError> {
        match timeout(self.deadline, request).await {
            Err(_) => Err(PushError::deadline(step, self.deadline)),
            Ok(Err(error)) if !matches!(error, SftpError::Status(_)) => Err(failed(step, &error)),
            Ok(answer) => Ok(answer),
        }
    }

    /// Checks the staging directory, making it when it is missing: a real directory that only its owner may enter.
    pub(crate) async fn directory(&self, session: &Session, path: &str) -> Result<Directory, PushError> {
        let attributes = match self.request(Step::Staging, self.session.symlink_metadata(path)).await? {
            Ok(attributes) => attributes,
            Err(error) if is_missing(&error) => {
                self.make_directory(session, path).await?;
                // Another push may have made it in the same moment: what counts is how it looks now.
                self.request(Step::Staging, self.session.symlink_metadata(path)).await?.map_err(|_| {
                    staging(path, "is missing and cannot be made; make its parent directory first")
                })?
            }
            Err(error) => {
                return Err(staging(path, &format!("cannot be examined ({})", status_text(&error))));
            }
        };
        judge_directory(path, &attributes)
    }

    /// Makes a directory that is private from its first moment on, which needs the protocol's own request: the
    /// library's convenient one cannot pass a mode.
    async fn make_directory(&self, session: &Session, path: &str) -> Result<(), PushError> {
        let making = async {
            let raw = raw(session, Step::Staging).await?;
            let private = FileAttributes { permissions: Some(0o700), ..FileAttributes::empty() };
            match raw.mkdir(path, private).await {
                Ok(_) | Err(SftpError::Status(_)) => Ok(()),
                Err(error) => Err(failed(Step::Staging, &error)),
            }
        };
        timeout(self.deadline, making).await.map_err(|_| PushError::deadline(Step::Staging, self.deadline))?
    }

    /// Refuses when the staging file system has less room than this many bytes. A node that cannot say is not asked
    /// twice: a full disk will then show while writing.
    pub(crate) async fn require_space(&self, path: &str, needed: u64) -> Result<(), PushError> {
        match self.free(path).await? {
            Some(free) if free < needed => Err(PushError::new(
                PushErrorKind::NoSpace,
                format!(
                    "the node's staging directory {path} has {free} bytes free, {needed} are needed; free space there"
                ),
            )),
            _ => Ok(()),
        }
    }

    async fn free(&self, path: &str) -> Result<Option<u64>, PushError> {
        let answer = self.request(Step::Staging, self.session.fs_info(path)).await?;
        Ok(answer.ok().flatten().map(|fs| fs.fragment_size.saturating_mul(fs.blocks_avail)))
    }

    /// Makes a staging file that did not exist before, mode 0600, and checks that it belongs to the directory's owner.
    pub(crate) async fn create(
        &self,
        directory: Directory,
        path: &str,
    ) -> Result<(StagingFile, Created), PushError> {
        let flags = OpenFlags::CREATE | OpenFlags::EXCLUDE | OpenFlags::WRITE;
        let private = FileAttributes { permissions: Some(0o600), ..FileAttributes::empty() };
        let opening = self.session.open_with_flags_and_attributes(path, flags, private);
        let file = self
            .request(Step::Staging, opening)
            .await?
            .map_err(|error| staging(path, &format!("cannot be created ({})", status_text(&error))))?;
        let attributes = self
            .request(Step::Staging, file.metadata())
            .await?
            .map_err(|error| staging(path, &format!("cannot be examined ({})", status_text(&error))))?;
        if attributes.uid != Some(directory.owner) {
            return Err(staging(
                path,
                "is in a directory of another user; the staging directory must belong to the login user",
            ));
        }
        Ok((StagingFile { file }, Created { node_time: attributes.mtime.unwrap_or(0) }))
    }

    /// Opens a staging file again, to go on at this offset.
    pub(crate) async fn reopen(&self, path: &str, offset: u64) -> Result<StagingFile, PushError> {
        let opening = self.session.open_with_flags(path, OpenFlags::WRITE);
        let mut file = self
            .request(Step::Staging, opening)
            .await?
            .map_err(|error| staging(path, &format!("cannot be opened again ({})", status_text(&error))))?;
        let attributes = self
            .request(Step::Staging, file.metadata())
            .await?
            .map_err(|error| staging(path, &format!("cannot be examined ({})", status_text(&error))))?;
        if attributes.size.is_none_or(|size| size < offset) {
            return Err(staging(path, "has lost bytes that the node had acknowledged"));
        }
        let seeking = timeout(self.deadline, file.seek(std::io::SeekFrom::Start(offset)));
        match seeking.await {
            Err(_) => Err(PushError::deadline(Step::Staging, self.deadline)),
            Ok(Err(error)) => Err(write_failed(Step::Staging, &error)),
            Ok(Ok(_)) => Ok(StagingFile { file }),
        }
    }

    /// Makes a file that did not exist before, mode 0600, in a directory that is the machine's own affair.
    pub(crate) async fn create_beside(&self, path: &str) -> Result<StagingFile, PushError> {
        let flags = OpenFlags::CREATE | OpenFlags::EXCLUDE | OpenFlags::WRITE;
        let private = FileAttributes { permissions: Some(0o600), ..FileAttributes::empty() };
        let opening = self.session.open_with_flags_and_attributes(path, flags, private);
        let file = self.request(Step::Staging, opening).await?.map_err(|error| {
            let text = status_text(&error);
            remote(Step::Staging, None, format!("{path:?} cannot be made in the guest: {text}"))
        })?;
        Ok(StagingFile { file })
    }

    /// Removes a file; a missing one counts as removed.
    pub(crate) async fn remove(&self, path: &str) -> Result<(), PushError> {
        match self.request(Step::Cleanup, self.session.remove_file(path)).await? {
            Ok(()) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(remote(
                Step::Cleanup,
                None,
                format!("the node did not remove {path}: {}", status_text(&error)),
            )),
        }
    }

    /// Turns a failed write into "no space" when that is what the node's file system shows.
    pub(crate) async fn explain_write(&self, path: &str, error: PushError) -> PushError {
        const NEARLY_FULL: u64 = 1024 * 1024;
        match (error.kind(), self.free(path).await) {
            (PushErrorKind::Remote { .. }, Ok(Some(free))) if free < NEARLY_FULL => PushError::new(
                PushErrorKind::NoSpace,
                format!("the file system of {path} is full ({free} bytes free); free space there"),
            ),
            _ => error,
        }
    }
}

/// An open staging file that is being written.
pub(crate) struct StagingFile {
    file: File,
}

impl StagingFile {
    /// Queues the next bytes, waiting while the window is full; `idle` bounds the wait for one acknowledgement.
    ///
    /// Errors of a write may surface at a later one, or at [`finish`](Self::finish).
    pub(crate) async fn write(&mut self, bytes: &[u8], idle: Duration) -> Result<(), PushError> {
        match timeout(idle, self.file.write_all(bytes)).await {
            Err(_) => Err(PushError::deadline(Step::Write, idle)),
            Ok(Err(error)) => Err(write_failed(Step::Write, &error)),
            Ok(Ok(())) => Ok(()),
        }
    }

    /// Awaits every acknowledgement, makes the file durable once, and closes it.
    pub(crate) async fn finish(mut self, deadline: Duration) -> Result<(), PushError> {
        let finishing = async {
            // One flush is: all acknowledgements, then fsync@openssh.com where the node has it.
            self.file.flush().await?;
            self.file.close().await
        };
        match timeout(deadline, finishing).await {
            Err(_) => Err(PushError::deadline(Step::Sync, deadline)),
            Ok(Err(error)) => Err(write_failed(Step::Sync, &error)),
            Ok(Ok(())) => Ok(()),
        }
    }
}

/// Removes regular files called `pxw-<32 hex>` that have not been written to for `age` by the node's own clock.
/// Returns how many. Uses a channel of its own, and reads a bounded number of names however many the node sends.
pub(crate) async fn sweep(
    session: &Session,
    directory: &str,
    node_time: u32,
    age: Duration,
    deadline: Duration,
) -> Result<usize, PushError> {
    let work = async {
        let raw = raw(session, Step::Cleanup).await?;
        let fail = |error: SftpError| failed(Step::Cleanup, &error);
        let handle = raw.opendir(directory).await.map_err(fail)?.handle;
        let mut stale = Vec::new();
        let mut seen = 0;
        while seen < MAX_SWEPT {
            let names = match raw.readdir(handle.as_str()).await {
                Ok(names) => names.files,
                Err(SftpError::Status(status)) if status.status_code == StatusCode::Eof => break,
                Err(error) => return Err(fail(error)),
            };
            seen += names.len().max(1);
            stale.extend(
                names
                    .into_iter()
                    .filter(|f| is_stale(&f.filename, &f.attrs, node_time, age))
                    .map(|f| f.filename),
            );
        }
        raw.close(handle).await.map_err(fail)?;
        let mut removed = 0;
        for name in stale {
            if raw.remove(format!("{directory}/{name}")).await.is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    };
    timeout(deadline, work).await.map_err(|_| PushError::deadline(Step::Cleanup, deadline))?
}

fn is_stale(name: &str, attributes: &Metadata, node_time: u32, age: Duration) -> bool {
    let ours = name
        .strip_prefix("pxw-")
        .is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    let regular = attributes.permissions.is_some_and(|mode| mode & TYPE_MASK == TYPE_REGULAR);
    let old = attributes.mtime.is_some_and(|at| u64::from(node_time.saturating_sub(at)) >= age.as_secs());
    ours && regular && old
}

fn judge_directory(path: &str, attributes: &Metadata) -> Result<Directory, PushError> {
    let (Some(mode), Some(owner)) = (attributes.permissions, attributes.uid) else {
        return Err(staging(path, "cannot be judged: the node does not report its mode and owner"));
    };
    if mode & TYPE_MASK != TYPE_DIRECTORY {
        return Err(staging(path, "is not a real directory (a symlink does not do)"));
    }
    if mode & 0o077 != 0 || mode & 0o700 != 0o700 {
        return Err(staging(path, &format!("has mode {:04o}, expected 0700", mode & 0o7777)));
    }
    Ok(Directory { owner })
}

async fn raw(session: &Session, step: Step) -> Result<RawSftpSession, PushError> {
    let raw = RawSftpSession::new(subsystem(session).await?);
    raw.set_timeout(REQUEST_TIMEOUT_SECS);
    raw.init().await.map_err(|error| failed(step, &error))?;
    Ok(raw)
}

async fn subsystem(session: &Session) -> Result<russh::ChannelStream<russh::client::Msg>, PushError> {
    let mut channel = session.channel(Step::Sftp).await?;
    channel.request_subsystem(true, "sftp").await.map_err(|error| broken(Step::Sftp, &error))?;
    while let Some(message) = channel.wait().await {
        match message {
            russh::ChannelMsg::Success => return Ok(channel.into_stream()),
            russh::ChannelMsg::Failure => {
                return Err(remote(
                    Step::Sftp,
                    None,
                    "the node has no SFTP subsystem; set \"Subsystem sftp internal-sftp\" in its sshd_config",
                ));
            }
            _ => {}
        }
    }
    Err(broken(Step::Sftp, &"the node closed the channel"))
}

fn is_missing(error: &SftpError) -> bool {
    matches!(error, SftpError::Status(status) if status.status_code == StatusCode::NoSuchFile)
}

fn status_text(error: &SftpError) -> String {
    match error {
        SftpError::Status(status) => printable(status.error_message.as_bytes()),
        other => printable(other.to_string().as_bytes()),
    }
}

fn staging(path: &str, what: &str) -> PushError {
    PushError::new(PushErrorKind::Staging, format!("on the node, {path} {what}"))
}

fn failed(step: Step, error: &SftpError) -> PushError {
    match error {
        SftpError::Status(_) => {
            remote(step, None, format!("SFTP failed while {step}: {}", status_text(error)))
        }
        _ => broken(step, &status_text(error)),
    }
}

fn write_failed(step: Step, error: &std::io::Error) -> PushError {
    remote(step, None, format!("the node failed while {step}: {}", printable(error.to_string().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(mode: u32, mtime: u32) -> Metadata {
        Metadata { permissions: Some(mode), uid: Some(0), mtime: Some(mtime), ..FileAttributes::empty() }
    }

    #[test]
    fn ul_39_only_a_private_real_directory_is_accepted() {
        assert!(judge_directory("/s", &attributes(0o040_700, 0)).is_ok());
        assert!(judge_directory("/s", &attributes(0o042_700, 0)).is_ok());
        for bad in [0o120_777, 0o100_700, 0o060_700, 0o040_755, 0o040_701, 0o040_710, 0o041_777, 0o040_600] {
            let error = judge_directory("/s", &attributes(bad, 0)).unwrap_err();
            assert_eq!(error.kind(), &PushErrorKind::Staging, "{bad:o}");
            assert!(error.to_string().contains("/s"), "{error}");
        }
        assert!(judge_directory("/s", &FileAttributes::empty()).is_err());
    }

    #[test]
    fn ul_31_only_old_staging_files_of_ours_are_stale() {
        let hour = Duration::from_secs(3600);
        let name = format!("pxw-{}", "0a".repeat(16));
        assert!(is_stale(&name, &attributes(0o100_600, 1000), 1000 + 3600, hour));
        assert!(!is_stale(&name, &attributes(0o100_600, 1000), 1000 + 3599, hour));
        assert!(
            !is_stale(&name, &attributes(0o100_600, 9000), 1000, hour),
            "a clock that ran back ages nothing"
        );
        assert!(!is_stale(&name, &attributes(0o040_700, 0), 9000, hour), "a directory");
        assert!(!is_stale(&name, &attributes(0o120_777, 0), 9000, hour), "a symlink");
        for other in ["pxw-", "pxw-0A", "other", "..", &format!("{name}x"), &name.to_uppercase()] {
            assert!(!is_stale(other, &attributes(0o100_600, 0), 9000, hour), "{other}");
        }
    }
}
