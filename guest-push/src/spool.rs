//! A file that comes to the node in pieces, over several connections, and goes into a container once it is whole.

use std::time::Duration;

use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::hasher::Hasher;
use crate::options::PushOptions;
use crate::push::Pusher;
use crate::receipt::{Receipt, Stage};
use crate::route::attempt::random_hex;
use crate::route::intake::next_chunk;
use crate::route::sftp_pct;
use crate::source::Source;
use crate::ssh::Sftp;

/// A staging file on the node that grows. Removed when it is delivered, discarded or dropped.
#[derive(Debug)]
pub struct Spool {
    pusher: Pusher,
    runtime: tokio::runtime::Handle,
    path: Option<String>,
    hasher: Hasher,
    spoilt: bool,
}

impl Spool {
    /// Makes the file, after checking that the node has room for `length` bytes.
    pub(crate) async fn begin(pusher: &Pusher, length: u64) -> Result<Self, PushError> {
        let directory = pusher.target().staging_dir.clone();
        let session = pusher.connect().await?;
        let sftp = Sftp::open(&session, pusher.deadlines().step).await?;
        let checked = sftp.directory(&session, &directory).await?;
        sftp.require_space(&directory, length).await?;
        let path = format!("{directory}/pxw-{}", random_hex()?);
        let spool = Self {
            pusher: pusher.clone(),
            runtime: tokio::runtime::Handle::current(),
            path: Some(path.clone()),
            hasher: Hasher::default(),
            spoilt: false,
        };
        // From here dropping the spool removes what the next line may have made.
        let (file, _) = sftp.create(checked, &path).await?;
        file.finish(pusher.deadlines().step).await?;
        Ok(spool)
    }

    /// Bytes that are safely in the file.
    pub fn offset(&self) -> u64 {
        self.hasher.bytes()
    }

    /// SHA-256 of those bytes.
    pub fn sha256(&self) -> [u8; 32] {
        self.hasher.clone().finish()
    }

    /// A mark to go back to with [`rewind`](Self::rewind).
    pub fn mark(&self) -> SpoolMark {
        SpoolMark(self.hasher.clone())
    }

    /// Forgets what was appended since the mark; it is overwritten by what comes next.
    pub fn rewind(&mut self, mark: SpoolMark) {
        self.hasher = mark.0;
    }

    /// Appends a source over a connection of its own. When the source gives up, what had come is kept and its error handed
    /// back: the next call goes on at [`offset`](Self::offset).
    ///
    /// # Errors
    /// [`PushErrorKind::Source`] with the spool intact; any other kind spoils it.
    pub async fn append<S: Source>(
        &mut self,
        source: &mut S,
        progress: &(dyn Fn(u64, Stage) + Send + Sync),
    ) -> Result<(), PushError> {
        if self.spoilt {
            return Err(spoilt());
        }
        // Until it is known to have ended well, also when this future is dropped.
        self.spoilt = true;
        let (pusher, path) = (self.pusher.clone(), self.path.clone().ok_or_else(spoilt)?);
        let deadlines = pusher.deadlines();
        let session = pusher.connect().await?;
        let sftp = Sftp::open(&session, deadlines.step).await?;
        let mut file = sftp.reopen(&path, self.offset()).await?;
        let ended = loop {
            match next_chunk(source).await {
                Ok(Some(chunk)) => {
                    if let Err(error) = file.write(&chunk, deadlines.idle).await {
                        return Err(sftp.explain_write(&pusher.target().staging_dir, error).await);
                    }
                    self.hasher.update(&chunk);
                    progress(self.hasher.bytes(), Stage::Receive);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        file.finish(deadlines.copy(self.offset())).await?;
        self.spoilt = false;
        ended
    }

    /// Brings the whole file into a container, verified there, as the route `sftp+pct_push` does. The spool is gone
    /// afterwards, however it ends.
    ///
    /// # Errors
    /// As [`Pusher::push_lxc`].
    pub async fn deliver_lxc(
        mut self,
        vmid: u32,
        dest: &Dest,
        options: &PushOptions,
        progress: &(dyn Fn(u64, Stage) + Send + Sync),
    ) -> Result<Receipt, PushError> {
        if self.spoilt {
            return Err(spoilt());
        }
        let bytes = self.offset();
        let sha256 = self.sha256();
        let path = self.path.clone().ok_or_else(spoilt)?;
        let pusher = self.pusher.clone();
        let delivered =
            sftp_pct::deliver(&pusher, vmid, path, (bytes, sha256), dest, options, progress).await;
        if delivered.is_ok() {
            self.path = None;
        }
        // After a failure the file has been removed, or dropping this tries once more.
        delivered
    }

    /// Removes the file.
    ///
    /// # Errors
    /// When that could not be confirmed.
    pub async fn discard(mut self) -> Result<(), PushError> {
        match self.path.take() {
            Some(path) => remove(&self.pusher, &path).await,
            None => Ok(()),
        }
    }
}

/// See [`Spool::mark`].
#[derive(Debug)]
pub struct SpoolMark(Hasher);

impl Drop for Spool {
    fn drop(&mut self) {
        let Some(path) = self.path.take() else { return };
        let pusher = self.pusher.clone();
        // Detached on purpose; what cannot be removed now is swept by age.
        self.runtime.spawn(async move {
            if let Err(error) = remove(&pusher, &path).await {
                tracing::warn!(node = %pusher.target().host, %path, %error, "clean-up not confirmed");
            }
        });
    }
}

async fn remove(pusher: &Pusher, path: &str) -> Result<(), PushError> {
    let limit: Duration = pusher.deadlines().cleanup;
    let removing = async {
        let session = pusher.connect().await?;
        Sftp::open(&session, pusher.deadlines().step).await?.remove(path).await
    };
    tokio::time::timeout(limit, removing).await.map_err(|_| PushError::deadline(Step::Cleanup, limit))?
}

fn spoilt() -> PushError {
    PushError::new(
        PushErrorKind::Staging,
        "the file on the node is in an unknown state after a failure; begin anew",
    )
}
