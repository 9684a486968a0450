#![forbid(unsafe_code)]
// The decision must not be able to panic: no slicing, no unchecked arithmetic, nowhere in this crate.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::unreachable,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]
#![doc = include_str!("../README.md")]

mod decide;
mod denial;
mod describe;
mod explain;
mod facts;
mod grant;
pub mod json;
mod names;
mod permit;
mod principal;
mod protection;
mod scope;
mod time;
pub mod token;
mod waiver;

pub use decide::{
    ApprovalFacts, ApprovalPermit, Overrides, admit, decide, decide_approval, decide_new_guest,
    permit_cluster_write, permit_unaddressed, permit_whole_read,
};
pub use denial::{Denial, DenialKind, GUEST_REFUSED};
pub use describe::{GrantView, PrincipalView, ProtectionView};
pub use explain::{Asked, Check, CheckReport, CheckResult, Decision, Question, RuleView};
pub use facts::{FactsSource, GuestFacts, GuestKind, Known, Vmid, VmidError};
pub use grant::{Grant, Selector, SelectorError, TierSet};
pub use json::{FileProblem, Warning};
pub use names::{RESERVED_NAMES, escape_untrusted};
pub use permit::{Admitted, Lift, Permit, Reason};
pub use principal::{ActorKind, Channel, Principal, Provenance};
pub use protection::{Protection, ProtectionCause, ProtectionError};
pub use scope::{Scope, Tier, TierError, ToolRule};
pub use token::{
    Argon2Candidate, ArgonError, Lookup, MintedToken, StoredAs, TokenRefusal, TokenTable, argon2id_entry,
    mint_token, sha256_entry,
};
pub use waiver::{Waiver, WaiverSet};
