//! Legacy sessions over HTTP: `Mcp-Session-Id`, `GET`, `DELETE`, the client's responses, and streams that a client
//! may come back to.

use std::sync::{Arc, atomic::Ordering};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, request::Parts};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::{
    BoxBody, Refusal, empty_response,
    headers::{self, field},
    json_response, replay, sse,
};
use crate::{
    ClientCapabilities, Era, Identity, RequestId, Revision, RpcError, Stateful,
    call::{Note, Running, Update, settled},
    events::Listener,
    ladder::Field,
    legacy::{Session, Sessions},
    reply,
};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The session a request names; `None` when it names none.
///
/// # Errors
/// 404 for one that does not exist, has expired or is somebody else's: the client then begins a new one.
pub(super) fn named<C>(
    sessions: &Sessions,
    stateful: &Stateful<C>,
    caller: &C,
    headers: &HeaderMap,
) -> Result<Option<Arc<Session>>, Refusal> {
    let id = match field(headers, &SESSION_ID) {
        Field::Absent => return Ok(None),
        Field::One(id) => id,
        Field::Repeated | Field::Unreadable => "",
    };
    let found = sessions.find(id, &stateful.owner(caller));
    found.map(Some).ok_or_else(|| {
        let message = "this session does not exist or has expired; send `initialize` to begin a new one";
        Refusal::new(StatusCode::NOT_FOUND, "session_not_found", message)
    })
}

/// As [`named`], for what makes no sense without a session.
///
/// # Errors
/// Also 400 for a request that names none.
pub(super) fn needed<C>(
    sessions: &Sessions,
    stateful: &Stateful<C>,
    caller: &C,
    headers: &HeaderMap,
) -> Result<Arc<Session>, Refusal> {
    named(sessions, stateful, caller, headers)?.ok_or_else(no_session)
}

/// 400 for a request that needs a session and names none.
pub(super) fn no_session() -> Refusal {
    let message =
        "this needs a session; send `initialize` and then the `Mcp-Session-Id` it was answered with";
    Refusal::new(StatusCode::BAD_REQUEST, "session_needed", message)
}

/// Begins the session that a successful `initialize` is answered with.
pub(super) fn begin<C>(
    sessions: &Sessions,
    stateful: &Stateful<C>,
    caller: &C,
    declared: Map<String, Value>,
    revision: Revision,
    mut response: Response<BoxBody>,
) -> Response<BoxBody> {
    let client = ClientCapabilities::new(declared);
    let session = sessions.begin(stateful.owner(caller), revision, client);
    match session.map(|session| HeaderValue::try_from(session.id.as_str())) {
        Some(Ok(id)) => {
            response.headers_mut().insert(SESSION_ID, id);
            response
        }
        _ => {
            let message = "the server holds as many sessions as it may; try again later";
            let mut refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "sessions_full", message);
            refusal.retry_after = Some(60);
            refusal.into_response()
        }
    }
}

/// Takes the client's answer to a question.
pub(super) fn answered(
    session: &Session,
    id: &RequestId,
    answer: Result<Value, RpcError>,
) -> Response<BoxBody> {
    if session.answered(id, answer) {
        return empty_response(StatusCode::ACCEPTED);
    }
    let error = RpcError::invalid_request("no request of the server is open under that `id`");
    json_response(StatusCode::BAD_REQUEST, reply::encode_error(None, &error))
}

