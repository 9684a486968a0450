//! Links that carry a file onto a storage: `PUT|POST /transfers/storage/{token}`, streamed into PVE's own upload.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use guest_push::{Source, SourceError};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;
use proxmox_api::{
    Checksum, ChecksumAlgorithm, ErrorKind, NodeName, StorageId, TaskExit, Upload, WaitPolicy, Waited,
};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use transfers::{Claim, Outcome, Presented};

use super::body::{BodySource, Pace};
use super::errand::Errand;
use super::push::{Declared, Ended, cancelled, of_source};
use super::reply::{self, Reply};
use super::route::{acceptable_for, caught, reused, token_of, wrong_token};
use super::{STORAGE, Transfers};
use crate::app::App;
use crate::audit::Event;
use crate::catalog;

/// Longest wait for the task that moves the file to its place.
const TASK_DEADLINE: Duration = Duration::from_secs(1800);
/// Chunks read ahead of PVE.
const AHEAD: usize = 8;

/// What a storage link is bound to when it is minted.
#[derive(Debug, Clone)]
pub struct StorageBinding {
    /// The cluster.
    pub cluster: String,
    /// The node that takes the file.
    pub node: NodeName,
    /// The storage.
    pub storage: StorageId,
    /// What the file is, its name and its checksum; the size is known when it comes.
    pub upload: Upload,
    /// Exact size the minter promised, if any.
    pub size: Option<u64>,
    /// Largest body, in bytes.
    pub max_bytes: u64,
    /// The call that minted the link, for the audit.
    pub request_id: String,
}

/// Serves one request under the prefix of storage links.
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
    if request.method() != Method::PUT && request.method() != Method::POST {
        return reply::method_not_allowed("PUT, POST");
    }
    if request.version() != Version::HTTP_11 {
        return reply::error(StatusCode::BAD_REQUEST, "http_version", "an upload needs HTTP/1.1");
    }
    let Some(token) = token_of(&request, STORAGE) else { return reply::not_found() };
    match transfers.storage.claim(token, app.clock.monotonic()) {
        Presented::Won(claim) => {
            let (parts, body) = request.into_parts();
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
        Presented::Reused { id, owner } => reused(&app, &transfers, peer, id, &owner).await,
        Presented::Absent => wrong_token(&app, &transfers, peer),
    }
}

async fn redeem<B>(
    app: &Arc<App>,
    transfers: &Transfers,
    claim: Claim<StorageBinding>,
    peer: IpAddr,
    parts: &http::request::Parts,
    body: B,
) -> Reply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let started = app.clock.monotonic();
    let binding = claim.binding().clone();
    let errand = Errand {
        event: Event::TransferUpload,
        owner: claim.owner().to_owned(),
        request_id: binding.request_id.clone(),
        cluster: binding.cluster.clone(),
        vmid: None,
        link: Some(claim.id()),
        peer: Some(peer),
        url: None,
    };
    let declared = acceptable_for(parts, binding.max_bytes, binding.size, None);
    let ended = match (declared, errand.begins(app).await) {
        (Err(ended), _) | (Ok(_), Err(ended)) => ended,
        (Ok(declared), Ok(())) => {
            let work = transfers.cancellable(claim.id(), carry(app, &claim, declared, body));
            match caught(work).await {
                Some(Some(ended)) => ended,
                Some(None) => cancelled(),
                None => Ended::failed(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "the upload ended unexpectedly; ask for a new link",
                ),
            }
        }
    };
    let micros = app.clock.monotonic().saturating_sub(started).as_micros();
    errand.ended(app, &ended, u64::try_from(micros).unwrap_or(u64::MAX)).await;
    let reply = answer(&ended, &claim.id().to_string(), &binding);
    claim.finish(ended.outcome, app.clock.monotonic());
    reply
}

fn answer(ended: &Ended, link_id: &str, binding: &StorageBinding) -> Reply {
    match &ended.outcome {
        Outcome::Ok { bytes, sha256, verified_at, checksum_verified, route } => reply::json_reply(
            ended.status,
            &serde_json::json!({
                "link_id": link_id,
                "node": binding.node.to_string(),
                "volid": format!("{}:{}/{}", binding.storage, binding.upload.content, binding.upload.filename),
                "bytes": bytes,
                "sha256": data_encoding::HEXLOWER.encode(sha256),
                "checksum_verified": checksum_verified,
                "verified_at": verified_at,
                "route": route,
            }),
        ),
        Outcome::Voided { .. } if ended.status == StatusCode::NOT_FOUND => reply::not_found(),
        Outcome::Failed { code, message } => reply::error(ended.status, code, message),
        Outcome::AbortedByClient { .. } => {
            reply::error(ended.status, "aborted_by_client", "the upload broke off")
        }
        _ => reply::error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the upload ended unexpectedly; ask for a new link",
        ),
    }
}

