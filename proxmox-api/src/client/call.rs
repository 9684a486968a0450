//! One request as it goes out, to whichever endpoint.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;

use super::Endpoint;
use crate::{
    error::{Effect, Error, ErrorKind},
    wire::{Form, Path},
};

/// pveproxy's own limit on a form.
pub(super) const BODY_CAP: usize = 512 * 1024;
/// pveproxy reads 8 KiB of header; the rest of it needs room too.
const TARGET_CAP: usize = 7 * 1024;
/// What every path begins with.
const PREFIX: &str = "/api2/json";

/// A call as it goes out: everything but the endpoint.
pub(super) struct Call {
    method: Method,
    target: String,
    /// Only for POST and PUT; PVE refuses a body on others.
    body: Option<Bytes>,
    /// `GET /nodes/pve1/tasks`, without the parameters, for errors and logs.
    pub(super) label: String,
}

impl Call {
    pub(super) fn new(method: Method, path: Path, form: Form) -> Self {
        let label = format!("{method} {}", path.as_str());
        let mut target = format!("{PREFIX}{}", path.as_str());
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
        Self { method: Method::POST, target: format!("{PREFIX}{}", path.as_str()), body: None, label }
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
    pub(super) fn check_size(&self) -> Result<(), Error> {
        let refused = |what, size, cap| {
            let message = format!("{what} of {size} bytes is more than PVE takes ({cap}); send less at once");
            Err(Error::new(ErrorKind::TooLarge, Effect::NotSent, message))
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

    pub(super) fn is_mutation(&self) -> bool {
        self.method != Method::GET
    }

    /// Method, path and form of a change; `None` for a read.
    pub(super) fn parts(&self) -> Option<(&Method, &str, String)> {
        if !self.is_mutation() {
            return None;
        }
        let target = self.target.strip_prefix(PREFIX).unwrap_or(&self.target);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let form = match &self.body {
            Some(body) => String::from_utf8_lossy(body).into_owned(),
            None => query.to_owned(),
        };
        Some((&self.method, path, form))
    }

    pub(super) fn request(
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

    /// A body always states its length, however large: PVE refuses a chunked one, and POST without a length.
    #[test]
    fn px_13_a_body_states_its_length_and_only_post_and_put_have_one() {
        use hyper::body::Body as _;
        let endpoint = Endpoint::parse("https://pve1.test").unwrap();
        for size in [0, 5_000, 500_000] {
            for method in [Method::GET, Method::DELETE, Method::POST, Method::PUT] {
                let with_body = method == Method::POST || method == Method::PUT;
                if !with_body && size > TARGET_CAP {
                    continue;
                }
                let form = Form::new().put("a", "x".repeat(size));
                let call = Call::new(method.clone(), Path::of("nodes"), form);
                let request = call.request(&endpoint, &HeaderValue::from_static("x")).unwrap();
                let (length, exact) =
                    (request.headers().get(header::CONTENT_LENGTH), request.body().size_hint().exact());
                assert_eq!(request.headers().get(header::TRANSFER_ENCODING), None);
                if with_body {
                    assert_eq!(length.unwrap().to_str().unwrap(), (size + 2).to_string());
                    assert_eq!((exact, request.uri().query()), (Some(size as u64 + 2), None));
                } else {
                    assert_eq!((length, exact), (None, Some(0)));
                    assert_eq!(request.uri().query().unwrap().len(), size + 2);
                }
            }
        }
    }
}
