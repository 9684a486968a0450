//! `proxmox_fetch_url`: the server gets a file from the web and brings it straight into a guest.

use std::time::Duration;

use authz::Permit;
use guest_push::{Dest, PushOptions};
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Ready, Wishes, argument, failure, ready};
use crate::audit::Event;
use crate::catalog::{HandlerResult, Target};
use crate::config::Snapshot;
use crate::fetch::{FetchError, FetchLimits, Never, for_audit};
use crate::stack::{CallContext, ToolFailure};
use crate::transfer_http::{BodySource, Ended, Errand, Pace};

const TOOL: &str = "proxmox_fetch_url";

/// Arguments of `proxmox_fetch_url`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchArgs {
    /// Name of the cluster; may be omitted where one is configured.
    pub cluster: Option<String>,
    /// The guest's number.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
    /// Optional cross-check: refused unless the guest is on this node.
    pub node: Option<String>,
    /// An http or https URL without user name and password.
    pub url: String,
    /// Absolute path of the file inside the guest.
    pub dest: String,
    /// Permission bits in octal, such as `0644` (the default).
    pub mode: Option<String>,
    /// Owner inside the guest: a user name or number; root when omitted.
    pub owner: Option<String>,
    /// Group inside the guest: a group name or number; root when omitted.
    pub group: Option<String>,
    /// Make missing parent directories.
    pub mkdir: Option<bool>,
    /// Replace an existing regular file.
    pub overwrite: Option<bool>,
    /// Expected SHA-256 of the file, 64 hex digits; a different file is not put in place.
    pub checksum: Option<String>,
}

/// The target is checked to its end before the first question goes out.
pub async fn fetch_url(
    ctx: &CallContext,
    _permit: Permit,
    target: &Target,
    args: FetchArgs,
) -> HandlerResult {
    let dest = Dest::parse(&args.dest).map_err(|error| argument("dest", &error.to_string()))?;
    let options = Wishes {
        mode: args.mode.as_deref(),
        owner: args.owner.as_deref(),
        group: args.group.as_deref(),
        mkdir: args.mkdir,
        overwrite: args.overwrite,
        checksum: args.checksum.as_deref(),
    }
    .options()?;
    let Ready { cluster, guest, way, .. } = ready(ctx, target).await?;
    if let Err(error) = way.check(&dest, &options).await {
        return Err(failure(ctx, TOOL, guest, &error).await);
    }

    let snapshot = &ctx.caller.snapshot;
    let limits = &snapshot.policy.limits;
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    let places = FetchLimits {
        at_once: count(limits.fetches),
        per_principal: count(limits.fetches_per_principal),
        queue: count(limits.fetch_queue),
    };
    let _slot = ctx
        .app
        .fetch_slots
        .enter(ctx.caller.principal.name(), places)
        .await
        .map_err(|busy| ToolFailure::new("too_many_fetches", busy.to_string()))?;

    let cap = way.largest(&snapshot.policy.transfers);
    let never = never(ctx, snapshot);
    let rules = snapshot.policy.fetch.rules(Vec::new());
    let errand = Errand {
        event: Event::TransferFetch,
        owner: ctx.caller.principal.name().to_owned(),
        request_id: ctx.caller.request_id.clone(),
        cluster: cluster.name.clone(),
        vmid: Some(guest.vmid()),
        link: None,
        peer: None,
        url: Some(for_audit(&args.url)),
    };
    errand.begins(&ctx.app).await.map_err(|_| crate::stack::audit_down())?;
    let started = ctx.app.clock.monotonic();
    let fetched = match ctx.app.fetcher.fetch(&args.url, &rules, &never, cap).await {
        Ok(fetched) => fetched,
        Err(error) => {
            // What exactly refused it is for the operator alone.
            let ended = Ended::failed(http::StatusCode::BAD_GATEWAY, error.code(), error.detail());
            errand.ended(&ctx.app, &ended, micros(ctx, started)).await;
            return Err(refused(&error));
        }
    };
    let pace = Pace::of(limits, cap);
    let length = fetched.length;
    let mut source = BodySource::new(fetched.body.map_err(|_| BrokenOff).boxed_unsync(), length, cap, pace);
    let slots = ctx.app.slots.enter(&cluster.name, guest.node(), count(limits.uploads_per_node));
    let Ok(Some(_place)) = tokio::time::timeout(Duration::from_secs(30), slots).await else {
        return Err(ToolFailure::new(
            "no_slot",
            "the node is busy with other transfers; try again in a minute",
        ));
    };
    let options = PushOptions { max_bytes: Some(cap), ..options };
    let pushed = way.push(&dest, &options, &mut source, &|_, _| ()).await;
    let ended = match &pushed {
        Ok(receipt) => Ended::delivered(receipt),
        Err(error) => crate::transfer_http::of_push(error, source.received(), cap),
    };
    errand.ended(&ctx.app, &ended, micros(ctx, started)).await;
    match pushed {
        Ok(receipt) => {
            let mut out = Map::new();
            out.insert("vmid".to_owned(), guest.vmid().into());
            out.insert("dest".to_owned(), args.dest.into());
            out.insert("host".to_owned(), fetched.host.into());
            super::files::receipt(&mut out, &receipt);
            if let Some(name) = fetched.name {
                out.insert("name".to_owned(), name.into());
            }
            if let Some(etag) = fetched.etag {
                out.insert("etag".to_owned(), etag.into());
            }
            Ok(Value::Object(out))
        }
        Err(error) => Err(failure(ctx, TOOL, guest, &error).await),
    }
}

