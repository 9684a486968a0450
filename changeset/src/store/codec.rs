//! Change sets as rows: explicit, versioned JSON for the body, one row of marks per step.
//!
//! What this module writes is never what a digest is taken over. [`decode`] rebuilds the plan, recomputes its
//! digest from the typed fields and compares it with the stored one; unknown fields and versions are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::set::Ending;
use crate::store::StoreError;
use crate::{
    Actor, ActorKind, Approval, ApprovalKind, ChangeSet, ChangeSetId, Fingerprint, Intent, Plan, PlanDraft,
    Preview, State, Step, StepOutcome, StepRecord, Target, UnknownCause,
};

/// The version of the body format.
pub const BODY_FORMAT: u32 = 1;

/// A set as an engine stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The set's name.
    pub id: ChangeSetId,
    /// Its version.
    pub version: u64,
    /// Its state's name.
    pub state: String,
    /// The plan's digest, 64 hex digits.
    pub digest: String,
    /// Plan, approval and ending as JSON.
    pub body: String,
    /// One row per step, in order.
    pub steps: Vec<StepRow>,
}

/// The marks of one step as JSON; `None` where a mark is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepRow {
    /// The intent.
    pub intent: Option<String>,
    /// The handle, as it is.
    pub handle: Option<String>,
    /// The outcome.
    pub outcome: Option<String>,
}

/// A set's rows.
///
/// # Errors
/// Nothing a [`ChangeSet`] can hold; the serialiser's signature allows for one.
pub fn encode(set: &ChangeSet) -> Result<Stored, StoreError> {
    let body = Body {
        format: BODY_FORMAT,
        plan: PlanDto::from(set.plan()),
        approval: set.approval().map(ApprovalDto::from),
        applied_by: set.applied_by().map(ActorDto::from),
        ending: set.ending().map(EndingDto::from),
        updated: set.updated().to_string(),
    };
    let steps = set.records().iter().map(encode_step).collect::<Result<_, _>>()?;
    Ok(Stored {
        id: set.id(),
        version: set.version(),
        state: set.state().as_str().to_owned(),
        digest: set.digest().to_string(),
        body: json(&body)?,
        steps,
    })
}

fn encode_step(record: &StepRecord) -> Result<StepRow, StoreError> {
    Ok(StepRow {
        intent: record.intent.as_ref().map(|intent| json(&IntentDto::from(intent))).transpose()?,
        handle: record.handle.clone(),
        outcome: record.outcome.as_ref().map(|outcome| json(&OutcomeDto::from(outcome))).transpose()?,
    })
}

fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Engine { why: error.to_string() })
}

/// Rebuilds a set from its rows.
///
/// # Errors
/// [`StoreError::Damaged`] when the rows are not a set's, [`StoreError::DigestMismatch`] when they are not those of
/// the plan that was stored.
pub fn decode(stored: &Stored) -> Result<ChangeSet, StoreError> {
    let damaged = |why: String| StoreError::Damaged { id: stored.id.to_string(), why };
    let body: Body = serde_json::from_str(&stored.body).map_err(|error| damaged(error.to_string()))?;
    if body.format != BODY_FORMAT {
        return Err(damaged(format!("body format {} is not {BODY_FORMAT}", body.format)));
    }
    let state =
        State::from_name(&stored.state).ok_or_else(|| damaged(format!("`{}` is no state", stored.state)))?;
    let plan = body.plan.into_plan(stored.id).map_err(damaged)?;
    let computed = plan.digest();
    let mismatch = |found: String| StoreError::DigestMismatch {
        id: stored.id,
        stored: found,
        computed: computed.to_string(),
    };
    if computed.to_string() != stored.digest {
        return Err(mismatch(stored.digest.clone()));
    }
    let approval = body.approval.map(ApprovalDto::into_approval).transpose().map_err(damaged)?;
    if let Some(approval) = approval.as_ref().filter(|approval| approval.digest != computed) {
        return Err(mismatch(approval.digest.to_string()));
    }
    let records = stored.steps.iter().map(decode_step).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    let set = ChangeSet {
        digest: computed,
        state,
        approval,
        applied_by: body.applied_by.map(ActorDto::into_actor).transpose().map_err(damaged)?,
        records,
        ending: body.ending.map(EndingDto::into_ending).transpose().map_err(damaged)?,
        version: stored.version,
        updated: time(&body.updated).map_err(damaged)?,
        plan: Arc::new(plan),
    };
    check_shape(&set).map_err(|why| damaged(why.to_owned()))?;
    Ok(set)
}

