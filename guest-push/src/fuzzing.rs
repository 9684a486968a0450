//! What the fuzz target over a guest's hash line calls. Not part of the API.

use crate::error::PushErrorKind;
use crate::route::guest;
use crate::ssh::Output;

/// What a guest's answer proves about the file in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the file that was sent.
    Same,
    /// It has the right size, and there is nothing to hash it with.
    Unverified,
    /// It is another file.
    Other,
    /// The answer is not one.
    NotUnderstood,
}

/// Judges what a hash command printed on standard output, ending well, for a file of so many bytes and this SHA-256.
#[must_use]
pub fn hash_output(stdout: &[u8], bytes: u64, sha256: &[u8; 32]) -> Verdict {
    let output = Output { status: 0, stdout: stdout.to_vec(), complaint: String::new() };
    match guest::compare(&output, bytes, sha256) {
        Ok(true) => Verdict::Same,
        Ok(false) => Verdict::Unverified,
        Err(error) if *error.kind() == PushErrorKind::HashMismatch => Verdict::Other,
        Err(_) => Verdict::NotUnderstood,
    }
}
