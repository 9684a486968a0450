//! A request body as a source of bytes, held to a pace and a cap.

use std::time::Duration;

use bytes::Bytes;
use guest_push::{Source, SourceError, SourceErrorKind};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::config::Limits;

/// How slow an uploader may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Longest wait for the next bytes.
    pub(super) idle: Duration,
    /// Time spent waiting over which `per_window` bytes must have come.
    pub(super) window: Duration,
    /// Fewest bytes a window.
    pub(super) per_window: u64,
    /// Longest time in all.
    pub(super) total: Duration,
}

impl Pace {
    /// The pace of a transfer of at most `cap` bytes: 1 KiB a second over any window of silence, and a total that grows with
    /// the cap.
    pub(crate) fn of(limits: &Limits, cap: u64) -> Self {
        /// Added to the total deadline for each MiB of the cap.
        const TOTAL_PER_MIB: Duration = Duration::from_secs(1);
        const MIB: u64 = 1024 * 1024;
        Self {
            idle: Duration::from_millis(limits.upload_idle_ms),
            window: Duration::from_millis(limits.upload_idle_ms),
            per_window: limits.upload_idle_ms * 1024 / 1000,
            total: Duration::from_secs(600) + TOTAL_PER_MIB * u32::try_from(cap / MIB).unwrap_or(u32::MAX),
        }
    }
}

/// Streams a body, counting, refusing what is over the cap and what is too slow.
#[derive(Debug)]
pub(crate) struct BodySource<B> {
    body: B,
    /// Bytes read ahead, to tell an empty body before anything else is done.
    first: Option<Bytes>,
    length: Option<u64>,
    exact: Option<u64>,
    cap: u64,
    pace: Pace,
    ends: Instant,
    received: u64,
    waited: Duration,
    in_window: u64,
}

impl<B> BodySource<B>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::fmt::Display,
{
    /// Over `body`, whose declared length is `length` where it declares one.
    pub(crate) fn new(body: B, length: Option<u64>, cap: u64, pace: Pace) -> Self {
        let ends = Instant::now() + pace.total;
        Self {
            body,
            first: None,
            length,
            exact: None,
            cap,
            pace,
            ends,
            received: 0,
            waited: Duration::ZERO,
            in_window: 0,
        }
    }

    /// Holds the body to exactly this many bytes, whether or not it declares a length.
    #[must_use]
    pub(super) fn exactly(mut self, bytes: Option<u64>) -> Self {
        self.exact = bytes;
        self
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Waits for the first bytes. `false`: the body is empty.
    ///
    /// # Errors
    /// As [`Source::next`].
    pub(super) async fn begins(&mut self) -> Result<bool, SourceError> {
        self.first = self.read().await?;
        Ok(self.first.is_some())
    }

    async fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            let started = Instant::now();
            let limit = self.pace.idle.min(self.ends.saturating_duration_since(started));
            let frame = tokio::time::timeout(limit, self.body.frame())
                .await
                .map_err(|_| too_slow("no bytes arrived in time"))?;
            self.waited += started.elapsed();
            let Some(frame) = frame else { return self.ended() };
            let frame = frame.map_err(|error| {
                SourceError::new(SourceErrorKind::Aborted, format!("the upload broke off: {error}"))
            })?;
            // Trailers carry nothing that is asked for here.
            let Ok(data) = frame.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            self.count(data.len() as u64)?;
            return Ok(Some(data));
        }
    }

    fn count(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.received += bytes;
        if self.received > self.cap {
            return Err(SourceError::new(
                SourceErrorKind::TooLarge,
                format!("the upload is larger than this link's limit of {} bytes", self.cap),
            ));
        }
        self.in_window += bytes;
        if self.waited >= self.pace.window {
            if self.in_window < self.pace.per_window {
                return Err(too_slow("the bytes arrive too slowly"));
            }
            self.waited = Duration::ZERO;
            self.in_window = 0;
        }
        Ok(())
    }

    /// A body that ends before its declared length is an upload that broke off, whatever the transport calls it.
    fn ended(&self) -> Result<Option<Bytes>, SourceError> {
        match self.length {
            Some(length) if self.received < length => Err(SourceError::new(
                SourceErrorKind::Aborted,
                format!("the upload ended after {} of {length} bytes", self.received),
            )),
            _ => match self.exact {
                Some(exact) if self.received < exact => Err(SourceError::new(
                    SourceErrorKind::Other,
                    format!("the link was minted for {exact} bytes and {} came", self.received),
                )),
                _ => Ok(None),
            },
        }
    }
}

fn too_slow(what: &str) -> SourceError {
    SourceError::new(
        SourceErrorKind::TooSlow,
        format!("{what}; ask for a new link and upload over a faster connection"),
    )
}

impl<B> Source for BodySource<B>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::fmt::Display,
{
    async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.read().await,
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;

    use super::*;

    const PACE: Pace = Pace {
        idle: Duration::from_secs(30),
        window: Duration::from_secs(30),
        per_window: 30 * 1024,
        total: Duration::from_secs(600),
    };

    /// One byte a second, for ever.
    struct Drip(std::pin::Pin<Box<tokio::time::Sleep>>);

    impl Drip {
        fn new() -> Self {
            Self(Box::pin(tokio::time::sleep(Duration::from_secs(1))))
        }
    }

    impl Body for Drip {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            std::task::ready!(self.0.as_mut().poll(cx));
            self.0.set(tokio::time::sleep(Duration::from_secs(1)));
            std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ul_25_a_drip_of_bytes_is_cut_off() {
        let mut source = BodySource::new(Drip::new(), None, 1 << 30, PACE);
        let error = loop {
            match source.next().await {
                Ok(chunk) => assert!(chunk.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), SourceErrorKind::TooSlow);
        assert!(source.received() <= 31);
    }

    #[tokio::test]
    async fn ul_18_and_19_the_cap_is_exact() {
        for (size, fits) in [(9, true), (10, true), (11, false)] {
            let mut source = BodySource::new(Full::new(Bytes::from(vec![7; size])), None, 10, PACE);
            assert_eq!(source.next().await.is_ok(), fits, "{size}");
        }
    }

    #[tokio::test]
    async fn ul_23_an_empty_body_is_known_before_anything_else() {
        let mut source = BodySource::new(Full::new(Bytes::new()), Some(0), 10, PACE);
        assert!(!source.begins().await.unwrap());
        let mut source = BodySource::new(Full::new(Bytes::from_static(b"ab")), Some(2), 10, PACE);
        assert!(source.begins().await.unwrap());
        assert_eq!(source.next().await.unwrap().unwrap(), "ab");
        assert_eq!(source.next().await.unwrap(), None);
    }

    #[test]
    fn d17_the_deadline_grows_with_the_largest_upload_allowed() {
        let limits = Limits::default();
        let (small, large) = (Pace::of(&limits, 1 << 20), Pace::of(&limits, 10 << 30));
        assert_eq!(small.total, Duration::from_secs(601));
        // A gibibyte at 2 MiB/s takes 512 s.
        assert_eq!(large.total, Duration::from_secs(600 + 10_240));
        assert_eq!((small.idle, small.window), (large.idle, large.window));
    }

    // C14: what is shorter than it declared is no file.
    #[tokio::test]
    async fn ul_26_a_body_shorter_than_declared_is_an_abort() {
        let mut source = BodySource::new(Full::new(Bytes::from_static(b"ab")), Some(3), 10, PACE);
        source.next().await.unwrap();
        assert_eq!(source.next().await.unwrap_err().kind(), SourceErrorKind::Aborted);
    }
}
