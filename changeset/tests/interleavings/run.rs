//! One machine under way, in a form that a model can copy.
//!
//! [`Apply`] and [`Recover`] are not `Clone`, because a copied machine would be a second permit. A world that branches
//! keeps what a machine began with and was told, and builds it anew from that.

use changeset::{
    Actor, Apply, ApplyRefusal, ChangeSet, ChangeSetId, Effect, Event, Finish, Lookup, Mark, Recover, Timing,
};
use jiff::Timestamp;

use crate::common::key;

/// An unreadable task list is given up at once: waiting longer is a matter of the clock alone.
const TIMING: Timing = Timing { settle: std::time::Duration::ZERO, give_up: std::time::Duration::ZERO };

/// What the machine wants; an [`Effect`] without the permit.
#[derive(Debug, Clone)]
pub(crate) enum Want {
    Decide { step: usize },
    Watermark,
    Persist { set: Box<ChangeSet>, expected_version: u64, mark: Mark },
    Send { set: ChangeSetId, step: usize, node: String, op: String },
    Follow { step: usize },
    Find(Lookup),
    Finish(Finish),
    Refuse(ApplyRefusal),
}

impl Want {
    fn of(effect: Effect) -> Self {
        match effect {
            Effect::ResolveAndDecide { step } => Self::Decide { step },
            Effect::Watermark { .. } => Self::Watermark,
            Effect::Persist { set, expected_version, mark } => Self::Persist { set, expected_version, mark },
            Effect::Send { step, permit } => {
                assert_eq!(permit.index(), step);
                let (node, op) = (permit.node().to_owned(), permit.step().op.clone());
                Self::Send { set: permit.set(), step, node, op }
            }
            Effect::Follow { step, .. } => Self::Follow { step },
            Effect::FindTask(lookup) => Self::Find(lookup),
            Effect::Finish(finish) => Self::Finish(finish),
            Effect::Refuse(refusal) => Self::Refuse(refusal),
        }
    }
}

/// How a machine began.
#[derive(Debug, Clone)]
enum Began {
    Apply { by: Actor },
    Recover,
}

#[derive(Debug, Clone)]
pub(crate) struct Run {
    began: Began,
    set: ChangeSet,
    at: Timestamp,
    told: Vec<(Event, Timestamp)>,
    want: Want,
    /// The last step that was decided about, and whether the decision allowed it.
    pub(crate) decided: Option<(usize, bool)>,
}

enum Machine {
    Apply(Box<Apply>),
    Recover(Box<Recover>),
}

impl Run {
    pub(crate) fn apply(set: ChangeSet, by: Actor, now: Timestamp) -> Self {
        Self::begin(Began::Apply { by }, set, now)
    }

    pub(crate) fn recover(set: ChangeSet, now: Timestamp) -> Self {
        Self::begin(Began::Recover, set, now)
    }

    fn begin(began: Began, set: ChangeSet, at: Timestamp) -> Self {
        let (_, effect) = Self::start(&began, &set, at);
        Self { began, set, at, told: Vec::new(), want: Want::of(effect), decided: None }
    }

    fn start(began: &Began, set: &ChangeSet, at: Timestamp) -> (Machine, Effect) {
        match began {
            Began::Apply { by } => {
                let (apply, effect) = Apply::begin(set.clone(), by.clone(), &key(), TIMING, at);
                (Machine::Apply(Box::new(apply)), effect)
            }
            Began::Recover => {
                let (recover, effect) = Recover::begin(set.clone(), TIMING, at).expect("it is applying");
                (Machine::Recover(Box::new(recover)), effect)
            }
        }
    }

    pub(crate) fn id(&self) -> ChangeSetId {
        self.set.id()
    }

    pub(crate) fn want(&self) -> &Want {
        &self.want
    }

    pub(crate) fn is_recovery(&self) -> bool {
        matches!(self.began, Began::Recover)
    }

    /// Tells the machine what happened.
    pub(crate) fn tell(&mut self, event: Event, now: Timestamp) {
        self.told.push((event, now));
        let (mut machine, mut effect) = Self::start(&self.began, &self.set, self.at);
        for (event, now) in &self.told {
            let next = match &mut machine {
                Machine::Apply(apply) => apply.on(event.clone(), *now),
                Machine::Recover(recover) => recover.on(event.clone(), *now),
            };
            effect = next.expect("the event answers the effect");
        }
        self.want = Want::of(effect);
    }

    /// All that decides what the machine will do.
    pub(crate) fn view(&self) -> String {
        let Self { began, set, at, told, decided, .. } = self;
        format!("{began:?} {} {} {at} {told:?} {decided:?}", set.id(), set.version())
    }
}
