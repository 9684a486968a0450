//! The one thread that touches the change-set store.
//!
//! The store is synchronous and wants one writer. Everything that reads or writes it is a closure sent here and run in order, so
//! that a check and the write that depends on it are one step.

use changeset::Store;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&mut dyn Store) + Send>;

/// A handle on the store's thread. The thread ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct StoreThread {
    jobs: std::sync::mpsc::Sender<Job>,
}

/// The store's thread is gone, which only happens while the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the state store has been closed; the server is stopping")]
pub struct StoreClosed;

impl StoreThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(mut store: impl Store + 'static) -> std::io::Result<Self> {
        let (jobs, inbox) = std::sync::mpsc::channel::<Job>();
        std::thread::Builder::new().name("state-store".to_owned()).spawn(move || {
            for job in inbox {
                job(&mut store);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs `job` on the store and gives back what it returns. Dropping the future does not undo the job.
    ///
    /// # Errors
    /// [`StoreClosed`].
    pub async fn with<T, F>(&self, job: F) -> Result<T, StoreClosed>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Store) -> T + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |store| {
            // Nobody waiting any more is no reason to stop.
            let _ = answer.send(job(store));
        });
        self.jobs.send(job).map_err(|_| StoreClosed)?;
        answered.await.map_err(|_| StoreClosed)
    }
}
