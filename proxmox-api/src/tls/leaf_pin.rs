//! Trust in exactly one certificate, by its SHA-256 fingerprint; and a look at the certificates of a server that is not
//! trusted at all.
//!
//! This is the one file of the crate that may name rustls' `dangerous()`: an exact pin replaces the checks of chain,
//! name and dates, which say less than the pin does. The signature checks are rustls' own and stay, so that showing
//! a copied certificate without holding its key gets nobody in.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, OnceLock},
};

use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, OtherError, SignatureScheme,
    WantsVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};

use crate::ids::IdError;

/// The SHA-256 of a certificate, as PVE shows it: 32 hex pairs with colons (`ssl_fingerprint` of `GET /nodes`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Fingerprint {
    type Err = IdError;

    /// Reads 64 hex digits in either case, all pairs separated by colons or none.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let refused = || {
            IdError::new(
                "a certificate fingerprint",
                text,
                "the SHA-256 of the node's certificate, 32 hex pairs with or without colons",
            )
        };
        let hex = match text.len() {
            64 => text.to_ascii_lowercase(),
            95 => {
                let pairs: Vec<&str> = text.split(':').filter(|pair| pair.len() == 2).collect();
                pairs.concat().to_ascii_lowercase()
            }
            _ => return Err(refused()),
        };
        let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).map_err(|_| refused())?;
        bytes.try_into().map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// A client configuration that trusts the pinned certificate and nothing else.
pub(super) fn config(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    fingerprint: Fingerprint,
    provider: &CryptoProvider,
) -> ClientConfig {
    judging(builder, Judge::Pin(fingerprint), provider)
}

/// A client configuration that writes the certificates it is shown into `seen` and then refuses them, whatever they
/// are: the handshake never ends well, so nothing can be sent over it.
pub(super) fn looking(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    seen: Arc<OnceLock<Vec<Vec<u8>>>>,
    provider: &CryptoProvider,
) -> ClientConfig {
    judging(builder, Judge::Look(seen), provider)
}

fn judging(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    judge: Judge,
    provider: &CryptoProvider,
) -> ClientConfig {
    let verifier = LeafAlone { judge, algorithms: provider.signature_verification_algorithms };
    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
}

/// What is made of the certificates.
#[derive(Debug)]
enum Judge {
    /// The server's own must be this one.
    Pin(Fingerprint),
    /// They are kept, and none will do.
    Look(Arc<OnceLock<Vec<Vec<u8>>>>),
}

#[derive(Debug)]
struct LeafAlone {
    judge: Judge,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Names both fingerprints: a renewed certificate is a daily event, and the operator compares them with the node's.
#[derive(Debug, thiserror::Error)]
#[error("the server's certificate has the fingerprint {shown}, expected {pinned}")]
struct OtherLeaf {
    shown: Fingerprint,
    pinned: Fingerprint,
}

impl ServerCertVerifier for LeafAlone {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.judge {
            Judge::Pin(pinned) => {
                let shown = Fingerprint::of(end_entity);
                if shown == *pinned {
                    return Ok(ServerCertVerified::assertion());
                }
                let other = OtherLeaf { shown, pinned: *pinned };
                Err(CertificateError::Other(OtherError(Arc::new(other))).into())
            }
            Judge::Look(seen) => {
                let chain =
                    std::iter::once(end_entity).chain(intermediates).map(|der| der.to_vec()).collect();
                // Only the first handshake counts; there is one.
                let _ = seen.set(chain);
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLONS: &str =
        "7B:10:5D:5D:F5:89:10:C8:AA:D2:08:BB:35:5A:7E:6A:D8:F9:39:C1:07:EF:22:42:62:AC:C9:08:D3:BF:18:32";

    #[test]
    fn a_fingerprint_reads_with_and_without_colons() {
        let pinned: Fingerprint = COLONS.parse().unwrap();
        assert_eq!(pinned.to_string(), COLONS);
        assert_eq!(COLONS.replace(':', "").to_lowercase().parse::<Fingerprint>().unwrap(), pinned);
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        let short = &COLONS[..92];
        let shifted = format!("{}:", COLONS.replacen(':', "", 1));
        let trailing = format!("{}\n", COLONS.replace(':', ""));
        let sha1 = "DA:39:A3:EE:5E:6B:4B:0D:32:55:BF:EF:95:60:18:90:AF:D8:07:09";
        for text in ["", short, &shifted, &trailing, sha1, &"g".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn px_01_no_scheme_with_sha_1_is_offered() {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let schemes = algorithms.supported_schemes();
        assert!(!schemes.is_empty());
        for scheme in schemes {
            assert!(!format!("{scheme:?}").contains("SHA1"), "{scheme:?}");
        }
    }
}
