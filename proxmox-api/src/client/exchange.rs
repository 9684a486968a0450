//! One call over HTTP: which endpoint, how often, and what a failure means for what was sent.

use std::{error::Error as StdError, io, sync::atomic::Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, ext::ReasonPhrase};
use hyper_util::client::legacy;

use super::{Endpoint, Http, Inner};
use crate::{
    error::{BoxError, Effect, Error, ErrorKind},
    wire::{Form, Path, Reply, refusal},
};

/// The largest answer that is read.
const ANSWER_CAP: usize = 16 * 1024 * 1024;
/// pveproxy's own limit on a form.
const BODY_CAP: usize = 512 * 1024;
/// pveproxy reads 8 KiB of header; the rest of it needs room too.
const TARGET_CAP: usize = 7 * 1024;

/// A call as it goes out: everything but the endpoint.
pub(super) struct Call {
    method: Method,
    target: String,
    /// Only for POST and PUT; PVE refuses a body on others.
    body: Option<Bytes>,
    /// `GET /nodes/pve1/tasks`, without the parameters, for errors and logs.
    label: String,
}

/// How an attempt at one endpoint failed.
pub(super) enum Failure {
    /// No connection: nothing was sent.
    Connect(Error),
    /// The connection broke; sending a read again may help.
    Broken(Error),
    /// Final.
    Final(Error),
}

impl Call {
    pub(super) fn new(method: Method, path: Path, form: Form) -> Self {
        let label = format!("{method} {}", path.as_str());
        let mut target = format!("/api2/json{}", path.as_str());
        let with_body = method == Method::POST || method == Method::PUT;
        if !with_body && !form.is_empty() {
            target.push('?');
            target.push_str(form.as_str());
        }
        let body = with_body.then(|| form.into_bytes());
        Self { method, target, body, label }
    }

    /// A POST whose body is sent some other way.
    pub(super) fn streamed(path: &Path) -> Self {
        let label = format!("POST {}", path.as_str());
        Self { method: Method::POST, target: format!("/api2/json{}", path.as_str()), body: None, label }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The request up to its body.
    pub(super) fn head(&self, endpoint: &Endpoint, authorization: &HeaderValue) -> http::request::Builder {
        Request::builder()
            .method(self.method.clone())
            .uri(format!("{endpoint}{}", self.target))
            .header(header::AUTHORIZATION, authorization)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("proxmox-api/", env!("CARGO_PKG_VERSION")))
    }

    /// Refuses what PVE would refuse for its size, before a connection is made.
    fn check_size(&self) -> Result<(), Error> {
        let refused = |what, size, cap| {
            let message = format!("{what} of {size} bytes is more than PVE takes ({cap}); send less at once");
            Err(Error::new(ErrorKind::TooLarge, Effect::NotSent, message).with_call(self.label.clone()))
        };
        let body = self.body.as_ref().map_or(0, Bytes::len);
        if body > BODY_CAP {
            return refused("a body", body, BODY_CAP);
        }
        if self.target.len() > TARGET_CAP {
            return refused("a path with its parameters", self.target.len(), TARGET_CAP);
        }
        Ok(())
    }

    fn is_mutation(&self) -> bool {
        self.method != Method::GET
    }

    fn request(
        &self,
        endpoint: &Endpoint,
        authorization: &HeaderValue,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = self.head(endpoint, authorization);
        if let Some(body) = &self.body {
            // Also for an empty body: POST without a length is refused. Never chunked.
            request = request
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .header(header::CONTENT_LENGTH, body.len());
        }
        request.body(Full::new(self.body.clone().unwrap_or_default())).map_err(|error| {
            Error::new(ErrorKind::Config, Effect::NotSent, "the request could not be formed")
                .with_source(error)
        })
    }
}

