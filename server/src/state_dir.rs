//! The state directory and its lock: one serving process per directory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::FileError;

/// The directory for everything the server keeps (`--state-dir`). Naming it touches nothing.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDirError {
    /// The directory or the lock file cannot be made, or others can reach them.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process is using the directory.
    #[error("{} is in use by {holder}: stop it first, or give this one another --state-dir", .path.display())]
    Held {
        /// The state directory.
        path: PathBuf,
        /// Who holds it, e.g. `process 4711`.
        holder: String,
    },
}

/// The right to change what is in a state directory; released when dropped or when the process dies.
#[derive(Debug)]
pub struct StateLock {
    _file: OwnedFd,
}

impl StateDir {
    /// Names the directory; nothing is made or opened.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory (0700) when it does not exist, and takes its lock.
    ///
    /// A process that serves HTTP does this at start. One that serves stdio does it at its first `tools/call`,
    /// because clients start a second process only to see what it offers.
    pub fn lock(&self) -> Result<StateLock, StateDirError> {
        make_private_dir(&self.path)?;
        let path = self.path.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| FileError::io(&path, "open", errno))?;
        let mut file = File::from(fd);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = match noted_pid(&mut file) {
                    Some(pid) => format!("process {pid}"),
                    None => "another process".to_owned(),
                };
                return Err(StateDirError::Held { path: self.path.clone(), holder });
            }
            Err(errno) => return Err(FileError::io(&path, "lock", errno).into()),
        }
        // Only a note for whoever is refused; the lock itself is the kernel's.
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()))
            .map_err(|error| FileError::io(&path, "write", error))?;
        Ok(StateLock { _file: file.into() })
    }
}

impl StateDir {
    /// The process that holds the directory now, without taking the lock; `None` when nobody does.
    ///
    /// # Errors
    /// The lock file cannot be opened, or its holder has not written which process it is.
    pub fn holder(&self) -> std::io::Result<Option<u32>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(self.path.join("lock"), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut file = File::from(fd);
        // Shared and let go at once: only an exclusive holder stands in its way.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(Errno::WOULDBLOCK) => noted_pid(&mut file).map(Some).ok_or_else(|| {
                std::io::Error::other("the lock is held by a process that has not written its number")
            }),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The process number in the lock file.
fn noted_pid(file: &mut File) -> Option<u32> {
    let mut note = String::new();
    file.take(64).read_to_string(&mut note).ok()?;
    let pid = note.trim();
    pid.bytes().all(|byte| byte.is_ascii_digit()).then(|| pid.parse().ok())?
}

/// Makes a directory with mode 0700, or checks that an existing one is the service user's alone.
pub(crate) fn make_private_dir(path: &Path) -> Result<(), FileError> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(FileError::io(path, "make the directory", errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(FileError::Untrusted {
                path: path.to_owned(),
                problem: "is not a directory".to_owned(),
                remedy: "name a directory of its own for the server's state".to_owned(),
            });
        }
        Err(errno) => return Err(FileError::io(path, "open", errno)),
    };
    let stat = rustix::fs::fstat(&dir).map_err(|errno| FileError::io(path, "examine", errno))?;
    let me = geteuid().as_raw();
    if stat.st_uid != me {
        return Err(FileError::Untrusted {
            path: path.to_owned(),
            problem: format!("belongs to user {}, not to user {me} who runs this program", stat.st_uid),
            remedy: format!("chown {me} {}", path.display()),
        });
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Err(FileError::Untrusted {
            path: path.to_owned(),
            problem: format!("is open to other users (mode {:04o})", mode.as_raw_mode() & 0o7777),
            remedy: format!("chmod 0700 {}", path.display()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn cs_35_a_second_holder_is_refused_and_the_first_is_named() {
        let root = tempfile::tempdir().unwrap();
        let dir = StateDir::new(root.path().join("state"));
        let lock = dir.lock().unwrap();
        let error = dir.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        dir.lock().unwrap();
    }

    #[test]
    fn naming_a_state_directory_makes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let dir = StateDir::new(root.path().join("state"));
        assert!(!dir.path().exists());
    }

    #[test]
    fn the_directory_is_made_private_and_an_open_one_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = StateDir::new(root.path().join("state"));
        drop(dir.lock().unwrap());
        assert_eq!(std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777, 0o700);
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = dir.lock().unwrap_err().to_string();
        assert!(error.contains("chmod 0700"), "{error}");
    }

    #[test]
    fn a_link_or_a_file_is_not_a_state_directory() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, root.path().join("link")).unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        StateDir::new(root.path().join("link")).lock().unwrap_err();
        StateDir::new(root.path().join("file")).lock().unwrap_err();
    }
}
