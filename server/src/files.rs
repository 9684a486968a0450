//! Reading and replacing the files that hold secrets or decide rights.
//!
//! Every check is made on the descriptor that is then read, so nothing can be swapped in between: the
//! directory is opened first, the file is opened below it without following a link, and `fstat` tells what
//! was really opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Who may be able to read or write a file that is being loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privacy {
    /// Holds a secret or decides rights: owned by the service user, no access for group and others.
    Secret,
    /// Public text whose integrity matters (a CA certificate, `known_hosts`): owned by the service user or
    /// root, not writable for group and others.
    Public,
}

/// Why a file was not read or not written. The text names the path and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file, or the directory it should be in, does not exist.
    #[error("{} does not exist", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file exists and must not be trusted.
    #[error("{} {problem}: {remedy}", .path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// The command or step that puts it right.
        remedy: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process holds the edit lock.
    #[error("{} is being edited by another process (lock file {}): try again", .path.display(), .lock.display())]
    Locked {
        /// The file to be edited.
        path: PathBuf,
        /// Its lock file.
        lock: PathBuf,
    },
}

impl FileError {
    /// Whether the file simply is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    pub(crate) fn io(path: &Path, action: &'static str, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        if source.kind() == ErrorKind::NotFound {
            return Self::Missing { path: path.to_owned() };
        }
        Self::Io { path: path.to_owned(), action, source }
    }

    fn untrusted(path: &Path, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Untrusted { path: path.to_owned(), problem: problem.into(), remedy: remedy.into() }
    }
}

/// Reads a whole file after checking that nobody else could have written (or, for secrets, read) it.
///
/// Refused: symbolic links, anything but a regular file, a second hard link, a foreign owner, permission bits
/// beyond what `privacy` allows, more than `max_bytes`, and a directory that every user may write to (unless
/// it is sticky like `/tmp`, where nobody can replace another user's file).
pub fn read(path: &Path, privacy: Privacy, max_bytes: u64) -> Result<Vec<u8>, FileError> {
    let (dir, name) = open_parent(path)?;
    read_below(&dir, name, path, privacy, max_bytes, Owner::Service)
}

/// Whose file may be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The effective user's (or root's, for public files).
    Service,
    /// As above, but root edits any user's file: `sudo proxward token add`.
    Editor,
}

fn read_below(
    dir: &OwnedFd,
    name: &OsStr,
    path: &Path,
    privacy: Privacy,
    max_bytes: u64,
    owner: Owner,
) -> Result<Vec<u8>, FileError> {
    let fd = open_below(dir, name, path, OFlags::RDONLY)?;
    check(&fd, path, privacy, owner)?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is exactly at the limit from one that is over it.
    File::from(fd)
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::io(path, "read", error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(FileError::untrusted(
            path,
            format!("is larger than {max_bytes} bytes"),
            "this is hardly the intended file; check the path",
        ));
    }
    Ok(bytes)
}

/// Opens (or, with `O_CREAT` in `access`, makes with mode 0600) a file under the rules of [`Privacy::Secret`] and
/// returns the checked descriptor.
pub(crate) fn open_secret(path: &Path, access: OFlags) -> Result<OwnedFd, FileError> {
    let (dir, name) = open_parent(path)?;
    let fd = open_below(&dir, name, path, access)?;
    check(&fd, path, Privacy::Secret, Owner::Service)?;
    Ok(fd)
}

fn open_below(dir: &OwnedFd, name: &OsStr, path: &Path, access: OFlags) -> Result<OwnedFd, FileError> {
    // O_NONBLOCK: opening a FIFO must not wait for its other end.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(fd),
        Err(Errno::LOOP) => Err(FileError::untrusted(
            path,
            "is a symbolic link",
            "name the real file, or put a copy in its place",
        )),
        // A socket, or a FIFO without a reader.
        Err(Errno::NXIO) => {
            Err(FileError::untrusted(path, "is not a regular file", "replace it by a plain file"))
        }
        Err(Errno::ISDIR) => Err(FileError::untrusted(path, "is a directory", "give the path of a file")),
        Err(errno) => Err(FileError::io(path, "open", errno)),
    }
}

/// Opens the directory that holds `path` and refuses one in which any user may replace files.
fn open_parent(path: &Path) -> Result<(OwnedFd, &OsStr), FileError> {
    let Some(name) = path.file_name() else {
        return Err(FileError::untrusted(path, "is not the name of a file", "give the path of a file"));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(parent, flags, Mode::empty())
        .map_err(|errno| FileError::io(path, "open the directory of", errno))?;
    let stat =
        rustix::fs::fstat(&dir).map_err(|errno| FileError::io(path, "examine the directory of", errno))?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return Err(FileError::untrusted(
            path,
            format!("is in {}, which every user may write to", parent.display()),
            format!("chmod o-w {}", parent.display()),
        ));
    }
    Ok((dir, name))
}

