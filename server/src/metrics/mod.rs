//! What the server counts, in the OpenMetrics text format.
//!
//! Every label value is a name of ours: a tool, a route's label, an outcome's code. Nothing that a caller sends becomes one, and no
//! principal, cluster or guest is named, so that a scraper learns how busy the server is and nothing about whom it serves.

mod labels;
mod listen;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use labels::TransferRoute;
use labels::{BuildLabels, CallLabels, RouteLabels, ToolLabels, TransferLabels};
pub(crate) use listen::Listener;

use crate::app::App;

/// All counters, as one value that lives as long as the server.
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    call_seconds: Family<ToolLabels, Histogram>,
    transfers: Family<TransferLabels, Counter>,
    transfer_bytes: Family<RouteLabels, Counter>,
    transfer_seconds: Family<RouteLabels, Histogram>,
    refused_bearers: Counter,
    running: Gauge,
    links_pending: Gauge,
    links_running: Gauge,
    generation: Gauge,
    degraded: Gauge,
    audit_usable: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// From a millisecond to a minute: a gate's own work up to the longest read.
fn call_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 13))
}

/// From a tenth of a second to an hour and a half.
fn transfer_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 3.0, 11))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("proxward");
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
        registry.register("build", "The version of the program", build);

        let calls = Family::default();
        registry.register("tool_calls", "Tool calls by tool and outcome", calls.clone());
        let call_seconds = Family::new_with_constructor(call_histogram as fn() -> Histogram);
        let help = "Time from a tool call's arrival to its result";
        registry.register_with_unit("tool_call", help, Unit::Seconds, call_seconds.clone());

        let transfers = Family::default();
        registry.register("transfers", "Transfers that ended, by route and outcome", transfers.clone());
        let transfer_bytes = Family::default();
        let help = "Bytes of files that transfers carried";
        registry.register_with_unit("transfer", help, Unit::Bytes, transfer_bytes.clone());
        let transfer_seconds = Family::new_with_constructor(transfer_histogram as fn() -> Histogram);
        let help = "Time from a link's presentation to its outcome";
        registry.register_with_unit("transfer", help, Unit::Seconds, transfer_seconds.clone());

        let refused_bearers = Counter::default();
        registry.register(
            "refused_bearers",
            "Requests whose bearer token was not accepted",
            refused_bearers.clone(),
        );

        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let running = gauge("running_work", "Work that a stop of the server would wait for");
        let links_pending = gauge("links_pending", "Transfer links that are not presented yet");
        let links_running = gauge("links_running", "Transfers under way");
        let generation = gauge("config_generation", "Which configuration is in force, counted from 1");
        let degraded = gauge(
            "config_degraded",
            "1 while a newer configuration was refused and an older one is in force",
        );
        let audit_usable =
            gauge("audit_usable", "1 while audit records can be written; 0 refuses every change");
        Self {
            registry,
            calls,
            call_seconds,
            transfers,
            transfer_bytes,
            transfer_seconds,
            refused_bearers,
            running,
            links_pending,
            links_running,
            generation,
            degraded,
            audit_usable,
        }
    }
}

impl Metrics {
    /// A tool call that ended. `tool` and `outcome` are names from the catalog and from error codes, never a caller's text.
    pub(crate) fn call(&self, tool: &'static str, outcome: &'static str, took: Duration) {
        self.calls.get_or_create(&CallLabels { tool, outcome }).inc();
        self.call_seconds.get_or_create(&ToolLabels { tool }).observe(took.as_secs_f64());
    }

    /// A transfer that ended after carrying `bytes`.
    pub(crate) fn transfer(&self, route: TransferRoute, outcome: &'static str, bytes: u64, took: Duration) {
        self.transfers.get_or_create(&TransferLabels { route, outcome }).inc();
        let labels = RouteLabels { route };
        self.transfer_bytes.get_or_create(&labels).inc_by(bytes);
        self.transfer_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A request with a bearer token that is none.
    pub(crate) fn refused_bearer(&self) {
        self.refused_bearers.inc();
    }

    /// The exposition, with the gauges as they are now.
    pub fn render(&self, app: &App) -> String {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.running.set(gauge(app.tracker.running()));
        if let Some(transfers) = &app.transfers {
            let counts = transfers.links.counts();
            self.links_pending.set(gauge(counts.pending));
            self.links_running.set(gauge(counts.running));
        }
        self.generation.set(i64::try_from(app.live.load().generation).unwrap_or(i64::MAX));
        self.degraded.set(i64::from(app.live.degraded().is_some()));
        self.audit_usable.set(i64::from(app.audit.poisoned().is_none()));
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            // Writing into a String cannot fail; an encoder that says otherwise has a fault worth knowing.
            tracing::error!(%error, "the metrics could not be written");
        }
        text
    }
}

/// The counters of a server, shared by whatever counts.
pub type Shared = Arc<Metrics>;
