//! From a spent link to a file in the guest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guest_push::{Deadlines, PushError, PushErrorKind, Pusher, SourceError, SourceErrorKind};
use http::StatusCode;
use http_body::Body;
use transfers::{Claim, Outcome};

use super::body::{BodySource, Pace};
use super::route::Ended;
use super::{Binding, Transfers};
use crate::app::App;
use crate::catalog;
use crate::changes::fingerprint;
use crate::config::{Cluster, Snapshot};
use crate::resolve::{Freshness, Guest, ResolveError};

/// Longest wait for a node to have a free slot.
const SLOT_WAIT: Duration = Duration::from_secs(30);
/// Added to the total deadline for each MiB of the cap.
const TOTAL_PER_MIB: Duration = Duration::from_secs(1);
const MIB: u64 = 1024 * 1024;

/// Checks the minter and the guest anew, then pushes the body into the guest.
pub(super) async fn push<B>(
    app: &Arc<App>,
    transfers: &Transfers,
    claim: &Claim<Binding>,
    length: Option<u64>,
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
    let pace = Pace {
        idle: Duration::from_millis(limits.upload_idle_ms),
        window: Duration::from_millis(limits.upload_idle_ms),
        // 1 KiB a second over the window.
        per_window: limits.upload_idle_ms * 1024 / 1000,
        total: Duration::from_secs(600)
            + TOTAL_PER_MIB * u32::try_from(binding.max_bytes / MIB).unwrap_or(u32::MAX),
    };
    let cap = binding.size.unwrap_or(binding.max_bytes);
    let mut source = BodySource::new(body, length, cap, pace).exactly(binding.size);
    match source.begins().await {
        Ok(true) => {}
        Ok(false) => return empty(),
        Err(error) => return of_source(&error, source.received(), cap),
    }
    let Some(pusher) = pusher(&cluster, guest.node()) else {
        return Ended::failed(StatusCode::BAD_GATEWAY, "no_ssh", no_ssh(&cluster, guest.node()));
    };
    let slots =
        transfers.slots(&cluster.name, guest.node(), usize::try_from(limits.uploads_per_node).unwrap_or(1));
    let Ok(Ok(_slot)) = tokio::time::timeout(SLOT_WAIT, slots.acquire_owned()).await else {
        return Ended::failed(
            StatusCode::TOO_MANY_REQUESTS,
            "no_slot",
            "the node is busy with other uploads; ask for a new link in a minute",
        );
    };
    let progress = |bytes: u64, stage: guest_push::Stage| claim.progress(bytes, stage.as_str());
    let pushed = pusher.push_lxc(binding.vmid, &binding.dest, &binding.options, &mut source, &progress).await;
    match pushed {
        Ok(receipt) => Ended {
            status: StatusCode::OK,
            outcome: Outcome::Ok {
                bytes: receipt.bytes,
                sha256: receipt.sha256,
                verified_at: receipt.verified_at.as_str(),
                checksum_verified: receipt.checksum_verified,
                route: receipt.route,
            },
        },
        Err(error) => of_push(&error, source.received(), cap),
    }
}

