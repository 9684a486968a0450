//! The scripts that a client may run in a guest, interpreted on the guest's folder: by `pct exec`, or by whatever else
//! starts `sh -c <script> proxward <arguments>` in one.
//!
//! A script is recognised by its exact text (but for white space at its end); what it would do in a real shell
//! is done here in Rust.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::cluster::Cluster;
use crate::node::exec::{Input, Output};
use crate::node::fault::{PushFault, Switches};
use crate::node::files;
use crate::node::pct::{lookup, reason};

const PREPARE: &str = include_str!("scripts/prepare.sh");
const HASH: &str = include_str!("scripts/hash.sh");
const COMMIT: &str = include_str!("scripts/commit.sh");
const DISCARD: &str = include_str!("scripts/discard.sh");
const RECEIVE: &str = include_str!("scripts/receive.sh");
const OWN: &str = include_str!("scripts/own.sh");
const BEGIN: &str = include_str!("scripts/begin.sh");
const JOIN: &str = include_str!("scripts/join.sh");
const LOOK: &str = include_str!("scripts/look.sh");
const SEND: &str = include_str!("scripts/send.sh");

/// The guest that a script runs in, and what goes wrong there.
pub(crate) struct Guest<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Its folder.
    pub(crate) root: &'a Path,
    pub(crate) switches: Switches,
}

/// Runs a known script with its arguments; everything else is not found. Blocks.
pub(crate) fn run(guest: &Guest<'_>, script: &str, arguments: &[&str], input: Input) -> Output {
    let known = |text: &str| text.trim_end() == script.trim_end();
    let root = guest.root;
    match arguments {
        [dest, overwrite, mkdir, need, _stale] if known(PREPARE) => {
            let need = need.parse().unwrap_or(0);
            prepare(guest, dest, *overwrite == "1", *mkdir == "1", need)
        }
        [file, _limit] if known(HASH) => hash(root, file, guest.switches.no_sha256),
        [temp, dest, overwrite] if known(COMMIT) => commit(guest, temp, dest, *overwrite == "1"),
        [temp] if known(DISCARD) => discard(root, temp),
        [temp, _limit, mode, owner] if known(RECEIVE) => receive(guest, temp, mode, owner, input),
        [temp, mode, owner] if known(OWN) => own(guest, temp, mode, owner),
        [directory] if known(BEGIN) => begin(root, directory),
        [directory, from, to] if known(JOIN) => join(root, directory, from, to),
        [file] if known(LOOK) => look_at(root, file),
        [file, _limit] if known(SEND) => send(root, file),
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

fn prepare(guest: &Guest<'_>, dest: &str, overwrite: bool, mkdir: bool, need_kib: u64) -> Output {
    let root = guest.root;
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
    } else if seen.is_link || seen.exists && !seen.is_file {
        "not-regular"
    } else if seen.exists && !overwrite {
        "exists"
    } else if guest.switches.guest_space.is_some_and(|free| free / 1024 < need_kib) {
        "no-space"
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
    let removed = files::resolve(root, temp, false).and_then(|path| {
        if path.symlink_metadata()?.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        }
    });
    match removed {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Output::fail(1, format!("rm: cannot remove '{temp}': {}\n", reason(&error)))
        }
        _ => Output::default(),
    }
}

fn receive(guest: &Guest<'_>, temp: &str, mode: &str, owner: &str, mut input: Input) -> Output {
    let made = files::resolve(guest.root, temp, false)
        .and_then(|path| OpenOptions::new().write(true).create_new(true).mode(0o600).open(path));
    let mut file = match made {
        Ok(file) => file,
        Err(error) => return Output::fail(2, format!("sh: 11: cannot create {temp}: {}\n", reason(&error))),
    };
    let (mut room, full) = match (guest.switches.push, guest.switches.guest_space) {
        (Some(PushFault::Fail), _) => return Output::fail(1, "cat: write error: Input/output error\n"),
        // A guest that loses the rest and does not say so.
        (Some(PushFault::Short(bytes)), _) => (bytes, false),
        (None, Some(free)) => (free, true),
        (None, None) => (u64::MAX, false),
    };
    while let Some(chunk) = input.next() {
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(chunk.len());
        if let Err(error) = file.write_all(&chunk[..fits]) {
            return Output::fail(1, format!("cat: write error: {}\n", reason(&error)));
        }
        room -= fits as u64;
        if full && fits < chunk.len() {
            return Output::fail(1, "cat: write error: No space left on device\n");
        }
    }
    own(guest, temp, mode, owner)
}

fn own(guest: &Guest<'_>, temp: &str, mode: &str, owner: &str) -> Output {
    let Ok(path) = files::resolve(guest.root, temp, false) else {
        return Output::fail(1, format!("chmod: cannot access '{temp}'\n"));
    };
    if !owner.is_empty() {
        let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
        let id = |table: &str, name: &str| match name {
            "" => Ok(0),
            name => lookup(guest.root, table, name),
        };
        match (id("passwd", user), id("group", group)) {
            (Ok(user), Ok(group)) => guest.cluster.set_owner(&path, user, group),
            (Err(_), _) => return Output::fail(1, format!("chown: invalid user: '{user}'\n")),
            (_, Err(_)) => return Output::fail(1, format!("chown: invalid group: '{group}'\n")),
        }
    }
    let Ok(bits) = u32::from_str_radix(mode, 8) else {
        return Output::fail(1, format!("chmod: invalid mode: '{mode}'\n"));
    };
    match std::fs::set_permissions(&path, Permissions::from_mode(bits)) {
        Ok(()) => Output::default(),
        Err(error) => Output::fail(1, format!("chmod: changing '{temp}': {}\n", reason(&error))),
    }
}

fn begin(root: &Path, directory: &str) -> Output {
    let made = files::resolve(root, directory, false).and_then(|path| {
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))
    });
    match made {
        Ok(()) => Output::default(),
        Err(error) => Output::fail(1, format!("mkdir: cannot create '{directory}': {}\n", reason(&error))),
    }
}

fn join(root: &Path, directory: &str, from: &str, to: &str) -> Output {
    let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>()) else {
        return Output::fail(2, "sh: 6: Illegal number\n");
    };
    let joined = files::resolve(root, directory, false).and_then(|path| {
        let mut data = OpenOptions::new().append(true).create(true).mode(0o600).open(path.join("data"))?;
        for part in from..to {
            let part = path.join(part.to_string());
            io::copy(&mut File::open(&part)?, &mut data)?;
            std::fs::remove_file(part)?;
        }
        Ok(data.metadata()?.len())
    });
    match joined {
        Ok(size) => Output::ok(format!("{size}\n")),
        Err(error) => Output::fail(1, format!("cat: {directory}: {}\n", reason(&error))),
    }
}

fn look_at(root: &Path, file: &str) -> Output {
    let seen = look(root, file);
    let word = if seen.is_dir {
        "is-directory".to_owned()
    } else if !seen.exists {
        "missing".to_owned()
    } else if !seen.is_file {
        "not-regular".to_owned()
    } else {
        match files::resolve(root, file, true).and_then(std::fs::metadata) {
            Ok(metadata) => format!("regular {}", metadata.len()),
            Err(error) => return Output::fail(1, format!("sh: cannot open {file}: {}\n", reason(&error))),
        }
    };
    Output::ok(format!("{word}\n"))
}

fn send(root: &Path, file: &str) -> Output {
    match files::resolve(root, file, true).and_then(std::fs::read) {
        Ok(bytes) => Output { stdout: bytes, ..Output::default() },
        Err(error) => Output::fail(1, format!("cat: {file}: {}\n", reason(&error))),
    }
}
