//! SFTP to the node's staging directory, then `pct push` into the container.
//!
//! The order is the safety: the guest is asked about the destination before a byte travels; the bytes are hashed
//! while they stream; `pct push`, which ignores a failed copy and truncates in place, writes to a temporary sibling;
//! what arrived is hashed inside the guest; the staging file is gone before the sibling is renamed. So the
//! destination either holds exactly what the source sent, or is untouched.

use std::time::{Duration, Instant};

use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::hasher::Hasher;
use crate::options::PushOptions;
use crate::push::Pusher;
use crate::receipt::{Receipt, Stage, VerifiedAt};
use crate::source::{Source, SourceError, SourceErrorKind};
use crate::ssh::{Output, Session, Sftp, StagingFile, WRITE, colon, remote, sweep};

pub(crate) mod attempt;

use attempt::Attempt;

/// This route's name in receipts.
pub(crate) const NAME: &str = "sftp+pct_push";

const PREPARE: &str = include_str!("scripts/prepare.sh");
const HASH: &str = include_str!("scripts/hash.sh");
const COMMIT: &str = include_str!("scripts/commit.sh");
const DISCARD: &str = include_str!("scripts/discard.sh");

/// Free space asked for beyond the source's length, and in all when the length is not known.
const SPACE_FLOOR: u64 = 16 * 1024 * 1024;

/// One push from start to end. Cleans up after itself on every path, including being dropped.
pub(crate) async fn push<S: Source>(
    pusher: &Pusher,
    vmid: u32,
    dest: &Dest,
    options: &PushOptions,
    mut source: S,
    progress: &(dyn Fn(u64, Stage) + Send + Sync),
) -> Result<Receipt, PushError> {
    progress(0, Stage::Connect);
    let mut attempt = Attempt::begin(pusher, vmid).await?;
    let outcome = run(&mut attempt, dest, options, &mut source, progress).await;
    match outcome {
        Ok(receipt) => {
            attempt.end();
            Ok(receipt)
        }
        Err(error) => Err(attempt.abandon(error).await),
    }
}

async fn run<S: Source>(
    attempt: &mut Attempt<'_>,
    dest: &Dest,
    options: &PushOptions,
    source: &mut S,
    progress: &(dyn Fn(u64, Stage) + Send + Sync),
) -> Result<Receipt, PushError> {
    let needed = source.length().unwrap_or(0).saturating_add(SPACE_FLOOR);
    let staging_dir = attempt.pusher.target().staging_dir.as_str();
    let open_staging = async {
        let sftp = Sftp::open(&attempt.session, attempt.pusher.deadlines().step).await?;
        let directory = sftp.directory(&attempt.session, staging_dir).await?;
        sftp.require_space(staging_dir, needed).await?;
        Ok((sftp, directory))
    };
    let ask_guest =
        prepare(attempt.pusher, &attempt.session, attempt.vmid, dest, options.overwrite, options.mkdir);
    let ((sftp, directory), ()) = tokio::try_join!(open_staging, ask_guest)?;

    // Only a source that has something gets a file.
    let Some(first) = next_chunk(source).await? else {
        return Err(PushError::new(
            PushErrorKind::Empty,
            "the source is empty; nothing was written, send at least one byte",
        ));
    };
    let path = attempt.name_staging()?;
    let (file, created) = sftp.create(directory, &path).await?;
    if attempt.pusher.first_contact() {
        sweep_quietly(attempt, created.node_time).await;
    }

    let (bytes, sha256) = match stream(attempt, file, first, source, options, progress).await {
        Ok(done) => done,
        Err(error) => return Err(sftp.explain_write(staging_dir, error).await),
    };
    if let Some(expected) = options.expected_sha256.filter(|e| *e != sha256) {
        return Err(PushError::new(
            PushErrorKind::UnexpectedHash,
            format!(
                "the source's SHA-256 is {}, expected {}; nothing was written to the guest",
                hex(&sha256),
                hex(&expected)
            ),
        ));
    }

    progress(bytes, Stage::Push);
    let temp = attempt.name_temp(dest)?;
    copy_into_guest(attempt, &path, &temp, options, bytes).await?;

    progress(bytes, Stage::Verify);
    let copy_deadline = attempt.pusher.deadlines().copy(bytes);
    let hash_argv = attempt.pusher.guest_argv(attempt.vmid, HASH, &[&temp]);
    let hashing = attempt.session.run(&hash_argv, Step::Hash, copy_deadline);
    // The staging file has served; removing it while the guest hashes costs no time.
    let (hashed, ()) = tokio::try_join!(hashing, sftp.remove(&path))?;
    attempt.staging_is_gone();
    let checksum_verified = compare(&hashed, bytes, &sha256)?;

    progress(bytes, Stage::Commit);
    commit(attempt, &temp, dest, options.overwrite).await?;
    attempt.temp_is_gone();
    let verified_at = if checksum_verified { VerifiedAt::Guest } else { VerifiedAt::Node };
    Ok(Receipt { bytes, sha256, verified_at, checksum_verified, route: NAME })
}

