//! SFTP on the folder of a node.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use russh_sftp::extensions::{FSYNC, STATVFS};
use russh_sftp::protocol::{
    Attrs, Data, ExtendedReply, File as Entry, FileAttributes, Handle, Name, OpenFlags, Packet, Status,
    StatusCode, Version,
};
use russh_sftp::server::{Handler, StatusReply};

use crate::node::fault::SshFaults;
use crate::node::{Node, files};

/// Block size that statvfs reports.
const BLOCK: u64 = 4096;
/// Free space that statvfs reports when no fault limits it.
const PLENTY: u64 = 64 << 30;

/// One SFTP session. The operations are small and local, so they are done where they arrive.
#[derive(Debug)]
pub(crate) struct Sftp {
    root: PathBuf,
    faults: SshFaults,
    open: HashMap<String, Open>,
    next: u64,
}

#[derive(Debug)]
enum Open {
    File(File),
    Dir(Vec<Entry>),
}

impl Sftp {
    pub(crate) fn new(node: &Node) -> Sftp {
        let root = node.cluster.node_root(&node.name);
        Sftp { root, faults: node.faults.clone(), open: HashMap::new(), next: 0 }
    }

    /// Relative paths start at the home folder of the login.
    fn path(&self, path: &str, follow_last: bool) -> Result<PathBuf, StatusReply> {
        let absolute = match path {
            "" | "." => "/root".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/root/{path}"),
        };
        files::resolve(&self.root, &absolute, follow_last).map_err(status)
    }

    fn keep(&mut self, id: u32, open: Open) -> Handle {
        self.next += 1;
        let handle = format!("h{}", self.next);
        self.open.insert(handle.clone(), open);
        Handle { id, handle }
    }

    fn file(&self, handle: &str) -> Result<&File, StatusReply> {
        match self.open.get(handle) {
            Some(Open::File(file)) => Ok(file),
            _ => Err(StatusCode::Failure.with_message("invalid handle")),
        }
    }

    fn statvfs(&self) -> Vec<u8> {
        let free = self.faults.switches().space.unwrap_or(PLENTY) / BLOCK;
        let total = PLENTY / BLOCK;
        [BLOCK, BLOCK, total, free, free, 1 << 20, 1 << 20, 1 << 20, 1, 0, 255]
            .iter()
            .flat_map(|field: &u64| field.to_be_bytes())
            .collect()
    }
}

fn status(error: io::Error) -> StatusReply {
    let code = match error.kind() {
        io::ErrorKind::NotFound => StatusCode::NoSuchFile,
        io::ErrorKind::PermissionDenied => StatusCode::PermissionDenied,
        _ => StatusCode::Failure,
    };
    code.with_message(crate::node::pct::reason(&error))
}

fn done(id: u32) -> Status {
    Status { id, status_code: StatusCode::Ok, error_message: "Ok".to_owned(), language_tag: String::new() }
}

/// Everything on a node belongs to root, whoever runs the lab.
fn attributes(metadata: &Metadata) -> FileAttributes {
    let seconds = |time: i64| u32::try_from(time).ok();
    FileAttributes {
        size: Some(metadata.len()),
        uid: Some(0),
        gid: Some(0),
        permissions: Some(metadata.mode()),
        atime: seconds(metadata.atime()),
        mtime: seconds(metadata.mtime()),
        ..FileAttributes::default()
    }
}

/// A string of the SFTP protocol at the start of the data of an extension.
fn string(data: &[u8]) -> Option<&str> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    std::str::from_utf8(rest.get(..u32::from_be_bytes(*length) as usize)?).ok()
}

impl Handler for Sftp {
    type Error = StatusReply;

    fn unimplemented(&self) -> StatusReply {
        StatusCode::OpUnsupported.into()
    }

    async fn init(
        &mut self,
        _version: u32,
        _extensions: HashMap<String, String>,
    ) -> Result<Version, StatusReply> {
        let mut version = Version::new();
        version.extensions.insert(STATVFS.to_owned(), "2".to_owned());
        version.extensions.insert(FSYNC.to_owned(), "1".to_owned());
        Ok(version)
    }

    async fn open(
        &mut self,
        id: u32,
        filename: String,
        pflags: OpenFlags,
        attrs: FileAttributes,
    ) -> Result<Handle, StatusReply> {
        let exclusive = pflags.contains(OpenFlags::EXCLUDE);
        let path = self.path(&filename, !exclusive)?;
        let mut options: OpenOptions = pflags.into();
        options.mode(attrs.permissions.unwrap_or(0o666) & 0o7777);
        let file = options.open(path).map_err(status)?;
        Ok(self.keep(id, Open::File(file)))
    }

    async fn close(&mut self, id: u32, handle: String) -> Result<Status, StatusReply> {
        match self.open.remove(&handle) {
            Some(_) => Ok(done(id)),
            None => Err(StatusCode::Failure.with_message("invalid handle")),
        }
    }

    async fn read(&mut self, id: u32, handle: String, offset: u64, len: u32) -> Result<Data, StatusReply> {
        let mut data = vec![0; len.min(1 << 18) as usize];
        let read = self.file(&handle)?.read_at(&mut data, offset).map_err(status)?;
        if read == 0 {
            return Err(StatusCode::Eof.into());
        }
        data.truncate(read);
        Ok(Data { id, data })
    }

