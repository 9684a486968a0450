//! What is promised and what users of such software have reported, through the running server, where no other test holds it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../support/changes.rs"]
mod changes;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/mod.rs"]
mod support;

mod kept;
mod many;
mod reports;
