//! How a record becomes a line, and how lines are verified.
//!
//! A line is `{"hash":"<64 hex>","seq":…,"prev":"<64 hex>",…}` and a line feed. The hash is SHA-256 over a fixed
//! prefix and the *bytes of the line after the hash member*, so no canonical form has to be agreed on: a
//! changed space is as visible as a changed name. `prev` is the hash of the line before, so lines cannot be
//! dropped, added, repeated or moved. Lines are pure ASCII; everything else is escaped, and a terminal or a line
//! splitter sees nothing it could act on.
//!
//! The chain proves order and completeness against anyone who does not rewrite *everything* from a point on.
//! Against that, and against a cut tail, keep a printed head ([`Head`]'s text) on another machine and verify
//! against it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::record::{Event, Record};
use crate::files::FileError;

/// Says what the hash is over; a later format gets another one.
const DOMAIN: &[u8] = b"pxw-audit-v1\n";
/// `{"hash":"`
const OPENING: &[u8] = b"{\"hash\":\"";
/// `",` after the hash.
const CLOSING: &[u8] = b"\",";
/// Length of the opening, the hash and the closing.
const PREFIX_LEN: usize = OPENING.len() + 64 + CLOSING.len();
/// Longest line that is read back, in bytes; what is written stays far below.
const MAX_LINE: u64 = 1024 * 1024;

/// The hash before the first record.
pub(super) const NO_HASH: [u8; 32] = [0; 32];

/// Where a chain stands. Its text form, `pxw-audit:<chain>:<seq>:<hash>`, is the checkpoint to keep elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The random id given in the genesis record, 32 hex digits.
    pub chain: String,
    /// The last record's number.
    pub seq: u64,
    /// The last record's hash.
    pub hash: [u8; 32],
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pxw-audit:{}:{}:{}", self.chain, self.seq, HEXLOWER.encode(&self.hash))
    }
}

/// The text is not a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("not a checkpoint: expected pxw-audit:<chain>:<number>:<hash> as `proxward audit verify` prints it")]
pub struct NotAHead;

impl FromStr for Head {
    type Err = NotAHead;

    fn from_str(text: &str) -> Result<Self, NotAHead> {
        let mut parts = text.trim().split(':');
        let (Some("pxw-audit"), Some(chain), Some(seq), Some(hash), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAHead);
        };
        if !is_chain_id(chain) {
            return Err(NotAHead);
        }
        let seq = seq.parse().map_err(|_| NotAHead)?;
        let hash = parse_hash(hash.as_bytes()).ok_or(NotAHead)?;
        Ok(Self { chain: chain.to_owned(), seq, hash })
    }
}

fn is_chain_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn parse_hash(hex: &[u8]) -> Option<[u8; 32]> {
    HEXLOWER.decode(hex).ok()?.try_into().ok()
}

/// When an event happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Wall time; may jump.
    pub(super) wall: Timestamp,
    /// Since the process started; never goes back within one process.
    pub(super) monotonic: Duration,
}

/// A record as its members end a line: `,"event":"…",…}`. Written by whoever has the record, so that the thread that owns the
/// file only numbers and hashes.
#[derive(Debug)]
pub(super) struct Members(Vec<u8>);

impl Members {
    /// Longer than nearly every record.
    const USUAL: usize = 768;

    pub(super) fn of(record: &Record) -> io::Result<Self> {
        let mut json = Vec::with_capacity(Self::USUAL);
        let mut serializer = serde_json::Serializer::with_formatter(&mut json, Ascii);
        record.serialize(&mut serializer).map_err(io::Error::other)?;
        match json.as_mut_slice() {
            // A record has its event at least: what follows the brace is a member.
            [brace @ b'{', b'"', ..] => *brace = b',',
            _ => return Err(io::Error::other("a record without members")),
        }
        Ok(Self(json))
    }
}

/// Appends the line that follows `head` to `out` and returns the head after it.
pub(super) fn seal(head: &Head, members: &Members, times: Times, out: &mut Vec<u8>) -> io::Result<Head> {
    let seq = head.seq.checked_add(1).ok_or_else(|| io::Error::other("the chain is full"))?;
    let line = out.len();
    // Room for the hash.
    out.resize(line + PREFIX_LEN, 0);
    let Times { wall, monotonic } = times;
    let mono_us = u64::try_from(monotonic.as_micros()).unwrap_or(u64::MAX);
    // The time has a fixed width, so that lines sort as text too.
    write!(
        out,
        "\"seq\":{seq},\"prev\":\"{}\",\"time\":\"{wall:.6}\",\"mono_us\":{mono_us}",
        HEXLOWER.encode_display(&head.hash)
    )?;
    out.extend_from_slice(&members.0);
    let (prefix, rest) = out
        .get_mut(line..)
        .and_then(|line| line.split_at_mut_checked(PREFIX_LEN))
        .ok_or_else(|| io::Error::other("a line without a body"))?;
    let hash = hash_of(rest);
    let hex = HEXLOWER.encode(&hash);
    let parts = OPENING.iter().chain(hex.as_bytes()).chain(CLOSING);
    prefix.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    out.push(b'\n');
    Ok(Head { chain: head.chain.clone(), seq, hash })
}

