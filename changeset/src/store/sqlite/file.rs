//! The state file before SQLite sees it: creation, and the refusal of whatever is not ours.

use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::store::StoreError;

/// `PXWC`: in the header of every state file, so that another program's database is never taken for one.
pub(super) const APPLICATION_ID: i32 = 0x5058_5743;
/// The schema this version reads and writes.
pub(super) const SCHEMA_VERSION: i32 = 1;
pub(super) const SCHEMA: &str = include_str!("schema_v1.sql");

const MAGIC: &[u8] = b"SQLite format 3\0";

/// Makes sure that `path` is a state file of this schema, creating it where there is none.
pub(super) fn prepare(path: &Path) -> Result<(), StoreError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return create(path),
        Err(error) => return Err(refuse(path, &format!("cannot be opened: {error}"))),
    };
    let mut header = Vec::new();
    file.by_ref()
        .take(100)
        .read_to_end(&mut header)
        .map_err(|error| refuse(path, &format!("cannot be read: {error}")))?;
    gate(&header).map_err(|why| refuse(path, &why))?;
    let size = file.metadata().map_err(|error| refuse(path, &format!("cannot be read: {error}")))?.len();
    let journal_is_empty = fs::metadata(beside(path, "-wal")).map_or(true, |wal| wal.len() == 0);
    // While the journal holds pages, the file may lawfully be shorter than it says.
    match expected_size(&header) {
        Some(expected) if journal_is_empty && size != expected => Err(refuse(
            path,
            &format!("is damaged ({size} bytes, its header says {expected}): restore it from a backup"),
        )),
        _ => Ok(()),
    }
}

/// Page size (16, where 1 means 65536) times page count (28), as the header says.
fn expected_size(header: &[u8]) -> Option<u64> {
    let page = u16::from_be_bytes(header.get(16..18)?.try_into().ok()?);
    let page = if page == 1 { 65_536 } else { u64::from(page) };
    page.checked_mul(u64::from(u32::from_be_bytes(header.get(28..32)?.try_into().ok()?)))
}

/// Reads the database header (sqlite.org/fileformat2.html: magic at 0, user version at 60, application id at 68).
/// It is read as bytes, so that a foreign database is not even opened.
fn gate(header: &[u8]) -> Result<(), String> {
    let number = |at: usize| -> Option<i32> {
        let bytes = header.get(at..at.checked_add(4)?)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    if header.is_empty() {
        return Err(
            "is empty, but a state file never is: restore it from a backup, or remove it to start with no \
                    change sets"
                .to_owned(),
        );
    }
    if header.first() == Some(&b'{') || header.first() == Some(&b'[') {
        return Err(
            "is a JSON file, perhaps the store of another server: its change sets cannot be taken over; let \
                    them end there, and name a new file here"
                .to_owned(),
        );
    }
    if !header.starts_with(MAGIC) || number(68) != Some(APPLICATION_ID) {
        return Err("is no state file of this program: name another file".to_owned());
    }
    let found = number(60).unwrap_or(0);
    match found.cmp(&SCHEMA_VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(format!(
            "has schema {found}, this version knows {SCHEMA_VERSION}: run the newer version that wrote it, or restore \
             the backup made before the upgrade"
        )),
        Ordering::Less => Err(format!("has schema {found}, which never existed: restore it from a backup")),
    }
}

/// Makes a complete file aside and links it into place, so that a crash never leaves half a state file there.
fn create(path: &Path) -> Result<(), StoreError> {
    for suffix in ["-wal", "-journal"] {
        let left = beside(path, suffix);
        if left.exists() {
            return Err(refuse(
                path,
                &format!(
                    "is missing, but its journal {} is there: restore both from a backup, or remove the journal to \
                     start with no change sets",
                    left.display()
                ),
            ));
        }
    }
    let aside = beside(path, ".new");
    let io = |error: std::io::Error| refuse(path, &format!("cannot be created: {error}"));
    for leftover in [aside.clone(), beside(path, ".new-journal")] {
        match fs::remove_file(&leftover) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&aside).map_err(io)?;
    fill(&aside).map_err(|error| refuse(path, &format!("cannot be created: {error}")))?;
    File::open(&aside).and_then(|file| file.sync_all()).map_err(io)?;
    // A link never replaces a file that somebody else made meanwhile; a rename would.
    fs::hard_link(&aside, path).map_err(io)?;
    fs::remove_file(&aside).map_err(io)?;
    File::open(directory_of(path)).and_then(|dir| dir.sync_all()).map_err(io)
}

/// Where the file's name is kept: what must be synced for the name to last.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn fill(path: &Path) -> rusqlite::Result<()> {
    let mut conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let tx = conn.transaction()?;
    tx.execute_batch(SCHEMA)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    tx.commit()?;
    conn.close().map_err(|(_, error)| error)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn refuse(path: &Path, why: &str) -> StoreError {
    StoreError::File { path: path.display().to_string(), why: why.to_owned() }
}
