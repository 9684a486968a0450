//! Bytes out of a guest: what the file is and hashes to first, then its content, counted and hashed on the way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::guest::{self, HASH, LOOK, Place, SEND, guest_failed, not_understood};
use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::hasher::Hasher;
use crate::push::Pusher;
use crate::ssh::{Fetch, Output};

/// The rest of a file, chunk by chunk.
pub(crate) trait Chunks: Send {
    /// The next bytes; `None` at the end.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, PushError>> + Send + '_>>;
}

/// A file of a guest, open for reading.
///
/// What it delivers is exactly [`size`](Self::size) bytes with the hash that the guest computed beforehand; a file that
/// changes while it is read ends in an error, never in a mixture that looks whole.
pub struct Download {
    size: u64,
    sha256: Option<[u8; 32]>,
    chunks: Box<dyn Chunks>,
    hasher: Option<Hasher>,
    received: Option<[u8; 32]>,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Download {
    pub(crate) fn new(size: u64, hashed: &Output, chunks: Box<dyn Chunks>) -> Result<Self, PushError> {
        if hashed.status != 0 {
            return Err(guest::failed(Step::Hash, hashed));
        }
        let Some((hash, counted)) = guest::parse_hash(&hashed.stdout) else {
            return Err(not_understood(Step::Hash, hashed));
        };
        if counted != size {
            return Err(changed());
        }
        let sha256 =
            hash.and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok());
        Ok(Self { size, sha256, chunks, hasher: Some(Hasher::default()), received: None })
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its SHA-256 as the guest computed it; `None` when the guest has nothing to hash with.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        self.sha256
    }

    /// SHA-256 of what came, once all of it has: also where the guest could not hash.
    pub fn received_sha256(&self) -> Option<[u8; 32]> {
        self.received
    }

    /// The next bytes; `None` once the whole file has come and is what it was said to be.
    ///
    /// # Errors
    /// [`PushErrorKind::HashMismatch`] when the file changed meanwhile; whatever failed on the way.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PushError> {
        let Some(mut hasher) = self.hasher.take() else { return Ok(None) };
        match self.chunks.next().await? {
            Some(bytes) => {
                hasher.update(&bytes);
                if hasher.bytes() > self.size {
                    return Err(changed());
                }
                self.hasher = Some(hasher);
                Ok(Some(bytes))
            }
            None if hasher.bytes() != self.size => Err(changed()),
            None => {
                let received = hasher.finish();
                if self.sha256.is_some_and(|expected| expected != received) {
                    return Err(changed());
                }
                self.received = Some(received);
                Ok(None)
            }
        }
    }

    /// Reads the rest when it is not longer than `cap`.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`PushErrorKind::TooLong`] above the cap, before anything is read.
    pub async fn collect(mut self, cap: u64) -> Result<Vec<u8>, PushError> {
        if self.size > cap {
            return Err(PushError::new(
                PushErrorKind::TooLong,
                format!("the file has {} bytes, at most {cap} are read this way", self.size),
            ));
        }
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

fn changed() -> PushError {
    PushError::new(
        PushErrorKind::HashMismatch,
        "the file changed while it was read; read it again when nothing writes to it",
    )
}

/// Reads the answer of the script that looks at a path.
pub(crate) fn looked(place: Place, path: &Dest, output: &Output) -> Result<u64, PushError> {
    if output.status != 0 {
        return Err(guest_failed(place, Step::Prepare, output));
    }
    let what = |kind, text: &str| Err(PushError::new(kind, format!("{:?} {text}", path.as_str())));
    match guest::word(output) {
        Some("missing") => what(PushErrorKind::Missing, "does not exist in the guest"),
        Some("is-directory") => {
            what(PushErrorKind::DestIsDirectory, "is a directory in the guest; name one file")
        }
        Some("not-regular") => {
            what(PushErrorKind::NotRegular, "is a FIFO, socket or device in the guest; name a regular file")
        }
        Some("unreadable") => what(
            PushErrorKind::Remote { step: Step::Look, status: Some(0) },
            "cannot be read by the user that logs in to the guest",
        ),
        Some(word) => word
            .strip_prefix("regular ")
            .and_then(|size| size.parse().ok())
            .ok_or_else(|| not_understood(Step::Look, output)),
        None => Err(not_understood(Step::Look, output)),
    }
}

/// Looks at a file over SSH and prepares reading it.
pub(crate) async fn open(pusher: &Pusher, place: Place, path: &Dest) -> Result<Download, PushError> {
    let deadlines = pusher.deadlines();
    let session = Arc::new(pusher.connect().await?);
    let output = pusher.in_guest(&session, place, LOOK, &[path.as_str()], Step::Look, deadlines.step).await?;
    let size = looked(place, path, &output)?;
    let limit = deadlines.copy(size);
    let seconds = limit.as_secs().to_string();
    let hashed =
        pusher.in_guest(&session, place, HASH, &[path.as_str(), &seconds], Step::Hash, limit).await?;
    let patience = deadlines.receive.as_secs().to_string();
    let argv = pusher.guest_argv(place, SEND, &[path.as_str(), &patience]);
    let fetch = session.fetch(&argv, Step::Read, deadlines.step).await?;
    Download::new(size, &hashed, Box::new(SshChunks { fetch, idle: deadlines.idle }))
}

struct SshChunks {
    fetch: Fetch,
    idle: Duration,
}

impl Chunks for SshChunks {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, PushError>> + Send + '_>> {
        Box::pin(self.fetch.next(self.idle))
    }
}
