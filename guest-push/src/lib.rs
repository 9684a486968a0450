#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod dest;
mod error;
mod hasher;
mod options;
mod push;
pub mod quote;
mod receipt;
mod route;
mod source;
mod ssh;
mod target;

pub use dest::{Dest, DestError, MAX_COMPONENT, MAX_PATH};
pub use error::{PushError, PushErrorKind, Step};
pub use options::{Account, Mode, OptionError, PushOptions};
pub use push::Pusher;
pub use receipt::{Receipt, Stage, VerifiedAt};
pub use source::{Source, SourceError, SourceErrorKind};
pub use ssh::{Identity, IdentityError, KnownHosts, KnownHostsProblem};
pub use target::{Deadlines, SshTarget};
