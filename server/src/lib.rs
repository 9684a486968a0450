//! Proxward's server: a fail-closed gate between AI agents and Proxmox VE, speaking MCP.
//!
//! The program is `proxward`; this library is the same code for whoever wants to run it inside another process, as the demo
//! does. A call's way is [`stack`]; what can be called is [`catalog`]; where the parts are put together is [`serve`].
#![forbid(unsafe_code)]

pub mod app;
pub mod audit;
pub mod catalog;
pub mod changes;
pub mod cli;
pub mod clock;
pub mod config;
pub mod fetch;
pub mod files;
pub mod keys;
mod limiter;
pub mod metrics;
pub mod privileges;
mod redact;
pub mod resolve;
pub mod serve;
pub mod stack;
pub mod state_dir;
pub mod tools;
pub mod transfer_http;
