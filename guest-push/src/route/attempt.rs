//! What one push has made on the node and in the guest, and how it is removed again.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::guest::{self, COMMIT, DISCARD, PREPARE, Place};
use crate::dest::{Dest, MAX_PATH};
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::PushOptions;
use crate::push::Pusher;
use crate::receipt::Receipt;
use crate::ssh::{Feed, Output, Session, Sftp};

/// A push under way. Dropping it while something exists starts the removal in a task of its own, so that a caller
/// who loses interest leaves nothing behind.
pub(crate) struct Attempt<'a> {
    pub(super) pusher: &'a Pusher,
    pub(super) place: Place,
    pub(super) session: Arc<Session>,
    runtime: tokio::runtime::Handle,
    made: Made,
    running: Option<JoinHandle<Result<Output, PushError>>>,
    /// The input of the running command, which waits for its end.
    feed: Option<Feed>,
}

/// Names that may exist. Set before the request that makes them, cleared when their absence is certain.
#[derive(Debug, Default)]
struct Made {
    staging: Option<String>,
    temp: Option<String>,
}

impl Made {
    fn is_nothing(&self) -> bool {
        self.staging.is_none() && self.temp.is_none()
    }
}

impl<'a> Attempt<'a> {
    pub(super) async fn begin(pusher: &'a Pusher, place: Place) -> Result<Self, PushError> {
        let session = Arc::new(pusher.connect().await?);
        let runtime = tokio::runtime::Handle::current();
        Ok(Self { pusher, place, session, runtime, made: Made::default(), running: None, feed: None })
    }

    /// Chooses the staging file's name. Nothing of the caller's text is in it.
    pub(super) fn name_staging(&mut self) -> Result<String, PushError> {
        let path = format!("{}/pxw-{}", self.pusher.target().staging_dir, random_hex()?);
        self.made.staging = Some(path.clone());
        Ok(path)
    }

    /// Takes over a staging file that is there already.
    pub(super) fn adopt_staging(&mut self, path: String) {
        self.made.staging = Some(path);
    }

    /// Chooses the temporary sibling's name.
    pub(super) fn name_temp(&mut self, dest: &Dest) -> Result<String, PushError> {
        let path = dest.sibling(&format!(".pxw-{}.part", random_hex()?));
        self.made.temp = Some(path.clone());
        Ok(path)
    }

    pub(super) fn staging_is_gone(&mut self) {
        self.made.staging = None;
    }

    pub(super) fn temp_is_gone(&mut self) {
        self.made.temp = None;
    }

    /// Runs a command that changes the guest in a task of its own. When the push is dropped meanwhile, the clean-up
    /// waits for the command first: removing a file that `pct push` is about to make would remove nothing.
    pub(super) async fn run_tracked(
        &mut self,
        argv: Vec<Vec<u8>>,
        step: Step,
        deadline: std::time::Duration,
    ) -> Result<Output, PushError> {
        let session = Arc::clone(&self.session);
        let command = self.runtime.spawn(async move { session.run(&argv, step, deadline).await });
        let running = self.running.insert(command);
        let joined = running.await;
        self.running = None;
        joined.unwrap_or_else(|lost| Err(task_lost(step, &lost)))
    }

    /// Asks the guest whether the destination can be written, making parents when told to and removing what earlier
    /// processes forgot beside it.
    pub(super) async fn prepare(
        &self,
        dest: &Dest,
        options: &PushOptions,
        length: Option<u64>,
    ) -> Result<(), PushError> {
        let stale = Some(self.pusher.deadlines().stale_after);
        prepare(self.pusher, &self.session, self.place, dest, options, length, stale).await
    }

    /// Renames the temporary sibling to the destination.
    pub(super) async fn commit(&mut self, temp: &str, dest: &Dest, overwrite: bool) -> Result<(), PushError> {
        let argv = self.pusher.guest_argv(self.place, COMMIT, &[temp, dest.as_str(), guest::flag(overwrite)]);
        let output = self
            .run_tracked(argv, Step::Commit, self.pusher.deadlines().step)
            .await
            .map_err(|error| guest::still_running(error, "the destination may already hold the new file"))?;
        guest::committed(self.place, dest, &output)?;
        self.temp_is_gone();
        Ok(())
    }

    /// Starts a command that is fed by us. It is ended and waited for before anything is removed.
    pub(super) async fn start_feed(&mut self, argv: &[Vec<u8>], step: Step) -> Result<Feed, PushError> {
        let (feed, running) = self.session.feed(argv, step, self.pusher.deadlines().step).await?;
        self.running = Some(running);
        self.feed = Some(feed.clone());
        Ok(feed)
    }

    /// Ends the input and waits for the command.
    pub(super) async fn end_feed(
        &mut self,
        step: Step,
        deadline: std::time::Duration,
    ) -> Result<Output, PushError> {
        if let Some(feed) = &self.feed {
            feed.end().await;
        }
        let Some(running) = &mut self.running else {
            return Err(PushError::new(PushErrorKind::Connect, "no command is under way"));
        };
        let joined = timeout(deadline, running).await.map_err(|_| PushError::deadline(step, deadline))?;
        self.running = None;
        self.feed = None;
        joined.unwrap_or_else(|lost| Err(task_lost(step, &lost)))
    }

    /// The end of a push, good or bad.
    pub(super) async fn conclude(self, outcome: Result<Receipt, PushError>) -> Result<Receipt, PushError> {
        match outcome {
            Ok(receipt) => {
                self.end();
                Ok(receipt)
            }
            Err(error) => Err(self.abandon(error).await),
        }
    }

    /// The push succeeded: nothing is left to remove.
    fn end(mut self) {
        self.made = Made::default();
    }

