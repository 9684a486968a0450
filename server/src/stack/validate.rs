//! `Named` → `Validated`: the tool exists, and its arguments match its schema.

use std::sync::Arc;

use super::call::{Call, Named, Validated};
use super::failure::ToolFailure;
use super::step::Step;
use crate::catalog::Catalog;

/// Looks the tool up and checks the arguments against its compiled schema.
#[derive(Debug, Clone)]
pub(super) struct Validate {
    catalog: Arc<Catalog>,
}

impl Validate {
    /// Over this catalog.
    pub(super) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog }
    }
}

impl Step<Named> for Validate {
    type Out = Validated;

    async fn step(&self, call: Call<Named>) -> Result<Call<Validated>, ToolFailure> {
        let Call { context, stage: Named { name, arguments } } = call;
        let entry = self.catalog.find(&name).ok_or(ToolFailure::UnknownTool)?;
        let arguments = entry.validator.validate(arguments).map_err(|problem| {
            ToolFailure::new("invalid_argument", problem.to_string()).with("field", problem.field.clone())
        })?;
        let spec = entry.spec_for(&arguments);
        Ok(Call::<Validated>::at(context, Validated { spec, arguments }))
    }
}
