//! Download links: `GET /transfers/download/{token}`, once, out of a guest.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use guest_push::{Download, PushError};
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use transfers::{Claim, Outcome, Presented};

use super::errand::Errand;
use super::push::{Ended, cancelled, of_push};
use super::reply::{self, Reply};
use super::route::{DOWNLOAD, caught, reused, token_of, wrong_token};
use super::way::Way;
use super::{Binding, Transfers, digest, still_allowed};
use crate::app::App;
use crate::audit::Event;

/// Chunks read ahead of the client.
const AHEAD: usize = 4;
/// Longest wait for the client to take the next bytes.
const CLIENT_IDLE: Duration = Duration::from_secs(60);

/// Serves one request under the prefix of download links.
pub(super) async fn handle<B>(
    app: Arc<App>,
    transfers: Arc<Transfers>,
    peer: IpAddr,
    request: &Request<B>,
) -> Reply {
    // HEAD must not spend the link, and could say nothing without it.
    if request.method() != Method::GET {
        return reply::method_not_allowed("GET");
    }
    if request.version() != Version::HTTP_11 {
        return reply::error(StatusCode::BAD_REQUEST, "http_version", "a download needs HTTP/1.1");
    }
    let Some(token) = token_of(request, DOWNLOAD) else { return reply::not_found() };
    // A prefetch by a browser or a chat program is not the person: it spends nothing.
    if request.headers().keys().any(|name| name == "sec-purpose" || name == "purpose" || name == "x-moz") {
        return reply::not_found();
    }
    let most = usize::try_from(app.live.load().policy.limits.downloads).unwrap_or(1);
    let running = super::MOST_DOWNLOADS.saturating_sub(transfers.downloading.available_permits());
    let permit = transfers.downloading.clone().try_acquire_owned().ok().filter(|_| running < most);
    let Some(permit) = permit else {
        return reply::error(
            StatusCode::TOO_MANY_REQUESTS,
            "no_slot",
            "too many downloads are running; the link is unspent, try again in a minute",
        );
    };
    match transfers.downloads.claim(token, app.clock.monotonic()) {
        Presented::Won(claim) => start(app, transfers, claim, peer, permit).await,
        Presented::Reused { id, owner } => reused(&app, &transfers, peer, id, &owner).await,
        Presented::Absent => wrong_token(&app, &transfers, peer),
    }
}

/// Opens the file and answers its head; the rest goes on in a task of its own, which ends in exactly one outcome and one record.
async fn start(
    app: Arc<App>,
    transfers: Arc<Transfers>,
    claim: Claim<Binding>,
    peer: IpAddr,
    permit: OwnedSemaphorePermit,
) -> Reply {
    let started = app.clock.monotonic();
    let errand = Errand::of(&claim, Event::TransferDownload, peer);
    let opened = match errand.begins(&app).await {
        Ok(()) => caught(open(&app, &claim)).await.unwrap_or_else(|| {
            let message = "the download ended unexpectedly; ask for a new link";
            Err(Ended::failed(StatusCode::INTERNAL_SERVER_ERROR, "internal", message))
        }),
        Err(ended) => Err(ended),
    };
    let (download, route) = match opened {
        Ok(opened) => opened,
        Err(ended) => {
            errand.ended(&app, &ended, micros(&app, started)).await;
            let reply = ended.reply(&claim.id().to_string(), claim.binding(), None);
            claim.finish(ended.outcome, app.clock.monotonic());
            return reply;
        }
    };
    let reply = head(&download, claim.binding());
    let (sender, receiver) = mpsc::channel(AHEAD);
    let size = download.size();
    // The connection lets go of the body with its last byte, so that it has gone and that it has all are told apart here.
    let taken = Arc::new(AtomicBool::new(size == 0));
    let (worker, all_taken) = (app.clone(), taken.clone());
    app.tracker.spawn(async move {
        let _permit = permit;
        let id = claim.id();
        let ended = match transfers.cancellable(id, send(&claim, download, sender, &all_taken, route)).await {
            Some(ended) => ended,
            None => cancelled(),
        };
        errand.ended(&worker, &ended, micros(&worker, started)).await;
        claim.finish(ended.outcome, worker.clock.monotonic());
    });
    reply.map(|()| Chunks { receiver, left: size, taken }.boxed())
}

fn micros(app: &App, started: Duration) -> u64 {
    u64::try_from(app.clock.monotonic().saturating_sub(started).as_micros()).unwrap_or(u64::MAX)
}

