//! What a failure of the transport says about the request.

use std::{error::Error as StdError, io};

use hyper_util::client::legacy;

use super::body::BodyFault;
use crate::error::{Effect, Error, ErrorKind};

/// How an attempt at one endpoint failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection: nothing was sent.
    Connect(Error),
    /// The connection broke; sending a read again may help.
    Broken(Error),
    /// The endpoint is there and of no use: silent, or a gateway with nothing behind it. Another may do for a read.
    Useless(Error),
    /// Final.
    Final(Error),
}

/// Sorts a transport error by what it says about the request.
pub(super) fn failure(error: legacy::Error, mutation: bool) -> Failure {
    let connect = error.is_connect();
    let effect = match (connect, mutation) {
        (true, _) => Effect::NotSent,
        (false, true) => Effect::Unknown,
        (false, false) => Effect::Refused,
    };
    let text = chain(&error);
    let parse = links(&error).any(|e| e.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse));
    let kind = if is_tls(&error) {
        ErrorKind::Tls
    } else if connect {
        ErrorKind::Unreachable
    } else if parse {
        ErrorKind::Malformed
    } else {
        ErrorKind::Disconnected
    };
    let built = Error::new(kind, effect, text).with_source(error);
    match kind {
        _ if connect => Failure::Connect(built),
        ErrorKind::Malformed => Failure::Final(built),
        _ => Failure::Broken(built),
    }
}

/// A body that did not arrive.
pub(super) fn body_failure(fault: BodyFault, effect: Effect) -> Failure {
    match fault {
        BodyFault::TooLarge(cap) => {
            let message = format!("the answer is larger than {cap} bytes");
            Failure::Final(Error::new(ErrorKind::TooLarge, effect, message))
        }
        BodyFault::Silent(idle) => {
            let message = format!("the answer broke off: nothing more came for {idle:?}");
            Failure::Useless(Error::new(ErrorKind::Timeout, effect, message))
        }
        BodyFault::Broken(why) => {
            let message = format!("the answer broke off: {why}");
            Failure::Broken(Error::new(ErrorKind::Disconnected, effect, message))
        }
    }
}

/// No endpoint was of use: says what happened at each. A failure that came after a connection tells more than one before.
pub(super) fn nowhere(mut failed: Vec<(String, Error)>) -> Error {
    let sent = |error: &Error| error.effect() != Effect::NotSent;
    if failed.len() == 1 && failed.iter().all(|(_, error)| sent(error)) {
        return failed.remove(0).1;
    }
    let list: Vec<String> =
        failed.iter().map(|(endpoint, error)| format!("{endpoint}: {}", error.message())).collect();
    let list = list.join("; ");
    let telling = failed
        .iter()
        .rposition(|(_, error)| sent(error))
        .or_else(|| failed.iter().rposition(|(_, error)| error.kind() == ErrorKind::Tls))
        .unwrap_or(failed.len().saturating_sub(1));
    let Some((_, source)) = (telling < failed.len()).then(|| failed.swap_remove(telling)) else {
        return Error::config("this client has no endpoint");
    };
    let what = if sent(&source) { "no endpoint answered:" } else { "no connection to" };
    let error = Error::new(source.kind(), source.effect(), format!("{what} {list}"));
    match source.status() {
        Some(status) => error.with_status(status),
        None => error,
    }
    .with_source(source)
}

/// An error and its causes. An `io::Error` hides the error it wraps from `source`, so it is unwrapped here.
fn links<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |link| {
        let link: &'a (dyn StdError + 'static) = *link;
        match link.downcast_ref::<io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as _),
            None => link.source(),
        }
    })
}

pub(crate) fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    links(error).any(|link| link.is::<rustls::Error>())
}

/// The causes in one line, innermost last, without the wrappers that repeat or say nothing.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    for link in links(error) {
        let part = link.to_string();
        if part.starts_with("client error (") || text.ends_with(&part) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_of_an_error_are_told_once() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let error = io::Error::other(tls);
        assert!(is_tls(&error));
        assert_eq!(chain(&error), "invalid peer certificate: Expired");
        let error = io::Error::new(io::ErrorKind::ConnectionRefused, "no");
        assert!(!is_tls(&error));
        assert_eq!(chain(&error), "no");
    }
}
