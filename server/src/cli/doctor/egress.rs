//! Whether systemd's `IPAddressDeny=` really keeps this server from private addresses when it fetches a URL (FU-22).
//!
//! The server's own address guard refuses them in any case; this is the second net. In an unprivileged container systemd
//! takes the setting, writes a line to the journal, and enforces nothing: attaching a BPF program to a control group needs
//! privileges over the host's kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::finding::Finding;

/// The unit that docs/configuration.md shows.
const UNIT: &str = "proxward.service";
/// What a process outside any user namespace reads in its `uid_map`.
const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];

/// What is known of this machine.
#[derive(Debug)]
struct Machine {
    /// `IPAddressDeny` of the unit as systemd has it; `None` where systemd cannot be asked.
    denied: Option<String>,
    /// Whether all user ids are the host's own; `None` where that cannot be read.
    privileged: Option<bool>,
    /// Whether control groups are version 2 throughout, which the filter needs.
    unified: bool,
}

impl Machine {
    fn look(root: &Path, unit: &str) -> Self {
        let map = fs::read_to_string(root.join("proc/self/uid_map")).ok();
        Self {
            denied: root.join("run/systemd/system").exists().then(|| denied(unit)).flatten(),
            privileged: map.map(|map| map.split_whitespace().eq(ALL_IDS)),
            unified: root.join("sys/fs/cgroup/cgroup.controllers").exists(),
        }
    }
}

/// What systemd says of the unit.
fn denied(unit: &str) -> Option<String> {
    let output =
        Command::new("systemctl").args(["show", "--property=IPAddressDeny", "--value", unit]).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// One finding: ENFORCED, NOT or UNKNOWN.
pub(super) fn examine() -> Finding {
    judge(&Machine::look(Path::new("/"), UNIT))
}

fn judge(machine: &Machine) -> Finding {
    let guard = "the server's own address guard refuses private addresses all the same";
    match (machine.denied.as_deref(), machine.privileged, machine.unified) {
        (None, ..) => Finding::ok(
            "egress",
            format!("UNKNOWN: systemd cannot be asked about IPAddressDeny of {UNIT}; {guard}"),
        ),
        (Some(""), ..) => {
            Finding::ok("egress", format!("NOT: {UNIT} sets no IPAddressDeny; {guard}"))
        }
        (Some(_), Some(false), _) => Finding::warning(
            "egress",
            format!(
                "NOT: {UNIT} sets IPAddressDeny, but in an unprivileged container systemd cannot enforce it; {guard}"
            ),
        )
        .fix("filter on the host: a PVE firewall rule on this container that drops its traffic to private addresses"),
        (Some(_), _, false) => Finding::warning(
            "egress",
            format!("NOT: {UNIT} sets IPAddressDeny, but this system has no unified control groups; {guard}"),
        ),
        (Some(_), None, true) => Finding::ok(
            "egress",
            format!("UNKNOWN: {UNIT} sets IPAddressDeny; whether this is an unprivileged container cannot be read; {guard}"),
        ),
        (Some(denied), Some(true), true) => {
            Finding::ok("egress", format!("ENFORCED: systemd keeps {UNIT} from {denied}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn fu_22_doctor_says_whether_the_second_net_holds() {
        let machine = |denied: Option<&str>, privileged, unified| Machine {
            denied: denied.map(str::to_owned),
            privileged,
            unified,
        };
        for (machine, word, level) in [
            (machine(None, Some(true), true), "UNKNOWN", Level::Ok),
            (machine(Some(""), Some(false), true), "NOT", Level::Ok),
            (machine(Some("10.0.0.0/8"), Some(false), true), "NOT", Level::Warning),
            (machine(Some("10.0.0.0/8"), Some(true), false), "NOT", Level::Warning),
            (machine(Some("10.0.0.0/8"), None, true), "UNKNOWN", Level::Ok),
            (machine(Some("10.0.0.0/8"), Some(true), true), "ENFORCED", Level::Ok),
        ] {
            let finding = judge(&machine);
            assert!(finding.text.starts_with(&format!("{word}: ")), "{machine:?}: {}", finding.text);
            assert_eq!(finding.level, level, "{machine:?}");
            assert_eq!(finding.text.contains("address guard"), word != "ENFORCED");
        }
    }

    #[test]
    fn fu_22_an_unprivileged_container_is_told_by_its_ids() {
        let root = tempfile::tempdir().unwrap();
        let look = || Machine::look(root.path(), UNIT);
        assert!(look().privileged.is_none() && !look().unified && look().denied.is_none());
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cgroup.controllers"), "cpu io\n").unwrap();
        for (map, privileged) in [
            ("         0          0 4294967295\n", true),
            ("         0     100000      65536\n", false),
            ("0 0 65536\n65536 100000 65536\n", false),
        ] {
            fs::write(root.path().join("proc/self/uid_map"), map).unwrap();
            assert_eq!((look().privileged, look().unified), (Some(privileged), true), "{map}");
        }
    }
}
