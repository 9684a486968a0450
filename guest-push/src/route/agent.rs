//! Through the QEMU guest agent: parts of 45 KiB, joined, hashed and renamed in the guest.
//!
//! Everything is made in one private directory beside the destination, so that the last rename stays on one file system
//! and one removal cleans everything.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::attempt::random_hex;
use super::guest::{self, BEGIN, COMMIT, DISCARD, HASH, JOIN, LOOK, OWN, PREPARE, Place, write_failed};
use super::intake::{Progress, Sink, next_chunk, pump};
use super::read::{Chunks, Download, looked};
use crate::agent::{AGENT_PART, AgentChannel, AgentError, AgentErrorKind, AgentPusher};
use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::PushOptions;
use crate::receipt::{Receipt, Stage, VerifiedAt};
use crate::source::Source;
use crate::ssh::{Output, printable, remote};

/// This route's name in receipts.
pub(crate) const NAME: &str = "agent";

/// Parts that wait in the guest before they are joined: bounds the space needed beyond the file itself to 2.8 MiB.
const BATCH: u64 = 64;
/// Bytes of one read: below the 16 MiB that the agent answers at most.
const READ: u64 = 1024 * 1024;
/// Longest pause between two questions whether a program has ended.
const POLL_MAX: Duration = Duration::from_millis(500);

const PLACE: Place = Place::Machine;

/// Runs a script in the guest to its end.
async fn run<A: AgentChannel + 'static>(
    pusher: &AgentPusher<A>,
    script: &str,
    arguments: &[&str],
    step: Step,
    deadline: Duration,
) -> Result<Output, PushError> {
    let mut argv = vec!["/bin/sh", "-c", script, "proxward"];
    argv.extend(arguments);
    let ends = Instant::now() + deadline;
    let work = async {
        let pid = pusher.agent().exec(&argv).await.map_err(|error| not_started(step, &error))?;
        let mut pause = Duration::from_millis(20);
        loop {
            let status = pusher.agent().exec_status(pid).await.map_err(|error| failed(step, &error))?;
            if status.exited {
                return ended(step, status);
            }
            sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    };
    timeout_at(ends, work).await.map_err(|_| PushError::deadline(step, deadline))?
}

/// A program without an exit code was killed: that is never success.
fn ended(step: Step, status: crate::agent::ExecStatus) -> Result<Output, PushError> {
    let complaint = printable(&status.stderr);
    match status.exit_code.map(u32::try_from) {
        Some(Ok(code)) => Ok(Output { status: code, stdout: status.stdout, complaint }),
        _ => Err(remote(
            step,
            None,
            format!("the command was killed while {step}{}", crate::ssh::colon(&complaint)),
        )),
    }
}

fn failed(step: Step, error: &AgentError) -> PushError {
    let kind = match error.kind() {
        AgentErrorKind::NotRunning => PushErrorKind::GuestUnreachable,
        AgentErrorKind::Denied => PushErrorKind::Auth,
        AgentErrorKind::Unreachable => PushErrorKind::Connect,
        AgentErrorKind::Failed => PushErrorKind::Remote { step, status: None },
    };
    PushError::new(kind, format!("the guest agent failed while {step}: {error}"))
}

/// A refusal to start a program: other than a lost answer it leaves no doubt.
fn not_started(step: Step, error: &AgentError) -> PushError {
    const NOT_FOUND: u32 = 127;
    match error.kind() {
        AgentErrorKind::Failed => remote(
            step,
            Some(NOT_FOUND),
            format!(
                "the guest agent starts no program while {step}: {error}; this way needs a POSIX shell in the guest"
            ),
        ),
        _ => failed(step, error),
    }
}

async fn prepare<A: AgentChannel + 'static>(
    pusher: &AgentPusher<A>,
    dest: &Dest,
    options: &PushOptions,
    length: Option<u64>,
    stale: Option<Duration>,
) -> Result<(), PushError> {
    let arguments = guest::prepare_arguments(dest, options, length, stale);
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let output = run(pusher, PREPARE, &arguments, Step::Prepare, pusher.deadlines().step).await?;
    guest::prepared(PLACE, dest, &output)
}

/// Asks the guest about the destination without changing anything.
pub(crate) async fn check<A: AgentChannel + 'static>(
    pusher: &AgentPusher<A>,
    dest: &Dest,
    options: &PushOptions,
) -> Result<(), PushError> {
    let looking = PushOptions { mkdir: false, ..options.clone() };
    match prepare(pusher, dest, &looking, None, None).await {
        Err(error) if options.mkdir && *error.kind() == PushErrorKind::NoParent => Ok(()),
        answer => answer,
    }
}

