//! The envelope `{"data": …}` of every answer, and the three places an error text can be in.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::value::RawValue;

use super::{Field, Listing, Record, Scalar, Scan, ScanError, Scrubber};
use crate::{
    error::{Effect, Error, ErrorKind},
    ids::Upid,
};

/// A successful answer, not read yet.
#[derive(Debug)]
pub(crate) struct Reply {
    text: String,
    /// What the call has done if its answer turns out to be unreadable.
    effect: Effect,
    scrubber: Scrubber,
    call: String,
}

impl Reply {
    pub(crate) fn new(body: Vec<u8>, effect: Effect, scrubber: Scrubber, call: String) -> Self {
        Self { text: text_of(body), effect, scrubber, call }
    }

    /// The body as text, taken out of the answer.
    pub(crate) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// An error about this answer.
    pub(crate) fn malformed(&self, problem: &str) -> Error {
        let message = self.scrubber.clean(&format!("the answer is not what PVE answers: {problem}"));
        Error::new(ErrorKind::Malformed, self.effect, message).with_call(self.call.clone())
    }

    /// Reads `data` as a list, entry by entry.
    pub(crate) fn list<T>(&self, row: impl FnMut(&Record<'_>) -> Option<T>) -> Result<Listing<T>, Error> {
        self.open(|reply, data, envelope| {
            let mut list = Listing::read(data, row)
                .map_err(|error| reply.malformed(&format!("`data` is not a list that can be read ({error})")))?;
            list.total = envelope.integer("total");
            if list.skipped > 0 {
                tracing::warn!(call = %reply.call, skipped = list.skipped, "entries of a list could not be read");
            }
            Ok(list)
        })
    }

    /// Reads `data` as an object.
    pub(crate) fn record<T>(&self, read: impl FnOnce(&Record<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.open(|reply, data, _| match Record::parse(data) {
            Some(record) => read(&record),
            None => Err(reply.malformed("`data` is not an object")),
        })
    }

    /// Whether `data` is null.
    pub(crate) fn is_null(&self) -> Result<bool, Error> {
        Ok(self.scalar()? == Scalar::Null)
    }

    /// `data` as a single value.
    pub(crate) fn scalar(&self) -> Result<Scalar, Error> {
        self.open(|_, data, _| Ok(Scalar::read(data)))
    }

    /// Reads `data` as the handle of the task the call started.
    pub(crate) fn upid(&self) -> Result<Upid, Error> {
        self.open(|reply, data, envelope| match Scalar::read(data) {
            Scalar::Text(text) => text.parse().map_err(|error| reply.malformed(&format!("{error}"))),
            _ => {
                let note = envelope.filled("message").map(|m| format!("; it says: {m}")).unwrap_or_default();
                Err(reply.malformed(&format!("`data` is not a task id{note}")))
            }
        })
    }

    /// Reads the handle of a task where PVE may also have nothing to do, or have done it already: then `data` is null
    /// or the word `OK`.
    pub(crate) fn upid_if_any(&self) -> Result<Option<Upid>, Error> {
        match self.scalar()? {
            Scalar::Null => Ok(None),
            Scalar::Text(text) if text == "OK" => Ok(None),
            _ => self.upid().map(Some),
        }
    }

    /// The answer to a call that is done when it is answered: an envelope, whatever is in it.
    pub(crate) fn done(&self) -> Result<(), Error> {
        self.open(|_, _, _| Ok(()))
    }

    fn open<T>(
        &self,
        read: impl FnOnce(&Self, &RawValue, &Record<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let text = self.text.as_str();
        if let Err(error @ ScanError::Depth(_)) = Scan::check(text) {
            return Err(self.malformed(&error.to_string()));
        }
        let envelope: Record<'_> = serde_json::from_str(text)
            .map_err(|error| self.malformed(&format!("the body is not a JSON object ({error})")))?;
        match envelope.raw("data") {
            Some(data) => read(self, data, &envelope),
            None => Err(self.malformed("`data` is missing")),
        }
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The body as text. A byte that is no UTF-8, from a hand-edited description, must not cost a whole list: it becomes a
/// question mark, in its own place, so that a body full of them takes no more room than it did.
fn text_of(mut body: Vec<u8>) -> String {
    if body.starts_with(BYTE_ORDER_MARK) {
        body.drain(..BYTE_ORDER_MARK.len());
    }
    let (mut body, mut good) = match String::from_utf8(body) {
        Ok(text) => return text,
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            (error.into_bytes(), good)
        }
    };
    while let Some(rest) = body.get_mut(good..)
        && let Err(error) = std::str::from_utf8(rest)
    {
        let bad = error.valid_up_to();
        let end = bad + error.error_len().unwrap_or(rest.len() - bad);
        if let Some(bad) = rest.get_mut(bad..end) {
            bad.fill(b'?');
        }
        good += end;
    }
    String::from_utf8(body).unwrap_or_default()
}

/// Turns an answer other than 2xx into an error. `mutation` says whether the call was meant to change something.
///
/// The text is looked for in the body's `message`, which PVE fills since 8.4, then in the reason phrase, which
/// older versions have only, then in the standard text of the status. A reason phrase with a byte outside ASCII
/// arrives empty.
pub(crate) fn refusal(
    status: StatusCode,
    reason: Option<&[u8]>,
    body: Vec<u8>,
    mutation: bool,
    scrubber: &Scrubber,
) -> Error {
    let text = text_of(body);
    let envelope: Option<Record<'_>> =
        Scan::check(&text).ok().and_then(|()| serde_json::from_str(&text).ok());
    let said = envelope.as_ref().and_then(|body| body.filled("message")).filter(|m| !m.trim().is_empty());
    let parameter_errors: BTreeMap<String, String> = envelope
        .as_ref()
        .and_then(|body| body.record("errors"))
        .map(|errors| {
            errors
                .keys()
                .take(64)
                .map(|key| {
                    let problem = match errors.text(key) {
                        Field::Value(text) => scrubber.clean(&text),
                        Field::Absent | Field::Unreadable => "refused".to_owned(),
                    };
                    (scrubber.clean(key), problem)
                })
                .collect()
        })
        .unwrap_or_default();
    let message = said
        .or_else(|| {
            let reason = String::from_utf8_lossy(reason?);
            (!reason.trim().is_empty()).then(|| reason.into_owned())
        })
        .unwrap_or_else(|| canonical(status).to_owned());
    let message = scrubber.clean(&message);
    let kind = kind_of(status.as_u16(), &message, &parameter_errors);
    let effect = if mutation { effect_of(status.as_u16()) } else { Effect::Refused };
    Error::new(kind, effect, message).with_status(status.as_u16()).with_parameter_errors(parameter_errors)
}

fn canonical(status: StatusCode) -> &'static str {
    match status.as_u16() {
        595 => "the node asked could not connect to the other node",
        596 => "the node asked lost the other node, or waited too long for it",
        597..=599 => "the node asked could not read the other node's answer",
        _ => status.canonical_reason().unwrap_or("no reason was given"),
    }
}

/// Whether a mutation that was answered with this status may have been carried out.
fn effect_of(status: u16) -> Effect {
    match status {
        // The API said no by itself.
        400..=407 | 409..=501 | 505 | 506 => Effect::Refused,
        // The hop to the other node was never connected. Later failures of the hop (596 to 599) come after the
        // request went out; PVE cuts it at 30 s while the operation goes on.
        595 => Effect::Refused,
        // Redirects, gateways in between, and what nobody foresaw.
        _ => Effect::Unknown,
    }
}

fn kind_of(status: u16, message: &str, errors: &BTreeMap<String, String>) -> ErrorKind {
    match status {
        300..=399 => ErrorKind::Redirected,
        400 if errors.get("upid").is_some_and(|problem| problem == "no such task") => ErrorKind::NotFound,
        400 => ErrorKind::Parameter,
        401 => ErrorKind::Unauthorized,
        403 => ErrorKind::PermissionDenied,
        501 if message.starts_with("Method '") => ErrorKind::Unsupported,
        // A name no node has is told with the status of a dead node or with 500.
        500 | 595..=599 if is_not_found(message) => ErrorKind::NotFound,
        595..=599 => ErrorKind::NodeUnreachable,
        500 if message.starts_with("can't lock file")
            || message.contains("cfs-lock") && is_timeout(message) =>
        {
            ErrorKind::Busy
        }
        500 if message.contains("no quorum") || is_read_only(message) => ErrorKind::NoQuorum,
        500 if is_taken(message) => ErrorKind::Exists,
        500 if message.starts_with("VM is locked (") || message.starts_with("CT is locked (") => {
            ErrorKind::Locked
        }
        500 if message.starts_with("checksum mismatch (file change by other user?)")
            || message.starts_with("detected modified configuration") =>
        {
            ErrorKind::Changed
        }
        _ => ErrorKind::Server,
    }
}

/// Without quorum the cluster's file system takes no writes, and some calls say no more than that.
fn is_read_only(message: &str) -> bool {
    message.starts_with("unable to open file '/etc/pve/") && message.trim_end().ends_with("Permission denied")
}

fn is_timeout(message: &str) -> bool {
    message.contains("got timeout") || message.contains("timed out")
}

/// PVE has no 409 either: that the number or name is taken is told by text.
fn is_taken(message: &str) -> bool {
    let line = message.lines().next().unwrap_or_default().trim_end();
    let guest =
        ["unable to create ", "unable to restore ", "CT ", "VM "].iter().any(|start| line.starts_with(start));
    (guest && (line.contains(" already exists on node '") || line.ends_with(": config file already exists")))
        || (line.starts_with("create ")
            && (line.ends_with(" already defined") || line.ends_with(" already exists")))
}

/// PVE has no 404: what does not exist is told by text.
fn is_not_found(message: &str) -> bool {
    let line = message.lines().next().unwrap_or_default().trim_end();
    let named = [
        "Configuration file 'nodes/",
        "storage '",
        "pool '",
        "snapshot '",
        "disk '",
        "volume '",
        "security group '",
        "unable to find configuration file for ",
    ];
    (line.ends_with("does not exist") && named.iter().any(|start| line.starts_with(start)))
        || line.starts_with("unable to find configuration file for ")
        || line.starts_with("hostname lookup '")
        || line.starts_with("no such ")
}
