//! Counting and hashing bytes as they pass, up to a cap.

use std::fmt;

use sha2::{Digest, Sha256};

/// More bytes than the cap allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {cap} bytes: send a smaller file or ask the operator to raise the cap")]
pub struct OverCap {
    /// The cap, in bytes.
    pub cap: u64,
}

/// SHA-256 over a stream of at most `cap` bytes.
///
/// A declared length proves nothing, so the bytes themselves are counted: the chunk that holds byte `cap + 1`
/// is refused whole. From then on everything is refused, [`finish`](CappedHasher::finish) too: the hash of a
/// prefix must never pass for the hash of the file.
///
/// ```
/// # use transfers::{CappedHasher, OverCap};
/// let mut hasher = CappedHasher::new(5);
/// hasher.update(b"hel")?;
/// hasher.update(b"lo")?;
/// assert_eq!(hasher.clone().finish()?.0, 5);
/// assert_eq!(hasher.update(b"!"), Err(OverCap { cap: 5 }));
/// assert_eq!(hasher.finish(), Err(OverCap { cap: 5 }));
/// # Ok::<(), OverCap>(())
/// ```
#[derive(Clone)]
pub struct CappedHasher {
    cap: u64,
    /// `None` once a chunk was refused.
    left: Option<u64>,
    hash: Sha256,
}

impl CappedHasher {
    /// A hasher that takes up to `cap` bytes.
    #[must_use]
    pub fn new(cap: u64) -> CappedHasher {
        CappedHasher { cap, left: Some(cap), hash: Sha256::new() }
    }

    /// Takes the next chunk, whole or not at all.
    ///
    /// # Errors
    /// [`OverCap`] where this chunk goes past the cap or an earlier one did.
    pub fn update(&mut self, chunk: &[u8]) -> Result<(), OverCap> {
        let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        self.left = self.left.and_then(|left| left.checked_sub(length));
        self.left.ok_or(OverCap { cap: self.cap })?;
        self.hash.update(chunk);
        Ok(())
    }

    /// How many bytes were taken; after a refusal, the cap.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cap.saturating_sub(self.left.unwrap_or(0))
    }

    /// The number of bytes and their SHA-256.
    ///
    /// # Errors
    /// [`OverCap`] where a chunk was refused.
    pub fn finish(self) -> Result<(u64, [u8; 32]), OverCap> {
        let bytes = self.bytes();
        self.left.ok_or(OverCap { cap: self.cap })?;
        Ok((bytes, self.hash.finalize().into()))
    }
}

impl fmt::Debug for CappedHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CappedHasher")
            .field("cap", &self.cap)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
