//! From a request to a spent link. Order matters: the method and the raw path are looked at before the token, the token
//! before the body, and whatever comes after the claim finds the link spent.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;
use transfers::{Claim, LinkId, Presented};

use super::errand::Errand;
use super::push::{Declared, Ended};
use super::reply::{self, Reply};
use super::{Binding, Transfers, digest, download, push, storage, tus};
use crate::app::App;
use crate::audit::{Event, Record};

/// Where upload links live. The label of the route everywhere is this and `{token}`.
pub const PREFIX: &str = "/transfers/upload/";
/// Where links onto a storage live.
pub const STORAGE: &str = "/transfers/storage/";
/// Where resumable uploads live.
pub(super) const TUS: &str = "/transfers/tus/";
/// Where download links live.
pub const DOWNLOAD: &str = "/transfers/download/";

/// Alerts of reused links that one peer can cause in a minute.
const REUSES_PER_MINUTE: u32 = 10;

/// Whether a request belongs to this module: also for spellings it then answers with the canonical 404.
pub fn is_transfer_path(path: &str) -> bool {
    path.starts_with("/transfers/")
}

/// Serves one request under `/transfers/`.
pub async fn handle<B>(app: Arc<App>, peer: IpAddr, request: Request<B>) -> Reply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let Some(transfers) = app.transfers.clone() else { return reply::not_found() };
    if request.uri().path().starts_with(DOWNLOAD) {
        return download::handle(app, transfers, peer, &request).await;
    }
    if request.uri().path().starts_with(TUS) {
        return tus::handle(app, transfers, peer, request).await;
    }
    if request.uri().path().starts_with(STORAGE) {
        return storage::handle(app, transfers, peer, request).await;
    }
    let on_prefix = request.uri().path().starts_with(PREFIX);
    if on_prefix && request.method() != Method::PUT && request.method() != Method::POST {
        return reply::method_not_allowed("PUT, POST");
    }
    if request.version() != Version::HTTP_11 {
        // Without chunks and `100 Continue` a proxy would have to store what is meant to be streamed.
        let message =
            "an upload needs HTTP/1.1; let the proxy in between speak it (nginx: `proxy_http_version 1.1`)";
        return reply::error(StatusCode::BAD_REQUEST, "http_version", message);
    }
    let Some(token) = token_of(&request, PREFIX) else { return reply::not_found() };
    let now = app.clock.monotonic();
    match transfers.links.claim(token, now) {
        Presented::Won(claim) => {
            let (parts, body) = request.into_parts();
            // From here the link is spent. The work runs in a task of its own: an uploader who has sent every byte and
            // hangs up has uploaded.
            let worker = app.clone();
            let work = async move {
                if tus::is_creation(&parts.method, &parts.headers) {
                    return tus::create(&worker, &transfers, claim, peer, &parts.headers).await;
                }
                redeem(&worker, &transfers, claim, peer, &parts, body).await
            };
            app.tracker.spawn(work).await.unwrap_or_else(|_| {
                reply::error(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "the upload ended unexpectedly; ask for a new link",
                )
            })
        }
        Presented::Reused { id, owner } => reused(&app, &transfers, peer, id, &owner).await,
        Presented::Absent => wrong_token(&app, &transfers, peer),
    }
}

/// A spent link that is presented again: an alert, and the answer that every wrong token gets.
pub(super) async fn reused(app: &App, transfers: &Transfers, peer: IpAddr, id: LinkId, owner: &str) -> Reply {
    // One peer's share of alerts: whoever has a spent link must not be able to fill the audit with it.
    if transfers.reuses.failure(peer, REUSES_PER_MINUTE, app.clock.monotonic()) {
        let record = Record::new(Event::TransferLinkReuse)
            .denied("link_reuse", "a spent link was presented again: somebody else may hold it")
            .link(id.to_string())
            .peer(peer)
            .detail("owner", owner.to_owned());
        if let Err(error) = app.audit.append(record).await {
            tracing::error!(%error, "the reuse of a link could not be audited");
        }
    }
    wrong_token(app, transfers, peer)
}

/// The token, where the request's target is exactly the one spelling that redeems: no query, nothing after the token.
/// What is in it is the link store's to judge.
pub(super) fn token_of<'r, B>(request: &'r Request<B>, prefix: &str) -> Option<&'r str> {
    let uri = request.uri();
    if uri.query().is_some() {
        return None;
    }
    uri.path().strip_prefix(prefix)
}

