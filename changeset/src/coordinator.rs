//! Applying an approved set: a machine without IO.
//!
//! [`Apply`] is told what happened ([`Event`]) and answers what to do next ([`Effect`]). The embedder does it and
//! tells the result. For each step the effects come in this order:
//!
//! 1. [`Effect::ResolveAndDecide`]: fetch the target fresh, check grant, protection and tokens;
//! 2. [`Effect::Watermark`]: list the tasks that are known already;
//! 3. [`Effect::Persist`] with [`Mark::Intent`]: compare-and-swap; for the first step this spends the approval;
//! 4. [`Effect::Send`] with the [`DispatchPermit`], which exists only in answer to [`Event::Persisted`];
//! 5. [`Effect::Persist`] with [`Mark::Handle`], [`Effect::Follow`], [`Effect::Persist`] with [`Mark::End`].
//!
//! Up to 3 the machine may be dropped at any moment and nothing has happened. From 4 on it must be driven to its
//! [`Effect::Finish`]; if the process dies, [`Recover`](crate::Recover) takes over at the next start.
//!
//! A send that may or may not have arrived ([`SendResult::Unknown`]) is never sent again: the machine asks for
//! the tasks that are new since the watermark ([`Effect::FindTask`]) and follows the one that matches, or ends as
//! unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::approval::ApprovalKey;
use crate::set::TransitionError;
use crate::tail::{Tail, TailStep};
use crate::{Actor, ApprovalKind, ChangeSet, ChangeSetId, Fingerprint, Intent, State, Step, Target};

/// What the embedder does next.
#[derive(Debug)]
pub enum Effect {
    /// Look for the task of a request that may have arrived; answer [`Event::Found`] or [`Event::Unavailable`]. For an
    /// operation that has no task, look at the target instead and answer [`Event::Observed`].
    FindTask(Lookup),
    /// The machine is done; tell the caller.
    Finish(Finish),
    /// Wait for the task to end; answer [`Event::Task`].
    Follow {
        /// The step, from 0.
        step: usize,
        /// The task's handle.
        handle: String,
    },
    /// [`Store::replace_if`](crate::Store::replace_if) this set over that version; answer [`Event::Persisted`] for
    /// `Ok(true)`, [`Event::Conflict`] for `Ok(false)`, [`Event::PersistFailed`] for an error.
    Persist {
        /// The set to store.
        set: Box<ChangeSet>,
        /// The version it replaces.
        expected_version: u64,
        /// What the write means. An audit record of the attempt belongs before [`Mark::Intent`].
        mark: Mark,
    },
    /// The machine is done before anything was sent; the set is as it was. Tell the caller.
    Refuse(ApplyRefusal),
    /// Fetch the target's facts fresh, decide, and check both tokens; answer [`Event::Decided`],
    /// [`Event::Denied`] or [`Event::Unavailable`].
    ResolveAndDecide {
        /// The step, from 0.
        step: usize,
    },
    /// Send the step's one request, without any retry; answer [`Event::Sent`].
    Send {
        /// The step, from 0.
        step: usize,
        /// The right to do so, once. It carries the step that was approved.
        permit: DispatchPermit,
    },
    /// List the tasks known on the target's node; answer [`Event::Watermark`] or [`Event::Unavailable`].
    Watermark {
        /// The step, from 0.
        step: usize,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The store holds another version: somebody was faster.
    Conflict,
    /// The target as it is now, and whether both people's tokens still stand.
    Decided {
        /// The target's facts now.
        fingerprint: Fingerprint,
        /// The approver's token exists, is unexpired and may still approve this. For an approval by lab mode:
        /// whether the server still runs in lab mode.
        approver_valid: bool,
        /// The planner's token exists, is unexpired and may still do this.
        planner_valid: bool,
    },
    /// Authorization or protection refuses now; the text is for the caller.
    Denied(String),
    /// Handles of tasks of the right kind, target and user. Known ones may be among them.
    Found(Vec<String>),
    /// The operation has no task, and the target was looked at: whether it is exactly as the operation makes it. That it
    /// is not proves nothing, for the request may still be under way.
    Observed {
        /// It is.
        as_asked: bool,
    },
    /// The store failed; it may or may not have written.
    PersistFailed(String),
    /// The write is durable.
    Persisted,
    /// How the send went.
    Sent(SendResult),
    /// How the task ended.
    Task(TaskEnd),
    /// What was asked for could not be read; the text is for the caller.
    Unavailable(String),
    /// Tasks known before the request, and the node it will go to.
    Watermark {
        /// Their handles.
        tasks: Vec<String>,
        /// The node, freshly resolved.
        node: String,
    },
}

/// How a step's one request went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendResult {
    /// Accepted; the task's handle.
    Handle(String),
    /// Certainly not done: never sent, or answered with a refusal.
    Refused(String),
    /// Done, without a task.
    Synchronous,
    /// It may have arrived: a transport error after the first byte, a timeout, an answer that makes no sense.
    Unknown(String),
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    /// With a failure; PVE's text.
    Failed(String),
    /// It can no longer be read, and waiting was given up.
    Lost(String),
    /// Well.
    Ok,
    /// Well, with warnings.
    Warnings(u64),
}

