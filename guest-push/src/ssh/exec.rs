//! Running one command on the node.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinHandle;
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
        let channel = self.start(line, step).await?;
        let (mut reads, writes) = channel.split();
        match drain(&mut reads, step).await {
            Ok(ended) => self.judge(ended, step),
            Err(error) => {
                let _closing = writes.close().await;
                Err(error)
            }
        }
    }

    async fn start(&self, line: Vec<u8>, step: Step) -> Result<Channel<Msg>, PushError> {
        let channel = self.channel(step).await?;
        channel.exec(true, line).await.map_err(|error| broken(step, &error))?;
        Ok(channel)
    }

    fn judge(&self, ended: Ended, step: Step) -> Result<Output, PushError> {
        let Ended { status, stdout, complaint } = ended;
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

    /// Starts a command that reads its standard input from us. `step` bounds the start; the command's end is the task's.
    pub(crate) async fn feed(
        self: &Arc<Self>,
        argv: &[impl AsRef<[u8]>],
        step: Step,
        deadline: Duration,
    ) -> Result<(Feed, JoinHandle<Result<Output, PushError>>), PushError> {
        let line = quote::argv(argv).map_err(|nul| PushError::new(PushErrorKind::Target, nul.to_string()))?;
        let channel = timeout(deadline, self.start(line, step))
            .await
            .map_err(|_| PushError::deadline(step, deadline))??;
        let (mut reads, writes) = channel.split();
        let session = Arc::clone(self);
        let (done, gone) = watch::channel(false);
        let ended = tokio::spawn(async move {
            let ended = drain(&mut reads, step).await;
            done.send_replace(true);
            session.judge(ended?, step)
        });
        Ok((Feed { writes: Arc::new(writes), gone }, ended))
    }

    /// Starts a command whose standard output is the answer, of any length.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        argv: &[impl AsRef<[u8]>],
        step: Step,
        deadline: Duration,
    ) -> Result<Fetch, PushError> {
        let line = quote::argv(argv).map_err(|nul| PushError::new(PushErrorKind::Target, nul.to_string()))?;
        let channel = timeout(deadline, self.start(line, step))
            .await
            .map_err(|_| PushError::deadline(step, deadline))??;
        Ok(Fetch { session: Arc::clone(self), channel, step, complaint: Vec::new(), status: None })
    }
}

/// What came of a command, before it is judged.
struct Ended {
    status: Option<u32>,
    stdout: Vec<u8>,
    complaint: String,
}

/// Reads a channel to its end in any case: one that is not drained stalls the whole connection.
async fn drain(channel: &mut ChannelReadHalf, step: Step) -> Result<Ended, PushError> {
    let mut stdout = Vec::new();
    let mut complaint = Vec::new();
    let mut status = None;
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                if stdout.len() + data.len() > MAX_OUTPUT {
                    return Err(remote(
                        step,
                        None,
                        format!("more than {MAX_OUTPUT} bytes of output while {step}"),
                    ));
                }
                stdout.extend_from_slice(&data);
            }
            ChannelMsg::ExtendedData { data, .. } => keep(&mut complaint, &data),
            ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
            ChannelMsg::Failure => return Err(refused(step)),
            // The channel's end follows, with no status: treated as lost. The rest carries no news.
            _ => {}
        }
    }
    Ok(Ended { status, stdout, complaint: printable(&complaint) })
}

fn refused(step: Step) -> PushError {
    remote(step, None, format!("the node refused to run a command while {step}"))
}

fn keep(complaint: &mut Vec<u8>, data: &[u8]) {
    let room = MAX_COMPLAINT.saturating_sub(complaint.len());
    complaint.extend_from_slice(&data[..data.len().min(room)]);
}

/// The standard input of a command under way. Clones feed the same command.
#[derive(Clone)]
pub(crate) struct Feed {
    writes: Arc<ChannelWriteHalf<Msg>>,
    gone: watch::Receiver<bool>,
}

impl Feed {
    /// Hands bytes over, waiting while the command does not take any; `idle` bounds that wait. `Ok(false)`: the command has
    /// ended and takes nothing more; its own end says why.
    pub(crate) async fn write(
        &mut self,
        bytes: Bytes,
        step: Step,
        idle: Duration,
    ) -> Result<bool, PushError> {
        let handed = timeout(idle, self.writes.data_bytes(bytes));
        tokio::select! {
            biased;
            _ = self.gone.wait_for(|gone| *gone) => Ok(false),
            written = handed => match written {
                Err(_) => Err(PushError::deadline(step, idle)),
                Ok(Err(error)) => Err(broken(step, &error)),
                Ok(Ok(())) => Ok(true),
            },
        }
    }

    /// True when the command has ended.
    pub(crate) fn has_ended(&self) -> bool {
        *self.gone.borrow()
    }

    /// Waits for the command's end.
    pub(crate) async fn ended(&self) {
        let mut gone = self.gone.clone();
        // Without a sender it has ended, too.
        let _ended = gone.wait_for(|gone| *gone).await;
    }

    /// Ends the input: the command sees its end of file once it has read what was written.
    pub(crate) async fn end(&self) {
        // A connection that is gone has ended it already.
        let _sent = self.writes.eof().await;
    }
}

/// The standard output of a command under way.
pub(crate) struct Fetch {
    session: Arc<Session>,
    channel: Channel<Msg>,
    step: Step,
    complaint: Vec<u8>,
    status: Option<u32>,
}

impl Fetch {
    /// The next bytes; `None` once the command has ended well. `idle` bounds the wait.
    pub(crate) async fn next(&mut self, idle: Duration) -> Result<Option<Bytes>, PushError> {
        let step = self.step;
        loop {
            let message =
                timeout(idle, self.channel.wait()).await.map_err(|_| PushError::deadline(step, idle))?;
            match message {
                Some(ChannelMsg::Data { data }) if data.is_empty() => {}
                Some(ChannelMsg::Data { data }) => return Ok(Some(data)),
                Some(ChannelMsg::ExtendedData { data, .. }) => keep(&mut self.complaint, &data),
                Some(ChannelMsg::ExitStatus { exit_status }) => self.status = Some(exit_status),
                Some(ChannelMsg::Failure) => return Err(refused(step)),
                Some(_) => {}
                None => {
                    let complaint = printable(&self.complaint);
                    let ended = Ended { status: self.status, stdout: Vec::new(), complaint };
                    let output = self.session.judge(ended, step)?;
                    if output.status != 0 {
                        return Err(remote(
                            step,
                            Some(output.status),
                            format!("status {} while {step}{}", output.status, colon(&output.complaint)),
                        ));
                    }
                    return Ok(None);
                }
            }
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
