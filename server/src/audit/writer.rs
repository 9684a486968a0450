//! The thread that owns the audit file.
//!
//! Callers hand records over a bounded channel. The thread takes what has queued up, writes it with one
//! `write`, and syncs once when anybody in that batch asked for durability (group commit). A record nobody waits
//! for may lie in the queue for 20 ms, so that a stream of reads does not wake the thread, and enter the
//! kernel, once a call; whatever is waited for ends that at once and takes along what lay there. An error poisons the
//! trail: nothing is written and nothing durable is promised until the file is opened anew with
//! [`Audit::reopen`]. A failed `fdatasync` is never tried again on the same descriptor, because the kernel may
//! already have dropped the pages it failed to write.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::{mpsc, oneshot};

use super::chain::{self, Head, Members, Times, VerifyError};
use super::checkpoint::{self, CheckpointError};
use super::file::LogFile;
use super::record::{Event, Record};
use super::redact::Redactor;
use crate::clock::Clock;
use crate::files::FileError;
use crate::keys::Key;

/// Records that may wait for the writer before callers wait too.
const QUEUE: usize = 4096;
/// How long the writer leaves records in the queue that nobody waits for.
const LINGER: Duration = Duration::from_millis(20);
/// Most records, and about how many bytes, written in one go.
const BATCH_RECORDS: usize = 512;
const BATCH_BYTES: usize = 1024 * 1024;
/// How far the checkpoint may lag behind while records come in.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);

/// A record's number in the chain.
pub type Seq = u64;

/// Where the trail goes and how.
#[derive(Debug)]
pub struct AuditConfig {
    /// The file; its directory must exist.
    pub path: PathBuf,
    /// Seals the checkpoint.
    pub key: Key,
    /// `--audit-redact`.
    pub redactor: Redactor,
}

/// Why a record was not taken.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Writing failed earlier, or just now.
    #[error(
        "the audit trail cannot be written ({reason}): put the cause right, then reload (SIGHUP) to open the file \
         anew; until then nothing is changed on any cluster"
    )]
    Poisoned {
        /// What failed.
        reason: String,
    },
    /// The writer has ended; the server is stopping.
    #[error("the audit trail is closed: the server is stopping")]
    Stopped,
}

