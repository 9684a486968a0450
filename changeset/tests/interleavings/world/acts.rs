//! What can happen in a world, and what must hold in it, by name.

/// What must hold after every step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Invariant {
    Once,
    Approved,
    TwoPeople,
    NoWayBack,
    Survives,
    IntentFirst,
    AuditFirst,
    FreshFacts,
    Truth,
    Lawful,
}

impl Invariant {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Once => "I1: a step is sent at most once, and only after the one before ended well",
            Self::Approved => {
                "I2: what is sent has a durable, genuine approval of the plan that was agreed to"
            }
            Self::TwoPeople => {
                "I3: the approver is a human, another person than the planner, and both still stand"
            }
            Self::NoWayBack => "I4: nothing leaves a final state, and `unknown` is left by a person alone",
            Self::Survives => "I5: what a caller was told survives the crash",
            Self::IntentFirst => "I6: an intent with a watermark is durable before anything is sent",
            Self::AuditFirst => "I7: the attempt is on record before it is sent",
            Self::FreshFacts => "I8: each step is decided on facts read after the apply began",
            Self::Truth => "what has ended well did happen, and what failed did not",
            Self::Lawful => "every successor that the machines make is lawful",
        }
    }
}

/// What some path must reach, or the model would say nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Happened {
    RaceLost,
    Adopted,
    Recovered,
    Resolved,
    Stopped,
    WriteFailed,
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Plan,
    Approve(By),
    Reject,
    Cancel,
    Expire,
    Apply,
    Resolve { applied: bool },
}

/// Who approves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Olga,
    /// The planner's own token for people.
    Planner,
    Agent,
    /// Olga, with the digest of another plan.
    OlgaOfAnother,
}

/// How what a machine or a writer asked for turns out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As it should, and as the world is.
    Well,
    /// The task fails; the request is refused.
    Badly,
    /// It cannot be read; the write fails before anything is written.
    Unreadable,
    /// The write is done and reported as failed.
    DoneAndReportedFailed,
    /// The request arrives, its answer does not.
    LostAfter,
    /// The request is lost.
    LostBefore,
    /// Somebody else's task looks like ours.
    Ambiguous,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    ApproverRevoked,
    PlannerRevoked,
    GuestMoved,
    GuestProtected,
}

/// One step of the world. Slots 0 and 1 are the callers, the rest recoveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Begin(usize, Call, u8),
    Go(usize, Turn),
    Reload(Change),
    Wait,
    Crash,
}
