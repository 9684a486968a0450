//! Uploads: the one kind of body that is streamed. PVE takes them as `multipart/form-data` with a length, and nothing
//! else as large.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::header;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

use super::{
    Client, Inner,
    call::Call,
    fault::{Failure, failure, nowhere},
};
use crate::{
    error::{Effect, Error, ErrorKind},
    wire::{Path, Reply},
};

/// How much is read from the source at once.
const CHUNK: usize = 64 * 1024;

/// A body of three parts, the middle one read from a source as it is sent.
pub(crate) struct Multipart<S> {
    pub(crate) boundary: String,
    pub(crate) head: Bytes,
    pub(crate) source: S,
    /// How many bytes the source has. Fewer or more are an error, and PVE then gets no whole body.
    pub(crate) size: u64,
    pub(crate) tail: Bytes,
}

/// What attempts at several endpoints share. The source stays here until a connection takes bytes from it.
struct Shared {
    source: Mutex<Box<dyn AsyncRead + Send + Unpin>>,
    head: Bytes,
    size: u64,
    tail: Bytes,
    /// Bytes handed to the connection.
    sent: AtomicU64,
    /// What was wrong with the source.
    problem: Mutex<Option<String>>,
}

impl Shared {
    fn total(&self) -> u64 {
        self.size + self.head.len() as u64 + self.tail.len() as u64
    }

    fn fail(&self, problem: String) -> io::Error {
        let mut slot = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        io::Error::other(slot.insert(problem).clone())
    }

    fn take_problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where in the body an attempt is.
#[derive(Clone, Copy)]
enum Part {
    Head,
    /// So many bytes of the source are left.
    Source(u64),
    Done,
}

pub(super) struct UploadBody {
    shared: Arc<Shared>,
    part: Part,
    buffer: Vec<u8>,
}

impl UploadBody {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, part: Part::Head, buffer: Vec::new() }
    }

    fn give(&self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.shared.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let left = match this.part {
            Part::Head => {
                this.part = Part::Source(this.shared.size);
                return this.give(this.shared.head.clone());
            }
            Part::Source(left) => left,
            Part::Done => return Poll::Ready(None),
        };
        // One byte more than is left tells a source that is longer than was said.
        let want = usize::try_from(left.saturating_add(1)).unwrap_or(CHUNK).min(CHUNK);
        this.buffer.resize(want, 0);
        let mut into = ReadBuf::new(&mut this.buffer);
        let read = {
            let mut source = this.shared.source.lock().unwrap_or_else(PoisonError::into_inner);
            ready!(Pin::new(&mut **source).poll_read(cx, &mut into))
        };
        if let Err(error) = read {
            return Poll::Ready(Some(Err(this.shared.fail(format!("it could not be read: {error}")))));
        }
        let got = into.filled();
        let size = this.shared.size;
        match left.checked_sub(got.len() as u64) {
            None => Poll::Ready(Some(Err(this
                .shared
                .fail(format!("it is longer than the {size} bytes that were said"))))),
            Some(0) if got.is_empty() => {
                this.part = Part::Done;
                this.give(this.shared.tail.clone())
            }
            Some(rest) if got.is_empty() => {
                let had = size - rest;
                let problem = format!("it ended after {had} of the {size} bytes that were said");
                Poll::Ready(Some(Err(this.shared.fail(problem))))
            }
            Some(rest) => {
                this.part = Part::Source(rest);
                let bytes = Bytes::copy_from_slice(got);
                this.give(bytes)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.part, Part::Done)
    }

    fn size_hint(&self) -> SizeHint {
        let tail = self.shared.tail.len() as u64;
        SizeHint::with_exact(match self.part {
            Part::Head => self.shared.total(),
            Part::Source(left) => left + tail,
            Part::Done => 0,
        })
    }
}

impl Client {
    /// Sends a streamed body, at most once: the next endpoint gets it only while no connection could be made. There is
    /// no deadline for the whole; it fails when nothing moves for the time a mutation has.
    pub(crate) async fn upload_to(
        &self,
        path: &Path,
        body: Multipart<impl AsyncRead + Send + Unpin + 'static>,
    ) -> Result<Reply, Error> {
        let call = Call::streamed(path);
        let content_type = format!("multipart/form-data; boundary={}", body.boundary);
        let shared = Arc::new(Shared {
            source: Mutex::new(Box::new(body.source)),
            head: body.head,
            size: body.size,
            tail: body.tail,
            sent: AtomicU64::new(0),
            problem: Mutex::new(None),
        });
        let inner = &self.0;
        let work = async {
            let _turn = inner.turn_to_write().await?;
            let mut failed = Vec::new();
            for index in inner.endpoint_order() {
                match inner.upload_at(index, &call, &content_type, &shared).await {
                    Ok(reply) => return Ok(reply),
                    Err(Failure::Connect(error)) => inner.passed_over(index, error, &mut failed),
                    Err(Failure::Broken(error) | Failure::Useless(error) | Failure::Final(error)) => {
                        return Err(error);
                    }
                }
            }
            Err(nowhere(failed))
        };
        inner.guarded(&call, work).await
    }
}

impl Inner {
    async fn upload_at(
        &self,
        index: usize,
        call: &Call,
        content_type: &str,
        shared: &Arc<Shared>,
    ) -> Result<Reply, Failure> {
        let Some(endpoint) = self.endpoints.get(index) else {
            return Err(Failure::Connect(Error::config("no such endpoint")));
        };
        let request = call
            .head(endpoint, &self.header)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::CONTENT_LENGTH, shared.total())
            .body(UploadBody::new(Arc::clone(shared)))
            .map_err(|error| {
                let problem = "the request could not be formed";
                Failure::Final(Error::new(ErrorKind::Config, Effect::NotSent, problem).with_source(error))
            })?;
        let mut answer = std::pin::pin!(self.uploads.request(request));
        let patience = self.timeouts.write;
        let answer = loop {
            let before = shared.sent.load(Ordering::Relaxed);
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(answer) => break answer,
                Err(_) if shared.sent.load(Ordering::Relaxed) > before => {}
                Err(_) => {
                    let message = format!("the upload stood still for {patience:?}");
                    return Err(Failure::Final(Error::new(ErrorKind::Timeout, effect(shared), message)));
                }
            }
        };
        match answer {
            Ok(response) => {
                self.preferred.store(index, Ordering::Relaxed);
                self.answer(response, call).await
            }
            Err(error) => Err(match (shared.take_problem(), failure(error, true)) {
                (Some(problem), _) => {
                    let message = format!("the source is not as it should be: {problem}; nothing was stored");
                    Failure::Final(Error::new(ErrorKind::Source, Effect::NotSent, message))
                }
                (None, Failure::Broken(error) | Failure::Useless(error) | Failure::Final(error)) => {
                    Failure::Final(
                        Error::new(error.kind(), effect(shared), error.message()).with_source(error),
                    )
                }
                (None, connect) => connect,
            }),
        }
    }
}

/// What a failure means for the file: PVE stores nothing before it has the whole body.
fn effect(shared: &Shared) -> Effect {
    if shared.sent.load(Ordering::Relaxed) < shared.total() { Effect::NotSent } else { Effect::Unknown }
}