/// Checks the minter anew, streams the body into PVE's upload and follows its task.
async fn carry<B>(app: &Arc<App>, claim: &Claim<StorageBinding>, declared: Declared, body: B) -> Ended
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    let snapshot = app.live.load();
    let binding = claim.binding();
    let gone = |reason: &str| Ended {
        status: StatusCode::NOT_FOUND,
        outcome: Outcome::Voided { reason: reason.to_owned() },
    };
    let now = app.clock.now();
    let Some(rule) = catalog::rule("upload_to_storage_link") else {
        return gone("such links are not served");
    };
    let Some(principal) = snapshot.tokens.principal(claim.owner()) else {
        return gone("the token that minted the link is gone");
    };
    let allowed = authz::admit(&principal, rule, Some(&binding.cluster), now)
        .and_then(|admitted| authz::permit_cluster_write(admitted, now));
    if allowed.is_err() {
        return gone("the token that minted the link may no longer do so");
    }
    let Some(cluster) = snapshot.cluster(Some(&binding.cluster)) else {
        return gone("the cluster is no longer configured");
    };
    // PVE has to be told the length before the first byte.
    let Some(size) = declared.length.or(binding.size) else {
        return Ended::failed(
            StatusCode::LENGTH_REQUIRED,
            "length_required",
            "PVE must know the length first: send Content-Length (`curl -T FILE` does), or mint the link with `size`",
        );
    };
    let pace = Pace::of(&snapshot.policy.limits, binding.max_bytes);
    let mut source = BodySource::new(body, declared.length, size, pace).exactly(Some(size));
    match source.begins().await {
        Ok(true) => {}
        Ok(false) => return super::push::empty(),
        Err(error) => return of_source(&error, source.received(), size),
    }
    // A declared digest is PVE's to check, unless the minter gave a checksum of its own.
    let by_digest = declared.sha256.map(|hash| data_encoding::HEXLOWER.encode(&hash));
    let by_digest = by_digest.and_then(|hex| Checksum::new(ChecksumAlgorithm::Sha256, &hex).ok());
    let checksum = binding.upload.checksum.clone().or(by_digest);
    let verified = checksum.is_some();
    let (sender, receiver) = mpsc::channel(AHEAD);
    let pump = pump(source, sender, claim);
    let upload = Upload { size, checksum, ..binding.upload.clone() };
    let reader = ChunkReader { receiver, current: Bytes::new() };
    let sending = cluster.client.upload(&binding.node, &binding.storage, &upload, reader);
    let (pumped, sent) = tokio::join!(pump, sending);
    let (bytes, sha256) = match pumped {
        Ok(done) => done,
        Err(Stopped::Source(error, received)) => return of_source(&error, received, size),
        // PVE hung up first: its own answer says why.
        Err(Stopped::Refused) if sent.is_err() => (0, [0; 32]),
        Err(Stopped::Refused) => {
            return Ended::failed(StatusCode::BAD_GATEWAY, "pve_error", "PVE stopped reading before the end");
        }
    };
    let upid = match sent {
        Ok(upid) => upid,
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::Parameter => StatusCode::CONFLICT,
                _ => StatusCode::BAD_GATEWAY,
            };
            return Ended::failed(status, "pve_error", error.message().trim_end());
        }
    };
    claim.progress(bytes, "task");
    let policy = WaitPolicy { deadline: TASK_DEADLINE, ..WaitPolicy::default() };
    match cluster.client.wait_task(&upid, &policy).await {
        Ok(Waited::Ended(TaskExit::Ok | TaskExit::Warnings(_))) => Ended {
            status: StatusCode::OK,
            outcome: Outcome::Ok {
                bytes,
                sha256,
                verified_at: if verified { "node" } else { "none" },
                checksum_verified: verified,
                route: "storage",
            },
        },
        Ok(Waited::Ended(TaskExit::Failed(why))) => {
            Ended::failed(StatusCode::BAD_GATEWAY, "task_failed", format!("task {upid} failed: {why}"))
        }
        Ok(Waited::Ended(TaskExit::Unstated(why))) => Ended::failed(
            StatusCode::BAD_GATEWAY,
            "task_unstated",
            format!("PVE does not say how task {upid} ended ({why}); look whether the volume is there"),
        ),
        Ok(Waited::StillRunning) => Ended::failed(
            StatusCode::BAD_GATEWAY,
            "task_running",
            format!("task {upid} has not ended; follow it with get_task_status"),
        ),
        Err(error) => Ended::failed(
            StatusCode::BAD_GATEWAY,
            "task_unreadable",
            format!("task {upid} cannot be followed: {}", error.message().trim_end()),
        ),
    }
}

/// Why the bytes stopped.
enum Stopped {
    Source(SourceError, u64),
    Refused,
}

/// Body to reader, counted and hashed. A source that fails makes the reader fail, so that PVE never gets a whole request.
async fn pump<B>(
    mut source: BodySource<B>,
    sender: mpsc::Sender<io::Result<Bytes>>,
    claim: &Claim<StorageBinding>,
) -> Result<(u64, [u8; 32]), Stopped>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::fmt::Display,
{
    let mut hasher = Sha256::new();
    loop {
        match source.next().await {
            Ok(Some(chunk)) => {
                hasher.update(&chunk);
                claim.progress(source.received(), "receive");
                if sender.send(Ok(chunk)).await.is_err() {
                    return Err(Stopped::Refused);
                }
            }
            Ok(None) => return Ok((source.received(), hasher.finalize().into())),
            Err(error) => {
                // The other side may have gone already.
                let _told = sender.send(Err(io::Error::other("the upload broke off"))).await;
                return Err(Stopped::Source(error, source.received()));
            }
        }
    }
}

/// Chunks as a reader.
struct ChunkReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl AsyncRead for ChunkReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() {
            match ready!(self.receiver.poll_recv(cx)) {
                Some(Ok(chunk)) => self.current = chunk,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let take = buf.remaining().min(self.current.len());
        buf.put_slice(&self.current[..take]);
        self.current.advance(take);
        Poll::Ready(Ok(()))
    }
}
