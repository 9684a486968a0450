//! What `doctor` found out, and how it is printed.

use serde_json::json;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Works, but not everything or not for long.
    Warning,
    /// Some tool will fail.
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    /// The cluster, when it is about one.
    pub(super) cluster: Option<String>,
    /// What was looked at: `tls`, `token`, `clock`, …
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
    /// What to do about it, commands as they are run.
    pub(super) fixes: Vec<String>,
}

impl Finding {
    pub(super) fn new_at(level: Level, check: &'static str, text: impl Into<String>) -> Self {
        Self { cluster: None, check, level, text: text.into(), fixes: Vec::new() }
    }

    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new_at(Level::Ok, check, text)
    }

    pub(super) fn warning(check: &'static str, text: impl Into<String>) -> Self {
        Self::new_at(Level::Warning, check, text)
    }

    pub(super) fn problem(check: &'static str, text: impl Into<String>) -> Self {
        Self::new_at(Level::Problem, check, text)
    }

    pub(super) fn fix(mut self, line: impl Into<String>) -> Self {
        self.fixes.push(line.into());
        self
    }

    pub(super) fn of(mut self, cluster: &str) -> Self {
        self.cluster = Some(cluster.to_owned());
        self
    }
}

/// For people: a line each, what to do indented below it, and a sum at the end.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let place = finding.cluster.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
        text.push_str(&format!("{:8}{place}{}: {}\n", finding.level.word(), finding.check, finding.text));
        for fix in &finding.fixes {
            text.push_str(&format!("        -> {fix}\n"));
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    text.push_str(&format!("{} problems, {} warnings\n", count(Level::Problem), count(Level::Warning)));
    text
}

/// For programs.
pub(super) fn json(findings: &[Finding]) -> String {
    let rows: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "cluster": finding.cluster,
                "check": finding.check,
                "level": finding.level.word(),
                "text": finding.text,
                "fixes": finding.fixes,
            })
        })
        .collect();
    let healthy = findings.iter().all(|finding| finding.level != Level::Problem);
    format!("{:#}\n", json!({"healthy": healthy, "findings": rows}))
}
