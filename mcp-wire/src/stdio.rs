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
    Identity, Message, Reply, Request, RequestId, RpcError,
    builtin::{self, Call, Routed},
    call::{CancelHandle, Running, settled},
    jsonrpc::Limits,
    reply,
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
    let (outbox, frames) = mpsc::channel(OUTBOX);
    let mut writer = tokio::spawn(write(stdout, frames));
    let mut session = Session {
        service,
        caller,
        identity: Arc::new(config.identity),
        limits: Limits { bytes: config.line_limit, ..Limits::default() },
        max_in_flight: config.max_in_flight,
        in_flight: InFlight::default(),
        calls: JoinSet::new(),
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
    };
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

struct Session<S, C> {
    service: S,
    caller: C,
    identity: Arc<Identity>,
    limits: Limits,
    max_in_flight: usize,
    in_flight: InFlight,
    calls: JoinSet<()>,
    outbox: mpsc::Sender<Frame>,
}

impl<S, C> Session<S, C>
where
    S: tower_service::Service<Request<C>, Response = Reply, Error = RpcError> + Clone + Send + 'static,
    S::Future: Send,
    C: Clone + Send + 'static,
{
    async fn take(&mut self, line: &Line) {
        let message = match line {
            Line::Text(text) if text.iter().all(u8::is_ascii_whitespace) => return,
            Line::Text(text) => Message::parse(text, &self.limits),
            Line::TooLong => {
                let message = format!("the line exceeds {} bytes; send less in one call", self.limits.bytes);
                return self.send(reply::encode_error(None, &RpcError::invalid_request(message))).await;
            }
        };
        match message {
            Ok(Message::Request { id, method, params }) => {
                match builtin::route(&self.identity, &id, &method, params, None) {
                    Ok(Routed::Call(call)) => self.start(call).await,
                    Ok(Routed::Answered(_, id, outcome)) => {
                        self.send(reply::encode_value(&id, &outcome)).await
                    }
                    Err(error) => self.send(reply::encode_error(Some(&id), &error)).await,
                }
            }
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                // Fired under the lock, so that a call that ends now cannot free an id that is taken anew.
                if let Some(id) = params.get("requestId").and_then(RequestId::from_value)
                    && let Some(handle) = lock(&self.in_flight).remove(&id)
                {
                    handle.cancel();
                }
            }
            Ok(Message::Notification { .. }) => {}
            Err(refused) => self.send(reply::encode_error(refused.id.as_ref(), &refused.error)).await,
        }
    }

    async fn start(&mut self, call: Call) {
        let refused = {
            let in_flight = lock(&self.in_flight);
            if in_flight.contains_key(&call.id) {
                // Without the id: an answer that carried it would be taken for the first call's.
                Some((None, RpcError::invalid_request("that `id` is in use by a call that still runs")))
            } else if self.calls.len() >= self.max_in_flight {
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
        let mut running = Running::start(self.service.clone(), self.caller.clone(), call, true);
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
                    joined = &mut running.task => break joined,
                }
            };
            let text = reply::encode(&identity, era, &id, &settled(joined));
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
