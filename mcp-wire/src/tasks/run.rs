//! Tasks as they run: started by a service, polled, answered and cancelled by their caller.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::{Store, TaskOptions, TaskRecord, TaskStatus, unknown_task};
use crate::{
    CancelHandle, CancelSignal, ClientCapabilities, Input, InputRequest, Method, Reply, RpcError, ToolResult,
    events::Events,
    input::{MAX_QUESTIONS, TASKS_EXTENSION},
};

/// What a waiting task is told: the answer to one of its questions.
type Answer = oneshot::Sender<Map<String, Value>>;

/// The store and the tasks of this process that run.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    store: Arc<dyn Store>,
    running: Arc<Mutex<HashMap<String, Running>>>,
    events: Option<Events>,
}

#[derive(Debug)]
struct Running {
    cancel: CancelHandle,
    answers: HashMap<String, Answer>,
}

impl Desk {
    pub(crate) fn new(store: Arc<dyn Store>, events: Option<Events>) -> Self {
        Self { store, running: Arc::default(), events }
    }

    pub(crate) fn tell(&mut self, events: Events) {
        self.events = Some(events);
    }

    /// What a call of `owner` may use to start tasks.
    pub(crate) fn for_call(&self, owner: &str, client: &ClientCapabilities) -> Tasks {
        Tasks { desk: self.clone(), owner: owner.to_owned(), client: client.clone() }
    }

    /// Whether `owner` has a task of that id.
    pub(crate) fn owns(&self, owner: &str, id: &str) -> bool {
        self.find(owner, id).is_ok()
    }

    /// Answers `tasks/get`, `tasks/update` and `tasks/cancel` of `owner`.
    pub(crate) fn answer(
        &self,
        owner: &str,
        client: &ClientCapabilities,
        method: Method,
    ) -> Result<Reply, RpcError> {
        if !client.tasks() {
            return Err(RpcError::missing_capability(json!({"extensions": {TASKS_EXTENSION: {}}})));
        }
        match method {
            Method::TasksGet { id } => self.find(owner, &id).map(Reply::TaskState),
            Method::TasksUpdate { id, responses } => {
                self.find(owner, &id)?;
                self.update(&id, responses);
                Ok(Reply::Done)
            }
            Method::TasksCancel { id } => {
                self.find(owner, &id)?;
                self.cancel(&id);
                Ok(Reply::Done)
            }
            other => Err(RpcError::method_not_found(other.as_str())),
        }
    }

    fn find(&self, owner: &str, id: &str) -> Result<TaskRecord, RpcError> {
        let found = self.store.load(id, Timestamp::now()).filter(|task| task.owner == owner);
        found.ok_or_else(|| unknown_task(id))
    }

    /// Gives answers to the questions they are for. Others are ignored, so that an answer sent twice does no harm.
    fn update(&self, id: &str, responses: Map<String, Value>) {
        let mut answers = Vec::new();
        if let Some(running) = self.lock().get_mut(id) {
            for (key, response) in responses {
                if let (Some(answer), Value::Object(response)) = (running.answers.remove(&key), response) {
                    answers.push((key, answer, response));
                }
            }
        }
        self.change(id, |task| {
            for (key, ..) in &answers {
                task.requests.remove(key);
            }
            if task.requests.is_empty() && task.status == TaskStatus::InputRequired {
                task.status = TaskStatus::Working;
            }
        });
        // After the record, so that the task finds it as it must be when it goes on.
        for (_, answer, response) in answers {
            let _ = answer.send(response);
        }
    }

    fn cancel(&self, id: &str) {
        self.change(id, |task| {
            task.status = TaskStatus::Cancelled;
            task.requests.clear();
        });
        if let Some(running) = self.lock().remove(id) {
            running.cancel.cancel();
        }
    }