fn hash_of(rest: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(DOMAIN);
    hasher.update(rest);
    hasher.finalize().into()
}

/// JSON in pure ASCII: also DEL, C1 controls, U+2028 and bidirectional marks cannot reach a reader's screen.
struct Ascii;

impl serde_json::ser::Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let plain = |byte: &u8| *byte < 0x7f;
        if fragment.as_bytes().iter().all(plain) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| !c.is_ascii() || c == '\x7f') {
            let (plain, special) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut chars = special.chars();
            if let Some(c) = chars.next() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// The first record that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: record {seq}: {problem}", .path.display())]
pub struct BadRecord {
    /// The file.
    pub path: PathBuf,
    /// The line in it, from 1.
    pub line: u64,
    /// The number the record in this place should have.
    pub seq: u64,
    /// What is wrong.
    pub problem: String,
}

/// Why a trail did not verify.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A record is wrong; nothing after it was looked at.
    #[error(transparent)]
    Bad(#[from] BadRecord),
    /// There is no record at all.
    #[error("{} holds no record", .0.display())]
    Empty(PathBuf),
    /// The trail is sound, but does not contain the checkpoint.
    #[error("the trail does not contain the checkpoint {expected}: {problem}")]
    Checkpoint {
        /// The checkpoint asked for.
        expected: Box<Head>,
        /// What is there instead.
        problem: Miss,
    },
}

/// What a sound trail holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of the first record.
    pub first_seq: u64,
    /// Whether the first record is the chain's very first.
    pub from_genesis: bool,
    /// Where the chain stands at the end.
    pub head: Head,
    /// How many records there are.
    pub records: u64,
    /// How many times a process opened the trail again.
    pub restarts: u64,
    /// How many torn last lines were cut off.
    pub repairs: u64,
}

/// Verifies one file from its first to its last byte.
pub fn verify(path: &Path) -> Result<Summary, VerifyError> {
    verify_files(&[path], None)
}

/// Verifies files that continue each other, oldest first, and that the chain contains `checkpoint`.
pub fn verify_files(paths: &[&Path], checkpoint: Option<&Head>) -> Result<Summary, VerifyError> {
    let mut scan = Scan::expecting(checkpoint);
    for path in paths {
        let file = File::open(path).map_err(|error| FileError::io(path, "open", error))?;
        let torn = scan.file(path, file)?;
        if !torn.is_empty() {
            return Err(BadRecord {
                path: path.to_path_buf(),
                line: scan.line,
                seq: scan.next_seq(),
                problem: "the last line is not complete: cut short, or being written just now".to_owned(),
            }
            .into());
        }
    }
    match (scan.finish(paths.last().copied().unwrap_or(Path::new("")))?, checkpoint) {
        ((_, Some(problem)), Some(expected)) => {
            Err(VerifyError::Checkpoint { expected: Box::new(expected.clone()), problem })
        }
        ((summary, _), _) => Ok(summary),
    }
}

/// The members of a line that the chain itself needs.
#[derive(Deserialize)]
struct Links {
    seq: u64,
    prev: String,
    event: String,
    #[serde(default)]
    details: LinkDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LinkDetails {
    chain: Option<String>,
}

/// A walk along the chain.
#[derive(Default)]
pub(super) struct Scan<'a> {
    summary: Option<Summary>,
    line: u64,
    /// The chain must contain this.
    checkpoint: Option<&'a Head>,
    /// The hash found at the checkpoint's number.
    at_checkpoint: Option<[u8; 32]>,
}

impl<'a> Scan<'a> {
    /// A walk that also looks for a checkpoint on its way.
    pub(super) fn expecting(checkpoint: Option<&'a Head>) -> Self {
        Self { checkpoint, ..Self::default() }
    }

    fn next_seq(&self) -> u64 {
        self.summary.as_ref().map_or(1, |summary| summary.head.seq.saturating_add(1))
    }

    /// Reads a file to its end and returns the bytes after the last line feed (a torn line; normally none).
    pub(super) fn file(&mut self, path: &Path, file: impl Read) -> Result<Vec<u8>, VerifyError> {
        let mut reader = BufReader::with_capacity(128 * 1024, file);
        let mut line = Vec::new();
        self.line = 0;
        loop {
            line.clear();
            let read = (&mut reader)
                .take(MAX_LINE)
                .read_until(b'\n', &mut line)
                .map_err(|error| FileError::io(path, "read", error))?;
            if read == 0 {
                return Ok(Vec::new());
            }
            self.line += 1;
            if line.pop_if(|last| *last == b'\n').is_none() {
                if read as u64 == MAX_LINE {
                    return Err(self.bad(path, format!("the line is longer than {MAX_LINE} bytes")).into());
                }
                return Ok(line);
            }
            if let Err(problem) = self.accept(&line) {
                return Err(self.bad(path, problem).into());
            }
        }
    }

