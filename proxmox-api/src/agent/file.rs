use data_encoding::BASE64;

use super::{agent, bytes_of};
use crate::{
    client::Client,
    error::Error,
    guest::GuestRef,
    wire::{Field, Form, Record, Reply},
};

/// The most bytes one call writes, 45 KiB: PVE takes 61,440 characters, which is so much in base64.
pub const MAX_WRITE: usize = 46_080;

/// The most bytes one call reads, 16 MiB.
const MAX_READ: u32 = 16 * 1024 * 1024;

/// What was read of a file in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFile {
    /// The bytes.
    pub content: Vec<u8>,
    /// Whether the file goes on; [`Field::Absent`] when PVE does not say, which it does when it does not.
    pub truncated: Field<bool>,
}

impl AgentFile {
    fn read(
        reply: &Reply,
        data: &Record<'_>,
        decode: impl FnOnce(&str) -> Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        let text = data.text("content");
        let text = text.value().ok_or_else(|| reply.malformed("`content` is missing"))?;
        let content = decode(text).ok_or_else(|| reply.malformed("`content` is not base64"))?;
        Ok(Self { content, truncated: data.flag("truncated") })
    }
}

fn check_path(file: &str) -> Result<(), Error> {
    if file.is_empty() || file.contains('\0') {
        return Err(Error::argument("file", "empty, or with a NUL character; name a path in the guest"));
    }
    Ok(())
}

impl Client {
    /// Reads a file in a virtual machine from its beginning, 16 MiB at most (`GET …/agent/file-read`; needs
    /// `VM.GuestAgent.FileRead` or `VM.GuestAgent.Unrestricted`, before PVE 9 `VM.Monitor`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`TooLarge`](crate::ErrorKind::TooLarge) when the answer is larger than a client reads, which
    /// 16 MiB of most bytes are. A container is refused before anything is sent.
    pub async fn agent_file_read(&self, guest: &GuestRef, file: &str) -> Result<AgentFile, Error> {
        check_path(file)?;
        let reply = self.read(agent(guest, "file-read")?, Form::new().put("file", file)).await?;
        reply.record(|data| AgentFile::read(&reply, data, |text| Some(bytes_of(text))))
    }

    /// Reads `count` bytes of a file in a virtual machine, from `offset` on (`GET …/agent/file-read`; privileges as for
    /// [`Client::agent_file_read`]; PVE 9).
    ///
    /// # Errors
    /// As for [`Client::agent_file_read`]; before PVE 9 it is [`Parameter`](crate::ErrorKind::Parameter). A count of 0
    /// or of more than 16 MiB is refused before anything is sent.
    pub async fn agent_file_read_part(
        &self,
        guest: &GuestRef,
        file: &str,
        offset: u64,
        count: u32,
    ) -> Result<AgentFile, Error> {
        check_path(file)?;
        if !(1..=MAX_READ).contains(&count) {
            return Err(Error::argument("count", format!("expected 1 to {MAX_READ} bytes")));
        }
        let query =
            Form::new().put("file", file).put("offset", offset).put("count", count).put_flag("decode", false);
        let reply = self.read(agent(guest, "file-read")?, query).await?;
        reply.record(|data| {
            AgentFile::read(&reply, data, |text| BASE64.decode(text.trim_ascii().as_bytes()).ok())
        })
    }

    /// Writes a file in a virtual machine, at most [`MAX_WRITE`] bytes; what was in it is gone (`POST
    /// …/agent/file-write`; needs `VM.GuestAgent.FileWrite` or `VM.GuestAgent.Unrestricted`, before PVE 9 `VM.Monitor`;
    /// PVE 7 to 9). Done when it is answered. PVE has no way to append: write parts and put them together.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be written. A container and too many bytes
    /// are refused before anything is sent.
    pub async fn agent_file_write(&self, guest: &GuestRef, file: &str, content: &[u8]) -> Result<(), Error> {
        let path = agent(guest, "file-write")?;
        check_path(file)?;
        if content.len() > MAX_WRITE {
            let size = content.len();
            return Err(Error::argument(
                "content",
                format!("{size} bytes; one call writes at most {MAX_WRITE}"),
            ));
        }
        // Left to encode by itself, PVE would encode characters, not bytes.
        let form =
            Form::new().put("file", file).put("content", BASE64.encode(content)).put_flag("encode", false);
        self.post(path, form).await?.done()
    }
}