/// Asks the guest whether the destination can be written, making parents when told to.
pub(crate) async fn prepare(
    pusher: &Pusher,
    session: &Session,
    vmid: u32,
    dest: &Dest,
    overwrite: bool,
    mkdir: bool,
) -> Result<(), PushError> {
    let arguments = [dest.as_str(), flag(overwrite), flag(mkdir)];
    let deadline = pusher.deadlines().step;
    let output = pusher.in_guest(session, vmid, PREPARE, &arguments, Step::Prepare, deadline).await?;
    if output.status != 0 {
        return Err(guest_failed(vmid, Step::Prepare, &output));
    }
    match word(&output) {
        Some("ok") => Ok(()),
        Some("exists") => Err(exists(dest)),
        Some("no-parent") => Err(PushError::new(
            PushErrorKind::NoParent,
            format!(
                "{:?} does not exist in the guest{}; make it, or ask for mkdir",
                dest.parent(),
                colon(&output.complaint)
            ),
        )),
        Some("is-directory") => Err(is_directory(dest)),
        Some("not-regular") => Err(PushError::new(
            PushErrorKind::NotRegular,
            format!(
                "{:?} is a symlink, FIFO, socket or device in the guest; name a regular file",
                dest.as_str()
            ),
        )),
        _ => Err(not_understood(Step::Prepare, &output)),
    }
}

/// The next chunk that has bytes.
async fn next_chunk<S: Source>(source: &mut S) -> Result<Option<bytes::Bytes>, PushError> {
    loop {
        match source.next().await {
            Ok(Some(chunk)) if chunk.is_empty() => {}
            Ok(chunk) => return Ok(chunk),
            Err(error) => return Err(from_source(error)),
        }
    }
}

/// Source to staging file, hashing on the way. Small chunks are gathered, so that a slow sender's dribble does not
/// become one request per dribble; nothing larger than one write is ever held.
async fn stream<S: Source>(
    attempt: &Attempt<'_>,
    mut file: StagingFile,
    first: bytes::Bytes,
    source: &mut S,
    options: &PushOptions,
    progress: &(dyn Fn(u64, Stage) + Send + Sync),
) -> Result<(u64, [u8; 32]), PushError> {
    let deadlines = attempt.pusher.deadlines();
    let mut hasher = Hasher::default();
    let mut gathered: Vec<u8> = Vec::with_capacity(WRITE);
    let mut next = Some(first);
    while let Some(chunk) = next {
        let total = hasher.bytes().saturating_add(chunk.len() as u64);
        if let Some(cap) = options.max_bytes.filter(|cap| total > *cap) {
            return Err(from_source(SourceError::new(
                SourceErrorKind::TooLarge,
                format!("the source delivers more than the {cap} bytes allowed"),
            )));
        }
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let whole = gathered.is_empty() && rest.len() >= WRITE;
            let take = if whole { WRITE } else { rest.len().min(WRITE - gathered.len()) };
            let (piece, after) = rest.split_at(take);
            rest = after;
            hasher.update(piece);
            if whole {
                file.write(piece, deadlines.idle).await?;
                continue;
            }
            gathered.extend_from_slice(piece);
            if gathered.len() == WRITE {
                file.write(&gathered, deadlines.idle).await?;
                gathered.clear();
            }
        }
        progress(hasher.bytes(), Stage::Receive);
        next = next_chunk(source).await?;
    }
    if !gathered.is_empty() {
        file.write(&gathered, deadlines.idle).await?;
    }
    let bytes = hasher.bytes();
    file.finish(deadlines.copy(bytes)).await?;
    Ok((bytes, hasher.finish()))
}