/// Why the trail was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be opened, or others can reach it.
    #[error(transparent)]
    File(#[from] FileError),
    /// A record in it is wrong.
    #[error("{0}; keep the file as evidence: move it away, and the chain goes on in a new one")]
    Verify(#[from] VerifyError),
    /// Its checkpoint is not usable.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Another process writes to it.
    #[error("{} is being written by another process: give each server its own --audit-log-file", .0.display())]
    Busy(PathBuf),
    /// The file found at the path does not continue the chain that this process holds.
    #[error("{} does not continue the trail: {problem}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// No random bytes for a new chain's id, or no thread.
    #[error("cannot start the audit trail: {0}")]
    System(std::io::Error),
    /// The file could not be written to.
    #[error(transparent)]
    Write(#[from] AuditError),
}

/// A handle to the trail; clone it freely.
#[derive(Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

struct Shared {
    to_writer: mpsc::Sender<Command>,
    poisoned: Arc<ArcSwapOption<String>>,
    head: Arc<ArcSwapOption<Head>>,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    writer: Thread,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("poisoned", &self.poisoned()).finish_non_exhaustive()
    }
}

enum Command {
    Append { members: Members, times: Times, durable: Option<oneshot::Sender<Result<Seq, AuditError>>> },
    Reopen(oneshot::Sender<Result<(), OpenError>>),
    Stop(oneshot::Sender<()>),
}

impl Audit {
    /// Opens the trail: verifies what is there, cuts off a torn last line (and records that), goes on with the
    /// chain or begins one, and starts the writer. Blocks on the disk; the lock of the state directory is held.
    pub fn open(config: AuditConfig, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let AuditConfig { path, key, redactor } = config;
        let poisoned = Arc::new(ArcSwapOption::empty());
        let head = Arc::new(ArcSwapOption::empty());
        let mut writer =
            Writer::open(path, key, Arc::clone(&clock), Arc::clone(&poisoned), Arc::clone(&head))?;
        let (to_writer, from_callers) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(from_callers))
            .map_err(OpenError::System)?;
        let (writer, thread) = (thread.thread().clone(), std::sync::Mutex::new(Some(thread)));
        Ok(Self { shared: Arc::new(Shared { to_writer, poisoned, head, clock, redactor, writer, thread }) })
    }

    /// Appends a record and returns its number once it is on the disk. Nothing it announces may be done before.
    pub async fn append_durable(&self, record: Record) -> Result<Seq, AuditError> {
        let (ack, acked) = oneshot::channel();
        self.send(record, Some(ack)).await?;
        acked.await.map_err(|_| AuditError::Stopped)?
    }

    /// Hands a record to the writer, in order with all others, and does not wait for the disk.
    pub fn append(&self, record: Record) -> impl Future<Output = Result<(), AuditError>> + Send + '_ {
        self.send(record, None)
    }

    /// Takes the record apart at once, so that the future does not carry it.
    fn send(
        &self,
        record: Record,
        durable: Option<oneshot::Sender<Result<Seq, AuditError>>>,
    ) -> impl Future<Output = Result<(), AuditError>> + Send + '_ {
        let command = self.prepare(record, durable);
        async move { self.shared.hand_over(command?).await }
    }

    /// [`Audit::append`] for places that cannot wait (a destructor); refused when the queue is full.
    pub fn try_append(&self, record: Record) -> Result<(), AuditError> {
        let command = self.prepare(record, None)?;
        let sent = self.shared.to_writer.try_send(command);
        self.shared.wake_before_the_queue_is_full();
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                AuditError::Poisoned { reason: "too many records are waiting for the disk".to_owned() }
            }
            mpsc::error::TrySendError::Closed(_) => AuditError::Stopped,
        })
    }

    fn prepare(
        &self,
        mut record: Record,
        durable: Option<oneshot::Sender<Result<Seq, AuditError>>>,
    ) -> Result<Command, AuditError> {
        if let Some(reason) = self.poisoned() {
            return Err(AuditError::Poisoned { reason });
        }
        let times = Times { wall: self.shared.clock.now(), monotonic: self.shared.clock.monotonic() };
        self.shared.redactor.apply(&mut record);
        record.bound();
        let members =
            Members::of(&record).map_err(|error| AuditError::Poisoned { reason: error.to_string() })?;
        Ok(Command::Append { members, times, durable })
    }

    /// Why mutations are refused, when they are.
    pub fn poisoned(&self) -> Option<String> {
        self.shared.poisoned.load().as_ref().map(|reason| reason.to_string())
    }

    /// Where the chain stands on the disk or on its way there.
    pub fn head(&self) -> Option<Head> {
        self.shared.head.load().as_deref().cloned()
    }

    /// Opens the path anew: after `logrotate` renamed the file, or to recover a poisoned trail. When the new
    /// file cannot be used, a trail that was healthy goes on in the old one.
    pub async fn reopen(&self) -> Result<(), OpenError> {
        let (ack, acked) = oneshot::channel();
        self.shared.hand_over(Command::Reopen(ack)).await?;
        acked.await.map_err(|_| OpenError::Write(AuditError::Stopped))?
    }

    /// Writes what is queued, syncs, seals the checkpoint and ends the writer.
    pub async fn stop(&self) {
        let (ack, acked) = oneshot::channel();
        if self.shared.hand_over(Command::Stop(ack)).await.is_ok() {
            // An error only says that the thread is gone already.
            let _ = acked.await;
        }
    }
}

impl Shared {
    async fn hand_over(&self, command: Command) -> Result<(), AuditError> {
        let waited_for = command.is_waited_for();
        self.to_writer.send(command).await.map_err(|_| AuditError::Stopped)?;
        if waited_for {
            self.writer.unpark();
        }
        self.wake_before_the_queue_is_full();
        Ok(())
    }

    fn wake_before_the_queue_is_full(&self) {
        if self.to_writer.capacity() < QUEUE / 2 {
            self.writer.unpark();
        }
    }
}

