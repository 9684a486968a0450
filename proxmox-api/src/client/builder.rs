use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};

use super::{
    ApiToken, Client, Endpoint, Inner,
    breaker::Breaker,
    lane::{Lane, READS},
};
use crate::{
    error::Error,
    tls::{Connector, Dial, Trust},
    wire::Scrubber,
};

/// How long a client waits, phase by phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the TCP connection to one endpoint.
    pub connect: Duration,
    /// For the TLS handshake that follows.
    pub handshake: Duration,
    /// For a read, until one endpoint's answer begins, the connection included. Then the next endpoint is asked; the
    /// last one may take what is left of `read`.
    pub head: Duration,
    /// Between two pieces of an answer's body.
    pub idle: Duration,
    /// For a whole read: all endpoints, the retry and the body.
    pub read: Duration,
    /// For a mutation once it is on its way to one endpoint. PVE itself gives up on a call after 30 s, so a longer
    /// time lets its own answer through. When it passes the effect is [`Unknown`](crate::Effect::Unknown).
    pub write: Duration,
}

impl Default for Timeouts {
    /// 5 s to connect and 5 s for the handshake, 10 s for an answer to begin, 10 s between its pieces, 30 s to read,
    /// 45 s to write.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            read: Duration::from_secs(30),
            write: Duration::from_secs(45),
        }
    }
}

/// Collects what a [`Client`] needs.
#[derive(Debug, Clone, Default)]
pub struct ClientBuilder {
    endpoints: Vec<Endpoint>,
    token: Option<ApiToken>,
    trust: Option<Trust>,
    connect_to: Option<SocketAddr>,
    timeouts: Timeouts,
}

impl ClientBuilder {
    /// Adds an endpoint of the cluster. The first is asked first; the others stand in for it while it is of no use.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// The token every call is made with.
    #[must_use]
    pub fn token(mut self, token: ApiToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Whom to trust on the other end. There is no default.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Connects to this address for every endpoint without an address of its own; see [`Endpoint::connect_to`].
    #[must_use]
    pub fn connect_to(mut self, address: Option<SocketAddr>) -> Self {
        self.connect_to = address;
        self
    }

    /// Other than the default waiting times.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Makes the client. Connects to nothing.
    ///
    /// # Errors
    /// Fails when endpoint, token or trust is missing, or the trust anchors cannot be read.
    pub fn build(self) -> Result<Client, Error> {
        let missing = |what| Error::config(format!("a client needs {what}; set it before `build`"));
        let token = self.token.ok_or_else(|| missing("a token"))?;
        let trust = self.trust.ok_or_else(|| missing("to know whom to trust"))?;
        if self.endpoints.is_empty() {
            return Err(missing("an endpoint"));
        }
        let fixed = self
            .endpoints
            .iter()
            .filter_map(|endpoint| {
                let address = endpoint.fixed_address().or(self.connect_to)?;
                Some((endpoint.authority().clone(), address))
            })
            .collect();
        let Timeouts { connect, handshake, .. } = self.timeouts;
        let connector = Connector::new(
            trust.client_config()?,
            Dial::new(connect, fixed),
            connect.saturating_add(handshake),
        );

        let mut pooled = legacy::Client::builder(TokioExecutor::new());
        // pveproxy closes an idle connection after 5 s; staying below that avoids writing into a closing one.
        pooled.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(3));
        pooled.pool_max_idle_per_host(READS).http1_max_buf_size(64 * 1024);
        let mut single = pooled.clone();
        // A mutation gets a connection of its own. On a pooled one, which the server may close at any time, a lost
        // request could not be told from a lost answer; on a fresh one, failing to connect is the one failure that
        // proves nothing was sent.
        single.pool_max_idle_per_host(0).retry_canceled_requests(false);

        Ok(Client(Arc::new(Inner {
            header: token.header()?,
            scrubber: Scrubber::new(token.secret().clone()),
            token_id: token.id().to_owned(),
            reads: pooled.build(connector.clone()),
            writes: single.build(connector.clone()),
            uploads: single.build(connector),
            endpoints: self.endpoints,
            preferred: AtomicUsize::new(0),
            timeouts: self.timeouts,
            date: AtomicU64::new(0),
            reads_lane: Lane::for_reads(),
            writes_lane: Lane::for_writes(),
            breaker: Breaker::default(),
            rehearsal: None,
        })))
    }
}