/// The minter's rights and the guest, as they are now.
async fn still_allowed(
    app: &App,
    snapshot: &Arc<Snapshot>,
    owner: &str,
    binding: &Binding,
) -> Result<(Arc<Cluster>, Guest), Ended> {
    let gone = |reason: &str| Ended {
        status: StatusCode::NOT_FOUND,
        outcome: Outcome::Voided { reason: reason.to_owned() },
    };
    let changed = |reason: &str| Ended {
        status: StatusCode::CONFLICT,
        outcome: Outcome::Voided { reason: reason.to_owned() },
    };
    let unreadable = |message: &str| Ended::failed(StatusCode::BAD_GATEWAY, "cluster_unreachable", message);
    let unreachable = |error: &proxmox_api::Error| unreadable(error.message().trim_end());
    let now = app.clock.now();
    let rule = catalog::rule("proxmox_upload_link").ok_or_else(|| gone("upload links are not served"))?;
    let principal =
        snapshot.tokens.principal(owner).ok_or_else(|| gone("the token that minted the link is gone"))?;
    let admitted = authz::admit(&principal, rule, Some(&binding.cluster), now)
        .map_err(|_| gone("the token that minted the link may no longer do so"))?;
    let cluster = snapshot
        .cluster(Some(&binding.cluster))
        .cloned()
        .ok_or_else(|| gone("the cluster is no longer configured"))?;
    let guest = match app.resolver.guest(&cluster, binding.vmid, Freshness::Now, &principal).await {
        Ok(guest) => guest,
        // Absent to this minter: either it is gone, or it is no longer the minter's.
        Err(ResolveError::Absent | ResolveError::Ambiguous) => {
            let inventory = app
                .resolver
                .inventory(&cluster, Freshness::Now)
                .await
                .map_err(|error| unreachable(&error))?;
            let exists = proxmox_api::Vmid::new(binding.vmid)
                .is_ok_and(|vmid| inventory.numbered(vmid).next().is_some());
            return Err(if exists {
                gone("the token that minted the link may no longer write into this guest")
            } else {
                changed("the guest this link was minted for is not there; ask for a new link")
            });
        }
        Err(ResolveError::Cluster(error)) => return Err(unreachable(&error)),
    };
    let overrides = authz::Overrides { waivers: &snapshot.waivers, lab_mode: snapshot.lab_mode };
    authz::decide(admitted, &guest.facts, rule.name, owner, &cluster.protection, &overrides, now).map_err(
        |denial| match denial.kind() {
            authz::DenialKind::Protected => {
                changed("the guest has become protected since this link was minted")
            }
            _ => gone("the token that minted the link may no longer write into this guest"),
        },
    )?;
    let Some(config) = &guest.config else {
        return Err(unreadable("the guest's configuration could not be read"));
    };
    let identity = fingerprint::identity(&app.resolver, &cluster, &guest, config)
        .await
        .map_err(|error| unreachable(&error))?;
    if identity != binding.identity {
        return Err(changed("the guest was made anew since this link was minted; ask for a new link"));
    }
    if !guest.running() {
        return Err(Ended::failed(
            StatusCode::BAD_GATEWAY,
            "guest_not_running",
            format!("the guest is {}; start it and ask for a new link", guest.status),
        ));
    }
    Ok((cluster, guest))
}

/// The way to a node, where the cluster's `ssh` configures one.
pub(crate) fn pusher(cluster: &Cluster, node: &str) -> Option<Pusher> {
    let ssh = cluster.ssh.as_ref()?;
    let target = ssh.target(node)?;
    Some(Pusher::new(target, ssh.identity.clone(), ssh.known_hosts.clone(), Deadlines::default()))
}

/// What an operator must configure before anything can be pushed through this node.
pub(crate) fn no_ssh(cluster: &Cluster, node: &str) -> String {
    format!(
        "no SSH access to node {node} is configured; the operator adds it under `ssh` of cluster {} in clusters.json",
        cluster.name
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

fn of_source(error: &SourceError, received: u64, cap: u64) -> Ended {
    match error.kind() {
        SourceErrorKind::TooLarge => too_large(cap),
        SourceErrorKind::TooSlow => Ended::failed(StatusCode::REQUEST_TIMEOUT, "too_slow", error.to_string()),
        SourceErrorKind::Aborted => {
            Ended { status: StatusCode::BAD_REQUEST, outcome: Outcome::AbortedByClient { bytes: received } }
        }
        _ => Ended::failed(StatusCode::BAD_REQUEST, "size_mismatch", error.to_string()),
    }
}

fn of_push(error: &PushError, received: u64, cap: u64) -> Ended {
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
        | PushErrorKind::NoParent => StatusCode::CONFLICT,
        _ => StatusCode::BAD_GATEWAY,
    };
    Ended::failed(status, error.kind().code(), error.to_string())
}
