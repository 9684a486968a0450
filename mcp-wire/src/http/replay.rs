//! Streams of a legacy session that a client may leave and come back to: what was sent is kept for a while, each
//! event under an id, and `GET` with `Last-Event-ID` goes on after it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, watch};

/// Streams kept for one session.
const STREAMS: usize = 8;
/// Events kept of one stream.
const EVENTS: usize = 256;
/// Bytes kept of one stream; the newest event is kept whatever its size.
const BYTES: usize = 256 * 1024;
/// How long a client that was let go should wait before it comes back, in milliseconds.
const RETRY: u32 = 500;

/// The streams of one session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    logs: VecDeque<Arc<EventLog>>,
}

impl Streams {
    /// A new stream. The oldest is forgotten when there are too many.
    pub(super) fn open(&self) -> Arc<EventLog> {
        let mut open = lock(&self.0);
        open.next += 1;
        let log = Arc::new(EventLog {
            number: open.next,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        if open.logs.len() >= STREAMS {
            open.logs.pop_front();
        }
        open.logs.push_back(Arc::clone(&log));
        log
    }

    /// The stream that an event id belongs to, and the number of the event after it; `None` when it is not kept,
    /// or something after it is not.
    pub(super) fn after(&self, event_id: &str) -> Option<(Arc<EventLog>, u64)> {
        let (stream, event) = event_id.split_once('-')?;
        let (stream, event) = (stream.parse::<u64>().ok()?, event.parse::<u64>().ok()?);
        let log = lock(&self.0).logs.iter().find(|log| log.number == stream).cloned()?;
        let next = event.checked_add(1)?;
        let known = {
            let state = lock(&log.state);
            let first = state.next - state.events.len() as u64;
            (first..=state.next).contains(&next)
        };
        known.then_some((log, next))
    }
}

/// One stream's events.
#[derive(Debug)]
pub(super) struct EventLog {
    number: u64,
    state: Mutex<Log>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Log {
    /// The number of the event to come.
    next: u64,
    events: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Counts the pauses: a reader leaves when it has grown.
    pauses: u64,
    over: bool,
}

impl EventLog {
    /// An event that carries nothing but its id, so that a client that is let go at once knows where to go on.
    pub(super) fn prime(&self) {
        self.add(|id| format!("id: {id}\nretry: {RETRY}\ndata: \n\n").into_bytes());
    }

    pub(super) fn push(&self, message: &[u8]) {
        self.add(|id| {
            let mut event = format!("id: {id}\nevent: message\ndata: ").into_bytes();
            event.extend_from_slice(message);
            event.extend_from_slice(b"\n\n");
            event
        });
    }

    fn add(&self, event: impl FnOnce(String) -> Vec<u8>) {
        let mut state = lock(&self.state);
        let event = event(format!("{}-{}", self.number, state.next));
        state.next += 1;
        state.bytes += event.len();
        state.events.push_back(event);
        while state.events.len() > EVENTS || (state.bytes > BYTES && state.events.len() > 1) {
            if let Some(gone) = state.events.pop_front() {
                state.bytes -= gone.len();
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Lets those who read now go once they have read everything there is.
    pub(super) fn pause(&self) {
        lock(&self.state).pauses += 1;
        self.changed.send_replace(());
    }

    /// Nothing will follow.
    pub(super) fn finish(&self) {
        lock(&self.state).over = true;
        self.changed.send_replace(());
    }

    /// Reads from event number `next` on, until the stream is over or pauses, or the reader is gone.
    pub(super) fn follow(self: Arc<Self>, mut next: u64) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(16);
        let mut changed = self.changed.subscribe();
        let pauses = lock(&self.state).pauses;
        tokio::spawn(async move {
            loop {
                changed.mark_unchanged();
                let (events, ended) = {
                    let state = lock(&self.state);
                    let first = state.next - state.events.len() as u64;
                    if next < first {
                        // A reader that is too slow is cut off, and told when it comes back.
                        break;
                    }
                    let skip = usize::try_from(next - first).unwrap_or(usize::MAX);
                    let events: Vec<_> = state.events.iter().skip(skip).cloned().collect();
                    (events, state.over || state.pauses > pauses)
                };
                next += events.len() as u64;
                for event in events {
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
                if ended {
                    break;
                }
                tokio::select! {
                    changed = changed.changed() => if changed.is_err() { break },
                    () = sender.closed() => break,
                }
            }
        });
        receiver
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut events: mpsc::Receiver<Vec<u8>>) -> String {
        let mut text = String::new();
        while let Some(event) = events.recv().await {
            text.push_str(&String::from_utf8(event).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn a_reader_that_was_let_go_finds_the_rest() {
        let streams = Streams::default();
        let log = streams.open();
        log.prime();
        let first = Arc::clone(&log).follow(0);
        log.pause();
        assert_eq!(all(first).await, "id: 1-0\nretry: 500\ndata: \n\n");
        log.push(b"{}");
        let (found, next) = streams.after("1-0").unwrap();
        log.finish();
        assert_eq!(all(found.follow(next)).await, "id: 1-1\nevent: message\ndata: {}\n\n");
        let (found, next) = streams.after("1-1").unwrap();
        assert_eq!(all(found.follow(next)).await, "");
    }

    #[tokio::test]
    async fn unknown_and_forgotten_events_are_not_found() {
        let streams = Streams::default();
        let log = streams.open();
        for _ in 0..=EVENTS {
            log.push(b"{}");
        }
        for unknown in ["", "1", "1-", "2-0", "1-257", "1-x", "-1-0", "1-18446744073709551615"] {
            assert!(streams.after(unknown).is_none(), "{unknown}");
        }
        // Event 0 is forgotten: whoever has it may go on, whoever has nothing may not.
        assert!(streams.after("1-0").is_some());
        log.push(b"{}");
        assert!(streams.after("1-0").is_none());
        for _ in 0..STREAMS {
            streams.open();
        }
        assert!(streams.after("1-257").is_none());
    }
}
