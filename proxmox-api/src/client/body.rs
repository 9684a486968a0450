//! Receiving the body of an answer: bounded in bytes and in silence.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::fault::chain;

/// The largest answer that is read.
pub(super) const ANSWER_CAP: usize = 16 * 1024 * 1024;
/// The largest body of a refusal that is looked into.
pub(super) const REFUSAL_CAP: usize = 256 * 1024;
/// Room made at once for a body whose length is announced, an announcement being cheap.
const ROOM: usize = 4 * 1024 * 1024;

/// Why a body did not arrive.
#[derive(Debug)]
pub(super) enum BodyFault {
    /// It has more bytes than this.
    TooLarge(usize),
    /// Nothing came for this long.
    Silent(Duration),
    /// The connection broke.
    Broken(String),
}

/// The whole body, of at most `cap` bytes and with no pause longer than `idle`. One that announces more is not read.
pub(super) async fn collect(mut body: Incoming, cap: usize, idle: Duration) -> Result<Vec<u8>, BodyFault> {
    let announced = body.size_hint().lower();
    if usize::try_from(announced).map_or(true, |announced| announced > cap) {
        return Err(BodyFault::TooLarge(cap));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(announced).unwrap_or(0).min(ROOM));
    while let Some(frame) = timeout(idle, body.frame()).await.map_err(|_| BodyFault::Silent(idle))? {
        let frame = frame.map_err(|error| BodyFault::Broken(chain(&error)))?;
        // Trailers are of no use here.
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > cap {
            return Err(BodyFault::TooLarge(cap));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}
