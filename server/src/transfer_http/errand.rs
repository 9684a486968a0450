//! What every transfer has in common besides its bytes: who started it, on whose guest, and what the audit hears of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use transfers::{Claim, LinkId, Outcome};

use super::Binding;
use super::push::Ended;
use crate::app::App;
use crate::audit::{Event, Record};
use crate::catalog;
use crate::changes::fingerprint;
use crate::config::{Cluster, Snapshot};
use crate::metrics::TransferRoute;
use crate::resolve::{Freshness, Guest, ResolveError};

/// A transfer as the audit sees it.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    pub(crate) event: Event,
    pub(crate) owner: String,
    pub(crate) request_id: String,
    pub(crate) cluster: String,
    pub(crate) vmid: Option<u32>,
    pub(crate) link: Option<LinkId>,
    pub(crate) peer: Option<IpAddr>,
    /// The URL that is fetched, without anything that may be a credential.
    pub(crate) url: Option<String>,
}

impl Errand {
    /// Of a won link.
    pub(super) fn of(claim: &Claim<Binding>, event: Event, peer: IpAddr) -> Self {
        let binding = claim.binding();
        Self {
            event,
            owner: claim.owner().to_owned(),
            request_id: binding.request_id.clone(),
            cluster: binding.cluster.clone(),
            vmid: Some(binding.vmid),
            link: Some(claim.id()),
            peer: Some(peer),
            url: None,
        }
    }

    fn record(&self, event: Event) -> Record {
        let mut record = Record::new(event)
            .principal(&self.owner)
            .request_id(&self.request_id)
            .cluster(self.cluster.clone());
        if let Some(vmid) = self.vmid {
            record = record.vmid(vmid);
        }
        if let Some(link) = self.link {
            record = record.link(link.to_string());
        }
        if let Some(url) = &self.url {
            record = record.argument("url", url.clone());
        }
        match self.peer {
            Some(peer) => record.peer(peer),
            None => record,
        }
    }

    /// The durable record that must stand before a byte moves.
    ///
    /// # Errors
    /// The answer, where it cannot be written.
    pub(crate) async fn begins(&self, app: &App) -> Result<(), Ended> {
        app.audit.append_durable(self.record(Event::TransferAttempt)).await.map(drop).map_err(|_| {
            Ended::failed(
                StatusCode::SERVICE_UNAVAILABLE,
                "audit_unavailable",
                "the server cannot record transfers at the moment, so nothing was moved; ask for a new link later",
            )
        })
    }

    /// The record of its end, and of what deserves one of its own: a link that no longer held, a node that is not the one it was.
    pub(crate) async fn ended(&self, app: &App, ended: &Ended, micros: u64) {
        let mut record = self
            .record(self.event)
            .outcome(ended.outcome.code())
            .detail("status", u64::from(ended.status.as_u16()))
            .detail("micros", micros);
        let mut carried = 0;
        match &ended.outcome {
            Outcome::Ok { bytes, route, .. } => {
                carried = *bytes;
                record = record.detail("bytes", *bytes).detail("route", *route)
            }
            Outcome::AbortedByClient { bytes } => {
                carried = *bytes;
                record = record.detail("bytes", *bytes)
            }
            Outcome::Failed { code, message } => {
                record = record.detail("code", *code).reason(message.clone())
            }
            Outcome::Voided { reason } => record = record.reason(reason.clone()),
            Outcome::Aborted { .. } | Outcome::Expired => {}
        }
        let route = match self.event {
            Event::TransferDownload => TransferRoute::Download,
            Event::TransferFetch => TransferRoute::Fetch,
            _ => TransferRoute::Upload,
        };
        app.metrics.transfer(route, ended.outcome.code(), carried, Duration::from_micros(micros));
        if let Err(error) = app.audit.append_durable(record).await {
            tracing::error!(%error, "the outcome of a transfer could not be audited");
        }
        let (event, why) = match &ended.outcome {
            Outcome::Voided { reason } => (Event::TransferLinkVoid, reason.clone()),
            Outcome::Failed { code: "host_key", message } => (Event::HostKeyMismatch, message.clone()),
            _ => return,
        };
        if let Err(error) = app.audit.append(self.record(event).denied(event.name(), why)).await {
            tracing::error!(%error, "a void link or a foreign host key could not be audited");
        }
    }
}

/// The minter's rights and the guest, as they are now.
pub(crate) async fn still_allowed(
    app: &App,
    snapshot: &Arc<Snapshot>,
    owner: &str,
    binding: &Binding,
) -> Result<(Arc<Cluster>, Arc<Guest>), Ended> {
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
    let rule = catalog::rule(binding.tool).ok_or_else(|| gone("such links are not served"))?;
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
                gone("the token that minted the link may no longer reach this guest")
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
            _ => gone("the token that minted the link may no longer reach this guest"),
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