/// `pct push` from the staging file to the temporary sibling, asked again while the container is locked.
async fn copy_into_guest(
    attempt: &mut Attempt<'_>,
    staging: &str,
    temp: &str,
    options: &PushOptions,
    bytes: u64,
) -> Result<(), PushError> {
    const AGAIN_AFTER: Duration = Duration::from_secs(1);
    let vmid = attempt.vmid;
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
        let error = guest_failed(vmid, Step::Push, &output);
        if *error.kind() != PushErrorKind::GuestBusy || Instant::now() + AGAIN_AFTER > patience {
            return Err(error);
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Compares what the guest holds with what the source sent. `Ok(false)` when the guest cannot hash.
fn compare(output: &Output, bytes: u64, sha256: &[u8; 32]) -> Result<bool, PushError> {
    if output.status != 0 {
        return Err(failed(Step::Hash, output));
    }
    let Some((hash, size)) = parse_hash(&output.stdout) else {
        return Err(not_understood(Step::Hash, output));
    };
    if size != bytes {
        return Err(PushError::new(
            PushErrorKind::HashMismatch,
            format!(
                "the guest has {size} of {bytes} bytes after pct push; its file system may be full. The destination is untouched"
            ),
        ));
    }
    match hash {
        None => Ok(false),
        Some(found) if found == hex(sha256) => Ok(true),
        Some(found) => Err(PushError::new(
            PushErrorKind::HashMismatch,
            format!(
                "the guest's copy has SHA-256 {found}, expected {}; it was damaged on the way. The destination is untouched",
                hex(sha256)
            ),
        )),
    }
}

/// `<64 lower-case hex digits or "none"> <size>` and a newline, exactly. The size is plain decimal.
fn parse_hash(stdout: &[u8]) -> Option<(Option<&str>, u64)> {
    let line = std::str::from_utf8(stdout).ok()?;
    let (hash, size) = line.strip_suffix('\n').unwrap_or(line).split_once(' ')?;
    let hash = match hash {
        "none" => None,
        hex if hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => Some(hex),
        _ => return None,
    };
    let number: u64 = size.parse().ok()?;
    (number.to_string() == size).then_some((hash, number))
}

async fn commit(
    attempt: &mut Attempt<'_>,
    temp: &str,
    dest: &Dest,
    overwrite: bool,
) -> Result<(), PushError> {
    let (pusher, vmid) = (attempt.pusher, attempt.vmid);
    let argv = pusher.guest_argv(vmid, COMMIT, &[temp, dest.as_str(), flag(overwrite)]);
    let output = attempt
        .run_tracked(argv, Step::Commit, pusher.deadlines().step)
        .await
        .map_err(|error| still_running(error, "the destination may already hold the new file"))?;
    match word(&output) {
        Some("ok") => Ok(()),
        Some("exists") => Err(exists(dest)),
        Some("is-directory") => Err(is_directory(dest)),
        _ if output.status != 0 => Err(guest_failed(vmid, Step::Commit, &output)),
        _ => Err(not_understood(Step::Commit, &output)),
    }
}

/// An error that leaves a command under way on the node makes the clean-up unconfirmed.
fn still_running(error: PushError, note: &str) -> PushError {
    match error.kind() {
        PushErrorKind::Deadline { .. }
        | PushErrorKind::Connect
        | PushErrorKind::Remote { status: None, .. } => error.leaving(note),
        _ => error,
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

/// A failed command in the guest or about it, by what it complained about. The words are those of `pct`,
/// `lxc-attach` and the C library in the C locale.
fn guest_failed(vmid: u32, step: Step, output: &Output) -> PushError {
    const NOT_THERE: [&str; 5] =
        ["not running", "to a running", "failed to get init pid", "configuration file '", "lxc-attach:"];
    const LOCKED: [&str; 2] = ["can't lock file", "ct is locked"];
    let complaint = output.complaint.to_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| complaint.contains(text));
    let unusable_tool = matches!(output.status, 126 | 127) || complaint.starts_with("sudo:");
    if says(&LOCKED) {
        return PushError::new(
            PushErrorKind::GuestBusy,
            format!(
                "container {vmid} is locked by another task{}; try again later",
                colon(&output.complaint)
            ),
        );
    }
    if says(&NOT_THERE) || (step == Step::Prepare && !unusable_tool) {
        return PushError::new(
            PushErrorKind::GuestUnreachable,
            format!(
                "container {vmid} does not take commands while {step} (status {}){}; check that it runs on this node",
                output.status,
                colon(&output.complaint)
            ),
        );
    }
    failed(step, output)
}

fn failed(step: Step, output: &Output) -> PushError {
    let complaint = output.complaint.to_lowercase();
    if complaint.contains("no space left on device") || complaint.contains("quota exceeded") {
        return PushError::new(
            PushErrorKind::NoSpace,
            format!("no space left while {step}{}; free space and push again", colon(&output.complaint)),
        );
    }
    remote(
        step,
        Some(output.status),
        format!("status {} while {step}{}", output.status, colon(&output.complaint)),
    )
}

fn not_understood(step: Step, output: &Output) -> PushError {
    remote(
        step,
        Some(output.status),
        format!("an answer that is not understood while {step}{}", colon(&output.complaint)),
    )
}

fn from_source(error: SourceError) -> PushError {
    let message = error.to_string();
    PushError::new(PushErrorKind::Source(error), message)
}

fn exists(dest: &Dest) -> PushError {
    PushError::new(
        PushErrorKind::DestExists,
        format!("{:?} exists in the guest; choose another name, or ask for overwrite", dest.as_str()),
    )
}

fn is_directory(dest: &Dest) -> PushError {
    PushError::new(
        PushErrorKind::DestIsDirectory,
        format!("{:?} is a directory in the guest; give the full path of the file", dest.as_str()),
    )
}

/// The single word a script prints, without its newline.
fn word(output: &Output) -> Option<&str> {
    let text = std::str::from_utf8(&output.stdout).ok()?;
    Some(text.strip_suffix('\n').unwrap_or(text))
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

fn hex(hash: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(hash)
}

#[cfg(test)]
mod tests;
