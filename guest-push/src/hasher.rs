//! Counting and hashing bytes while they stream through.

use sha2::{Digest, Sha256};

/// A running count and SHA-256.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hasher {
    bytes: u64,
    state: Sha256,
}

impl Hasher {
    /// Takes in the next chunk.
    pub(crate) fn update(&mut self, chunk: &[u8]) {
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        self.state.update(chunk);
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The hash of everything taken in.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.state.finalize().into()
    }
}
