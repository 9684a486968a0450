//! Paths inside a folder that stands for a file system, and what is in it at the start.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::LabError;

/// The longest chain of symlinks that is followed, as in Linux.
const MAX_LINKS: usize = 40;

/// Finds where an absolute path of the simulated file system lies on the host. Symlinks are followed as if the
/// folder were the root; the last component only with `follow_last`. A path with `..` is refused. The last
/// component need not exist.
///
/// # Errors
/// `InvalidInput` for a path that is not absolute or has `..` or NUL, and what the file system says.
pub(crate) fn resolve(root: &Path, path: &str, follow_last: bool) -> io::Result<PathBuf> {
    if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| part == "..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "path must be absolute and without `..`"));
    }
    let mut todo: Vec<String> = parts(path);
    let mut done: Vec<String> = Vec::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            // Only from the target of a symlink; the root is its own parent.
            done.pop();
            continue;
        }
        done.push(part);
        let here = host(root, &done);
        let is_link = here.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        if !is_link || (todo.is_empty() && !follow_last) {
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::other("too many levels of symbolic links"));
        }
        let target = std::fs::read_link(&here)?;
        let target = target.to_str().ok_or_else(|| io::Error::other("link target is not UTF-8"))?.to_owned();
        done.pop();
        if target.starts_with('/') {
            done.clear();
        }
        todo.extend(parts(&target));
    }
    Ok(host(root, &done))
}

/// The components of a path, last first.
fn parts(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").rev().map(str::to_owned).collect()
}

fn host(root: &Path, parts: &[String]) -> PathBuf {
    let mut path = root.to_owned();
    path.extend(parts);
    path
}

/// The folders of a fresh node.
pub(crate) fn node_skeleton() -> BTreeMap<String, String> {
    ["/root/", "/tmp/", "/var/tmp/", "/var/lib/vz/"].map(|path| (path.to_owned(), String::new())).into()
}

/// The folders of a guest that has just been made.
pub(crate) fn guest_skeleton() -> BTreeMap<String, String> {
    ["/root/", "/tmp/", "/srv/", "/etc/"].map(|path| (path.to_owned(), String::new())).into()
}

/// Creates a folder and puts files and folders (paths that end in `/`) into it.
///
/// # Errors
/// When a path is not confined or cannot be written.
pub(crate) fn populate(root: &Path, files: &BTreeMap<String, String>) -> Result<(), LabError> {
    std::fs::create_dir_all(root).map_err(LabError::io("make the folder", root))?;
    for (path, content) in files {
        let target = resolve(root, path, true).map_err(LabError::io("place", Path::new(path)))?;
        if path.ends_with('/') {
            std::fs::create_dir_all(&target).map_err(LabError::io("make the folder", &target))?;
            let mode = if path.ends_with("tmp/") { 0o1777 } else { 0o755 };
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&target, permissions)
                .map_err(LabError::io("set the mode of", &target))?;
        } else {
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent).map_err(LabError::io("make the folder", parent))?;
            }
            std::fs::write(&target, content).map_err(LabError::io("write", &target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn dp_links_and_dots_stay_inside_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        symlink(outside.path(), root.path().join("absolute")).unwrap();
        symlink("../../../../..", root.path().join("etc/up")).unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        let escaped = resolve(root.path(), "/absolute/secret", true).unwrap();
        assert!(escaped.starts_with(root.path()) && !escaped.exists());
        assert_eq!(resolve(root.path(), "/etc/up/etc", true).unwrap(), root.path().join("etc"));
        assert!(resolve(root.path(), "/etc/../etc", true).is_err());
        assert!(resolve(root.path(), "etc", true).is_err());
        assert!(resolve(root.path(), "/loop", true).is_err());
        assert_eq!(resolve(root.path(), "/loop", false).unwrap(), root.path().join("loop"));
    }
}
