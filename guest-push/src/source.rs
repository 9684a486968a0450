//! Where the bytes come from.

use std::future::Future;

use bytes::Bytes;

/// A stream of bytes to push, pulled chunk by chunk.
///
/// Chunks may have any size; the next one is asked for only when the last has been handed to the node's window, so
/// back pressure reaches the sender. The implementation owns its own pace: a source that is too slow should end
/// with [`SourceErrorKind::TooSlow`].
pub trait Source: Send {
    /// The next chunk, or `None` at the end. Not called again after `None` or an error.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, SourceError>> + Send;

    /// The total length in bytes when it is known beforehand. Used to check the node's free space before the first
    /// byte; a source that then delivers another length is not an error.
    fn length(&self) -> Option<u64> {
        None
    }
}

impl<S: Source> Source for &mut S {
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, SourceError>> + Send {
        (**self).next()
    }

    fn length(&self) -> Option<u64> {
        (**self).length()
    }
}

/// All the bytes at once, for small files and tests.
impl Source for Bytes {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let all = std::mem::take(self);
        Ok((!all.is_empty()).then_some(all))
    }

    fn length(&self) -> Option<u64> {
        u64::try_from(self.len()).ok()
    }
}

/// Why a source ended before its end. A push hands it back unchanged, inside
/// [`PushErrorKind::Source`](crate::PushErrorKind::Source).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    kind: SourceErrorKind,
    message: String,
}

/// The sort of a [`SourceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The sender went away.
    Aborted,
    /// The sender exceeded the limit it was given.
    TooLarge,
    /// The sender fell below the pace it was asked to keep.
    TooSlow,
    /// Anything else, such as an unreadable file.
    Other,
}

impl SourceError {
    /// An error with a message for the sender.
    pub fn new(kind: SourceErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The sort of the error.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}