async fn open(app: &App, claim: &Claim<Binding>) -> Result<(Download, &'static str), Ended> {
    let snapshot = app.live.load();
    let binding = claim.binding();
    let (cluster, guest) = still_allowed(app, &snapshot, claim.owner(), binding).await?;
    let policy = &snapshot.policy.transfers;
    let way = Way::to(&cluster, &guest, policy)
        .map_err(|none| Ended::failed(StatusCode::BAD_GATEWAY, "no_ssh", none.0))?;
    claim.progress(0, "connect");
    let download = way.read(&binding.dest).await.map_err(|error| of_read(&error))?;
    let largest = way.largest(policy);
    if download.size() > largest {
        return Err(Ended::failed(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the file has {} bytes, at most {largest} go this way{}", download.size(), way.remedy()),
        ));
    }
    let route = match way {
        Way::Container(..) => "pct",
        Way::Machine(_) => "ssh",
        Way::Agent(_) => "agent",
    };
    Ok((download, route))
}

fn of_read(error: &PushError) -> Ended {
    of_push(error, 0, 0)
}

/// Hands the file to the client, chunk by chunk. A failure ends the body early, which the declared length betrays.
async fn send(
    claim: &Claim<Binding>,
    mut download: Download,
    sender: mpsc::Sender<Bytes>,
    all_taken: &AtomicBool,
    route: &'static str,
) -> Ended {
    let (size, sha256) = (download.size(), download.sha256());
    let mut bytes = 0;
    loop {
        let chunk = match download.next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => return of_read(&error),
        };
        bytes += chunk.len() as u64;
        // The last chunk is held back until the whole is known to be right.
        let chunk = if bytes == size {
            match download.next().await {
                Ok(_) => chunk,
                Err(error) => return of_read(&error),
            }
        } else {
            chunk
        };
        claim.progress(bytes, "send");
        match sender.send_timeout(chunk, CLIENT_IDLE).await {
            Ok(()) => {}
            Err(mpsc::error::SendTimeoutError::Closed(_)) => {
                return Ended { status: StatusCode::OK, outcome: Outcome::AbortedByClient { bytes } };
            }
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
                return Ended::failed(
                    StatusCode::REQUEST_TIMEOUT,
                    "too_slow",
                    "the client took no bytes for a minute; ask for a new link",
                );
            }
        }
        if bytes == size {
            break;
        }
    }
    // Until the client has taken them all, or has gone.
    let waited = tokio::time::timeout(CLIENT_IDLE, sender.reserve_many(AHEAD)).await;
    if !matches!(waited, Ok(Ok(_))) && !all_taken.load(Ordering::Acquire) {
        return Ended { status: StatusCode::OK, outcome: Outcome::AbortedByClient { bytes } };
    }
    Ended {
        status: StatusCode::OK,
        outcome: Outcome::Ok {
            bytes,
            sha256: download.received_sha256().unwrap_or_default(),
            verified_at: if sha256.is_some() { "guest" } else { "none" },
            checksum_verified: sha256.is_some(),
            route,
        },
    }
}

fn head(download: &Download, binding: &Binding) -> Response<()> {
    let mut reply = Response::new(());
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(download.size()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&disposition(binding.dest.as_str())) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    if let Some(sha256) = download.sha256()
        && let Ok(value) = HeaderValue::from_str(&digest::header(&sha256))
    {
        headers.insert(HeaderName::from_static("repr-digest"), value);
    }
    reply
}

/// The file's name for whoever saves it (RFC 6266, RFC 8187). Never shown, always saved.
fn disposition(path: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let name = path.rsplit('/').next().unwrap_or_default();
    format!("attachment; filename*=UTF-8''{}", percent_encoding::utf8_percent_encode(name, KEPT))
}

/// A body of known length that ends early when its sender does.
struct Chunks {
    receiver: mpsc::Receiver<Bytes>,
    left: u64,
    /// Told when nothing is left.
    taken: Arc<AtomicBool>,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(cx).map(|chunk| {
            chunk.map(|chunk| {
                self.left = self.left.saturating_sub(chunk.len() as u64);
                if self.left == 0 {
                    self.taken.store(true, Ordering::Release);
                }
                Ok(Frame::data(chunk))
            })
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::disposition;

    #[test]
    fn a_name_in_a_header_is_only_a_name() {
        assert_eq!(disposition("/root/a.bin"), "attachment; filename*=UTF-8''a.bin");
        assert_eq!(disposition("/x/\"; b=\u{202e}"), "attachment; filename*=UTF-8''%22%3B%20b%3D%E2%80%AE");
    }
}
