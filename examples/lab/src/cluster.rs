//! One running cluster: its state, its faults, its record of requests and its workers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::fault::FaultBook;
use crate::recorded::Recorded;
use crate::state::guest::Guest;
use crate::state::task::{Task, TaskExit};
use crate::state::{State, now};

/// See the module.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    state: Mutex<State>,
    pub(crate) faults: FaultBook,
    recorded: Mutex<Vec<Recorded>>,
    effects: Mutex<Vec<(String, String)>>,
    /// Owner and group of the files that `pct push` made, by their path on the host. The lab cannot chown.
    owners: Mutex<BTreeMap<PathBuf, (u32, u32)>>,
    task_duration: Mutex<Duration>,
    tasks_held: watch::Sender<bool>,
    /// Changes whenever a request takes effect, a task ends or the state is changed by command.
    changed: watch::Sender<u64>,
    pub(crate) auth_delay: Duration,
    /// The folder that holds the file systems of this cluster's guests and nodes.
    pub(crate) root: PathBuf,
}

/// What a worker does at its end: the log lines and the exit on success, or the error text.
pub(crate) type Work = Box<dyn FnOnce(&mut State) -> Result<Done, String> + Send>;

/// What a worker did.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) log: Vec<String>,
    /// A task that another daemon starts afterwards (HA).
    pub(crate) then: Option<Spawn>,
}

/// A worker to start.
pub(crate) struct Spawn {
    pub(crate) node: String,
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) who: String,
    /// The guest that is locked while it runs, and the word in the lock.
    pub(crate) lock: Option<(u32, &'static str)>,
    pub(crate) work: Work,
}

impl std::fmt::Debug for Spawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spawn({} {} on {} by {})", self.kind, self.id, self.node, self.who)
    }
}

impl Cluster {
    pub(crate) fn new(state: State, task_duration: Duration, auth_delay: Duration, root: PathBuf) -> Cluster {
        Cluster {
            name: state.cluster.clone(),
            state: Mutex::new(state),
            faults: FaultBook::default(),
            recorded: Mutex::default(),
            effects: Mutex::default(),
            owners: Mutex::default(),
            task_duration: Mutex::new(task_duration),
            tasks_held: watch::Sender::new(false),
            changed: watch::Sender::new(0),
            auth_delay,
            root,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, request: Recorded) {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn clear_recorded(&self) {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes that a mutating request was accepted: a worker was started or something was changed.
    pub(crate) fn took_effect(&self, method: &str, path: &str) {
        self.effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((method.to_owned(), path.to_owned()));
        self.announce_change();
    }

    pub(crate) fn effects(&self) -> Vec<(String, String)> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_owner(&self, path: &Path, user: u32, group: u32) {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), (user, group));
    }

    pub(crate) fn move_owner(&self, from: &Path, to: &Path) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = owners.remove(from) {
            owners.insert(to.to_owned(), owner);
        }
    }

    pub(crate) fn owner(&self, path: &Path) -> (u32, u32) {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or((0, 0))
    }

    pub(crate) fn set_task_duration(&self, duration: Duration) {
        *self.task_duration.lock().unwrap_or_else(PoisonError::into_inner) = duration;
    }

    pub(crate) fn hold_tasks(&self, held: bool) {
        self.tasks_held.send_replace(held);
    }

    pub(crate) fn announce_change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The folder of a node's file system.
    pub(crate) fn node_root(&self, node: &str) -> PathBuf {
        self.root.join("nodes").join(node)
    }

    /// The folder of a guest's file system; another one after the guest was recreated.
    pub(crate) fn guest_root(&self, vmid: u32) -> PathBuf {
        let generation = self.state().guests.get(&vmid).map_or(0, |guest| guest.generation);
        guest_folder(&self.root, vmid, generation)
    }

    /// Starts a worker and returns its UPID.
    pub(crate) fn spawn(self: &Arc<Self>, state: &mut State, spawn: Spawn) -> String {
        let pid = state.next_pid();
        let task = Task::new(&spawn.node, pid, now(), &spawn.kind, &spawn.id, &spawn.who);
        let upid = task.upid.clone();
        state.tasks.push(task);
        let mut work = spawn.work;
        if let Some((vmid, word)) = spawn.lock {
            match state.guests.get(&vmid).and_then(Guest::lock_error) {
                Some(error) => work = Box::new(move |_| Err(error)),
                None => state.lock(&upid, vmid, word),
            }
        }
        let forced = state.next_exits.pop_front();
        let cluster = self.clone();
        let duration = *self.task_duration.lock().unwrap_or_else(PoisonError::into_inner);
        let worker_upid = upid.clone();
        tokio::spawn(async move { cluster.work(worker_upid, duration, work, forced).await });
        upid
    }

    async fn work(self: Arc<Self>, upid: String, duration: Duration, work: Work, forced: Option<TaskExit>) {
        tokio::time::sleep(duration).await;
        let mut held = self.tasks_held.subscribe();
        let _ = held.wait_for(|held| !*held).await;
        {
            let mut state = self.state();
            let stopped =
                state.tasks.iter().find(|task| task.upid == upid).is_none_or(|task| !task.is_running());
            if stopped {
                return;
            }
            state.unlock(&upid);
            let outcome = match &forced {
                Some(TaskExit::Failed(text)) => Err(text.clone()),
                _ => work(&mut state),
            };
            let (log, status, then) = match outcome {
                Ok(done) => (done.log, forced.unwrap_or(TaskExit::Ok).status(), done.then),
                Err(text) => (Vec::new(), text, None),
            };
            if let Some(task) = state.tasks.iter_mut().find(|task| task.upid == upid) {
                task.log.extend(log);
                task.finish(now(), status);
            }
            if let Some(then) = then {
                self.spawn(&mut state, then);
            }
        }
        self.announce_change();
    }
}

/// The folder of one generation of a guest.
pub(crate) fn guest_folder(root: &Path, vmid: u32, generation: u32) -> PathBuf {
    root.join("guests").join(format!("{vmid}.{generation}"))
}