pub(super) fn wrong_token(app: &App, transfers: &Transfers, peer: IpAddr) -> Reply {
    let allowed = app.live.load().policy.limits.transfer_wrong_tokens_per_minute;
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX);
    if transfers.wrong_tokens.failure(peer, allowed, app.clock.monotonic()) {
        reply::not_found()
    } else {
        reply::error(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_requests",
            "too many wrong links from this address; wait a minute",
        )
    }
}

/// Everything that follows a won claim, ending in exactly one outcome and one audit record.
async fn redeem<B>(
    app: &Arc<App>,
    transfers: &Transfers,
    claim: Claim<Binding>,
    peer: IpAddr,
    parts: &http::request::Parts,
    body: B,
) -> Reply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let started = app.clock.monotonic();
    let id = claim.id().to_string();
    let binding = claim.binding().clone();
    let errand = Errand::of(&claim, Event::TransferUpload, peer);
    let mut warning = None;
    let ended = match (acceptable(parts, claim.binding()), errand.begins(app).await) {
        (Err(ended), _) | (Ok(_), Err(ended)) => ended,
        (Ok(declared), Ok(())) => {
            // `curl -d @FILE` drops line ends and zeros, and nothing in the request tells.
            let unproven = binding.options.expected_sha256.is_none() && declared.sha256.is_none();
            warning = (declared.form && unproven && binding.size.is_none()).then_some(
                "the body came as a form (`curl -d`), which drops line ends of a file; use `curl -T FILE` or compare the SHA-256",
            );
            let pushed = caught(push::push(app, transfers, &claim, declared, body)).await;
            pushed.unwrap_or_else(|| {
                let message = "the upload ended unexpectedly; ask for a new link";
                Ended::failed(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            })
        }
    };
    let micros = app.clock.monotonic().saturating_sub(started).as_micros();
    errand.ended(app, &ended, u64::try_from(micros).unwrap_or(u64::MAX)).await;
    let reply = ended.reply(&id, &binding, warning);
    claim.finish(ended.outcome, app.clock.monotonic());
    reply
}

/// The outcome of `work`, or `None` where it panicked: that must be recorded and answered like every other end. The panic's own
/// message has gone to the log by then.
pub(super) async fn caught<F: Future>(work: F) -> Option<F::Output> {
    let mut work = Box::pin(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Looks at the headers: what they declare, where that fits the link.
fn acceptable(parts: &http::request::Parts, binding: &Binding) -> Result<Declared, Ended> {
    acceptable_for(parts, binding.max_bytes, binding.size, binding.options.expected_sha256)
}

/// The same for a link with these promises.
pub(super) fn acceptable_for(
    parts: &http::request::Parts,
    max_bytes: u64,
    size: Option<u64>,
    expected: Option<[u8; 32]>,
) -> Result<Declared, Ended> {
    let unsupported =
        |message| Ended::failed(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message);
    let multipart = parts.headers.get_all(CONTENT_TYPE).iter().any(|value| {
        value.as_bytes().trim_ascii().get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/"))
    });
    if multipart {
        return Err(unsupported(
            "multipart bodies are not taken; send the file's bytes alone, as `curl -T FILE` does",
        ));
    }
    let encoded = parts
        .headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(unsupported("encoded bodies are not taken; the bytes are written as they come"));
    }
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length == Some(0) {
        return Err(push::empty());
    }
    if let Some(length) = length
        && length > max_bytes
    {
        return Err(push::too_large(max_bytes));
    }
    if let (Some(length), Some(size)) = (length, size)
        && length != size
    {
        return Err(Ended::failed(
            StatusCode::BAD_REQUEST,
            "size_mismatch",
            format!("the link was minted for {size} bytes and {length} were declared"),
        ));
    }
    let malformed = |message| Ended::failed(StatusCode::BAD_REQUEST, "digest", message);
    let sha256 = digest::declared(&parts.headers).map_err(malformed)?;
    if let (Some(declared), Some(expected)) = (sha256, expected)
        && declared != expected
    {
        return Err(malformed(
            "the declared digest is not the checksum that the link was minted for".to_owned(),
        ));
    }
    let form = parts.headers.get(CONTENT_TYPE).is_some_and(|value| {
        let form = b"application/x-www-form-urlencoded";
        value.as_bytes().get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form))
    });
    Ok(Declared { length, sha256, form })
}
