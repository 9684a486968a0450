//! A reply that became a stream: progress, log messages, comments while silent, the response, end.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::{BoxBody, service::CancelOnDrop};
use crate::{
    Era, Identity, RequestId,
    call::{Note, Running, settled},
    reply,
};

/// One reply's stream. Pulled by the connection, so a slow reader holds up only its own call's progress.
pub(super) struct Stream {
    pub(super) identity: Arc<Identity>,
    pub(super) era: Era,
    pub(super) id: RequestId,
    /// `None` once the response was sent.
    pub(super) running: Option<Running>,
    /// Events that were ready before the stream began.
    pub(super) first: Option<Bytes>,
    pub(super) keep_alive: Duration,
    pub(super) timer: Pin<Box<tokio::time::Sleep>>,
    /// Fires when the client closes a modern stream early.
    pub(super) guard: Option<CancelOnDrop>,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(running) = &mut this.running else { return Poll::Ready(None) };
        // Progress first: once the response is out, nothing may follow it.
        if let Some(updates) = &mut running.progress
            && let Poll::Ready(update) = updates.poll_recv(cx)
        {
            match update {
                Some(update) => {
                    let frame = event(&running.notification(&update));
                    this.timer.as_mut().reset(tokio::time::Instant::now() + this.keep_alive);
                    return Poll::Ready(Some(Ok(Frame::data(frame))));
                }
                None => running.progress = None,
            }
        }
        while let Some(notes) = &mut running.notes
            && let Poll::Ready(note) = notes.poll_recv(cx)
        {
            match note {
                Some(Note::Message(message)) => {
                    this.timer.as_mut().reset(tokio::time::Instant::now() + this.keep_alive);
                    return Poll::Ready(Some(Ok(Frame::data(event(&message)))));
                }
                // Without a session there is no coming back.
                Some(Note::Pause) => {}
                None => running.notes = None,
            }
        }
        if let Poll::Ready(joined) = Pin::new(&mut running.task).poll(cx) {
            // The call may have reported between the polls above.
            let mut frames = Vec::new();
            for message in running.rest() {
                frames.extend_from_slice(&event(&message));
            }
            frames.extend_from_slice(&event(&reply::encode(
                &this.identity,
                this.era,
                &this.id,
                &settled(joined),
            )));
            this.running = None;
            if let Some(guard) = this.guard.take() {
                guard.disarm();
            }
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(frames)))));
        }
        if this.timer.as_mut().poll(cx).is_ready() {
            this.timer.as_mut().reset(tokio::time::Instant::now() + this.keep_alive);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b":\n\n")))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.running.is_none() && self.first.is_none()
    }
}

/// A stream of frames that somebody else makes, with comments while it is silent.
pub(super) struct Frames {
    frames: mpsc::Receiver<Vec<u8>>,
    /// Whether a frame is a message that is still to become an event.
    messages: bool,
    keep_alive: Duration,
    timer: Pin<Box<tokio::time::Sleep>>,
    begun: bool,
}

impl Frames {
    /// Of messages.
    pub(super) fn messages(frames: mpsc::Receiver<Vec<u8>>, keep_alive: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        Self { frames, messages: true, keep_alive, timer, begun: false }
    }

    /// Of events.
    pub(super) fn ready(frames: mpsc::Receiver<Vec<u8>>, keep_alive: Duration) -> Self {
        Self { messages: false, ..Self::messages(frames, keep_alive) }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let silent = Bytes::from_static(b":\n\n");
        let frame = match this.frames.poll_recv(cx) {
            Poll::Ready(Some(frame)) if this.messages => event(&frame),
            Poll::Ready(Some(frame)) => Bytes::from(frame),
            Poll::Ready(None) => return Poll::Ready(None),
            // The first comment makes the response's head leave at once.
            Poll::Pending if !this.begun => silent,
            Poll::Pending if this.timer.as_mut().poll(cx).is_ready() => silent,
            Poll::Pending => return Poll::Pending,
        };
        this.begun = true;
        this.timer.as_mut().reset(tokio::time::Instant::now() + this.keep_alive);
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

/// One event. JSON text has no line breaks, so one `data` line holds it.
pub(super) fn event(message: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(message.len() + 24);
    text.extend_from_slice(b"event: message\ndata: ");
    text.extend_from_slice(message);
    text.extend_from_slice(b"\n\n");
    Bytes::from(text)
}

/// A 200 whose body is `body`, with the headers that keep proxies from holding it back.
pub(super) fn response<B>(body: B) -> Response<BoxBody>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
{
    let mut response = Response::new(body.boxed());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
