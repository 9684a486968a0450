//! The answers of the upload route. All of them are JSON, uncacheable, and say nothing about the token.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use mcp_wire::http::BoxBody;
use serde_json::{Value, json};

/// A response of this route.
pub type Reply = Response<BoxBody>;

/// The one answer to every token that is not a pending link, and to every path at which nothing is served: status, headers and
/// bytes are always these.
pub fn not_found() -> Reply {
    error(StatusCode::NOT_FOUND, "not_found", "nothing is served here; for an upload, ask for a new link")
}

/// Any method but those that redeem. Says nothing about the token, which stays as it was.
pub fn method_not_allowed(allowed: &'static str) -> Reply {
    let message = format!("this link takes {allowed} only");
    let mut reply = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// A refusal or a failure with a stable code.
pub fn error(status: StatusCode, code: &str, message: &str) -> Reply {
    json_reply(status, &json!({"error": {"code": code, "message": message}}))
}

/// Any JSON answer.
pub fn json_reply(status: StatusCode, body: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(format!("{body}\n"))).boxed());
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if !status.is_success() {
        // The body may be unread: the connection is not used again.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}
