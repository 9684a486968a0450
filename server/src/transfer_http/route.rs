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
use transfers::{Claim, Outcome, Presented};

use super::reply::{self, Reply};
use super::{Binding, Transfers, push};
use crate::app::App;
use crate::audit::{Event, Record};
use crate::metrics::TransferRoute;

/// Where upload links live. The label of the route everywhere is this and `{token}`.
pub const PREFIX: &str = "/transfers/upload/";

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
    let on_prefix = request.uri().path().starts_with(PREFIX);
    if on_prefix && request.method() != Method::PUT && request.method() != Method::POST {
        return reply::method_not_allowed();
    }
    if request.version() != Version::HTTP_11 {
        // Without chunks and `100 Continue` a proxy would have to store what is meant to be streamed.
        let message =
            "an upload needs HTTP/1.1; let the proxy in between speak it (nginx: `proxy_http_version 1.1`)";
        return reply::error(StatusCode::BAD_REQUEST, "http_version", message);
    }
    let Some(token) = token_of(&request) else { return reply::not_found() };
    let now = app.clock.monotonic();
    match transfers.links.claim(token, now) {
        Presented::Won(claim) => {
            let (parts, body) = request.into_parts();
            // From here the link is spent. The work runs in a task of its own: an uploader who has sent every byte and
            // hangs up has uploaded.
            let worker = app.clone();
            let work = async move { redeem(&worker, &transfers, claim, peer, &parts, body).await };
            app.tracker.spawn(work).await.unwrap_or_else(|_| {
                reply::error(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "the upload ended unexpectedly; ask for a new link",
                )
            })
        }
        // One peer's share of alerts: whoever has a spent link must not be able to fill the audit with it.
        Presented::Reused { id, owner } if transfers.reuses.failure(peer, REUSES_PER_MINUTE, now) => {
            let record = Record::new(Event::TransferLinkReuse)
                .denied("link_reuse", "a spent link was presented again: somebody else may hold it")
                .link(id.to_string())
                .peer(peer)
                .detail("owner", owner.to_string());
            if let Err(error) = app.audit.append(record).await {
                tracing::error!(%error, "the reuse of a link could not be audited");
            }
            wrong_token(&app, &transfers, peer)
        }
        Presented::Reused { .. } | Presented::Absent => wrong_token(&app, &transfers, peer),
    }
}

/// The token, where the request's target is exactly the one spelling that redeems: no query, nothing after the token.
/// What is in it is the link store's to judge.
fn token_of<B>(request: &Request<B>) -> Option<&str> {
    let uri = request.uri();
    if uri.query().is_some() {
        return None;
    }
    uri.path().strip_prefix(PREFIX)
}

