//! The two keys the server makes for itself at its first start: one seals approvals, one the audit trail.

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::files::{self, FileError, Privacy};

/// Bytes in each key.
pub const KEY_LEN: usize = 32;

/// A secret of [`KEY_LEN`] bytes, erased when dropped; never printed.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; KEY_LEN]>);

impl Key {
    /// Wraps key bytes that came from elsewhere (`--audit-hmac-key-file`, a test).
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the MAC that uses them.
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Reads a key file: 32 raw bytes, 0600, owned by the service user.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(files::read(path, Privacy::Secret, 4096)?);
        let key: [u8; KEY_LEN] = bytes
            .as_slice()
            .try_into()
            .map_err(|_| KeyError::Length { path: path.to_owned(), found: bytes.len() })?;
        if key == [0; KEY_LEN] {
            return Err(KeyError::Blank { path: path.to_owned() });
        }
        Ok(Self::from_bytes(key))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why the keys are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a key.
    #[error(
        "{} holds {found} bytes, a key has {KEY_LEN}: restore it from a backup, or delete it to have a new one made \
         (open approvals then become void)", .path.display()
    )]
    Length {
        /// The key file.
        path: PathBuf,
        /// How many bytes it holds.
        found: usize,
    },
    /// The file holds zeros only, as after a lost write.
    #[error("{} holds zeros only: restore it from a backup, or delete it to have a new one made", .path.display())]
    Blank {
        /// The key file.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("no random bytes for a new key: {0}")]
    Entropy(getrandom::Error),
}

/// The server's own keys.
#[derive(Debug)]
pub struct Keys {
    /// Seals approvals (`changeset`).
    pub approval: Key,
    /// Seals audit checkpoints, and redacted values when no other key is named.
    pub audit: Key,
    /// The keys that did not exist and were made by this start, by file name. When change sets exist already,
    /// a new approval key means that every open approval is void, and start says so.
    pub made: Vec<&'static str>,
}

impl Keys {
    /// File name of the approval key below `<state-dir>/keys`.
    pub const APPROVAL_FILE: &'static str = "approval.key";
    /// File name of the audit key below `<state-dir>/keys`.
    pub const AUDIT_FILE: &'static str = "audit.key";

    /// Loads the keys from `<state-dir>/keys`, making those that do not exist. Call with the state lock held.
    pub fn load_or_make(state_dir: &Path) -> Result<Self, KeyError> {
        let dir = state_dir.join("keys");
        crate::state_dir::make_private_dir(&dir)?;
        let mut made = Vec::new();
        let mut one = |name: &'static str| -> Result<Key, KeyError> {
            let path = dir.join(name);
            match Key::read(&path) {
                Err(KeyError::File(error)) if error.is_missing() => {
                    let mut bytes = Zeroizing::new([0u8; KEY_LEN]);
                    getrandom::fill(bytes.as_mut_slice()).map_err(KeyError::Entropy)?;
                    files::replace(&path, bytes.as_slice())?;
                    made.push(name);
                    // Read back: what counts is what the next start will see.
                    Key::read(&path)
                }
                other => other,
            }
        };
        let approval = one(Self::APPROVAL_FILE)?;
        let audit = one(Self::AUDIT_FILE)?;
        Ok(Self { approval, audit, made })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_made_once_private_and_stay_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let first = Keys::load_or_make(dir.path()).unwrap();
        assert_eq!(first.made, [Keys::APPROVAL_FILE, Keys::AUDIT_FILE]);
        assert_ne!(first.approval.expose(), first.audit.expose());
        for name in first.made {
            let mode = std::fs::metadata(dir.path().join("keys").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600);
        }
        let second = Keys::load_or_make(dir.path()).unwrap();
        assert!(second.made.is_empty());
        assert_eq!(second.approval.expose(), first.approval.expose());
        assert_eq!(second.audit.expose(), first.audit.expose());
    }

    #[test]
    fn a_key_others_can_read_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        Keys::load_or_make(dir.path()).unwrap();
        let path = dir.path().join("keys/approval.key");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = Keys::load_or_make(dir.path()).unwrap_err().to_string();
        assert!(error.contains("chmod 0600"), "{error}");
        assert!(error.contains("approval.key"), "{error}");
    }

    #[test]
    fn a_short_or_blank_key_is_refused_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        Keys::load_or_make(dir.path()).unwrap();
        let path = dir.path().join("keys/audit.key");
        for content in [&b""[..], &[7; 31], &[7; 33], &[0; 32]] {
            std::fs::write(&path, content).unwrap();
            Keys::load_or_make(dir.path()).unwrap_err();
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn debug_never_shows_a_key() {
        assert_eq!(format!("{:?}", Key::from_bytes([0x41; 32])), "Key(..)");
    }
}
