//! Rows UL of the threat model: a server in this process over real TCP, mostly spoken to byte by byte.
#![allow(clippy::type_complexity, reason = "tables of cases say more in place")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/raw.rs"]
mod raw;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/uploads.rs"]
mod uploads;

mod body;
mod ends;
mod fetching;
mod files;
mod links;
mod resumable;
mod spelling;