    /// The push failed: removes what it made, and notes in the error when that could not be confirmed.
    async fn abandon(mut self, error: PushError) -> PushError {
        let Some(removal) = self.start_removal() else {
            return error;
        };
        match removal.await {
            Ok(Ok(())) => error,
            Ok(Err(note)) => error.leaving(&note),
            Err(lost) => error.leaving(&format!("the clean-up task was lost: {lost}")),
        }
    }

    /// Starts the removal, on the runtime the push began on. `None` when there is nothing to remove.
    fn start_removal(&mut self) -> Option<JoinHandle<Result<(), String>>> {
        let made = std::mem::take(&mut self.made);
        if made.is_nothing() {
            return None;
        }
        let removal = Removal {
            pusher: self.pusher.clone(),
            place: self.place,
            session: Arc::clone(&self.session),
            running: self.running.take(),
            feed: self.feed.take(),
            made,
        };
        Some(self.runtime.spawn(removal.run()))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        // Detached on purpose: the task has its own deadline and logs what it could not do.
        drop(self.start_removal());
    }
}

fn task_lost(step: Step, lost: &tokio::task::JoinError) -> PushError {
    let kind = PushErrorKind::Remote { step, status: None };
    PushError::new(kind, format!("the task was lost while {step}: {lost}"))
}

struct Removal {
    pusher: Pusher,
    place: Place,
    session: Arc<Session>,
    running: Option<JoinHandle<Result<Output, PushError>>>,
    feed: Option<Feed>,
    made: Made,
}

impl Removal {
    /// Tries over the push's own connection for half the time, then over a new one.
    async fn run(mut self) -> Result<(), String> {
        let half = self.pusher.deadlines().cleanup / 2;
        let first = timeout(half, self.over_own_connection()).await;
        let failure = match first {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the node did not answer".to_owned(),
        };
        let host = &self.pusher.target().host;
        tracing::debug!(node = %host, place = %self.place, %failure, "clean-up goes on over a new connection");
        let second = async {
            let session = self.pusher.connect().await?;
            remove(&self.pusher, self.place, &session, &mut self.made).await
        };
        let failure = match timeout(half, second).await {
            Ok(Ok(())) if self.running.is_none() => return Ok(()),
            Ok(Ok(())) => "a command is still at work on the node".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the node did not answer".to_owned(),
        };
        let left = self.left();
        tracing::warn!(node = %self.pusher.target().host, place = %self.place, %left, %failure, "clean-up not confirmed");
        Err(format!("{left} may remain: {failure}"))
    }

    async fn over_own_connection(&mut self) -> Result<(), PushError> {
        if let Some(feed) = self.feed.take() {
            // It ends when its input does.
            feed.end().await;
        }
        if let Some(running) = &mut self.running {
            // Its outcome changes nothing: whatever it made is removed next.
            let _ended = running.await;
            self.running = None;
        }
        remove(&self.pusher, self.place, &self.session, &mut self.made).await
    }

    fn left(&self) -> String {
        let staging = self.made.staging.as_ref().map(|path| format!("{path} on the node"));
        let temp = self.made.temp.as_ref().map(|path| format!("{path:?} in {}", self.place));
        let names: Vec<String> = [staging, temp].into_iter().flatten().collect();
        if names.is_empty() { "a temporary file".to_owned() } else { names.join(" and ") }
    }
}

/// Removes the temporary sibling and the staging file, at the same time: when the guest does not answer, the node
/// may, and the other way round.
async fn remove(pusher: &Pusher, place: Place, session: &Session, made: &mut Made) -> Result<(), PushError> {
    let step = pusher.deadlines().step;
    let Made { staging, temp } = made;
    let in_guest = async {
        let Some(path) = temp.as_ref() else { return Ok(()) };
        let output = pusher.in_guest(session, place, DISCARD, &[path], Step::Cleanup, step).await?;
        if output.status != 0 {
            return Err(guest::guest_failed(place, Step::Cleanup, &output));
        }
        *temp = None;
        Ok(())
    };
    let on_node = async {
        let Some(path) = staging.as_ref() else { return Ok(()) };
        Sftp::open(session, step).await?.remove(path).await?;
        *staging = None;
        Ok(())
    };
    let (in_guest, on_node) = tokio::join!(in_guest, on_node);
    in_guest.and(on_node)
}

/// Asks a guest whether a destination can be written.
pub(crate) async fn prepare(
    pusher: &Pusher,
    session: &Session,
    place: Place,
    dest: &Dest,
    options: &PushOptions,
    length: Option<u64>,
    stale: Option<std::time::Duration>,
) -> Result<(), PushError> {
    let arguments = guest::prepare_arguments(dest, options, length, stale);
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let deadline = pusher.deadlines().step;
    let output = pusher.in_guest(session, place, PREPARE, &arguments, Step::Prepare, deadline).await?;
    guest::prepared(place, dest, &output)
}

/// 128 random bits as 32 lower-case hexadecimal digits.
pub(crate) fn random_hex() -> Result<String, PushError> {
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).map_err(|error| {
        PushError::new(PushErrorKind::Target, format!("this system gives no random numbers: {error}"))
    })?;
    Ok(data_encoding::HEXLOWER.encode(&bits))
}

/// Length of a temporary sibling's name: `.pxw-`, 32 digits, `.part`.
const TEMP_NAME: usize = 42;

/// Refuses a destination whose temporary sibling would have too long a path.
pub(crate) fn check_sibling_fits(dest: &Dest) -> Result<(), PushError> {
    let parent = dest.parent().len();
    if parent + 1 + TEMP_NAME <= MAX_PATH {
        return Ok(());
    }
    Err(PushError::new(
        PushErrorKind::Target,
        format!(
            "the directory of the destination is {parent} bytes long, which leaves no room for a temporary name in it"
        ),
    ))
}