/// Ends the session that `DELETE` names.
pub(super) fn delete<C>(
    sessions: &Sessions,
    stateful: &Stateful<C>,
    caller: &C,
    parts: &Parts,
) -> Response<BoxBody> {
    match needed(sessions, stateful, caller, &parts.headers) {
        Ok(session) => {
            sessions.end(&session.id, &stateful.owner(caller));
            empty_response(StatusCode::NO_CONTENT)
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Answers `GET`: the rest of a stream that was left, or else what the session is told unasked.
pub(super) fn get<C>(
    sessions: &Sessions,
    stateful: &Stateful<C>,
    caller: &C,
    parts: &Parts,
    identity: &Arc<Identity>,
    keep_alive: std::time::Duration,
) -> Response<BoxBody> {
    if !matches!(headers::accepts(&parts.headers), Some(headers::Accepts::Sse | headers::Accepts::Either)) {
        let message = "Accept must allow text/event-stream";
        return Refusal::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message).into_response();
    }
    let session = match needed(sessions, stateful, caller, &parts.headers) {
        Ok(session) => session,
        Err(refusal) => return refusal.into_response(),
    };
    let frames = match field(&parts.headers, &LAST_EVENT_ID) {
        Field::Absent => return told(&session, stateful, identity, keep_alive),
        Field::One(id) => session.streams.after(id).map(|(log, next)| log.follow(next)),
        Field::Repeated | Field::Unreadable => None,
    };
    match frames {
        Some(frames) => sse::response(sse::Frames::ready(frames, keep_alive)),
        None => {
            let message = "what followed that event is not kept any more; call again";
            Refusal::new(StatusCode::BAD_REQUEST, "events_gone", message).into_response()
        }
    }
}

/// The stream of what a session is told unasked.
fn told<C>(
    session: &Arc<Session>,
    stateful: &Stateful<C>,
    identity: &Arc<Identity>,
    keep_alive: std::time::Duration,
) -> Response<BoxBody> {
    let (Some(events), Ok(permit)) = (&stateful.events, Arc::clone(&stateful.listeners).try_acquire_owned())
    else {
        let message = "there is nothing to be told here, or too many are told already";
        return Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "no_stream", message).into_response();
    };
    let (sender, frames) = mpsc::channel(16);
    let events = events.listen();
    let changes = identity.offers.tells(Era::Legacy(session.revision));
    let (session, identity) = (Arc::clone(session), Arc::clone(identity));
    session.held.fetch_add(1, Ordering::Relaxed);
    tokio::spawn(async move {
        let listener = Listener { subscription: None, identity };
        tokio::select! {
            _ = listener.pump(events, || session.filter(changes), &sender) => {}
            () = session.ended() => {}
        }
        session.held.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
    });
    sse::response(sse::Frames::messages(frames, keep_alive))
}

/// A running call of a session; forgotten there when this goes.
pub(super) struct InSession {
    session: Arc<Session>,
    id: RequestId,
}

impl InSession {
    pub(super) fn new(session: &Arc<Session>, id: &RequestId, running: &Running) -> Self {
        session.call_began(id, &running.cancel);
        Self { session: Arc::clone(session), id: id.clone() }
    }

    /// Whether a client of this revision comes back to a stream that ended early.
    fn resumes(&self) -> bool {
        self.session.revision == Revision::V2025_11_25
    }

    /// The reply as a stream that the client may leave. `first` is what made it one.
    pub(super) fn stream(
        self,
        identity: Arc<Identity>,
        era: Era,
        mut running: Running,
        first: Option<Note>,
        keep_alive: std::time::Duration,
    ) -> Response<BoxBody> {
        let log = self.session.streams.open();
        if self.resumes() {
            log.prime();
        }
        let frames = Arc::clone(&log).follow(0);
        if let Some(first) = first {
            self.note(&log, first);
        }
        tokio::spawn(async move {
            enum Step {
                Note(Note),
                Progress(Update),
                End(Result<crate::Reply, RpcError>),
            }
            loop {
                let step = tokio::select! {
                    biased;
                    Some(note) = next(&mut running.notes) => Step::Note(note),
                    Some(update) = next(&mut running.progress) => Step::Progress(update),
                    joined = &mut running.task => Step::End(settled(joined)),
                };
                match step {
                    Step::Note(note) => self.note(&log, note),
                    Step::Progress(update) => log.push(&running.notification(&update)),
                    Step::End(outcome) => {
                        for message in running.rest() {
                            log.push(&message);
                        }
                        // Nobody waits for the answer of a call that was cancelled.
                        if !running.cancel.is_cancelled() {
                            log.push(&reply::encode(&identity, era, &self.id, &outcome));
                        }
                        log.finish();
                        break;
                    }
                }
            }
        });
        sse::response(sse::Frames::ready(frames, keep_alive))
    }

    fn note(&self, log: &replay::EventLog, note: Note) {
        match note {
            Note::Message(message) => log.push(&message),
            Note::Pause if self.resumes() => log.pause(),
            Note::Pause => {}
        }
    }
}

impl Drop for InSession {
    fn drop(&mut self) {
        self.session.call_ended(&self.id);
    }
}

async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => None,
    }
}
