//! `proxward token revoke`: an entry's end.

use authz::token::edit::revoke as revoked;
use clap::Args;

use super::{Named, Told, edit, explain};
use crate::config::Problem;

/// The flags of `token revoke`.
#[derive(Debug, Clone, Args)]
pub struct RevokeArgs {
    /// Which entry, and where.
    #[command(flatten)]
    pub entry: Named,

    /// Whom to tell.
    #[command(flatten)]
    pub server: Told,
}

/// Takes the entry out.
///
/// # Errors
/// Every problem; nothing was written then.
pub fn revoke(args: &RevokeArgs) -> Result<(), Vec<Problem>> {
    let path = &args.entry.tokens_file;
    edit(path, |current, _| revoked(current, args.entry.name()).map_err(|error| explain(path, error)))
}
