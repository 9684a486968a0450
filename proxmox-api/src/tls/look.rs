//! What a server shows before anybody trusts it, for the operator who is about to pin it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::Uri;
use rustls::ClientConfig;
use tower_service::Service as _;

use super::{Connector, Dial, Fingerprint, leaf_pin};
use crate::{
    client::{Endpoint, chain, is_tls},
    error::{Effect, Error, ErrorKind},
};

/// The certificates that a server showed in a TLS handshake. Nothing was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    certificates: Vec<Vec<u8>>,
}

impl Presented {
    /// The fingerprint of the server's own certificate: what [`Trust::Leaf`](super::Trust::Leaf) takes, once it was
    /// compared with what the node itself says (`openssl x509 -in /etc/pve/local/pve-ssl.pem -noout -fingerprint
    /// -sha256`).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.certificates.first().map_or(&[], Vec::as_slice))
    }

    /// All of them in DER, the server's own first.
    #[must_use]
    pub fn certificates(&self) -> &[Vec<u8>] {
        &self.certificates
    }
}

/// Shakes hands with an endpoint as far as its certificates and hangs up. No request is sent and no secret leaves this
/// process; what comes back proves nothing about who answered.
///
/// # Errors
/// [`ErrorKind::Unreachable`] when nothing answers within the time, [`ErrorKind::Tls`] when what answers shows no certificate.
pub async fn presented(endpoint: &Endpoint, within: Duration) -> Result<Presented, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::config("the TLS versions could not be set up").with_source(error))?;
    let seen = Arc::new(OnceLock::new());
    let config = leaf_pin::looking(builder, Arc::clone(&seen), &provider);
    let fixed = endpoint.fixed_address().map(|address| (endpoint.authority().clone(), address));
    let mut connector = Connector::new(config, Dial::new(within, fixed.into_iter().collect()), within);
    let uri = Uri::builder()
        .scheme("https")
        .authority(endpoint.authority().clone())
        .path_and_query("/")
        .build()
        .map_err(|error| Error::config(format!("{endpoint} does not form a URL")).with_source(error))?;
    let outcome = std::future::poll_fn(|cx| connector.poll_ready(cx)).await;
    let failure = match outcome {
        Ok(()) => connector.call(uri).await.err(),
        Err(error) => Some(error),
    };
    if let Some(certificates) = seen.get() {
        return Ok(Presented { certificates: certificates.clone() });
    }
    let (kind, what) = match &failure {
        Some(error) if is_tls(error.as_ref()) => (ErrorKind::Tls, "no certificate"),
        _ => (ErrorKind::Unreachable, "no connection"),
    };
    let why = failure.map_or_else(|| "it showed none".to_owned(), |error| chain(error.as_ref()));
    Err(Error::new(kind, Effect::NotSent, format!("{what} from {endpoint}: {why}")))
}
