//! Whom a client takes for its cluster. There is no way to skip the question.

mod connect;
mod leaf_pin;
mod look;
mod roots;

use std::sync::Arc;

use rustls::ClientConfig;

pub(crate) use connect::{Connector, Dial};
pub use leaf_pin::Fingerprint;
pub use look::{Presented, presented};

use crate::error::Error;

/// Whom to trust on the other end.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Only what the certificate authorities in this PEM text signed, for the name that was dialled. For a cluster
    /// that is `/etc/pve/pve-root-ca.pem`. The system's authorities are not trusted besides.
    Ca(String),
    /// The authorities of the operating system, for clusters with a public certificate.
    System,
    /// Exactly one certificate, whatever its name, dates and issuer. The server must still prove that it holds the
    /// certificate's key.
    Leaf(Fingerprint),
}

impl Trust {
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config("the TLS versions could not be set up").with_source(error))?;
        Ok(match self {
            Self::Ca(pem) => builder.with_root_certificates(roots::from_pem(pem)?).with_no_client_auth(),
            Self::System => builder.with_root_certificates(roots::system()?).with_no_client_auth(),
            Self::Leaf(fingerprint) => leaf_pin::config(builder, *fingerprint, &provider),
        })
    }
}