impl TaskEnd {
    /// Reads PVE's `exitstatus`. Only `OK` is success and `WARNINGS: n` success with warnings; every other text,
    /// also an empty one, is a failure.
    #[must_use]
    pub fn from_exit_status(text: &str) -> Self {
        if text == "OK" {
            return Self::Ok;
        }
        match text.strip_prefix("WARNINGS: ") {
            Some(n) if n.bytes().all(|b| b.is_ascii_digit()) => {
                n.parse().map_or_else(|_| Self::Failed(text.to_owned()), Self::Warnings)
            }
            _ => Self::Failed(text.to_owned()),
        }
    }
}

/// What a [`Effect::Persist`] makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The set has ended.
    End,
    /// A step's task handle.
    Handle,
    /// A step's intent; nothing was sent for it yet.
    Intent,
    /// A step ended well and another follows.
    StepEnd,
}

/// What to look for when a request's fate is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The set.
    pub id: ChangeSetId,
    /// What it acts on.
    pub target: Target,
    /// The step, from 0.
    pub step: usize,
    /// The step's operation: it decides the kind of task.
    pub op: String,
    /// Where the request went.
    pub node: String,
    /// Tasks that are not ours. The machine leaves them out too, so filtering by it is not needed.
    pub watermark: BTreeSet<String>,
    /// When the intent was formed.
    pub since: Timestamp,
    /// Read the tasks at this moment, not before: a task may show up late, and one answer decides.
    pub not_before: Timestamp,
}

/// How long a lost task is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From the start of the look-up to the reading that decides. Default 30 s.
    pub settle: Duration,
    /// From the start of the look-up until an unreadable task list makes the outcome unknown. Default 15 min.
    pub give_up: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { settle: Duration::from_secs(30), give_up: Duration::from_secs(15 * 60) }
    }
}

/// How an apply or a recovery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// The set in its last state.
    pub set: Box<ChangeSet>,
    /// What could not be stored on the way. When present, the store holds an earlier state, and recovery will
    /// look at the set again.
    pub problem: Option<String>,
}

/// The right to send one step's request, once.
///
/// It has no public constructor, cannot be cloned or stored, and comes only from [`Apply`] in answer to
/// [`Event::Persisted`] for that step's intent. Build the request from what it carries: that is what was approved.
#[derive(Debug)]
pub struct DispatchPermit {
    set: ChangeSetId,
    target: Target,
    index: usize,
    step: Step,
    node: String,
    fingerprint: Fingerprint,
}

impl DispatchPermit {
    /// The set.
    #[must_use]
    pub fn set(&self) -> ChangeSetId {
        self.set
    }

    /// What to act on.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The step's number, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The step that was approved.
    #[must_use]
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// The target's facts at plan time, for a condition that the request itself can carry.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The node named in the durable intent.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }
}

