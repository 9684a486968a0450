//! The client: what it holds and how calls come back as typed answers.

mod body;
mod breaker;
mod builder;
mod call;
mod endpoint;
mod exchange;
mod fault;
mod lane;
mod rehearsal;
mod token;
mod upload;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::Full;
use hyper_util::client::legacy;

pub use builder::{ClientBuilder, Timeouts};
pub use endpoint::Endpoint;
pub(crate) use fault::{chain, is_tls};
pub use rehearsal::{Rehearsal, RehearsedRequest};
pub use token::ApiToken;
pub(crate) use upload::Multipart;

use self::{breaker::Breaker, call::Call, lane::Lane};
use crate::{
    error::Error,
    tls::Connector,
    wire::{Form, Path, Reply, Scrubber},
};

type Http = legacy::Client<Connector, Full<Bytes>>;

/// A client of one cluster. Clones share connections; its futures run on tokio.
///
/// Reads are tried at the next endpoint when one cannot be connected to, does not answer or is a gateway without a
/// cluster behind it, and once more when a connection breaks. A mutation is sent at most once: it moves to the next
/// endpoint only while no connection could be made, which is before anything of it could be written.
///
/// At most 64 reads and 16 mutations are on their way at once, 256 and 64 more may wait for their turn. After five
/// calls in a row that the cluster as a whole did not answer, or answered with 401 or as a dead gateway, calls fail at
/// once with [`Effect::NotSent`](crate::Effect::NotSent) for 1 s, then one is let through to see; the pause doubles up
/// to 30 s. Each client has its own connections, queue and count, so that no cluster stands in another's way.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    endpoints: Vec<Endpoint>,
    /// The endpoint that answered last: one that is down costs its connect timeout once, not on every call.
    preferred: AtomicUsize,
    header: HeaderValue,
    token_id: String,
    scrubber: Scrubber,
    reads: Http,
    writes: Http,
    uploads: legacy::Client<Connector, upload::UploadBody>,
    timeouts: Timeouts,
    /// When the last answer was written by the clock over there; seconds since 1970, 0 before the first.
    date: AtomicU64,
    reads_lane: Lane,
    writes_lane: Lane,
    breaker: Breaker,
    /// Of a client that sends no change: where it says what it would have sent.
    rehearsal: Option<Arc<rehearsal::Notes>>,
}

impl Client {
    /// Starts building a client.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The id of the token calls are made with, `user@realm!name`: the user that PVE's tasks carry.
    #[must_use]
    pub fn token_id(&self) -> &str {
        &self.0.token_id
    }

    /// Where the cluster's API is, in the order in which endpoints are tried.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.endpoints.iter()
    }

    /// The same client asking this endpoint alone, one of [`endpoints`](Self::endpoints), with its connections and its
    /// trust: for finding out how each of them is.
    #[must_use]
    pub fn only(&self, endpoint: &Endpoint) -> Self {
        self.sibling(vec![endpoint.clone()], self.0.rehearsal.clone())
    }

    /// The same connections, token and trust with its own queue and count of failures.
    fn sibling(&self, endpoints: Vec<Endpoint>, rehearsal: Option<Arc<rehearsal::Notes>>) -> Self {
        Self(Arc::new(Inner {
            endpoints,
            preferred: AtomicUsize::new(0),
            header: self.0.header.clone(),
            token_id: self.0.token_id.clone(),
            scrubber: self.0.scrubber.clone(),
            reads: self.0.reads.clone(),
            writes: self.0.writes.clone(),
            uploads: self.0.uploads.clone(),
            timeouts: self.0.timeouts,
            date: AtomicU64::new(0),
            reads_lane: Lane::for_reads(),
            writes_lane: Lane::for_writes(),
            breaker: Breaker::default(),
            rehearsal,
        }))
    }

    /// What the clock at the other end said when it wrote its last answer (its `Date`, whole seconds). `None` before an
    /// answer and where a proxy takes the header away.
    #[must_use]
    pub fn last_date(&self) -> Option<SystemTime> {
        let seconds = self.0.date.load(Ordering::Relaxed);
        (seconds != 0).then(|| UNIX_EPOCH + Duration::from_secs(seconds))
    }

    pub(crate) async fn read(&self, path: Path, query: Form) -> Result<Reply, Error> {
        self.0.read(Call::new(Method::GET, path, query)).await
    }

    /// A read whose answer is given once only: sent once, like a mutation.
    pub(crate) async fn read_once(&self, path: Path, query: Form) -> Result<Reply, Error> {
        self.0.mutate(Call::new(Method::GET, path, query)).await
    }

    pub(crate) async fn post(&self, path: Path, form: Form) -> Result<Reply, Error> {
        self.0.mutate(Call::new(Method::POST, path, form)).await
    }

    pub(crate) async fn put(&self, path: Path, form: Form) -> Result<Reply, Error> {
        self.0.mutate(Call::new(Method::PUT, path, form)).await
    }

    pub(crate) async fn delete(&self, path: Path, query: Form) -> Result<Reply, Error> {
        self.0.mutate(Call::new(Method::DELETE, path, query)).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.0.endpoints)
            .field("token_id", &self.0.token_id)
            .finish_non_exhaustive()
    }
}
