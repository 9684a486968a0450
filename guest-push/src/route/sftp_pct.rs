//! SFTP to the node's staging directory, then `pct push` into the container.
//!
//! The order is the safety: the guest is asked about the destination before a byte travels; the bytes are hashed
//! while they stream; `pct push`, which ignores a failed copy and truncates in place, writes to a temporary sibling;
//! what arrived is hashed inside the guest; the staging file is gone before the sibling is renamed. So the
//! destination either holds exactly what the source sent, or is untouched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::PushOptions;
use crate::push::Pusher;
use crate::receipt::{Receipt, Stage, VerifiedAt};
use crate::source::Source;
use crate::ssh::{Session, Sftp, StagingFile, WRITE, sweep};

use super::attempt::Attempt;
use super::guest::{self, HASH, Place, guest_failed, still_running};
use super::intake::{Progress, Sink, next_chunk, pump};

/// This route's name in receipts.
pub(crate) const NAME: &str = "sftp+pct_push";

/// Free space asked for beyond the source's length, and in all when the length is not known.
const SPACE_FLOOR: u64 = 16 * 1024 * 1024;

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
    let outcome = run(&mut attempt, vmid, dest, options, &mut source, progress).await;
    attempt.conclude(outcome).await
}

/// A staging file as a sink.
pub(super) struct FileSink {
    pub(super) file: StagingFile,
    pub(super) session: Arc<Session>,
    pub(super) idle: Duration,
}

impl Sink for FileSink {
    async fn put(&mut self, piece: Bytes) -> Result<(), PushError> {
        self.file.write(&piece, self.idle).await
    }

    async fn lost(&self) -> PushError {
        self.session.ended(Step::Write).await
    }
}

async fn run<S: Source>(
    attempt: &mut Attempt<'_>,
    vmid: u32,
    dest: &Dest,
    options: &PushOptions,
    source: &mut S,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    let needed = source.length().unwrap_or(0).saturating_add(SPACE_FLOOR);
    let staging_dir = attempt.pusher.target().staging_dir.as_str();
    let open_staging = async {
        let sftp = Sftp::open(&attempt.session, attempt.pusher.deadlines().step).await?;
        let directory = sftp.directory(&attempt.session, staging_dir).await?;
        sftp.require_space(staging_dir, needed).await?;
        Ok((sftp, directory))
    };
    let ask_guest = attempt.prepare(dest, options, source.length());
    let ((sftp, directory), ()) = tokio::try_join!(open_staging, ask_guest)?;

    // Only a source that has something gets a file.
    let first = next_chunk(source).await?.ok_or_else(guest::empty)?;
    let path = attempt.name_staging()?;
    let (file, created) = sftp.create(directory, &path).await?;
    if attempt.pusher.first_contact() {
        sweep_quietly(attempt, created.node_time).await;
    }

    let deadlines = attempt.pusher.deadlines();
    let written = async {
        let mut sink = FileSink { file, session: Arc::clone(&attempt.session), idle: deadlines.idle };
        let done = pump(first, source, &mut sink, WRITE, options, progress).await?;
        sink.file.finish(deadlines.copy(done.0)).await?;
        Ok(done)
    };
    let (bytes, sha256) = match written.await {
        Ok(done) => done,
        Err(error) => return Err(sftp.explain_write(staging_dir, error).await),
    };
    guest::expected(options, &sha256)?;

    place(attempt, &sftp, vmid, &path, (bytes, sha256), dest, options, progress).await
}

/// From a staging file that is whole to the destination: a way that files take which came to the node in pieces.
pub(crate) async fn deliver(
    pusher: &Pusher,
    vmid: u32,
    staging: String,
    content: (u64, [u8; 32]),
    dest: &Dest,
    options: &PushOptions,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    progress(content.0, Stage::Connect);
    let mut attempt = Attempt::begin(pusher, Place::Container(vmid)).await?;
    attempt.adopt_staging(staging.clone());
    let work = async {
        guest::expected(options, &content.1)?;
        attempt.prepare(dest, options, Some(content.0)).await?;
        let sftp = Sftp::open(&attempt.session, pusher.deadlines().step).await?;
        place(&mut attempt, &sftp, vmid, &staging, content, dest, options, progress).await
    };
    let outcome = work.await;
    attempt.conclude(outcome).await
}

/// Copies, verifies, renames.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts of one push; a struct would be built and taken apart at once"
)]
async fn place(
    attempt: &mut Attempt<'_>,
    sftp: &Sftp,
    vmid: u32,
    path: &str,
    (bytes, sha256): (u64, [u8; 32]),
    dest: &Dest,
    options: &PushOptions,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    progress(bytes, Stage::Push);
    let temp = attempt.name_temp(dest)?;
    copy_into_guest(attempt, vmid, path, &temp, options, bytes).await?;

    progress(bytes, Stage::Verify);
    let copy_deadline = attempt.pusher.deadlines().copy(bytes);
    let limit = copy_deadline.as_secs().to_string();
    let hash_argv = attempt.pusher.guest_argv(attempt.place, HASH, &[&temp, &limit]);
    let hashing = attempt.session.run(&hash_argv, Step::Hash, copy_deadline);
    // The staging file has served; removing it while the guest hashes costs no time.
    let (hashed, ()) = tokio::try_join!(hashing, sftp.remove(path))?;
    attempt.staging_is_gone();
    let checksum_verified = guest::compare(&hashed, bytes, &sha256)?;
    let verified_at = if checksum_verified { VerifiedAt::Guest } else { VerifiedAt::Node };

    progress(bytes, Stage::Commit);
    attempt.commit(&temp, dest, options.overwrite).await?;
    Ok(Receipt::new(bytes, sha256, verified_at, NAME))
}

/// `pct push` from the staging file to the temporary sibling, asked again while the container is locked.
async fn copy_into_guest(
    attempt: &mut Attempt<'_>,
    vmid: u32,
    staging: &str,
    temp: &str,
    options: &PushOptions,
    bytes: u64,
) -> Result<(), PushError> {
    const AGAIN_AFTER: Duration = Duration::from_secs(1);
    let (number, mode) = (vmid.to_string(), options.mode.to_string());
    let mut argv = vec!["pct", "push", &number, staging, temp, "--perms", &mode];
    if let Some(owner) = &options.owner {
        argv.extend(["--user", owner.as_str()]);
    }
    if let Some(group) = &options.group {
        argv.extend(["--group", group.as_str()]);
    }
    let argv = attempt.pusher.on_node(&argv);
    let deadlines = attempt.pusher.deadlines().clone();
    let patience = Instant::now() + deadlines.busy;
    loop {
        let output =
            attempt.run_tracked(argv.clone(), Step::Push, deadlines.copy(bytes)).await.map_err(|error| {
                still_running(error, "pct push may still be at work and write the temporary file")
            })?;
        if output.status == 0 {
            return Ok(());
        }
        let error = guest_failed(Place::Container(vmid), Step::Push, &output);
        if *error.kind() != PushErrorKind::GuestBusy || Instant::now() + AGAIN_AFTER > patience {
            return Err(error);
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Sweeps old staging files. A failure here is not the push's.
async fn sweep_quietly(attempt: &Attempt<'_>, node_time: u32) {
    let (deadlines, target) = (attempt.pusher.deadlines(), attempt.pusher.target());
    let age = deadlines.stale_after;
    match sweep(&attempt.session, &target.staging_dir, node_time, age, deadlines.step).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(node = %target.host, removed, "removed forgotten staging files"),
        Err(error) => {
            tracing::warn!(node = %target.host, %error, "could not look for forgotten staging files")
        }
    }
}
