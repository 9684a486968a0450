//! The audit file itself: opening it safely, appending, noticing that somebody else touched it.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::chain::{Head, Miss, Scan, VerifyError, verify_files};
use super::record::{Event, Record};
use super::writer::OpenError;
use crate::files::{self, FileError};

/// An open audit file with an exclusive lock.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// How long the file is if only this process wrote to it.
    length: u64,
    #[cfg(test)]
    pub(super) fault: std::sync::Arc<std::sync::Mutex<Option<&'static str>>>,
}

impl LogFile {
    /// Opens or makes the file, checks who can reach it, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let fd = files::open_secret(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OpenError::Busy(path.to_owned())),
            Err(errno) => return Err(FileError::io(path, "lock", errno).into()),
        }
        let length = stat(&fd, path)?.st_size.try_into().unwrap_or(0);
        Ok(Self {
            path: path.to_owned(),
            file: File::from(fd),
            length,
            #[cfg(test)]
            fault: std::sync::Arc::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Verifies the whole file, cuts off a torn last line, and returns where the chain stands and the record
    /// that tells of the repair.
    pub(super) fn verify(&mut self, known: Option<&Head>) -> Result<(Head, Option<Record>), OpenError> {
        self.file.seek(SeekFrom::Start(0)).map_err(|error| FileError::io(&self.path, "read", error))?;
        let mut scan = Scan::expecting(known);
        let torn = scan.file(&self.path, &self.file)?;
        let (summary, miss) = scan.finish(&self.path)?;
        let head = match (miss, known) {
            // A checkpoint from before this file says nothing about it.
            (None | Some(Miss::Older(_)), _) | (_, None) => summary.head,
            (Some(problem), Some(expected)) => {
                return Err(VerifyError::Checkpoint { expected: Box::new(expected.clone()), problem }.into());
            }
        };
        let repair = if torn.is_empty() { None } else { Some(self.cut(&torn)?) };
        Ok((head, repair))
    }

    fn cut(&mut self, torn: &[u8]) -> Result<Record, OpenError> {
        self.length -= torn.len() as u64;
        self.file
            .set_len(self.length)
            .and_then(|()| self.file.sync_all())
            .map_err(|error| FileError::io(&self.path, "cut the torn last line of", error))?;
        Ok(Record::new(Event::Repair)
            .reason("the last line was torn, as after a crash; it had not been acknowledged")
            .detail("bytes", torn.len())
            .detail("sha256", data_encoding::HEXLOWER.encode(&Sha256::digest(torn))))
    }

    /// Appends, and syncs the data if asked. The error is a text for the operator.
    pub(super) fn append(&mut self, bytes: &[u8], durable: bool) -> Result<(), String> {
        self.try_append(bytes, durable).map_err(|problem| format!("{}: {problem}", self.path.display()))
    }

    fn try_append(&mut self, bytes: &[u8], durable: bool) -> Result<(), String> {
        #[cfg(test)]
        if let Some(fault) = *self.fault.lock().unwrap() {
            return Err(fault.to_owned());
        }
        let stat = rustix::fs::fstat(&self.file).map_err(|errno| errno.to_string())?;
        if u64::try_from(stat.st_size) != Ok(self.length) {
            return Err(format!(
                "the file has {} bytes instead of {}: somebody else changed it (rotate by renaming, not with copytruncate)",
                stat.st_size, self.length
            ));
        }
        self.file.write_all(bytes).map_err(|error| error.to_string())?;
        self.length += bytes.len() as u64;
        if durable {
            rustix::fs::fdatasync(&self.file).map_err(|errno| format!("fdatasync: {errno}"))?;
        }
        Ok(())
    }

    /// Whether the path still leads to this very file.
    pub(super) fn is_still_at_its_path(&self) -> Result<bool, FileError> {
        let mine = stat(&self.file, &self.path)?;
        match rustix::fs::lstat(&self.path) {
            Ok(there) => Ok(same(&mine, &there)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(FileError::io(&self.path, "examine", errno)),
        }
    }

    /// The name this file has now, if it is still in its directory.
    pub(super) fn current_name(&self) -> Option<String> {
        let mine = rustix::fs::fstat(&self.file).ok()?;
        let dir = self.path.parent()?;
        std::fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
            let there = rustix::fs::lstat(entry.path()).ok()?;
            same(&mine, &there).then(|| entry.file_name().to_string_lossy().into_owned())
        })
    }

    pub(super) fn unlock(&self) {
        // Failing to unlock shows at once: the next open reports the file as busy.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    pub(super) fn relock(&self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
    }
}

fn stat(fd: impl AsFd, path: &Path) -> Result<Stat, FileError> {
    rustix::fs::fstat(fd).map_err(|errno| FileError::io(path, "examine", errno))
}

fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// Where the chain stood when its file was rotated away while no server ran: `known` is the checkpoint, which may
/// lag; the rotated file itself (the same name with something added) tells exactly, when it is still there and
/// not compressed. Returns that file's name, too.
pub(super) fn rotated_head(path: &Path, known: Head) -> (Head, Option<String>) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return (known, None);
    };
    let mut best = (known.clone(), None);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let sibling = entry.file_name().to_string_lossy().into_owned();
        let rotated = sibling.strip_prefix(name).is_some_and(|rest| !rest.is_empty() && rest != ".head");
        if !rotated || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // Only a sound file that contains the checkpoint is the predecessor.
        if let Ok(summary) = verify_files(&[&entry.path()], Some(&known))
            && summary.head.seq >= best.0.seq
        {
            best = (summary.head, Some(sibling));
        }
    }
    best
}
