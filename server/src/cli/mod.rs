//! The command line: one file per verb.

pub mod args;
pub mod audit;
pub mod authz;
pub mod change;
pub mod check;
pub mod doctor;
pub mod log;
mod output;
pub mod role;
pub mod start;
pub mod state;
pub mod token;

use clap::{Parser, Subcommand};

pub use args::{AuditFormat, ServeArgs, Transport};

use crate::config::Problem;

/// Exit status when the configuration keeps the server from starting (`EX_CONFIG`).
pub const CONFIG_ERROR: u8 = 78;

/// A fail-closed gate between AI agents and Proxmox VE, speaking MCP.
///
/// Without a command it serves.
#[derive(Debug, Parser)]
#[command(name = "proxward", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; nothing named means `serve`.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The flags of `serve`, when no command is named.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve MCP clients.
    Serve(Box<ServeArgs>),
    /// Say whether `serve` with the same flags would start, and everything that keeps it from it.
    Check(Box<ServeArgs>),
    /// Ask every cluster whether the tools will work on it, and print what would make them work.
    Doctor(Box<doctor::DoctorArgs>),
    /// Print the least-privilege role for the clusters' tokens.
    Role(role::RoleArgs),
    /// Make, list, change and revoke bearer tokens.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Explain decisions.
    #[command(subcommand)]
    Authz(authz::AuthzCommand),
    /// See, approve, reject, cancel and resolve change sets.
    Change(Box<change::ChangeArgs>),
    /// Look at the change-set store.
    #[command(subcommand)]
    State(state::StateCommand),
    /// Look at the audit trail.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
}

/// Prints problems to standard error, one per line.
pub fn report(problems: &[Problem]) {
    for problem in problems {
        eprintln!("error: {problem}");
    }
}
