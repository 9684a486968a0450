//! Request heads, looked at before hyper reads them.
//!
//! hyper forgives three things that this server does not: it drops a `#…` from a request's target, it takes a bare line feed
//! for the end of a line, and it reads the chunks of a request that also declares a length. Each gives one request two
//! spellings or two ends, so heads are held back until they are complete, and then
//! - `#` in the request line becomes `?`: the target keeps what hyper would have cut off, and no route takes it for the
//!   target without;
//! - a head that can be read in two ways is replaced by one that hyper answers with 400.
//!
//! Bodies pass untouched. The guard has to know where they end to find the next head; it counts declared lengths, and after
//! a chunked body it looks for none: the server closes such a connection after its answer (see [`is_chunked`]).
//!
//! For the same reason it knows when the server closes on a peer that is still sending, as it does after refusing an upload by
//! its head. Bytes that arrive at a closed socket are answered by a reset, which can overtake the refusal, so they are read and
//! thrown away for a moment.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Largest head. hyper is given the same limit and answers 431.
pub(super) const LARGEST_HEAD: usize = 64 * 1024;
/// How long a peer that is still sending has to take notice of its answer.
const LINGER: Duration = Duration::from_secs(2);
/// What hyper answers with 400 and a closed connection: no method begins like this.
const NO_HEAD: &[u8] = b"\0\r\n\r\n";

/// Whether a request has a chunked body, after whose answer the connection must be closed.
pub(super) fn is_chunked(headers: &HeaderMap) -> bool {
    headers.contains_key(http::header::TRANSFER_ENCODING)
}

/// A connection whose request heads are looked at.
#[derive(Debug)]
pub(super) struct Heads<T> {
    inner: T,
    at: At,
    /// Bytes that were read and not yet given on, from `given`.
    held: Vec<u8>,
    given: usize,
    /// How far `held` has been looked at.
    seen: usize,
    /// Our side is closed, and this is how long the peer's is still read.
    lingering: Option<Pin<Box<Sleep>>>,
}

/// Where in the stream the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a head that is not complete.
    Head,
    /// In a head that is given on, or this many bytes before the end of the body that follows it.
    Body { head: usize, left: u64 },
    /// In the last head of this connection or behind it.
    Rest,
    /// In or behind a head that was replaced: nothing of what the peer sent follows it.
    Refused,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
}

impl<T> Heads<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, at: At::Head, held: Vec::new(), given: 0, seen: 0, lingering: None }
    }

    /// Looks at what is held. `false`: the head is not complete.
    fn examine(&mut self) -> bool {
        if self.given > 0 {
            self.held.drain(..self.given);
            self.given = 0;
        }
        // Empty lines between requests are skipped, as RFC 9112 asks for.
        let empty_lines = self.held.chunks(2).take_while(|pair| *pair == b"\r\n").count() * 2;
        self.held.drain(..empty_lines);
        match end_of_head(&self.held, self.seen.saturating_sub(empty_lines)) {
            Ok(Some(end)) => match framing_of(&mut self.held[..end]) {
                Some(Framing::Length(left)) => self.at = At::Body { head: end, left },
                Some(Framing::Chunked) => self.at = At::Rest,
                None => self.refuse(),
            },
            Ok(None) if self.held.len() > LARGEST_HEAD => self.at = At::Rest,
            Ok(None) => {
                self.seen = self.held.len();
                return false;
            }
            Err(Ambiguous) => self.refuse(),
        }
        self.seen = 0;
        true
    }

    fn refuse(&mut self) {
        self.held = NO_HEAD.to_vec();
        self.at = At::Refused;
    }

    /// Gives on up to `most` held bytes and says how many.
    fn give(&mut self, most: u64, out: &mut ReadBuf<'_>) -> usize {
        let held = &self.held[self.given..];
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let count = held.len().min(most).min(out.remaining());
        out.put_slice(&held[..count]);
        self.given += count;
        if self.given == self.held.len() {
            // A head of the usual size is kept for the next one.
            self.held.clear();
            self.held.shrink_to(4096);
            self.given = 0;
        }
        count
    }
}

