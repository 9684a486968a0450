//! A change set as callers see it.

use changeset::{ChangeSet, State, StepOutcome};
use serde_json::{Map, Value, json};

/// The set as a structured result.
pub fn view(set: &ChangeSet) -> Value {
    let plan = set.plan();
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    put("change_set_id", set.id().to_string().into());
    put("state", set.state().to_string().into());
    put("digest", set.digest().to_string().into());
    put("cluster", plan.target().cluster.clone().into());
    put("target", plan.target().key.clone().into());
    put("destructive", plan.tier_destructive().into());
    put("planner", plan.planner().token.clone().into());
    put("created_at", plan.created().to_string().into());
    if let Some(deadline) = set.deadline() {
        put("expires_at", deadline.to_string().into());
    }
    put("preview", plan.preview().text.clone().into());
    if plan.lab_mode() {
        put("lab_mode", true.into());
    }
    if let Some(approval) = set.approval() {
        put("approved_by", approval.by().token.clone().into());
        put("approved_at", approval.at().to_string().into());
    }
    let steps: Vec<Value> = plan
        .steps()
        .iter()
        .zip(set.records())
        .map(|(step, record)| {
            let mut row = Map::new();
            row.insert("op".to_owned(), step.op.clone().into());
            row.insert("summary".to_owned(), step.summary.clone().into());
            if let Some(handle) = &record.handle {
                row.insert("upid".to_owned(), handle.clone().into());
            }
            if let Some(outcome) = &record.outcome {
                row.insert("outcome".to_owned(), outcome_text(outcome).into());
            }
            Value::Object(row)
        })
        .collect();
    put("steps", steps.into());
    if let Some(ending) = set.ending() {
        put("ended", json!({"at": ending.at.to_string(), "note": ending.note}));
    }
    put("next", next(set).into());
    Value::Object(out)
}

fn outcome_text(outcome: &StepOutcome) -> String {
    match outcome {
        StepOutcome::Ok => "OK".to_owned(),
        StepOutcome::OkWithWarnings(n) => format!("WARNINGS: {n}"),
        StepOutcome::Failed(why) => format!("failed: {why}"),
        StepOutcome::Unknown(why) => format!("unknown: {why}"),
    }
}

fn next(set: &ChangeSet) -> String {
    let id = set.id();
    match set.state() {
        State::Planned => format!(
            "a human other than the planner's person reads the preview and calls approve_proxmox_change_set with change_set_id {id}, \
             the digest{}",
            if set.plan().tier_destructive() { " and confirm_vmid" } else { "" }
        ),
        State::Approved => format!("call apply_proxmox_change_set with change_set_id {id} before the approval lapses"),
        State::Applying => format!("it is running; call get_proxmox_change_set with change_set_id {id} to see how it ends"),
        State::Unknown => "nobody knows whether the request took effect; an operator must look at the cluster and resolve it".to_owned(),
        State::Applied | State::Failed | State::Rejected | State::Cancelled | State::Expired => {
            "nothing; a new plan is needed for anything more".to_owned()
        }
    }
}
