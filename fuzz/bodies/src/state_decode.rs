//! `changeset`: rows of a store become a set that can be stored again unchanged, or a refusal.

use changeset::store::StoreError;
use changeset::store::codec::{self, StepRow, Stored};
use changeset::{ApprovalKey, ChangeSet, ChangeSetId, Effect, Recover, State, StepOutcome, Timing};
use jiff::Timestamp;

/// Stands for the digest of the plan in the body, which no fuzzer would guess.
const AUTO: &str = "AUTO";

/// A state, a body and three lines for each step's marks: intent, handle, outcome.
pub fn state_decode(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(set) = read(&text) else { return };
    let stored = codec::encode(&set).expect("a set can be stored");
    let again = codec::decode(&stored).expect("what was stored can be read");
    assert_eq!(again, set, "a set changes on its way through the store");
    assert_eq!(codec::encode(&again), Ok(stored.clone()));
    believed(&set);

    // The same rows under another name or with another plan are somebody's edit.
    let other = Stored { id: ChangeSetId::from_entropy([9; 16]), ..stored.clone() };
    assert!(matches!(codec::decode(&other), Err(StoreError::DigestMismatch { .. })));
    let torn = Stored { body: stored.body.chars().take(stored.body.len() / 2).collect(), ..stored.clone() };
    assert!(codec::decode(&torn).is_err(), "half a body is taken");
    let short = Stored { steps: stored.steps.iter().skip(1).cloned().collect(), ..stored };
    assert!(codec::decode(&short).is_err(), "a step's row may be missing");
}

/// Whether the lines are a set's.
#[must_use]
pub fn reads_as_a_set(data: &[u8]) -> bool {
    read(&String::from_utf8_lossy(data)).is_some()
}

/// The set of those lines, its digests filled in where they say [`AUTO`].
fn read(text: &str) -> Option<ChangeSet> {
    let mut lines = text.split('\n');
    let (state, body) = (lines.next()?, lines.next()?);
    let mark = |line: Option<&str>| line.filter(|line| !line.is_empty()).map(str::to_owned);
    let mut steps = Vec::new();
    while let Some(line) = lines.next() {
        steps.push(StepRow {
            intent: mark(Some(line)),
            handle: mark(lines.next()),
            outcome: mark(lines.next()),
        });
    }
    let mut stored = Stored {
        id: ChangeSetId::from_entropy([7; 16]),
        version: 3,
        state: state.to_owned(),
        digest: AUTO.to_owned(),
        body: body.to_owned(),
        steps,
    };
    if let Err(StoreError::DigestMismatch { computed, .. }) = codec::decode(&stored) {
        stored.body = stored.body.replace(AUTO, &computed);
        stored.digest = computed;
    }
    // A plan that says `AUTO` itself has another digest by now.
    codec::decode(&stored).ok()
}

/// What a reader of the set may rely on.
fn believed(set: &ChangeSet) {
    let records = set.records();
    assert_eq!(records.len(), set.plan().steps().len());
    assert_eq!(set.digest(), set.plan().digest());
    let well = |outcome: &Option<StepOutcome>| outcome.as_ref().is_some_and(StepOutcome::is_ok);
    let all_well = records.iter().all(|record| well(&record.outcome));
    let doubtful = records.iter().any(|record| matches!(record.outcome, Some(StepOutcome::Unknown(_))));
    let resolved = doubtful && set.ending().is_some_and(|ending| ending.by.is_some());
    let started = records.iter().any(|record| record.intent.is_some());
    let bad = records.iter().any(|record| record.outcome.is_some() && !well(&record.outcome));
    match set.state() {
        State::Planned | State::Approved | State::Rejected | State::Cancelled | State::Expired => {
            assert!(!started, "sent, and the state does not say so");
        }
        State::Applying => assert!(!all_well && !bad && set.approval().is_some()),
        State::Applied => assert!(all_well || resolved, "applied, and a step did not end well"),
        State::Failed => assert!(!all_well),
        State::Unknown => assert!(doubtful),
    }
    // Nobody made an approval under this key.
    let key = ApprovalKey::new([1; 32]);
    assert!(set.approval().is_none_or(|approval| !approval.is_genuine(set.plan(), &key)));
    // Whatever is applying, recovery can take up, and never by sending.
    let now = Timestamp::UNIX_EPOCH;
    match Recover::begin(set.clone(), Timing::default(), now) {
        Ok((_, effect)) => {
            assert_eq!(set.state(), State::Applying);
            assert!(!matches!(effect, Effect::Send { .. } | Effect::ResolveAndDecide { .. }), "{effect:?}");
        }
        Err(_) => assert_ne!(set.state(), State::Applying, "nobody takes it up"),
    }
}
