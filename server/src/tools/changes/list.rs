//! `list_change_sets`: what is open, and on request what has ended, as far as the caller may know of it.

use std::collections::HashMap;

use changeset::ChangeSet;
use changeset::store::Filter;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{may_know, stored};
use crate::catalog::HandlerResult;
use crate::stack::{CallContext, ToolFailure};
use crate::tools::paging::Paging;
use crate::tools::table::page_of;

/// Ended sets that are looked through, newest first.
const ENDED_LOOKED_AT: usize = 1000;

/// Arguments of `list_change_sets`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSetsArgs {
    /// Only sets on this cluster.
    pub cluster: Option<String>,
    /// Only sets in this state; without it, those that still need somebody: planned, approved, applying and unknown.
    pub state: Option<StateName>,
    /// Also sets that have ended, of the newest 1000.
    pub all: Option<bool>,
    /// Index of the first item, from 0.
    #[schemars(range(min = 0))]
    pub offset: Option<u64>,
    /// Largest number of items to return, 1 to 700; 500 when omitted.
    #[schemars(range(min = 1, max = 700))]
    pub limit: Option<u64>,
    /// Columns to keep; all when omitted.
    pub fields: Option<Vec<String>>,
}

/// A state's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StateName {
    /// Waits for an approval.
    Planned,
    /// May be applied once.
    Approved,
    /// Is being applied.
    Applying,
    /// Ended well.
    Applied,
    /// Ended badly.
    Failed,
    /// Waits for a person who looks.
    Unknown,
    /// Somebody said no.
    Rejected,
    /// Withdrawn.
    Cancelled,
    /// Nobody came in time.
    Expired,
}

impl StateName {
    fn state(self) -> changeset::State {
        match self {
            Self::Planned => changeset::State::Planned,
            Self::Approved => changeset::State::Approved,
            Self::Applying => changeset::State::Applying,
            Self::Applied => changeset::State::Applied,
            Self::Failed => changeset::State::Failed,
            Self::Unknown => changeset::State::Unknown,
            Self::Rejected => changeset::State::Rejected,
            Self::Cancelled => changeset::State::Cancelled,
            Self::Expired => changeset::State::Expired,
        }
    }
}

/// `list_change_sets`.
pub async fn list(ctx: &CallContext, args: ListSetsArgs) -> HandlerResult {
    let now = ctx.now();
    let base = Filter { cluster: args.cluster.clone(), ..Filter::default() };
    let filters = match (args.all.unwrap_or(false), args.state) {
        (true, Some(_)) => {
            return Err(ToolFailure::new(
                "invalid_argument",
                "`all` and `state` exclude each other: name one of them",
            ));
        }
        // An overdue set still stands as planned or approved in the store until somebody touches it.
        (false, Some(StateName::Expired)) | (true, None) => {
            vec![Filter { newest: Some(ENDED_LOOKED_AT), ..base }]
        }
        (false, Some(state)) => {
            vec![Filter { state: Some(state.state()), newest: Some(ENDED_LOOKED_AT), ..base }]
        }
        (false, None) => vec![
            Filter { pending_only: true, ..base.clone() },
            Filter { state: Some(changeset::State::Unknown), newest: Some(ENDED_LOOKED_AT), ..base },
        ],
    };
    let mut sets = Vec::new();
    for filter in filters {
        let found = stored(ctx, ctx.app.changes.list(filter).await).await?;
        sets.extend(found.into_iter().map(|set| set.expire(now).unwrap_or(set)));
    }
    let wanted = |set: &ChangeSet| match args.state {
        Some(state) => set.state() == state.state(),
        None => args.all.unwrap_or(false) || set.state() != changeset::State::Expired,
    };
    sets.retain(|set| wanted(set) && may_know(ctx, set, authz::Principal::visible));
    sets.sort_by_key(|set| (std::cmp::Reverse(set.plan().created()), set.id()));
    let paging = Paging::of(args.offset, args.limit, args.fields)?;
    page_of(collapsed(&sets), &paging)
}

/// A row a set, newest first. Planned sets for the same target stand under the newest of them, so that nobody is asked the same
/// thing ten times over.
fn collapsed(sets: &[ChangeSet]) -> Vec<Map<String, Value>> {
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    let mut newest: HashMap<(&str, &str), usize> = HashMap::new();
    for set in sets {
        let target = set.plan().target();
        if set.state() == changeset::State::Planned {
            let place = newest.entry((&target.cluster, &target.key)).or_insert(rows.len());
            if let Some(row) = rows.get_mut(*place) {
                if let Some(older) = row.get_mut("older").and_then(Value::as_array_mut) {
                    older.push(set.id().to_string().into());
                }
                continue;
            }
        }
        rows.push(row(set));
    }
    for row in &mut rows {
        if row.get("older").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            row.remove("older");
        }
    }
    rows
}

fn row(set: &ChangeSet) -> Map<String, Value> {
    let plan = set.plan();
    let ops: Vec<Value> = plan.steps().iter().map(|step| step.op.clone().into()).collect();
    let mut row = Map::new();
    let mut put = |key: &str, value: Value| {
        row.insert(key.to_owned(), value);
    };
    put("change_set_id", set.id().to_string().into());
    put("state", set.state().to_string().into());
    put("cluster", plan.target().cluster.clone().into());
    put("target", plan.target().key.clone().into());
    put("ops", ops.into());
    put("summary", plan.steps().last().map_or_else(String::new, |step| step.summary.clone()).into());
    put("destructive", plan.tier_destructive().into());
    put("planner", plan.planner().token.clone().into());
    put("created_at", plan.created().to_string().into());
    if let Some(deadline) = set.deadline() {
        put("expires_at", deadline.to_string().into());
    }
    if let Some(approval) = set.approval() {
        put("approved_by", approval.by().token.clone().into());
    }
    put("older", Value::Array(Vec::new()));
    row
}
