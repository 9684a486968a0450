//! SSH to a node. The only module that knows `russh` and `russh-sftp`; none of their types leaves it.

mod exec;
mod identity;
mod known_hosts;
mod session;
mod sftp;

pub(crate) use exec::{Feed, Fetch, Output, colon, printable, remote};
pub use identity::{Identity, IdentityError};
pub use known_hosts::{KnownHosts, KnownHostsProblem};
pub(crate) use session::Session;
pub(crate) use sftp::{Sftp, StagingFile, WRITE, sweep};
