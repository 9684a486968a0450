//! What the fixed scripts answer, whichever way they were started, and what a failed one complains about.

use std::fmt;
use std::time::Duration;

use crate::dest::Dest;
use crate::error::{PushError, PushErrorKind, Step};
use crate::options::PushOptions;
use crate::source::SourceError;
use crate::ssh::{Output, colon, remote};

/// Asks about the destination, makes parents, removes forgotten siblings.
pub(crate) const PREPARE: &str = include_str!("scripts/prepare.sh");
/// Hashes and measures one file.
pub(crate) const HASH: &str = include_str!("scripts/hash.sh");
/// Renames the temporary sibling.
pub(crate) const COMMIT: &str = include_str!("scripts/commit.sh");
/// Removes what a push has made.
pub(crate) const DISCARD: &str = include_str!("scripts/discard.sh");
/// Writes standard input to the temporary sibling.
pub(crate) const RECEIVE: &str = include_str!("scripts/receive.sh");
/// Sets mode and owner.
pub(crate) const OWN: &str = include_str!("scripts/own.sh");
/// Makes the private directory for the agent's parts.
pub(crate) const BEGIN: &str = include_str!("scripts/begin.sh");
/// Joins parts.
pub(crate) const JOIN: &str = include_str!("scripts/join.sh");
/// Says what a path is and how large.
pub(crate) const LOOK: &str = include_str!("scripts/look.sh");
/// Writes a file to standard output.
pub(crate) const SEND: &str = include_str!("scripts/send.sh");

/// Where scripts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this container, by `pct exec` on its node.
    Container(u32),
    /// On the machine that was logged in to, or that the agent runs on.
    Machine,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(vmid) => write!(f, "container {vmid}"),
            Self::Machine => f.write_str("the virtual machine"),
        }
    }
}

/// Free space asked of the guest beyond the source's length.
const SPACE_FLOOR: u64 = 1024 * 1024;

/// The arguments of [`PREPARE`]. `length` is the source's, where it is known. `stale`: age of siblings to remove, if any.
pub(crate) fn prepare_arguments<'a>(
    dest: &'a Dest,
    options: &PushOptions,
    length: Option<u64>,
    stale: Option<Duration>,
) -> [std::borrow::Cow<'a, str>; 5] {
    let need = length.map_or(0, |length| length.saturating_add(SPACE_FLOOR).div_ceil(1024));
    // At least one minute: what is younger may be at work.
    let minutes = stale.map_or(0, |age| (age.as_secs() / 60).max(1));
    [
        dest.as_str().into(),
        flag(options.overwrite).into(),
        flag(options.mkdir).into(),
        need.to_string().into(),
        minutes.to_string().into(),
    ]
}

/// Reads the answer of [`PREPARE`].
pub(crate) fn prepared(place: Place, dest: &Dest, output: &Output) -> Result<(), PushError> {
    if output.status != 0 {
        return Err(guest_failed(place, Step::Prepare, output));
    }
    match word(output) {
        Some("ok") => Ok(()),
        Some("exists") => Err(exists(dest)),
        Some("no-parent") => Err(PushError::new(
            PushErrorKind::NoParent,
            format!(
                "{:?} does not exist in the guest{}; make it, or ask for mkdir",
                dest.parent(),
                colon(&output.complaint)
            ),
        )),
        Some("is-directory") => Err(is_directory(dest)),
        Some("not-regular") => Err(PushError::new(
            PushErrorKind::NotRegular,
            format!(
                "{:?} is a symlink, FIFO, socket or device in the guest; name a regular file",
                dest.as_str()
            ),
        )),
        Some("no-space") => Err(PushError::new(
            PushErrorKind::NoSpace,
            format!("{:?} in the guest has no room for the file; free space there", dest.parent()),
        )),
        _ => Err(not_understood(Step::Prepare, output)),
    }
}

/// Reads the answer of [`COMMIT`].
pub(crate) fn committed(place: Place, dest: &Dest, output: &Output) -> Result<(), PushError> {
    match word(output) {
        Some("ok") if output.status == 0 => Ok(()),
        Some("exists") => Err(exists(dest)),
        Some("is-directory") => Err(is_directory(dest)),
        _ if output.status != 0 => Err(guest_failed(place, Step::Commit, output)),
        _ => Err(not_understood(Step::Commit, output)),
    }
}

/// `owner`, `owner:group`, `:group`, or nothing where the file stays whose it is.
pub(crate) fn ownership(options: &PushOptions) -> String {
    let owner = options.owner.as_ref().map_or("", |account| account.as_str());
    match &options.group {
        Some(group) => format!("{owner}:{group}"),
        None => owner.to_owned(),
    }
}

/// A step that wrote or changed the temporary file and failed.
pub(crate) fn write_failed(place: Place, step: Step, output: &Output) -> PushError {
    let complaint = output.complaint.to_lowercase();
    if complaint.contains("chown") && complaint.contains("invalid argument") {
        return remote(
            step,
            Some(output.status),
            format!(
                "{place} has no such id in its id mapping{}; choose an owner that the guest's lxc.idmap maps",
                colon(&output.complaint)
            ),
        );
    }
    guest_failed(place, step, output)
}

/// Refuses a source that is not the expected one.
pub(crate) fn expected(options: &PushOptions, sha256: &[u8; 32]) -> Result<(), PushError> {
    match options.expected_sha256.filter(|expected| expected != sha256) {
        None => Ok(()),
        Some(expected) => Err(PushError::new(
            PushErrorKind::UnexpectedHash,
            format!(
                "the source's SHA-256 is {}, expected {}; nothing was put in place",
                hex(sha256),
                hex(&expected)
            ),
        )),
    }
}

