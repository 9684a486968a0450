//! One call over HTTP: which endpoint, how often, and what a failure means for what was sent.

use std::{future::Future, sync::atomic::Ordering, time::Duration};

use http::{HeaderValue, Response, header};
use hyper::{body::Incoming, ext::ReasonPhrase};
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, timeout},
};

use super::{
    Http, Inner,
    body::{ANSWER_CAP, REFUSAL_CAP, collect},
    call::Call,
    fault::{Failure, body_failure, failure, nowhere},
};
use crate::{
    error::{Effect, Error, ErrorKind},
    wire::{Reply, refusal},
};

impl Inner {
    /// A read: any endpoint that answers, once more if a connection breaks, all under one deadline.
    pub(super) async fn read(&self, call: Call) -> Result<Reply, Error> {
        let deadline = self.timeouts.read;
        let work = async {
            let answered = timeout(deadline, async {
                let _turn = self.reads_lane.turn().await?;
                self.read_anywhere(&call).await
            });
            answered.await.unwrap_or_else(|_| {
                let message = format!("no answer within {deadline:?}");
                Err(Error::new(ErrorKind::Timeout, Effect::Refused, message))
            })
        };
        self.guarded(&call, work).await
    }

    /// A mutation: written at most once. The next endpoint gets it only while no connection could be made.
    pub(super) async fn mutate(&self, call: Call) -> Result<Reply, Error> {
        let work = async {
            let _turn = self.turn_to_write().await?;
            self.write_once(&call).await
        };
        self.guarded(&call, work).await
    }

    /// Refuses what cannot succeed before anything is sent, and tells the breaker how the rest ended.
    pub(super) async fn guarded(
        &self,
        call: &Call,
        work: impl Future<Output = Result<Reply, Error>>,
    ) -> Result<Reply, Error> {
        let result = async {
            call.check_size()?;
            if let Some(rehearsed) = self.rehearsal.as_deref().and_then(|notes| call.rehearse(notes)) {
                return Err(rehearsed);
            }
            let pass = self.breaker.pass(Instant::now())?;
            let result = work.await;
            pass.end(&result, Instant::now());
            result
        };
        result.await.map_err(|error| error.with_call(call.label.clone()))
    }

    pub(super) async fn turn_to_write(&self) -> Result<SemaphorePermit<'_>, Error> {
        let deadline = self.timeouts.write;
        timeout(deadline, self.writes_lane.turn()).await.unwrap_or_else(|_| {
            let message = format!("it was not this call's turn within {deadline:?}; nothing was sent");
            Err(Error::new(ErrorKind::Overloaded, Effect::NotSent, message))
        })
    }

    async fn read_anywhere(&self, call: &Call) -> Result<Reply, Error> {
        let mut failed = Vec::new();
        let mut once_more = true;
        for (at, index) in self.endpoint_order().enumerate() {
            // The last endpoint may use up what is left of the deadline.
            let patience = (at + 1 < self.endpoints.len()).then_some(self.timeouts.head);
            let mut outcome = self.attempt(&self.reads, index, call, patience).await;
            if once_more && let Err(Failure::Broken(error)) = &outcome {
                tracing::debug!(call = %call.label, %error, "read once more after a broken connection");
                once_more = false;
                outcome = self.attempt(&self.reads, index, call, patience).await;
            }
            match outcome {
                Ok(reply) => return Ok(reply),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Connect(error) | Failure::Broken(error) | Failure::Useless(error)) => {
                    self.passed_over(index, error, &mut failed);
                }
            }
        }
        Err(nowhere(failed))
    }

    async fn write_once(&self, call: &Call) -> Result<Reply, Error> {
        let deadline = self.timeouts.write;
        let mut failed = Vec::new();
        for index in self.endpoint_order() {
            match timeout(deadline, self.attempt(&self.writes, index, call, None)).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(Failure::Connect(error))) => self.passed_over(index, error, &mut failed),
                Ok(Err(Failure::Broken(error) | Failure::Useless(error) | Failure::Final(error))) => {
                    return Err(error);
                }
                Err(_) => {
                    let message = format!("no answer within {deadline:?}; it may still be carried out");
                    return Err(Error::new(ErrorKind::Timeout, Effect::Unknown, message));
                }
            }
        }
        Err(nowhere(failed))
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

    /// One request to one endpoint. With `patience`, an answer must begin within it.
    async fn attempt(
        &self,
        http: &Http,
        index: usize,
        call: &Call,
        patience: Option<Duration>,
    ) -> Result<Reply, Failure> {
        let Some(endpoint) = self.endpoints.get(index) else {
            return Err(Failure::Connect(Error::config("no such endpoint")));
        };
        let request = call.request(endpoint, &self.header).map_err(Failure::Final)?;
        let asked = http.request(request);
        let response = match patience {
            Some(patience) => timeout(patience, asked).await.map_err(|_| {
                let message = format!("no answer began within {patience:?}");
                Failure::Useless(Error::new(ErrorKind::Timeout, Effect::Refused, message))
            })?,
            None => asked.await,
        };
        let response = response.map_err(|error| failure(error, call.is_mutation()))?;
        tracing::debug!(call = %call.label, %endpoint, status = response.status().as_u16(), "answered");
        let answer = self.answer(response, call).await;
        if !matches!(answer, Err(Failure::Useless(_))) {
            self.preferred.store(index, Ordering::Relaxed);
        }
        answer
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
        if head.status.is_success() {
            let effect = if call.is_mutation() { Effect::Unknown } else { Effect::Refused };
            // Compression was not asked for, and unpacking what a stranger packed has no bound.
            if let Some(coding) =
                head.headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity")
            {
                let message =
                    format!("the answer is not what PVE answers: its content is coded as {coding:?}");
                return Err(Failure::Final(Error::new(ErrorKind::Malformed, effect, message)));
            }
            let body = collect(body, ANSWER_CAP, self.timeouts.idle).await;
            let body = body.map_err(|fault| body_failure(fault, effect))?;
            return Ok(Reply::new(body, effect, self.scrubber.clone(), call.label.clone()));
        }
        // The status and its reason say enough when the body of an error cannot be read.
        let body = collect(body, REFUSAL_CAP, self.timeouts.idle).await.unwrap_or_default();
        let reason = head.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        let mut error = refusal(head.status, reason, body, call.is_mutation(), &self.scrubber);
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
        Err(match head.status.as_u16() {
            502..=504 => Failure::Useless(error),
            _ => Failure::Final(error),
        })
    }
}
