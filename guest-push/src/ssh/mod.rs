//! SSH to a node. The only module that knows `russh` and `russh-sftp`; none of their types leaves it.

mod identity;
mod known_hosts;

pub use identity::{Identity, IdentityError};
pub use known_hosts::{KnownHosts, KnownHostsProblem};
