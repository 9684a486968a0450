//! Telling the running server that the file has changed.

use std::path::PathBuf;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::args::STATE_DIR;
use crate::state_dir::StateDir;

/// Whom to tell.
#[derive(Debug, Clone, Args)]
pub struct Told {
    /// The state directory of the server that is told to read its files again.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,

    /// Tell nobody; the change counts from the server's next reload on.
    #[arg(long)]
    pub no_reload: bool,
}

/// How the telling went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Telling {
    /// This process was sent SIGHUP.
    Sent(u32),
    /// No server runs on the state directory.
    NobodyRuns,
    /// It was not told, for this reason.
    NotTold(String),
}

impl Told {
    /// Tells the server, if one runs.
    pub fn tell(&self) -> Telling {
        if self.no_reload {
            return Telling::NotTold("--no-reload was given".to_owned());
        }
        match StateDir::new(&self.state_dir).holder() {
            Ok(None) => Telling::NobodyRuns,
            Ok(Some(pid)) => hang_up(pid),
            Err(error) => Telling::NotTold(format!("{}: {error}", self.state_dir.display())),
        }
    }

    /// What to say about it: whether the change counts by now.
    pub fn report(&self, telling: &Telling) -> String {
        match telling {
            Telling::Sent(pid) => format!(
                "The running server (process {pid}) has been told to read its files again. It takes them only if all of them \
                 are sound: `/readyz` says `degraded`, and its log says why, if it did not."
            ),
            Telling::NobodyRuns => format!(
                "No server runs on {}. If one runs with another --state-dir, it has NOT been told: send it SIGHUP.",
                self.state_dir.display()
            ),
            Telling::NotTold(why) => format!(
                "A running server has NOT been told ({why}): until it reloads (SIGHUP, or `systemctl reload proxward`) it goes by \
                 the old file."
            ),
        }
    }
}

fn hang_up(pid: u32) -> Telling {
    // A process that does not catch the signal would be ended by it: a person's own `proxward change`, which also holds
    // the directory while it works.
    if !catches_hangup(pid) {
        return Telling::NotTold(format!("process {pid} holds the state directory and is no server"));
    }
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Telling::NotTold(format!("{pid} is no process"));
    };
    match kill_process(process, Signal::HUP) {
        Ok(()) => Telling::Sent(pid),
        Err(error) => Telling::NotTold(format!("process {pid} cannot be signalled: {error}")),
    }
}

/// Whether a process handles SIGHUP, by the mask of caught signals in its status.
fn catches_hangup(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_would_die_of_it_is_not_sent_the_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!catches_hangup(child.id()));
        assert!(matches!(hang_up(child.id()), Telling::NotTold(why) if why.contains("is no server")));
        assert_eq!(child.try_wait().unwrap(), None, "it still runs");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!catches_hangup(u32::MAX));
    }

    #[test]
    fn where_no_server_runs_nobody_is_told_and_it_says_so() {
        let root = tempfile::tempdir().unwrap();
        let told = |name: &str, no_reload| Told { state_dir: root.path().join(name), no_reload };
        assert_eq!(told("absent", false).tell(), Telling::NobodyRuns);
        let lock = StateDir::new(root.path().join("state")).lock().unwrap();
        drop(lock);
        assert_eq!(told("state", false).tell(), Telling::NobodyRuns);
        let report = told("state", false).report(&Telling::NobodyRuns);
        assert!(report.contains("NOT been told"), "{report}");
        let lock = StateDir::new(root.path().join("state")).lock().unwrap();
        // This test holds it and does not catch the signal.
        assert!(matches!(told("state", false).tell(), Telling::NotTold(why) if why.contains("is no server")));
        assert!(matches!(told("state", true).tell(), Telling::NotTold(why) if why.contains("--no-reload")));
        drop(lock);
    }
}