/// Checks what was really opened.
fn check(fd: impl AsFd, path: &Path, privacy: Privacy, owner: Owner) -> Result<(), FileError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| FileError::io(path, "examine", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::untrusted(path, "is not a regular file", "replace it by a plain file"));
    }
    let (me, root) = (geteuid().as_raw(), 0);
    let trusted_owner = stat.st_uid == me
        || (privacy == Privacy::Public && stat.st_uid == root)
        || (owner == Owner::Editor && me == root);
    if !trusted_owner {
        return Err(FileError::untrusted(
            path,
            format!("belongs to user {}, not to user {me} who runs this program", stat.st_uid),
            format!("chown {me} {}", path.display()),
        ));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    let excess = match privacy {
        Privacy::Secret => mode.intersects(Mode::RWXG | Mode::RWXO),
        Privacy::Public => mode.intersects(Mode::WGRP | Mode::WOTH),
    };
    if excess {
        let (who, fix) = match privacy {
            Privacy::Secret => ("is open to other users", "chmod 0600"),
            Privacy::Public => ("can be changed by other users", "chmod go-w"),
        };
        return Err(FileError::untrusted(
            path,
            format!("{who} (mode {:04o})", mode.as_raw_mode() & 0o7777),
            format!("{fix} {}", path.display()),
        ));
    }
    if stat.st_nlink != 1 {
        return Err(FileError::untrusted(
            path,
            format!("has {} hard links", stat.st_nlink),
            "keep one name only: another name may lie in a directory that others can write to",
        ));
    }
    Ok(())
}

/// How long an editor waits for another one before it gives up.
const EDIT_WAIT: Duration = Duration::from_secs(10);

/// An exclusive edit of one small file: what it held, and the right to replace it.
///
/// Editors exclude each other by `flock` on `.<name>.lock` in the same directory. The server does not take
/// this lock: it only ever sees the old file or the new one, because the replacement is a rename.
#[derive(Debug)]
pub struct Edit {
    path: PathBuf,
    dir: OwnedFd,
    name: std::ffi::OsString,
    current: Option<Vec<u8>>,
    /// Mode and owner are kept: root editing a service user's file must not lock the service out.
    owner: Option<(u32, u32)>,
    _lock: OwnedFd,
}

impl Edit {
    /// Locks and reads the file (`None` in [`Edit::current`] when it does not exist yet).
    pub fn begin(path: &Path, max_bytes: u64) -> Result<Self, FileError> {
        let (dir, name) = open_parent(path)?;
        let name = name.to_owned();
        let lock = take_edit_lock(&dir, &name, path)?;
        let (current, owner) = match read_below(&dir, &name, path, Privacy::Secret, max_bytes, Owner::Editor)
        {
            Ok(bytes) => {
                let stat = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| FileError::io(path, "examine", errno))?;
                (Some(bytes), Some((stat.st_uid, stat.st_gid)))
            }
            Err(FileError::Missing { .. }) => (None, None),
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), dir, name, current, owner, _lock: lock })
    }

    /// What the file held when the lock was taken.
    pub fn current(&self) -> Option<&[u8]> {
        self.current.as_deref()
    }

    /// Replaces the file in one step, durably: readers and a power cut see the old bytes or the new ones.
    pub fn commit(self, bytes: &[u8]) -> Result<(), FileError> {
        replace_below(&self.dir, &self.name, &self.path, bytes, self.owner)
    }
}

fn take_edit_lock(dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<OwnedFd, FileError> {
    let mut lock_name = std::ffi::OsString::from(".");
    lock_name.push(name);
    lock_name.push(".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::openat(dir, &lock_name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| FileError::io(path, "open the lock file of", errno))?;
    let deadline = Instant::now() + EDIT_WAIT;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(FileError::Locked {
                    path: path.to_owned(),
                    lock: path.with_file_name(lock_name),
                });
            }
            Err(errno) => return Err(FileError::io(path, "lock", errno)),
        }
    }
}

/// Writes a file that did not exist, or replaces one, atomically and durably, with mode 0600.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let (dir, name) = open_parent(path)?;
    replace_below(&dir, name, path, bytes, None)
}

fn replace_below(
    dir: &OwnedFd,
    name: &OsStr,
    path: &Path,
    bytes: &[u8],
    owner: Option<(u32, u32)>,
) -> Result<(), FileError> {
    let mut suffix = [0u8; 8];
    getrandom::fill(&mut suffix).map_err(|error| FileError::Io {
        path: path.to_owned(),
        action: "choose a temporary name for",
        source: std::io::Error::other(error),
    })?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", data_encoding::HEXLOWER.encode(&suffix)));

    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| FileError::io(path, "create a temporary file beside", errno))?;
    let written = write_durably(fd, bytes, owner)
        .and_then(|()| rustix::fs::renameat(dir, &temporary, dir, name).map_err(std::io::Error::from));
    if let Err(error) = written {
        // Best effort: the error that matters is the first one.
        let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
        return Err(FileError::io(path, "write", error));
    }
    // The rename itself is durable only once the directory is.
    rustix::fs::fsync(dir).map_err(|errno| FileError::io(path, "make the new name durable for", errno))
}

fn write_durably(fd: OwnedFd, bytes: &[u8], owner: Option<(u32, u32)>) -> std::io::Result<()> {
    let mut file = File::from(fd);
    // The umask may have taken bits away; it never adds any.
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    if let Some((uid, gid)) = owner
        && geteuid().is_root()
    {
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