/// The refusal of a source without a byte.
pub(crate) fn empty() -> PushError {
    PushError::new(PushErrorKind::Empty, "the source is empty; nothing was written, send at least one byte")
}

/// Compares what the guest holds with what the source sent. `Ok(false)` when the guest cannot hash.
pub(crate) fn compare(output: &Output, bytes: u64, sha256: &[u8; 32]) -> Result<bool, PushError> {
    if output.status != 0 {
        return Err(failed(Step::Hash, output));
    }
    let Some((hash, size)) = parse_hash(&output.stdout) else {
        return Err(not_understood(Step::Hash, output));
    };
    if size != bytes {
        return Err(PushError::new(
            PushErrorKind::HashMismatch,
            format!(
                "the guest has {size} of {bytes} bytes; its file system may be full. The destination is untouched"
            ),
        ));
    }
    match hash {
        None => Ok(false),
        Some(found) if found == hex(sha256) => Ok(true),
        Some(found) => Err(PushError::new(
            PushErrorKind::HashMismatch,
            format!(
                "the guest's copy has SHA-256 {found}, expected {}; it was damaged on the way. The destination is untouched",
                hex(sha256)
            ),
        )),
    }
}

/// `<64 lower-case hex digits or "none"> <size>` and a newline, exactly. The size is plain decimal.
pub(crate) fn parse_hash(stdout: &[u8]) -> Option<(Option<&str>, u64)> {
    let line = std::str::from_utf8(stdout).ok()?;
    let (hash, size) = line.strip_suffix('\n').unwrap_or(line).split_once(' ')?;
    let hash = match hash {
        "none" => None,
        hex if hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => Some(hex),
        _ => return None,
    };
    let number: u64 = size.parse().ok()?;
    (number.to_string() == size).then_some((hash, number))
}

/// Whether the hash that the guest made of the file while it grew is the one expected, of as many bytes as were sent: a line of the
/// hash program, and one with the size. Anything else says nothing, neither for the file nor against it.
pub(crate) fn followed(stdout: &[u8], bytes: u64, sha256: &[u8; 32]) -> bool {
    let lines = std::str::from_utf8(stdout).ok().and_then(|text| text.strip_suffix('\n')?.split_once('\n'));
    lines.is_some_and(|(hash, size)| {
        size == bytes.to_string() && hash.split_once(' ').is_some_and(|(found, _)| found == hex(sha256))
    })
}

/// An error that leaves a command under way on the node makes the clean-up unconfirmed.
pub(crate) fn still_running(error: PushError, note: &str) -> PushError {
    match error.kind() {
        PushErrorKind::Deadline { .. }
        | PushErrorKind::Connect
        | PushErrorKind::Remote { status: None, .. } => error.leaving(note),
        _ => error,
    }
}

/// A failed command in the guest or about it, by what it complained about. The words are those of `pct`,
/// `lxc-attach` and the C library in the C locale.
pub(crate) fn guest_failed(place: Place, step: Step, output: &Output) -> PushError {
    const NOT_THERE: [&str; 5] =
        ["not running", "to a running", "failed to get init pid", "configuration file '", "lxc-attach:"];
    const LOCKED: [&str; 2] = ["can't lock file", "ct is locked"];
    let complaint = output.complaint.to_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| complaint.contains(text));
    let unusable_tool = matches!(output.status, 126 | 127) || complaint.starts_with("sudo:");
    if says(&LOCKED) {
        return PushError::new(
            PushErrorKind::GuestBusy,
            format!("{place} is locked by another task{}; try again later", colon(&output.complaint)),
        );
    }
    if says(&NOT_THERE) || (step == Step::Prepare && !unusable_tool) {
        return PushError::new(
            PushErrorKind::GuestUnreachable,
            format!(
                "{place} does not take commands while {step} (status {}){}; check that it runs and is on this node",
                output.status,
                colon(&output.complaint)
            ),
        );
    }
    failed(step, output)
}

pub(crate) fn failed(step: Step, output: &Output) -> PushError {
    let complaint = output.complaint.to_lowercase();
    if complaint.contains("no space left on device") || complaint.contains("quota exceeded") {
        return PushError::new(
            PushErrorKind::NoSpace,
            format!("no space left while {step}{}; free space and push again", colon(&output.complaint)),
        );
    }
    remote(
        step,
        Some(output.status),
        format!("status {} while {step}{}", output.status, colon(&output.complaint)),
    )
}

pub(crate) fn not_understood(step: Step, output: &Output) -> PushError {
    remote(
        step,
        Some(output.status),
        format!("an answer that is not understood while {step}{}", colon(&output.complaint)),
    )
}

pub(crate) fn from_source(error: SourceError) -> PushError {
    let message = error.to_string();
    PushError::new(PushErrorKind::Source(error), message)
}

fn exists(dest: &Dest) -> PushError {
    PushError::new(
        PushErrorKind::DestExists,
        format!("{:?} exists in the guest; choose another name, or ask for overwrite", dest.as_str()),
    )
}

fn is_directory(dest: &Dest) -> PushError {
    PushError::new(
        PushErrorKind::DestIsDirectory,
        format!("{:?} is a directory in the guest; give the full path of the file", dest.as_str()),
    )
}

/// The single word a script prints, without its newline.
pub(crate) fn word(output: &Output) -> Option<&str> {
    let text = std::str::from_utf8(&output.stdout).ok()?;
    Some(text.strip_suffix('\n').unwrap_or(text))
}

pub(crate) fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

pub(crate) fn hex(hash: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(hash)
}

#[cfg(test)]
mod tests;
