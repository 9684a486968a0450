//! Configuration: read strictly, reported completely, swapped as a whole.
//!
//! - [`clusters`] and [`policy`]: what `clusters.json` holds.
//! - [`mod@load`]: all files in one pass; every problem of every file.
//! - [`snapshot`]: one consistent configuration and the pointer to the current one.
//! - [`mod@reload`], at SIGHUP: all or nothing.

pub mod clusters;
mod diff;
pub mod load;
pub mod net;
pub mod policy;
mod policy_file;
pub mod problem;
pub mod reload;
mod secret;
pub mod snapshot;
pub mod tls;

pub use clusters::{Cluster, SshAccess, SshAddress, SshGuest};
pub use load::{Loaded, Sources, Vocabulary, load};
pub use policy::{FetchPolicy, Limits, Policy, TransferPolicy};
pub use problem::Problem;
pub use reload::{ReloadReport, Reloader};
pub use snapshot::{Degraded, Live, Snapshot};

/// Looks a variable up. The process environment in the program; something else in tests.
pub type Environment<'e> = &'e (dyn Fn(&str) -> Option<String> + Sync);

/// The process environment. A value that is not UTF-8 counts as not set.
pub fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