/// What every lawful history looks like; rows that say otherwise were not written by a store.
fn check_shape(set: &ChangeSet) -> Result<(), &'static str> {
    if set.records.len() != set.plan.steps().len() {
        return Err("the number of step rows is not the number of steps");
    }
    let mut before_ok = true;
    for record in &set.records {
        if record.intent.is_some() && !before_ok {
            return Err("a step has an intent, but the one before did not end well");
        }
        if record.intent.is_none() && (record.handle.is_some() || record.outcome.is_some()) {
            return Err("a step has a handle or an outcome without an intent");
        }
        before_ok = record.outcome.as_ref().is_some_and(StepOutcome::is_ok);
    }
    let any_intent = set.records.iter().any(|record| record.intent.is_some());
    let spent = matches!(set.state, State::Applying | State::Applied | State::Failed | State::Unknown);
    if any_intent != spent {
        return Err("the state does not fit the steps' marks");
    }
    if set.approval.is_none() && (spent || set.state == State::Approved) {
        return Err("the approval is missing");
    }
    if set.state.is_pending() == set.ending.is_some() {
        return Err("the state does not fit the ending");
    }
    let outcomes = || set.records.iter().map(|record| record.outcome.as_ref());
    let all_well = outcomes().all(|outcome| outcome.is_some_and(StepOutcome::is_ok));
    let doubtful = outcomes().any(|outcome| matches!(outcome, Some(StepOutcome::Unknown(_))));
    let by_a_person = set.ending.as_ref().is_some_and(|ending| ending.by.is_some());
    let fits = match set.state {
        State::Applying => !all_well && outcomes().flatten().all(StepOutcome::is_ok),
        // A person may have found that what was in doubt did happen.
        State::Applied => all_well || (doubtful && by_a_person),
        State::Failed => !all_well,
        State::Unknown => doubtful,
        State::Planned | State::Approved | State::Rejected | State::Cancelled | State::Expired => true,
    };
    if !fits {
        return Err("the state does not fit the steps' outcomes");
    }
    Ok(())
}

fn decode_step(row: &StepRow) -> Result<StepRecord, String> {
    let parse = |text: &String| serde_json::from_str::<IntentDto>(text).map_err(|error| error.to_string());
    let intent = row.intent.as_ref().map(parse).transpose()?.map(IntentDto::into_intent).transpose()?;
    let outcome = row
        .outcome
        .as_ref()
        .map(|text| serde_json::from_str::<OutcomeDto>(text).map_err(|error| error.to_string()))
        .transpose()?
        .map(StepOutcome::from);
    Ok(StepRecord { intent, handle: row.handle.clone(), outcome })
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("`{text}` is no time"))
}

