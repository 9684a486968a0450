//! The guest agent of a virtual machine: programs and files within it. Containers have none, and nothing in its place:
//! PVE's API can neither run a program in a container nor write a file there.
//!
//! All calls need the agent to be configured and running; otherwise PVE answers with an error that says so.

mod exec;
mod file;

pub use exec::ExecStatus;
pub use file::{AgentFile, MAX_WRITE};

use crate::{
    client::Client,
    error::Error,
    guest::{GuestKind, GuestRef},
    wire::{Form, JsonMap, Path},
};

/// `…/agent/{command}`
fn agent(guest: &GuestRef, command: &'static str) -> Result<Path, Error> {
    guest.must_be(
        GuestKind::Qemu,
        "PVE's API has nothing like it for containers; go through a shell on the node (`pct`)",
    )?;
    Ok(guest.path().word("agent").word(command))
}

/// PVE hands on bytes from the guest as text, one character of Latin-1 for each. Gives back the bytes. A text with
/// other characters was not made that way and is taken as it is.
fn bytes_of(text: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

impl Client {
    /// Whether the guest agent answers (`POST …/agent/ping`; needs `VM.GuestAgent.Audit` or
    /// `VM.GuestAgent.Unrestricted`, before PVE 9 `VM.Monitor`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; that it does not answer is one. A container is refused before anything is sent.
    pub async fn agent_ping(&self, guest: &GuestRef) -> Result<(), Error> {
        self.post(agent(guest, "ping")?, Form::new()).await?.done()
    }

    /// What the agent says about the operating system (`GET …/agent/get-osinfo`; privileges as for
    /// [`Client::agent_ping`]; PVE 7 to 9): `id`, `pretty-name`, `version-id`, `kernel-release` and more, as it sends
    /// them.
    ///
    /// # Errors
    /// See [`Error`]. A container is refused before anything is sent.
    pub async fn agent_osinfo(&self, guest: &GuestRef) -> Result<JsonMap, Error> {
        let reply = self.read(agent(guest, "get-osinfo")?, Form::new()).await?;
        reply.record(|data| match data.record("result") {
            Some(result) => Ok(result.json()),
            None => Err(reply.malformed("`result` is missing")),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            let text: String = bytes.iter().copied().map(char::from).collect();
            prop_assert_eq!(bytes_of(&text), bytes);
        }
    }

    #[test]
    fn text_that_is_not_latin_1_stays_itself() {
        assert_eq!(bytes_of("\u{e4}"), [0xe4]);
        assert_eq!(bytes_of("\u{c3}\u{a4}"), "ä".as_bytes(), "UTF-8 the guest wrote");
        assert_eq!(bytes_of("€"), "€".as_bytes());
    }
}
