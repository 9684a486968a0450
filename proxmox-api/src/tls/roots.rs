//! Where the certificate authorities come from.

use std::sync::{Arc, LazyLock};

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::error::Error;

/// A store of exactly the certificates in the text.
pub(super) fn from_pem(pem: &str) -> Result<RootCertStore, Error> {
    const HINT: &str = "expected the cluster's /etc/pve/pve-root-ca.pem";
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate =
            certificate.map_err(|error| Error::config(format!("the CA text is not PEM: {error}; {HINT}")))?;
        store.add(certificate).map_err(|error| {
            Error::config(format!("a certificate of the CA text cannot be a trust anchor: {error}; {HINT}"))
        })?;
    }
    if store.is_empty() {
        return Err(Error::config(format!("the CA text holds no certificate; {HINT}")));
    }
    Ok(store)
}

/// The operating system's store, read from disk once per process.
pub(super) fn system() -> Result<Arc<RootCertStore>, Error> {
    static SYSTEM: LazyLock<Result<Arc<RootCertStore>, String>> = LazyLock::new(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        // Some systems carry a certificate or two that webpki cannot read; the others are none the worse.
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
            return Err(format!(
                "the system has no usable certificate authorities ({why}); install them or name the cluster's CA"
            ));
        }
        Ok(Arc::new(store))
    });
    SYSTEM.clone().map_err(Error::config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Effect, ErrorKind};

    #[test]
    fn a_text_without_a_certificate_is_refused() {
        for text in
            ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "-----BEGIN CERT"]
        {
            let error = from_pem(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{text:?}");
            assert_eq!(error.effect(), Effect::NotSent);
        }
    }
}