/// Why nothing was sent. Exhaustive on purpose: a new reason must be met by every embedder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyRefusal {
    /// Another apply has it.
    #[error("already being applied: read its state instead of applying again")]
    AlreadyApplying,
    /// The approval is not one this server recorded for exactly this plan.
    #[error("the approval does not fit the plan under the present key: cancel the set and plan again")]
    ApprovalVoid,
    /// Whoever applied it left before anything was sent.
    #[error("the caller left before anything was sent: the set stays approved, apply it again")]
    CallerGone,
    /// The approver's token is gone, or lab mode is off again.
    #[error(
        "the approval by `{approver}` no longer stands: its token was revoked, has expired or lost its rights"
    )]
    ApproverInvalid {
        /// The approver's token name.
        approver: String,
    },
    /// Somebody was faster.
    #[error("the set was changed by somebody else meanwhile: read its state")]
    Conflict,
    /// Authorization or protection refuses now.
    #[error("{0}")]
    Denied(String),
    /// Too late.
    #[error("expired at {at}: plan again")]
    Expired {
        /// The deadline.
        at: Timestamp,
    },
    /// The target is not as it was planned for.
    #[error("the target has changed since the plan ({}): plan again", .fields.join(", "))]
    FingerprintMoved {
        /// Names of the fields that moved.
        fields: Vec<String>,
    },
    /// A planned, ended or unknown set.
    #[error("a set that is {state} cannot be applied")]
    NotApproved {
        /// Where it stands.
        state: State,
    },
    /// The planner's token is gone.
    #[error(
        "the plan by `{planner}` no longer stands: its token was revoked, has expired or lost its rights"
    )]
    PlannerInvalid {
        /// The planner's token name.
        planner: String,
    },
    /// Another set is being applied to the same target.
    #[error(
        "another change set ({}) is being applied to the same target: wait for its end, then apply again",
        .by.map_or_else(|| "of which nothing more is known".to_owned(), |by| by.to_string())
    )]
    TargetBusy {
        /// The other set.
        by: Option<ChangeSetId>,
    },
    /// The intent could not be made durable.
    #[error("the store could not record the intent, so nothing was sent: {0}")]
    StoreFailed(String),
    /// Facts or tasks could not be read.
    #[error("nothing was sent, because the target could not be read: {0}")]
    Unavailable(String),
}

impl ApplyRefusal {
    /// A stable word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::AlreadyApplying => "already_applying",
            Self::ApprovalVoid => "approval_void",
            Self::ApproverInvalid { .. } => "approver_invalid",
            Self::CallerGone => "client_gone",
            Self::Conflict => "conflict",
            Self::Denied(_) => "denied",
            Self::Expired { .. } => "expired",
            Self::FingerprintMoved { .. } => "fingerprint_moved",
            Self::NotApproved { .. } => "not_approved",
            Self::PlannerInvalid { .. } => "planner_invalid",
            Self::StoreFailed(_) => "store_failed",
            Self::TargetBusy { .. } => "target_busy",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// The event does not answer the last effect. The machine is as it was and still waits for the right one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the event does not answer the last effect: the machine waits for {expected}")]
pub struct OutOfOrder {
    /// What it waits for.
    pub expected: &'static str,
}

/// One apply of one set.
#[derive(Debug)]
pub struct Apply {
    applier: Actor,
    key: ApprovalKey,
    timing: Timing,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Waits for the decision about `step`.
    Deciding { set: ChangeSet, step: usize },
    /// Waits for the watermark.
    Marking { set: ChangeSet, step: usize },
    /// Waits for the intent to be durable.
    Intending { before: ChangeSet, set: ChangeSet, step: usize, intent: Intent },
    /// Sent, or ending.
    Tail(Tail),
    /// Refused.
    Done,
}

impl Apply {
    /// Starts: checks state, deadline and the approval's HMAC, and asks for facts.
    #[must_use]
    pub fn begin(
        set: ChangeSet,
        applier: Actor,
        key: &ApprovalKey,
        timing: Timing,
        now: Timestamp,
    ) -> (Self, Effect) {
        let refusal = Self::refusal(&set, key, now);
        let phase = match &refusal {
            Some(_) => Phase::Done,
            None => Phase::Deciding { set, step: 0 },
        };
        let effect = refusal.map_or(Effect::ResolveAndDecide { step: 0 }, Effect::Refuse);
        (Self { applier, key: key.clone(), timing, phase }, effect)
    }

