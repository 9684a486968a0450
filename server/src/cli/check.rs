//! `proxward check`: would the server start?

use std::process::ExitCode;

use super::args::ServeArgs;
use super::{CONFIG_ERROR, start};
use crate::config::process_environment;

/// Reports every problem and warning; exit status 0 when the server would start, 78 when not.
pub fn run(args: &ServeArgs) -> ExitCode {
    match start::examine(args, &process_environment) {
        Ok(warnings) => {
            for warning in &warnings {
                eprintln!("warning: {warning}");
            }
            eprintln!("ok");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            super::report(&problems);
            ExitCode::from(CONFIG_ERROR)
        }
    }
}
