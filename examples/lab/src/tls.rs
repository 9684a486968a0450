//! The certificate authority of a cluster and the certificate of its listener.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use crate::LabError;

/// What the listener of one cluster needs.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    pub(crate) server: Arc<ServerConfig>,
    /// SHA-256 of the leaf: upper-case hex pairs with colons, as PVE prints it.
    pub(crate) fingerprint: String,
}

/// Makes an authority of its own for one cluster, and a leaf for 127.0.0.1 and localhost.
pub(crate) fn identity(cluster: &str) -> Result<Identity, LabError> {
    let mut ca = CertificateParams::new(Vec::new()).map_err(LabError::keys)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::OrganizationName, "PVE Cluster Manager CA");
    ca.distinguished_name.push(DnType::CommonName, format!("Proxmox Virtual Environment lab {cluster}"));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate().map_err(LabError::keys)?;
    let ca_cert = ca.self_signed(&ca_key).map_err(LabError::keys)?;
    let issuer = Issuer::new(ca, ca_key);

    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut leaf = CertificateParams::new(names).map_err(LabError::keys)?;
    leaf.distinguished_name.push(DnType::CommonName, format!("{cluster}.lab"));
    leaf.use_authority_key_identifier_extension = true;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf_key = KeyPair::generate().map_err(LabError::keys)?;
    let leaf_cert = leaf.signed_by(&leaf_key, &issuer).map_err(LabError::keys)?;

    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(LabError::keys)?
        .with_no_client_auth()
        .with_single_cert(vec![leaf_cert.der().clone()], key)
        .map_err(LabError::keys)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let hash = Sha256::digest(leaf_cert.der());
    let pairs: Vec<String> = hash.iter().map(|byte| format!("{byte:02X}")).collect();
    Ok(Identity { ca_pem: ca_cert.pem(), server: Arc::new(server), fingerprint: pairs.join(":") })
}
