//! Files that the node fetches by itself.

use super::{Checksum, FileContent, FileName, storage_path};
use crate::{
    client::Client,
    error::Error,
    ids::{NodeName, StorageId, Upid},
    wire::{Form, JsonMap, Path},
};

/// A file for a node to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// Where it is, `http://…` or `https://…`. The node follows redirects, and reaches networks its users may not.
    pub url: String,
    /// What it is.
    pub content: FileContent,
    /// What it is to be called.
    pub filename: FileName,
    /// What it has to be; without one, whatever is at the address is taken.
    pub checksum: Option<Checksum>,
    /// Whether the node checks the server's certificate. Always sent.
    pub verify_certificates: bool,
}

/// What a server says about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlMetadata {
    /// The name the server gives it.
    pub filename: Option<String>,
    /// Its MIME type.
    pub mimetype: Option<String>,
    /// Size, bytes.
    pub size: Option<u64>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

/// Refuses an address PVE would refuse.
fn check_url(url: &str) -> Result<(), Error> {
    let http =
        ["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
    if !http || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Error::argument("url", "expected http:// or https:// and an address without spaces"));
    }
    Ok(())
}

impl Client {
    /// Has the node fetch a file onto a storage (`POST …/storage/{storage}/download-url`; needs
    /// `Datastore.AllocateTemplate` on the storage, and `Sys.Audit` and `Sys.Modify` on `/` or, since PVE 8.1,
    /// `Sys.AccessNetwork` on the node; PVE 7 to 9). A file of that name is not replaced: unless its checksum is the one
    /// asked for, the task fails.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be under way. An address or name PVE would
    /// refuse is refused before anything is sent.
    pub async fn download_url(
        &self,
        node: &NodeName,
        storage: &StorageId,
        download: &Download,
    ) -> Result<Upid, Error> {
        check_url(&download.url)?;
        download.filename.check(download.content)?;
        let checksum = download.checksum.as_ref();
        let form = Form::new()
            .put("content", download.content)
            .put("filename", &download.filename)
            .put("url", &download.url)
            .put_some("checksum", checksum.map(Checksum::hex))
            .put_some("checksum-algorithm", checksum.map(Checksum::algorithm))
            .put_flag("verify-certificates", download.verify_certificates);
        self.post(storage_path(node, storage).word("download-url"), form).await?.upid()
    }

    /// Has the node ask a server about a file (`GET /nodes/{node}/query-url-metadata`; network privileges as for
    /// [`Client::download_url`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn url_metadata(
        &self,
        node: &NodeName,
        url: &str,
        verify_certificates: bool,
    ) -> Result<UrlMetadata, Error> {
        check_url(url)?;
        let query = Form::new().put("url", url).put_flag("verify-certificates", verify_certificates);
        self.read(Path::node(node).word("query-url-metadata"), query).await?.record(|data| {
            Ok(UrlMetadata {
                filename: data.filled("filename"),
                mimetype: data.filled("mimetype"),
                size: data.integer("size"),
                json: data.json(),
            })
        })
    }
}
