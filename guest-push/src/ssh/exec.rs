//! Running one command on the node.

use std::time::Duration;

use russh::ChannelMsg;
use tokio::time::timeout;

use super::Session;
use super::session::broken;
use crate::error::{PushError, PushErrorKind, Step};
use crate::quote;

/// The most a command may print on standard output. The scripts print a word or a hash; more is not an answer.
const MAX_OUTPUT: usize = 4096;
/// How much of standard error is kept for the message; the rest is read and dropped.
const MAX_COMPLAINT: usize = 1024;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit status. A command that was killed or lost has none and is an error instead.
    pub(crate) status: u32,
    /// Standard output, at most [`MAX_OUTPUT`] bytes.
    pub(crate) stdout: Vec<u8>,
    /// The start of standard error, with everything but printable characters replaced.
    pub(crate) complaint: String,
}

impl Session {
    /// Runs an argument vector through the login shell and waits for its end.
    pub(crate) async fn run(
        &self,
        argv: &[impl AsRef<[u8]>],
        step: Step,
        deadline: Duration,
    ) -> Result<Output, PushError> {
        let line = quote::argv(argv).map_err(|nul| PushError::new(PushErrorKind::Target, nul.to_string()))?;
        timeout(deadline, self.run_line(line, step)).await.map_err(|_| PushError::deadline(step, deadline))?
    }

    async fn run_line(&self, line: Vec<u8>, step: Step) -> Result<Output, PushError> {
        let mut channel = self.channel(step).await?;
        channel.exec(true, line).await.map_err(|error| broken(step, &error))?;
        let mut stdout = Vec::new();
        let mut complaint = Vec::new();
        let mut status = None;
        // To the end in any case: a channel that is not drained stalls the whole connection.
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => {
                    if stdout.len() + data.len() > MAX_OUTPUT {
                        let _closing = channel.close().await;
                        return Err(remote(
                            step,
                            None,
                            format!("more than {MAX_OUTPUT} bytes of output while {step}"),
                        ));
                    }
                    stdout.extend_from_slice(&data);
                }
                ChannelMsg::ExtendedData { data, .. } => {
                    let room = MAX_COMPLAINT - complaint.len();
                    complaint.extend_from_slice(&data[..data.len().min(room)]);
                }
                ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
                ChannelMsg::Failure => {
                    return Err(remote(
                        step,
                        None,
                        format!("the node refused to run a command while {step}"),
                    ));
                }
                // The channel's end follows, with no status: treated as lost below. The rest carries no news.
                _ => {}
            }
        }
        let complaint = printable(&complaint);
        match status {
            Some(status) => Ok(Output { status, stdout, complaint }),
            None if self.is_closed() => Err(broken(step, &"the node closed it")),
            None => Err(remote(
                step,
                None,
                format!("the command was killed or lost while {step}{}", colon(&complaint)),
            )),
        }
    }
}

/// An answer that is not one, with what the command complained about.
pub(crate) fn remote(step: Step, status: Option<u32>, message: impl Into<String>) -> PushError {
    PushError::new(PushErrorKind::Remote { step, status }, message)
}

/// `: text`, or nothing.
pub(crate) fn colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// A far side's words made safe for a log line: one line, no control or direction-changing characters, short.
pub(crate) fn printable(bytes: &[u8]) -> String {
    const MAX_CHARS: usize = 300;
    let text = String::from_utf8_lossy(bytes);
    let clean: String = text
        .trim()
        .chars()
        .take(MAX_CHARS)
        .map(|c| match c {
            '\n' => ' ',
            // Bidirectional controls and zero-width characters reorder or hide what a reader sees.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => '?',
            c if c.is_control() => '?',
            c => c,
        })
        .collect();
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_one_short_printable_line() {
        assert_eq!(printable(b"  can't open\nfile\x1b[31m\r\0 "), "can't open file?[31m??");
        assert_eq!(printable("a\u{202e}b\u{feff}c\u{9b}".as_bytes()), "a?b?c?");
        assert_eq!(printable(&[0xff; 2]), "\u{fffd}\u{fffd}");
        assert_eq!(printable(&[b'x'; 5000]).len(), 300);
    }
}