/// The directory of one push; removed on every path, also when it is dropped.
struct Parts<A: AgentChannel + 'static> {
    pusher: AgentPusher<A>,
    runtime: tokio::runtime::Handle,
    directory: Option<String>,
}

impl<A: AgentChannel + 'static> Parts<A> {
    /// Removes the directory. `None` when there is none.
    fn start_removal(&mut self) -> Option<JoinHandle<Result<(), String>>> {
        let directory = self.directory.take()?;
        let pusher = self.pusher.clone();
        Some(self.runtime.spawn(async move {
            let limit = pusher.deadlines().cleanup;
            let removing = async {
                // A second try: the first may have met the end of the command that failed.
                for last in [false, true] {
                    let step = pusher.deadlines().step;
                    let answer = run(&pusher, DISCARD, &[&directory], Step::Cleanup, step).await;
                    match answer {
                        Ok(output) if output.status == 0 => return Ok(()),
                        Ok(output) if last => return Err(guest::failed(Step::Cleanup, &output).to_string()),
                        Err(error) if last => return Err(error.to_string()),
                        _ => {}
                    }
                }
                Ok(())
            };
            let failure = match timeout(limit, removing).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => failure,
                Err(_) => "the agent did not answer".to_owned(),
            };
            tracing::warn!(%directory, %failure, "clean-up through the guest agent not confirmed");
            Err(format!("{directory:?} in the guest may remain: {failure}"))
        }))
    }

    async fn abandon(mut self, error: PushError) -> PushError {
        let Some(removal) = self.start_removal() else { return error };
        match removal.await {
            Ok(Ok(())) => error,
            Ok(Err(note)) => error.leaving(&note),
            Err(lost) => error.leaving(&format!("the clean-up task was lost: {lost}")),
        }
    }
}

impl<A: AgentChannel + 'static> Drop for Parts<A> {
    fn drop(&mut self) {
        // Detached on purpose: the task has its own deadline and logs what it could not do.
        drop(self.start_removal());
    }
}

/// One push from start to end.
pub(crate) async fn push<A: AgentChannel + 'static, S: Source>(
    pusher: &AgentPusher<A>,
    dest: &Dest,
    options: &PushOptions,
    mut source: S,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    progress(0, Stage::Connect);
    let stale = Some(pusher.deadlines().stale_after);
    prepare(pusher, dest, options, source.length(), stale).await?;
    let first = next_chunk(&mut source).await?.ok_or_else(guest::empty)?;
    let directory = dest.sibling(&format!(".pxw-{}.part", random_hex()?));
    let mut parts = Parts {
        pusher: pusher.clone(),
        runtime: tokio::runtime::Handle::current(),
        directory: Some(directory.clone()),
    };
    let outcome = bring(pusher, &directory, first, dest, options, &mut source, progress).await;
    match outcome {
        Ok(receipt) => {
            // The file is in place; what is left is an empty directory, whose removal is logged when it fails.
            if let Some(removal) = parts.start_removal() {
                let _reported = removal.await;
            }
            Ok(receipt)
        }
        Err(error) => Err(parts.abandon(error).await),
    }
}

async fn bring<A: AgentChannel + 'static, S: Source>(
    pusher: &AgentPusher<A>,
    directory: &str,
    first: Bytes,
    dest: &Dest,
    options: &PushOptions,
    source: &mut S,
    progress: Progress<'_>,
) -> Result<Receipt, PushError> {
    let deadlines = pusher.deadlines();
    let begun = run(pusher, BEGIN, &[directory], Step::Staging, deadlines.step).await?;
    if begun.status != 0 {
        return Err(write_failed(PLACE, Step::Staging, &begun));
    }
    let mut sink = PartSink { pusher, directory, written: 0, joined: 0, bytes: 0 };
    let (bytes, sha256) = pump(first, source, &mut sink, AGENT_PART, options, progress).await?;
    guest::expected(options, &sha256)?;

    progress(bytes, Stage::Push);
    sink.join().await?;
    let temp = format!("{directory}/data");
    let (mode, owner) = (options.mode.to_string(), guest::ownership(options));
    let owned = run(pusher, OWN, &[&temp, &mode, &owner], Step::Push, deadlines.step).await?;
    if owned.status != 0 {
        return Err(write_failed(PLACE, Step::Push, &owned));
    }

    progress(bytes, Stage::Verify);
    let limit = deadlines.copy(bytes);
    let hashed = run(pusher, HASH, &[&temp, &limit.as_secs().to_string()], Step::Hash, limit).await?;
    let checksum_verified = guest::compare(&hashed, bytes, &sha256)?;

    progress(bytes, Stage::Commit);
    let arguments = [temp.as_str(), dest.as_str(), guest::flag(options.overwrite)];
    let committed = run(pusher, COMMIT, &arguments, Step::Commit, deadlines.step)
        .await
        .map_err(|error| guest::still_running(error, "the destination may already hold the new file"))?;
    guest::committed(PLACE, dest, &committed)?;
    let verified_at = if checksum_verified { VerifiedAt::Guest } else { VerifiedAt::Nowhere };
    Ok(Receipt::new(bytes, sha256, verified_at, NAME))
}

