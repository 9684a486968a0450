//! Files in a guest.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use data_encoding::BASE64;
use serde_json::json;

use crate::api::handlers::Call;
use crate::api::handlers::agent::{answering, latin1};
use crate::api::reply::{Answer, Refusal};
use crate::cluster::guest_folder;
use crate::node::{files, pct};

/// The most bytes of one answer.
const MOST: u64 = 16 << 20;

/// The mode of a file that the agent makes.
const NEW_FILE: u32 = 0o666;

fn root(call: &Call<'_>) -> Result<PathBuf, Refusal> {
    let guest = answering(call)?;
    Ok(guest_folder(&call.cluster.root, guest.vmid, guest.generation))
}

fn cannot_open(file: &str, mode: &str, error: &io::Error) -> Refusal {
    Refusal::die(format!(
        "Agent error: failed to open file '{file}' (mode: '{mode}'): {}",
        pct::reason(error)
    ))
}

pub(crate) fn read(call: &Call<'_>) -> Result<Answer, Refusal> {
    let root = root(call)?;
    let name = call.get("file").unwrap_or_default();
    let number = |key: &str, default: u64| {
        call.number(key).and_then(|number| u64::try_from(number).ok()).unwrap_or(default)
    };
    let (offset, count) = (number("offset", 0), number("count", MOST).min(MOST));
    let path = files::resolve(&root, name, true).map_err(|error| cannot_open(name, "r", &error))?;
    let mut file = File::open(path).map_err(|error| cannot_open(name, "r", &error))?;
    let mut bytes = Vec::new();
    let read = file
        .seek(SeekFrom::Start(offset))
        .and_then(|_| Read::by_ref(&mut file).take(count).read_to_end(&mut bytes))
        .and_then(|_| Ok(file.metadata()?.len()));
    let size = match read {
        Ok(size) => size,
        Err(error) => {
            return Err(Refusal::die(format!("Agent error: failed to read file: {}", pct::reason(&error))));
        }
    };
    let content = if call.get("decode") == Some("0") { BASE64.encode(&bytes) } else { latin1(&bytes) };
    let mut row = json!({ "content": content, "bytes-read": bytes.len() });
    if offset + (bytes.len() as u64) < size {
        row["truncated"] = json!(1);
    }
    Ok(Answer::Data(row))
}

/// Writes a file anew. Without `encode` the content is base64 already; with it, PVE encodes characters as bytes of Latin-1
/// and fails on others.
pub(crate) fn write(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let root = root(call)?;
    let name = call.get("file").unwrap_or_default();
    let content = call.get("content").unwrap_or_default();
    let bytes = if call.get("encode") == Some("0") {
        BASE64
            .decode(content.trim_end().as_bytes())
            .map_err(|_| Refusal::die(format!("Agent error: Base64 data '{content}' is not valid")))?
    } else {
        let bytes: Result<Vec<u8>, _> = content.chars().map(|char| u8::try_from(u32::from(char))).collect();
        bytes.map_err(|_| Refusal::die("Wide character in subroutine entry"))?
    };
    let path = files::resolve(&root, name, true).map_err(|error| cannot_open(name, "wb", &error))?;
    let fresh = !path.exists();
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    let mut file = opened.map_err(|error| cannot_open(name, "wb", &error))?;
    let written = file
        .write_all(&bytes)
        .and_then(|()| if fresh { file.set_permissions(Permissions::from_mode(NEW_FILE)) } else { Ok(()) });
    match written {
        Ok(()) => Ok(Answer::Changed),
        Err(error) => {
            Err(Refusal::die(format!("Agent error: failed to write to file: {}", pct::reason(&error))))
        }
    }
}