    fn bad(&self, path: &Path, problem: String) -> BadRecord {
        BadRecord { path: path.to_owned(), line: self.line, seq: self.next_seq(), problem }
    }

    /// Checks one line (without its line feed) as the next one of the chain.
    fn accept(&mut self, line: &[u8]) -> Result<(), String> {
        let (Some(hex), Some(rest)) = (line.get(OPENING.len()..OPENING.len() + 64), line.get(PREFIX_LEN..))
        else {
            return Err("the line is too short for a record".to_owned());
        };
        if !line.starts_with(OPENING) || !line[..PREFIX_LEN].ends_with(CLOSING) {
            return Err("the line does not begin with its hash".to_owned());
        }
        let hash = parse_hash(hex).ok_or("the hash is not 64 lower-case hex digits")?;
        if hash_of(rest) != hash {
            return Err("the record was changed: its hash does not match its content".to_owned());
        }
        let links: Links = serde_json::from_slice(&[b"{", rest].concat())
            .map_err(|_| "the line is not a record of this format".to_owned())?;
        let prev = parse_hash(links.prev.as_bytes()).ok_or("`prev` is not 64 lower-case hex digits")?;
        let first_of_file = self.line == 1;
        let opens_file = links.event == Event::Genesis.name() || links.event == Event::Continue.name();
        if first_of_file != opens_file {
            return Err(if first_of_file {
                "a file begins with a `genesis` or `continue` record: records before this one are missing"
                    .to_owned()
            } else {
                format!("a `{}` record inside a file", links.event)
            });
        }
        match &mut self.summary {
            None => {
                let chain = links.details.chain.filter(|id| is_chain_id(id));
                let chain = chain.ok_or("the file's first record does not name its chain")?;
                let from_genesis = links.event == Event::Genesis.name();
                if from_genesis && (links.seq != 1 || prev != NO_HASH) {
                    return Err("a `genesis` record that is not the first of its chain".to_owned());
                }
                self.summary = Some(Summary {
                    first_seq: links.seq,
                    from_genesis,
                    head: Head { chain, seq: links.seq, hash },
                    records: 1,
                    restarts: 0,
                    repairs: 0,
                });
            }
            Some(summary) => {
                let expected = summary.head.seq.saturating_add(1);
                if links.event == Event::Genesis.name()
                    || links.details.chain.is_some_and(|id| opens_file && id != summary.head.chain)
                {
                    return Err("the file belongs to another chain".to_owned());
                }
                if links.seq != expected {
                    return Err(format!(
                        "number {} where {expected} is due: records are missing, repeated or out of order",
                        links.seq
                    ));
                }
                if prev != summary.head.hash {
                    return Err("it does not follow the record before it".to_owned());
                }
                summary.head.seq = links.seq;
                summary.head.hash = hash;
                summary.records += 1;
                summary.restarts += u64::from(links.event == Event::Restart.name());
                summary.repairs += u64::from(links.event == Event::Repair.name());
            }
        }
        if self.checkpoint.is_some_and(|checkpoint| checkpoint.seq == links.seq) {
            self.at_checkpoint = Some(hash);
        }
        Ok(())
    }

    /// The summary, once every file was read.
    pub(super) fn finish(self, path: &Path) -> Result<(Summary, Option<Miss>), VerifyError> {
        let summary = self.summary.ok_or_else(|| VerifyError::Empty(path.to_owned()))?;
        let miss = self.checkpoint.and_then(|expected| {
            if expected.chain != summary.head.chain {
                Some(Miss::OtherChain(summary.head.chain.clone()))
            } else if expected.seq > summary.head.seq {
                Some(Miss::TailMissing(summary.head.seq))
            } else if expected.seq < summary.first_seq {
                Some(Miss::Older(summary.first_seq))
            } else if self.at_checkpoint != Some(expected.hash) {
                Some(Miss::Rewritten)
            } else {
                None
            }
        });
        Ok((summary, miss))
    }
}

/// How a sound trail does not contain a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Miss {
    /// It is another chain altogether.
    #[error("the files belong to chain {0}")]
    OtherChain(String),
    /// The trail ends too early.
    #[error("it ends at record {0}: the tail is missing")]
    TailMissing(u64),
    /// The checkpoint is from before the first record.
    #[error("it begins at record {0}: name the older files too")]
    Older(u64),
    /// Another record has that number.
    #[error("another record has that number: the trail was rewritten")]
    Rewritten,
}

#[cfg(test)]
mod tests;
