//! Every request the client can build, against PVE's own description of its API.
//!
//! Each method of the client is called with arguments from all over what its types allow. What arrives at a server is
//! judged by the parameter checker of `lab`, which has PVE's facts about methods, types, bounds and formats and no code in
//! common with the client. A method without an entry in [`methods::METHODS`] fails a test.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod arguments;
mod builders;
mod every;
mod methods;
mod mutations;
mod reads;
#[path = "../over_tls/support.rs"]
#[allow(dead_code, reason = "the other test program needs the rest of it")]
mod support;
mod verdicts;
