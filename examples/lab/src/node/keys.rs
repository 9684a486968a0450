//! Ed25519 keys of hosts and users, as text.

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey, PublicKey};

use crate::LabError;
use crate::handle::random;

/// One key pair.
pub(crate) struct KeyText {
    private: PrivateKey,
    pub(crate) public: PublicKey,
    /// The private key as OpenSSH writes it.
    pub(crate) private_pem: String,
    public_line: String,
}

impl std::fmt::Debug for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyText({})", self.fingerprint())
    }
}

impl KeyText {
    /// A new random key.
    pub(crate) fn generate(comment: &str) -> Result<KeyText, LabError> {
        let pair = Ed25519Keypair::from_seed(&random()?);
        let private = PrivateKey::new(KeypairData::Ed25519(pair), comment).map_err(LabError::keys)?;
        let public = private.public_key().clone();
        let private_pem = private.to_openssh(LineEnding::LF).map_err(LabError::keys)?.to_string();
        let line = public.to_openssh().map_err(LabError::keys)?;
        // A host key line has no comment.
        let public_line = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Ok(KeyText { private, public, private_pem, public_line })
    }

    pub(crate) fn private(&self) -> PrivateKey {
        self.private.clone()
    }

    /// `ssh-ed25519 AAAA…`.
    pub(crate) fn public_line(&self) -> &str {
        &self.public_line
    }

    /// `SHA256:…`.
    pub(crate) fn fingerprint(&self) -> String {
        self.public.fingerprint(HashAlg::Sha256).to_string()
    }
}