    async fn write(
        &mut self,
        id: u32,
        handle: String,
        offset: u64,
        data: Vec<u8>,
    ) -> Result<Status, StatusReply> {
        let file = self.file(&handle)?;
        if !self.faults.take_space(data.len() as u64) {
            return Err(StatusCode::Failure.with_message("No space left on device"));
        }
        file.write_all_at(&data, offset).map_err(status)?;
        Ok(done(id))
    }

    async fn lstat(&mut self, id: u32, path: String) -> Result<Attrs, StatusReply> {
        let metadata = std::fs::symlink_metadata(self.path(&path, false)?).map_err(status)?;
        Ok(Attrs { id, attrs: attributes(&metadata) })
    }

    async fn stat(&mut self, id: u32, path: String) -> Result<Attrs, StatusReply> {
        let metadata = std::fs::symlink_metadata(self.path(&path, true)?).map_err(status)?;
        Ok(Attrs { id, attrs: attributes(&metadata) })
    }

    async fn fstat(&mut self, id: u32, handle: String) -> Result<Attrs, StatusReply> {
        let metadata = self.file(&handle)?.metadata().map_err(status)?;
        Ok(Attrs { id, attrs: attributes(&metadata) })
    }

    async fn setstat(&mut self, id: u32, path: String, attrs: FileAttributes) -> Result<Status, StatusReply> {
        let path = self.path(&path, true)?;
        if let Some(mode) = attrs.permissions {
            std::fs::set_permissions(path, Permissions::from_mode(mode & 0o7777)).map_err(status)?;
        }
        Ok(done(id))
    }

    async fn fsetstat(
        &mut self,
        id: u32,
        handle: String,
        attrs: FileAttributes,
    ) -> Result<Status, StatusReply> {
        let file = self.file(&handle)?;
        if let Some(mode) = attrs.permissions {
            file.set_permissions(Permissions::from_mode(mode & 0o7777)).map_err(status)?;
        }
        Ok(done(id))
    }

    async fn opendir(&mut self, id: u32, path: String) -> Result<Handle, StatusReply> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.path(&path, true)?).map_err(status)? {
            let entry = entry.map_err(status)?;
            if let (Some(name), Ok(metadata)) = (entry.file_name().to_str(), entry.path().symlink_metadata())
            {
                entries.push(Entry::new(name, attributes(&metadata)));
            }
        }
        Ok(self.keep(id, Open::Dir(entries)))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> Result<Name, StatusReply> {
        match self.open.get_mut(&handle) {
            Some(Open::Dir(entries)) if entries.is_empty() => Err(StatusCode::Eof.into()),
            Some(Open::Dir(entries)) => {
                let rest = entries.split_off(entries.len().min(100));
                Ok(Name { id, files: std::mem::replace(entries, rest) })
            }
            _ => Err(StatusCode::Failure.with_message("invalid handle")),
        }
    }

    async fn remove(&mut self, id: u32, filename: String) -> Result<Status, StatusReply> {
        if self.faults.switches().remove_fails {
            return Err(StatusCode::Failure.with_message("Input/output error"));
        }
        std::fs::remove_file(self.path(&filename, false)?).map_err(status)?;
        Ok(done(id))
    }

    async fn mkdir(&mut self, id: u32, path: String, attrs: FileAttributes) -> Result<Status, StatusReply> {
        let mode = attrs.permissions.unwrap_or(0o777) & 0o7777;
        DirBuilder::new().mode(mode).create(self.path(&path, false)?).map_err(status)?;
        Ok(done(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> Result<Status, StatusReply> {
        std::fs::remove_dir(self.path(&path, false)?).map_err(status)?;
        Ok(done(id))
    }

    async fn rename(&mut self, id: u32, oldpath: String, newpath: String) -> Result<Status, StatusReply> {
        let (from, to) = (self.path(&oldpath, false)?, self.path(&newpath, false)?);
        if to.symlink_metadata().is_ok() {
            return Err(StatusCode::Failure.with_message("File exists"));
        }
        std::fs::rename(from, to).map_err(status)?;
        Ok(done(id))
    }

    async fn realpath(&mut self, id: u32, path: String) -> Result<Name, StatusReply> {
        let resolved = self.path(&path, true)?;
        let inside = resolved.strip_prefix(&self.root).map_err(|_| StatusReply::from(StatusCode::Failure))?;
        Ok(Name { id, files: vec![Entry::dummy(format!("/{}", inside.display()))] })
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> Result<Packet, StatusReply> {
        let argument = string(&data).ok_or(StatusReply::from(StatusCode::BadMessage))?;
        match request.as_str() {
            STATVFS => {
                std::fs::symlink_metadata(self.path(argument, true)?).map_err(status)?;
                Ok(ExtendedReply { id, data: self.statvfs() }.into())
            }
            FSYNC => {
                self.file(argument)?.sync_all().map_err(status)?;
                Ok(done(id).into())
            }
            _ => Err(self.unimplemented()),
        }
    }
}
