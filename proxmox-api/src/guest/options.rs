//! What is checked in keys and values of a guest's configuration before they are sent. PVE knows its own keys, and
//! each version others; what is refused here could not arrive as it was meant.

use super::GuestKind;
use crate::error::Error;

/// Parameters of the calls that are no keys of a configuration. Each is sent by its own method or not at all.
const NOT_KEYS: [&str; 16] = [
    "archive",
    "background_delay",
    "delete",
    "digest",
    "force",
    "live-restore",
    "lock",
    "node",
    "ostemplate",
    "parent",
    "restore",
    "revert",
    "skiplock",
    "snaptime",
    "unique",
    "vmid",
];

/// Keys that take text of several lines.
const PROSE: [&str; 2] = ["description", "ssh-public-keys"];

/// Keys whose empty value means something.
const EMPTY_IS_A_VALUE: [&str; 2] = ["description", "tags"];

/// Refuses what is no key of a configuration.
pub(super) fn check_key(key: &str) -> Result<(), Error> {
    let shape = (2..=64).contains(&key.len())
        && key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    if !shape {
        let shown: String = key.escape_debug().take(64).collect();
        return Err(Error::argument(&shown, "no key of a configuration: small letters, digits, `-` and `_`"));
    }
    if NOT_KEYS.contains(&key) {
        return Err(Error::argument(
            key,
            "not a key of a configuration; the method for it sends it, if there is one",
        ));
    }
    Ok(())
}

/// Refuses a key with a value that could not arrive as it was meant.
pub(super) fn check(kind: GuestKind, key: &str, value: &str) -> Result<(), Error> {
    check_key(key)?;
    let refused = |problem: &str| Err(Error::argument(key, problem));
    if value.is_empty() && !EMPTY_IS_A_VALUE.contains(&key) {
        return refused("empty; unset the key instead");
    }
    let lines = PROSE.contains(&key);
    if value.chars().any(|c| c.is_control() && !(lines && matches!(c, '\n' | '\t'))) {
        return refused("control characters");
    }
    match (kind, key) {
        (_, "tags") => check_tags(value),
        (GuestKind::Lxc, "unprivileged") if value != "0" && value != "1" => refused("expected 0 or 1"),
        _ => Ok(()),
    }
}

/// Refuses a tag list PVE would refuse.
fn check_tags(list: &str) -> Result<(), Error> {
    let tag = |tag: &str| {
        tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'.'))
    };
    match list.split([';', ',', ' ']).filter(|part| !part.is_empty()).find(|part| !tag(part)) {
        None => Ok(()),
        Some(odd) => {
            let odd: String = odd.escape_debug().take(64).collect();
            let expected = "letters, digits, `_`, `-`, `+` and `.`, the first a letter, digit or `_`";
            Err(Error::argument("tags", format!("`{odd}` is no tag: {expected}")))
        }
    }
}
