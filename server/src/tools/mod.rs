//! The tools' functions, by area. Each takes the call's context first, and a mutation its [`authz::Permit`].

pub mod addresses;
pub mod args;
pub mod caller;
pub mod changes;
pub mod clusters;
pub mod firewall;
pub mod guests;
pub mod ha;
pub mod images;
pub mod nodes;
pub mod paging;
pub mod power;
pub mod provision;
pub mod routine;
pub mod sight;
pub mod stop_task;
pub mod storage;
pub mod table;
pub mod tasks;
pub mod transfers;
pub mod upkeep;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::catalog::{Arguments, Target};
use crate::config::Cluster;
use crate::stack::ToolFailure;

/// Typed arguments. The schema has checked them already, so a failure here is a schema that says less than its type.
pub(crate) fn parsed<T: DeserializeOwned>(arguments: Arguments) -> Result<T, ToolFailure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolFailure::new("invalid_argument", format!("arguments do not fit: {error}")))
}

/// The cluster a call is about.
pub(crate) fn cluster_of(target: &Target) -> Result<&Arc<Cluster>, ToolFailure> {
    match target {
        Target::Cluster(cluster) | Target::Guest(cluster, _) => Ok(cluster),
        Target::Nothing => {
            Err(ToolFailure::new("invalid_argument", "`cluster` is missing: expected a cluster's name"))
        }
    }
}

/// Words as a list; none where there are none.
pub(crate) fn words<'a>(words: Option<impl Iterator<Item = &'a str>>) -> Vec<String> {
    words.map(|words| words.map(str::to_owned).collect()).unwrap_or_default()
}