impl Inner {
    /// A read: any endpoint that can be connected to, once more if the connection breaks, all under one deadline.
    pub(super) async fn read(&self, call: Call) -> Result<Reply, Error> {
        let deadline = self.timeouts.read;
        match tokio::time::timeout(deadline, self.read_anywhere(&call)).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("no answer within {deadline:?}");
                Err(Error::new(ErrorKind::Timeout, Effect::Refused, message).with_call(call.label))
            }
        }
    }

    async fn read_anywhere(&self, call: &Call) -> Result<Reply, Error> {
        let mut failed = Vec::new();
        for index in self.endpoint_order() {
            let mut outcome = self.attempt(&self.reads, index, call).await;
            if let Err(Failure::Broken(error)) = &outcome {
                tracing::debug!(call = %call.label, %error, "read once more after a broken connection");
                outcome = self.attempt(&self.reads, index, call).await;
            }
            match outcome {
                Ok(reply) => return Ok(reply),
                Err(Failure::Connect(error)) => self.passed_over(index, error, &mut failed),
                Err(Failure::Broken(error) | Failure::Final(error)) => {
                    return Err(error.with_call(call.label.clone()));
                }
            }
        }
        Err(unreachable(failed).with_call(call.label.clone()))
    }

    /// A mutation: written at most once. The next endpoint gets it only while no connection could be made.
    pub(super) async fn mutate(&self, call: Call) -> Result<Reply, Error> {
        call.check_size()?;
        let deadline = self.timeouts.write;
        let mut failed = Vec::new();
        for index in self.endpoint_order() {
            let attempt = tokio::time::timeout(deadline, self.attempt(&self.writes, index, &call)).await;
            match attempt {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(Failure::Connect(error))) => self.passed_over(index, error, &mut failed),
                Ok(Err(Failure::Broken(error) | Failure::Final(error))) => {
                    return Err(error.with_call(call.label));
                }
                Err(_) => {
                    let message = format!("no answer within {deadline:?}; it may still be carried out");
                    return Err(
                        Error::new(ErrorKind::Timeout, Effect::Unknown, message).with_call(call.label)
                    );
                }
            }
        }
        Err(unreachable(failed).with_call(call.label))
    }

    /// The endpoints, the one that answered last first.
    pub(super) fn endpoint_order(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.endpoints.len();
        let first = self.preferred.load(Ordering::Relaxed);
        (0..count).map(move |step| (first + step) % count)
    }

    pub(super) fn passed_over(&self, index: usize, error: Error, failed: &mut Vec<(String, Error)>) {
        if let Some(endpoint) = self.endpoints.get(index) {
            tracing::warn!(%endpoint, %error, "endpoint cannot be used");
            failed.push((endpoint.to_string(), error));
        }
    }

    async fn attempt(&self, http: &Http, index: usize, call: &Call) -> Result<Reply, Failure> {
        call.check_size().map_err(Failure::Final)?;
        let Some(endpoint) = self.endpoints.get(index) else {
            return Err(Failure::Connect(Error::config("no such endpoint")));
        };
        let request = call.request(endpoint, &self.header).map_err(Failure::Final)?;
        let response = http.request(request).await.map_err(|error| failure(error, call.is_mutation()))?;
        self.preferred.store(index, Ordering::Relaxed);
        tracing::debug!(call = %call.label, %endpoint, status = response.status().as_u16(), "answered");
        self.answer(response, call).await
    }

    fn note_date(&self, headers: &http::HeaderMap) {
        let date =
            headers.get(header::DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let seconds = date.and_then(|date| Some(date.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs()));
        if let Some(seconds) = seconds {
            self.date.store(seconds, Ordering::Relaxed);
        }
    }

    pub(super) async fn answer(&self, response: Response<Incoming>, call: &Call) -> Result<Reply, Failure> {
        let (head, body) = response.into_parts();
        self.note_date(&head.headers);
        let body = Limited::new(body, ANSWER_CAP).collect().await.map(|body| body.to_bytes());
        if head.status.is_success() {
            let effect = if call.is_mutation() { Effect::Unknown } else { Effect::Refused };
            let body = body.map_err(|error| broken_body(&error, effect))?;
            return Ok(Reply::new(body, effect, self.scrubber.clone(), call.label.clone()));
        }
        // The status and its reason say enough when the body of an error cannot be read.
        let body = body.unwrap_or_default();
        let reason = head.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        let mut error = refusal(head.status, reason, &body, call.is_mutation(), &self.scrubber);
        if error.kind() == ErrorKind::Redirected {
            let to = head.headers.get(header::LOCATION).map_or(&b""[..], HeaderValue::as_bytes);
            let to = self.scrubber.clean(&String::from_utf8_lossy(to));
            error = Error::new(
                ErrorKind::Redirected,
                error.effect(),
                format!("redirected to {to:?}; redirects are not followed, set the endpoint itself"),
            )
            .with_status(head.status.as_u16());
        }
        Err(Failure::Final(error))
    }
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

fn broken_body(error: &BoxError, effect: Effect) -> Failure {
    if error.is::<LengthLimitError>() {
        let message = format!("the answer is larger than {ANSWER_CAP} bytes");
        return Failure::Final(Error::new(ErrorKind::TooLarge, effect, message));
    }
    let message = format!("the answer broke off: {}", chain(error.as_ref()));
    Failure::Broken(Error::new(ErrorKind::Disconnected, effect, message))
}

/// No endpoint took a connection: says what happened at each.
pub(super) fn unreachable(failed: Vec<(String, Error)>) -> Error {
    let tls = failed.iter().any(|(_, error)| error.kind() == ErrorKind::Tls);
    let kind = if tls { ErrorKind::Tls } else { ErrorKind::Unreachable };
    let list: Vec<String> =
        failed.iter().map(|(endpoint, error)| format!("{endpoint}: {}", error.message())).collect();
    let error = Error::new(kind, Effect::NotSent, format!("no connection to {}", list.join("; ")));
    match failed.into_iter().next_back() {
        Some((_, source)) => error.with_source(source),
        None => error,
    }
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
    use secrecy::SecretString;

    use super::*;
    use crate::{ApiToken, Client, Fingerprint, Trust};

    #[tokio::test]
    async fn px_13_a_body_above_512_kib_is_refused_locally() {
        // Nothing listens there: the refusal comes before any connection.
        let client = Client::builder()
            .endpoint(Endpoint::parse("https://127.0.0.1:1").unwrap())
            .token(ApiToken::new("root@pam!full", SecretString::from("11111111-2222")).unwrap())
            .trust(Trust::Leaf(Fingerprint::of(b"")))
            .build()
            .unwrap();
        let post = async |size: usize| {
            // `a=` takes two bytes.
            let form = Form::new().put("a", "x".repeat(size - 2));
            client.post(Path::of("nodes"), form).await.unwrap_err()
        };
        let error = post(BODY_CAP + 1).await;
        assert_eq!((error.kind(), error.effect()), (ErrorKind::TooLarge, Effect::NotSent), "{error}");
        assert_eq!(post(BODY_CAP).await.kind(), ErrorKind::Unreachable, "the limit itself is allowed");
    }

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