impl<T: AsyncRead + Unpin> Heads<T> {
    /// Reads more of a head. `false`: the peer has said all it will.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut space = [0_u8; 4096];
        let mut read = ReadBuf::new(&mut space);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
        self.held.extend_from_slice(read.filled());
        Poll::Ready(Ok(!read.filled().is_empty()))
    }

    fn poll_some(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let holds = self.given < self.held.len();
            match self.at {
                At::Head => {
                    if !self.examine() && !ready!(self.poll_more(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                At::Body { head: 0, left: 0 } => self.at = At::Head,
                At::Body { head, left } if holds => {
                    let given = self.give(left.saturating_add(head as u64), out);
                    let of_head = given.min(head);
                    self.at = At::Body {
                        head: head - of_head,
                        left: left.saturating_sub((given - of_head) as u64),
                    };
                    return Poll::Ready(Ok(()));
                }
                At::Body { head, left } => {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut self.inner).poll_read(cx, out))?;
                    let read = (out.filled().len() - before) as u64;
                    let of_body = read.min(left);
                    self.at = At::Body { head, left: left - of_body };
                    if of_body < read {
                        // The next request came along: it is a head, so it is held.
                        let end = before + usize::try_from(of_body).unwrap_or(usize::MAX);
                        self.held.extend_from_slice(&out.filled()[end..]);
                        out.set_filled(end);
                    }
                    return Poll::Ready(Ok(()));
                }
                At::Rest | At::Refused if holds => {
                    self.give(u64::MAX, out);
                    return Poll::Ready(Ok(()));
                }
                At::Refused => return Poll::Ready(Ok(())),
                At::Rest => return Pin::new(&mut self.inner).poll_read(cx, out),
            }
        }
    }
}

/// It can be read in more than one way.
#[derive(Debug, PartialEq, Eq)]
struct Ambiguous;

/// Where the head ends that `bytes` begin with, if it does; the bytes before `seen` were looked at before.
fn end_of_head(bytes: &[u8], seen: usize) -> Result<Option<usize>, Ambiguous> {
    for at in seen..bytes.len() {
        let before = |back: usize| at.checked_sub(back).map(|at| bytes[at]);
        match bytes[at] {
            b'\n' if before(1) != Some(b'\r') => return Err(Ambiguous),
            b'\n' if before(2) == Some(b'\n') => return Ok(Some(at + 1)),
            b'\n' => {}
            _ if before(1) == Some(b'\r') => return Err(Ambiguous),
            _ => {}
        }
    }
    Ok(None)
}

