//! One step of a plan, and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

/// One mutation: an operation's name and its arguments, all as text.
///
/// Arguments are strings only, so that no number has two spellings (`1` and `1.0`) and the digest has one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The operation, a name the embedder's dispatcher knows.
    pub op: String,
    /// Arguments by name.
    pub params: BTreeMap<String, String>,
    /// The step in words, for people.
    pub summary: String,
    /// Fingerprint fields this step changes when it succeeds (a snapshot moves the config digest). Later steps
    /// of the same set do not compare them; the first step compares every field.
    pub moves: BTreeSet<String>,
}

impl Step {
    /// A step that moves no fingerprint field.
    pub fn new<K: Into<String>, V: Into<String>>(
        op: impl Into<String>,
        params: impl IntoIterator<Item = (K, V)>,
        summary: impl Into<String>,
    ) -> Self {
        Self {
            op: op.into(),
            params: params.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            summary: summary.into(),
            moves: BTreeSet::new(),
        }
    }

    /// Names the fingerprint fields this step moves.
    #[must_use]
    pub fn moving<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Self {
        self.moves.extend(fields.into_iter().map(Into::into));
        self
    }
}

/// The durable record that a step's one request is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// When the intent was formed.
    pub at: Timestamp,
    /// Where the request goes, so that a lost task is looked for there.
    pub node: String,
    /// Handles of the tasks that were known before the request: whatever is in here is not ours.
    pub watermark: BTreeSet<String>,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// Ended well.
    Ok,
    /// Ended well, with this many warnings.
    OkWithWarnings(u64),
    /// Refused or failed; the text is the peer's.
    Failed(String),
    /// Nobody can tell whether it happened.
    Unknown(UnknownCause),
}

impl StepOutcome {
    /// Whether the next step may start.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok | Self::OkWithWarnings(_))
    }
}

/// Why a step's outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownCause {
    /// Several new tasks match the intent.
    Ambiguous(u64),
    /// No new task matches the intent, after the settling time.
    NotFound,
    /// The task was known and is no longer to be read.
    TaskLost(String),
    /// The tasks could not be read until the look-up gave up.
    Unreadable(String),
}

impl UnknownCause {
    /// A stable word for the cause.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ambiguous(_) => "ambiguous",
            Self::NotFound => "not_found",
            Self::TaskLost(_) => "task_lost",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for UnknownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous(n) => write!(f, "{n} new tasks match the request, expected exactly one"),
            Self::NotFound => f.write_str("no new task matches the request; it may or may not have run"),
            Self::TaskLost(why) => write!(f, "the task can no longer be read: {why}"),
            Self::Unreadable(why) => write!(f, "the task list could not be read: {why}"),
        }
    }
}

/// What is durable about one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// Set once, before the request is sent.
    pub intent: Option<Intent>,
    /// The task handle, set once, as soon as it is known.
    pub handle: Option<String>,
    /// Set once, when the step has ended.
    pub outcome: Option<StepOutcome>,
}
