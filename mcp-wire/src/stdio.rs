//! stdio: one message per line in, one message per line out, nothing else on stdout.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    ClientCapabilities, Filter, Identity, Message, Method, Reply, Request, RequestId, Revision, RpcError,
    Stateful,
    builtin::{self, Call, Routed},
    call::{CancelHandle, CancelSignal, Note, Running, settled},
    events::Listener,
    jsonrpc::{Incoming, Limits},
    legacy::{self, SessionLimits},
    reply,
    stateful::{Backing, Means},
};

/// Frames waiting for a slow client before callers wait too.
const OUTBOX: usize = 64;

/// How the transport behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What the server says about itself.
    pub identity: Identity,
    /// Longest line, in bytes without its end. Longer ones are skipped and answered with an error. Default 4 MiB.
    pub line_limit: usize,
    /// Calls in flight at once; more are refused. Default 64.
    pub max_in_flight: usize,
    /// How long calls may go on after stdin ended, before they are cancelled. Default 10 s.
    pub drain: Duration,
}

impl Config {
    /// The defaults for `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, line_limit: 4 * 1024 * 1024, max_in_flight: 64, drain: Duration::from_secs(10) }
    }
}

/// A line for the client, and the call it belongs to: once that is cancelled the line is not written.
struct Frame {
    text: Vec<u8>,
    call: Option<CancelHandle>,
}

/// Calls in flight by id, to find the one a cancel means.
type InFlight = Arc<Mutex<HashMap<RequestId, CancelHandle>>>;

/// Serves `service` to the client at `stdin` and `stdout` until stdin ends, then lets calls in flight finish.
///
/// Every call is `caller`'s. Lines may end with `\r\n`, the last may have no end, empty ones are skipped and a
/// byte order mark before the first is ignored (PowerShell writes one). Calls run concurrently, each in a task
/// of its own; after `notifications/cancelled` nothing more is written for that id.
///
/// # Errors
/// When stdin or stdout fails; calls in flight are then cancelled.
pub async fn serve<S, C, I, O>(service: S, caller: C, stdin: I, stdout: O, config: Config) -> io::Result<()>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    C: Clone + Send + 'static,
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin + Send + 'static,
{
    let identity = config.identity.clone();
    run(service, caller, stdin, stdout, config, identity, ()).await
}

/// The same as [`serve`], keeping between requests what `stateful` says. The connection is the session of the
/// older revisions, if sessions are kept: it begins with `initialize`.
///
/// # Errors
/// As [`serve`].
pub async fn serve_keeping<S, C, I, O>(
    service: S,
    caller: C,
    stdin: I,
    stdout: O,
    config: Config,
    stateful: Stateful<C>,
) -> io::Result<()>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    C: Clone + Send + 'static,
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin + Send + 'static,
{
    let identity = stateful.declared(config.identity.clone());
    run(service, caller, stdin, stdout, config, identity, stateful).await
}

async fn run<S, C, I, O, X>(
    service: S,
    caller: C,
    stdin: I,
    stdout: O,
    config: Config,
    identity: Identity,
    backing: X,
) -> io::Result<()>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    C: Clone + Send + 'static,
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin + Send + 'static,
    X: Backing<C>,
{
    let (outbox, frames) = mpsc::channel(OUTBOX);
    let mut writer = tokio::spawn(write(stdout, frames));
    let mut session = Session {
        service,
        caller,
        identity: Arc::new(identity),
        backing,
        legacy: None,
        limits: Limits { bytes: config.line_limit, ..Limits::default() },
        max_in_flight: config.max_in_flight,
        in_flight: InFlight::default(),
        calls: JoinSet::new(),
        listeners: JoinSet::new(),
        outbox,
    };
    let mut lines = Lines { reader: BufReader::new(stdin), limit: config.line_limit, at_start: true };
    let ended = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            // Nobody reads any more.
            written = &mut writer => {
                session.cancel_all();
                return flattened(written);
            }
        };
        match line {
            Ok(Some(line)) => session.take(&line).await,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        while session.calls.try_join_next().is_some() {}
        while session.listeners.try_join_next().is_some() {}
    };
    // Whoever would have answered is gone, and so is whoever would have listened.
    session.end_legacy();
    session.listeners.shutdown().await;
    if ended.is_err() || tokio::time::timeout(config.drain, session.drained()).await.is_err() {
        session.cancel_all();
    }
    // Ends the tasks that wait for calls, not the calls: those were told, and what they must still record is
    // theirs to finish. With their ends of the outbox gone, the writer ends after its last frame.
    session.calls.shutdown().await;
    drop(session);
    flattened(writer.await)?;
    ended
}

