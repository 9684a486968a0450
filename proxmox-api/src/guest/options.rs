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

/// Keys that are off or on, of both kinds of guest and of either.
const FLAGS: [&str; 3] = ["onboot", "protection", "template"];
const QEMU_FLAGS: &[&str] = &[
    "acpi",
    "allow-ksm",
    "autostart",
    "ciupgrade",
    "freeze",
    "keephugepages",
    "kvm",
    "localtime",
    "numa",
    "reboot",
    "tablet",
    "tdf",
];
const LXC_FLAGS: &[&str] = &["console", "debug", "unprivileged"];

/// Keys that are whole numbers, with the least; the most differs between versions of PVE.
const NUMBERS: [(GuestKind, &str, u64); 10] = [
    (GuestKind::Qemu, "balloon", 0),
    (GuestKind::Qemu, "cores", 1),
    (GuestKind::Qemu, "cpuunits", 1),
    (GuestKind::Qemu, "shares", 0),
    (GuestKind::Qemu, "sockets", 1),
    (GuestKind::Qemu, "vcpus", 1),
    (GuestKind::Lxc, "cores", 1),
    (GuestKind::Lxc, "memory", 16),
    (GuestKind::Lxc, "swap", 0),
    (GuestKind::Lxc, "tty", 0),
];

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
    let own = match kind {
        GuestKind::Qemu => QEMU_FLAGS,
        GuestKind::Lxc => LXC_FLAGS,
    };
    if (FLAGS.contains(&key) || own.contains(&key)) && !matches!(value, "0" | "1") {
        return refused("expected 0 or 1; PVE takes no other word for off and on");
    }
    if let Some((_, _, least)) = NUMBERS.iter().find(|(of, name, _)| *of == kind && *name == key) {
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        if !digits || value.parse::<u64>().is_ok_and(|number| number < *least) {
            return Err(Error::argument(key, format!("expected a whole number of at least {least}")));
        }
    }
    if key == "tags" { check_tags(value) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(kind: GuestKind, key: &str, value: &str) -> bool {
        check(kind, key, value).is_ok()
    }

    #[test]
    fn off_and_on_are_0_and_1() {
        for key in ["onboot", "protection", "kvm"] {
            assert!(takes(GuestKind::Qemu, key, "0") && takes(GuestKind::Qemu, key, "1"), "{key}");
            for odd in ["true", "yes", "on", "", "2", "01", " 1"] {
                assert!(!takes(GuestKind::Qemu, key, odd), "{key}={odd:?}");
            }
        }
        assert!(!takes(GuestKind::Lxc, "unprivileged", "yes"));
    }

    #[test]
    fn numbers_are_whole_and_not_too_small() {
        for (kind, key, value, taken) in [
            (GuestKind::Qemu, "cores", "1", true),
            (GuestKind::Qemu, "cores", "0", false),
            (GuestKind::Qemu, "cores", "-1", false),
            (GuestKind::Qemu, "cores", "1.5", false),
            (GuestKind::Qemu, "cores", "1e3", false),
            (GuestKind::Qemu, "balloon", "0", true),
            (GuestKind::Qemu, "memory", "current=2048", true),
            (GuestKind::Lxc, "memory", "16", true),
            (GuestKind::Lxc, "memory", "15", false),
            (GuestKind::Lxc, "memory", "current=2048", false),
            (GuestKind::Lxc, "swap", "0", true),
        ] {
            assert_eq!(takes(kind, key, value), taken, "{kind} {key}={value}");
        }
    }

    #[test]
    fn tags_are_words() {
        for list in ["", "a", "a;b", "A,b c", "_x", "1.2+3-4"] {
            assert!(takes(GuestKind::Lxc, "tags", list), "{list}");
        }
        for list in ["-a", "a;-b", "\u{e4}", "a/b", "a=b", "a\n"] {
            assert!(!takes(GuestKind::Lxc, "tags", list), "{list}");
        }
    }
}
