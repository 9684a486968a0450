use std::{fmt, str::FromStr};

use super::{IdError, NodeName, Vmid};

/// The handle of a PVE task:
/// `UPID:node:pid:pstart:starttime:type:id:user:`, numbers in hex, as PVE prints it.
///
/// Parsing is strict (`PVE/UPID.pm`) and keeps the text, so [`fmt::Display`] gives back the bytes that came in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upid {
    text: String,
    node: NodeName,
    pid: u32,
    pstart: u64,
    starttime: u32,
    kind: String,
    id: String,
    user: String,
}

const MAX_LEN: usize = 512;
const EXPECTED: &str = "`UPID:node:pid:pstart:starttime:type:id:user:` with hex numbers and the last colon";

/// Worker types whose id is the number of a guest. Decided by type, not by the look of the id: `cephdestroyosd:3`
/// is no guest.
pub(super) const GUEST_TASKS: &[&str] = &[
    "hamigrate",
    "hastart",
    "hastop",
    "move_volume",
    "pull_file",
    "push_file",
    "qmclone",
    "qmconfig",
    "qmcreate",
    "qmdelsnapshot",
    "qmdestroy",
    "qmigrate",
    "qmmove",
    "qmpause",
    "qmreboot",
    "qmreset",
    "qmrestore",
    "qmresume",
    "qmrollback",
    "qmshutdown",
    "qmsnapshot",
    "qmstart",
    "qmstop",
    "qmsuspend",
    "qmtemplate",
    "resize",
    "spiceproxy",
    "vncproxy",
    "vzclone",
    "vzcreate",
    "vzdelsnapshot",
    "vzdestroy",
    "vzdump",
    "vzmigrate",
    "vzreboot",
    "vzrestore",
    "vzresume",
    "vzrollback",
    "vzshutdown",
    "vzsnapshot",
    "vzstart",
    "vzstop",
    "vzsuspend",
    "vztemplate",
];

impl Upid {
    /// The node the task runs on; its status is asked there.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The process id of the worker.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The worker's start in clock ticks since the node booted.
    #[must_use]
    pub fn pstart(&self) -> u64 {
        self.pstart
    }

    /// The start in seconds since 1970, by the node's clock.
    #[must_use]
    pub fn starttime(&self) -> u32 {
        self.starttime
    }

    /// The worker type, `qmstart`. HA-managed guests answer `hastart`, `hastop` and `hamigrate`, which end OK as
    /// soon as the request is queued.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What the task is about, often a guest number; may be empty.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who started it, `root@pam` or, for a token, `root@pam!name`.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The guest the task belongs to, if its type is one that works on a guest.
    #[must_use]
    pub fn guest(&self) -> Option<Vmid> {
        GUEST_TASKS.binary_search(&self.kind.as_str()).ok()?;
        self.id.parse().ok()
    }

    /// The text as PVE printed it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A hex number of `min` to `max` digits, without sign.
fn hex(text: &str, min: usize, max: usize) -> Option<u64> {
    let digits = (min..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// A field that may hold anything but the separators of a UPID and what would break a line or a path.
fn plain(text: &str) -> Option<&str> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    (!text.contains(bad)).then_some(text)
}

fn parse(text: &str) -> Option<Upid> {
    if text.len() > MAX_LEN {
        return None;
    }
    let mut fields = text.strip_prefix("UPID:")?.strip_suffix(':')?.split(':');
    let mut next = || fields.next();
    let upid = Upid {
        node: next()?.parse().ok()?,
        pid: hex(next()?, 8, 8)?.try_into().ok()?,
        pstart: hex(next()?, 8, 9)?,
        starttime: hex(next()?, 8, 8)?.try_into().ok()?,
        kind: plain(next()?).filter(|kind| !kind.is_empty())?.to_owned(),
        id: plain(next()?)?.to_owned(),
        user: plain(next()?).filter(|user| !user.is_empty())?.to_owned(),
        text: text.to_owned(),
    };
    fields.next().is_none().then_some(upid)
}

impl FromStr for Upid {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse(text).ok_or_else(|| IdError::new("a task id", text, EXPECTED))
    }
}

impl TryFrom<&str> for Upid {
    type Error = IdError;

    fn try_from(text: &str) -> Result<Self, IdError> {
        text.parse()
    }
}

impl AsRef<str> for Upid {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
