//! Why a push did not happen.

use std::fmt;

use crate::source::SourceError;

/// A push, check or sweep that failed. Says what happened ([`kind`](Self::kind)), and whether anything may have been
/// left behind ([`residue`](Self::residue)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushError {
    kind: PushErrorKind,
    message: String,
    residue: Option<String>,
}

/// The sort of a [`PushError`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushErrorKind {
    /// The source gave up; this is its own error, unchanged. Also a source over
    /// [`max_bytes`](crate::PushOptions::max_bytes), as `TooLarge`.
    Source(SourceError),
    /// The source delivered no byte. No file was made.
    Empty,
    /// The source's SHA-256 is not [`expected_sha256`](crate::PushOptions::expected_sha256).
    UnexpectedHash,
    /// The target or the guest's number is not usable; nothing was sent.
    Target,
    /// The node's host key is not one we hold, or is revoked.
    HostKey {
        /// What the node presented, as `SHA256:…`; `None` when it has no key of a type we hold.
        fingerprint: Option<String>,
    },
    /// No connection, or it broke.
    Connect,
    /// The node does not accept our user and key.
    Auth,
    /// The staging directory is missing, not a real directory, open to others, or another user's.
    Staging,
    /// The node's staging file system or the guest's is full.
    NoSpace,
    /// The destination exists and `overwrite` was not asked for.
    DestExists,
    /// The destination's parent directory is missing (and was not made).
    NoParent,
    /// The destination is a directory.
    DestIsDirectory,
    /// The destination is a symlink, FIFO, socket or device.
    NotRegular,
    /// The file to be read does not exist.
    Missing,
    /// The file to be read is longer than the caller wants to hold.
    TooLong,
    /// The guest is stopped, absent or not on this node.
    GuestUnreachable,
    /// The guest's configuration stayed locked by another task.
    GuestBusy,
    /// The copy inside the guest is not what the source sent. The destination is untouched.
    HashMismatch,
    /// A step took longer than its [`Deadlines`](crate::Deadlines) allow.
    Deadline {
        /// The step that was under way.
        step: Step,
    },
    /// The node or the guest answered something else than this crate understands.
    Remote {
        /// The step that was under way.
        step: Step,
        /// Exit status of the command, when there was one.
        status: Option<u32>,
    },
}

impl PushErrorKind {
    /// A short stable name for machines, such as `dest_exists`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Empty => "empty",
            Self::UnexpectedHash => "unexpected_hash",
            Self::Target => "target",
            Self::HostKey { .. } => "host_key",
            Self::Connect => "connect",
            Self::Auth => "auth",
            Self::Staging => "staging",
            Self::NoSpace => "no_space",
            Self::DestExists => "dest_exists",
            Self::NoParent => "no_parent",
            Self::DestIsDirectory => "dest_is_directory",
            Self::NotRegular => "not_regular",
            Self::Missing => "missing",
            Self::TooLong => "too_long",
            Self::GuestUnreachable => "guest_unreachable",
            Self::GuestBusy => "guest_busy",
            Self::HashMismatch => "hash_mismatch",
            Self::Deadline { .. } => "deadline",
            Self::Remote { .. } => "remote",
        }
    }
}

/// A step of a push, named in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// TCP connect.
    Connect,
    /// SSH handshake.
    Handshake,
    /// SSH authentication.
    Auth,
    /// Opening the SFTP subsystem.
    Sftp,
    /// Checking the staging directory and making the staging file.
    Staging,
    /// Asking the guest about the destination.
    Prepare,
    /// Writing the bytes on their way.
    Write,
    /// Making the staging file durable and closing it.
    Sync,
    /// `pct push`, or setting mode and owner.
    Push,
    /// Hashing in the guest.
    Hash,
    /// Renaming to the destination.
    Commit,
    /// Removing what was left behind.
    Cleanup,
    /// Looking at a file to be read.
    Look,
    /// Reading a file.
    Read,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Handshake => "the SSH handshake",
            Self::Auth => "SSH authentication",
            Self::Sftp => "opening SFTP",
            Self::Staging => "preparing the staging file",
            Self::Prepare => "asking the guest about the destination",
            Self::Write => "writing the bytes",
            Self::Sync => "syncing the staging file",
            Self::Push => "copying into the guest",
            Self::Hash => "hashing in the guest",
            Self::Commit => "renaming to the destination",
            Self::Cleanup => "cleaning up",
            Self::Look => "looking at the file",
            Self::Read => "reading the file",
        })
    }
}

impl PushError {
    pub(crate) fn new(kind: PushErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), residue: None }
    }

    pub(crate) fn deadline(step: Step, after: std::time::Duration) -> Self {
        Self::new(
            PushErrorKind::Deadline { step },
            format!(
                "no end within {} s while {step}; check the node's load and network",
                after.as_secs_f64()
            ),
        )
    }

    /// Adds what may have stayed behind. Notes add up.
    pub(crate) fn leaving(mut self, note: &str) -> Self {
        self.residue = Some(match self.residue.take() {
            Some(earlier) => format!("{earlier}; {note}"),
            None => note.to_owned(),
        });
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &PushErrorKind {
        &self.kind
    }

    /// The kind, by value.
    pub fn into_kind(self) -> PushErrorKind {
        self.kind
    }

    /// True when it could not be confirmed that nothing was left on the node or in the guest. The error's text then
    /// names what to look for. False means the removal was confirmed (or nothing had been made).
    pub fn residue(&self) -> bool {
        self.residue.is_some()
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(note) = &self.residue {
            write!(f, " (clean-up not confirmed: {note})")?;
        }
        Ok(())
    }
}

impl std::error::Error for PushError {}
