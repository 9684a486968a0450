//! Resumable uploads: tus 1.0 for files that do not fit one connection.
//!
//! A POST on an upload link with `Tus-Resumable` and `Upload-Length` spends the link and answers with the location of an upload,
//! whose token is as secret as the link's. HEAD, PATCH and DELETE exist there alone. The bytes are spooled in the node's
//! staging directory, never here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use guest_push::{PushOptions, Source, SourceError, Spool};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use transfers::{Claim, LinkToken, tus};

use super::body::{BodySource, Pace};
use super::errand::Errand;
use super::push::{Ended, cancelled, no_slot, of_push};
use super::reply::{self, Reply};
use super::route::{TUS, caught, token_of, wrong_token};
use super::way::Way;
use super::{Binding, Transfers, still_allowed};
use crate::app::App;
use crate::audit::Event;

/// Uploads that may be open at a time.
const MOST: usize = 32;
/// How long an upload waits for its next piece. Well below the age at which a staging file counts as forgotten.
const IDLE: Duration = Duration::from_secs(3600);
/// Longest wait for a node to have a free slot.
const SLOT_WAIT: Duration = Duration::from_secs(30);

const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
const UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
const DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");

/// Whether a presentation of an upload link asks for a resumable upload.
pub(super) fn is_creation(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::POST && headers.contains_key(RESUMABLE)
}

/// The open uploads, by the hash of their token.
#[derive(Debug, Default)]
pub(super) struct Uploads(Mutex<HashMap<[u8; 32], Arc<Upload>>>);

struct Upload {
    length: u64,
    /// One piece at a time; whoever comes meanwhile is told so.
    work: tokio::sync::Mutex<Option<Work>>,
    expires: Mutex<Duration>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("length", &self.length).finish_non_exhaustive()
    }
}

struct Work {
    spool: Spool,
    claim: Claim<Binding>,
    errand: Errand,
    started: Duration,
}

impl Uploads {
    fn find(&self, token: &str, now: Duration) -> Option<([u8; 32], Arc<Upload>)> {
        // One spelling only, as for links.
        LinkToken::parse(token)?;
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let uploads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let upload = uploads.get(&key)?.clone();
        let expires = *upload.expires.lock().unwrap_or_else(PoisonError::into_inner);
        (now < expires).then_some((key, upload))
    }