fn wrong_token(app: &App, transfers: &Transfers, peer: IpAddr) -> Reply {
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
    let attempt = Record::new(Event::TransferAttempt)
        .principal(claim.owner())
        .request_id(&binding.request_id)
        .cluster(binding.cluster.clone())
        .vmid(binding.vmid)
        .link(id.clone())
        .peer(peer);
    let ended = match (acceptable(parts, claim.binding()), app.audit.append_durable(attempt).await) {
        (Err(ended), _) => ended,
        (Ok(_), Err(_)) => Ended::failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "audit_unavailable",
            "the server cannot record uploads at the moment, so nothing was written; ask for a new link later",
        ),
        (Ok(length), Ok(_)) => {
            let pushed = caught(push::push(app, transfers, &claim, length, body)).await;
            pushed.unwrap_or_else(|| {
                let message = "the upload ended unexpectedly; ask for a new link";
                Ended::failed(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            })
        }
    };
    let mut record = Record::new(Event::TransferUpload)
        .principal(claim.owner())
        .request_id(&binding.request_id)
        .cluster(binding.cluster.clone())
        .vmid(binding.vmid)
        .link(id.clone())
        .peer(peer)
        .outcome(ended.outcome.code())
        .detail("status", u64::from(ended.status.as_u16()));
    let took = app.clock.monotonic().saturating_sub(started);
    record = record.detail("micros", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    let mut carried = 0;
    if let Outcome::Ok { bytes, .. } | Outcome::AbortedByClient { bytes } = &ended.outcome {
        record = record.detail("bytes", *bytes);
        carried = *bytes;
    }
    app.metrics.transfer(TransferRoute::Upload, ended.outcome.code(), carried, took);
    if let Outcome::Failed { code, message } = &ended.outcome {
        record = record.detail("code", *code).reason(message.clone());
    }
    if let Outcome::Voided { reason } = &ended.outcome {
        record = record.reason(reason.clone());
    }
    if let Err(error) = app.audit.append_durable(record).await {
        tracing::error!(%error, "the outcome of an upload could not be audited");
    }
    if let Some(alert) = alert(&ended.outcome) {
        let record = Record::new(alert.0)
            .principal(claim.owner())
            .request_id(&binding.request_id)
            .cluster(binding.cluster.clone())
            .vmid(binding.vmid)
            .link(id.clone())
            .peer(peer)
            .denied(alert.0.name(), alert.1);
        if let Err(error) = app.audit.append(record).await {
            tracing::error!(%error, "a void link or a foreign host key could not be audited");
        }
    }
    let reply = ended.reply(&id, &binding);
    claim.finish(ended.outcome, app.clock.monotonic());
    reply
}

/// The outcome of `work`, or `None` where it panicked: that must be recorded and answered like every other end. The panic's own
/// message has gone to the log by then.
async fn caught<F: Future>(work: F) -> Option<F::Output> {
    let mut work = Box::pin(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// What deserves a record of its own: a link that no longer held, a node that is not the one it was.
fn alert(outcome: &Outcome) -> Option<(Event, String)> {
    match outcome {
        Outcome::Voided { reason } => Some((Event::TransferLinkVoid, reason.clone())),
        Outcome::Failed { code: "host_key", message } => Some((Event::HostKeyMismatch, message.clone())),
        _ => None,
    }
}

/// What a redemption came to: what the minter reads, and what the uploader is told.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: StatusCode,
    pub(super) outcome: Outcome,
}

impl Ended {
    pub(super) fn failed(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, outcome: Outcome::Failed { code, message: message.into() } }
    }

    fn reply(&self, link_id: &str, binding: &Binding) -> Reply {
        match &self.outcome {
            Outcome::Ok { bytes, sha256, verified_at, checksum_verified, route } => reply::json_reply(
                self.status,
                &serde_json::json!({
                    "link_id": link_id,
                    "vmid": binding.vmid,
                    "dest": binding.dest.as_str(),
                    "bytes": bytes,
                    "sha256": data_encoding::HEXLOWER.encode(sha256),
                    "checksum_verified": checksum_verified,
                    "verified_at": verified_at,
                    "route": route,
                }),
            ),
            // A minter who may no longer mint leaves a link that is no link.
            Outcome::Voided { .. } if self.status == StatusCode::NOT_FOUND => reply::not_found(),
            Outcome::Voided { reason } => reply::error(self.status, "guest_changed", reason),
            Outcome::Failed { code, message } => reply::error(self.status, code, message),
            Outcome::AbortedByClient { .. } => {
                reply::error(self.status, "aborted_by_client", "the upload broke off")
            }
            Outcome::Aborted { .. } | Outcome::Expired => reply::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the upload ended unexpectedly; ask for a new link",
            ),
        }
    }
}

/// Looks at the headers. The declared length, where there is one and it fits.
fn acceptable(parts: &http::request::Parts, binding: &Binding) -> Result<Option<u64>, Ended> {
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
        && length > binding.max_bytes
    {
        return Err(push::too_large(binding.max_bytes));
    }
    if let (Some(length), Some(size)) = (length, binding.size)
        && length != size
    {
        return Err(Ended::failed(
            StatusCode::BAD_REQUEST,
            "size_mismatch",
            format!("the link was minted for {size} bytes and {length} were declared"),
        ));
    }
    Ok(length)
}