/// Closes the request line to fragments and says how the body ends; `None` where that can be read in two ways.
fn framing_of(head: &mut [u8]) -> Option<Framing> {
    let line = head.iter().position(|byte| *byte == b'\n')?;
    let (line, fields) = head.split_at_mut(line + 1);
    for byte in line.iter_mut().filter(|byte| **byte == b'#') {
        *byte = b'?';
    }
    let (mut length, mut chunked) = (None, false);
    for field in fields.split(|byte| *byte == b'\n') {
        let field = field.strip_suffix(b"\r").unwrap_or(field);
        if field.is_empty() {
            continue;
        }
        let colon = field.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
        // A folded line, or a name that another reader might trim.
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let value = std::str::from_utf8(value).ok().filter(|_| digits)?;
            if length.replace(value.parse::<u64>().ok()?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            chunked = true;
        }
    }
    match (length, chunked) {
        (Some(_), true) => None,
        (None, true) => Some(Framing::Chunked),
        (length, false) => Some(Framing::Length(length.unwrap_or(0))),
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Heads<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_some(cx, out)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Heads<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Self { inner, lingering, at, .. } = &mut *self;
            let Some(end) = lingering else {
                ready!(Pin::new(inner).poll_shutdown(cx))?;
                let sending = matches!(at, At::Rest | At::Refused | At::Body { left: 1.., .. });
                if !sending {
                    return Poll::Ready(Ok(()));
                }
                *lingering = Some(Box::pin(tokio::time::sleep(LINGER)));
                continue;
            };
            if end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut space = [0_u8; 4096];
            let mut read = ReadBuf::new(&mut space);
            // Whatever ends it, our side was closed in order.
            if ready!(Pin::new(inner).poll_read(cx, &mut read)).is_err() || read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Hands out its bytes in pieces of these sizes, again and again.
    struct Pieces(std::collections::VecDeque<u8>, Vec<usize>, usize);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let size = self.1[self.2 % self.1.len()].min(out.remaining()).min(self.0.len());
            self.2 += 1;
            let piece: Vec<u8> = self.0.drain(..size).collect();
            out.put_slice(&piece);
            Poll::Ready(Ok(()))
        }
    }

    /// What comes out of the guard, read in steps of `step`.
    fn through(sent: &[u8], pieces: &[usize], step: usize) -> Vec<u8> {
        let mut guard = Heads::new(Pieces(sent.to_vec().into(), pieces.to_vec(), 0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut out, mut space) = (Vec::new(), vec![0; step]);
            loop {
                match guard.read(&mut space).await.unwrap() {
                    0 => return out,
                    read => out.extend_from_slice(&space[..read]),
                }
            }
        })
    }

    fn whole(sent: &str) -> String {
        String::from_utf8(through(sent.as_bytes(), &[sent.len().max(1)], 1 << 16)).unwrap()
    }

    #[test]
    fn requests_pass_as_they_are_body_after_head_after_body() {
        for sent in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\na\nb#\nGET /b HTTP/1.1\r\n\r\n",
            "PUT /a HTTP/1.1\r\nContent-Length: 0\r\n\r\nPUT /b HTTP/1.1\r\nX: y:z\r\nContent-Length: 1\r\n\r\nxGET /c HTTP/1.1\r\n\r\n",
            "PUT /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET /#b HTTP/1.1\n\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert_eq!(whole(sent), sent);
        }
        assert_eq!(whole("\r\n\r\nGET / HTTP/1.1\r\n\r\n"), "GET / HTTP/1.1\r\n\r\n");
        assert_eq!(whole("GET / HTTP/1.1\r\nHost: a\r\n"), "", "a head that never ends is not given on");
    }

    #[test]
    fn ul_03_fragments_stay_part_of_the_target() {
        assert_eq!(
            whole("PUT /a#b HTTP/1.1\r\nX: #\r\nContent-Length: 1\r\n\r\n#PUT /a?b#c#d HTTP/1.1\r\n\r\n"),
            "PUT /a?b HTTP/1.1\r\nX: #\r\nContent-Length: 1\r\n\r\n#PUT /a?b?c?d HTTP/1.1\r\n\r\n"
        );
    }

    #[test]
    fn mc_09_heads_with_two_readings_are_replaced() {
        let refused = String::from_utf8(NO_HEAD.to_vec()).unwrap();
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 1",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1, 1",
            "Content-Length: +1",
            "Content-Length: -1",
            "Content-Length: 18446744073709551616",
            "Content-Length:",
            "Content-Length : 1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "X: a\r\n Content-Length: 1",
            "X: a\nContent-Length: 1",
            "X: a\rContent-Length: 1",
            "no colon",
            ": no name",
            "X\0Y: a",
        ] {
            assert_eq!(whole(&format!("PUT / HTTP/1.1\r\n{fields}\r\n\r\nx")), refused, "{fields:?}");
        }
        for head in ["GET / HTTP/1.1\n\n", "GET / HTTP/1.1\r\n\n", "\nGET / HTTP/1.1\r\n\r\n", "\r\r\nGET"] {
            assert_eq!(whole(head), refused, "{head:?}");
        }
    }

    #[test]
    fn a_head_beyond_the_limit_is_left_to_the_limit_of_hyper() {
        let long = format!("GET /{} HTTP/1.1", "a".repeat(LARGEST_HEAD));
        assert_eq!(whole(&long), long);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_still_sending_is_read_a_moment_longer() {
        for (sent, more, lingers) in [
            ("PUT / HTTP/1.1\r\nContent-Length: 10\r\n\r\n123", "4567", true),
            ("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", "2\r\n", true),
            ("PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\n123", "", false),
            ("GET / HTTP/1.1\r\n\r\n", "", false),
        ] {
            let (mut peer, ours) = tokio::io::duplex(1024);
            let mut guard = Heads::new(ours);
            peer.write_all(sent.as_bytes()).await.unwrap();
            let mut read = vec![0; sent.len()];
            guard.read_exact(&mut read).await.unwrap();
            peer.write_all(more.as_bytes()).await.unwrap();
            let started = tokio::time::Instant::now();
            let closing = tokio::spawn(async move {
                guard.shutdown().await.unwrap();
                guard
            });
            // Our end is over at once, in either case.
            assert_eq!(peer.read(&mut read).await.unwrap(), 0);
            closing.await.unwrap();
            assert_eq!(started.elapsed() >= LINGER, lingers, "{sent:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_come_out_the_same(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
            pieces in prop::collection::vec(1_usize..50, 1..8),
            step in 1_usize..60,
        ) {
            let mut sent = Vec::new();
            for body in &bodies {
                sent.extend_from_slice(format!("PUT /a HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
                sent.extend_from_slice(body);
            }
            prop_assert_eq!(through(&sent, &pieces, step), sent);
        }

        #[test]
        fn any_bytes_in_any_pieces_have_one_reading(
            sent in prop::collection::vec(
                prop::sample::select(b"\r\n\r\n\r\n#: GPUTaz10Content-Length: 3\0".to_vec()), 0..120),
            pieces in prop::collection::vec(1_usize..9, 1..5),
            step in 1_usize..60,
        ) {
            prop_assert_eq!(through(&sent, &pieces, step), through(&sent, &[sent.len().max(1)], 1 << 16));
        }
    }
}