fn micros(ctx: &CallContext, started: Duration) -> u64 {
    u64::try_from(ctx.app.clock.monotonic().saturating_sub(started).as_micros()).unwrap_or(u64::MAX)
}

/// A refusal in words that tell nothing about this server's network.
pub(crate) fn refused(error: &FetchError) -> ToolFailure {
    ToolFailure::new(error.code(), error.to_string())
}

/// The web server's own words about a broken connection may hold anything; they go nowhere.
#[derive(Debug, thiserror::Error)]
#[error("the host broke off")]
struct BrokenOff;

/// The machines that are managed here and this server itself: no policy makes them reachable.
pub(crate) fn never(ctx: &CallContext, snapshot: &Snapshot) -> Never {
    let mut never = Never::default();
    let mut add = |host: &str, port: u16| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<std::net::IpAddr>() {
            Ok(ip) => never.addresses.push((ip, port).into()),
            Err(_) => {
                never.names.insert((bare.to_ascii_lowercase(), port));
            }
        }
    };
    for cluster in snapshot.clusters.values() {
        for endpoint in &cluster.endpoints {
            if let Some((host, port)) = endpoint_of(endpoint) {
                add(&host, port);
            }
        }
        if let Some(ssh) = &cluster.ssh {
            for address in ssh.nodes.values() {
                add(&address.host, address.port);
            }
            for guest in &ssh.guests {
                add(&guest.host, guest.port);
            }
        }
    }
    if let Some(transfers) = &ctx.app.transfers {
        never.own_ports = transfers.own_ports();
    }
    never
}

/// Host and port of an endpoint as it stands in `clusters.json`.
fn endpoint_of(text: &str) -> Option<(String, u16)> {
    const PVE_PORT: u16 = 8006;
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = url::Url::parse(&with_scheme).ok()?;
    // The parser drops a port that is the scheme's own, which an endpoint means when it writes it.
    let port = match url.port() {
        Some(port) => port,
        None if with_scheme.trim_end_matches('/').ends_with(":443") => 443,
        None => PVE_PORT,
    };
    Some((url.host_str()?.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::endpoint_of;

    #[test]
    fn endpoints_are_known_by_host_and_port() {
        for (text, host, port) in [
            ("https://pve1.example:8006", "pve1.example", 8006),
            ("https://pve1.example", "pve1.example", 8006),
            ("pve1.example", "pve1.example", 8006),
            ("https://PVE1.example:443/", "pve1.example", 443),
            ("https://[2001:db8::1]:8006", "[2001:db8::1]", 8006),
            ("192.0.2.10:9000", "192.0.2.10", 9000),
        ] {
            assert_eq!(endpoint_of(text), Some((host.to_owned(), port)), "{text}");
        }
    }
}
