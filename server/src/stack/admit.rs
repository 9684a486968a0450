//! `Validated` → `Admitted`: stage 1 of authorization. Nothing has been sent to any cluster yet.

use serde_json::Value;

use super::call::{Admitted, Call, Validated};
use super::failure::ToolFailure;
use super::step::Step;
use crate::catalog::Addresses;

/// Token still valid, tool in scope, cluster in scope.
#[derive(Debug, Clone)]
pub(super) struct Admit;

impl Step<Validated> for Admit {
    type Out = Admitted;

    async fn step(&self, call: Call<Validated>) -> Result<Call<Admitted>, ToolFailure> {
        let Call { context, stage: Validated { spec, arguments } } = call;
        let snapshot = &context.caller.snapshot;
        let named = arguments.get("cluster").and_then(Value::as_str);
        let name = match (spec.addresses.needs_cluster(), named) {
            // One of several clusters: it is decided about like any other that is named.
            (false, Some(name)) if spec.addresses == Addresses::Clusters => Some(name.to_owned()),
            (false, _) => None,
            (true, Some(name)) => Some(name.to_owned()),
            // The only cluster, unless this token may not know its name: then it is as if there were several.
            (true, None) => {
                let only = snapshot.cluster(None).map(|only| only.name.clone());
                let only = only.filter(|name| context.caller.principal.may_see_cluster(name));
                Some(only.ok_or_else(|| {
                    ToolFailure::new(
                        "invalid_argument",
                        "`cluster` is missing: expected the name of a cluster that this token may use",
                    )
                    .with("field", "cluster")
                })?)
            }
        };
        if let Some(name) = &name {
            context.trail.note(|facts| facts.cluster = Some(name.clone()));
        }
        let admitted = authz::admit(&context.caller.principal, &spec.rule, name.as_deref(), context.now())?;
        // A cluster that is in scope but not configured answers as one that is not in scope: neither may be told apart.
        let cluster = match &name {
            None => None,
            Some(name) => {
                let unknown = || authz::Denial::cluster_unknown(&context.caller.principal, name);
                Some(snapshot.cluster(Some(name)).cloned().ok_or_else(unknown)?)
            }
        };
        Ok(Call::<Admitted>::at(context, Admitted { spec, arguments, admitted, cluster }))
    }
}
