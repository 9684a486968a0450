use std::fmt;

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskExit {
    /// `OK`, the only success.
    Ok,
    /// `WARNINGS: n`: it did what it was for, with so many warnings in its log that a person should see.
    Warnings(u64),
    /// Anything else: the error text, `unexpected status` of a worker that was killed included.
    Failed(String),
    /// PVE does not say how it ended; the text says why. Its log is gone or unreadable, so it may have done what it was for.
    Unstated(String),
}

/// What PVE answers as the exit status of a task whose log it cannot read.
const UNREADABLE: &str = "unable to get last line from task log";

impl TaskExit {
    /// Reads PVE's exit status.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text == "OK" {
            return Self::Ok;
        }
        if text.starts_with(UNREADABLE) {
            return Self::Unstated(text.to_owned());
        }
        let warnings = text
            .strip_prefix("WARNINGS: ")
            .filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|n| n.parse().ok());
        warnings.map_or_else(|| Self::Failed(text.to_owned()), Self::Warnings)
    }

    /// The exit of a task that no longer runs.
    pub(super) fn of_stopped(text: Option<&str>) -> Self {
        text.map_or_else(|| Self::Unstated("the task ended without an exit status".to_owned()), Self::parse)
    }

    /// Whether the task did what it was for, with or without warnings.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        matches!(self, Self::Ok | Self::Warnings(_))
    }
}

impl fmt::Display for TaskExit {
    /// As PVE writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("OK"),
            Self::Warnings(n) => write!(f, "WARNINGS: {n}"),
            Self::Failed(text) | Self::Unstated(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cs_30_only_ok_is_success() {
        assert_eq!(TaskExit::parse("OK"), TaskExit::Ok);
        assert_eq!(TaskExit::parse("WARNINGS: 3"), TaskExit::Warnings(3));
        for text in [
            "",
            "ok",
            "OK\n",
            " OK",
            "OK ",
            "WARNINGS",
            "WARNINGS: ",
            "WARNINGS: x",
            "WARNINGS: +1",
            "WARNINGS: 1\n",
            "WARNINGS:  1",
            "WARNINGS: 99999999999999999999999",
            "unexpected status",
            "interrupted by signal",
            "job errors",
            "VM is locked (backup)",
        ] {
            let exit = TaskExit::parse(text);
            assert_eq!(exit, TaskExit::Failed(text.to_owned()), "{text:?}");
            assert!(!exit.succeeded());
        }
        assert!(TaskExit::Ok.succeeded() && TaskExit::Warnings(1).succeeded());
    }

    #[test]
    fn cs_29_a_task_whose_end_pve_cannot_tell_is_neither_success_nor_failure() {
        let unreadable = "unable to get last line from task log - No such file or directory";
        for exit in [TaskExit::of_stopped(None), TaskExit::parse(unreadable)] {
            assert!(matches!(&exit, TaskExit::Unstated(_)) && !exit.succeeded(), "{exit:?}");
        }
    }
}