/// Writes part after part and joins them now and then.
struct PartSink<'a, A> {
    pusher: &'a AgentPusher<A>,
    directory: &'a str,
    written: u64,
    joined: u64,
    bytes: u64,
}

impl<A: AgentChannel + 'static> Sink for PartSink<'_, A> {
    /// Nothing is open between two requests to the agent: the next one shows whether it is there.
    async fn lost(&self) -> PushError {
        std::future::pending().await
    }

    async fn put(&mut self, piece: Bytes) -> Result<(), PushError> {
        let path = format!("{}/{}", self.directory, self.written);
        let deadline = self.pusher.deadlines().step;
        timeout(deadline, self.pusher.agent().write_file(&path, &piece))
            .await
            .map_err(|_| PushError::deadline(Step::Write, deadline))?
            .map_err(|error| {
                let text = error.to_string().to_lowercase();
                if text.contains("no space left") || text.contains("quota exceeded") {
                    let message = format!("the guest has no space left: {error}; free space and push again");
                    return PushError::new(PushErrorKind::NoSpace, message);
                }
                failed(Step::Write, &error)
            })?;
        self.written += 1;
        self.bytes += piece.len() as u64;
        if self.written - self.joined >= BATCH { self.join().await } else { Ok(()) }
    }
}

impl<A: AgentChannel + 'static> PartSink<'_, A> {
    /// Appends the waiting parts to the data and compares its size.
    async fn join(&mut self) -> Result<(), PushError> {
        if self.joined == self.written {
            return Ok(());
        }
        let (from, to) = (self.joined.to_string(), self.written.to_string());
        let deadline = self.pusher.deadlines().copy(self.bytes);
        let output = run(self.pusher, JOIN, &[self.directory, &from, &to], Step::Write, deadline).await?;
        if output.status != 0 {
            return Err(write_failed(PLACE, Step::Write, &output));
        }
        let size = guest::word(&output).and_then(|text| text.parse::<u64>().ok());
        if size != Some(self.bytes) {
            return Err(PushError::new(
                PushErrorKind::HashMismatch,
                format!(
                    "the guest has {} of {} bytes after joining parts. The destination is untouched",
                    size.map_or_else(|| "an unknown number".to_owned(), |size| size.to_string()),
                    self.bytes
                ),
            ));
        }
        self.joined = self.written;
        Ok(())
    }
}

/// Looks at a file and prepares reading it.
pub(crate) async fn open<A: AgentChannel + 'static>(
    pusher: &AgentPusher<A>,
    path: &Dest,
) -> Result<Download, PushError> {
    let deadlines = pusher.deadlines();
    let output = run(pusher, LOOK, &[path.as_str()], Step::Look, deadlines.step).await?;
    let size = looked(PLACE, path, &output)?;
    let limit = deadlines.copy(size);
    let arguments = [path.as_str(), &limit.as_secs().to_string()];
    let hashed = run(pusher, HASH, &arguments, Step::Hash, limit).await?;
    let chunks = AgentChunks { pusher: pusher.clone(), path: path.as_str().to_owned(), size, offset: 0 };
    Download::new(size, &hashed, Box::new(chunks))
}

struct AgentChunks<A> {
    pusher: AgentPusher<A>,
    path: String,
    size: u64,
    offset: u64,
}

impl<A: AgentChannel + 'static> Chunks for AgentChunks<A> {
    fn next(
        &mut self,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Option<Bytes>, PushError>> + Send + '_>> {
        Box::pin(async move {
            let left = self.size.saturating_sub(self.offset);
            if left == 0 {
                return Ok(None);
            }
            let deadline = self.pusher.deadlines().step;
            let agent = Arc::clone(self.pusher.agent());
            let bytes = timeout(deadline, agent.read_file(&self.path, self.offset, left.min(READ)))
                .await
                .map_err(|_| PushError::deadline(Step::Read, deadline))?
                .map_err(|error| failed(Step::Read, &error))?;
            self.offset = self.offset.saturating_add(bytes.len() as u64);
            Ok((!bytes.is_empty()).then_some(bytes))
        })
    }
}
