//! The states of a change set and the one table of moves between them.

use std::fmt;

/// Where a change set stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Waits for an approval.
    Planned,
    /// May be applied once.
    Approved,
    /// The approval is spent; a request may have been sent.
    Applying,
    /// Every step ended well.
    Applied,
    /// A step was refused or failed, or a later step was not started.
    Failed,
    /// Nobody can tell whether a step happened; a person looks and resolves.
    Unknown,
    /// Somebody said no.
    Rejected,
    /// Withdrawn.
    Cancelled,
    /// Nobody came in time.
    Expired,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Planned,
        Self::Approved,
        Self::Applying,
        Self::Applied,
        Self::Failed,
        Self::Unknown,
        Self::Rejected,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The state's name, as stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Approved => "approved",
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Planned, approved or applying: counts against the caps and blocks a second plan for the target.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Planned | Self::Approved | Self::Applying)
    }

    /// No move leaves this state.
    #[must_use]
    pub fn is_final(self) -> bool {
        !TABLE.iter().any(|(from, _, _)| *from == self)
    }

    /// Where `by` leads from here; `None` when it is not allowed.
    #[must_use]
    pub fn after(self, by: Move) -> Option<Self> {
        TABLE.iter().find(|(from, how, _)| *from == self && *how == by).map(|(_, _, to)| *to)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What can happen to a change set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Move {
    /// A second person agrees.
    Approve,
    /// Somebody says no.
    Reject,
    /// It is withdrawn.
    Cancel,
    /// Its time is up.
    Expire,
    /// A step's request is about to be sent; the first one spends the approval.
    Intend,
    /// A step's task handle is known.
    Dispatch,
    /// A step ended well, and another follows.
    EndStep,
    /// The last step ended well.
    Succeed,
    /// A step failed, or the next was not started.
    Fail,
    /// A step's outcome cannot be told.
    Lose,
    /// A person found that it had happened.
    ResolveApplied,
    /// A person found that it had not, or not all of it.
    ResolveFailed,
}

impl Move {
    /// Every move.
    pub const ALL: [Self; 12] = [
        Self::Approve,
        Self::Reject,
        Self::Cancel,
        Self::Expire,
        Self::Intend,
        Self::Dispatch,
        Self::EndStep,
        Self::Succeed,
        Self::Fail,
        Self::Lose,
        Self::ResolveApplied,
        Self::ResolveFailed,
    ];

    /// The move in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Reject => "rejected",
            Self::Cancel => "cancelled",
            Self::Expire => "expired",
            Self::Intend => "applied",
            Self::Dispatch => "given a task",
            Self::EndStep => "taken to its next step",
            Self::Succeed => "ended well",
            Self::Fail => "ended as failed",
            Self::Lose => "ended as unknown",
            Self::ResolveApplied => "resolved to applied",
            Self::ResolveFailed => "resolved to failed",
        }
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Every allowed move. What is not in here is refused: the code asks the table, the tests walk all pairs.
pub const TABLE: &[(State, Move, State)] = &[
    (State::Planned, Move::Approve, State::Approved),
    (State::Planned, Move::Reject, State::Rejected),
    (State::Planned, Move::Cancel, State::Cancelled),
    (State::Planned, Move::Expire, State::Expired),
    // The same approver once more; changes nothing.
    (State::Approved, Move::Approve, State::Approved),
    (State::Approved, Move::Reject, State::Rejected),
    (State::Approved, Move::Cancel, State::Cancelled),
    (State::Approved, Move::Expire, State::Expired),
    (State::Approved, Move::Intend, State::Applying),
    (State::Applying, Move::Intend, State::Applying),
    (State::Applying, Move::Dispatch, State::Applying),
    (State::Applying, Move::EndStep, State::Applying),
    (State::Applying, Move::Succeed, State::Applied),
    (State::Applying, Move::Fail, State::Failed),
    (State::Applying, Move::Lose, State::Unknown),
    (State::Unknown, Move::ResolveApplied, State::Applied),
    (State::Unknown, Move::ResolveFailed, State::Failed),
];
