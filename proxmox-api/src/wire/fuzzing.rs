//! What the fuzz target over answers calls. Not part of the API.

use http::StatusCode;
use secrecy::SecretString;

use super::{Field, Record, Reply, Scrubber, refusal};
use crate::error::{Effect, Error};

/// An entry's field `f` through every reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// As a boolean.
    pub flag: Field<bool>,
    /// As a counter.
    pub integer: Option<u64>,
    /// As a decimal.
    pub float: Option<f64>,
    /// As a text.
    pub text: Field<String>,
}

fn read(row: &Record<'_>) -> Option<Read> {
    Some(Read { flag: row.flag("f"), integer: row.integer("f"), float: row.float("f"), text: row.text("f") })
}

fn reply(body: &[u8], secret: &str) -> Reply {
    let scrubber = Scrubber::new(SecretString::from(secret.to_owned()));
    Reply::new(body.to_vec(), Effect::Unknown, scrubber, "GET /x".to_owned())
}

/// A body as a list: the entries read, and how many were not.
///
/// # Errors
/// It is no list.
pub fn list(body: &[u8], secret: &str) -> Result<(Vec<Read>, usize), Error> {
    reply(body, secret).list(read).map(|list| (list.items, list.skipped))
}

/// A body as one object.
///
/// # Errors
/// It is none.
pub fn record(body: &[u8], secret: &str) -> Result<Option<Read>, Error> {
    reply(body, secret).record(|row| Ok(read(row)))
}

/// A body as the handle of a task.
///
/// # Errors
/// It is none.
pub fn upid(body: &[u8], secret: &str) -> Result<crate::Upid, Error> {
    reply(body, secret).upid()
}

/// A body as the refusal of a mutation with this status and reason phrase; `None` for what is no status.
pub fn refused(status: u16, reason: &[u8], body: &[u8], secret: &str) -> Option<Error> {
    let scrubber = Scrubber::new(SecretString::from(secret.to_owned()));
    let status = StatusCode::from_u16(status).ok()?;
    Some(refusal(status, Some(reason), body.to_vec(), true, &scrubber))
}