    fn refusal(set: &ChangeSet, key: &ApprovalKey, now: Timestamp) -> Option<ApplyRefusal> {
        match (set.state(), set.approval()) {
            (State::Applying, _) => Some(ApplyRefusal::AlreadyApplying),
            (State::Approved, Some(approval)) => {
                if now >= approval.expires() {
                    Some(ApplyRefusal::Expired { at: approval.expires() })
                } else if !approval.is_genuine(set.plan(), key) {
                    Some(ApplyRefusal::ApprovalVoid)
                } else {
                    None
                }
            }
            (State::Approved, None) => Some(ApplyRefusal::ApprovalVoid),
            (state, _) => Some(ApplyRefusal::NotApproved { state }),
        }
    }

    /// Whether the machine may be dropped without leaving anything behind.
    #[must_use]
    pub fn nothing_sent(&self) -> bool {
        match &self.phase {
            Phase::Deciding { step, .. } | Phase::Marking { step, .. } => *step == 0,
            Phase::Done => true,
            Phase::Intending { .. } | Phase::Tail(_) => false,
        }
    }

    /// Takes what happened, answers what to do next.
    ///
    /// # Errors
    /// The event does not answer the last effect; the machine has not moved.
    pub fn on(&mut self, event: Event, now: Timestamp) -> Result<Effect, OutOfOrder> {
        // `Done` stands in while the phase is moved out; every path below puts one back.
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Deciding { set, step } => self.on_decision(set, step, event, now),
            Phase::Marking { set, step } => self.on_watermark(set, step, event, now),
            Phase::Intending { before, set, step, intent } => {
                self.on_intent(before, set, step, intent, event, now)
            }
            Phase::Tail(mut tail) => {
                let step = tail.on(event, now);
                let effect = match step {
                    Ok(TailStep::Do(effect)) => Ok(effect),
                    Ok(TailStep::Next { set, step }) => {
                        self.phase = Phase::Deciding { set, step };
                        return Ok(Effect::ResolveAndDecide { step });
                    }
                    Err(error) => Err(error),
                };
                self.phase = Phase::Tail(tail);
                effect
            }
            Phase::Done => Err(OutOfOrder { expected: "nothing: it is done" }),
        }
    }

    fn on_decision(
        &mut self,
        set: ChangeSet,
        step: usize,
        event: Event,
        now: Timestamp,
    ) -> Result<Effect, OutOfOrder> {
        let (fingerprint, approver_valid, planner_valid) = match event {
            Event::Decided { fingerprint, approver_valid, planner_valid } => {
                (fingerprint, approver_valid, planner_valid)
            }
            Event::Denied(why) => return Ok(self.refuse(set, step, ApplyRefusal::Denied(why), now)),
            Event::Unavailable(why) => {
                return Ok(self.refuse(set, step, ApplyRefusal::Unavailable(why), now));
            }
            _ => {
                self.phase = Phase::Deciding { set, step };
                return Err(OutOfOrder { expected: "the decision" });
            }
        };
        let moved_by_us: BTreeSet<&String> =
            set.plan().steps().iter().take(step).flat_map(|earlier| &earlier.moves).collect();
        let mut fields = set.plan().fingerprint().diff(&fingerprint);
        fields.retain(|field| !moved_by_us.contains(field));
        let refusal = if !planner_valid {
            Some(ApplyRefusal::PlannerInvalid { planner: set.plan().planner().token.clone() })
        } else if !approver_valid {
            Some(ApplyRefusal::ApproverInvalid { approver: approver_name(&set) })
        } else if !fields.is_empty() {
            Some(ApplyRefusal::FingerprintMoved { fields })
        } else {
            None
        };
        Ok(match refusal {
            Some(refusal) => self.refuse(set, step, refusal, now),
            None => {
                self.phase = Phase::Marking { set, step };
                Effect::Watermark { step }
            }
        })
    }

