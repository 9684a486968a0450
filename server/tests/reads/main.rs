//! Every read tool over HTTP on the lab: what it answers, to whom, and what it refuses.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod clusters;
mod failures;
mod narrowed;
mod pages;
mod secrets;
