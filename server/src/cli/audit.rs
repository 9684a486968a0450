//! `proxward audit`: look at the audit trail.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::args::STATE_DIR;
use super::output;
use crate::audit::{Head, verify_files};

/// The verbs below `audit`.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Verify the chain: that no record was changed, dropped, added or moved.
    Verify(VerifyArgs),
}

/// The flags of `audit verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// The files, oldest first [default: audit.jsonl in the state directory].
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Also prove that nothing up to this point was cut off or rewritten: what an earlier `audit verify` printed.
    #[arg(long, value_name = "CHECKPOINT")]
    pub since_checkpoint: Option<Head>,

    /// Where the server keeps its state.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
}

/// Runs the verb; exit status 0 when the trail is sound, 1 when not.
pub fn run(command: &AuditCommand) -> ExitCode {
    let AuditCommand::Verify(args) = command;
    let mut files = args.files.clone();
    if files.is_empty() {
        files.push(args.state_dir.join("audit.jsonl"));
    }
    let paths: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    match verify_files(&paths, args.since_checkpoint.as_ref()) {
        Ok(summary) => {
            let mut text = format!("records {} to {}: sound\n", summary.first_seq, summary.head.seq);
            if !summary.from_genesis {
                text.push_str("older records are in files that were not named\n");
            }
            text.push_str(&format!("restarts {}, repairs {}\n", summary.restarts, summary.repairs));
            // The last line is what to keep on another machine.
            text.push_str(&format!("{}\n", summary.head));
            output::print(&text)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
