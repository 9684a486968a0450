use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use bytes::Bytes;
use tokio::io::AsyncRead;

use super::{Checksum, FileContent, FileName, storage_path};
use crate::{
    client::{Client, Multipart},
    error::Error,
    ids::{NodeName, StorageId, Upid},
};

/// A file to put onto a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// What it is.
    pub content: FileContent,
    /// What it is to be called. A file of that name is replaced without a word.
    pub filename: FileName,
    /// How many bytes it has; PVE has to be told first.
    pub size: u64,
    /// What it has to be; PVE then refuses another one in the task.
    pub checksum: Option<Checksum>,
}

impl Upload {
    fn multipart<S>(&self, source: S) -> Multipart<S> {
        let boundary = format!("----proxmox-api-{:016x}{:016x}", random(), random());
        let mut head = String::new();
        // PVE reads the file last: what comes after it is "missing".
        let mut field = |name: &str, value: &str| {
            head.push_str(&format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            ));
        };
        field("content", &self.content.to_string());
        if let Some(checksum) = &self.checksum {
            field("checksum", checksum.hex());
            field("checksum-algorithm", &checksum.algorithm().to_string());
        }
        // The name is letters, digits, `.`, `-` and `_`: nothing in it needs quoting.
        head.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"{}\"\r\nContent-Type: \
             application/octet-stream\r\n\r\n",
            self.filename
        ));
        let tail = Bytes::from(format!("\r\n--{boundary}--\r\n"));
        Multipart { head: head.into(), source, size: self.size, tail, boundary }
    }
}

/// A number nobody can foresee: what is uploaded must not hold the boundary, not even on purpose.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Client {
    /// Uploads a file onto a storage (`POST …/storage/{storage}/upload`; needs `Datastore.AllocateTemplate` on it; PVE 7
    /// to 9). The bytes are streamed from `source`, which has to have exactly as many as were said. The task moves the
    /// file to its place; on another node than the one that answers PVE copies it there, which takes its time.
    ///
    /// # Errors
    /// See [`Error`]; [`Source`](crate::ErrorKind::Source) when the source fails or has another length. Nothing is stored
    /// before PVE has every byte, so the effect is [`Unknown`](crate::Effect::Unknown) only when it may have. A name
    /// PVE would refuse is refused before anything is sent.
    pub async fn upload(
        &self,
        node: &NodeName,
        storage: &StorageId,
        upload: &Upload,
        source: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<Upid, Error> {
        upload.filename.check(upload.content)?;
        let path = storage_path(node, storage).word("upload");
        self.upload_to(&path, upload.multipart(source)).await?.upid()
    }
}
