//! The scripts that a client may run in a container, interpreted on the container's folder.
//!
//! A script is recognised by its exact text (but for white space at its end); what it would do in a real shell
//! is done here in Rust.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::cluster::Cluster;
use crate::node::exec::Output;
use crate::node::fault::Switches;
use crate::node::files;
use crate::node::pct::reason;

const PREPARE: &str = include_str!("scripts/prepare.sh");
const HASH: &str = include_str!("scripts/hash.sh");
const COMMIT: &str = include_str!("scripts/commit.sh");
const DISCARD: &str = include_str!("scripts/discard.sh");

/// The guest that a script runs in, and what goes wrong there.
pub(crate) struct Guest<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Its folder.
    pub(crate) root: &'a Path,
    pub(crate) switches: Switches,
}

/// Runs a known script with its arguments; everything else is not found.
pub(crate) fn run(guest: &Guest<'_>, script: &str, arguments: &[&str]) -> Output {
    let root = guest.root;
    let known = |text: &str| text.trim_end() == script.trim_end();
    match arguments {
        [dest, overwrite, mkdir] if known(PREPARE) => prepare(root, dest, *overwrite == "1", *mkdir == "1"),
        [file] if known(HASH) => hash(root, file, guest.switches.no_sha256),
        [temp, dest, overwrite] if known(COMMIT) => commit(guest, temp, dest, *overwrite == "1"),
        [temp] if known(DISCARD) => discard(root, temp),
        _ => Output::fail(127, "sh: 1: not found\n"),
    }
}

/// What the shell's `test` sees at a path: following the last link, and not.
struct Seen {
    is_dir: bool,
    is_file: bool,
    exists: bool,
    is_link: bool,
}

fn look(root: &Path, path: &str) -> Seen {
    let target = files::resolve(root, path, true).and_then(std::fs::symlink_metadata).ok();
    let itself = files::resolve(root, path, false).and_then(std::fs::symlink_metadata).ok();
    Seen {
        is_dir: target.as_ref().is_some_and(|found| found.is_dir()),
        is_file: target.as_ref().is_some_and(|found| found.is_file()),
        exists: target.is_some(),
        is_link: itself.is_some_and(|found| found.is_symlink()),
    }
}

fn prepare(root: &Path, dest: &str, overwrite: bool, mkdir: bool) -> Output {
    let parent = match dest.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    };
    if !look(root, parent).is_dir {
        let made = mkdir && files::resolve(root, parent, true).and_then(std::fs::create_dir_all).is_ok();
        if !made {
            return Output::ok("no-parent\n");
        }
    }
    let seen = look(root, dest);
    let word = if seen.is_dir {
        "is-directory"
    } else if !seen.exists && !seen.is_link {
        "ok"
    } else if !seen.is_file || seen.is_link {
        "not-regular"
    } else if !overwrite {
        "exists"
    } else {
        "ok"
    };
    Output::ok(format!("{word}\n"))
}

fn hash(root: &Path, file: &str, no_sha256: bool) -> Output {
    let hashed = files::resolve(root, file, true).and_then(File::open).and_then(|mut file| {
        let mut hasher = Sha256::new();
        let mut size = 0_u64;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok((data_encoding::HEXLOWER.encode(&hasher.finalize()), size)),
                read => {
                    hasher.update(&buffer[..read]);
                    size += read as u64;
                }
            }
        }
    });
    match hashed {
        Ok((_, size)) if no_sha256 => Output::ok(format!("none {size}\n")),
        Ok((sum, size)) => Output::ok(format!("{sum} {size}\n")),
        Err(error) => Output::fail(1, format!("sh: 3: cannot open {file}: {}\n", reason(&error))),
    }
}

fn commit(guest: &Guest<'_>, temp: &str, dest: &str, overwrite: bool) -> Output {
    let root = guest.root;
    let seen = look(root, dest);
    if seen.is_dir {
        return Output::ok("is-directory\n");
    }
    if !overwrite && (seen.exists || seen.is_link) {
        return Output::ok("exists\n");
    }
    let moved = files::resolve(root, temp, false).and_then(|from| {
        let to = files::resolve(root, dest, false)?;
        if overwrite {
            std::fs::rename(&from, &to)?;
        } else {
            // A link and not a rename: it fails when somebody else was faster.
            std::fs::hard_link(&from, &to)?;
            std::fs::remove_file(&from)?;
        }
        guest.cluster.move_owner(&from, &to);
        Ok(())
    });
    match moved {
        Ok(()) => Output::ok("ok\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Output::ok("exists\n"),
        Err(error) => Output::fail(1, format!("mv: cannot move '{temp}' to '{dest}': {}\n", reason(&error))),
    }
}

fn discard(root: &Path, temp: &str) -> Output {
    match files::resolve(root, temp, false).and_then(std::fs::remove_file) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Output::fail(1, format!("rm: cannot remove '{temp}': {}\n", reason(&error)))
        }
        _ => Output::default(),
    }
}
