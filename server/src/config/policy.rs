//! The `policy` of `clusters.json`: limits and addresses that hold for the whole server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use guest_push::LxcRoute;

use super::net::{AllowedTarget, Cidr};

/// Everything below `policy`, with its defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How old a resource list may be that a *read* is answered from (`resource_cache_ttl_secs`).
    pub resource_cache_ttl: Duration,
    /// The base of minted URLs, without a trailing slash. `None`: only a loopback listener mints.
    pub public_url: Option<String>,
    /// Uploads.
    pub transfers: TransferPolicy,
    /// Downloads by the server into guests.
    pub fetch: FetchPolicy,
    /// Rates and counts.
    pub limits: Limits,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Cidr>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            resource_cache_ttl: Duration::from_secs(10),
            public_url: None,
            transfers: TransferPolicy::default(),
            fetch: FetchPolicy::default(),
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
        }
    }
}

impl Policy {
    /// Whether an address is one of the trusted proxies.
    pub fn trusts_proxy(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(address))
    }
}

/// `policy.transfers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferPolicy {
    /// Most bytes of one upload over SSH (`max_mb`, in MiB).
    pub max_bytes: u64,
    /// Most bytes of one upload through the guest agent (`agent_max_mb`, in MiB).
    pub agent_max_bytes: u64,
    /// A directory on this machine from which files may be uploaded (`dir`); `None`: none may.
    pub dir: Option<PathBuf>,
    /// The way into containers (`lxc_route`).
    pub lxc_route: LxcRoute,
    /// The largest body that a proxy in front of this server lets through (`proxy_max_mb`, in MiB), for warnings alone.
    pub proxy_max_bytes: Option<u64>,
}

impl Default for TransferPolicy {
    fn default() -> Self {
        Self {
            max_bytes: 10240 << 20,
            agent_max_bytes: 64 << 20,
            dir: None,
            lxc_route: LxcRoute::default(),
            proxy_max_bytes: None,
        }
    }
}

/// `policy.fetch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPolicy {
    /// Exact addresses and ports that are reachable although their range is not public.
    pub allow: Vec<AllowedTarget>,
    /// Ports reachable on public addresses.
    pub ports: Vec<u16>,
    /// Whether `64:ff9b::/96` leads to IPv4 addresses here (`nat64`).
    pub nat64: bool,
}

impl Default for FetchPolicy {
    fn default() -> Self {
        Self { allow: Vec::new(), ports: vec![80, 443], nat64: false }
    }
}

impl FetchPolicy {
    /// The rules for one fetch. `never`: what may not be reached whatever is allowed.
    pub fn rules(&self, never: Vec<SocketAddr>) -> transfers::policy::Rules {
        let allow = self.allow.iter().map(AllowedTarget::address).collect();
        transfers::policy::Rules { allow, ports: self.ports.clone(), never, nat64: self.nat64 }
    }

    /// Whether the operator named exactly this address and port.
    pub fn allows(&self, target: SocketAddr) -> bool {
        self.allow.iter().any(|allowed| allowed.matches(target))
    }
}

/// Declares each limit once: field, key in the file, default, bounds.
macro_rules! limits {
    ($($(#[$doc:meta])* $field:ident: $default:literal in $low:literal..=$high:literal,)*) => {
        /// `policy.limits`: each key is the field's name.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Limits {
            /// Every key with the bounds it must keep and where it is stored.
            pub(super) fn fields(&mut self) -> Vec<(&'static str, std::ops::RangeInclusive<u64>, &mut u64)> {
                vec![$((stringify!($field), $low..=$high, &mut self.$field),)*]
            }
        }
    };
}

limits! {
    /// Wrong tokens per minute and peer on the transfer routes before 429.
    transfer_wrong_tokens_per_minute: 600 in 1..=1_000_000,
    /// Upload links that may be pending on the whole server.
    pending_links: 50 in 1..=100_000,
    /// Upload links that one principal may have pending.
    pending_links_per_owner: 10 in 1..=100_000,
    /// Uploads that may run to one node at a time.
    uploads_per_node: 4 in 1..=64,
    /// Fetches by the server that may run at a time, over all principals.
    fetches: 8 in 1..=1_000,
    /// Fetches that one principal may have running at a time.
    fetches_per_principal: 2 in 1..=1_000,
    /// Fetches that may wait for a place.
    fetch_queue: 16 in 0..=10_000,
    /// Downloads from guests that may run at a time.
    downloads: 8 in 1..=1_000,
    /// How long an upload may be silent, and the time over which it must keep 1 KiB a second, in milliseconds.
    upload_idle_ms: 30_000 in 100..=3_600_000,
    /// Calls per second of one principal, sustained.
    calls_per_second: 50 in 1..=100_000,
    /// Calls a principal may make at once after a pause.
    call_burst: 600 in 1..=1_000_000,
    /// Calls of one principal that may run at the same time.
    calls_in_flight: 32 in 1..=10_000,
    /// Wrong bearers per minute and peer before 429.
    bearer_failures_per_minute: 20 in 1..=1_000_000,
    /// Change sets one planner may have pending.
    pending_changes_per_planner: 10 in 1..=10_000,
    /// Change sets the server may have pending.
    pending_changes: 100 in 1..=100_000,
    /// Destructive change sets applied per hour on one cluster.
    destructive_applies_per_hour: 5 in 1..=1_000_000,
    /// How long recovery waits for a task to show up before it calls a step unknown, in milliseconds.
    recovery_settle_ms: 30_000 in 0..=3_600_000,
    /// How long a task that cannot be read is waited for before its step is called unknown, in milliseconds.
    recovery_give_up_ms: 900_000 in 1..=86_400_000,
}

impl Limits {
    /// [`Limits::recovery_settle_ms`] as a duration.
    pub fn recovery_settle(&self) -> Duration {
        Duration::from_millis(self.recovery_settle_ms)
    }

    /// [`Limits::recovery_give_up_ms`] as a duration.
    pub fn recovery_give_up(&self) -> Duration {
        Duration::from_millis(self.recovery_give_up_ms)
    }
}
