//! Bytes on their way in: counted, capped and hashed while they pass, cut into the pieces a route likes.

use std::future::Future;

use bytes::{Bytes, BytesMut};

use super::guest;
use crate::error::{PushError, PushErrorKind};
use crate::hasher::Hasher;
use crate::options::PushOptions;
use crate::receipt::Stage;
use crate::source::{Source, SourceError, SourceErrorKind};

/// Where a route puts the pieces, in order.
pub(crate) trait Sink: Send {
    /// Takes the next piece, waiting while there is no room for it.
    fn put(&mut self, piece: Bytes) -> impl Future<Output = Result<(), PushError>> + Send;

    /// Ends, with the reason, when nothing can be put there any more; else never.
    fn lost(&self) -> impl Future<Output = PushError> + Send;
}

/// Reports progress; must not block.
pub(crate) type Progress<'a> = &'a (dyn Fn(u64, Stage) + Send + Sync);

/// The next chunk that has bytes.
pub(crate) async fn next_chunk<S: Source>(source: &mut S) -> Result<Option<Bytes>, PushError> {
    loop {
        match source.next().await {
            Ok(Some(chunk)) if chunk.is_empty() => {}
            Ok(chunk) => return Ok(chunk),
            Err(error) => return Err(guest::from_source(error)),
        }
    }
}

/// Source to sink. Small chunks are gathered, so that a slow sender's dribble does not become one request per dribble;
/// nothing larger than one piece is ever held. Returns the count and the hash.
pub(crate) async fn pump<S: Source, K: Sink>(
    first: Bytes,
    source: &mut S,
    sink: &mut K,
    piece: usize,
    options: &PushOptions,
    progress: Progress<'_>,
) -> Result<(u64, [u8; 32]), PushError> {
    let mut hasher = Hasher::default();
    let mut gathered = BytesMut::new();
    let mut next = Some(first);
    while let Some(mut chunk) = next {
        let total = hasher.bytes().saturating_add(chunk.len() as u64);
        if let Some(cap) = options.max_bytes.filter(|cap| total > *cap) {
            return Err(guest::from_source(SourceError::new(
                SourceErrorKind::TooLarge,
                format!("the source delivers more than the {cap} bytes allowed"),
            )));
        }
        hasher.update(&chunk);
        while !chunk.is_empty() {
            if gathered.is_empty() && chunk.len() >= piece {
                sink.put(chunk.split_to(piece)).await?;
                continue;
            }
            gathered.extend_from_slice(&chunk.split_to(chunk.len().min(piece - gathered.len())));
            if gathered.len() == piece {
                sink.put(gathered.split().freeze()).await?;
                gathered.reserve(piece);
            }
        }
        progress(hasher.bytes(), Stage::Receive);
        // A source may pause for as long as it likes; who takes its bytes must be there all the while.
        next = tokio::select! {
            biased;
            chunk = next_chunk(source) => chunk?,
            lost = sink.lost() => return Err(lost),
        };
    }
    if !gathered.is_empty() {
        sink.put(gathered.freeze()).await?;
    }
    Ok((hasher.bytes(), hasher.finish()))
}

/// Says that the cap was reached, for a route that knows the length beforehand.
pub(crate) fn over_cap(length: Option<u64>, options: &PushOptions) -> Result<(), PushError> {
    match (length, options.max_bytes) {
        (Some(length), Some(cap)) if length > cap => {
            let error = SourceError::new(
                SourceErrorKind::TooLarge,
                format!("the source has {length} bytes, more than the {cap} allowed"),
            );
            let message = error.to_string();
            Err(PushError::new(PushErrorKind::Source(error), message))
        }
        _ => Ok(()),
    }
}
