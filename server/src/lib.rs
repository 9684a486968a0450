//! A fail-closed gate between AI agents and Proxmox VE, speaking MCP
#![forbid(unsafe_code)]

pub mod audit;
pub mod cli;
pub mod clock;
pub mod config;
pub mod files;
pub mod keys;
pub mod state_dir;
