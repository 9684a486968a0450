//! SFTP straight into a virtual machine that has an SSH server of its own.
//!
//! The same order as the other routes: the machine is asked first, the bytes go to a temporary sibling that is made
//! exclusively, its hash is computed in the machine, and only then is it renamed.

use std::sync::Arc;

use super::attempt::Attempt;
use super::guest::{self, OWN, Place, still_running, write_failed};
use super::intake::{Progress, next_chunk, pump};
use super::sftp_pct::FileSink;
use super::stream::verify;
use crate::dest::Dest;
use crate::error::{PushError, Step};
use crate::options::PushOptions;
use crate::push::Pusher;
use crate::receipt::{Receipt, Stage, VerifiedAt};
use crate::source::Source;
use crate::ssh::{Sftp, WRITE};

/// This route's name in receipts.
pub(crate) const NAME: &str = "ssh";

/// One push from start to end. Cleans up after itself on every path, including being dropped.
pub(crate) async fn push<S: Source>(
    pusher: &Pusher,
    dest: &Dest,
    options: &PushOptions,
    mut source: S,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    progress(0, Stage::Connect);
    let mut attempt = Attempt::begin(pusher, Place::Machine).await?;
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
    let deadlines = attempt.pusher.deadlines().clone();
    let opening = Sftp::open(&attempt.session, deadlines.step);
    let (sftp, ()) = tokio::try_join!(opening, attempt.prepare(dest, options, source.length()))?;
    // Only a source that has something gets a file.
    let first = next_chunk(source).await?.ok_or_else(guest::empty)?;
    let temp = attempt.name_temp(dest)?;
    let file = sftp.create_beside(&temp).await?;
    let written = async {
        let mut sink = FileSink { file, session: Arc::clone(&attempt.session), idle: deadlines.idle };
        let done = pump(first, source, &mut sink, WRITE, options, progress).await?;
        sink.file.finish(deadlines.copy(done.0)).await?;
        Ok(done)
    };
    let (bytes, sha256) = match written.await {
        Ok(done) => done,
        Err(error) => return Err(sftp.explain_write(dest.parent(), error).await),
    };
    guest::expected(options, &sha256)?;

    progress(bytes, Stage::Push);
    let (mode, owner) = (options.mode.to_string(), guest::ownership(options));
    let argv = attempt.pusher.guest_argv(attempt.place, OWN, &[&temp, &mode, &owner]);
    let output = attempt
        .run_tracked(argv, Step::Push, deadlines.step)
        .await
        .map_err(|error| still_running(error, "the mode may still be being set"))?;
    if output.status != 0 {
        return Err(write_failed(attempt.place, Step::Push, &output));
    }

    progress(bytes, Stage::Verify);
    let checksum_verified = verify(attempt, &temp, bytes, &sha256).await?;

    progress(bytes, Stage::Commit);
    attempt.commit(&temp, dest, options.overwrite).await?;
    let verified_at = if checksum_verified { VerifiedAt::Guest } else { VerifiedAt::Nowhere };
    Ok(Receipt::new(bytes, sha256, verified_at, NAME))
}
