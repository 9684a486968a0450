//! Standard output of the verbs.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Prints the text. A reader that has seen enough (`proxward … | head -1`) is no failure.
pub(super) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
