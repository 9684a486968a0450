//! The `proxward` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use proxward::cli::{self, Cli, Command, ServeArgs};
use proxward::config::process_environment;
use proxward::config::reload::catch_hangups;

fn main() -> ExitCode {
    let Cli { command, serve } = Cli::parse();
    match command {
        None => run_server(&serve),
        Some(Command::Serve(args)) => run_server(&args),
        Some(Command::Check(args)) => cli::check::run(&args),
        Some(Command::Doctor(args)) => cli::doctor::run(&args),
        Some(Command::Role(args)) => cli::role::run(&args),
        Some(Command::Token(command)) => cli::token::run(&command),
        Some(Command::Authz(command)) => cli::authz::run(&command),
        Some(Command::Change(args)) => cli::change::run(&args),
        Some(Command::State(command)) => cli::state::run(&command),
        Some(Command::Audit(command)) => cli::audit::run(&command),
    }
}

fn run_server(args: &ServeArgs) -> ExitCode {
    cli::log::start(args.audit_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let entered = runtime.enter();
    if let Err(error) = catch_hangups() {
        tracing::warn!(%error, "SIGHUP cannot be received");
    }
    drop(entered);
    // Everything that is wrong, in one pass, before anything is opened.
    if let Err(problems) = cli::start::examine(args, &process_environment) {
        cli::report(&problems);
        return ExitCode::from(cli::CONFIG_ERROR);
    }
    let result = runtime.block_on(proxward::serve::run(args));
    // Standard input is read by a thread that cannot be cancelled; do not wait for it.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
