//! The sealed note of where the chain stands, kept beside the audit file.
//!
//! It lets the chain go on when the file was rotated away while no server ran, and shows a tail that went
//! missing. It is written at start, at rotation, at stop and now and then between, so it may lag behind the
//! file, never run ahead of what is durable. Whoever can write here *and* read the key can forge it; a
//! checkpoint kept on another machine is the stronger proof.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::chain::Head;
use crate::files::{self, FileError, Privacy};
use crate::keys::Key;

/// Why the note cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It was not sealed with this server's audit key.
    #[error(
        "{} is not sealed with this server's audit key: the key was replaced or the file was changed; check the trail with \
         `proxward audit verify`, then move this file away", .0.display()
    )]
    Seal(PathBuf),
}

/// Where the checkpoint of an audit file lies: the same name with `.head` added.
pub fn path_of(audit_file: &Path) -> PathBuf {
    let mut name = audit_file.file_name().unwrap_or_default().to_owned();
    name.push(".head");
    audit_file.with_file_name(name)
}

/// Seals and writes the note, durably.
pub(super) fn store(audit_file: &Path, key: &Key, head: &Head) -> Result<(), FileError> {
    let text = head.to_string();
    let seal = HEXLOWER.encode(&mac(key, &text).finalize().into_bytes());
    files::replace(&path_of(audit_file), format!("{text} {seal}\n").as_bytes())
}

/// Reads the note; `None` when there is none.
pub(super) fn load(audit_file: &Path, key: &Key) -> Result<Option<Head>, CheckpointError> {
    let path = path_of(audit_file);
    let bytes = match files::read(&path, Privacy::Secret, 1024) {
        Ok(bytes) => bytes,
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bad = || CheckpointError::Seal(path.clone());
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let (head, seal) = text.trim_end().split_once(' ').ok_or_else(bad)?;
    let seal = HEXLOWER.decode(seal.as_bytes()).map_err(|_| bad())?;
    mac(key, head).verify_slice(&seal).map_err(|_| bad())?;
    Ok(Some(head.parse().map_err(|_| bad())?))
}

fn mac(key: &Key, text: &str) -> Hmac<Sha256> {
    // The block-sized form cannot fail; a short key is padded as the standard says.
    let mut block = [0u8; 64];
    block[..key.expose().len()].copy_from_slice(key.expose());
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(b"pxw-audit-head-v1\0");
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_comes_back_and_a_changed_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.jsonl");
        let key = Key::from_bytes([3; 32]);
        assert!(load(&file, &key).unwrap().is_none());
        let head = Head { chain: "0123456789abcdef0123456789abcdef".to_owned(), seq: 41, hash: [9; 32] };
        store(&file, &key, &head).unwrap();
        assert_eq!(load(&file, &key).unwrap(), Some(head));
        load(&file, &Key::from_bytes([4; 32])).unwrap_err();
        let text = std::fs::read_to_string(path_of(&file)).unwrap().replace(":41:", ":40:");
        std::fs::write(path_of(&file), text).unwrap();
        let error = load(&file, &key).unwrap_err().to_string();
        assert!(error.contains("audit.jsonl.head"), "{error}");
    }
}