fn bytes32(hex: &str) -> Result<[u8; 32], String> {
    let bytes = HEXLOWER.decode(hex.as_bytes()).map_err(|error| error.to_string())?;
    bytes.as_slice().try_into().map_err(|_| "not 64 hex digits".to_owned())
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    format: u32,
    plan: PlanDto,
    approval: Option<ApprovalDto>,
    applied_by: Option<ActorDto>,
    ending: Option<EndingDto>,
    updated: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanDto {
    planner: ActorDto,
    target: TargetDto,
    tier_destructive: bool,
    target_protected: bool,
    steps: Vec<StepDto>,
    fingerprint: BTreeMap<String, String>,
    preview_text: String,
    preview_facts: BTreeMap<String, String>,
    policy_version: String,
    lab_mode: bool,
    idempotency_key: Option<String>,
    created: String,
    expires: String,
}

impl From<&Plan> for PlanDto {
    fn from(plan: &Plan) -> Self {
        Self {
            planner: plan.planner().into(),
            target: TargetDto {
                cluster: plan.target().cluster.clone(),
                key: plan.target().key.clone(),
                label: plan.target().label.clone(),
            },
            tier_destructive: plan.tier_destructive(),
            target_protected: plan.target_protected(),
            steps: plan.steps().iter().map(StepDto::from).collect(),
            fingerprint: plan.fingerprint().fields.clone(),
            preview_text: plan.preview().text.clone(),
            preview_facts: plan.preview().facts.clone(),
            policy_version: plan.policy_version().to_owned(),
            lab_mode: plan.lab_mode(),
            idempotency_key: plan.idempotency_key().map(str::to_owned),
            created: plan.created().to_string(),
            expires: plan.expires().to_string(),
        }
    }
}

impl PlanDto {
    fn into_plan(self, id: ChangeSetId) -> Result<Plan, String> {
        let draft = PlanDraft {
            id,
            planner: self.planner.into_actor()?,
            target: Target { cluster: self.target.cluster, key: self.target.key, label: self.target.label },
            tier_destructive: self.tier_destructive,
            target_protected: self.target_protected,
            steps: self.steps.into_iter().map(StepDto::into_step).collect(),
            fingerprint: Fingerprint { fields: self.fingerprint },
            preview: Preview { text: self.preview_text, facts: self.preview_facts },
            policy_version: self.policy_version,
            lab_mode: self.lab_mode,
            idempotency_key: self.idempotency_key,
            created: time(&self.created)?,
        };
        Plan::with_expiry(draft, time(&self.expires)?).map_err(|error| error.to_string())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActorDto {
    token: String,
    person: String,
    kind: Option<String>,
}

impl From<&Actor> for ActorDto {
    fn from(actor: &Actor) -> Self {
        let kind = actor.kind.map(|kind| match kind {
            ActorKind::Human => "human".to_owned(),
            ActorKind::Agent => "agent".to_owned(),
        });
        Self { token: actor.token.clone(), person: actor.person.clone(), kind }
    }
}

impl ActorDto {
    fn into_actor(self) -> Result<Actor, String> {
        let kind = match self.kind.as_deref() {
            None => None,
            Some("human") => Some(ActorKind::Human),
            Some("agent") => Some(ActorKind::Agent),
            Some(other) => return Err(format!("`{other}` is no kind of actor")),
        };
        Ok(Actor { token: self.token, person: self.person, kind })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetDto {
    cluster: String,
    key: String,
    label: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepDto {
    op: String,
    params: BTreeMap<String, String>,
    summary: String,
    moves: BTreeSet<String>,
}

impl From<&Step> for StepDto {
    fn from(step: &Step) -> Self {
        Self {
            op: step.op.clone(),
            params: step.params.clone(),
            summary: step.summary.clone(),
            moves: step.moves.clone(),
        }
    }
}

impl StepDto {
    fn into_step(self) -> Step {
        Step { op: self.op, params: self.params, summary: self.summary, moves: self.moves }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalDto {
    kind: String,
    by: ActorDto,
    at: String,
    expires: String,
    digest: String,
    mac: String,
}

impl From<&Approval> for ApprovalDto {
    fn from(approval: &Approval) -> Self {
        let kind = match approval.kind {
            ApprovalKind::LabMode => "lab_mode",
            ApprovalKind::SecondPerson => "second_person",
        };
        Self {
            kind: kind.to_owned(),
            by: (&approval.by).into(),
            at: approval.at.to_string(),
            expires: approval.expires.to_string(),
            digest: approval.digest.to_string(),
            mac: HEXLOWER.encode(&approval.mac),
        }
    }
}

impl ApprovalDto {
    fn into_approval(self) -> Result<Approval, String> {
        let kind = match self.kind.as_str() {
            "lab_mode" => ApprovalKind::LabMode,
            "second_person" => ApprovalKind::SecondPerson,
            other => return Err(format!("`{other}` is no kind of approval")),
        };
        Ok(Approval {
            kind,
            by: self.by.into_actor()?,
            at: time(&self.at)?,
            expires: time(&self.expires)?,
            digest: self.digest.parse().map_err(|error: crate::ParseDigestError| error.to_string())?,
            mac: bytes32(&self.mac)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndingDto {
    at: String,
    by: Option<ActorDto>,
    note: String,
}

impl From<&Ending> for EndingDto {
    fn from(ending: &Ending) -> Self {
        Self {
            at: ending.at.to_string(),
            by: ending.by.as_ref().map(ActorDto::from),
            note: ending.note.clone(),
        }
    }
}

impl EndingDto {
    fn into_ending(self) -> Result<Ending, String> {
        let by = self.by.map(ActorDto::into_actor).transpose()?;
        Ok(Ending { at: time(&self.at)?, by, note: self.note })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IntentDto {
    at: String,
    node: String,
    watermark: BTreeSet<String>,
}

impl From<&Intent> for IntentDto {
    fn from(intent: &Intent) -> Self {
        Self { at: intent.at.to_string(), node: intent.node.clone(), watermark: intent.watermark.clone() }
    }
}

impl IntentDto {
    fn into_intent(self) -> Result<Intent, String> {
        Ok(Intent { at: time(&self.at)?, node: self.node, watermark: self.watermark })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum OutcomeDto {
    Ok,
    OkWithWarnings(u64),
    Failed(String),
    UnknownAmbiguous(u64),
    UnknownNotFound,
    UnknownTaskLost(String),
    UnknownUnreadable(String),
}

impl From<&StepOutcome> for OutcomeDto {
    fn from(outcome: &StepOutcome) -> Self {
        match outcome {
            StepOutcome::Ok => Self::Ok,
            StepOutcome::OkWithWarnings(n) => Self::OkWithWarnings(*n),
            StepOutcome::Failed(why) => Self::Failed(why.clone()),
            StepOutcome::Unknown(UnknownCause::Ambiguous(n)) => Self::UnknownAmbiguous(*n),
            StepOutcome::Unknown(UnknownCause::NotFound) => Self::UnknownNotFound,
            StepOutcome::Unknown(UnknownCause::TaskLost(why)) => Self::UnknownTaskLost(why.clone()),
            StepOutcome::Unknown(UnknownCause::Unreadable(why)) => Self::UnknownUnreadable(why.clone()),
        }
    }
}

impl From<OutcomeDto> for StepOutcome {
    fn from(outcome: OutcomeDto) -> Self {
        match outcome {
            OutcomeDto::Ok => Self::Ok,
            OutcomeDto::OkWithWarnings(n) => Self::OkWithWarnings(n),
            OutcomeDto::Failed(why) => Self::Failed(why),
            OutcomeDto::UnknownAmbiguous(n) => Self::Unknown(UnknownCause::Ambiguous(n)),
            OutcomeDto::UnknownNotFound => Self::Unknown(UnknownCause::NotFound),
            OutcomeDto::UnknownTaskLost(why) => Self::Unknown(UnknownCause::TaskLost(why)),
            OutcomeDto::UnknownUnreadable(why) => Self::Unknown(UnknownCause::Unreadable(why)),
        }
    }
}
