//! Uploads: what goes over the wire, and what a source that is not as it should be comes to.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use proxmox_api::{
    Checksum, ChecksumAlgorithm, Client, Effect, Endpoint, Error, ErrorKind, FileContent, Timeouts, Trust,
    Upid, Upload,
};
use tokio::io::{AsyncRead, ReadBuf};

use crate::support::{Answer, Authority, Server, UPID, data, guest, http, pair, pair_with, short};

fn iso(size: u64) -> Upload {
    Upload { content: FileContent::Iso, filename: "debian.iso".parse().unwrap(), size, checksum: None }
}

async fn upload(
    client: &Client,
    upload: &Upload,
    source: impl AsyncRead + Send + Unpin + 'static,
) -> Result<Upid, Error> {
    client.upload(&guest().node, &"local".parse().unwrap(), upload, source).await
}

/// Gives so many bytes, then waits for ever, fails, or ends.
struct Source {
    left: u64,
    then: fn() -> Poll<io::Result<()>>,
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return (self.then)();
        }
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.remaining());
        into.put_slice(&vec![b'x'; count]);
        self.left -= count as u64;
        Poll::Ready(Ok(()))
    }
}

/// A33: larger than a form may be, streamed with its length, the file last.
#[tokio::test]
async fn a_file_is_streamed_with_its_length_and_comes_last() {
    const SIZE: u64 = 3 * 1024 * 1024 + 7;
    let (server, client) = pair(|_, _| data(&format!("\"{UPID}\""))).await;
    let mut file = iso(SIZE);
    file.checksum = Some(Checksum::new(ChecksumAlgorithm::Sha256, &"AB".repeat(32)).unwrap());
    let upid = upload(&client, &file, Source { left: SIZE, then: || Poll::Ready(Ok(())) }).await.unwrap();
    assert_eq!(upid.to_string(), UPID);

    let seen = server.seen().pop().unwrap();
    assert_eq!(seen.line, "POST /api2/json/nodes/pve1/storage/local/upload HTTP/1.1");
    assert_eq!(seen.header("content-length").unwrap(), seen.body.len().to_string());
    assert_eq!(seen.header("transfer-encoding"), None);
    let boundary =
        seen.header("content-type").unwrap().strip_prefix("multipart/form-data; boundary=").unwrap();
    let text = String::from_utf8(seen.body.clone()).unwrap();
    let names: Vec<&str> =
        text.split("name=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(names, ["content", "checksum", "checksum-algorithm", "filename", "debian.iso"]);
    let expected = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n--{boundary}\r\n"
    );
    assert!(text.starts_with(&expected), "{}", &text[..200]);
    let file = text.split("application/octet-stream\r\n\r\n").nth(1).unwrap();
    let file = file.strip_suffix(&format!("\r\n--{boundary}--\r\n")).unwrap();
    assert!(file.len() as u64 == SIZE && file.bytes().all(|byte| byte == b'x'));
}

#[tokio::test]
async fn boundaries_are_never_the_same() {
    let (server, client) = pair(|_, _| data(&format!("\"{UPID}\""))).await;
    for _ in 0..3 {
        upload(&client, &iso(1), &b"x"[..]).await.unwrap();
    }
    let boundaries: std::collections::BTreeSet<String> =
        server.seen().iter().map(|seen| seen.header("content-type").unwrap().to_owned()).collect();
    assert_eq!(boundaries.len(), 3);
}

#[tokio::test]
async fn a_source_of_another_length_or_that_fails_leaves_nothing() {
    for (size, source, says) in [
        (100, Source { left: 99, then: || Poll::Ready(Ok(())) }, "ended after 99 of the 100 bytes"),
        (100, Source { left: 101, then: || Poll::Ready(Ok(())) }, "longer than the 100 bytes"),
        (0, Source { left: 1, then: || Poll::Ready(Ok(())) }, "longer than the 0 bytes"),
        (
            200_000,
            Source { left: 100_000, then: || Poll::Ready(Err(io::Error::other("disk gone"))) },
            "disk gone",
        ),
    ] {
        let (server, client) = pair(|_, _| data(&format!("\"{UPID}\""))).await;
        let error = upload(&client, &iso(size), source).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Source, Effect::NotSent), "{error}");
        assert!(error.message().contains(says), "{error}");
        assert!(server.seen().is_empty(), "no whole request arrived");
    }
    let (_server, client) = pair(|_, _| data(&format!("\"{UPID}\""))).await;
    upload(&client, &iso(0), &b""[..]).await.unwrap();
}

#[tokio::test]
async fn an_upload_that_stands_still_is_given_up() {
    let (_server, client) = pair_with(short(), |_, _| data("null")).await;
    let source = Source { left: 10, then: || Poll::Pending };
    let error = upload(&client, &iso(100), source).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::NotSent), "{error}");

    // The whole file went out, and no answer came: it may be there.
    let (_server, client) = pair_with(short(), |_, _| Answer::Hang(Vec::new())).await;
    let error = upload(&client, &iso(1), &b"x"[..]).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error}");
}

#[tokio::test]
async fn a_refusal_is_told_in_pves_words() {
    let body = r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"content":"property is missing"}}"#;
    let (server, client) = pair(move |_, _| Answer::Close(http("400 x", body))).await;
    let error = upload(&client, &iso(1), &b"x"[..]).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Parameter, Effect::Refused), "{error}");
    assert_eq!(error.parameter_errors()["content"], "property is missing");
    assert_eq!(server.seen().len(), 1);

    let mut odd = iso(1);
    odd.content = FileContent::Vztmpl;
    assert_eq!(upload(&client, &odd, &b"x"[..]).await.unwrap_err().effect(), Effect::NotSent);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn the_next_endpoint_gets_the_file_when_the_first_takes_no_connection() {
    let authority = Authority::new();
    let answer = |_: usize, _: &crate::support::Seen| data(&format!("\"{UPID}\""));
    let server = Server::start(authority.issue(&["127.0.0.1"]).server(), answer).await;
    // Nothing listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let timeouts = Timeouts { connect: Duration::from_secs(2), ..Timeouts::default() };
    let client = Client::builder()
        .endpoint(Endpoint::parse(&format!("https://{gone}")).unwrap())
        .endpoint(server.endpoint())
        .token(proxmox_api::ApiToken::new(crate::support::TOKEN_ID, crate::support::SECRET.into()).unwrap())
        .trust(Trust::Ca(authority.pem))
        .timeouts(timeouts)
        .build()
        .unwrap();
    upload(&client, &iso(5), &b"12345"[..]).await.unwrap();
    assert!(server.seen()[0].body.windows(5).any(|window| window == b"12345"));
}