struct Session<S, C, X> {
    service: S,
    caller: C,
    identity: Arc<Identity>,
    backing: X,
    /// What `initialize` began, for messages of the legacy era.
    legacy: Option<Arc<legacy::Session>>,
    limits: Limits,
    max_in_flight: usize,
    in_flight: InFlight,
    calls: JoinSet<()>,
    /// What tells the client unasked.
    listeners: JoinSet<()>,
    outbox: mpsc::Sender<Frame>,
}

impl<S, C, X> Session<S, C, X>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    C: Clone + Send + 'static,
    X: Backing<C>,
{
    async fn take(&mut self, line: &Line) {
        let message = match line {
            Line::Text(text) if text.iter().all(u8::is_ascii_whitespace) => return,
            Line::Text(text) if self.identity.offers.sessions => Incoming::parse(text, &self.limits),
            Line::Text(text) => Message::parse(text, &self.limits).map(Incoming::Message),
            Line::TooLong => {
                let message = format!("the line exceeds {} bytes; send less in one call", self.limits.bytes);
                return self.send(reply::encode_error(None, &RpcError::invalid_request(message))).await;
            }
        };
        match message {
            Ok(Incoming::Response { id, outcome }) => {
                let known = self.legacy.as_ref().is_some_and(|session| session.answered(&id, outcome));
                if !known {
                    let error = RpcError::invalid_request("no request of the server is open under that `id`");
                    self.send(reply::encode_error(None, &error)).await;
                }
            }
            Ok(Incoming::Message(Message::Request { id, method, params })) => {
                let declared = params.get("capabilities").filter(|_| method == "initialize").cloned();
                match builtin::route(&self.identity, &id, &method, params, None) {
                    Ok(Routed::Call(call)) => self.start(call).await,
                    Ok(Routed::Answered(_, id, outcome)) => {
                        let begun = outcome.as_ref().ok().filter(|_| method == "initialize");
                        let revision = begun
                            .and_then(|result| Revision::parse(result.get("protocolVersion")?.as_str()?));
                        self.send(reply::encode_value(&id, &outcome)).await;
                        if let Some(revision) = revision {
                            self.begin_legacy(revision, declared.unwrap_or_default());
                        }
                    }
                    Err(error) => self.send(reply::encode_error(Some(&id), &error)).await,
                }
            }
            Ok(Incoming::Message(Message::Notification { method, params }))
                if method == "notifications/cancelled" =>
            {
                // Fired under the lock, so that a call that ends now cannot free an id that is taken anew.
                if let Some(id) = params.get("requestId").and_then(RequestId::from_value)
                    && let Some(handle) = lock(&self.in_flight).remove(&id)
                {
                    handle.cancel();
                }
            }
            Ok(Incoming::Message(Message::Notification { .. })) => {}
            Err(refused) => self.send(reply::encode_error(refused.id.as_ref(), &refused.error)).await,
        }
    }

    /// Begins the session of a legacy client, where sessions are kept; an older one of this connection ends.
    fn begin_legacy(&mut self, revision: Revision, declared: serde_json::Value) {
        let Some(stateful) = self.backing.stateful() else { return };
        let Some(limits) = stateful.sessions.as_ref().map(|sessions| sessions.limits) else { return };
        let serde_json::Value::Object(declared) = declared else { return };
        let (client, owner) = (ClientCapabilities::new(declared), stateful.owner(&self.caller));
        let limits = SessionLimits { idle: Duration::MAX, ..limits };
        let session = Arc::new(legacy::Session::new("stdio".into(), owner, revision, client, limits));
        if let Some(events) = &stateful.events {
            let changes = self.identity.offers.tells(crate::Era::Legacy(revision));
            let (told, events) = (Arc::clone(&session), events.listen());
            self.tell(None, move || told.filter(changes), events, Some(Arc::clone(&session)), None);
        }
        if let Some(before) = self.legacy.replace(session) {
            before.end();
        }
    }

    fn end_legacy(&self) {
        if let Some(session) = &self.legacy {
            session.end();
        }
    }

    /// Tells the client what `filter` has, until its session or subscription ends.
    fn tell(
        &mut self,
        subscription: Option<(RequestId, Filter)>,
        filter: impl Fn() -> Filter + Send + Sync + 'static,
        events: tokio::sync::broadcast::Receiver<crate::events::Event>,
        session: Option<Arc<legacy::Session>>,
        cancel: Option<(CancelHandle, CancelSignal)>,
    ) {
        let (identity, outbox, in_flight) =
            (Arc::clone(&self.identity), self.outbox.clone(), Arc::clone(&self.in_flight));
        self.listeners.spawn(async move {
            let listener =
                Listener { subscription: subscription.as_ref().map(|(id, _)| id.clone()), identity };
            let (handle, signal) = cancel.unwrap_or_else(CancelSignal::pair);
            let (sender, mut frames) = mpsc::channel(OUTBOX);
            let forward = async {
                while let Some(text) = frames.recv().await {
                    if outbox.send(Frame { text, call: Some(handle.clone()) }).await.is_err() {
                        break;
                    }
                }
            };
            let pump = async {
                if let Some((_, filter)) = &subscription {
                    // A closed channel ends the pump as well.
                    let _ = sender.send(listener.acknowledged(filter)).await;
                }
                if listener.pump(events, filter, &sender).await && subscription.is_some() {
                    let _ = sender.send(listener.ended()).await;
                }
                drop(sender);
            };
            let over = async {
                match &session {
                    Some(session) => session.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ((), ()) = async { tokio::join!(pump, forward) } => {}
                () = signal.cancelled() => {}
                () = over => {}
            }
            if let Some((id, _)) = subscription
                && !handle.is_cancelled()
            {
                lock(&in_flight).remove(&id);
            }
        });
    }

    async fn start(&mut self, mut call: Call) {
        let refused = {
            let in_flight = lock(&self.in_flight);
            if in_flight.contains_key(&call.id) {
                // Without the id: an answer that carried it would be taken for the first call's.
                Some((None, RpcError::invalid_request("that `id` is in use by a call that still runs")))
            } else if self.calls.len() + self.listeners.len() >= self.max_in_flight {
                let message =
                    format!("{} calls are in flight already; wait for one to end", self.max_in_flight);
                Some((Some(&call.id), RpcError::internal(message)))
            } else {
                None
            }
        };
        if let Some((id, error)) = refused {
            return self.send(reply::encode_error(id, &error)).await;
        }
        let (id, era) = (call.id.clone(), call.era);
        let legacy = self.legacy.clone().filter(|_| !era.is_modern());
        let stateful = self.backing.stateful();
        let here = stateful.and_then(|stateful| stateful.answer(&self.caller, &mut call, legacy.as_deref()));
        let means = match here {
            Some(outcome) => Err(outcome),
            None => {
                let means = Means::of(&self.identity, stateful, &self.caller, &mut call, legacy.clone());
                means.map_err(Err)
            }
        };
        let means = match means {
            Ok(means) => means,
            Err(outcome) => return self.send(reply::encode(&self.identity, era, &id, &outcome)).await,
        };
        if matches!(call.method, Method::Listen(_)) {
            return self.listen(call, means).await;
        }
        let watched = match &call.method {
            Method::ResourcesSubscribe { uri } => legacy.zip(Some(uri.clone())),
            _ => None,
        };
        let mut running = Running::start(self.service.clone(), self.caller.clone(), call, true, means);
        lock(&self.in_flight).insert(id.clone(), running.cancel.clone());
        let (identity, in_flight, outbox) =
            (Arc::clone(&self.identity), Arc::clone(&self.in_flight), self.outbox.clone());
        self.calls.spawn(async move {
            let handle = running.cancel.clone();
            let frame = |text| Frame { text, call: Some(handle.clone()) };
            let joined = loop {
                tokio::select! {
                    biased;
                    Some(update) = next(&mut running.progress) => {
                        let text = running.notification(&update);
                        if outbox.send(frame(text)).await.is_err() {
                            running.cancel.cancel();
                        }
                    }
                    Some(note) = next(&mut running.notes) => {
                        if let Note::Message(text) = note
                            && outbox.send(frame(text)).await.is_err()
                        {
                            running.cancel.cancel();
                        }
                    }
                    joined = &mut running.task => break joined,
                }
            };
            for text in running.rest() {
                // A closed outbox means that the client is gone.
                let _ = outbox.send(frame(text)).await;
            }
            let mut outcome = settled(joined);
            if let (Ok(_), Some((session, uri))) = (&outcome, watched) {
                outcome = session.watch(uri).map(|()| Reply::Done);
            }
            let text = reply::encode(&identity, era, &id, &outcome);
            // Free the id first: the client may use it again as soon as it has read the answer. After a cancel
            // the entry is gone, and may belong to a new call.
            {
                let mut in_flight = lock(&in_flight);
                if !handle.is_cancelled() {
                    in_flight.remove(&id);
                }
            }
            // A closed outbox means that the client is gone.
            let _ = outbox.send(frame(text)).await;
        });
    }

    /// Asks the service what the caller may hear, and opens the subscription.
    async fn listen(&mut self, call: Call, means: Means<C>) {
        let id = call.id.clone();
        let era = call.era;
        let running = Running::start(self.service.clone(), self.caller.clone(), call, false, means);
        let outcome = settled(running.task.await);
        let (Ok(Reply::Listening(filter)), Some(stateful)) = (&outcome, self.backing.stateful()) else {
            return self.send(reply::encode(&self.identity, era, &id, &outcome)).await;
        };
        let filter = stateful.own_tasks(&stateful.owner(&self.caller), filter.clone());
        let Some(events) = stateful.events.as_ref().map(crate::events::Events::listen) else {
            let error = RpcError::internal("there is nothing to listen to");
            return self.send(reply::encode_error(Some(&id), &error)).await;
        };
        let cancel = CancelSignal::pair();
        lock(&self.in_flight).insert(id.clone(), cancel.0.clone());
        let told = filter.clone();
        self.tell(Some((id, filter)), move || told.clone(), events, None, Some(cancel));
    }

    async fn send(&self, text: Vec<u8>) {
        // A closed outbox is noticed by the loop, which watches the writer.
        let _ = self.outbox.send(Frame { text, call: None }).await;
    }

    async fn drained(&mut self) {
        while self.calls.join_next().await.is_some() {}
    }

    fn cancel_all(&self) {
        for handle in lock(&self.in_flight).values() {
            handle.cancel();
        }
    }
}

async fn write<O: AsyncWrite + Unpin>(mut stdout: O, mut frames: mpsc::Receiver<Frame>) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        if frame.call.is_some_and(|call| call.is_cancelled()) {
            continue;
        }
        let mut text = frame.text;
        text.push(b'\n');
        stdout.write_all(&text).await?;
        if frames.is_empty() {
            stdout.flush().await?;
        }
    }
    stdout.shutdown().await
}

fn flattened(joined: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    joined.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn lock(in_flight: &InFlight) -> std::sync::MutexGuard<'_, HashMap<RequestId, CancelHandle>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => None,
    }
}

/// One line of input, without its end.
enum Line {
    Text(Vec<u8>),
    TooLong,
}

struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    at_start: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// The next line, or `None` at the end. Not cancel safe: the loop drops it only to give up.
    async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut text = Vec::new();
        let (mut seen, mut too_long) = (false, false);
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                break;
            }
            seen = true;
            let (part, taken, done) = match chunk.iter().position(|b| *b == b'\n') {
                Some(at) => (&chunk[..at], at + 1, true),
                None => (chunk, chunk.len(), false),
            };
            // One more than the limit, for the carriage return that may still go.
            too_long |= text.len() + part.len() > self.limit + 1;
            if too_long {
                text = Vec::new();
            } else {
                text.extend_from_slice(part);
            }
            self.reader.consume(taken);
            if done {
                break;
            }
        }
        if !seen {
            return Ok(None);
        }
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        if std::mem::take(&mut self.at_start) && text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        Ok(Some(if too_long || text.len() > self.limit { Line::TooLong } else { Line::Text(text) }))
    }
}