    fn remove(&self, key: &[u8; 32]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Drops uploads that nobody goes on with: their files are removed and their claims end as aborted.
    pub(super) fn sweep(&self, now: Duration) {
        let mut uploads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uploads.retain(|_, upload| now < *upload.expires.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn with_version(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(RESUMABLE, HeaderValue::from_static(tus::VERSION));
    reply
}

fn nothing(status: StatusCode) -> Reply {
    let mut reply = Response::new(Empty::new().boxed());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    with_version(reply)
}

fn refused(status: StatusCode, code: &str, message: &str) -> Reply {
    with_version(reply::error(status, code, message))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

fn speaks_ours(headers: &HeaderMap) -> bool {
    text(headers, &RESUMABLE) == Some(tus::VERSION)
}

fn wrong_version() -> Reply {
    let mut reply = refused(StatusCode::PRECONDITION_FAILED, "tus_version", "tus 1.0.0 is spoken here");
    reply
        .headers_mut()
        .insert(HeaderName::from_static("tus-version"), HeaderValue::from_static(tus::VERSION));
    reply
}

/// Opens a resumable upload for a link that has just been won.
pub(super) async fn create(
    app: &Arc<App>,
    transfers: &Transfers,
    claim: Claim<Binding>,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Reply {
    let started = app.clock.monotonic();
    let errand = Errand::of(&claim, Event::TransferUpload, peer);
    let opened = match errand.begins(app).await {
        Ok(()) => caught(open(app, transfers, &claim, headers)).await.unwrap_or_else(|| {
            let message = "the upload ended unexpectedly; ask for a new link";
            Err(Ended::failed(StatusCode::INTERNAL_SERVER_ERROR, "internal", message))
        }),
        Err(ended) => Err(ended),
    };
    let (spool, length) = match opened {
        Ok(opened) => opened,
        Err(ended) => return conclude(app, ended, claim, &errand, started).await,
    };
    let mut secret = [0_u8; 32];
    if getrandom::fill(&mut secret).is_err() {
        let ended = Ended::failed(StatusCode::INTERNAL_SERVER_ERROR, "internal", "no randomness");
        return conclude(app, ended, claim, &errand, started).await;
    }
    let token = data_encoding::BASE64URL_NOPAD.encode(&secret);
    let expires = app.clock.monotonic().saturating_add(IDLE);
    let upload = Upload {
        length,
        work: tokio::sync::Mutex::new(Some(Work { spool, claim, errand, started })),
        expires: Mutex::new(expires),
    };
    let key = Sha256::digest(token.as_bytes()).into();
    transfers.tus.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(upload));
    let mut reply = nothing(StatusCode::CREATED);
    if let Ok(location) = HeaderValue::from_str(&format!("{TUS}{token}")) {
        reply.headers_mut().insert(LOCATION, location);
    }
    reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    add_expiry(&mut reply, app);
    reply
}

/// When the upload lapses unless it goes on, in HTTP's form.
fn add_expiry(reply: &mut Reply, app: &App) {
    let at = app.clock.now().saturating_add(jiff::SignedDuration::from_secs(3600));
    let text = at.map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
    if let Ok(Ok(value)) = text.map(|text| HeaderValue::from_str(&text)) {
        reply.headers_mut().insert(UPLOAD_EXPIRES, value);
    }
}

async fn open(
    app: &App,
    transfers: &Transfers,
    claim: &Claim<Binding>,
    headers: &HeaderMap,
) -> Result<(Spool, u64), Ended> {
    let bad = |code, message: String| Ended::failed(StatusCode::BAD_REQUEST, code, message);
    if !speaks_ours(headers) {
        return Err(Ended::failed(
            StatusCode::PRECONDITION_FAILED,
            "tus_version",
            "tus 1.0.0 is spoken here",
        ));
    }
    if headers.contains_key(DEFER_LENGTH) {
        return Err(bad("tus_length", tus::TusError::Deferred.to_string()));
    }
    let length = tus::number(text(headers, &UPLOAD_LENGTH).unwrap_or_default())
        .map_err(|error| bad("tus_length", format!("Upload-Length: {error}")))?;
    let snapshot = app.live.load();
    let binding = claim.binding();
    if length == 0 {
        return Err(super::push::empty());
    }
    if length > binding.max_bytes {
        return Err(super::push::too_large(binding.max_bytes));
    }
    if let Some(size) = binding.size.filter(|size| *size != length) {
        return Err(bad(
            "size_mismatch",
            format!("the link was minted for {size} bytes and {length} were declared"),
        ));
    }
    if transfers.tus.0.lock().unwrap_or_else(PoisonError::into_inner).len() >= MOST {
        return Err(no_slot());
    }
    let (cluster, guest) = still_allowed(app, &snapshot, claim.owner(), binding).await?;
    let way = Way::to(&cluster, &guest, &snapshot.policy.transfers)
        .map_err(|none| Ended::failed(StatusCode::BAD_GATEWAY, "no_ssh", none.0))?;
    let Way::Container(pusher, ..) = &way else {
        return Err(Ended::failed(
            StatusCode::CONFLICT,
            "tus_unsupported",
            "resumable uploads go into containers only; send the file in one PUT",
        ));
    };
    way.check(&binding.dest, &binding.options).await.map_err(|error| of_push(&error, 0, length))?;
    let spool = pusher.spool(length).await.map_err(|error| of_push(&error, 0, length))?;
    Ok((spool, length))
}

async fn conclude(
    app: &App,
    ended: Ended,
    claim: Claim<Binding>,
    errand: &Errand,
    started: Duration,
) -> Reply {
    let micros = app.clock.monotonic().saturating_sub(started).as_micros();
    errand.ended(app, &ended, u64::try_from(micros).unwrap_or(u64::MAX)).await;
    let reply = ended.reply(&claim.id().to_string(), claim.binding(), None);
    claim.finish(ended.outcome, app.clock.monotonic());
    with_version(reply)
}

/// Serves one request at the location of an upload.
pub(super) async fn handle<B>(
    app: Arc<App>,
    transfers: Arc<Transfers>,
    peer: IpAddr,
    request: Request<B>,
) -> Reply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let known = [Method::HEAD, Method::PATCH, Method::DELETE];
    if !known.contains(request.method()) {
        return reply::method_not_allowed("HEAD, PATCH, DELETE");
    }
    let Some(token) = token_of(&request, TUS) else { return reply::not_found() };
    let Some((key, upload)) = transfers.tus.find(token, app.clock.monotonic()) else {
        return wrong_token(&app, &transfers, peer);
    };
    if !speaks_ours(request.headers()) {
        return wrong_version();
    }
    // A piece under way goes on in a task of its own: it must end in a known state whatever the client does.
    let Ok(work) = upload.work.try_lock() else {
        return refused(StatusCode::LOCKED, "tus_busy", "a piece of this upload is under way");
    };
    match *request.method() {
        Method::HEAD => {
            let Some(work) = work.as_ref() else { return reply::not_found() };
            let mut reply = nothing(StatusCode::OK);
            let headers = reply.headers_mut();
            headers.insert(UPLOAD_OFFSET, HeaderValue::from(work.spool.offset()));
            headers.insert(UPLOAD_LENGTH, HeaderValue::from(upload.length));
            add_expiry(&mut reply, &app);
            reply
        }
        Method::DELETE => {
            let mut work = work;
            let Some(work) = work.take() else { return reply::not_found() };
            transfers.tus.remove(&key);
            let Work { spool, claim, errand, started } = work;
            let gone = spool.discard().await;
            let mut ended = cancelled();
            if let (Err(error), transfers::Outcome::Failed { message, .. }) = (&gone, &mut ended.outcome) {
                *message = format!("{message} (clean-up not confirmed: {error})");
            }
            conclude(&app, ended, claim, &errand, started).await;
            nothing(StatusCode::NO_CONTENT)
        }
        _ => {
            drop(work);
            let (parts, body) = request.into_parts();
            let worker = app.clone();
            let piece = async move { patch(&worker, &transfers, key, &upload, &parts.headers, body).await };
            app.tracker.spawn(piece).await.unwrap_or_else(|_| {
                refused(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the upload ended unexpectedly")
            })
        }
    }
}

/// One piece: appended, and the whole delivered when it is the last.
async fn patch<B>(
    app: &Arc<App>,
    transfers: &Transfers,
    key: [u8; 32],
    upload: &Upload,
    headers: &HeaderMap,
    body: B,
) -> Reply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let Ok(mut guard) = upload.work.try_lock() else {
        return refused(StatusCode::LOCKED, "tus_busy", "a piece of this upload is under way");
    };
    let Some(mut work) = guard.take() else { return reply::not_found() };
    let checked = piece(headers, work.spool.offset(), upload.length);
    let (length, expected) = match checked {
        Ok(checked) => checked,
        Err(reply) => {
            *guard = Some(work);
            return *reply;
        }
    };
    let snapshot = app.live.load();
    let left = upload.length - work.spool.offset();
    let pace = Pace::of(&snapshot.policy.limits, left);
    let mut source = Summed::new(BodySource::new(body, length, left, pace), expected.as_ref());
    let mark = work.spool.mark();
    let appended = {
        let claim = &work.claim;
        let progress = |bytes: u64, stage: guest_push::Stage| claim.progress(bytes, stage.as_str());
        work.spool.append(&mut source, &progress).await
    };
    *upload.expires.lock().unwrap_or_else(PoisonError::into_inner) =
        app.clock.monotonic().saturating_add(IDLE);
    match appended {
        Err(error) if matches!(error.kind(), guest_push::PushErrorKind::Source(_)) => {
            // What came is kept, unless it was to be checked as a whole.
            if expected.is_some() {
                work.spool.rewind(mark);
            }
            let ended = of_push(&error, work.spool.offset(), upload.length);
            *guard = Some(work);
            refused(ended.status, "tus_piece", &error.to_string())
        }
        Err(error) => {
            transfers.tus.remove(&key);
            let Work { claim, errand, started, spool } = work;
            drop(spool);
            conclude(app, of_push(&error, 0, upload.length), claim, &errand, started).await
        }
        Ok(()) if !source.matches(expected.as_ref()) => {
            work.spool.rewind(mark);
            *guard = Some(work);
            // The status that the checksum extension asks for.
            let status = StatusCode::from_u16(460).unwrap_or(StatusCode::BAD_REQUEST);
            refused(status, "tus_checksum", "the piece is not the one of its checksum; send it again")
        }
        Ok(()) if work.spool.offset() < upload.length => {
            let mut reply = nothing(StatusCode::NO_CONTENT);
            reply.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(work.spool.offset()));
            add_expiry(&mut reply, app);
            *guard = Some(work);
            reply
        }
        Ok(()) => {
            transfers.tus.remove(&key);
            let Work { spool, claim, errand, started } = work;
            let ended = caught(deliver(app, transfers, spool, &claim)).await.unwrap_or_else(|| {
                let message = "the upload ended unexpectedly; ask for a new link";
                Ended::failed(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            });
            let done = ended.status.is_success();
            let reply = conclude(app, ended, claim, &errand, started).await;
            if !done {
                return reply;
            }
            let mut reply = nothing(StatusCode::NO_CONTENT);
            reply.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(upload.length));
            reply
        }
    }
}

/// The minter's rights and the guest are looked at once more, now that the file is whole.
async fn deliver(app: &Arc<App>, transfers: &Transfers, spool: Spool, claim: &Claim<Binding>) -> Ended {
    let snapshot = app.live.load();
    let binding = claim.binding();
    let (cluster, guest) = match still_allowed(app, &snapshot, claim.owner(), binding).await {
        Ok(found) => found,
        Err(ended) => return ended,
    };
    let at_once = usize::try_from(snapshot.policy.limits.uploads_per_node).unwrap_or(1);
    let slot = app.slots.enter(&cluster.name, guest.node(), at_once);
    let Ok(Some(_slot)) = tokio::time::timeout(SLOT_WAIT, slot).await else { return no_slot() };
    let options = PushOptions { max_bytes: None, ..binding.options.clone() };
    let progress = |bytes: u64, stage: guest_push::Stage| claim.progress(bytes, stage.as_str());
    let delivering = spool.deliver_lxc(binding.vmid, &binding.dest, &options, &progress);
    match transfers.cancellable(claim.id(), delivering).await {
        None => cancelled(),
        Some(Ok(receipt)) => Ended::delivered(&receipt),
        Some(Err(error)) => of_push(&error, 0, binding.max_bytes),
    }
}

type Piece = (Option<u64>, Option<tus::Checksum>);

/// Looks at a piece's headers: its length, where it is declared, and its checksum.
fn piece(headers: &HeaderMap, offset: u64, length: u64) -> Result<Piece, Box<Reply>> {
    let refuse = |status, code, message: &str| Box::new(refused(status, code, message));
    let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    if kind != Some(tus::CONTENT_TYPE.as_bytes()) {
        let message = "a piece has the type application/offset+octet-stream";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let given = tus::number(text(headers, &UPLOAD_OFFSET).unwrap_or_default())
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, "tus_offset", &format!("Upload-Offset: {error}")))?;
    if given != offset {
        let message = "the piece does not begin where the upload is; ask with HEAD";
        return Err(refuse(StatusCode::CONFLICT, "tus_offset", message));
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > length - offset) {
        let message = "the piece is longer than what is left of the upload";
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
    }
    let checksum = text(headers, &UPLOAD_CHECKSUM)
        .map(tus::checksum)
        .transpose()
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, "tus_checksum", &error.to_string()))?;
    Ok((declared, checksum))
}

/// A source that is summed on the way, where a checksum is to be compared.
struct Summed<S> {
    source: S,
    sums: Option<(Sha1, Sha256)>,
}

impl<S> Summed<S> {
    fn new(source: S, expected: Option<&tus::Checksum>) -> Self {
        Self { source, sums: expected.map(|_| (Sha1::new(), Sha256::new())) }
    }

    fn matches(&self, expected: Option<&tus::Checksum>) -> bool {
        match (expected, &self.sums) {
            (Some(tus::Checksum::Sha1(sum)), Some((sha1, _))) => {
                sha1.clone().finalize().as_slice() == sum.as_slice()
            }
            (Some(tus::Checksum::Sha256(sum)), Some((_, sha256))) => {
                sha256.clone().finalize().as_slice() == sum.as_slice()
            }
            _ => true,
        }
    }
}

impl<S: Source> Source for Summed<S> {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let next = self.source.next().await?;
        if let (Some(chunk), Some((sha1, sha256))) = (&next, &mut self.sums) {
            sha1.update(chunk);
            sha256.update(chunk);
        }
        Ok(next)
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }
}
