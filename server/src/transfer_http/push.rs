//! From a spent link to a file in the guest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guest_push::{PushError, PushErrorKind, PushOptions, Receipt, SourceError, SourceErrorKind};
use http::StatusCode;
use http_body::Body;
use transfers::{Claim, Outcome};

use super::body::{BodySource, Pace};
use super::reply::{self, Reply};
use super::way::Way;
use super::{Binding, Transfers, still_allowed};
use crate::app::App;

/// Longest wait for a node to have a free slot.
const SLOT_WAIT: Duration = Duration::from_secs(30);

/// Checks the minter and the guest anew, then pushes the body into the guest.
pub(super) async fn push<B>(
    app: &Arc<App>,
    transfers: &Transfers,
    claim: &Claim<Binding>,
    declared: Declared,
    body: B,
) -> Ended
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let snapshot = app.live.load();
    let binding = claim.binding();
    let (cluster, guest) = match still_allowed(app, &snapshot, claim.owner(), binding).await {
        Ok(found) => found,
        Err(ended) => return ended,
    };
    let limits = &snapshot.policy.limits;
    let pace = Pace::of(limits, binding.max_bytes);
    let way = match Way::to(&cluster, &guest, &snapshot.policy.transfers) {
        Ok(way) => way,
        Err(none) => return Ended::failed(StatusCode::BAD_GATEWAY, "no_ssh", none.0),
    };
    let cap = binding.size.unwrap_or(binding.max_bytes);
    let mut source = BodySource::new(body, declared.length, cap, pace).exactly(binding.size);
    match source.begins().await {
        Ok(true) => {}
        Ok(false) => return empty(),
        Err(error) => return of_source(&error, source.received(), cap),
    }
    let at_once = usize::try_from(limits.uploads_per_node).unwrap_or(1);
    let slot = app.slots.enter(&cluster.name, guest.node(), at_once);
    let Ok(Some(_slot)) = tokio::time::timeout(SLOT_WAIT, slot).await else { return no_slot() };
    let options = PushOptions {
        expected_sha256: binding.options.expected_sha256.or(declared.sha256),
        ..binding.options.clone()
    };
    let progress = |bytes: u64, stage: guest_push::Stage| claim.progress(bytes, stage.as_str());
    let pushed =
        transfers.cancellable(claim.id(), way.push(&binding.dest, &options, &mut source, &progress)).await;
    match pushed {
        None => cancelled(),
        Some(Ok(receipt)) => Ended::delivered(&receipt),
        Some(Err(error)) => of_push(&error, source.received(), cap),
    }
}

/// What a sender says about its bytes before it sends them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Declared {
    /// Their number.
    pub(super) length: Option<u64>,
    /// Their hash.
    pub(super) sha256: Option<[u8; 32]>,
    /// Whether the type is one that clients mangle files with.
    pub(super) form: bool,
}

/// What a transfer came to: what the minter reads, and what the other end is told.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: StatusCode,
    pub(crate) outcome: Outcome,
}

impl Ended {
    pub(crate) fn failed(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, outcome: Outcome::Failed { code, message: message.into() } }
    }

    /// The file is in place.
    pub(crate) fn delivered(receipt: &Receipt) -> Self {
        Self {
            status: StatusCode::OK,
            outcome: Outcome::Ok {
                bytes: receipt.bytes,
                sha256: receipt.sha256,
                verified_at: receipt.verified_at.as_str(),
                checksum_verified: receipt.checksum_verified,
                route: receipt.route,
            },
        }
    }

    /// The answer to an uploader.
    pub(super) fn reply(&self, link_id: &str, binding: &Binding, warning: Option<&str>) -> Reply {
        match &self.outcome {
            Outcome::Ok { bytes, sha256, verified_at, checksum_verified, route } => {
                let mut answer = serde_json::json!({
                    "link_id": link_id,
                    "vmid": binding.vmid,
                    "dest": binding.dest.as_str(),
                    "bytes": bytes,
                    "sha256": data_encoding::HEXLOWER.encode(sha256),
                    "checksum_verified": checksum_verified,
                    "verified_at": verified_at,
                    "route": route,
                });
                if let (Some(warning), Some(answer)) = (warning, answer.as_object_mut()) {
                    answer.insert("warning".to_owned(), warning.into());
                }
                reply::json_reply(self.status, &answer)
            }
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
                "the transfer ended unexpectedly; ask for a new link",
            ),
        }
    }
}

/// The answer when the minter has taken the transfer back.
pub(super) fn cancelled() -> Ended {
    Ended::failed(
        StatusCode::CONFLICT,
        "cancelled",
        "the transfer was cancelled by whoever minted the link; nothing was put in place",
    )
}

/// The answer when a node has no place for one more transfer.
pub(super) fn no_slot() -> Ended {
    Ended::failed(
        StatusCode::TOO_MANY_REQUESTS,
        "no_slot",
        "the node is busy with other transfers; ask for a new link in a minute",
    )
}

/// The answer to an upload without a byte.
pub(super) fn empty() -> Ended {
    Ended::failed(
        StatusCode::BAD_REQUEST,
        "empty_body",
        "the upload is empty, nothing was written; ask for a new link",
    )
}

/// The answer to an upload over the cap.
pub(super) fn too_large(cap: u64) -> Ended {
    Ended::failed(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("the upload is larger than this link's limit of {cap} bytes; nothing was written"),
    )
}

/// A source that gave up, as an answer.
pub(super) fn of_source(error: &SourceError, received: u64, cap: u64) -> Ended {
    match error.kind() {
        SourceErrorKind::TooLarge => too_large(cap),
        SourceErrorKind::TooSlow => Ended::failed(StatusCode::REQUEST_TIMEOUT, "too_slow", error.to_string()),
        SourceErrorKind::Aborted => {
            Ended { status: StatusCode::BAD_REQUEST, outcome: Outcome::AbortedByClient { bytes: received } }
        }
        _ => Ended::failed(StatusCode::BAD_REQUEST, "size_mismatch", error.to_string()),
    }
}

/// A failed push as an answer. `received` bytes had come, at most `cap` may.
pub(crate) fn of_push(error: &PushError, received: u64, cap: u64) -> Ended {
    let status = match error.kind() {
        PushErrorKind::Source(source) => {
            let mut ended = of_source(source, received, cap);
            if error.residue()
                && let Outcome::Failed { message, .. } = &mut ended.outcome
            {
                *message = format!("{message} ({error})");
            }
            return ended;
        }
        PushErrorKind::Empty => return empty(),
        PushErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        PushErrorKind::UnexpectedHash => StatusCode::UNPROCESSABLE_ENTITY,
        PushErrorKind::DestExists
        | PushErrorKind::DestIsDirectory
        | PushErrorKind::NotRegular
        | PushErrorKind::NoParent
        | PushErrorKind::Missing => StatusCode::CONFLICT,
        _ => StatusCode::BAD_GATEWAY,
    };
    Ended::failed(status, error.kind().code(), error.to_string())
}
