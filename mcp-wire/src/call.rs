//! A call on its way to the embedder's service, and the two lines that stay open while it runs: the caller's
//! wish to cancel (inwards) and progress (outwards).

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::{
    ClientCapabilities, Era, Input, Level, Meta, Method, Reply, RequestId, RpcError, ToolResult,
    input::MAX_QUESTIONS, stateful::Means, tasks::Tasks,
};

/// Progress reports waiting for a slow reader; more are dropped, since a later report says it all.
const PROGRESS_BUFFER: usize = 32;

/// Log messages waiting for a slow reader; more are dropped.
const NOTES_BUFFER: usize = 64;

/// Most times one legacy call may ask its client.
const MAX_ROUNDS: usize = 16;

/// One call. What the embedder's `tower::Service` takes.
#[derive(Debug)]
pub struct Request<C> {
    /// Who calls, as the embedder's authenticator said.
    pub caller: C,
    /// How the message was spoken.
    pub era: Era,
    /// The request's id, for logs.
    pub id: RequestId,
    /// What is asked.
    pub method: Method,
    /// The request's `_meta`.
    pub meta: Meta,
    /// Fires when the caller no longer wants the answer.
    pub cancel: CancelSignal,
    /// Present when the caller asked for progress and the transport can carry it.
    pub progress: Option<Progress>,
    /// What came back after the service had asked, in a round before this one.
    pub input: Input,
    /// What the client declared it can do. Empty for legacy clients without a session.
    pub client: ClientCapabilities,
    /// Tells the client something while the call runs.
    pub line: Line,
    /// Starts a task; present when the server keeps tasks and the client understands them.
    pub tasks: Option<Tasks>,
}

impl<C> Request<C> {
    /// The same call for another caller type: how a layer turns a token into a principal.
    pub fn map_caller<D>(self, f: impl FnOnce(C) -> D) -> Request<D> {
        let Self { caller, era, id, method, meta, cancel, progress, input, client, line, tasks } = self;
        let caller = f(caller);
        Request { caller, era, id, method, meta, cancel, progress, input, client, line, tasks }
    }
}

/// Fires the [`CancelSignal`] it was made with. Dropping it without firing means "never".
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<watch::Sender<bool>>);

impl CancelHandle {
    /// Tells the call that nobody waits for it. Idempotent.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was fired.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }
}

/// Tells a call that its caller gave up: by `notifications/cancelled`, or, in revision 2026-07-28 over HTTP, by
/// closing the response. A legacy client that disconnects does not cancel.
///
/// The signal is a request, not an abort: the service's future runs on until it returns, so that work already
/// dispatched can be recorded.
#[derive(Clone, Debug)]
pub struct CancelSignal(watch::Receiver<bool>);

impl CancelSignal {
    /// A signal and the handle that fires it.
    #[must_use]
    pub fn pair() -> (CancelHandle, Self) {
        let (sender, receiver) = watch::channel(false);
        (CancelHandle(Arc::new(sender)), Self(receiver))
    }

    /// A signal that never fires, for calls made inside the server.
    #[must_use]
    pub fn never() -> Self {
        Self::pair().1
    }

    /// Whether it has fired.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when it fires; otherwise never.
    pub async fn cancelled(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|fired| *fired).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Reports progress to the caller, with the token it gave. Clones report to the same call.
#[derive(Clone, Debug)]
pub struct Progress {
    sender: mpsc::Sender<Update>,
    last: Arc<Mutex<f64>>,
}

/// One report.
#[derive(Debug)]
pub(crate) struct Update {
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Progress {
    /// Reports `progress` of `total` (any unit; `None` when unknown) with a short text. Values that are not
    /// finite or do not grow are dropped, as the protocol wants; so is a report that finds the line full.
    pub fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !progress.is_finite() || progress <= *last {
            return;
        }
        let total = total.filter(|total| total.is_finite());
        if self.sender.try_send(Update { progress, total, message }).is_ok() {
            *last = progress;
        }
    }
}

/// Tells the client something while its call runs. Clones tell the same client.
#[derive(Clone, Debug, Default)]
pub struct Line {
    notes: Option<mpsc::Sender<Note>>,
    log_from: Option<Level>,
}

/// One thing for the client beside progress.
#[derive(Debug)]
pub(crate) enum Note {
    /// A notification or, in the legacy era, a request.
    Message(Vec<u8>),
    /// The stream may end here and go on later.
    Pause,
}

impl Line {
    /// Sends a log message, if the client wants messages of that level: a modern client says so in the request, a
    /// legacy one for its session. Dropped where nobody listens, and when the line is full.
    pub fn log(&self, level: Level, logger: Option<&str>, data: &Value) {
        #[derive(Serialize)]
        struct Params<'a> {
            level: Level,
            #[serde(skip_serializing_if = "Option::is_none")]
            logger: Option<&'a str>,
            data: &'a Value,
        }
        let wanted = self.log_from.is_some_and(|from| level >= from);
        if let (Some(notes), true) = (&self.notes, wanted) {
            let params = Params { level, logger, data };
            let _ =
                notes.try_send(Note::Message(crate::reply::notification("notifications/message", &params)));
        }
    }

    /// Says that there will be nothing to tell for a while: a client of revision 2025-11-25 over HTTP is let go
    /// and comes back for the rest. No difference for any other.
    pub fn pause(&self) {
        if let Some(notes) = &self.notes {
            let _ = notes.try_send(Note::Pause);
        }
    }
}

/// A call running in a task of its own, so that it outlives a connection.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) task: tokio::task::JoinHandle<Result<Reply, RpcError>>,
    pub(crate) cancel: CancelHandle,
    pub(crate) progress: Option<mpsc::Receiver<Update>>,
    pub(crate) notes: Option<mpsc::Receiver<Note>>,
    token: Value,
}

