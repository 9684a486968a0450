//! Straight into the container: the bytes are the standard input of a script that `pct exec` runs in it.
//!
//! No copy lands on the node, no configuration lock is held, and the bytes are written once instead of twice. The
//! script writes to a temporary sibling that it makes exclusively; what arrived is read back and hashed in the guest,
//! most of it while the rest is still on its way, before the sibling is renamed.

use std::time::Duration;

use bytes::Bytes;

use super::attempt::Attempt;
use super::guest::{self, HASH, Place, RECEIVE, still_running, write_failed};
use super::intake::{Progress, Sink, next_chunk, pump};
use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::PushOptions;
use crate::push::Pusher;
use crate::receipt::{Receipt, Stage, VerifiedAt};
use crate::source::Source;
use crate::ssh::{Feed, WRITE};

/// This route's name in receipts.
pub(crate) const NAME: &str = "stream";

/// The command has ended while there was more to write: what it says about it is the error.
struct FeedSink {
    feed: Feed,
    idle: Duration,
}

impl Sink for FeedSink {
    async fn put(&mut self, piece: Bytes) -> Result<(), PushError> {
        if self.feed.write(piece, Step::Write, self.idle).await? {
            return Ok(());
        }
        Err(no_more())
    }

    async fn lost(&self) -> PushError {
        self.feed.ended().await;
        no_more()
    }
}

fn no_more() -> PushError {
    PushError::new(PushErrorKind::Connect, "the guest takes no more bytes")
}

/// One push from start to end. Cleans up after itself on every path, including being dropped.
pub(crate) async fn push<S: Source>(
    pusher: &Pusher,
    vmid: u32,
    dest: &Dest,
    options: &PushOptions,
    mut source: S,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    progress(0, Stage::Connect);
    let mut attempt = Attempt::begin(pusher, Place::Container(vmid)).await?;
    let outcome = run(&mut attempt, dest, options, &mut source, progress).await;
    attempt.conclude(outcome).await
}

async fn run<S: Source>(
    attempt: &mut Attempt<'_>,
    dest: &Dest,
    options: &PushOptions,
    source: &mut S,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    attempt.prepare(dest, options, source.length()).await?;
    // Only a source that has something gets a file.
    let first = next_chunk(source).await?.ok_or_else(guest::empty)?;
    let deadlines = attempt.pusher.deadlines().clone();
    let temp = attempt.name_temp(dest)?;
    // The far side ends by itself when ours is gone: when the pace of the source is not ours to know, generously late.
    let limit = deadlines.receive.as_secs().to_string();
    let (mode, owner) = (options.mode.to_string(), guest::ownership(options));
    let argv = attempt.pusher.guest_argv(attempt.place, RECEIVE, &[&temp, &limit, &mode, &owner]);
    let feed = attempt.start_feed(&argv, Step::Write).await?;

    let mut sink = FeedSink { feed, idle: deadlines.idle };
    let pumped = match pump(first, source, &mut sink, WRITE, options, progress).await {
        // The end of the command says more than that it takes nothing.
        Err(error) if !sink.feed.has_ended() || matches!(error.kind(), PushErrorKind::Source(_)) => {
            return Err(error);
        }
        pumped => pumped,
    };
    let sent = pumped.as_ref().map_or(0, |(bytes, _)| *bytes);
    let unsure = "the guest may still be writing the temporary file";
    let output = attempt
        .end_feed(Step::Write, deadlines.copy(sent))
        .await
        .map_err(|error| still_running(error, unsure))?;
    if output.status != 0 {
        return Err(write_failed(attempt.place, Step::Write, &output));
    }
    let (bytes, sha256) = pumped?;
    guest::expected(options, &sha256)?;

    progress(bytes, Stage::Verify);
    // The guest has read the file back while it grew; where it could not, or found something else, it reads it now.
    let checksum_verified =
        guest::followed(&output.stdout, bytes, &sha256) || verify(attempt, &temp, bytes, &sha256).await?;
    let verified_at = if checksum_verified { VerifiedAt::Guest } else { VerifiedAt::Nowhere };

    progress(bytes, Stage::Commit);
    attempt.commit(&temp, dest, options.overwrite).await?;
    Ok(Receipt::new(bytes, sha256, verified_at, NAME))
}

/// Hashes the temporary file where it is. `Ok(false)` when there is nothing to hash with.
pub(super) async fn verify(
    attempt: &Attempt<'_>,
    temp: &str,
    bytes: u64,
    sha256: &[u8; 32],
) -> Result<bool, PushError> {
    let deadline = attempt.pusher.deadlines().copy(bytes);
    let limit = deadline.as_secs().to_string();
    let argv = attempt.pusher.guest_argv(attempt.place, HASH, &[temp, &limit]);
    let output = attempt.session.run(&argv, Step::Hash, deadline).await?;
    guest::compare(&output, bytes, sha256)
}
