//! The host keys we accept, in OpenSSH's `known_hosts` format.
//!
//! Nothing is ever learned: a host that is not in the text is refused. Understood are comma lists, `*` and `?`,
//! negation with `!`, `[host]:port`, hashed names (`|1|…`), `@revoked`, and several keys for one host (rotation).
//! A name without a port stands for port 22 and for no other.

use data_encoding::{BASE64, BASE64_NOPAD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A parsed `known_hosts` text.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    entries: Vec<Entry>,
}

/// A line that cannot be used. One is enough to refuse the whole text, so that a damaged file never quietly trusts
/// or distrusts a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("known_hosts line {line}: {message}")]
pub struct KnownHostsProblem {
    /// Line number from 1; 0 for the text as a whole.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

/// What the known hosts say about a key that a host presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The host has this key.
    Trusted,
    /// No line names the host.
    Unknown,
    /// The host has other keys, not this one.
    Changed,
    /// The key is marked `@revoked` for the host.
    Revoked,
}

#[derive(Debug, Clone)]
struct Entry {
    revoked: bool,
    hosts: Hosts,
    key_type: String,
    blob: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Hosts {
    Patterns(Vec<Pattern>),
    Hashed { salt: Vec<u8>, hash: [u8; 20] },
}

#[derive(Debug, Clone)]
struct Pattern {
    negated: bool,
    glob: String,
}

impl KnownHosts {
    /// Reads the text of a `known_hosts` file.
    ///
    /// # Errors
    /// Every line that cannot be used; also an empty text, which would trust nothing. `@cert-authority` lines are
    /// refused: host certificates are not supported and ignoring the line would hide that.
    pub fn parse(text: &str) -> Result<Self, Vec<KnownHostsProblem>> {
        let mut entries = Vec::new();
        let mut problems = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Entry::parse(line) {
                Ok(entry) => entries.push(entry),
                Err(message) => problems.push(KnownHostsProblem { line: index + 1, message }),
            }
        }
        if problems.is_empty() && !entries.iter().any(|e| !e.revoked) {
            problems.push(KnownHostsProblem {
                line: 0,
                message: "no host key in it; add the node's, for example from: ssh-keyscan -t ed25519 <host> (and compare the fingerprint on the node's console)".to_owned(),
            });
        }
        if problems.is_empty() { Ok(Self { entries }) } else { Err(problems) }
    }

    /// The fingerprints (`SHA256:…`) accepted for a host and port, in the order of the text.
    pub fn fingerprints(&self, host: &str, port: u16) -> Vec<String> {
        let name = lookup_name(host, port);
        self.trusted(&name).iter().map(|e| fingerprint(&e.blob)).collect()
    }

    /// The key types (`ssh-ed25519`, …) held for a host and port, without duplicates.
    pub(crate) fn key_types(&self, host: &str, port: u16) -> Vec<&str> {
        let name = lookup_name(host, port);
        let mut types: Vec<&str> = Vec::new();
        for entry in self.trusted(&name) {
            if !types.contains(&entry.key_type.as_str()) {
                types.push(&entry.key_type);
            }
        }
        types
    }

    /// Judges the key a host presented, given in SSH wire form.
    pub(crate) fn judge(&self, host: &str, port: u16, blob: &[u8]) -> Verdict {
        let name = lookup_name(host, port);
        let is_revoked = |e: &&Entry| e.revoked && e.blob == blob && e.hosts.matches(&name);
        if self.entries.iter().any(|e| is_revoked(&e)) {
            return Verdict::Revoked;
        }
        let mut verdict = Verdict::Unknown;
        for entry in self.trusted(&name) {
            if entry.blob == blob {
                return Verdict::Trusted;
            }
            verdict = Verdict::Changed;
        }
        verdict
    }

    fn trusted(&self, name: &str) -> Vec<&Entry> {
        self.entries.iter().filter(|e| !e.revoked && e.hosts.matches(name)).collect()
    }
}

/// As OpenSSH reads it: padding ends it. Joined texts are no text.
fn base64(text: &str) -> Option<Vec<u8>> {
    let padded_inside = text.trim_end_matches('=').contains('=');
    if padded_inside { None } else { BASE64.decode(text.as_bytes()).ok() }
}

impl Entry {
    fn parse(line: &str) -> Result<Self, String> {
        let mut fields = line.split_ascii_whitespace();
        let mut next = |what: &str| {
            fields
                .next()
                .ok_or_else(|| format!("{what} is missing; expected: host key-type base64-key [comment]"))
        };
        let mut hosts = next("the host")?;
        let mut revoked = false;
        if hosts.starts_with('@') {
            revoked = match hosts {
                "@revoked" => true,
                "@cert-authority" => {
                    return Err(
                        "host certificates are not supported; list the hosts' own keys instead".to_owned()
                    );
                }
                _ => return Err("unknown marker; expected @revoked or a host".to_owned()),
            };
            hosts = next("the host")?;
        }
        let key_type = next("the key type")?.to_owned();
        let blob = base64(next("the key")?)
            .ok_or_else(|| "the key is not base64; copy the whole line again".to_owned())?;
        if wire_string(&blob) != Some(key_type.as_bytes()) {
            return Err(format!("the key does not hold a key of type {}", key_type.escape_default()));
        }
        Ok(Self { revoked, hosts: Hosts::parse(hosts)?, key_type, blob })
    }
}

impl Hosts {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(hashed) = text.strip_prefix("|1|") {
            let parts = hashed.split_once('|').and_then(|(salt, hash)| {
                let salt = base64(salt)?;
                let hash = base64(hash)?.try_into().ok()?;
                Some(Self::Hashed { salt, hash })
            });
            return parts.ok_or_else(|| "the hashed host is damaged; expected |1|salt|hash".to_owned());
        }
        text.split(',').map(Pattern::parse).collect::<Result<_, _>>().map(Self::Patterns)
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => hashed_name_matches(salt, hash, name),
            Self::Patterns(patterns) => {
                let mut matched = false;
                for pattern in patterns {
                    if glob(pattern.glob.as_bytes(), name.as_bytes()) {
                        if pattern.negated {
                            return false;
                        }
                        matched = true;
                    }
                }
                matched
            }
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if text.is_empty() {
            return Err("an empty host in the list; expected host[,host…]".to_owned());
        }
        let text = text.to_lowercase();
        let glob = match text.strip_prefix('[') {
            None => text,
            Some(rest) => {
                let (host, port) = rest
                    .split_once("]:")
                    .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)))
                    .filter(|(host, port)| !host.is_empty() && *port != 0)
                    .ok_or_else(|| "the host is damaged; expected [host]:port".to_owned())?;
                lookup_name(host, port)
            }
        };
        Ok(Self { negated, glob })
    }
}

/// The name OpenSSH files a host under: bare for port 22, `[host]:port` for any other.
fn lookup_name(host: &str, port: u16) -> String {
    let host = host.to_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

fn hashed_name_matches(salt: &[u8], hash: &[u8; 20], name: &str) -> bool {
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(salt) else {
        return false;
    };
    mac.update(name.as_bytes());
    mac.verify_slice(hash).is_ok()
}

/// `*` and `?` over bytes, without backtracking further than the last `*`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, at)) => {
                    star = Some((after, at + 1));
                    p = after;
                    t = at + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// The first length-prefixed string of an SSH key in wire form: its type.
fn wire_string(blob: &[u8]) -> Option<&[u8]> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// `SHA256:` and the unpadded base64 of the key's hash, as `ssh-keygen -l` prints it.
pub(crate) fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", BASE64_NOPAD.encode(&Sha256::digest(blob)))
}

#[cfg(test)]
mod tests;
