use super::{agent, bytes_of};
use crate::{
    client::Client,
    error::Error,
    guest::GuestRef,
    wire::{Field, Form, Record},
};

/// PVE's own limit on what a program is given to read, in characters; each byte is one.
const MAX_INPUT: usize = 64 * 1024;

/// What became of a program in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecStatus {
    /// Whether it has ended. What the program wrote is told once, with the end: the agent forgets it then.
    pub exited: bool,
    /// Its exit code; on Windows also that of an exception.
    pub exitcode: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// What it wrote to its standard output.
    pub out: Vec<u8>,
    /// What it wrote to its standard error.
    pub err: Vec<u8>,
    /// Whether it wrote more to its standard output than the agent keeps, 16 MiB.
    pub out_truncated: Field<bool>,
    /// Whether it wrote more to its standard error than the agent keeps.
    pub err_truncated: Field<bool>,
}

impl ExecStatus {
    /// Whether it ended by itself with exit code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exited && self.exitcode == Some(0) && self.signal.is_none()
    }

    fn read(data: &Record<'_>) -> Option<Self> {
        let output = |key: &str| data.text(key).value().map(|text| bytes_of(text)).unwrap_or_default();
        Some(Self {
            exited: *data.flag("exited").value()?,
            exitcode: data.signed("exitcode"),
            signal: data.signed("signal"),
            out: output("out-data"),
            err: output("err-data"),
            out_truncated: data.flag("out-truncated"),
            err_truncated: data.flag("err-truncated"),
        })
    }
}

impl Client {
    /// Starts a program in a virtual machine and gives its process id (`POST …/agent/exec`; needs
    /// `VM.GuestAgent.Unrestricted`, before PVE 9 `VM.Monitor`; PVE 8 and 9). `command` is the program and its
    /// arguments, each as it is: there is no shell. `input` is what it reads: at most 64 KiB of ASCII, because PVE hands on
    /// characters, not bytes. Other bytes have to be encoded, as base64, and decoded in the guest.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be running. A container, an empty command
    /// and input that is too much or not ASCII are refused before anything is sent.
    pub async fn agent_exec(
        &self,
        guest: &GuestRef,
        command: &[&str],
        input: Option<&[u8]>,
    ) -> Result<u64, Error> {
        let path = agent(guest, "exec")?;
        if command.first().is_none_or(|program| program.is_empty()) {
            return Err(Error::argument("command", "no program; the first element names it"));
        }
        if command.iter().any(|part| part.contains('\0')) {
            return Err(Error::argument("command", "a NUL character, which no argument can hold"));
        }
        if input.is_some_and(|input| input.len() > MAX_INPUT) {
            return Err(Error::argument(
                "input-data",
                format!("more than {MAX_INPUT} bytes; write a file instead"),
            ));
        }
        let input =
            input.map(|input| std::str::from_utf8(input).ok().filter(|text| text.is_ascii())).map(|ascii| {
                ascii.ok_or_else(|| {
                    Error::argument("input-data", "bytes beyond ASCII; encode them, as base64")
                })
            });
        let form = command.iter().fold(Form::new(), |form, part| form.put("command", part));
        let reply = self.post(path, form.put_some("input-data", input.transpose()?)).await?;
        // Neither may an answer without one, or without anything, be taken for a start.
        let pid = reply.record(|data| Ok(data.integer("pid"))).unwrap_or_default();
        pid.ok_or_else(|| reply.malformed("the agent gave no process id; the program may be running"))
    }

    /// What became of a program (`GET …/agent/exec-status`; privileges as for [`Client::agent_exec`]; PVE 7 to 9). Once
    /// it has been told of the end, the agent knows the process no more.
    ///
    /// # Errors
    /// See [`Error`]. A container is refused before anything is sent.
    pub async fn agent_exec_status(&self, guest: &GuestRef, pid: u64) -> Result<ExecStatus, Error> {
        let reply = self.read_once(agent(guest, "exec-status")?, Form::new().put("pid", pid)).await?;
        reply.record(|data| ExecStatus::read(data).ok_or_else(|| reply.malformed("`exited` is missing")))
    }
}