    fn on_watermark(
        &mut self,
        set: ChangeSet,
        step: usize,
        event: Event,
        now: Timestamp,
    ) -> Result<Effect, OutOfOrder> {
        let (tasks, node) = match event {
            Event::Watermark { tasks, node } => (tasks, node),
            Event::Denied(why) => return Ok(self.refuse(set, step, ApplyRefusal::Denied(why), now)),
            Event::Unavailable(why) => {
                return Ok(self.refuse(set, step, ApplyRefusal::Unavailable(why), now));
            }
            _ => {
                self.phase = Phase::Marking { set, step };
                return Err(OutOfOrder { expected: "the watermark" });
            }
        };
        let intent = Intent { at: now, node, watermark: tasks.into_iter().collect() };
        Ok(match set.intend(step, intent.clone(), &self.applier, &self.key, now) {
            Ok(next) => {
                let effect = Effect::Persist {
                    set: Box::new(next.clone()),
                    expected_version: set.version(),
                    mark: Mark::Intent,
                };
                self.phase = Phase::Intending { before: set, set: next, step, intent };
                effect
            }
            Err(TransitionError::Expired { at }) => self.refuse(set, step, ApplyRefusal::Expired { at }, now),
            Err(_) => self.refuse(set, step, ApplyRefusal::ApprovalVoid, now),
        })
    }

    fn on_intent(
        &mut self,
        before: ChangeSet,
        set: ChangeSet,
        step: usize,
        intent: Intent,
        event: Event,
        now: Timestamp,
    ) -> Result<Effect, OutOfOrder> {
        match event {
            Event::Persisted => {}
            Event::Conflict if step == 0 => return Ok(Effect::Refuse(ApplyRefusal::Conflict)),
            Event::PersistFailed(why) if step == 0 => {
                return Ok(Effect::Refuse(ApplyRefusal::StoreFailed(why)));
            }
            Event::Conflict | Event::PersistFailed(_) => {
                // Earlier steps were sent; the store holds their good ends, and recovery will close the set.
                let problem = match event {
                    Event::PersistFailed(why) => why,
                    _ => "the stored set was changed by somebody else".to_owned(),
                };
                return Ok(Effect::Finish(Finish { set: Box::new(before), problem: Some(problem) }));
            }
            _ => {
                self.phase = Phase::Intending { before, set, step, intent };
                return Err(OutOfOrder { expected: "the result of storing the intent" });
            }
        }
        let Some(approved) = set.plan().steps().get(step) else {
            // INVARIANT: `intend` accepted the index, so the step exists; without it, nothing is sent.
            return Ok(self.refuse(set, step, ApplyRefusal::ApprovalVoid, now));
        };
        let permit = DispatchPermit {
            set: set.id(),
            target: set.plan().target().clone(),
            index: step,
            step: approved.clone(),
            node: intent.node.clone(),
            fingerprint: set.plan().fingerprint().clone(),
        };
        self.phase = Phase::Tail(Tail::sending(set, step, intent, self.timing));
        Ok(Effect::Send { step, permit })
    }

    /// Nothing of `step` was sent. Before the first step the set stays approved; later it ends as failed.
    fn refuse(&mut self, set: ChangeSet, step: usize, refusal: ApplyRefusal, now: Timestamp) -> Effect {
        if step == 0 {
            self.phase = Phase::Done;
            return Effect::Refuse(refusal);
        }
        let (tail, effect) = Tail::stopping(set, step, &refusal.to_string(), now);
        self.phase = Phase::Tail(tail);
        effect
    }
}

fn approver_name(set: &ChangeSet) -> String {
    match set.approval() {
        Some(approval) if approval.kind() == ApprovalKind::LabMode => "lab mode".to_owned(),
        Some(approval) => approval.by().token.clone(),
        None => "nobody".to_owned(),
    }
}
