//! The certificate and key of the HTTPS listener.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::problem::Problem;
use crate::files::{self, Privacy};

/// Longest PEM file read, in bytes.
const MAX_PEM: u64 = 1024 * 1024;

/// Reads both files and checks that they belong together. TLS 1.2 and 1.3, HTTP/1.1 only.
pub fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig, Vec<Problem>> {
    let mut problems = Vec::new();
    let chain = read_chain(certificate).map_err(|problem| problems.push(problem)).ok();
    let key_der = read_key(key).map_err(|problem| problems.push(problem)).ok();
    let (Some(chain), Some(key_der)) = (chain, key_der) else { return Err(problems) };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| vec![Problem::flag(format!("the TLS versions cannot be set up: {error}"))])?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|error| {
            let message = format!("this certificate and the key in {} do not fit: {error}", key.display());
            vec![Problem::file(certificate, message)]
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let pem =
        files::read(path, Privacy::Public, MAX_PEM).map_err(|error| Problem::flag(error.to_string()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(Problem::file(
            path,
            "expected a certificate chain in PEM, the server's own certificate first",
        )),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let pem =
        files::read(path, Privacy::Secret, MAX_PEM).map_err(|error| Problem::flag(error.to_string()))?;
    let pem = Zeroizing::new(pem);
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        Problem::file(path, "expected a private key in PEM (PKCS#8, PKCS#1 or SEC1), not encrypted")
    })
}
