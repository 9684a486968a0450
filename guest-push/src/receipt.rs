//! What a finished push can prove.

use std::fmt;

/// The result of a push that put the file in place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Bytes received from the source and written.
    pub bytes: u64,
    /// SHA-256 of those bytes, computed while they streamed through.
    pub sha256: [u8; 32],
    /// The farthest place where the file was compared with that hash.
    pub verified_at: VerifiedAt,
    /// True when the hash was computed inside the guest over the file that was then renamed into place. False when
    /// the guest has no tool to hash with; its size was still compared.
    pub checksum_verified: bool,
    /// The route the bytes took, for example `sftp+pct_push`.
    pub route: &'static str,
}

impl Receipt {
    pub(crate) fn new(bytes: u64, sha256: [u8; 32], verified_at: VerifiedAt, route: &'static str) -> Self {
        let checksum_verified = verified_at == VerifiedAt::Guest;
        Self { bytes, sha256, verified_at, checksum_verified, route }
    }

    /// The hash as 64 lower-case hexadecimal digits.
    pub fn sha256_hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.sha256)
    }
}

/// Where the bytes were last known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifiedAt {
    /// Hashed inside the guest, after the copy into it.
    Guest,
    /// Acknowledged and made durable on the node; inside the guest only the size could be compared.
    Node,
    /// Nowhere: the guest has nothing to hash with and no copy was on the node. The size was compared in the guest.
    Nowhere,
}

impl VerifiedAt {
    /// `guest`, `node` or `none`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Node => "node",
            Self::Nowhere => "none",
        }
    }
}

impl fmt::Display for VerifiedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How far a push has come, for the progress callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Connecting to the node and checking the guest.
    Connect,
    /// Receiving from the source and writing it where the route keeps it on its way.
    Receive,
    /// The bytes are brought to the temporary file in the guest (a copy on the node, the join of parts).
    Push,
    /// The guest hashes its copy.
    Verify,
    /// The copy is renamed to its destination.
    Commit,
}

impl Stage {
    /// `connect`, `receive`, `push`, `verify` or `commit`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Receive => "receive",
            Self::Push => "push",
            Self::Verify => "verify",
            Self::Commit => "commit",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
