//! Sessions of the revisions before 2026-07-28: what is remembered of a client between its `initialize` and its
//! `DELETE`, so that it can be asked and told. Bounded, expiring, and bound to the caller who began them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    CancelHandle, CancelSignal, ClientCapabilities, Filter, InputRequest, InputRequired, Level, RequestId,
    Revision, RpcError, call::Note, filter::MAX_WATCHED, offers::Changes, reply,
};

/// How many sessions there may be, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions in all. More are refused until old ones expire. Default 1024.
    pub total: usize,
    /// Sessions of one caller. A new one ends the caller's least used. Default 16.
    pub per_caller: usize,
    /// How long a session without requests is kept. Default 30 minutes.
    pub idle: Duration,
    /// Questions of one session that are not answered yet. Default 32.
    pub questions: usize,
    /// How long a client has for an answer. Default 5 minutes.
    pub answer_within: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            total: 1024,
            per_caller: 16,
            idle: Duration::from_secs(30 * 60),
            questions: 32,
            answer_within: Duration::from_secs(300),
        }
    }
}

/// All sessions.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    pub(crate) limits: SessionLimits,
    by_id: Arc<Mutex<HashMap<String, Arc<Session>>>>,
}

impl Sessions {
    pub(crate) fn new(limits: SessionLimits) -> Self {
        Self { limits, by_id: Arc::default() }
    }

    /// Begins a session of `owner`; `None` when there is no room, or no randomness for its id.
    pub(crate) fn begin(
        &self,
        owner: String,
        revision: Revision,
        client: ClientCapabilities,
    ) -> Option<Arc<Session>> {
        let mut entropy = [0; 16];
        getrandom::fill(&mut entropy).ok()?;
        let id = data_encoding::BASE32_NOPAD.encode(&entropy).to_ascii_lowercase();
        let session = Arc::new(Session::new(id, owner, revision, client, self.limits));
        let mut sessions = lock(&self.by_id);
        sessions.retain(|_, known| !known.has_expired());
        let own = || sessions.values().filter(|known| known.owner == session.owner);
        if own().count() >= self.limits.per_caller {
            let least = own().min_by_key(|known| *lock(&known.touched)).map(|known| known.id.clone());
            if let Some(ended) = least.and_then(|id| sessions.remove(&id)) {
                ended.end();
            }
        }
        if sessions.len() >= self.limits.total {
            return None;
        }
        sessions.insert(session.id.clone(), Arc::clone(&session));
        Some(session)
    }

    /// `owner`'s session of that id. A session of somebody else is no different from none.
    pub(crate) fn find(&self, id: &str, owner: &str) -> Option<Arc<Session>> {
        let mut sessions = lock(&self.by_id);
        let session = sessions.get(id).filter(|session| session.owner == owner)?;
        if session.has_expired() {
            if let Some(ended) = sessions.remove(id) {
                ended.end();
            }
            return None;
        }
        session.touch();
        Some(Arc::clone(session))
    }

    /// Ends `owner`'s session of that id.
    pub(crate) fn end(&self, id: &str, owner: &str) -> bool {
        if self.find(id, owner).is_none() {
            return false;
        }
        let ended = lock(&self.by_id).remove(id);
        if let Some(session) = &ended {
            session.end();
        }
        ended.is_some()
    }
}

/// The client's answer to a question.
type Answer = Result<Value, RpcError>;

/// One client, from `initialize` on.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    owner: String,
    pub(crate) revision: Revision,
    /// What the client declared at `initialize`.
    pub(crate) client: ClientCapabilities,
    limits: SessionLimits,
    level: Mutex<Level>,
    watched: Mutex<BTreeSet<String>>,
    questions: Mutex<Questions>,
    calls: Mutex<HashMap<RequestId, CancelHandle>>,
    touched: Mutex<Instant>,
    /// Streams that are open or kept for a client that comes back.
    #[cfg(feature = "http")]
    pub(crate) streams: crate::http::replay::Streams,
    /// Connections that are held open.
    pub(crate) held: AtomicUsize,
    over: (CancelHandle, CancelSignal),
}

#[derive(Debug, Default)]
struct Questions {
    asked: i64,
    open: HashMap<i64, oneshot::Sender<Answer>>,
}

impl Session {
    pub(crate) fn new(
        id: String,
        owner: String,
        revision: Revision,
        client: ClientCapabilities,
        limits: SessionLimits,
    ) -> Self {
        Self {
            id,
            owner,
            revision,
            client,
            limits,
            level: Mutex::new(Level::Info),
            watched: Mutex::default(),
            questions: Mutex::default(),
            calls: Mutex::default(),
            touched: Mutex::new(Instant::now()),
            #[cfg(feature = "http")]
            streams: crate::http::replay::Streams::default(),
            held: AtomicUsize::new(0),
            over: CancelSignal::pair(),
        }
    }

    fn touch(&self) {
        *lock(&self.touched) = Instant::now();
    }

    fn has_expired(&self) -> bool {
        let busy = self.held.load(Ordering::Relaxed) > 0 || !lock(&self.calls).is_empty();
        !busy && lock(&self.touched).elapsed() >= self.limits.idle
    }

