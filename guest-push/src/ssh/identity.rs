//! The key we log in with.

use std::fmt;
use std::sync::Arc;

use russh::keys::{Algorithm, PrivateKey};

/// An Ed25519 private key for SSH logins. Shows nothing of the key in `Debug`; the key's memory is wiped on drop.
#[derive(Clone)]
pub struct Identity(Arc<PrivateKey>);

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Not a private key in OpenSSH's own format.
    #[error(
        "not an OpenSSH private key (a file that begins with \"-----BEGIN OPENSSH PRIVATE KEY-----\"); make one with: ssh-keygen -t ed25519 -N '' -f <file>"
    )]
    Malformed,
    /// Protected by a passphrase, which nobody is there to type.
    #[error(
        "the private key has a passphrase; a server cannot type it, use a key of its own without one: ssh-keygen -t ed25519 -N '' -f <file>"
    )]
    Encrypted,
    /// A key of another type.
    #[error(
        "the private key is {0}, expected ssh-ed25519; make one with: ssh-keygen -t ed25519 -N '' -f <file>"
    )]
    NotEd25519(String),
}

impl Identity {
    /// Reads a private key in OpenSSH's format, as `ssh-keygen` writes it.
    ///
    /// The caller checks the file's owner and mode; this sees only the text.
    ///
    /// # Errors
    /// [`IdentityError`], which never repeats any of the text.
    pub fn from_openssh(pem: &str) -> Result<Self, IdentityError> {
        let key = PrivateKey::from_openssh(pem).map_err(|_| IdentityError::Malformed)?;
        if key.is_encrypted() {
            return Err(IdentityError::Encrypted);
        }
        match key.algorithm() {
            Algorithm::Ed25519 => Ok(Self(Arc::new(key))),
            other => Err(IdentityError::NotEd25519(other.to_string())),
        }
    }

    /// The public half as a line for `authorized_keys`.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`] when the key cannot be written in that form.
    pub fn public_line(&self) -> Result<String, IdentityError> {
        self.0.public_key().to_openssh().map_err(|_| IdentityError::Malformed)
    }

    /// A key that is the same in every run.
    #[cfg(test)]
    pub(crate) fn for_tests(seed: u8) -> Self {
        use russh::keys::ssh_key::private::Ed25519Keypair;
        Self(Arc::new(PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))))
    }

    pub(super) fn key(&self) -> Arc<PrivateKey> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(ssh-ed25519)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_form_and_shows_nothing() {
        let pem = Identity::for_tests(1).0.to_openssh(russh::keys::ssh_key::LineEnding::LF).unwrap();
        let identity = Identity::from_openssh(&pem).unwrap();
        assert!(identity.public_line().unwrap().starts_with("ssh-ed25519 AAAA"));
        assert_eq!(format!("{identity:?}"), "Identity(ssh-ed25519)");
    }

    #[test]
    fn text_that_is_no_key_is_refused_without_being_repeated() {
        for text in
            ["", "hello", "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"]
        {
            let error = Identity::from_openssh(text).unwrap_err();
            assert_eq!(error, IdentityError::Malformed);
            assert!(!error.to_string().contains("secret"));
        }
    }
}