impl Running {
    /// Starts `method` on `service`. `can_stream` says whether the transport could carry progress.
    pub(crate) fn start<S, C>(
        service: S,
        caller: C,
        call: crate::builtin::Call,
        can_stream: bool,
        mut means: Means<C>,
    ) -> Self
    where
        S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Send + 'static,
        S::Future: Send,
        C: Send + 'static,
    {
        let crate::builtin::Call { era, id, method, meta, retry: _ } = call;
        let (cancel, signal) = CancelSignal::pair();
        let token = meta.progress_token().cloned().filter(|_| can_stream);
        let (progress, updates) = match &token {
            Some(_) => {
                let (sender, receiver) = mpsc::channel(PROGRESS_BUFFER);
                let last = Arc::new(Mutex::new(f64::NEG_INFINITY));
                (Some(Progress { sender, last }), Some(receiver))
            }
            None => (None, None),
        };
        let (line, notes) = if can_stream && means.talks() {
            let (sender, receiver) = mpsc::channel(NOTES_BUFFER);
            (Line { notes: Some(sender), log_from: means.log_from }, Some(receiver))
        } else {
            (Line::default(), None)
        };
        let (input, client, tasks) =
            (std::mem::take(&mut means.input), means.client.clone(), means.tasks.take());
        let request =
            Request { caller, era, id, method, meta, cancel: signal, progress, input, client, line, tasks };
        let task = tokio::spawn(rounds(service, request, means));
        Self { task, cancel, progress: updates, notes, token: token.unwrap_or(Value::Null) }
    }

    /// What was said and not yet taken, once the call is over.
    pub(crate) fn rest(&mut self) -> Vec<Vec<u8>> {
        let mut rest = Vec::new();
        while let Some(Ok(update)) = self.progress.as_mut().map(mpsc::Receiver::try_recv) {
            rest.push(self.notification(&update));
        }
        while let Some(Ok(note)) = self.notes.as_mut().map(mpsc::Receiver::try_recv) {
            if let Note::Message(message) = note {
                rest.push(message);
            }
        }
        rest
    }

    /// The notification for one report.
    pub(crate) fn notification(&self, update: &Update) -> Vec<u8> {
        #[derive(Serialize)]
        struct Params<'a> {
            #[serde(rename = "progressToken")]
            token: &'a Value,
            progress: Number,
            #[serde(skip_serializing_if = "Option::is_none")]
            total: Option<Number>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let params = Params {
            token: &self.token,
            progress: Number(update.progress),
            total: update.total.map(Number),
            message: update.message.as_deref(),
        };
        crate::reply::notification("notifications/progress", &params)
    }
}

/// Calls the service until it answers. In a legacy session a question back is asked here, and the service called
/// again with the answers; in the modern era it is made ready to be the reply.
async fn rounds<S, C>(mut service: S, request: Request<C>, means: Means<C>) -> Result<Reply, RpcError>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Send + 'static,
    S::Future: Send,
    C: Send + 'static,
{
    let binding = means.binding(&request.method);
    let mut round = Some(request);
    for _ in 0..MAX_ROUNDS {
        let Some(request) = round.take() else { break };
        let era = request.era;
        let may_ask = request.method.may_ask();
        let again = if may_ask && !era.is_modern() { means.again(&request) } else { None };
        std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
        let mut required = match service.call(request).await? {
            Reply::InputRequired(required) => required,
            other => return Ok(other),
        };
        if !may_ask || required.requests.len() > MAX_QUESTIONS {
            return Err(RpcError::internal("the server asked back where it may not, or too much at once"));
        }
        if era.is_modern() {
            if let Some(lacking) = means.client.lacks(required.requests.values()) {
                return Err(RpcError::missing_capability(lacking));
            }
            required.sealed = means.seal(required.state.as_ref(), binding.as_ref())?;
            return Ok(Reply::InputRequired(required));
        }
        let Some((mut next, session)) = again else { return Ok(Reply::InputRequired(required)) };
        let Some(notes) = next.line.notes.clone() else { return Ok(Reply::InputRequired(required)) };
        match session.ask(&required, &notes, &next.cancel).await {
            Ok(responses) => next.input = Input { responses, state: required.state },
            // A tool's caller can do something about it; others get it as an error.
            Err(error) if matches!(next.method, Method::ToolsCall { .. }) => {
                return Ok(Reply::Tool(ToolResult::error(error.message)));
            }
            Err(error) => return Err(error),
        }
        round = Some(next);
    }
    Err(RpcError::internal("the server asked back too many times"))
}

/// The outcome of a call's task as the caller may see it: a panic is an internal error without detail.
pub(crate) fn settled(
    joined: Result<Result<Reply, RpcError>, tokio::task::JoinError>,
) -> Result<Reply, RpcError> {
    joined
        .unwrap_or_else(|_| Err(RpcError::internal("the server failed while it ran this call; see its log")))
}

/// A number that is written without a fraction when it has none: `50`, not `50.0`.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Integers up to here are exact in a double.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() <= EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, so exact")]
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_that_does_not_grow_is_dropped() {
        let (sender, mut receiver) = mpsc::channel(8);
        let progress = Progress { sender, last: Arc::new(Mutex::new(f64::NEG_INFINITY)) };
        for value in [0.0, 0.0, 50.0, f64::NAN, 49.0, f64::INFINITY, 100.0] {
            progress.report(value, Some(f64::NAN), None);
        }
        let mut seen = Vec::new();
        while let Ok(update) = receiver.try_recv() {
            assert_eq!(update.total, None);
            seen.push(update.progress);
        }
        assert_eq!(seen, [0.0, 50.0, 100.0]);
    }
}
