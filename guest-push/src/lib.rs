#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod agent;
mod dest;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hasher;
mod options;
mod push;
pub mod quote;
mod receipt;
mod route;
mod source;
mod spool;
mod ssh;
mod target;

pub use agent::{AGENT_PART, AgentChannel, AgentError, AgentErrorKind, AgentPusher, ExecStatus};
pub use dest::{Dest, DestError, MAX_COMPONENT, MAX_PATH};
pub use error::{PushError, PushErrorKind, Step};
pub use options::{Account, LxcRoute, Mode, OptionError, PushOptions};
pub use push::Pusher;
pub use receipt::{Receipt, Stage, VerifiedAt};
pub use route::read::Download;
pub use source::{Source, SourceError, SourceErrorKind};
pub use spool::{Spool, SpoolMark};
pub use ssh::{Identity, IdentityError, KnownHosts, KnownHostsProblem};
pub use target::{Deadlines, SshTarget};
