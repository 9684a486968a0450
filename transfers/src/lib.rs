#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unreachable,
    clippy::unwrap_in_result,
    clippy::unwrap_used
)]

pub mod base64;
mod capped;
mod claim;
mod ledger;
mod limits;
mod link;
mod outcome;
pub mod policy;
mod store;
mod sync;
pub mod tus;

pub use capped::{CappedHasher, OverCap};
pub use claim::{Claim, Presented};
pub use limits::{Limits, TtlError};
pub use link::{LinkId, LinkToken, NotALinkId};
pub use outcome::{LinkStatus, Outcome};
pub use store::{Counts, LinkStore, MintError, Minted};
