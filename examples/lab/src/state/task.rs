//! Worker tasks and their UPIDs.

/// How a worker ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskExit {
    /// `OK`.
    Ok,
    /// `WARNINGS: n`: the effect happened.
    Warnings(u32),
    /// An error text: no effect.
    Failed(String),
}

impl TaskExit {
    /// The text in `exitstatus`.
    pub(crate) fn status(&self) -> String {
        match self {
            TaskExit::Ok => "OK".to_owned(),
            TaskExit::Warnings(count) => format!("WARNINGS: {count}"),
            TaskExit::Failed(text) => text.clone(),
        }
    }
}

/// One task.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) upid: String,
    pub(crate) node: String,
    pub(crate) kind: String,
    pub(crate) id: String,
    /// `root@pam`, without the token.
    pub(crate) user: String,
    pub(crate) tokenid: Option<String>,
    pub(crate) pid: u32,
    pub(crate) pstart: u32,
    pub(crate) starttime: i64,
    /// End time and status.
    pub(crate) end: Option<(i64, String)>,
    pub(crate) log: Vec<String>,
}

impl Task {
    /// A running task. `who` is `user@realm` or `user@realm!token`.
    pub(crate) fn new(
        node: &str,
        (pid, pstart): (u32, u32),
        starttime: i64,
        kind: &str,
        id: &str,
        who: &str,
    ) -> Task {
        let (user, tokenid) = match who.split_once('!') {
            Some((user, token)) => (user, Some(token.to_owned())),
            None => (who, None),
        };
        Task {
            upid: format!("UPID:{node}:{pid:08X}:{pstart:08X}:{starttime:08X}:{kind}:{id}:{who}:"),
            node: node.to_owned(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: user.to_owned(),
            tokenid,
            pid,
            pstart,
            starttime,
            end: None,
            log: Vec::new(),
        }
    }

    /// Ends it with an exit status and writes the log's last line.
    pub(crate) fn finish(&mut self, at: i64, status: String) {
        self.log.push(match status.as_str() {
            "OK" => "TASK OK".to_owned(),
            warnings if warnings.starts_with("WARNINGS: ") => format!("TASK {warnings}"),
            error => format!("TASK ERROR: {error}"),
        });
        self.end = Some((at, status));
    }

    pub(crate) fn is_running(&self) -> bool {
        self.end.is_none()
    }
}

/// Whether a text has the form of a UPID.
pub(crate) fn looks_like_upid(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let hex = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match parts.as_slice() {
        ["UPID", node, pid, pstart, starttime, kind, _id, user, ""] => {
            !node.is_empty()
                && hex(pid, 8..=8)
                && hex(pstart, 8..=9)
                && hex(starttime, 8..=8)
                && !kind.is_empty()
                && !kind.contains(['/', ' '])
                && !user.is_empty()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_upid_of_a_token_splits_into_user_and_token() {
        let task = Task::new("pve1", (0x7cf2, 0x41584), 0x6b0c_e067, "qmstart", "102", "root@pam!full");
        assert_eq!(task.upid, "UPID:pve1:00007CF2:00041584:6B0CE067:qmstart:102:root@pam!full:");
        assert_eq!((task.user.as_str(), task.tokenid.as_deref()), ("root@pam", Some("full")));
        assert!(looks_like_upid(&task.upid));
        assert!(!looks_like_upid("garbage"));
        assert!(!looks_like_upid("UPID:x"));
    }
}