    /// Ends it: its calls are cancelled, its questions go unanswered, its streams end.
    pub(crate) fn end(&self) {
        self.over.0.cancel();
        for (_, call) in lock(&self.calls).drain() {
            call.cancel();
        }
        lock(&self.questions).open.clear();
    }

    /// Completes when the session is over.
    pub(crate) async fn ended(&self) {
        self.over.1.cancelled().await;
    }

    /// The level from which on the client wants log messages.
    pub(crate) fn level(&self) -> Level {
        *lock(&self.level)
    }

    pub(crate) fn set_level(&self, level: Level) {
        *lock(&self.level) = level;
    }

    /// Notes that the client watches a resource.
    ///
    /// # Errors
    /// When it watches too many.
    pub(crate) fn watch(&self, uri: String) -> Result<(), RpcError> {
        let mut watched = lock(&self.watched);
        if watched.len() >= MAX_WATCHED && !watched.contains(&uri) {
            let message = format!("this session watches {MAX_WATCHED} resources already; unsubscribe some");
            return Err(RpcError::invalid_params(message));
        }
        watched.insert(uri);
        Ok(())
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        lock(&self.watched).remove(uri);
    }

    /// What the session hears of `told`, now.
    pub(crate) fn filter(&self, told: Changes) -> Filter {
        let resources = lock(&self.watched).clone();
        Filter { changes: told, resources, tasks: BTreeSet::new() }
    }

    /// Notes a running call, so that `notifications/cancelled` finds it.
    pub(crate) fn call_began(&self, id: &RequestId, cancel: &CancelHandle) {
        lock(&self.calls).entry(id.clone()).or_insert_with(|| cancel.clone());
    }

    pub(crate) fn call_ended(&self, id: &RequestId) {
        lock(&self.calls).remove(id);
        self.touch();
    }

    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(call) = lock(&self.calls).remove(id) {
            call.cancel();
        }
    }

    /// Takes an answer of the client's; `false` when nothing was asked under that id.
    pub(crate) fn answered(&self, id: &RequestId, answer: Answer) -> bool {
        let RequestId::Integer(number) = id else { return false };
        let Some(question) = number.as_i64().and_then(|id| lock(&self.questions).open.remove(&id)) else {
            return false;
        };
        // Nobody waits any more when the call was cancelled meanwhile.
        let _ = question.send(answer);
        true
    }

    /// Asks everything `required` asks and waits for all answers.
    ///
    /// # Errors
    /// When the client cannot be asked, does not answer in time or answers with an error.
    pub(crate) async fn ask(
        &self,
        required: &InputRequired,
        notes: &mpsc::Sender<Note>,
        cancel: &CancelSignal,
    ) -> Result<Map<String, Value>, RpcError> {
        let requests = required.requests();
        let by_page = requests.values().any(|request| matches!(request, InputRequest::Url { .. }));
        if by_page || self.client.lacks(requests.values()).is_some() {
            let methods: Vec<_> = requests.values().map(InputRequest::method).collect();
            let message = format!(
                "this call must ask the client ({}), which it did not declare at `initialize`",
                methods.join(", ")
            );
            return Err(RpcError::invalid_params(message));
        }
        let mut asked = Asked { session: self, ids: Vec::new() };
        let mut waiting = Vec::new();
        for (key, request) in requests {
            let (id, answer) = self.question()?;
            asked.ids.push(id);
            waiting.push((key, request, answer));
            let message = reply::request(id, request.method(), &request.params());
            if notes.send(Note::Message(message)).await.is_err() {
                return Err(RpcError::internal("the client is gone"));
            }
        }
        let deadline = tokio::time::sleep(self.limits.answer_within);
        let mut deadline = std::pin::pin!(deadline);
        let mut responses = Map::new();
        for (key, request, answer) in waiting {
            let answer = tokio::select! {
                answer = answer => answer.unwrap_or_else(|_| Err(RpcError::internal("the session is over"))),
                () = cancel.cancelled() => return Err(RpcError::internal("the call was cancelled")),
                () = &mut deadline => {
                    let seconds = self.limits.answer_within.as_secs();
                    let message = format!("the client did not answer {} in {seconds} s", request.method());
                    return Err(RpcError::internal(message));
                }
            };
            match answer {
                Ok(response) => drop(responses.insert(key.clone(), response)),
                Err(error) => {
                    let message = format!("the client refused {} (code {})", request.method(), error.code);
                    return Err(RpcError::internal(message));
                }
            }
        }
        Ok(responses)
    }

    fn question(&self) -> Result<(i64, oneshot::Receiver<Answer>), RpcError> {
        let mut questions = lock(&self.questions);
        if questions.open.len() >= self.limits.questions || self.over.1.is_cancelled() {
            return Err(RpcError::internal("the client has too many questions open, or its session is over"));
        }
        questions.asked += 1;
        let (sender, receiver) = oneshot::channel();
        let id = questions.asked;
        questions.open.insert(id, sender);
        Ok((id, receiver))
    }
}

/// Takes questions back that nobody waits for any more.
struct Asked<'a> {
    session: &'a Session,
    ids: Vec<i64>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut questions = lock(&self.session.questions);
        for id in &self.ids {
            questions.open.remove(id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
