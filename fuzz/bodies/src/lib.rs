//! The bodies of the fuzz targets, as plain functions that take bytes and panic where a promise is broken.
//!
//! Each body turns its bytes into calls of one crate and compares the answers with a second, simpler source of
//! truth written here. `fuzz/fuzz_targets/<name>.rs` hands them to libFuzzer; `tests/replay.rs` runs them over
//! `fuzz/corpus/<name>/` in every ordinary test run, so that what a fuzzer once found stays found.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a body reports a finding by panicking; nothing but a test or a fuzzer calls it"
)]

mod authz_decision;
mod bytes;
mod canonical_digest;
mod dest_quote;
mod fetch_policy;
mod grant_selector;
mod hash_output;
mod json;
mod json_readers;
mod known_hosts;
mod link_store_ops;
mod link_token;
mod mcp_headers;
mod mcp_request;
mod property_strings;
mod pve_response;
mod quote_shells;
mod state_decode;
mod state_seal;
mod tags;
mod tokens_json;
mod tus_headers;
mod upid;
mod volid;
mod waivers_json;

pub use authz_decision::authz_decision;
pub use canonical_digest::canonical_digest;
pub use dest_quote::dest_quote;
pub use fetch_policy::fetch_policy;
pub use grant_selector::grant_selector;
pub use hash_output::hash_output;
pub use json_readers::json_readers;
pub use known_hosts::known_hosts;
pub use link_store_ops::link_store_ops;
pub use link_token::link_token;
pub use mcp_headers::mcp_headers;
pub use mcp_request::mcp_request;
pub use property_strings::property_strings;
pub use pve_response::pve_response;
pub use quote_shells::quote_shells;
pub use state_decode::{reads_as_a_set, state_decode};
pub use state_seal::state_seal;
pub use tags::tags;
pub use tokens_json::{KNOWN_TOKEN, tokens_json};
pub use tus_headers::tus_headers;
pub use upid::upid;
pub use volid::volid;
pub use waivers_json::waivers_json;

/// A body: bytes in, a panic where a promise is broken.
pub type Body = fn(&[u8]);

/// Every target by name: the name of its corpus directory and of its file in `fuzz/fuzz_targets/`.
pub const TARGETS: &[(&str, Body)] = &[
    ("authz_decision", authz_decision),
    ("canonical_digest", canonical_digest),
    ("dest_quote", dest_quote),
    ("fetch_policy", fetch_policy),
    ("grant_selector", grant_selector),
    ("hash_output", hash_output),
    ("json_readers", json_readers),
    ("known_hosts", known_hosts),
    ("link_store_ops", link_store_ops),
    ("link_token", link_token),
    ("mcp_headers", mcp_headers),
    ("mcp_request", mcp_request),
    ("property_strings", property_strings),
    ("pve_response", pve_response),
    ("quote_shells", quote_shells),
    ("state_decode", state_decode),
    ("state_seal", state_seal),
    ("tags", tags),
    ("tokens_json", tokens_json),
    ("tus_headers", tus_headers),
    ("upid", upid),
    ("volid", volid),
    ("waivers_json", waivers_json),
];