impl Command {
    fn is_waited_for(&self) -> bool {
        !matches!(self, Command::Append { durable: None, .. })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread ends by itself when the channel closes; the last records are on their way to the disk.
        let (closed, _) = mpsc::channel(1);
        self.to_writer = closed;
        self.writer.unpark();
        let thread = self.thread.get_mut().ok().and_then(Option::take);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The state of the writing thread.
struct Writer {
    log: LogFile,
    head: Head,
    key: Key,
    clock: Arc<dyn Clock>,
    poisoned: Arc<ArcSwapOption<String>>,
    shared_head: Arc<ArcSwapOption<Head>>,
    checkpointed: (u64, Instant),
    /// The room of the last batch, for the next.
    spare: Vec<u8>,
}

type Waiting = Vec<(Seq, oneshot::Sender<Result<Seq, AuditError>>)>;

impl Writer {
    fn open(
        path: PathBuf,
        key: Key,
        clock: Arc<dyn Clock>,
        poisoned: Arc<ArcSwapOption<String>>,
        shared_head: Arc<ArcSwapOption<Head>>,
    ) -> Result<Self, OpenError> {
        let known = checkpoint::load(&path, &key)?;
        let mut log = LogFile::open(&path)?;
        let mut first = Vec::new();
        let head = if log.is_empty() {
            match known {
                Some(known) => {
                    let (head, file) = super::file::rotated_head(&path, known);
                    first.push(continuation(&head, file));
                    head
                }
                None => {
                    let mut id = [0u8; 16];
                    getrandom::fill(&mut id)
                        .map_err(|error| OpenError::System(std::io::Error::other(error)))?;
                    let chain = data_encoding::HEXLOWER.encode(&id);
                    first.push(Record::new(Event::Genesis).detail("chain", chain.clone()));
                    Head { chain, seq: 0, hash: chain::NO_HASH }
                }
            }
        } else {
            let (head, repair) = log.verify(known.as_ref())?;
            first.extend(repair);
            head
        };
        first.push(
            Record::new(Event::Restart)
                .detail("pid", std::process::id())
                .detail("version", env!("CARGO_PKG_VERSION")),
        );
        let mut writer = Self {
            log,
            head,
            key,
            clock,
            poisoned,
            shared_head,
            checkpointed: (0, Instant::now()),
            spare: Vec::new(),
        };
        writer.write_own(first)?;
        Ok(writer)
    }

    fn run(&mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.blocking_recv() {
            if !command.is_waited_for() && commands.len() < BATCH_RECORDS {
                // Parked, not receiving: handing a record over wakes nobody meanwhile.
                std::thread::park_timeout(LINGER);
            }
            let mut next = Some(command);
            let mut batch = Batch { bytes: std::mem::take(&mut self.spare), ..Batch::default() };
            while let Some(command) = next.take() {
                match command {
                    Command::Append { members, times, durable } => {
                        self.add(&mut batch, &members, times, durable);
                        if batch.records < BATCH_RECORDS && batch.bytes.len() < BATCH_BYTES {
                            next = commands.try_recv().ok();
                        }
                    }
                    Command::Reopen(ack) => {
                        self.flush(std::mem::take(&mut batch));
                        let result = self.reopen();
                        // The caller may have gone; the file is open all the same.
                        let _ = ack.send(result);
                    }
                    Command::Stop(ack) => {
                        self.flush(std::mem::take(&mut batch));
                        self.close();
                        // Refuse what comes later before anybody is told that the trail is closed.
                        commands.close();
                        // Whoever was told of the end may open the file at once.
                        self.log.unlock();
                        let _ = ack.send(());
                        return;
                    }
                }
            }
            self.flush(batch);
            if self.checkpointed.1.elapsed() >= CHECKPOINT_EVERY {
                self.checkpoint();
            }
        }
        self.close();
    }

    fn add(
        &mut self,
        batch: &mut Batch,
        members: &Members,
        times: Times,
        durable: Option<oneshot::Sender<Result<Seq, AuditError>>>,
    ) {
        let before = batch.bytes.len();
        let follows = batch.head.as_ref().unwrap_or(&self.head);
        match chain::seal(follows, members, times, &mut batch.bytes) {
            Ok(head) => {
                batch.records += 1;
                batch.waiting.extend(durable.map(|ack| (head.seq, ack)));
                batch.head = Some(head);
            }
            Err(error) => {
                batch.bytes.truncate(before);
                if let Some(ack) = durable {
                    let _ = ack.send(Err(AuditError::Poisoned { reason: error.to_string() }));
                }
            }
        }
    }

    /// Writes a batch, syncs it if anybody waits for that, and answers those who wait.
    fn flush(&mut self, batch: Batch) {
        let Some(head) = batch.head else { return };
        let durable = !batch.waiting.is_empty();
        let result = match self.poison_reason() {
            Some(reason) => Err(reason),
            None => self.log.append(&batch.bytes, durable),
        };
        match result {
            Ok(()) => {
                self.advance(head);
                answer(batch.waiting, Ok);
            }
            Err(reason) => {
                self.poison(&reason);
                answer(batch.waiting, |_| Err(AuditError::Poisoned { reason: reason.clone() }));
            }
        }
        self.spare = batch.bytes;
        self.spare.clear();
    }

    fn advance(&mut self, head: Head) {
        self.head = head;
        self.shared_head.store(Some(Arc::new(self.head.clone())));
    }

    fn poison_reason(&self) -> Option<String> {
        self.poisoned.load().as_ref().map(|reason| reason.to_string())
    }

    fn poison(&self, reason: &str) {
        if self.poison_reason().is_none() {
            tracing::error!(file = %self.log.path().display(), reason, "the audit trail is poisoned: nothing is changed until it is reopened");
            self.poisoned.store(Some(Arc::new(reason.to_owned())));
        }
    }

    /// Writes records of the writer's own, durably, followed by a checkpoint.
    fn write_own(&mut self, records: Vec<Record>) -> Result<(), AuditError> {
        let mut bytes = Vec::new();
        let mut head = self.head.clone();
        for mut record in records {
            record.bound();
            let times = Times { wall: self.clock.now(), monotonic: self.clock.monotonic() };
            head = Members::of(&record)
                .and_then(|members| chain::seal(&head, &members, times, &mut bytes))
                .map_err(|error| AuditError::Poisoned { reason: error.to_string() })?;
        }
        self.log.append(&bytes, true).map_err(|reason| AuditError::Poisoned { reason })?;
        self.advance(head);
        self.checkpoint();
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        let poisoned = self.poison_reason();
        if poisoned.is_none() {
            if self.log.is_still_at_its_path()? {
                return Ok(());
            }
            // What is still in the old file must be durable before the chain goes on elsewhere.
            if let Err(reason) = self.log.append(&[], true) {
                self.poison(&reason);
                return Err(AuditError::Poisoned { reason }.into());
            }
        }
        let same_file = self.log.is_still_at_its_path().unwrap_or(false);
        let old_name = if same_file { None } else { self.log.current_name() };
        // Two descriptors of one file exclude each other by the lock, so the old one gives it up first.
        self.log.unlock();
        let opened = LogFile::open(self.log.path()).and_then(|mut log| {
            let mut first = Vec::new();
            let mut head = self.head.clone();
            if log.is_empty() {
                first.push(continuation(&head, old_name));
            } else {
                // Either the poisoned file itself, with or without the batch that failed, or nothing of ours.
                let (found, repair) = log.verify(Some(&self.head))?;
                head = found;
                first.extend(repair);
            }
            Ok((log, head, first))
        });
        let (log, head, mut first) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.log.relock();
                return Err(error);
            }
        };
        if let Some(reason) = &poisoned {
            first.push(Record::new(Event::Recovered).reason(reason.as_str()));
        }
        self.log = log;
        self.head = head;
        match self.write_own(first) {
            Ok(()) => {
                self.poisoned.store(None);
                Ok(())
            }
            Err(error) => {
                self.poison(&error.to_string());
                Err(error.into())
            }
        }
    }

