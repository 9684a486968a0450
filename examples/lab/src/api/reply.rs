//! Answers, as PVE words and frames them.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, PRAGMA, SERVER};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::ext::ReasonPhrase;
use serde_json::{Map, Value, json};

use crate::cluster::Spawn;

/// What an endpoint answers when all is well.
#[derive(Debug)]
pub(crate) enum Answer {
    /// `{"data": …}` of a read.
    Data(Value),
    /// The same with a `total`.
    List(Value, usize),
    /// A change that is already done, answered `{"data": null}`.
    Changed,
    /// A change that is already done, answered with more than null.
    ChangedTo(Value),
    /// A change that a worker does, answered with its UPID.
    Worker(Spawn),
}

/// What is refused, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A status with an empty body; the cause is in the reason phrase only.
    Bare(u16, String),
    /// A plain `die` or permission failure: the text is in the body and its first line in the reason phrase.
    Text(u16, String),
    /// `Parameter verification failed.` with one text per parameter.
    Parameters(BTreeMap<String, String>),
    /// 501: no such method. PVE ends this text without a line feed.
    NotImplemented(String),
}

impl Refusal {
    /// Every plain error of PVE is a 500.
    pub(crate) fn die(text: impl Into<String>) -> Refusal {
        Refusal::Text(500, text.into())
    }

    pub(crate) fn parameter(name: &str, text: impl Into<String>) -> Refusal {
        Refusal::Parameters(BTreeMap::from([(name.to_owned(), text.into())]))
    }

    pub(crate) fn permission(what: &str) -> Refusal {
        Refusal::Text(403, format!("Permission check failed ({what})"))
    }
}

/// Frames a 200.
pub(crate) fn data(value: Value, total: Option<usize>) -> Response<Full<Bytes>> {
    let mut body = Map::from_iter([("data".to_owned(), value)]);
    if let Some(total) = total {
        body.insert("total".to_owned(), json!(total));
    }
    respond(200, "OK", Value::Object(body).to_string())
}

/// Frames a refusal.
pub(crate) fn refuse(refusal: &Refusal) -> Response<Full<Bytes>> {
    match refusal {
        Refusal::Bare(code, reason) => respond(*code, reason, String::new()),
        Refusal::Text(code, text) => {
            let text = text.trim_end_matches('\n');
            respond(*code, text, json!({ "data": null, "message": format!("{text}\n") }).to_string())
        }
        Refusal::Parameters(errors) => {
            let text = "Parameter verification failed.";
            let body = json!({ "data": null, "message": format!("{text}\n"), "errors": errors });
            respond(400, text, body.to_string())
        }
        Refusal::NotImplemented(text) => {
            respond(501, text, json!({ "data": null, "message": text }).to_string())
        }
    }
}

/// Frames any status, reason and body; the connection is closed after a status of 400 or more.
pub(crate) fn respond(code: u16, reason: &str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let first_line = reason.lines().next().unwrap_or_default();
    if let Ok(phrase) = ReasonPhrase::try_from(first_line.as_bytes()) {
        response.extensions_mut().insert(phrase);
    }
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("pve-api-daemon/3.0"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json;charset=UTF-8"));
    if code >= 400 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
