//! A file of the operator's transfer directory as a source of bytes.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use guest_push::{Source, SourceError, SourceErrorKind};
use rustix::fs::{FileType, Mode, OFlags};

/// Bytes read at a time.
const CHUNK: usize = 256 * 1024;

/// An open file, read in the background.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: Option<File>,
    length: u64,
}

impl FileSource {
    /// Opens `relative` below `directory`, following no link on the way: neither may the caller leave the directory, nor
    /// whoever may write into it lead elsewhere.
    ///
    /// # Errors
    /// A text that names what was wrong with the path.
    pub(crate) fn open(directory: &Path, relative: &str) -> Result<Self, String> {
        let parts: Vec<&str> = relative.split('/').collect();
        let sound = |part: &&str| {
            !part.is_empty() && *part != "." && *part != ".." && !part.chars().any(char::is_control)
        };
        if !parts.iter().all(sound) || parts.iter().any(|part| part.len() > 255) {
            return Err("expected a path below the transfer directory, such as images/app.bin".to_owned());
        }
        let unusable = |error: rustix::io::Errno| match error {
            rustix::io::Errno::NOENT => "there is no such file in the transfer directory".to_owned(),
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                "a link or a file is where a directory was expected; links are not followed".to_owned()
            }
            other => format!("the file cannot be opened: {other}"),
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut at: OwnedFd =
            rustix::fs::open(directory, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| format!("the transfer directory cannot be opened: {error}"))?;
        for (index, part) in parts.iter().enumerate() {
            let directory = if index + 1 < parts.len() { OFlags::DIRECTORY } else { OFlags::empty() };
            at = rustix::fs::openat(at.as_fd(), *part, flags | directory, Mode::empty()).map_err(unusable)?;
        }
        let found = rustix::fs::fstat(&at).map_err(unusable)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err("that is not a regular file".to_owned());
        }
        let length = u64::try_from(found.st_size).unwrap_or(0);
        Ok(Self { file: Some(File::from(at)), length })
    }

    /// Its length in bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }
}

impl Source for FileSource {
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let failed = |text: String| SourceError::new(SourceErrorKind::Other, text);
        let Some(mut file) = self.file.take() else { return Ok(None) };
        let reading = tokio::task::spawn_blocking(move || {
            let mut chunk = BytesMut::zeroed(CHUNK);
            let read = file.read(&mut chunk);
            (file, chunk, read)
        });
        let (file, mut chunk, read) =
            reading.await.map_err(|error| failed(format!("reading the file was interrupted: {error}")))?;
        let read = read.map_err(|error| failed(format!("the file cannot be read: {error}")))?;
        if read == 0 {
            return Ok(None);
        }
        self.file = Some(file);
        chunk.truncate(read);
        Ok(Some(chunk.freeze()))
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn a_file_below_the_directory_is_read_and_nothing_leads_out_of_it() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/a b"), vec![7; CHUNK + 1]).unwrap();
        symlink(outside.path(), dir.path().join("way-out")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("link")).unwrap();
        let mut source = FileSource::open(dir.path(), "sub/a b").unwrap();
        assert_eq!(source.len(), CHUNK as u64 + 1);
        let mut read = 0;
        while let Some(chunk) = source.next().await.unwrap() {
            read += chunk.len();
        }
        assert_eq!(read, CHUNK + 1);
        for bad in [
            "",
            "/etc/passwd",
            "../secret",
            "sub/../sub/a b",
            "sub//a b",
            "sub",
            "link",
            "way-out/secret",
            "none",
            "./x",
            "a\0b",
        ] {
            assert!(FileSource::open(dir.path(), bad).is_err(), "{bad:?}");
        }
    }
}