    fn change(&self, id: &str, mut change: impl FnMut(&mut TaskRecord)) -> Option<TaskRecord> {
        let changed = self.store.change(id, Timestamp::now(), &mut change)?;
        if let Some(events) = &self.events {
            events.task(changed.clone());
        }
        Some(changed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts tasks for one call. Present when the server keeps tasks and the client understands them.
#[derive(Clone, Debug)]
pub struct Tasks {
    desk: Desk,
    owner: String,
    client: ClientCapabilities,
}

impl Tasks {
    /// Starts `run` as a task and gives the reply that says so. The task is kept before this returns. It runs to
    /// its end whatever the client does; when it is cancelled or past its lifetime it is told by
    /// [`Task::cancelled`], and what it answers then is dropped.
    ///
    /// # Errors
    /// When the store does not take it; `run` is then not called.
    pub fn start<F, R>(&self, options: TaskOptions, run: F) -> Result<Reply, RpcError>
    where
        F: FnOnce(Task) -> R,
        R: Future<Output = Result<ToolResult, RpcError>> + Send + 'static,
    {
        let mut entropy = [0; 16];
        getrandom::fill(&mut entropy).map_err(|_| RpcError::internal("the system has no random bytes"))?;
        let id = data_encoding::BASE32_NOPAD.encode(&entropy).to_ascii_lowercase();
        let now = Timestamp::now();
        let record = TaskRecord::new(id.clone(), self.owner.clone(), options, now);
        self.desk.store.insert(record.clone(), now).map_err(|error| RpcError::internal(error.to_string()))?;
        let (cancel, signal) = CancelSignal::pair();
        let running = Running { cancel: cancel.clone(), answers: HashMap::new() };
        self.desk.lock().insert(id.clone(), running);
        let task = Task {
            id: id.clone(),
            desk: self.desk.clone(),
            client: self.client.clone(),
            signal,
            asked: Arc::default(),
        };
        let desk = self.desk.clone();
        let work = tokio::spawn(run(task));
        tokio::spawn(async move {
            let mut work = work;
            let joined = tokio::select! {
                joined = &mut work => joined,
                () = tokio::time::sleep(options.lifetime) => {
                    cancel.cancel();
                    desk.lock().remove(&id);
                    // The record is past its lifetime; what the work still does is its own to finish.
                    return;
                }
            };
            let outcome = joined.unwrap_or_else(|_| {
                Err(RpcError::internal("the server failed while it ran this task; see its log"))
            });
            desk.change(&id, |task| {
                task.status = if outcome.is_ok() { TaskStatus::Completed } else { TaskStatus::Failed };
                task.requests.clear();
                task.outcome = Some(outcome.clone());
            });
            desk.lock().remove(&id);
        });
        Ok(Reply::Task(record))
    }
}

/// The task was cancelled, or cannot ask: it should stop.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskStopped {
    /// Cancelled, or past its lifetime.
    #[error("the task was cancelled")]
    Cancelled,
    /// The client did not declare that it can be asked this.
    #[error("the client cannot be asked what this task must know")]
    Unable(RpcError),
}

impl From<TaskStopped> for RpcError {
    fn from(stopped: TaskStopped) -> Self {
        match stopped {
            TaskStopped::Cancelled => Self::internal("the task was cancelled"),
            TaskStopped::Unable(error) => error,
        }
    }
}

/// A running task, from the inside.
#[derive(Debug)]
pub struct Task {
    id: String,
    desk: Desk,
    client: ClientCapabilities,
    signal: CancelSignal,
    asked: Arc<Mutex<usize>>,
}

impl Task {
    /// The task's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Completes when the task is cancelled or past its lifetime; otherwise never.
    pub async fn cancelled(&self) {
        self.signal.cancelled().await;
    }

    /// Says what the task does just now.
    pub fn status(&self, message: impl Into<String>) {
        let message = message.into();
        self.desk.change(&self.id, |task| task.message = Some(message.clone()));
    }

    /// Asks the client and waits for all answers. They come back under the keys given here; on the wire every
    /// question has a key that is never used again.
    ///
    /// # Errors
    /// [`TaskStopped`] when there will be no answers.
    pub async fn ask(&self, requests: BTreeMap<String, InputRequest>) -> Result<Input, TaskStopped> {
        if let Some(lacking) = self.client.lacks(requests.values()) {
            return Err(TaskStopped::Unable(RpcError::missing_capability(lacking)));
        }
        if requests.len() > MAX_QUESTIONS {
            let message = format!("a task may ask {MAX_QUESTIONS} questions at once");
            return Err(TaskStopped::Unable(RpcError::internal(message)));
        }
        let mut waiting = Vec::new();
        let mut open = BTreeMap::new();
        {
            let mut running = self.desk.lock();
            let Some(running) = running.get_mut(&self.id) else { return Err(TaskStopped::Cancelled) };
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, request) in requests {
                *asked += 1;
                let on_wire = format!("{key}-{asked}");
                let (answer, answered) = oneshot::channel();
                running.answers.insert(on_wire.clone(), answer);
                open.insert(on_wire, request);
                waiting.push((key, answered));
            }
        }
        let changed = self.desk.change(&self.id, |task| {
            task.requests.append(&mut open);
            task.status = TaskStatus::InputRequired;
        });
        if changed.is_none() {
            return Err(TaskStopped::Cancelled);
        }
        let mut responses = Map::new();
        for (key, answered) in waiting {
            let answer = tokio::select! {
                answer = answered => answer.ok(),
                () = self.cancelled() => None,
            };
            responses.insert(key, Value::Object(answer.ok_or(TaskStopped::Cancelled)?));
        }
        Ok(Input { responses, state: None })
    }
}