    fn checkpoint(&mut self) {
        self.checkpointed.1 = Instant::now();
        if self.checkpointed.0 == self.head.seq {
            return;
        }
        // The note must never run ahead of what is durable.
        let stored = self.log.append(&[], true).and_then(|()| {
            checkpoint::store(self.log.path(), &self.key, &self.head).map_err(|e| e.to_string())
        });
        match stored {
            Ok(()) => self.checkpointed.0 = self.head.seq,
            Err(reason) => self.poison(&reason),
        }
    }

    fn close(&mut self) {
        if self.poison_reason().is_none() {
            self.checkpoint();
        }
    }
}

/// The first record of a file that goes on with a chain.
fn continuation(head: &Head, previous: Option<String>) -> Record {
    Record::new(Event::Continue)
        .detail("chain", head.chain.clone())
        .detail("prev_file", previous)
        .detail("prev_hash", data_encoding::HEXLOWER.encode(&head.hash))
}

fn answer(waiting: Waiting, result: impl Fn(Seq) -> Result<Seq, AuditError>) {
    for (seq, ack) in waiting {
        // A caller that went away has its record all the same.
        let _ = ack.send(result(seq));
    }
}

/// Lines that are written together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: usize,
    head: Option<Head>,
    waiting: Waiting,
}

#[cfg(test)]
mod tests;
